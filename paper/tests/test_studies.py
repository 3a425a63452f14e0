"""The studies of where the energy pays, on a generated data set with tiny settings."""

import json

import numpy as np
import pytest
import tiny_settings as tiny
from scipy import stats

import spen
from spen_paper import figures, fits, plots
from spen_paper.figures import paired
from spen_paper.records import Records
from spen_paper.studies import known_labels, study
from spen_paper.studies.study import NO_MEASUREMENTS, Study, few_rows, longer_for
from spen_paper.tables.table1 import study_named

TRUTH = tiny.DENSE.test.Y.astype(float)


@pytest.mark.parametrize(
    ("name", "words", "n_fits"),
    [
        ("learning-curves", ["5 % (4)", "SPEN − MLP"], 2 * 5),
        ("width", ["50, no dropout", "4, dropout", "SPEN, hinge − MLP, SGD"], 2 * (2 * 2 + 2 * 1)),
        ("known-labels", ["10 chains", "SPEN − 10 chains"], 4 * 4),
        ("ablation", ["temperature 2", "margin 3", NO_MEASUREMENTS], 12 + 8),
    ],
)
def test_a_study_measures_draws_and_resumes(name, words, n_fits, tmp_path, monkeypatch, capsys):
    tiny.use(monkeypatch)
    monkeypatch.setattr(study, "WIDTHS", (4, 50))
    monkeypatch.setattr(study, "PAPER_WIDTHS", (4,))
    run = study_named(name)
    run(dataset="bibtex", seeds=1, device="cpu", out=tmp_path)
    shown = capsys.readouterr().out
    for each in [*words, "one threshold", "expected F1", "a row empty in truth and prediction"]:
        assert each in shown
    for suffix in ("png", "svg"):
        assert (tmp_path / f"{name}.{suffix}").stat().st_size > 5000
    lines = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * n_fits
    assert {line["experiment"] for line in lines} == {f"table1-{name}"}
    assert {line["decoding"] for line in lines} == {"threshold", "expected_f1"}
    assert all(0 <= line["metrics"]["f1"] <= 100 for line in lines)

    def fitted_again(*_, **__):
        raise AssertionError("a run that is there is not made again")

    monkeypatch.setattr(fits, "timed_fit", fitted_again)
    monkeypatch.setattr(known_labels, "_measure", fitted_again)
    files = [tmp_path / f"{name}.png", tmp_path / f"{name}.svg"]
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: files)
    run(dataset="bibtex", seeds=1, device="cpu", out=tmp_path)
    assert capsys.readouterr().out == shown


def test_a_machine_without_matplotlib_measures_all_the_same(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures.importlib.util, "find_spec", lambda package: None)
    figures.draw(lambda plots: pytest.fail("nothing to draw with"))
    assert "not drawn" in capsys.readouterr().out


def test_bad_options_are_refused_before_any_work(tmp_path, monkeypatch):
    tiny.use(monkeypatch)
    with pytest.raises(spen.InputError, match="seeds must be 1 or more"):
        Study.open("x", "bibtex", 0, "cpu", tmp_path)
    with pytest.raises(spen.InputError, match="Did you mean 'spen-single'"):
        Study.open("x", "bibtex", 1, "cpu", tmp_path).classifier("spen-singel")


def test_few_rows_are_parts_of_more_rows_and_differ_by_seed():
    sizes = {share: few_rows(tiny.DENSE, share, seed=0).train for share in (0.1, 0.5, 1.0)}
    rows = {share: {row.tobytes() for row in each.X} for share, each in sizes.items()}
    assert [len(each) for each in sizes.values()] == [9, 45, 90]
    assert rows[0.1] < rows[0.5] < rows[1.0]
    other = {row.tobytes() for row in few_rows(tiny.DENSE, 0.1, seed=1).train.X}
    assert other != rows[0.1]
    assert few_rows(tiny.DENSE, 0.1, seed=0).test is tiny.DENSE.test


