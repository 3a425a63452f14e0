"""What the energy adds, beside a control with its stage and without it."""

import json

import numpy as np
import pytest
import tiny_settings as tiny

import spen
from spen.energies.base import energy_terms
from spen_paper.fits import plan_of
from spen_paper.settings import NoEnergy
from spen_paper.studies import control, study
from spen_paper.studies.variants import changed
from spen_paper.tables.table1 import study_named

TABLES = tiny.TABLES | {
    "mlp-best": tiny.TABLES["mlp"] | {"members": 2},
    "spen-best": tiny.TABLES["spen-single"] | {"members": 2},
}


def test_the_control_is_measured_beside_both_and_not_again(tmp_path, monkeypatch, capsys):
    tiny.use(monkeypatch)
    monkeypatch.setattr(study, "settings_of", lambda dataset: TABLES)
    run = study_named("control")
    run(dataset="bibtex", seeds=2, device="cpu", out=tmp_path)
    shown = capsys.readouterr().out
    for words in ("without an energy", "spen-best − control-best", "over rows", "one a row"):
        assert words in shown
    lines = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * len(control.METHODS)
    for line in lines:
        for way in control.DECODINGS:
            rows = np.array(line["row_f1"][way]) / control.PARTS
            assert len(rows) == len(tiny.DATA.test)
            assert 100 * rows.mean() == pytest.approx(line["metrics"][f"f1, {way}"], abs=0.01)
    monkeypatch.setattr(control, "timed_fit", None)
    run(dataset="bibtex", seeds=2, device="cpu", out=tmp_path)
    assert capsys.readouterr().out == shown


def test_the_control_has_the_same_stage_and_no_other_difference():
    opened = study.Study("control", tiny.DATA, TABLES, 1, "cpu", study.Records("unused"))
    full = opened.classifier("spen-single")
    without = changed(full, {"energy": NoEnergy.unsized()})
    plans = [plan_of(made, tiny.DATA.train) for made in (full, without)]
    assert plans[0].stages == plans[1].stages
    assert plans[0].prediction == plans[1].prediction
    without.fit(tiny.DATA.train.X, tiny.DATA.train.Y)
    kinds = {type(term) for term in energy_terms(without.model_.energy)}
    assert kinds == {spen.ScoreEnergy, NoEnergy}
