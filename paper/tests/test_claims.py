"""The paper's side remarks: verdicts follow the figures, by the rules that are printed."""

import json
from dataclasses import replace

import pytest
import tiny_settings as tiny

import spen
from spen.energies.base import energy_terms
from spen_paper.cli import claims as command
from spen_paper.studies import claims
from spen_paper.studies.study import Study
from spen_paper.tables.protocol import Method
from spen_paper.tables.table3 import methods_for


def open_study(tmp_path, name="bibtex"):
    data = replace(tiny.DATA, name=name)
    records = claims.Study.open("claims", "bibtex", 2, "cpu", tmp_path).records
    return Study("claims", data, tiny.TABLES, 2, "cpu", records)


def test_all_claims_are_measured_on_tiny_settings(tmp_path, monkeypatch, capsys):
    tiny.use(monkeypatch)
    monkeypatch.setattr(claims, "SYNTHETIC_ROWS", 40)
    monkeypatch.setattr(claims, "SYNTHETIC_TEST_ROWS", 30)
    monkeypatch.setattr(claims, "methods_for", lambda rows: {"spen": quick()})
    monkeypatch.setattr(spen, "load_dataset", lambda name: tiny.DATA)
    command(dataset="bibtex", seeds=1, device="cpu", out=tmp_path)
    shown = capsys.readouterr().out
    for words in (
        "about half",
        "pairwise terms help on bibtex",
        "critical",
        "overfits",
        "freezing",
        "One seed has no standard error",
    ):
        assert words in shown
    assert "a row empty in truth and prediction counts 1" in shown
    lines = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert {line["experiment"] for line in lines} == {"claims"}
    size = (tmp_path / "records.jsonl").stat().st_size
    command(dataset="bibtex", seeds=1, device="cpu", out=tmp_path)
    assert capsys.readouterr().out == shown
    assert (tmp_path / "records.jsonl").stat().st_size == size


def quick() -> Method:
    method = methods_for(1500)["spen"]
    return replace(method, stages=tuple(replace(stage, epochs=2) for stage in method.stages))


@pytest.mark.parametrize(
    ("scratch", "with_pairs", "alone", "verdicts"),
    [
        ([20.0, 21.0], [40.0, 41.0], [39.0, 39.5], [True, True]),
        ([39.0, 39.0], [40.0, 41.0], [41.0, 40.5], [False, False]),
        ([5.0, 5.0], [40.0, 42.0], [40.5, 40.5], [False, False]),
    ],
)
def test_verdicts_on_mean_field(scratch, with_pairs, alone, verdicts, tmp_path, monkeypatch):
    tiny.use(monkeypatch)
    planted = {
        "pre-trained unaries": with_pairs,
        "no pre-training": scratch,
        "unaries alone": alone,
    }
    monkeypatch.setattr(
        Study, "scores", lambda self, method, variant, *_, **__: {"threshold": planted[variant]}
    )
    assert [c.agreed for c in claims._mean_field(open_study(tmp_path))] == verdicts
    # On the larger sets the paper says the contrary of the pairwise terms.
    delicious = [c.agreed for c in claims._mean_field(open_study(tmp_path, "delicious"))]
    assert delicious == [verdicts[0], not verdicts[1]]
    assert len(list(claims._mean_field(open_study(tmp_path, "other")))) == 1


def test_verdicts_on_the_bias(tmp_path, monkeypatch):
    tiny.use(monkeypatch)
    planted = {"LabelEnergy": [42.0, 42.5], "LinearMeasurements": [41.5, 41.9]}
    monkeypatch.setattr(
        Study, "scores", lambda self, method, variant, *_, **__: {"threshold": planted[variant]}
    )
    synthetic = {
        ("hardtanh", True): [91.0, 92.0], ("hardtanh", False): [85.0, 86.5],
        ("relu", True): [91.0, 92.0], ("relu", False): [85.0, 95.0],
    }  # fmt: skip
    monkeypatch.setattr(claims, "synthetic_f1", lambda study, name, has: synthetic[name, has])
    found = list(claims._bias(open_study(tmp_path)))
    assert [claim.agreed for claim in found] == [True, False, False], (
        "clear and large; unclear; clear but less than a point"
    )


