"""Descent over the marginals of chains: structured mirror descent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from spen.batch.context import Context
from spen.batch.positions import sum_positions
from spen.domains import Domain, Simplex, held_labels
from spen.energies.base import Problem, RecordProblem, SumProblem, add_problems
from spen.energies.chain import ChainProblem
from spen.energies.form import Form
from spen.errors import InputError, check_whole
from spen.inference.backward import Backward
from spen.inference.base import Solution, Task, Trace
from spen.inference.descent import Descent
from spen.inference.discrete.viterbi import Chain, best_taggings, sum_of_chain
from spen.inference.rules import MirrorDescent, ProjectedGradient, Rule

FURTHEST = 200.0
"""Duals of a position, and of its pairs, lie at most this far below the largest: their exponentials
are well above the smallest float64. To bound them as tightly as those of a ``Simplex`` would change
which tagging is best, for here they add up along a row."""

OFF = -1e6
"""The score of what is ruled out, where a step is differentiated: no row of others adds up to it,
and other than −inf it leaves no nan in gradients."""


@dataclass(frozen=True)
class ChainMarginals(Domain):
    """The marginals of distributions over the taggings of chains: of positions and of pairs.

    y is flat, (n, width) of width T (K + K²): of each position the probability of its K classes,
    then those of the K² pairs (j, k) that it has class k and the one before it class j. The pairs
    of position 0 are zero. For chains such numbers belong to a distribution wherever they agree
    with each other.

    Mirror map: y = forward–backward of a chain whose scores are θ, which is one pass over its
    positions and back; θ is the logarithm of the conditional probabilities. So ``MirrorDescent``
    over this domain is structured mirror descent, and its entropy is that of whole taggings.
    ``StructuredDescent`` brings energies and answers to and fro.

    Args:
        n_classes: K.
        positions: T, or None for as many as a batch has.

    >>> domain = ChainMarginals(2, positions=2)
    >>> domain.to_primal(torch.zeros(1, 12))
    tensor([[0.5000, 0.5000, 0.0000, 0.0000, 0.0000, 0.0000, 0.5000, 0.5000, 0.2500,
             0.2500, 0.2500, 0.2500]])
    """

    n_classes: int
    positions: int | None = 1
    wrong_entries_per_error = 2

    def __post_init__(self) -> None:
        check_whole(self.n_classes, "n_classes", least=2)
        if self.positions is not None:
            check_whole(self.positions, "positions")

    @property
    def size(self) -> int:
        """K + K² for each position."""
        return (self.positions or 1) * self.n_classes * (1 + self.n_classes)

    @property
    def of_positions(self) -> Simplex:
        """The domain of the positions' marginals alone."""
        return Simplex(self.n_classes, self.positions)

    def of_batch(self, context: Context) -> ChainMarginals:
        return replace(self, positions=self.of_positions.of_batch(context).positions)

    def sum(self, values: Tensor) -> Tensor:
        return sum_positions(values, values.shape[1] // (self.n_classes * (1 + self.n_classes)))

    def split(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the part of positions (n, T, K) and that of pairs (n, T, K, K)."""
        each = y.unflatten(1, (-1, self.n_classes * (1 + self.n_classes)))
        pairs = each[:, :, self.n_classes :]
        return each[:, :, : self.n_classes], pairs.unflatten(2, (self.n_classes, self.n_classes))

    def join(self, positions: Tensor, pairs: Tensor) -> Tensor:
        """Return both parts as one point: (n, T, K) and (n, T, K, K) → (n, T (K + K²))."""
        return torch.cat([positions, pairs.flatten(2)], 2).flatten(1)

    def to_primal(self, dual: Tensor) -> Tensor:
        return self._marginals(self.clamp_dual(dual), None)

    def to_dual(self, y: Tensor) -> Tensor:
        positions, pairs = self.split(y)
        before, least = pairs.sum(3, keepdim=True), torch.finfo(y.dtype).tiny
        logs = torch.log(pairs.clamp_min(least)) - torch.log(before.clamp_min(least))
        first = torch.log(positions[:, :1].clamp_min(least))
        later = torch.zeros_like(positions[:, 1:])
        return self.join(torch.cat([first, later], 1), self._after_first(logs))

    def clamp_dual(self, dual: Tensor) -> Tensor:
        """Shift the largest dual of each position, and of its pairs, to 0, and bound the others
        from below."""
        parts = []
        for part in self.split(dual):
            flat = part.flatten(2)
            shifted = flat - flat.amax(2, keepdim=True).detach()
            parts.append(shifted.clamp_min(-FURTHEST).reshape(part.shape))
        return self.join(*parts)

    def at_dual(self, dual: Tensor, known: Tensor | None) -> tuple[Tensor, Tensor]:
        dual = self.clamp_dual(dual)
        return dual, self._marginals(dual, known)

    def project(self, y: Tensor) -> Tensor:
        """Return y, whose parts must agree with each other: the mirror map needs no projection."""
        positions, pairs = self.split(y)
        present = (positions != 0).any(2)
        known = self.join(*self._where(~present, positions, pairs))
        same = self._marginals(self.to_dual(y.clamp(0, 1)), known)
        if not torch.compiler.is_compiling() and not bool(((same - y).abs() < 1e-3).all()):
            raise InputError(
                "A point of ChainMarginals must hold marginals of positions and of pairs that "
                "agree with each other; received others. Use rules that step in the dual, such as "
                "MirrorDescent, and leave out start."
            )
        return y

    def round(self, y: Tensor) -> Tensor:
        """Return the labels that have most at each position, and the pairs that they make."""
        positions = self.split(y)[0]
        labels = self.of_positions.round(positions.flatten(1)).reshape(positions.shape)
        return self.join(labels, _of_neighbours(labels))

    def product(self, positions: Tensor) -> Tensor:
        """Return the point at which positions (n, T K) know nothing of each other."""
        split = positions.unflatten(1, (-1, self.n_classes))
        return self.join(split, _of_neighbours(split))

    def negative_entropy(self, y: Tensor) -> Tensor:
        positions, pairs = self.split(y)
        before = pairs.sum(3)
        of_pairs = torch.xlogy(pairs, pairs).flatten(2).sum(2) - torch.xlogy(before, before).sum(2)
        first = torch.xlogy(positions[:, :1], positions[:, :1]).sum(2)
        later = torch.zeros_like(positions[:, 1:, 0])
        return sum_positions(of_pairs + torch.cat([first, later], 1), positions.shape[1])

    def negative_entropy_gradient(self, y: Tensor) -> Tensor:
        positions, pairs = self.split(self.to_dual(y))
        first = torch.ones_like(positions[:, :1])
        later = torch.zeros_like(positions[:, 1:])
        return self.join(positions + torch.cat([first, later], 1), pairs)

    def spread(self, y: Tensor, direction: Tensor) -> Tensor:
        positions, pairs = self.split(y)
        known = self.join(*self._where(positions == 0, positions, pairs))
        with torch.enable_grad():
            dual = self.to_dual(y.detach()).requires_grad_()
            mean = (self._marginals(dual, known) * direction.detach()).sum()
            # A covariance, so the derivative is its own transpose.
            return torch.autograd.grad(mean, dual)[0]

    def frank_wolfe_gap(self, y: Tensor, gradient: Tensor, known: Tensor | None = None) -> Tensor:
        chain = Chain(gradient.new_zeros(len(y)), *self._chain(-gradient, known))
        return self.sum(gradient * y) + best_taggings(chain, 1)[1][:, 0]

    def entropic_gap(
        self, y: Tensor, gradient: Tensor, tau: Tensor, known: Tensor | None = None
    ) -> Tensor:
        scores, pairs, mask = self._chain(-gradient / tau[:, None], known)
        logs = sum_of_chain(scores, pairs, mask).logs
        return (tau * (logs + self.negative_entropy(y)) + self.sum(gradient * y)).clamp_min(0)

    def log_loss_of_dual(self, dual: Tensor, target: Tensor) -> Tensor:
        """Return −θ·t, entry by entry, with the sum over all taggings added to the first."""
        scores, pairs, mask = self._chain(dual, None)
        logs = _log_sums(scores, pairs, mask)[0]
        return torch.cat([logs[:, None], torch.zeros_like(dual[:, 1:])], 1) - target * dual

    def log_loss_gradient(self, y: Tensor, target: Tensor, counted: Tensor | None) -> Tensor:
        if counted is not None:
            raise InputError("ChainMarginals has no log loss of labels that were not observed.")
        positions, pairs = self.split(y)
        wanted, together = self.split(target)
        before, wanted_before = pairs.sum(3, keepdim=True), together.sum(3, keepdim=True)
        least = torch.finfo(y.dtype).eps
        of_pairs = wanted_before / before.clamp_min(least) - together / pairs.clamp_min(least)
        first = -wanted[:, :1] / positions[:, :1].clamp_min(least)
        later = torch.zeros_like(positions[:, 1:])
        return self.join(torch.cat([first, later], 1), self._after_first(of_pairs))

    def complete_known(self, known: Tensor) -> Tensor:
        positions, pairs = self.split(known)
        positions = self.of_positions.complete_known(positions.flatten(1)).reshape(positions.shape)
        first = torch.zeros_like(pairs[:, :1])
        return self.join(positions, torch.cat([first, pairs[:, 1:]], 1))

    def hold(self, y: Tensor, known: Tensor) -> Tensor:
        """Return what is left of the distribution once it is known to agree with the labels."""
        return self._marginals(self.to_dual(y), known)

    def lift(self, problem: Problem) -> Problem:
        """Return a problem over tags (n, T K) as one over their marginals: chains, which are
        linear here, with pairs and all others with positions."""
        lifted, others = [], []
        for term in problem.terms if isinstance(problem, SumProblem) else (problem,):
            if isinstance(term, ChainProblem):
                lifted.append(self._lift_chain(term))
            else:
                others.append(term)
        if others:
            lifted.append(OnPositions(add_problems(others), self))
        return add_problems(lifted)

    def _lift_chain(self, chain: ChainProblem) -> Form:
        rows, longest = chain.mask.shape
        pairs, outward = chain.costs_of_pairs, chain.costs_of_ends
        if pairs.ndim == 2:
            pairs = pairs.expand(rows, longest - 1, *pairs.shape)
        linear = self.join(outward, F.pad(pairs, (0, 0, 0, 0, 1, 0)))
        return Form(constant=chain.zeros, linear=linear, mask=chain.mask)

    def _where(self, ruled_out: Tensor, positions: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Return what is known where positions, or some of their classes, are ruled out."""
        barred = ruled_out if ruled_out.ndim == 3 else ruled_out[:, :, None]
        known = torch.full_like(positions, torch.nan).masked_fill(barred, 0.0)
        return known, torch.full_like(pairs, torch.nan)

    def _chain(
        self, dual: Tensor, known: Tensor | None, off: float = -torch.inf
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the scores of positions (n, T, K) and of pairs (n, T − 1, K, K), which are ``off``
        where what is known rules them out, and where there is a position."""
        scores, pairs = self.split(dual)
        if known is None:
            mask = torch.ones_like(scores[:, :, 0], dtype=torch.bool)
        else:
            held, together = self.split(known)
            mask = ~(held == 0).all(2)
            scores = scores.masked_fill((held == 0) & mask[:, :, None], off)
            pairs = pairs.masked_fill((together == 0) & mask[:, :, None, None], off)
        return scores, pairs[:, 1:], mask

    def _marginals(self, dual: Tensor, known: Tensor | None) -> Tensor:
        if torch.is_grad_enabled() and dual.requires_grad:
            positions, together = _marginals_of(*self._chain(dual, known, OFF))
        else:
            sums = sum_of_chain(*self._chain(dual, known))
            positions, together = sums.marginals(torch.ones_like(sums.logs), of_pairs=True)
            assert together is not None
        return self.join(positions, F.pad(together, (0, 0, 0, 0, 1, 0)))

    @staticmethod
    def _after_first(pairs: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(pairs[:, :1]), pairs[:, 1:]], 1)


def _of_neighbours(positions: Tensor) -> Tensor:
    """Return the product of each two neighbours, (n, T, K) → (n, T, K, K)."""
    pairs = positions[:, :-1, :, None] * positions[:, 1:, None, :]
    return F.pad(pairs, (0, 0, 0, 0, 1, 0))


def _log_sums(scores: Tensor, pairs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logarithm of the sum over all taggings, (n,), and of those that end in each class
    of each position, (n, T, K); both can be differentiated as often as one likes."""
    reached = [scores[:, 0]]
    for t in range(1, scores.shape[1]):
        ways = torch.logsumexp(reached[-1][:, :, None] + pairs[:, t - 1], 1) + scores[:, t]
        reached.append(torch.where(mask[:, t, None], ways, reached[-1]))
    return torch.logsumexp(reached[-1], 1), torch.stack(reached, 1)


def _marginals_of(scores: Tensor, pairs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the marginals of positions (n, T, K) and of pairs (n, T − 1, K, K), made of steps
    that can be differentiated."""
    logs, reached = _log_sums(scores, pairs, mask)
    behind, together = torch.zeros_like(scores[:, 0]), []
    found = [torch.exp(reached[:, -1] - logs[:, None])]
    for t in range(scores.shape[1] - 1, 0, -1):
        here = mask[:, t, None]
        ahead = pairs[:, t - 1] + (scores[:, t] + behind)[:, None, :]
        both = torch.exp(reached[:, t - 1, :, None] + ahead - logs[:, None, None])
        together.append(both * here[:, :, None])
        behind = torch.where(here, torch.logsumexp(ahead, 2), behind)
        found.append(torch.exp(reached[:, t - 1] + behind - logs[:, None]))
    marginals = torch.stack(found[::-1], 1) * mask[:, :, None]
    return marginals, torch.stack(together[::-1], 1) if together else pairs


@dataclass(frozen=True)
class OnPositions(RecordProblem):
    """A problem over tags, as one over marginals, of which it sees those of positions."""

    problem: Problem
    domain: ChainMarginals
    with_rows = ()

    @property
    def mask(self) -> Tensor | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Where there is a position."""
        return self.problem.mask

    @property
    def rows_like(self) -> Tensor:
        return self.problem.rows_like

    def select(self, rows: Tensor) -> Problem:
        return replace(self, problem=self.problem.select(rows))

    def value(self, y: Tensor) -> Tensor:
        return self.problem.value(self.domain.split(y)[0].flatten(1))

    def gradient(self, y: Tensor) -> Tensor:
        positions, pairs = self.domain.split(y)
        gradient = self.problem.gradient(positions.flatten(1))
        return self.domain.join(gradient.reshape(positions.shape), torch.zeros_like(pairs))

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        positions, pairs = self.domain.split(y)
        value, gradient = self.problem.value_and_gradient(positions.flatten(1))
        return value, self.domain.join(gradient.reshape(positions.shape), torch.zeros_like(pairs))

    def settle(self) -> OnPositions:
        return replace(self, problem=self.problem.settle())

    @property
    def is_smooth(self) -> bool:
        return self.problem.is_smooth

    @property
    def is_convex(self) -> bool:
        return self.problem.is_convex

    @property
    def step_rates(self) -> Tensor | None:
        return self.problem.step_rates


@dataclass(frozen=True)
class StructuredDescent(Descent):
    """Descend over the marginals of chains: structured mirror descent (Graber & Schwing 2019).

        θ ← θ − η ∇E(y),   y = the marginals of the chain with scores θ

    Chains are counted by their pairs, exactly; all other energies see the marginals y (n, T K) of
    positions. Each step is one forward–backward pass. An entropy of weight τ is that of whole
    taggings: with local scores and a chain alone and τ = 1 it ends where ``ForwardBackward`` does,
    and with τ = 0 at the best tagging.

    Args:
        rule: how one step is made; it must step in the dual.
        stopping: as in ``Descent``.
        backward: as in ``Descent``.
        trace: as in ``Descent``.
        backend: as in ``Descent``.

    >>> import spen
    >>> chain = spen.ChainEnergy(2, forbidden=[(0, 1)])
    >>> scores = spen.Form(linear=torch.tensor([[0.0, 1.0, 3.0, 0.0]]))
    >>> problem = scores + chain.bind(Context(torch.zeros(1, 2, 1)))
    >>> StructuredDescent().solve(problem, Simplex(2, positions=2)).y.round()
    tensor([[0., 1., 0., 1.]])
    """

    rule: Rule = field(default_factory=lambda: MirrorDescent(lr=1.0, momentum=0.0))

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.rule, ProjectedGradient):
            raise InputError(
                "StructuredDescent steps in the dual; received the rule ProjectedGradient. Choose "
                "MirrorDescent(lr=1.0, momentum=0.0)."
            )
        if self.shortlist is not None:
            raise InputError("StructuredDescent has no shortlist. Leave shortlist out.")

    def solve(
        self,
        problem: Problem,
        domain: Domain,
        start: Tensor | None = None,
        known: Tensor | None = None,
        backward: Backward | None = None,
    ) -> Solution:
        _check_positions(domain)
        return super().solve(problem, domain, start, known, backward)

    def _solve_from(
        self,
        start: Tensor | None,
        problem: Problem,
        domain: Domain,
        known: Tensor | None,
        backward: Backward | None,
    ) -> Solution:
        domain = _check_positions(domain)
        whole, like = ChainMarginals(domain.n_classes, domain.positions), problem.rows_like
        tau, known = problem.entropy_weight, held_labels(domain, known, like, problem.mask)
        lifted = whole.lift(problem.without_entropy())
        if tau is not None:
            lifted = lifted + Form(tau=tau, domain=whole, mask=problem.mask)
        if known is not None:
            split = known.unflatten(1, (-1, domain.n_classes))
            pairs = torch.full((*split.shape, domain.n_classes), torch.nan).to(split)
            known = whole.join(split, pairs)
        if start is None:
            start = whole.uniform(like[:1]).expand(len(like), -1)
        else:
            start = whole.product(start)
        found = self._run(Task(lifted, whole, start, known), backward)

        def tags_of(y: Tensor) -> Tensor:
            return whole.split(y)[0].flatten(1)

        trace = found.trace and Trace(
            torch.stack([tags_of(y) for y in found.trace.y]), found.trace.energy
        )
        return replace(found, y=tags_of(found.y), trace=trace)


def _check_positions(domain: Domain) -> Simplex:
    if not isinstance(domain, Simplex):
        raise InputError(f"StructuredDescent is for a Simplex, and the domain is {domain}.")
    if not domain.positions:
        raise InputError(
            f"{domain} takes the positions of a batch. Solve over domain.of_batch(context)."
        )
    return domain
