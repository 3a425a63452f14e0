"""Exact answers for chains: the best taggings, marginals, and the sum over all taggings."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from spen.batch.positions import at_positions, sum_positions
from spen.domains import Domain, Simplex, held_labels
from spen.energies.base import Problem, SumProblem, total
from spen.energies.chain import ChainProblem
from spen.energies.form import Form
from spen.errors import InputError, check_settings, check_whole
from spen.inference.base import Inference, Solution, Status
from spen.inference.discrete.pairwise import check_no_entropy
from spen.kernels.cpu import chains, machine_code
from spen.kernels.cuda import chains as on_gpu


@dataclass(frozen=True)
class Viterbi(Inference):
    """Find y = argmin E(y) (n, T K), the best tagging of each row, of energies that are chains.

    Such are sums of ``LocalEnergy``, ``ChainEnergy`` and Hamming or squared loss augmentation, so
    it serves prediction and the hinge alike. Known classes are honoured and forbidden transitions
    never taken; a row that is left without any tagging is an error that names it.

    A start changes nothing. ``steps`` counts positions, and ``gap`` is 0. Numba on the CPU and
    Triton on a GPU make it many times quicker.

    >>> import torch
    >>> import spen
    >>> chain = spen.ChainEnergy(2, forbidden=[(0, 1)])
    >>> scores = spen.Form(linear=torch.tensor([[0.0, 1.0, 3.0, 0.0]]))
    >>> problem = scores + chain.bind(spen.Context(torch.zeros(1, 2, 1)))
    >>> solution = Viterbi().solve(problem, spen.Simplex(2, positions=2))
    >>> solution.y, solution.energy
    (tensor([[0., 1., 0., 1.]]), tensor([1.]))
    """

    @torch.no_grad()
    def solve(
        self,
        problem: Problem,
        domain: Domain,
        start: Tensor | None = None,
        known: Tensor | None = None,
    ) -> Solution:
        chain = read_chain(problem, domain, known, "Viterbi")
        kernel = machine_code(chains.best_paths, chains.path_types)
        if on_gpu.knows_chains(chain.unary):
            tags, best = on_gpu.best_paths(*chain.without_nan, chain.lengths)
            backend = "chain-triton"
        elif kernel is None or chain.unary.device.type != "cpu":
            tags, best = _best_taggings(chain, 1)
            tags, best, backend = tags[:, 0], best[:, 0], "general"
        else:
            tags = torch.zeros(chain.mask.shape, dtype=torch.int64)
            best = torch.zeros(len(tags), dtype=torch.float64)
            scores, tables = _doubles(chain.unary), _doubles(chain.pairs)
            kernel(scores, tables, chain.lengths.numpy(), tags.numpy(), best.numpy())
            backend = "chain-numba"
        chain.check_possible(best)
        energy = chain.constant - chain.unless_nan(best)
        return _ended(chain, chain.vertices(tags), energy, backend)

    @torch.no_grad()
    def best(self, problem: Problem, domain: Domain, n: int, known: Tensor | None = None) -> NBest:
        """Find the n taggings of least energy of each row, the best first.

        Args:
            problem: the energies of a batch.
            domain: where y lives.
            n: how many; rows that have fewer taggings repeat their best one, at energy inf.
            known: (rows, L) classes to hold: 1, 0, or nan for those to infer.
        """
        check_whole(n, "n")
        chain = read_chain(problem, domain, known, "Viterbi")
        tags, scores = best_taggings(chain, n)
        chain.check_possible(scores[:, 0])
        exists = scores > -torch.inf
        tags = torch.where(exists[:, :, None], tags, tags[:, :1])
        energies = torch.where(exists, chain.constant[:, None] - scores, torch.inf)
        return NBest(tags.masked_fill(~chain.mask[:, None], 0), energies, chain)


class NBest(NamedTuple):
    """The best taggings of each row, the best first: E(y₁) ≤ E(y₂) ≤ … ≤ E(y_n).

    Attributes:
        tags: (rows, n, T) the class of each position; 0 where there is none.
        energy: (rows, n) the energy of each.
        chain: what they are taggings of.

    >>> from spen import ChainEnergy, Context, Simplex
    >>> chain = ChainEnergy(n_labels=3).bind(Context(torch.zeros(2, 4, 1)))
    >>> found = Viterbi().best(chain, Simplex(3, positions=4), n=2)
    >>> found.tags.shape, found.energy.shape, found.y.shape
    (torch.Size([2, 2, 4]), torch.Size([2, 2]), torch.Size([2, 2, 12]))
    """

    tags: Tensor
    energy: Tensor
    chain: Chain

    @property
    def y(self) -> Tensor:
        """(rows, n, L) the same as points of the domain."""
        return self.chain.vertices(self.tags)


@dataclass(frozen=True)
class ForwardBackward(Inference):
    """Find the marginals of P(y) ∝ exp(−E(y) / τ) of energies that are chains, exactly.

    The solution's y (n, T K) holds the probability of each class at each position, and its energy
    is −τ log Σ_y exp(−E(y) / τ): the least free energy, the mean of E less τ times the entropy of
    whole taggings. Energies, known classes and forbidden transitions are as for ``Viterbi``.

    Args:
        temperature: τ.

    >>> import torch
    >>> import spen
    >>> problem = spen.Form(linear=torch.tensor([[0.0, 0.0, 0.0, 1.0]]))
    >>> solution = ForwardBackward().solve(problem, spen.Simplex(2, positions=2))
    >>> solution.y
    tensor([[0.5000, 0.5000, 0.7311, 0.2689]])
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_settings(self, temperature="positive")

    @torch.no_grad()
    def solve(
        self,
        problem: Problem,
        domain: Domain,
        start: Tensor | None = None,
        known: Tensor | None = None,
    ) -> Solution:
        chain = read_chain(problem, domain, known, "ForwardBackward", self.temperature)
        sums, y = _marginals(chain)
        energy = chain.constant - self.temperature * sums.logs
        return _ended(chain, y, energy, sums.backend)

    def log_partition(
        self, problem: Problem, domain: Domain, known: Tensor | None = None
    ) -> Tensor:
        """Return log Σ_y exp(−E(y) / τ) over the taggings that agree with what is known, (n,).

        Its gradient is made of marginals, so that differentiating takes one more pass and keeps
        one number for each class and position.
        """
        chain = read_chain(problem, domain, known, "ForwardBackward", self.temperature)
        logs = _LogPartition.apply(chain.unary, chain.pairs, chain.mask)
        chain.check_possible(logs)
        return logs - chain.constant / self.temperature


