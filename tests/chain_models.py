"""Random chains, and the energies of all their taggings by plain loops."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

import spen

F = 3
NAN = float("nan")


@dataclass
class Case:
    """A batch of chains.

    Attributes:
        model: features as they come, local scores and a chain.
        context: with a target, and known classes where there are some.
        lengths: how many positions each row has.
        forbidden: the transitions that are ruled out.
    """

    model: spen.SPEN
    context: spen.Context
    lengths: list[int]
    forbidden: set[tuple[int, int]]

    @property
    def problem(self) -> spen.Problem:
        return self.model.energy.bind(self.context)

    @property
    def domain(self) -> spen.Domain:
        return self.model.domain.of_batch(self.context)

    def taggings(self, row: int) -> list[tuple[int, ...]]:
        """All taggings of a row that nothing rules out."""
        classes = self.model.domain.n_classes
        known = self.context.known
        kept = []
        for tags in itertools.product(range(classes), repeat=self.lengths[row]):
            steps = [(-1, tags[0]), *itertools.pairwise(tags), (tags[-1], -1)]
            if self.forbidden.intersection(steps):
                continue
            if known is not None:
                held = known[row].reshape(-1, classes)[: len(tags)]
                on = torch.nn.functional.one_hot(torch.tensor(tags), classes)
                if not (held.isnan() | (held == on)).all():
                    continue
            kept.append(tags)
        return kept

    def energy(self, row: int, tags: tuple[int, ...]) -> float:
        """The energy of a tagging, from the parameters, in float64."""
        local, chain = self.model.energy.terms
        x = self.context.features[row].double()
        scores = x @ local.weight.double().T + local.bias.double()
        value = chain.start[tags[0]].double() + chain.end[tags[-1]].double()
        for t, tag in enumerate(tags):
            value = value + scores[t, tag]
            if t:
                before = tags[t - 1]
                value = value + chain.transitions[before, tag].double()
                if isinstance(chain, spen.ConditionalChainEnergy):
                    row_of_weights = before * chain.n_labels + tag
                    value = value + chain.feature_weight[row_of_weights].double() @ x[t]
        return value.item()

    def energies(self, row: int) -> Tensor:
        """The energy of each of the taggings of a row, in float64."""
        values = [self.energy(row, tags) for tags in self.taggings(row)]
        return torch.tensor(values, dtype=torch.float64)

    def points(self, row: int) -> Tensor:
        """The taggings of a row as points of the domain."""
        return torch.stack([self.one_hot(row, tags) for tags in self.taggings(row)])

    def one_hot(self, row: int, tags: tuple[int, ...]) -> Tensor:
        """A tagging as a point of the domain."""
        y = torch.zeros(self.domain.size, dtype=self.context.features.dtype)
        for t, tag in enumerate(tags):
            y[t * self.model.domain.n_classes + tag] = 1
        return y


@st.composite
def cases(draw, dtype=None):
    """Chains of drawn sizes, with drawn constraints and known classes."""
    classes = draw(st.integers(2, 4))
    lengths = draw(st.lists(st.integers(1, 5 if classes < 4 else 4), min_size=1, max_size=4))
    seed = draw(st.integers(0, 10_000))
    conditional, some_known = draw(st.booleans()), draw(st.booleans())
    share_forbidden = draw(st.sampled_from([0.0, 0.2, 0.5]))
    scale = draw(st.sampled_from([0.5, 3.0]))
    dtype = dtype or draw(st.sampled_from([torch.float32, torch.float64]))
    return make_case(classes, lengths, seed, conditional, share_forbidden, some_known, scale, dtype)


def make_case(
    classes: int,
    lengths: list[int],
    seed: int = 0,
    conditional: bool = False,
    share_forbidden: float = 0.0,
    some_known: bool = False,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> Case:
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    every = [(i, j) for i in range(-1, classes) for j in range(-1, classes) if (i, j) != (-1, -1)]
    forbidden = {pair for pair in every if rng.random() < share_forbidden}
    kind = spen.ConditionalChainEnergy if conditional else spen.ChainEnergy
    sizes = (F, classes) if conditional else (classes,)
    energy = spen.LocalEnergy(F, classes) + kind(*sizes, forbidden=sorted(forbidden))
    domain = spen.Simplex(classes, positions=None)
    model = spen.SPEN(spen.Identity(F), energy, domain).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(scale * noise)
    longest = max(lengths) + int(rng.integers(3))
    features = torch.from_numpy(rng.normal(size=(len(lengths), longest, F))).to(dtype)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    tags = torch.from_numpy(rng.integers(classes, size=(len(lengths), longest)))
    target = torch.nn.functional.one_hot(tags, classes) * mask[:, :, None]
    known = None
    if some_known:
        known = target.to(dtype).flatten(1)
        hidden = torch.from_numpy(rng.random(known.shape) < 0.6)
        known = known.masked_fill(hidden, NAN)
    context = spen.Context(features, target.to(dtype).flatten(1), known, mask=mask)
    return Case(model, context, lengths, forbidden)
