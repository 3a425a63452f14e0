"""The demo, on fewer rows."""

import json

import pytest

import spen
from spen.cli import demo as module


@pytest.mark.filterwarnings("ignore:Inference did not converge")
def test_the_demo_prints_its_table_and_draws_its_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "ROWS", 150)
    monkeypatch.setattr(module, "TEST_ROWS", 1500)
    module.demo(out=tmp_path)
    shown = capsys.readouterr().out
    for words in ("linear", "3-layer MLP", "SPEN", "measurements.png"):
        assert words in shown
    assert (tmp_path / "measurements.png").stat().st_size > 5000
    assert (tmp_path / "measurements.svg").read_text().startswith("<?xml")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert str(tmp_path / "report.html") in shown
    for part in ("examples", "labels", "convergence", "training", "runs"):
        assert f'<section id="{part}"' in page
    clf = spen.load(tmp_path / "synthetic.spen")
    data = spen.exclusive_blocks(150, module.TEST_ROWS)
    record = json.loads((tmp_path / "records.jsonl").read_text().splitlines()[-1])
    f1 = spen.example_f1(data.test.Y, clf.predict(data.test.X))
    assert 100 * f1 == pytest.approx(record["metrics"]["f1"], abs=0.01), "the table's own model"
    before = (tmp_path / "records.jsonl").read_bytes()
    module.demo(out=tmp_path)
    assert capsys.readouterr().out == shown
    assert (tmp_path / "records.jsonl").read_bytes() == before, "nothing was trained again"


def test_what_an_earlier_demo_of_other_rows_left_is_not_taken_for_this_one(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(module, "TEST_ROWS", 300)
    monkeypatch.setattr(module, "ROWS", 120)
    module.demo(out=tmp_path)
    monkeypatch.setattr(module, "ROWS", 150)
    module.demo(out=tmp_path)
    last = json.loads((tmp_path / "records.jsonl").read_text().splitlines()[-1])
    assert last["n_train"] == 150
    (tmp_path / "records.jsonl").write_text("{half a line")
    module.demo(out=tmp_path)
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 3