def test_epochs_grow_at_most_fourfold():
    made = spen.SPENClassifier(epochs=10)
    assert [longer_for(share)(made)["epochs"] for share in (1.0, 0.5, 0.25, 0.05)] == [
        10, 20, 40, 40,
    ]  # fmt: skip


def test_paired_differences_are_those_of_scipy():
    rng = np.random.default_rng(0)
    first, second = rng.normal(40, 1, 5), rng.normal(39, 1, 5)
    mean, error = paired(first, second)
    assert mean / error == pytest.approx(stats.ttest_rel(first, second).statistic)
    assert error == pytest.approx(stats.sem(first - second))


def test_revealed_labels_are_true_nested_and_drawn_evenly():
    truth = np.tile([1.0, 0, 1, 1, 1, 0], (4000, 1))
    known = [known_labels.reveal(truth, count, seed=0) for count in range(6)]
    for count, each in enumerate(known):
        assert (np.nansum(each, 1) == min(count, 4)).all()
        assert (truth[~np.isnan(each)] == 1).all()
    assert (~np.isnan(known[1]) <= ~np.isnan(known[2])).all()
    shares = (~np.isnan(known[1])).mean(0)
    assert shares[[0, 2, 3, 4]] == pytest.approx(0.25, abs=0.03)


class Planted:
    """Predicts what it is given, and keeps what it was told."""

    def __init__(self, soft):
        self.soft = soft

    def predict_proba(self, X, known=None):
        self.known = known
        return self.soft if known is None else np.where(np.isnan(known), self.soft, known)

    def decode(self, probabilities, decoding):
        return (probabilities > (0.5 if decoding == "threshold" else 0.2)).astype(int)


def test_revealed_labels_count_neither_as_truth_nor_as_prediction():
    soft = np.random.default_rng(0).random(TRUTH.shape)
    known = known_labels.reveal(TRUTH, 2, seed=0)
    rows = {"some": np.arange(len(TRUTH)) % 3 == 0}
    planted = Planted(soft)
    scores = known_labels.hidden_scores(planted, tiny.DATA, known, rows)
    assert planted.known is known
    for decoding, cut in (("threshold", 0.5), ("expected_f1", 0.2)):
        total = 0.0
        for i in np.flatnonzero(rows["some"]):
            hidden = set(np.flatnonzero(np.isnan(known[i])))
            true = hidden & set(np.flatnonzero(TRUTH[i]))
            predicted = hidden & set(np.flatnonzero(soft[i] > cut))
            total += 2 * len(true & predicted) / (len(true) + len(predicted))
        expected = 100 * total / rows["some"].sum()
        assert scores[decoding]["some"] == pytest.approx(expected, abs=1e-3)


def test_a_data_set_without_enough_labels_is_refused(tmp_path, monkeypatch):
    tiny.use(monkeypatch)
    few = spen.exclusive_blocks(20, 10, n_blocks=2)
    monkeypatch.setattr(study, "dataset_of", lambda dataset: few)
    with pytest.raises(spen.InputError, match="has more than 3 labels"):
        known_labels.known_labels(dataset="bibtex", seeds=1, device="cpu", out=tmp_path)


def test_one_fit_is_made_again_when_one_of_its_records_is_missing(tmp_path):
    kept, made = Records(tmp_path), []

    def measure():
        made.append(1)
        return {"a": {"metrics": {"f1": 1.0}}, "b": {"metrics": {"f1": 2.0}}}

    wanted = {name: {"experiment": "x", "method": name} for name in ("a", "b")}
    first = kept.make_all(wanted, measure)
    assert Records(tmp_path).make_all(wanted, measure) == first
    assert len(made) == 1
    kept.path.write_text(kept.path.read_text().splitlines()[0] + "\n")
    Records(tmp_path).make_all(wanted, measure)
    assert len(made) == 2
