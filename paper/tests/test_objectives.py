"""The comparison of objectives: what it prints, and that it goes on from its records."""

from __future__ import annotations

import json

import pytest
from tiny_settings import DATA

import spen
from spen_paper.cli import objectives as command
from spen_paper.fits import describe_plan
from spen_paper.settings import classifier, settings_of
from spen_paper.tables import objectives as module
from spen_paper.tables.objectives import kept_bytes

_FIRST = {
    "name": "label by label",
    "objective": {"name": "cross_entropy"},
    "parts": ["features", "local"],
    "epochs": 2,
}
_COMMON = {"classifier": "SPENClassifier", "hidden": [6], "dropout": 0.1, "folds": 1}
_THROUGH = {"name": "end_to_end", "entropy": 1.0}
TABLES = {
    "mlp": _COMMON | {"energy": "local", "stages": [_FIRST]},
    "convex-implicit": _COMMON
    | {
        "energy": [{"name": "ConvexEnergy", "measurements": 3}],
        "objective": _THROUGH,
        "inference": {"stopping": {"max_steps": 30}, "backward": {"name": "implicit"}},
        "stages": [_FIRST, {"name": "all", "objective": _THROUGH, "epochs": 2}],
    },
}


@pytest.fixture(autouse=True)
def tiny(monkeypatch) -> None:
    monkeypatch.setattr(module, "settings_of", lambda dataset, name: TABLES)
    monkeypatch.setattr(module.fits, "dataset_of", lambda dataset: DATA)


def test_the_command_prints_and_goes_on(tmp_path, capsys, monkeypatch) -> None:
    command(dataset="bibtex", seeds=2, device="cpu", out=tmp_path)
    printed = capsys.readouterr().out
    for words in (
        "MLP: the features alone",
        "differentiated implicitly",
        "search errors",
        "2 seeds",
    ):
        assert words in printed
    lines = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * 2 * 2
    convex = [line for line in lines if line["method"] == "convex-implicit"]
    assert all(line["search_errors"] == 0.0 for line in convex)
    assert all(0 <= line["certified"] <= 100 for line in convex)
    assert all(line["kept_bytes"] > 0 for line in lines)
    monkeypatch.setattr(module.fits, "timed_fit", None)
    command(dataset="bibtex", seeds=2, device="cpu", out=tmp_path)
    assert capsys.readouterr().out == printed


def test_methods_are_chosen_by_name(tmp_path, capsys) -> None:
    with pytest.raises(spen.InputError, match="mlp"):
        command(method="mpl", device="cpu", out=tmp_path)
    with pytest.raises(spen.InputError, match="seeds"):
        command(seeds=0, device="cpu", out=tmp_path)
    command(method="mlp", seeds=1, device="cpu", out=tmp_path)
    assert "convex" not in capsys.readouterr().out.split("official split")[0]


def test_every_method_of_the_settings_can_be_made() -> None:
    tables = settings_of("bibtex", "objectives")
    assert set(tables) == set(module.TITLES)
    for name, table in tables.items():
        made = classifier(table, seed=0, device="cpu", where=name)
        assert describe_plan(made, DATA)["plan"]["stages"][0]["name"] == "label by label"
        assert table["hidden"] == tables["mlp"]["hidden"]


def test_kept_bytes_grow_with_the_steps() -> None:
    data = spen.exclusive_blocks(90, 10)

    def kept(steps: int) -> int:
        inference = spen.Descent(spen.MirrorDescent(0.5, 0.0), spen.Stopping(steps))
        clf = spen.SPENClassifier(
            energy=spen.LabelEnergy.unsized(measurements=4, nonlinearity="softplus"),
            objective=spen.EndToEnd("log", "last"),
            inference=inference,
            hidden=(4,),
            epochs=1,
            folds=1,
            refit=False,
            random_state=0,
        )
        return kept_bytes(clf.fit(data.train.X, data.train.Y), data.train)

    few, many = (kept(steps) for steps in (4, 40))
    assert many > 5 * few
