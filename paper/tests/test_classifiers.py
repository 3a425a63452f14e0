"""Classifiers from settings files, and one run of one of them."""

import json

import numpy as np
import pytest
import tiny_settings
from scipy import sparse

import spen
from spen.batch.splits import Split
from spen.data.dataset import Dataset
from spen.estimators.plan import Shape
from spen_paper import fits
from spen_paper.fits import run
from spen_paper.records import Records, brief
from spen_paper.settings import classifier, inherit, settings_of
from spen_paper.tables import table1

SHAPES = {
    "bibtex": Shape(4880, 1836, 159, sparse=True, exclusive=False),
    "delicious": Shape(12920, 500, 983, sparse=True, exclusive=False),
    "bookmarks": Shape(60000, 2150, 208, sparse=True, exclusive=False),
}
EVERY = [(dataset, method) for dataset in SHAPES for method in table1.TITLES]
TABLE = {"classifier": "MLPClassifier", "hidden": [8], "dropout": 0.0, "epochs": 3, "folds": 2}
HERE = {"seed": 0, "device": "cpu", "where": "here"}


def tiny(n_train=60, n_test=40) -> Dataset:
    data = spen.exclusive_blocks(n_train, n_test, seed=0)
    return Dataset("tiny", data.train, data.test, data.feature_names, data.label_names)


def make(**changes):
    return classifier(TABLE, **HERE, **changes)


@pytest.mark.parametrize(("dataset", "method"), EVERY)
def test_the_settings_of_every_method_make_a_classifier_with_a_plan(dataset, method):
    made = classifier(settings_of(dataset)[method], **HERE)
    plan = made.plan(SHAPES[dataset])
    assert plan.stages
    assert made.random_state == 0
    assert json.loads(json.dumps(brief(plan))) == brief(plan), "a record can hold it"


@pytest.mark.parametrize("dataset", SHAPES)
def test_the_same_features_and_tuning_are_on_offer_to_networks(dataset):
    tables = settings_of(dataset)
    assert set(tables) == set(table1.TITLES)
    names = ("hidden", "dropout", "input_dropout", "weight_decay", "epochs", "batch_size")
    for method in ("mlp-best", "dmf", "prlr", "spen-single", "spen-best"):
        assert {n: tables[method][n] for n in names} == {n: tables["mlp"][n] for n in names}
    assert tables["mlp-best"]["members"] == tables["spen-best"]["members"]


@pytest.mark.parametrize("dataset", SHAPES)
def test_the_papers_recipe_is_the_papers(dataset):
    made = classifier(settings_of(dataset)["spen-paper"], **HERE)
    plan = made.plan(SHAPES[dataset])
    (label,) = [term for term in plan.energy.terms if term.kind is spen.LabelEnergy]
    assert label.settings["measurements"] == (5 if dataset == "delicious" else 15)
    assert label.settings["nonlinearity"] in ("hardtanh", "relu")
    assert [type(stage.objective) for stage in plan.stages] == [
        spen.CrossEntropy,
        spen.Hinge,
        spen.Hinge,
    ]
    assert [stage.parts for stage in plan.stages[:2]] == [("features", "local"), ("global",)]
    assert {stage.optimiser for stage in plan.stages} == {"sgd"}
    assert {stage.momentum for stage in plan.stages} == {0.9}
    assert all(stage.weight_decay > 0 for stage in plan.stages)
    assert plan.decoding == "threshold"
    assert len(plan.chosen.hidden) == 2
    if dataset == "delicious":
        assert plan.prediction.objective.entropy > 0