def marginals_of(problem: Problem, domain: Domain, known: Tensor | None) -> Tensor:
    """Return the marginals that ``ForwardBackward`` finds, (n, T K), and nothing else."""
    with torch.no_grad():
        return _marginals(read_chain(problem, domain, known, "ForwardBackward"))[1]


def _marginals(chain: Chain) -> tuple[_SumOfRows | _SumOfLogs | _SumOnGpu, Tensor]:
    sums = sum_of_chain(chain.unary, chain.pairs, chain.mask)
    chain.check_possible(sums.logs)
    marginals, _ = sums.marginals(torch.ones_like(sums.logs), of_pairs=False)
    return sums, at_positions(marginals.flatten(1), chain.mask)


def _ended(chain: Chain, y: Tensor, energy: Tensor, backend: str) -> Solution:
    energy = energy.to(y)
    finite = energy.abs() < torch.inf
    return Solution(
        y=y,
        energy=energy,
        steps=chain.lengths,
        # In arithmetic, because torch.where copies its numbers to the GPU, and waits.
        status=Status.DIVERGED + finite * (Status.OPTIMAL - Status.DIVERGED),
        backend=backend,
        gap=torch.zeros_like(energy).masked_fill(~finite, torch.inf),
    )


# What a solver reads -----------------------------------------------------------------------


