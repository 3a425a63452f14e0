"""A shortlist of each row's labels: the same answers as with the others held at zero."""

import numpy as np
import pytest
import torch
from problems import F, random_context, randomise

import spen
from spen import Descent, MirrorDescent, Stopping
from spen.energies.base import Problem

L, KEPT = 12, 5
SOFTENED = spen.Entropy(spen.UnitBox(L), 1.0)
ENERGIES = {
    "label": lambda: spen.LocalEnergy(F, L) + spen.LabelEnergy(L, 4, "softplus"),
    "conditional": lambda: spen.LocalEnergy(F, L) + spen.ConditionalEnergy(F, L, 4, "hardtanh"),
    "low rank": lambda: spen.LocalEnergy(F, L) + spen.PairwiseEnergy(L, rank=2),
    "augmented": lambda: (
        spen.LocalEnergy(F, L)
        + spen.LabelEnergy(L, 3, "sigmoid")
        + spen.LossAugmentation(spen.UnitBox(L), "squared", margin=0.3)
    ),
}
FIXED = Stopping(max_steps=30, objective_rtol=0, iterate_atol=0)
FREE = Stopping(max_steps=200, objective_rtol=0, iterate_atol=1e-6)


def problem_of(name: str, rows: int = 9) -> Problem:
    context, _ = random_context(spen.UnitBox(L), rows, seed=1)
    energy = randomise(ENERGIES[name](), seed=2, scale=0.7) + SOFTENED
    return energy.bind(context)


def others_off(problem: Problem, known: torch.Tensor | None = None) -> torch.Tensor:
    """All labels that a shortlist leaves out, as known zeros."""
    assert problem.form is not None
    assert problem.form.linear is not None
    likely = -problem.form.linear.detach()
    if known is not None:
        likely = torch.where(torch.isnan(known), likely, (2 * known - 1) * torch.inf)
    held = torch.zeros_like(likely)
    inside = likely.argsort(1, descending=True)[:, :KEPT]
    return held.scatter(1, inside, torch.nan if known is None else known.gather(1, inside))


@pytest.mark.parametrize("stopping", [FIXED, FREE], ids=["fixed", "free"])
@pytest.mark.parametrize("name", ENERGIES)
def test_it_is_the_minimum_with_all_others_at_zero(name, stopping):
    problem = problem_of(name)
    rule = MirrorDescent(lr=0.3, momentum=0.5)
    short = Descent(rule, stopping, shortlist=KEPT).solve(problem, spen.UnitBox(L))
    full = Descent(rule, stopping, backend="general").solve(
        problem, spen.UnitBox(L), known=others_off(problem)
    )
    assert torch.allclose(short.y, full.y, atol=1e-5)
    assert torch.allclose(short.energy, problem.value(short.y), atol=1e-9)
    assert ((short.y > 0).sum(1) == KEPT).all()
    assert short.gap is None


def test_a_list_of_all_labels_changes_nothing():
    problem = problem_of("label")
    plain = Descent(stopping=FREE).solve(problem, spen.UnitBox(L))
    for size in (L, 10 * L):
        assert torch.equal(
            Descent(stopping=FREE, shortlist=size).solve(problem, spen.UnitBox(L)).y, plain.y
        )


def test_known_labels_keep_their_value_and_those_that_are_on_a_place():
    problem, domain = problem_of("label"), spen.UnitBox(L)
    known = torch.full((9, L), torch.nan, dtype=torch.float64)
    unlikely = problem.form.linear.argsort(1, descending=True)
    known.scatter_(1, unlikely[:, :2], 1.0)
    known.scatter_(1, unlikely[:, -2:], 0.0)
    descent = Descent(MirrorDescent(lr=0.3, momentum=0.0), FIXED, shortlist=KEPT)
    short = descent.solve(problem, domain, known=known)
    held = ~torch.isnan(known)
    assert torch.equal(short.y[held], known[held])
    full = Descent(descent.rule, FIXED, backend="general").solve(
        problem, domain, known=others_off(problem, known)
    )
    assert torch.allclose(short.y, full.y, atol=1e-9)
    known[0] = 1.0
    with pytest.raises(spen.InputError, match=r"12 labels .* shortlist=5 has no place"):
        descent.solve(problem, domain, known=known)