def test_verdicts_on_little_data(tmp_path, monkeypatch):
    tiny.use(monkeypatch)

    def planted(study, variant, share, changes=None):
        test = {"label energy": 30.0, "conditional energy": 29.0, "frozen features": 30.5}[variant]
        train = 60.0 if variant == "conditional energy" else 50.0
        return {"test": [test, test + 1], "train": [train, train]}

    monkeypatch.setattr(claims, "train_and_test", planted)
    overfits, frozen = claims._little_data(open_study(tmp_path))
    assert overfits.agreed
    assert "+11.00 ± 0.00; test F1 -1.00 ± 0.00" in overfits.measured
    assert frozen.agreed
    assert "+0.50 ± 0.00 on 10 % of the rows, +0.50 ± 0.00 on all" in frozen.measured


def test_training_rows_are_scored_as_well(tmp_path, monkeypatch):
    tiny.use(monkeypatch)
    scores = claims.train_and_test(open_study(tmp_path), "x", 0.5)
    made = open_study(tmp_path).classifier("spen-paper", 1)
    stages = tuple(replace(stage, epochs=2 * stage.epochs) for stage in made.stages)
    made.set_params(stages=stages)
    data = claims.few_rows(tiny.DATA, 0.5, 1)
    with pytest.warns(match="did not converge"):
        p = made.fit(data.train.X, data.train.Y).predict_proba(data.train.X)
    expected = 100 * spen.example_f1(data.train.Y, made.decode(p, "threshold"))
    assert scores["train"][1] == pytest.approx(expected, abs=1e-3)
    assert claims.gaps(scores)[1] == scores["train"][1] - scores["test"][1]


def test_linear_measurements_keep_a_bias_of_zero():
    data = spen.exclusive_blocks(60, 10, seed=0)
    for kind, learns in ((claims.LinearMeasurements, False), (spen.LabelEnergy, True)):
        energy = kind.unsized(measurements=3)
        clf = spen.SPENClassifier(energy, objective="hinge", hidden=(), epochs=4, random_state=0)
        clf.fit(data.train.X, data.train.Y)
        (label,) = (t for t in energy_terms(clf.model_.energy) if isinstance(t, spen.LabelEnergy))
        assert bool(label.bias.any()) == learns
        assert label.measurements.requires_grad


def test_the_two_synthetic_models_start_alike():
    affine = replace(quick(), initial="signed")
    linear = claims.WithoutBias(**vars(affine))
    first, second = (
        method.plan().build(64, method.domain(16), seed=0).state_dict()
        for method in (affine, linear)
    )
    assert all(first[name].equal(second[name]) for name in first)


def test_the_data_set_table_without_data_agrees_with_nothing(monkeypatch):
    def missing(name):
        raise spen.InputError(f"{name} is not here")

    monkeypatch.setattr(spen, "load_dataset", missing)
    table, claim = claims.dataset_table()
    assert table.count("not at hand") == 4 * 6
    assert (claim.measured, claim.agreed) == ("no set at hand", False)


def test_the_data_set_table_counts(monkeypatch):
    monkeypatch.setattr(claims, "DATASETS", {"a": (16, 8, 90, "25.00"), "b": (16, 9, 91, "4")})
    monkeypatch.setattr(spen, "load_dataset", lambda name: tiny.DATA)
    table, claim = claims.dataset_table()
    assert claim.measured == "a: labels on, %; b: labels a row"
    assert not claim.agreed
    assert "90 (paper: 91)" in table
    monkeypatch.setattr(claims, "DATASETS", {"a": (16, 8, 90, "25.00")})
    assert claims.dataset_table()[1].agreed