def test_the_protocol_to_the_letter_corrects_no_output():
    data, name = tiny_settings.DATA, "spen-paper"
    shifted, raw = (
        classifier(tiny_settings.TABLES[name] | change, **HERE).fit(data.train.X, data.train.Y)
        for change in ({}, {"classifier": "RawSPENClassifier"})
    )
    assert raw.predictor_.calibration.neutral
    assert not shifted.predictor_.calibration.neutral
    assert isinstance(raw, type(shifted))
    tables = settings_of("bibtex")
    for key in tables[name].keys() - {"classifier"}:
        assert tables[f"{name}-raw"][key] == tables[name][key]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hiden": [8]}, "Unknown key 'hiden' in here. Did you mean 'hidden'"),
        ({"device": "cpu"}, "Unknown key 'device'"),
        ({"classifier": "MLPClasifier"}, "Did you mean 'MLPClassifier'"),
        ({"training_steps": 3}, "no stages"),
        ({"energy": "label"}, "Unknown key 'energy'"),
    ],
)
def test_a_typo_in_the_settings_stops(change, words):
    with pytest.raises(spen.InputError, match=words):
        classifier(TABLE | change, **HERE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"energy": [{"name": "LabelEnergi"}]}, "Did you mean 'LabelEnergy'"),
        ({"energy": [{"name": "LabelEnergy", "measurement": 3}]}, "Did you mean 'measurements'"),
        ({"objective": {"name": "hinge", "entrpy": 0.0}}, "Did you mean 'entropy'"),
        ({"inference": {"rule": {"lrr": 0.1}}}, "Did you mean 'lr'"),
        ({"stages": [{"name": "a", "objective": {"name": "hing"}}]}, "Did you mean 'hinge'"),
    ],
)
def test_a_typo_inside_a_setting_stops(change, words):
    with pytest.raises(spen.InputError, match=words):
        classifier(TABLE | {"classifier": "SPENClassifier"} | change, **HERE)


def test_stages_take_the_step_limit_of_training_or_their_own_solver():
    objective = {"name": "hinge"}
    own = {"rule": {"lr": 0.5}, "stopping": {"max_steps": 7}}
    table = {
        "classifier": "SPENClassifier",
        "inference": {"stopping": {"max_steps": 50}},
        "training_steps": 20,
        "stages": [
            {"name": "a", "objective": objective},
            {"name": "b", "objective": objective, "inference": own},
        ],
    }
    made = classifier(table, **HERE)
    steps = [stage.inference.stopping.max_steps for stage in made.stages]
    assert (steps, made.inference.stopping.max_steps) == ([20, 7], 50)
    assert classifier(table, **HERE, stages="auto", training_steps=0).stages == "auto"


def test_a_table_may_be_like_one_before_it_only():
    tables = {"a": {"x": 1}, "b": {"like": "a", "y": 2}, "c": {"like": "other.b"}}
    assert inherit(tables, "here", {"other.b": {"z": 3}}) == {
        "a": {"x": 1},
        "b": {"x": 1, "y": 2},
        "c": {"z": 3},
    }
    with pytest.raises(spen.UnknownNameError, match=r"before \[b\] in here 'c'"):
        inherit({"b": {"like": "c"}, "c": {}}, "here")


def test_a_run_scores_both_decodings_of_one_fit(tmp_path):
    data = tiny()
    both = run("table1", "mlp", make, data, 0, Records(tmp_path))
    truth = data.test.Y
    for decoding in ("threshold", "expected_f1"):
        # The oracle: another fit, which decodes this way by itself.
        alone = make(decoding=decoding).fit(data.train.X, data.train.Y)
        labels = alone.predict(data.test.X)
        record = both[decoding]
        assert record["metrics"]["f1"] == pytest.approx(
            100 * spen.example_f1(truth, labels), abs=1e-4
        )
        assert record["metrics"]["hamming"] == pytest.approx(100 * np.mean(labels != truth))
        assert record["chosen"]["tuned"] == pytest.approx(alone.tuned_)
        assert record["chosen"]["hidden"] == [8]
        assert record["decoding"] == decoding
        assert record["dataset"] == "tiny"
        assert (record["n_train"], record["seed"], record["fold"]) == (60, 0, None)
        assert record["parameters"] == sum(p.numel() for p in alone.model_.parameters())
        assert record["seconds"] > record["predict_seconds"] > 0
        assert record["device"].startswith("cpu")
        for name in ("rule", "versions", "settings"):
            assert record[name]
    assert both["threshold"]["metrics"] != both["expected_f1"]["metrics"]


