"""The text of Table 1, its command line, and what methods cost."""

import os
import statistics
import subprocess
import sys

import pytest

import spen
from spen.data.dataset import Dataset
from spen_paper import fits
from spen_paper.cli import table1 as command
from spen_paper.records import Records
from spen_paper.settings import classifier
from spen_paper.tables import table1

TABLE = {"classifier": "MLPClassifier", "hidden": [8], "dropout": 0.0, "epochs": 3, "folds": 2}


def tiny(n_train=60, n_test=40) -> Dataset:
    data = spen.exclusive_blocks(n_train, n_test, seed=0)
    return Dataset("tiny", data.train, data.test, data.feature_names, data.label_names)


def make(**changes):
    return classifier(TABLE, seed=0, device="cpu", where="here", **changes)


def test_the_papers_figures():
    """As in its Table 1: BR, LR, MLP, DMF, SPEN, and PRLR where it has one."""
    columns = {
        "bibtex": [37.2, 39.0, 38.9, 40.0, 42.2],
        "bookmarks": [30.7, 31.0, 33.8, 33.1, 34.4],
        "delicious": [26.5, 35.3, 37.8, 34.2, 37.5],
    }
    for dataset, figures in columns.items():
        paper = table1.PAPER[dataset]
        assert [paper[name] for name in ("br", "lr", "mlp", "dmf", "spen-paper")] == figures
        assert max(paper.values()) <= table1.PUBLISHED[dataset][0]
    assert table1.PAPER["bibtex"]["prlr"] == 44.2
    assert table1.PAPER["delicious"]["prlr"] == 33.3


def fake(method, seed, decoding, f1):
    return {
        "method": method,
        "seed": seed,
        "decoding": decoding,
        "metrics": {"f1": f1},
    }


FAKES = [
    fake(method, seed, decoding, base + seed + extra * (seed + 1) + 3 * (decoding == "expected_f1"))
    for method, base, extra in (("mlp", 40.0, 0.0), ("spen-best", 40.5, 0.25))
    for seed in range(3)
    for decoding in ("threshold", "expected_f1")
]


def test_the_text_of_the_table():
    rows = [
        line.split("|") for line in table1.render("bibtex", ["mlp", "spen-best"], FAKES).split("\n")
    ]
    cells = [[cell.strip() for cell in row[1:-1]] for row in rows]
    assert cells[0][1:6] == ["paper", "record", "threshold", "expected F1", "seeds"]
    assert cells[2] == ["MLP", "38.9", "", "41.0 ± 1.0", "44.0 ± 1.0", "3"]
    assert cells[3][:4] == ["SPEN, our best", "", "44.7", "42.0 ± 1.2"]


def test_the_paired_difference_is_over_seeds():
    text = table1.paired_difference(FAKES, "spen-best", "mlp")
    gains = [0.75, 1.0, 1.25]
    error = statistics.stdev(gains) / 3**0.5
    assert f"threshold +1.00 ± {error:.2f}" in text
    assert f"expected F1 +1.00 ± {error:.2f}" in text
    assert "over 3 seeds" in text
    assert "1 seed: threshold +0.75, expected" in table1.paired_difference(
        [record for record in FAKES if record["seed"] == 0], "spen-best", "mlp"
    )
    assert table1.paired_difference(FAKES, "spen-best", "br") == ""


def test_the_whole_table_of_a_small_set(tmp_path, monkeypatch, capsys):
    data = tiny()
    tables = {
        "mlp": TABLE,
        "spen-single": TABLE | {"classifier": "SPENClassifier", "energy": "label"},
    }
    monkeypatch.setattr(fits, "dataset_of", lambda name: data)
    monkeypatch.setattr(table1, "settings_of", lambda name: tables)
    options = {"method": "spen-single,mlp", "seeds": 2, "device": "cpu", "out": tmp_path}
    command(**options)
    shown = capsys.readouterr().out
    assert "spen-single − mlp, paired over 2 seeds" in shown
    assert "60 training and 40 test rows" in shown
    assert "counts 1" in shown, "the rule for empty rows stands beside the numbers"
    assert "table1.toml" in shown
    before = (tmp_path / "records.jsonl").read_bytes()
    assert len(before.splitlines()) == 8
    command(**options)
    assert capsys.readouterr().out == shown
    assert (tmp_path / "records.jsonl").read_bytes() == before


def test_costs_are_ratios_to_the_mlp_and_are_kept(tmp_path):
    data, records = tiny(), Records(tmp_path)
    record = table1.compare_costs("other", make, lambda: make(epochs=1), data, records)
    assert record["seconds"] > 0
    assert record["mlp_predict_seconds"] > 0
    assert (
        table1.compare_costs("other", make, lambda: make(epochs=1), data, Records(tmp_path))
        == record
    )
    times = {"seconds": 6.0, "mlp_seconds": 2.0, "predict_seconds": 0.5, "mlp_predict_seconds": 2.0}
    assert "| DMF | 3              | 0.25 " in table1.render_costs({"DMF": times})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dataset": "bibtx"}, "Did you mean 'bibtex'"),
        ({"method": "mlp,spen-bets"}, "Did you mean 'spen-best'"),
        ({"method": ","}, "No method is named"),
        ({"seeds": 0}, "seeds must be 1 or more"),
        ({"device": "cdua"}, "device 'cdua' cannot be used"),
        ({"study": "cots"}, "Did you mean 'costs'"),
        ({"study": "costs", "method": "mlp"}, "has its own methods"),
    ],
)
def test_a_wrong_name_stops_before_anything_is_done(options, words, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(spen.InputError, match=words):
        command(**options, out=out)
    assert not out.exists()


def test_data_that_are_not_there_are_named_with_the_command_that_fetches_them(tmp_path):
    command = [sys.executable, "-m", "spen_paper", "table1", "--dataset", "bookmarks"]
    command += ["--device", "cpu", "--seeds", "1", "--method", "mlp", "--out", str(tmp_path / "o")]
    environment = os.environ | {"HOME": str(tmp_path), "SPEN_DATA": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert "spen data fetch bookmarks" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