def test_gradients_go_through_it():
    context, _ = random_context(spen.UnitBox(L), 6, seed=3)
    found = []
    for short in (True, False):
        energy = randomise(ENERGIES["label"](), seed=2, scale=0.7) + SOFTENED
        problem = energy.bind(context)
        known = None if short else others_off(problem)
        descent = Descent(
            MirrorDescent(lr=0.3, momentum=0.0),
            FIXED,
            spen.Unrolled(),
            shortlist=KEPT * short or None,
        )
        y = descent.solve(problem, spen.UnitBox(L), known=known).y
        (y * torch.arange(L)).sum().backward()
        found.append([p.grad for p in energy.parameters()])
    assert len(found[0]) == 5
    for mine, theirs in zip(*found, strict=True):
        assert theirs.abs().max() > 0
        assert torch.allclose(mine, theirs, atol=1e-9)


def test_a_row_does_not_depend_on_its_neighbours():
    problem = problem_of("label", rows=16)
    descent = Descent(stopping=FREE, shortlist=KEPT)
    together = descent.solve(problem, spen.UnitBox(L))
    assert len(together.steps.unique()) > 1, "rows end at different steps"
    for row in range(0, 16, 5):
        alone = descent.solve(problem.select(torch.tensor([row])), spen.UnitBox(L))
        assert torch.allclose(alone.y[0], together.y[row], atol=1e-9)


def test_a_trace_has_all_labels():
    descent = Descent(MirrorDescent(0.3), FIXED, trace=True, shortlist=KEPT)
    found = descent.solve(problem_of("label"), spen.UnitBox(L))
    assert found.iterates.shape == (31, 9, L)
    assert torch.equal(found.iterates[-1] > 0, found.y > 0)


def test_flips_and_stacks_of_rows_with_labels_of_their_own():
    form = problem_of("label").without_entropy().form
    chosen = torch.stack([torch.randperm(L)[:KEPT] for _ in range(9)])
    short = form.of_labels(chosen)
    y = (torch.rand(9, KEPT, dtype=torch.float64) > 0.5).double()
    wide = torch.zeros(9, L, dtype=torch.float64).scatter(1, chosen, y)
    assert torch.allclose(short.flips(y), form.flips(wide).gather(1, chosen))
    twice = short.stack(short.select(torch.arange(4)))
    assert torch.allclose(
        twice.value(torch.cat([y, y[:4]])), form.value(wide)[[*range(9), *range(4)]]
    )


@pytest.mark.parametrize(
    ("domain", "energy", "words"),
    [
        (
            spen.Simplex(3, positions=4),
            lambda: spen.LocalEnergy(F, L),
            "A shortlist is of label sets",
        ),
        (spen.UnitBox(L), lambda: spen.LabelEnergy(L, 3), "no score of each label"),
        (
            spen.UnitBox(L),
            lambda: spen.LocalEnergy(F, L) + spen.LabelEnergy(L, 3, hidden=(2,)),
            "no canonical form",
        ),
    ],
)
def test_what_cannot_have_one_is_refused(domain, energy, words):
    context, _ = random_context(domain, 3, seed=0, dtype=torch.float32)
    with pytest.raises(spen.InputError, match=words):
        Descent(shortlist=KEPT).solve(energy().bind(context), domain)


@pytest.mark.parametrize("size", [0, 2.5, "many"])
def test_a_wrong_length_is_refused(size):
    with pytest.raises(spen.InputError, match="shortlist"):
        Descent(shortlist=size)


def test_a_classifier_with_a_shortlist(tmp_path):
    data = spen.exclusive_blocks(n_train=150, n_test=40, seed=0)
    descent = Descent(MirrorDescent(lr=1.0, momentum=0.0), Stopping(max_steps=5), shortlist=8)
    clf = spen.SPENClassifier(inference=descent, epochs=4, random_state=0)
    clf.fit(data.train.X, data.train.Y)
    labels = clf.predict(data.test.X)
    assert labels.sum(1).max() <= 8
    soft = clf.predict_proba(data.test.X)
    assert ((soft > 0) & (soft < 1)).all()
    clf.save(tmp_path / "short.spen")
    again = spen.load(tmp_path / "short.spen")
    assert again.predictor_.prediction.inference.shortlist == 8
    assert np.array_equal(again.predict_proba(data.test.X), soft)