def test_a_run_goes_on_where_it_was_killed(tmp_path):
    data, records, made = tiny(), Records(tmp_path), []

    def counted():
        made.append(make())
        return made[-1]

    first = run("table1", "mlp", counted, data, 0, records)
    assert hasattr(made[-1], "model_")
    assert run("table1", "mlp", counted, data, 0, Records(tmp_path)) == first
    assert not hasattr(made[-1], "model_"), "nothing is fitted again"
    lines = records.path.read_text().splitlines(keepends=True)
    records.path.write_text(lines[0] + lines[1][:50])
    again = run("table1", "mlp", counted, data, 0, Records(tmp_path))
    assert again["expected_f1"]["metrics"] == first["expected_f1"]["metrics"]
    assert len(Records(tmp_path)._records) == 2


@pytest.mark.parametrize(
    "other",
    [{"method": "x"}, {"seed": 1}, {"changes": {"epochs": 4}}],
)
def test_another_run_is_not_mistaken_for_this_one(other, tmp_path):
    data, records = tiny(), Records(tmp_path)
    run("table1", "mlp", make, data, 0, records)
    changes = other.get("changes", {})
    run(
        "table1",
        other.get("method", "mlp"),
        lambda: make(**changes),
        data,
        other.get("seed", 0),
        records,
    )
    assert len(records.path.read_text().splitlines()) == 4


def test_a_study_takes_over_a_fit_of_the_table_that_it_does_not_change(tmp_path):
    data, records = tiny(), Records(tmp_path)
    fitted = run("table1", "mlp", make, data, 0, records)
    assert run("study", "mlp", make, data, 0, records, variant="unchanged") == fitted
    longer = run("study", "mlp", lambda: make(epochs=4), data, 0, records, variant="longer")
    fewer = run("study", "mlp", make, tiny(n_train=50), 0, records, variant="fewer rows")
    assert longer["threshold"]["experiment"] == fewer["threshold"]["experiment"] == "study"
    assert len(records.path.read_text().splitlines()) == 6


def test_inference_that_did_not_converge_is_noted_not_hidden(tmp_path):
    table = {
        "classifier": "SPENClassifier",
        "energy": [{"name": "LabelEnergy", "measurements": 2}],
        "objective": {"name": "hinge"},
        "inference": {"stopping": {"max_steps": 2}},
        "hidden": [4],
        "dropout": 0.0,
        "epochs": 1,
        "folds": 1,
    }
    data = tiny()
    both = run("x", "spen", lambda: classifier(table, **HERE), data, 0, Records(tmp_path))
    assert "did not converge for 40 of 40 rows" in both["threshold"]["notes"][0]
    (line,) = [
        each for each in table1.remarks("bibtex", [*both.values()], data) if "seed 0" in each
    ]
    assert line.startswith("spen, seed 0: Inference did not converge")


def test_settings_that_are_as_they_would_be_anyway_do_not_tell_runs_apart():
    described = brief(spen.Stage("a", spen.Hinge(margin=2.0), parts=("local",)))
    assert described == {
        "class": "Stage",
        "name": "a",
        "objective": {"class": "Hinge", "margin": 2.0},
        "parts": ["local"],
    }
    energy = spen.LabelEnergy.unsized(measurements=2)
    assert brief(energy)["terms"][0]["settings"] == {"measurements": 2}
    assert brief(energy)["terms"][0]["kind"] == "LabelEnergy"


def test_a_validation_part_is_trained_on(monkeypatch):
    rows = Split(sparse.csr_matrix(np.eye(3)), sparse.csr_matrix(np.ones((3, 1))))
    other = Split(sparse.csr_matrix(np.ones((2, 3))), sparse.csr_matrix(np.zeros((2, 1))))
    whole = Dataset("bookmarks", rows, rows, "abc", "x", valid=other)
    monkeypatch.setattr(fits, "load_dataset", lambda name: whole)
    data = fits.dataset_of("bookmarks")
    assert data.valid is None
    assert data.train.Y.toarray().ravel().tolist() == [1, 1, 1, 0, 0]
    assert data.test is rows
