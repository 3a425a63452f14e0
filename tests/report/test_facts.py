"""What a page says, against figures computed in another way."""

import json

import numpy as np
import pytest
import torch
from pages import fitted, subject_of

import spen
from spen.metrics import calibration_error
from spen.report.examples import example_facts
from spen.report.label_relations import global_terms, interactions, meetings
from spen.report.page import gather, render
from spen.report.scores import (
    calibration_facts,
    convergence_facts,
    hardest_rows,
    label_scores,
)
from spen.report.subject import Judged


@pytest.fixture(scope="module")
def subject():
    return subject_of()


def test_everything_is_plain_and_has_no_nan(subject):
    facts = gather("a page", subject.classifier, subject.judged)
    again = json.loads(json.dumps(facts, allow_nan=False))
    assert again["rows"]["count"] == 80
    assert again["rows"]["seen"] is None, "the model does not remember its training rows"


def test_a_page_says_how_many_rows_were_trained_on_where_the_model_remembers(subject):
    remembers = subject_of(remember_rows=True)
    facts = gather("a page", remembers.classifier, remembers.judged)
    assert facts["rows"]["seen"] == 80, "they are the training rows"
    assert "80 of these rows have the same features" in render(facts)
    assert "does not remember its training rows" in render(
        gather("a page", subject.classifier, subject.judged)
    )


def test_scores_are_those_of_scikit_learn(subject):
    from sklearn.metrics import f1_score, precision_score, recall_score

    truth, predicted = subject.truth, subject.predicted
    found = {row[0]: row[1:] for row in label_scores(subject)["rows"]}
    for k, name in enumerate(subject.label_names):
        pair = truth[:, k], predicted[:, k]
        assert found[name][0] == truth[:, k].sum()
        expected = [
            score(*pair, zero_division=0) for score in (precision_score, recall_score, f1_score)
        ]
        assert np.allclose(
            [value or 0.0 for value in found[name][2:]], 100 * np.array(expected), atol=0.06
        )


def test_the_calibration_error_is_that_of_the_metric(subject):
    facts = calibration_facts(subject)
    expected = calibration_error(subject.truth, subject.probabilities)
    assert facts["error"] == pytest.approx(100 * expected, abs=0.006)
    assert sum(facts["counts"]) == subject.truth.size


def test_the_hardest_rows_have_the_lowest_f1(subject):
    rows = hardest_rows(subject)
    assert [row["f1"] for row in rows] == sorted(row["f1"] for row in rows)
    assert rows[0]["f1"] == pytest.approx(100 * subject.row_scores.min(), abs=0.06)


def test_search_errors_are_those_of_a_diagnosis(subject):
    found = subject.classifier.diagnose(subject.judged.rows.X, subject.truth)
    assert convergence_facts(subject)["missed"] == round(80 * found.search_errors)


def test_interactions_are_second_differences_of_the_energy(subject):
    model, numbers = subject.model, np.array([4, 0, 2])
    truth = subject.truth[:2]
    features = model.context(subject.scaled[:2]).features.detach()
    table = interactions(global_terms(model), numbers, features, truth)

    def energy(row, on):
        y = truth[[row]].copy()
        for label, value in on.items():
            y[0, label] = value
        return model.energy_of(subject.scaled[[row]], y).item()

    for a, b in ((4, 0), (0, 2)):
        differences = [
            energy(row, {a: 1, b: 1}) - energy(row, {a: 1, b: 0}) - energy(row, {a: 0, b: 1})
            + energy(row, {a: 0, b: 0})
            for row in range(2)
        ]  # fmt: skip
        i, j = numbers.tolist().index(a), numbers.tolist().index(b)
        assert table[i, j] == table[j, i] == pytest.approx(np.mean(differences), abs=1e-4)
    assert (np.diag(table) == 0).all()


def test_without_rows_interactions_are_those_of_the_structure(subject):
    model = subject.model
    off = np.zeros((1, 6))
    table = interactions(global_terms(model), np.arange(6), torch.zeros(1, 0), off)
    assert np.allclose(table, subject.classifier.structure().interactions(), atol=1e-4)


def test_phi_is_the_correlation_of_labels(subject):
    together, _, phi = meetings(subject.truth, np.arange(6))
    assert np.allclose(phi, np.corrcoef(subject.truth.T), atol=1e-6)
    assert together[0, 1] == (subject.truth[:, 0] * subject.truth[:, 1]).sum()


def test_examples_end_where_predictions_do(subject):
    facts = example_facts(subject)
    assert len(facts["examples"]) == 12
    for example in facts["examples"]:
        row = example["row"] - 1
        end = subject.solution.y.numpy()[row, example["shown"]]
        assert np.allclose(example["end"], end, atol=1e-3)
        assert example["truth"] == np.flatnonzero(subject.truth[row]).tolist()
        assert example["predicted"] == np.flatnonzero(subject.predicted[row]).tolist()
        assert len(example["energies"]) == example["steps"] + 1


@pytest.mark.parametrize("kind", ["deep", "full pairs", "classes"])
def test_where_the_page_cannot_infer_answers_are_put_into_it(kind):
    if kind == "classes":
        classifier, rows = fitted()
        classifier.fit(rows.X, rows.Y.argmax(1))
        eye = np.eye(len(classifier.classes_), dtype=np.float32)
        rows = type(rows)(rows.X, eye[rows.Y.argmax(1)])
        subject = type(subject_of())(classifier, Judged.of(rows, "rows"))
    else:
        deep = spen.LabelEnergy.unsized(measurements=3, hidden=(2,), nonlinearity="softplus")
        subject = subject_of(energy=deep if kind == "deep" else spen.PairwiseEnergy.unsized())
    facts = example_facts(subject)
    assert facts["inference"] is None
    example = facts["examples"][0]
    label, row = example["shown"][1], example["row"] - 1
    known = np.full((1, subject.model.domain.size), np.nan)
    known[0, label] = 1
    solution = subject.predictor.solve(subject.scaled[[row]], known)
    answer = example["answers"][f"{label}=1"]
    assert np.allclose(answer["y"], solution.y[0, example["shown"]], atol=1e-3)
    assert answer["y"][1] == 1
    assert json.dumps(gather("a page", subject.classifier, subject.judged), allow_nan=False)


@pytest.mark.parametrize("kind", spen.baselines.ALL)
def test_every_baseline_has_a_page(kind):
    classifier, rows = fitted()
    wanted = {"hidden": (4,), "epochs": 2, "random_state": 0, "device": "cpu"}
    known = kind().get_params()
    model = kind(**{name: value for name, value in wanted.items() if name in known})
    model.fit(rows.X, rows.Y)
    facts = gather("a page", model, Judged.of(rows, "rows"))
    assert facts["examples"]["examples"]
    assert facts["scores"][0]["value"] > 0
    assert classifier.n_features_in_ == 5


def test_missing_labels_count_nowhere():
    classifier, rows = fitted()
    Y = rows.Y.copy()
    Y[::2, 1], Y[3] = np.nan, np.nan
    facts = gather("a page", classifier, Judged.of(type(rows)(rows.X, Y), "rows"))
    by_name = {row[0]: row for row in facts["labels"]["rows"]}
    assert by_name["label 1"][1] == np.nansum(Y[:, 1])
    assert facts["calibration"]["decisions"] == (~np.isnan(Y)).sum()
    assert all(example["row"] != 4 for example in facts["examples"]["examples"])
    assert json.dumps(facts, allow_nan=False)