@dataclass(frozen=True)
class Chain:
    """A batch of chains in scores, which are energies with their sign turned.

    Attributes:
        constant: (n,) the energy that all taggings of a row have.
        unary: (n, T, K) the score of each class; −inf where it is ruled out.
        pairs: (n or 1, T − 1 or 1, K, K) the score of k after j; −inf where that is forbidden.
        mask: (n, T) True where there is a position.
    """

    constant: Tensor
    unary: Tensor
    pairs: Tensor
    mask: Tensor

    @functools.cached_property
    def lengths(self) -> Tensor:
        """(n,) how many positions each row has."""
        return self.mask.sum(1)

    def vertices(self, tags: Tensor) -> Tensor:
        """Return taggings (n, T), or some of each row (n, m, T), as points of the domain: (n, T K)
        or (n, m, T K)."""
        mask = self.mask if tags.ndim == 2 else self.mask[:, None]
        taken = tags[..., None] == torch.arange(self.unary.shape[2], device=tags.device)
        return (taken & mask[..., None]).to(self.unary.dtype).flatten(-2)

    @property
    def without_nan(self) -> tuple[Tensor, Tensor]:
        """The scores for kernels that follow the largest: nothing is larger than nan."""
        lowest = -torch.inf
        unary, pairs = (
            torch.nan_to_num(scores, nan=lowest, posinf=torch.inf, neginf=lowest)
            for scores in (self.unary, self.pairs)
        )
        return unary, pairs

    def unless_nan(self, best: Tensor) -> Tensor:
        """Return best scores (n, …), nan where a score of the row is: kernels pass it over."""
        whole = self.unary.sum((1, 2)) + self.pairs.sum((1, 2, 3))
        return best.masked_fill(whole.isnan().reshape(-1, *(1,) * (best.ndim - 1)), torch.nan)

    def check_possible(self, best: Tensor) -> None:
        """Raise where known classes and forbidden transitions leave no tagging of a row."""
        impossible = best == -torch.inf
        if not bool(impossible.any()):
            return
        for row in impossible.nonzero().flatten().tolist():
            reached = ~torch.isneginf(self.unary[row, 0])
            for t in range(int(self.lengths[row])):
                if t:
                    pairs = self.pairs[min(row, len(self.pairs) - 1)]
                    table = pairs[min(t - 1, len(pairs) - 1)]
                    follows = (reached[:, None] & ~torch.isneginf(table)).any(0)
                    reached = follows & ~torch.isneginf(self.unary[row, t])
                if not reached.any():
                    raise InputError(
                        f"Row {row} has no tagging: at position {t} no class is left that the "
                        "known classes and the forbidden transitions allow. Take some of them off."
                    )


