"""Polishing: labellings that no single flip improves, never worse than rounding."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import spen
from spen.batch.context import Context
from spen.errors import InputError

L = 7
BOX = spen.UnitBox(L)
CORNERS = torch.tensor(list(itertools.product([0.0, 1.0], repeat=L)))


def drawn(seed: int, rows: int = 6, scale: float = 2.0) -> spen.Problem:
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    energy = spen.LabelEnergy(L, measurements=4, nonlinearity="relu")
    with torch.no_grad():
        for parameter in energy.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    linear = torch.randn(rows, L, generator=generator)
    with torch.no_grad():
        return energy.bind(Context(torch.zeros(rows, 1))) + spen.Form(linear=linear)


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_no_flip_improves_a_polished_labelling_and_rounding_is_no_better(seed: int) -> None:
    problem = drawn(seed)
    plain = spen.Descent().solve(problem, BOX)
    found = spen.Polished(candidates=L).solve(problem, BOX)
    rounded = problem.value((plain.y > 0.5).float())
    lowest = torch.stack([problem.value(c.expand(6, -1)) for c in CORNERS]).amin(0)
    assert set(found.y.unique().tolist()) <= {0.0, 1.0}
    torch.testing.assert_close(found.energy, problem.value(found.y))
    assert (found.energy <= rounded).all()
    assert (found.energy >= lowest - 1e-5).all()
    for label in range(L):
        flipped = found.y.clone()
        flipped[:, label] = 1 - flipped[:, label]
        assert (problem.value(flipped) >= found.energy - 1e-4 * found.energy.abs() - 1e-5).all()
    assert torch.equal(found.steps, plain.steps)


def test_polishing_finds_what_rounding_misses() -> None:
    errors = {"rounded": 0, "polished": 0}
    for seed in range(20):
        problem = drawn(seed)
        lowest = torch.stack([problem.value(c.expand(6, -1)) for c in CORNERS]).amin(0)
        plain = spen.Descent().solve(problem, BOX)
        rounded = problem.value((plain.y > 0.5).float())
        found = spen.Polished().solve(problem, BOX).energy
        errors["rounded"] += int((rounded > lowest + 1e-4).sum())
        errors["polished"] += int((found > lowest + 1e-4).sum())
    assert errors["polished"] < errors["rounded"] / 2


def test_known_labels_are_never_flipped() -> None:
    problem = drawn(3)
    known = torch.full((6, L), float("nan"))
    known[:, 0], known[:, 1] = 1.0, 0.0
    found = spen.Polished().solve(problem, BOX, known=known)
    assert (found.y[:, 0] == 1).all()
    assert (found.y[:, 1] == 0).all()
    everything = torch.ones(6, L)
    assert torch.equal(spen.Polished().solve(problem, BOX, known=everything).y, everything)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    problem = drawn(4)
    together = spen.Polished().solve(problem, BOX).y
    alone = [spen.Polished().solve(problem.select(torch.tensor([i])), BOX).y for i in range(6)]
    assert torch.equal(together, torch.cat(alone))


def test_entropy_counts_nothing_for_a_labelling() -> None:
    problem = drawn(5)
    softened = problem + spen.Form(tau=torch.full((6,), 0.5), domain=BOX)
    found = spen.Polished().solve(softened, BOX)
    torch.testing.assert_close(found.energy, problem.value(found.y))


def test_bad_settings_and_domains_are_refused() -> None:
    with pytest.raises(InputError, match="Simplex"):
        spen.Polished().solve(drawn(0), spen.Simplex(L))
    with pytest.raises(InputError, match="must be an Inference"):
        spen.Polished(inference="descent")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="candidates"):
        spen.Polished(candidates=0)


def test_predict_polishes_and_holds_known_labels() -> None:
    data = spen.exclusive_blocks(150, 60, seed=0)
    clf = spen.SPENClassifier(hidden=(16,), epochs=8, random_state=0, objective="hinge")
    clf.fit(data.train.X, data.train.Y)
    X, Y = data.test.X, data.test.Y
    labels = clf.predict(X, polish=True)
    plain = clf.predict(X)
    assert labels.dtype == plain.dtype
    assert (clf.energy(X, labels) <= clf.energy(X, plain) + 1e-4).all()
    assert clf.diagnose(X, Y, polish=True).search_errors <= clf.diagnose(X, Y).search_errors
    known = np.full(Y.shape, np.nan)
    known[:, 2] = 1
    assert (clf.predict(X, known, polish=True)[:, 2] == 1).all()
    assert (clf.predict(X, polish=True, sparse=True).toarray() == labels).all()
    classes = spen.SPENClassifier(hidden=(4,), epochs=1).fit(X, Y[:, :4].argmax(1))
    with pytest.raises(InputError, match="polish=True is for sets of labels"):
        classes.predict(X, polish=True)


class Forbidden(spen.Energy):
    """Infinite where two labels or more are on."""

    n_labels, n_features = 3, 3

    def forward(self, features: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        too_many = torch.where(y.sum(1) > 1.5, torch.inf, 0.0)
        return (features * y).sum(1) + too_many


def test_a_labelling_of_infinite_energy_is_left() -> None:
    problem = Forbidden().bind(Context(-torch.ones(1, 3)))
    y, energy = spen.Polished().polish(problem, torch.tensor([[1.0, 1.0, 0.0]]))
    assert energy.tolist() == [-1.0]
    assert y.sum() == 1
