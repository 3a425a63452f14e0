"""Energies × domains with known answers, for every test that wants them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

import spen
from spen.batch.context import Context
from spen.domains import Domain
from spen.energies.base import Energy

F = 3  # the width of the features in these tests

EnergyMaker = Callable[[int], Energy]

SMOOTH: dict[str, EnergyMaker] = {
    "local": lambda L: spen.LocalEnergy(F, L),
    "label-softplus": lambda L: spen.LabelEnergy(L, 3, "softplus"),
    "label-sigmoid": lambda L: spen.LabelEnergy(L, 3, "sigmoid"),
    "label-deep-softplus": lambda L: spen.LabelEnergy(L, 3, "softplus", hidden=(4, 2)),
    "conditional-softplus": lambda L: spen.ConditionalEnergy(F, L, 3, "softplus"),
    "pairwise-full": lambda L: spen.PairwiseEnergy(L),
    "pairwise-low-rank": lambda L: spen.PairwiseEnergy(L, rank=2),
    "pairwise-conditional": lambda L: spen.ConditionalPairwiseEnergy(F, L),
    "convex": lambda L: spen.ConvexEnergy(F, L, 3),
    "convex-deep": lambda L: spen.ConvexEnergy(F, L, 3, hidden=(4, 2)),
}
KINKED: dict[str, EnergyMaker] = {
    "label-relu": lambda L: spen.LabelEnergy(L, 3, "relu"),
    "label-hardtanh": lambda L: spen.LabelEnergy(L, 3, "hardtanh"),
    "label-deep-relu": lambda L: spen.LabelEnergy(L, 3, "relu", hidden=(4,)),
    "conditional-hardtanh": lambda L: spen.ConditionalEnergy(F, L, 3, "hardtanh"),
    "convex-relu": lambda L: spen.ConvexEnergy(F, L, 3, "relu", hidden=(2,)),
}
SUMS: dict[str, EnergyMaker] = {
    "local+label": lambda L: spen.LocalEnergy(F, L) + spen.LabelEnergy(L, 3, "softplus"),
    "local+deep+pairwise": lambda L: (
        spen.LocalEnergy(F, L)
        + spen.LabelEnergy(L, 3, "softplus", hidden=(2,))
        + spen.PairwiseEnergy(L)
    ),
    "local+conditional+low-rank": lambda L: (
        spen.LocalEnergy(F, L)
        + spen.ConditionalEnergy(F, L, 2, "sigmoid")
        + spen.PairwiseEnergy(L, rank=2)
    ),
}
LEARNED: dict[str, EnergyMaker] = SMOOTH | KINKED | SUMS


def fixed_terms(domain: Domain) -> dict[str, Energy]:
    """The terms without parameters."""
    return {
        "hamming": spen.LossAugmentation(domain, "hamming", margin=0.7),
        "squared": spen.LossAugmentation(domain, "squared", margin=0.7),
        "log": spen.LossAugmentation(domain, "log", margin=0.7),
        "entropy": spen.Entropy(domain, 0.6),
    }


def randomise(energy: Energy, seed: int, scale: float = 1.0) -> Energy:
    """Fill every parameter with noise (some energies start at zero), in float64."""
    generator = torch.Generator().manual_seed(seed)
    energy = energy.double()
    with torch.no_grad():
        for parameter in energy.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(scale * noise)
    return energy


def random_context(
    domain: Domain, rows: int, seed: int, dtype: torch.dtype = torch.float64
) -> tuple[Context, Tensor]:
    """A context with targets, and a point strictly inside the domain."""
    generator = torch.Generator().manual_seed(seed)

    def draw(columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator, dtype=dtype)

    target = domain.round(domain.to_primal(draw(domain.size)))
    return Context(features=draw(F), target=target), domain.to_primal(draw(domain.size))


def all_labelings(domain: Domain, dtype: torch.dtype = torch.float64) -> Tensor:
    """Every vertex of a domain, (count, size)."""
    if isinstance(domain, spen.UnitBox):
        rows = itertools.product((0.0, 1.0), repeat=domain.size)
    else:
        assert isinstance(domain, spen.Simplex)
        one_hot = torch.eye(domain.n_classes).tolist()
        choices = itertools.product(one_hot, repeat=domain.positions)
        rows = (itertools.chain.from_iterable(choice) for choice in choices)
    return torch.tensor([list(row) for row in rows], dtype=dtype)


def brute_force(problem: spen.Problem, domain: Domain, rows: int) -> Tensor:
    """The lowest energy of any labelling, for each row."""
    labelings = all_labelings(domain)
    values = [problem.value(one.expand(rows, -1)) for one in labelings]
    return torch.stack(values).min(0).values
