"""Random binary pairwise models, for the tests of every solver that wants one."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from problems import F, all_labelings, random_context, randomise
from torch import Tensor

import spen
from spen.energies.base import Energy, Problem
from spen.inference.discrete.pairwise import PairwiseForm

nan = torch.nan

KINDS = {
    "full": lambda L: spen.PairwiseEnergy(L),
    "low-rank": lambda L: spen.PairwiseEnergy(L, rank=2),
    "conditional": lambda L: spen.ConditionalPairwiseEnergy(F, L),
    "two-tables": lambda L: spen.ConditionalPairwiseEnergy(F, L, terms=2),
    "squares": lambda L: spen.LabelEnergy(L, 3, "square"),
    "conditional-squares": lambda L: spen.ConditionalEnergy(F, L, 3, "square"),
    "both": lambda L: spen.PairwiseEnergy(L) + spen.PairwiseEnergy(L, rank=1),
}
AUGMENTED = (None, "hamming", "squared")

seeds = st.integers(0, 10_000)
kinds = st.sampled_from(list(KINDS))
losses = st.sampled_from(AUGMENTED)


def random_energy(kind: str, n_labels: int, seed: int) -> Energy:
    """Local scores and pairs, in float64; where there is a table of pairs, hard to satisfy."""
    pairs = KINDS[kind](n_labels)
    energy = randomise(spen.LocalEnergy(F, n_labels) + pairs, seed)
    if isinstance(pairs, spen.PairwiseEnergy):
        # On and off are equally good if all others are on with probability ½: so pairs decide.
        with torch.no_grad():
            pairs.bias.copy_(-pairs.pairs().sum(1))
            pairs.weight.mul_(2) if pairs.rank is None else pairs.readout.mul_(2)
            pairs.bias.mul_(2)
    return energy


def random_crf(
    kind: str,
    n_labels: int,
    rows: int,
    seed: int,
    loss: str | None = None,
    whole: bool = False,
) -> tuple[Problem, spen.UnitBox]:
    """A bound model; with whole numbers many labellings have the same energy."""
    domain = spen.UnitBox(n_labels)
    energy = random_energy(kind, n_labels, seed)
    context, _ = random_context(domain, rows, seed)
    if loss is not None:
        energy = energy + spen.LossAugmentation(domain, loss, margin=1.0)
    if whole:
        with torch.no_grad():
            for parameter in energy.parameters():
                parameter.copy_(parameter.round())
        context.features.copy_(context.features.round())
    return energy.bind(context), domain


def random_known(rows: int, n_labels: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 1)
    draw = torch.rand(rows, n_labels, generator=generator)
    return torch.where(draw < 0.2, 0.0, torch.where(draw < 0.4, 1.0, nan)).double()


def energies_of_all(problem: Problem, n_labels: int, known: Tensor | None = None) -> Tensor:
    """The energy of every labelling, (n, 2^L), asked for one by one; inf for what is ruled out."""
    rows = problem.rows_like.shape[0]
    labelings = all_labelings(spen.UnitBox(n_labels))
    values = torch.stack([problem.value(one.expand(rows, -1)) for one in labelings], 1).detach()
    if known is None:
        return values
    held = ~torch.isnan(known)[:, None, :]
    return values.masked_fill((held & (labelings != known[:, None, :])).any(2), torch.inf)


def random_form(
    n_labels: int, rows: int, seed: int, edges: Tensor | None = None, sign: str = "any"
) -> PairwiseForm:
    """Unary terms and weights of each row, of some edges (a symmetric mask) and one sign."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    weights = torch.triu(draw(rows, n_labels, n_labels), 1)
    if sign == "negative":
        weights = -weights.abs()
    weights = weights + weights.mT
    if edges is not None:
        weights = weights * edges
    return PairwiseForm(draw(rows), 1.5 * draw(rows, n_labels), weights)


def random_tree(n_labels: int, seed: int) -> Tensor:
    """The edges of a tree, (L, L): each label hangs on an earlier one."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.zeros(n_labels, n_labels, dtype=torch.float64)
    for label in range(1, n_labels):
        parent = int(torch.randint(label, (), generator=generator))
        edges[label, parent] = edges[parent, label] = 1.0
    return edges