def read_chain(
    problem: Problem,
    domain: Domain,
    known: Tensor | None,
    solver: str,
    temperature: float = 1.0,
) -> Chain:
    """Return a problem as a chain, or say why it is none.

    Args:
        problem: a sum of chains, local scores and Hamming or squared loss augmentation.
        domain: a Simplex, whose positions follow each other.
        known: (n, L) classes to hold: 1, 0, or nan for those to infer.
        solver: who asks, for errors.
        temperature: what energies are divided by.
    """
    if not isinstance(domain, Simplex):
        raise InputError(f"{solver} is for a Simplex, and the domain is {domain}.")
    check_no_entropy(problem, solver)
    like, shape = problem.rows_like, (-1, domain.size // domain.n_classes, domain.n_classes)
    if known is not None:
        known = held_labels(domain, known, like, problem.mask)
    mask = problem.mask
    if mask is None:
        mask = torch.ones(like.shape[0], shape[1], dtype=torch.bool, device=like.device)
    constants: list[Tensor | None] = []
    unaries: list[Tensor | None] = []
    tables, ends, forbidden = [], [], []
    for part in problem.terms if isinstance(problem, SumProblem) else (problem,):
        if isinstance(part, ChainProblem):
            tables.append(part.pairs if part.pairs.ndim == 4 else part.pairs[None, None])
            ends.append((part.start, part.end))
            forbidden += [] if part.forbidden is None else [part.forbidden]
        elif isinstance(part, Form) and not part.blocks:
            constants.append(part.constant)
            # On labels, y² = y.
            unaries += [part.linear, None if part.quadratic is None else part.quadratic / 2]
        else:
            raise InputError(
                f"{solver} needs a chain: LocalEnergy, ChainEnergy, Hamming or squared loss "
                f"augmentation, or a sum of them; received {type(part).__name__}. Choose Descent()."
            )
    constant, unary, pairs = (total(terms) for terms in (constants, unaries, tables))
    if constant is None:
        constant = like.new_zeros(like.shape[0])
    if unary is None:
        unary = like.new_zeros(like.shape[0], domain.size)
    if pairs is None:
        pairs = like.new_zeros(1, 1, domain.n_classes, domain.n_classes)
    unary = unary.reshape(shape)
    if ends:
        start, end = (functools.reduce(torch.add, each) for each in zip(*ends, strict=True))
        is_last = (mask & ~F.pad(mask[:, 1:], (0, 1)))[:, :, None]
        # At rows of one position both come together.
        unary = unary + is_last * end
        unary = torch.cat([unary[:, :1] + start, unary[:, 1:]], 1)
        for table in forbidden:
            pairs = pairs.masked_fill(table[:-1, :-1], torch.inf)
            barred = is_last & table[:-1, -1]
            barred = torch.cat([barred[:, :1] | table[-1, :-1], barred[:, 1:]], 1)
            unary = unary.masked_fill(barred, torch.inf)
    unary, pairs = -unary, -pairs
    if temperature != 1:
        unary, pairs = unary / temperature, pairs / temperature
    if known is not None:
        ruled_out = (known.reshape(unary.shape) == 0) & mask[:, :, None]
        unary = unary.masked_fill(ruled_out, -torch.inf)
    return Chain(constant, unary, pairs, mask)


# Sums over taggings ------------------------------------------------------------------------


class _LogPartition(torch.autograd.Function):
    """The logarithm of the sum over all taggings; its gradient is made of marginals."""

    @staticmethod
    def forward(ctx: Any, unary: Tensor, pairs: Tensor, mask: Tensor) -> Tensor:
        ctx.sums = sum_of_chain(unary, pairs, mask)
        return ctx.sums.logs.clone()

    @staticmethod
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise InputError(
                "log_partition can be differentiated once; marginals have no gradient of their "
                "own. Leave out create_graph=True."
            )
        of_pairs = ctx.needs_input_grad[1]
        return *ctx.sums.marginals(weights[0], of_pairs=of_pairs), None


def sum_of_chain(unary: Tensor, pairs: Tensor, mask: Tensor) -> _SumOfRows | _SumOfLogs | _SumOnGpu:
    """Sum over the taggings of each row: by a kernel where one can, else in logarithms."""
    unary, pairs = unary.detach(), pairs.detach()
    if on_gpu.knows_chains(unary):
        lengths = mask.sum(1)
        return _SumOnGpu(unary, pairs, lengths, *on_gpu.sum_forwards(unary, pairs, lengths))
    kernel = machine_code(chains.sum_forwards, chains.forward_types)
    if kernel is not None and unary.device.type == "cpu":
        factors, of_positions, is_sound = _factors(unary)
        tables, of_pairs, tables_sound = _factors(pairs.flatten(2))
        if is_sound and tables_sound:
            tables = tables.reshape(pairs.shape)
            lengths, forward = mask.sum(1), torch.zeros_like(factors)
            logs = torch.zeros(len(mask), dtype=torch.float64)
            arrays = (each.numpy() for each in (factors, tables, lengths, forward, logs))
            if kernel(*arrays):
                # What was taken out of the factors, position by position.
                logs += _masked_sum(of_positions, mask)
                if mask.shape[1] > 1:
                    of_pairs = of_pairs.expand(len(mask), mask.shape[1] - 1)
                    logs += _masked_sum(of_pairs, mask[:, 1:])
                return _SumOfRows(unary, factors, tables, lengths, forward, logs.to(unary))
    return _sum_of_logs(unary, pairs, mask)


def _masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    return sum_positions(torch.where(mask, values, 0.0), mask.shape[1])


def _factors(scores: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Return e to the scores (n, T, …), less the largest of each position, that, and whether all
    of them are numbers well above the smallest there are."""
    scores = scores.double()
    largest = scores.amax(2, keepdim=True)
    largest = torch.where(torch.isneginf(largest), 0.0, largest)
    below = scores - largest
    sound = (below >= math.log(chains.LEAST)) | torch.isneginf(below)
    return below.exp().contiguous(), largest.squeeze(2), bool(sound.all())


def _doubles(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().contiguous().numpy()


@dataclass(frozen=True)
class _SumOfRows:
    """What the kernel's forward pass has found."""

    like: Tensor
    factors: Tensor
    tables: Tensor
    lengths: Tensor
    forward: Tensor
    logs: Tensor
    backend = "chain-numba"

    def marginals(self, weights: Tensor, of_pairs: bool) -> tuple[Tensor, Tensor | None]:
        """Return weighted marginals of positions, and of pairs, summed where these are shared."""
        kernel = machine_code(chains.sum_backwards, chains.backward_types)
        assert kernel is not None
        found, transposed = torch.zeros_like(self.factors), self.tables.mT.contiguous()
        pairs = torch.zeros_like(transposed)
        arrays = (self.factors, transposed, self.forward, weights, found, pairs)
        kernel(self.lengths.numpy(), *map(_doubles, arrays), of_pairs)
        together = (pairs * transposed).mT.to(self.like) if of_pairs else None
        return found.to(self.like), together


@dataclass(frozen=True)
class _SumOnGpu:
    """What the forward pass of the GPU's kernel has found."""

    unary: Tensor
    pairs: Tensor
    lengths: Tensor
    forward: Tensor
    logs: Tensor
    backend = "chain-triton"

    def marginals(self, weights: Tensor, of_pairs: bool) -> tuple[Tensor, Tensor | None]:
        """Return weighted marginals of positions, and of pairs, summed where these are shared."""
        found = (self.unary, self.pairs, self.lengths, self.forward)
        return on_gpu.sum_backwards(*found, weights, of_pairs)


def _sum_of_logs(unary: Tensor, pairs: Tensor, mask: Tensor) -> _SumOfLogs:
    """Sum over the taggings of each row, in logarithms and all rows at once."""
    forward = [unary[:, 0]]
    for t in range(1, unary.shape[1]):
        reached = torch.logsumexp(forward[-1][:, :, None] + _between(pairs, t), 1) + unary[:, t]
        forward.append(torch.where(mask[:, t, None], reached, forward[-1]))
    logs = torch.logsumexp(forward[-1], 1)
    return _SumOfLogs(unary, pairs, mask, torch.stack(forward, 1), logs)


def _between(pairs: Tensor, t: int) -> Tensor:
    """Return the scores of position t after the one before it, (n or 1, K, K)."""
    return pairs[:, t - 1 if pairs.shape[1] > 1 else 0]


@dataclass(frozen=True)
class _SumOfLogs:
    """What the forward pass in logarithms has found."""

    unary: Tensor
    pairs: Tensor
    mask: Tensor
    forward: Tensor
    logs: Tensor
    backend = "general"

    def marginals(self, weights: Tensor, of_pairs: bool) -> tuple[Tensor, Tensor | None]:
        """Return weighted marginals of positions, and of pairs, summed where these are shared."""
        logs, behind = self.logs[:, None], torch.zeros_like(self.unary[:, 0])
        found = [torch.exp(self.forward[:, -1] - logs)]
        shared = self.pairs.new_zeros(1, 1, *self.pairs.shape[2:])
        each = []
        for t in range(self.unary.shape[1] - 1, 0, -1):
            ahead, table, here = self.unary[:, t] + behind, _between(self.pairs, t), self.mask[:, t]
            before = self.forward[:, t - 1]
            if of_pairs:
                together = before[:, :, None] + table + ahead[:, None, :] - logs[:, :, None]
                # Beyond the end of a row these are no probabilities, and may be infinite.
                together = together.masked_fill(~here[:, None, None], -torch.inf)
                weighted = torch.exp(together) * weights[:, None, None]
                if len(self.pairs) == 1:
                    weighted = weighted.sum(0, keepdim=True)
                if self.pairs.shape[1] > 1:
                    each.append(weighted)
                else:
                    shared = shared + weighted[:, None]
            back = torch.logsumexp(table + ahead[:, None, :], 2)
            behind = torch.where(here[:, None], back, behind)
            found.append(torch.exp(before + behind - logs))
        marginals = torch.stack(found[::-1], 1) * self.mask[:, :, None] * weights[:, None, None]
        if not of_pairs:
            return marginals, None
        if self.pairs.shape[1] > 1:
            return marginals, torch.stack(each[::-1], 1)
        return marginals, shared.expand_as(self.pairs)


# The best taggings -------------------------------------------------------------------------


def best_taggings(chain: Chain, n: int) -> tuple[Tensor, Tensor]:
    """Return the n best taggings of each row and their scores, (rows, n, T) and (rows, n).

    Each class of a position keeps the n best ways to it. Where there are fewer, scores are −inf.
    """
    if on_gpu.knows_chains(chain.unary):
        tags, best = on_gpu.best_lists(*chain.without_nan, chain.lengths, n)
        return tags, chain.unless_nan(best)
    kernel = machine_code(chains.best_lists, chains.list_types)
    if kernel is None or chain.unary.device.type != "cpu" or chain.unary.isnan().any():
        return _best_taggings(chain, n)
    rows, longest = chain.mask.shape
    tags = torch.zeros(rows, n, longest, dtype=torch.int64)
    best = torch.zeros(rows, n, dtype=torch.float64)
    scores, tables = _doubles(chain.unary), _doubles(chain.pairs)
    kernel(scores, tables, chain.lengths.numpy(), tags.numpy(), best.numpy())
    return tags, best.to(chain.unary)


def _best_taggings(chain: Chain, n: int) -> tuple[Tensor, Tensor]:
    """Return the same by tensor operations, all rows at once."""
    unary, mask = chain.unary, chain.mask
    rows, longest, classes = unary.shape
    score = unary.new_full((rows, classes, n), -torch.inf)
    score[:, :, 0] = unary[:, 0]
    origins = []
    for t in range(1, longest):
        ways = score[:, :, None, :] + _between(chain.pairs, t)[:, :, :, None]
        # (rows, from, to, n) → (rows, to, from × n)
        reached, origin = ways.transpose(1, 2).flatten(2).topk(n, 2)
        here = mask[:, t, None, None]
        score = torch.where(here, reached + unary[:, t, :, None], score)
        stay = torch.arange(classes * n, device=origin.device).reshape(classes, n)
        origins.append(torch.where(here, origin, stay))
    score, place = score.flatten(1).topk(n, 1)
    tags = [place // n]
    for origin in reversed(origins):
        place = origin.flatten(1).gather(1, place)
        tags.append(place // n)
    return torch.stack(tags[::-1], 2), score
