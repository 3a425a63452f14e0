"""The page's own inference against Python's: every rule, every nonlinearity, known labels."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from pages import fitted, node, run_solver, subject_of

import spen
from spen.energies.form import NONLINEARITIES, Block, Form
from spen.inference.descent import Descent, Stopping
from spen.inference.rules import MeanField, MirrorBundle, MirrorDescent, ProjectedGradient
from spen.report.examples import page_inference
from spen.report.subject import Judged, Subject, packed

pytestmark = pytest.mark.skipif(node() is None, reason="node is not installed")

L, M, ROWS = 7, 4, 5
SOLVE = """values.rows.map((row, k) => {
  const blocks = values.blocks.map((b, i) => ({bias: floats(row.biases[i]),
    nonlinearity: b.nonlinearity, measurements: floats(b.measurements),
    readout: floats(b.readout)}));
  const form = {constant: row.constant, linear: floats(row.linear), tau: row.tau, blocks,
    quadratic: row.quadratic === null ? null : floats(row.quadratic)};
  const known = values.known === null ? null : values.known[k];
  const {trace, answer, steps} = spenSolver.solve(form, floats(row.start), known, values.how);
  return {y: Array.from(answer.y), energy: answer.energy, steps, first: trace[0].energy,
    labels: values.decoding ? Array.from(spenSolver.decode(
      spenSolver.calibrate(answer.y, values.calibration, known), values.decoding)) : null};
})"""


def tangled(names, tau=None, quadratic=False) -> Form:
    """Return a form in which all labels hang together."""
    generator = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(shape, generator=generator)

    blocks = tuple(
        Block(draw(M, L), draw(ROWS, M), draw(M), NONLINEARITIES[name]) for name in names
    )
    return Form(
        constant=draw(ROWS),
        linear=draw(ROWS, L),
        quadratic=draw(ROWS, L) if quadratic else None,
        blocks=blocks,
        tau=None if tau is None else torch.full((ROWS,), tau),
        domain=None if tau is None else spen.UnitBox(L),
    )


def in_double(form: Form) -> Form:
    double = {
        name: None if (t := getattr(form, name)) is None else t.double()
        for name in ("constant", "linear", "quadratic", "tau")
    }
    blocks = tuple(
        Block(b.measurements.double(), b.bias.double(), b.readout.double(), b.nonlinearity)
        for b in form.blocks
    )
    return Form(**double, blocks=blocks, domain=form.domain)


def for_page(form: Form, start: torch.Tensor) -> dict:
    return {
        "blocks": [
            {
                "measurements": packed(b.measurements),
                "readout": packed(b.readout),
                "nonlinearity": b.nonlinearity.name,
            }
            for b in form.blocks
        ],
        "rows": [
            {
                "constant": float(form.constant[k]),
                "linear": packed(form.linear[k]),
                "quadratic": None if form.quadratic is None else packed(form.quadratic[k]),
                "biases": [packed(b.bias[k]) for b in form.blocks],
                "tau": 0.0 if form.tau is None else float(form.tau[k]),
                "start": packed(start[k]),
            }
            for k in range(ROWS)
        ],
    }


def for_calibration(calibration) -> list[dict]:
    return [
        {"scale": each.scale, "shift": each.shift.tolist()}
        for each in (calibration, calibration.half or calibration)
    ]


def how_of(rule, stopping, fixed):
    return {
        "rule": type(rule).__name__,
        "settings": dict(vars(rule)),
        "fixed": fixed,
        "stopping": dict(vars(stopping)),
    }


CASES = [
    (MirrorBundle(), ("relu", "softplus"), None, False),
    (MirrorBundle(reach=3.0), ("hardtanh",), 0.7, False),
    (MirrorBundle(), ("square", "sigmoid"), 1.0, True),
    (MirrorDescent(0.2, 0.5), ("hardtanh", "softplus"), None, False),
    (MirrorDescent(1.0, 0.0, 0.3), ("sigmoid",), 1.0, True),
    (ProjectedGradient(0.1, 0.6), ("softplus",), 0.5, False),
    (ProjectedGradient(0.05, 0.0, 0.2), ("square", "relu"), None, True),
    (MeanField(), ("softplus",), 1.0, True),
    (MeanField(0.4), ("sigmoid", "square"), 2.0, False),
]


@pytest.mark.parametrize("require", ["either", "both"])
@pytest.mark.parametrize("off", [(), ("objective_rtol",), ("iterate_atol",)])
def test_an_example_ends_by_the_tolerances_that_are_required(require, off):
    form, start = tangled(("softplus",)), torch.full((ROWS, L), 0.5)
    stopping = Stopping(60, 1e-3, 1e-2, require=require)
    stopping = replace(stopping, **dict.fromkeys(off, 0.0))
    rule = MirrorDescent(0.2, 0.0)
    expected = Descent(rule, stopping, backend="general").solve(in_double(form), spen.UnitBox(L))
    how = how_of(rule, stopping, fixed=False)
    found = run_solver(SOLVE, **for_page(form, start), how=how, known=None, decoding=None)
    assert [row["steps"] for row in found] == expected.steps.tolist()
    assert len(set(expected.steps.tolist())) > 1


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize(("rule", "names", "tau", "fixed"), CASES)
def test_every_rule_answers_as_python_does(rule, names, tau, fixed, held):
    form = tangled(names, tau, quadratic="square" in names)
    start = torch.rand((ROWS, L), generator=torch.Generator().manual_seed(5))
    known = None
    if held:
        known = torch.full((ROWS, L), torch.nan, dtype=torch.float64)
        known[:, 1], known[::2, 4] = 1.0, 0.0
    stopping = Stopping(25, 1e-7, 1e-6)
    descent = Descent(rule, stopping, backend="general")
    backward = spen.Unrolled() if fixed else None
    expected = descent.solve(
        in_double(form), spen.UnitBox(L), start.double(), known, backward=backward
    )
    listed = None if known is None else [
        ["nan" if v != v else v for v in row] for row in known.tolist()
    ]  # fmt: skip
    found = run_solver(SOLVE, **for_page(form, start), how=how_of(rule, stopping, fixed),
                       known=listed, decoding=None)  # fmt: skip
    # Rounding grows along momentum and kinks; no more than that may differ.
    assert [row["steps"] for row in found] == expected.steps.tolist()
    assert np.allclose([row["y"] for row in found], expected.y.numpy(), rtol=0, atol=1e-9)
    assert np.allclose([row["energy"] for row in found], expected.energy.numpy(), atol=1e-9)


SETTINGS = {
    "the default": {},
    "label thresholds": {"decoding": "label_thresholds"},
    "row threshold": {"decoding": "row_threshold"},
    "hinge": {"objective": "hinge", "decoding": "threshold"},
    "bundle": {"objective": spen.Hinge(entropy=1.0), "inference": spen.Descent()},
    "conditional": {"energy": "conditional"},
    "low-rank pairs": {"energy": "pairwise"},
    "label by label": {"energy": "local"},
    "averaged and cross-fitted": {
        "hidden": (4,), "refit": True, "cross_fit": True, "members": 2, "linear_member": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_the_page_predicts_what_the_classifier_predicts(name):
    """Also with a label set by hand, calibrated and decoded."""
    subject = subject_of(**SETTINGS[name])
    rows = np.arange(5)
    found = page_inference(subject, rows)
    assert isinstance(found, dict), found
    known = np.full((5, 6), np.nan, dtype=np.float32)
    known[:, 2], known[1:, 0] = 1.0, 0.0
    for held in (None, known):
        listed = None if held is None else [
            ["nan" if v != v else v for v in row] for row in held.tolist()
        ]  # fmt: skip
        clf, calibration = subject.classifier, subject.predictor.calibration
        tuned = clf.tuned_.tolist() if isinstance(clf.tuned_, np.ndarray) else clf.tuned_
        answers = run_solver(
            SOLVE,
            **found,
            known=listed,
            calibration=for_calibration(calibration),
            decoding={"name": clf.plan_.decoding, "tuned": tuned},
        )
        solution = subject.predictor.solve(subject.scaled[rows], held)
        # Single precision there, double here.
        assert np.allclose([a["y"] for a in answers], solution.y.numpy(), atol=2e-3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = clf.predict(subject.judged.rows.X[rows], held)
        assert np.array_equal([a["labels"] for a in answers], labels)
    moved = np.abs(solution.y.numpy() - subject.solution.y.numpy()[rows])[:, [1, 3, 4, 5]].max()
    assert (moved > 0.01) == (name != "label by label"), "a label that is set moves the others"


QUESTIONS = """values.rows.map((row, k) => spenSolver.questions({constant: row.constant,
    linear: floats(row.linear), tau: row.tau,
    quadratic: row.quadratic === null ? null : floats(row.quadratic),
    blocks: values.blocks.map((b, i) => ({bias: floats(row.biases[i]), readout: floats(b.readout),
      nonlinearity: b.nonlinearity, measurements: floats(b.measurements)}))},
  floats(row.start), values.known === null ? null : values.known[k], values.how,
  values.calibration, values.most))"""


@pytest.mark.parametrize("name", ["the default", "bundle", "averaged and cross-fitted"])
def test_the_page_proposes_the_labels_that_python_would_ask_about(name):
    subject = subject_of(**SETTINGS[name])
    rows = np.arange(5)
    found = page_inference(subject, rows)
    known = np.full((5, 6), np.nan, dtype=np.float32)
    known[:, 2], known[1:, 0] = 1.0, 0.0
    clf, calibration = subject.classifier, for_calibration(subject.predictor.calibration)
    X = subject.judged.rows.X[rows]
    for held in (None, known):
        listed = None if held is None else [
            ["nan" if v != v else v for v in row] for row in held.tolist()
        ]  # fmt: skip
        given = {**found, "known": listed, "calibration": calibration}
        expected = clf.next_question(X, held, k=6)
        assert max(q.gain for each in expected for q in each) > 1e-3, "there is something to tell"
        for theirs, ours in zip(run_solver(QUESTIONS, **given, most=6), expected, strict=True):
            expected_of = {q.index: q for q in ours}
            assert {q["label"] for q in theirs} == set(expected_of)
            for question in theirs:
                same = expected_of[question["label"]]
                # Single precision there, double here.
                assert question["probability"] == pytest.approx(same.probability, abs=2e-3)
                assert question["gain"] == pytest.approx(same.gain, rel=0.02, abs=1e-4)
            order = [q["gain"] for q in theirs]
            assert order == sorted(order, reverse=True)
        two = run_solver(QUESTIONS, **given, most=2)
        for theirs, ours in zip(two, clf.next_question(X, held, k=2, shortlist=2), strict=True):
            assert {q["label"] for q in theirs} == {q.index for q in ours}


def test_what_a_page_cannot_run_it_says():
    deep = spen.LabelEnergy.unsized(measurements=3, hidden=(2,), nonlinearity="softplus")
    subject = subject_of(energy=deep)
    assert page_inference(subject, np.arange(2)) == "the energy has no canonical form"
    slow = spen.Descent(stopping=spen.Stopping(scope="batch", fraction=0.9))
    subject = subject_of(objective="hinge", inference=slow)
    assert "batch" in page_inference(subject, np.arange(2))
    classifier, rows = fitted()
    classifier.fit(rows.X, rows.Y.argmax(1))
    judged = Judged.of(rows, "rows")
    assert "classes" in page_inference(Subject(classifier, judged), np.arange(2))
