"""Rules: how one descent step goes from an iterate to the next.

A rule is a pair of functions, ``init`` and ``step``. Its state is a tuple of tensors with rows
first, the step count included, so that dropping finished rows is one index operation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from spen.batch.context import take
from spen.domains import Domain
from spen.energies.base import Problem
from spen.errors import InputError, check_settings, check_share
from spen.inference.base import Task

RATES = (1e-30, 1e6)
"""Where nothing stops the step size from shrinking or growing, it stops at these, far from
underflow and overflow."""

FLAT = 1e-12
"""Two cuts whose slopes differ by less, in the squared norm of the mirror map, are one."""


class State(NamedTuple):
    """What a rule remembers: the current and the previous point, and the steps made.

    Attributes:
        point: (n, L) the point in the rule's own space (dual or primal).
        previous: (n, L) the one before.
        steps: (n, 1) how many steps were made.
        memory: what else a rule remembers, each tensor rows first.
    """

    point: Tensor
    previous: Tensor
    steps: Tensor
    memory: tuple[Tensor, ...] = ()

    def select(self, rows: Tensor) -> State:
        """Return the state of some rows."""
        memory = tuple(tensor[rows] for tensor in self.memory)
        return State(self.point[rows], self.previous[rows], self.steps[rows], memory)


class Iterate(NamedTuple):
    """Where a descent stands, for its rule.

    Attributes:
        y: (n, L) with the known labels held.
        value: (n,) the objective there, entropy included; None for rules that do not use it.
        gradient: (n, L) what the rule asks for (see ``applies_entropy``), zero at known labels.
        rates: (steps,) learned factors of the step size, one a step, or None.
    """

    y: Tensor
    value: Tensor | None
    gradient: Tensor
    rates: Tensor | None = None


class Rule(ABC):
    """How one step is made: (state, y, ∇E) → (state, y), with y (n, L).

    A subclass is a frozen dataclass whose fields are its settings.

    >>> from spen import Descent, Form, UnitBox
    >>> from spen.inference.rules import State
    >>> class Signs(Rule):
    ...     def init(self, y, domain):
    ...         return self._start(y)
    ...     def step(self, state, here, tau, known, domain):
    ...         y = domain.project(here.y - 0.1 * here.gradient.sign())
    ...         return State(y, state.point, state.steps + 1), y
    >>> Descent(Signs()).solve(Form(linear=torch.tensor([[3.0, -0.1]])), UnitBox(2)).y
    tensor([[0., 1.]])
    """

    applies_entropy: ClassVar[bool] = False
    """Whether ``step`` applies the entropy weight τ, and so wants a gradient without it."""

    uses_value: ClassVar[bool] = False
    """Whether ``step`` looks at the objective's value."""

    takes_rates: ClassVar[bool] = False
    """Whether ``step`` multiplies its step size by learned factors."""

    @abstractmethod
    def init(self, y: Tensor, domain: Domain) -> State:
        """Return the state that starts at y."""

    @abstractmethod
    def step(
        self, state: State, here: Iterate, tau: Tensor | None, known: Tensor | None, domain: Domain
    ) -> tuple[State, Tensor]:
        """Return the next state and its y, in which the known labels are held."""

    def _start(self, point: Tensor) -> State:
        return State(point, point, point.new_zeros(point.shape[0], 1))


class DualRule(Rule):
    """A rule whose point is the dual of y, and which applies the entropy itself."""

    applies_entropy: ClassVar[bool] = True

    def init(self, y: Tensor, domain: Domain) -> State:
        return self._start(domain.clamp_dual(domain.to_dual(y)))


def at_dual(
    state: State, dual: Tensor, known: Tensor | None, domain: Domain
) -> tuple[State, Tensor]:
    """Return the state at a new dual, and its y with the known labels held."""
    dual, y = domain.at_dual(dual, known)
    return State(dual, state.point, state.steps + 1), y


class Prepared(NamedTuple):
    """A problem as a rule wants it, and what else the rule's steps need.

    Attributes:
        problem: without its entropy, where the rule applies that itself.
        rule: how a step is made.
        domain: where y lives.
        known: (n, L) labels to hold fixed, nan for those to infer; None for none.
        held: (n, L) True at those to hold fixed; None for none.
        tau: (n,) the entropy's weight, or None where there is none or the problem has kept it.
        rates: (steps,) learned factors of the rule's step size, or None.
    """

    problem: Problem
    rule: Rule
    domain: Domain
    known: Tensor | None
    held: Tensor | None
    tau: Tensor | None
    rates: Tensor | None

    def begin(self, start: Tensor) -> tuple[State, Tensor]:
        """Return the rule's state at a start, and y there with the known labels held."""
        state = self.rule.init(start, self.domain)
        return state, start if self.known is None else self.domain.hold(start, self.known)

    def value(self, y: Tensor) -> Tensor:
        """Return the whole objective at y, entropy included, (n,)."""
        return self._add_entropy(self.problem.value(y), y)

    def evaluate(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``value``, and the gradient that the rule wants: zero at labels that are held."""
        value, gradient = self.problem.value_and_gradient(y)
        return self._add_entropy(value, y), self._zero_at_known(gradient)

    def step(
        self, state: State, y: Tensor, value: Tensor | None = None, gradient: Tensor | None = None
    ) -> tuple[State, Tensor]:
        """Return the next state and its y, from what ``evaluate`` says of this one, if given."""
        if gradient is None and self.rule.uses_value:
            value, gradient = self.evaluate(y)
        elif gradient is None:
            # Most rules need no energies: those are computed for the last iterate, or for a trace.
            gradient = self._zero_at_known(self.problem.gradient(y))
        here = Iterate(y, value, gradient, self.rates)
        return self.rule.step(state, here, self.tau, self.known, self.domain)

    def select(self, rows: Tensor) -> Prepared:
        """Return the same for some rows."""
        mine = {name: take(getattr(self, name), rows) for name in ("known", "held", "tau")}
        return self._replace(problem=self.problem.select(rows), **mine)

    def _add_entropy(self, value: Tensor, y: Tensor) -> Tensor:
        return value if self.tau is None else value + self.tau * self.domain.negative_entropy(y)

    def _zero_at_known(self, gradient: Tensor) -> Tensor:
        return gradient if self.held is None else gradient.masked_fill(self.held, 0.0)


def prepare(task: Task, rule: Rule) -> Prepared:
    """Hand the entropy to a rule that applies it itself; leave it in the problem otherwise."""
    problem, rates = task.problem, task.problem.step_rates
    if rates is not None and not rule.takes_rates:
        raise InputError(
            f"The energy has learned StepRates, and {rule} has no step size that they could "
            "multiply. Use MirrorDescent or ProjectedGradient, or leave StepRates out."
        )
    tau = problem.entropy_weight if rule.applies_entropy else None
    if tau is not None:
        problem = problem.without_entropy()
    held = None if task.known is None else ~task.known.isnan()
    return Prepared(problem.settle(), rule, task.domain, task.known, held, tau, rates)


@dataclass(frozen=True)
class GradientRule(Rule):
    """Gradient steps with heavy-ball momentum and an optional decay.

    With u the point in the rule's own space (dual or primal),

        u ← u − η_t ∇E + momentum · (u − u_previous),   η_t = lr / (1 + decay · t)

    times the learned factor of step t, where the energy has ``StepRates``.

    Args:
        lr: the step size; the paper's is 0.1.
        momentum: the paper's is 0.95.
        decay: 0 keeps the step constant.
    """

    lr: float = 0.1
    momentum: float = 0.95
    decay: float = 0.0
    takes_rates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self, lr="positive", decay="zero or more", momentum="share")

    def _rate(self, state: State, here: Iterate) -> Tensor | float:
        rate = self.lr / (1 + self.decay * state.steps) if self.decay else self.lr
        if here.rates is None:
            return rate
        # Steps beyond those that were learned go on at the last one's rate.
        return rate * here.rates[state.steps.long().clamp(max=len(here.rates) - 1)]

    def _move(self, state: State, gradient: Tensor, rate: Tensor | float) -> Tensor:
        moved = state.point - rate * gradient
        if self.momentum:
            moved = moved + self.momentum * (state.point - state.previous)
        return moved


@dataclass(frozen=True)
class MirrorDescent(DualRule, GradientRule):
    """Entropic mirror descent: the step is made on the dual θ, and y = to_primal(θ).

        θ ← θ − η_t ∇E(y) + momentum · (θ − θ_previous),   η_t = lr / (1 + decay · t)

    θ and y are (n, L); on label sets y = σ(θ), on classes softmax(θ).

    An entropy term of weight τ is applied exactly, by dividing the moved dual by
    1 + η_t τ, so that local energy with τ = 1 ends at σ(−local scores).

    >>> from spen import Descent, Form, Stopping, UnitBox
    >>> problem = Form(linear=torch.tensor([[1.0, -1.0]]))
    >>> one_step = Descent(MirrorDescent(lr=1.0, momentum=0.0), Stopping(max_steps=1))
    >>> one_step.solve(problem, UnitBox(2)).y                # σ(−1), σ(1)
    tensor([[0.2689, 0.7311]])
    """

    def step(
        self, state: State, here: Iterate, tau: Tensor | None, known: Tensor | None, domain: Domain
    ) -> tuple[State, Tensor]:
        rate = self._rate(state, here)
        dual = self._move(state, here.gradient, rate)
        if tau is not None:
            dual = dual / (1 + rate * tau[:, None])
        return at_dual(state, dual, known, domain)


@dataclass(frozen=True)
class ProjectedGradient(GradientRule):
    """Projected gradient descent: the step is made on y, and the result projected back.

        y ← project(y − η_t ∇E(y) + momentum · (y − y_previous)),   η_t = lr / (1 + decay · t)

    with y (n, L).

    >>> from spen import Descent, Form, Stopping, UnitBox
    >>> problem = Form(linear=torch.tensor([[1.0, -0.25]]))
    >>> one_step = Descent(ProjectedGradient(lr=1.0, momentum=0.0), Stopping(max_steps=1))
    >>> one_step.solve(problem, UnitBox(2)).y                # 0.5 − 1 is projected to 0
    tensor([[0.0000, 0.7500]])
    """

    def init(self, y: Tensor, domain: Domain) -> State:
        return self._start(domain.project(y))

    def step(
        self, state: State, here: Iterate, tau: Tensor | None, known: Tensor | None, domain: Domain
    ) -> tuple[State, Tensor]:
        moved = self._move(state, here.gradient, self._rate(state, here))
        if known is not None:
            # Far beyond the domain, so that the projection gives the others their share.
            moved = torch.where(torch.isnan(known), moved, (2 * known - 1) * 1e3)
        y = domain.project(moved)
        if known is not None:
            y = domain.hold(y, known)
        return State(y, state.point, state.steps + 1), y


@dataclass(frozen=True)
class MeanField(DualRule):
    """Parallel mean field: every label becomes the best response to what the others are now.

        θ ← damping · θ − (1 − damping) · ∇E(y) / τ,   y = to_primal(θ)

    with θ and y (n, L). An energy that is linear in each label, as local and pairwise ones are, has
    ∂E/∂y_i = E(y with y_i = 1) − E(y with y_i = 0). For it this is the mean-field update of
    P(y) ∝ exp(−E(y) / τ), y holds the marginals, and the objective E(y) − τ H(y) is the free
    energy. (On a Simplex: linear in each position, so no pairs within one.) For other energies
    it is MirrorDescent's step as lr → ∞; its fixed points are stationary all the same.

    From the uniform start, five unrolled steps with τ = 1 are the paper's deep mean field
    predictor. Its algorithm box as printed is not mean field: A ȳ − D + C lacks a factor of two,
    and takes D off whole where D∘ȳ is meant.

    All labels move at once, so the steps may cycle and may raise the free energy. Damping mends
    that; with it the rule is MirrorDescent(lr=(1 − damping) / (damping · τ), momentum=0).

    Args:
        damping: the share of the old dual that stays; 0 is plain mean field.

    >>> import torch
    >>> from spen import Descent, Form, Stopping, UnitBox
    >>> local = Form(linear=torch.tensor([[2.0, -1.0]]))
    >>> entropy = Form(tau=torch.ones(1), domain=UnitBox(2))
    >>> Descent(MeanField(), Stopping(5)).solve(local + entropy, UnitBox(2)).y
    tensor([[0.1192, 0.7311]])
    """

    damping: float = 0.0

    def __post_init__(self) -> None:
        check_share(self.damping, "damping")

    def step(
        self, state: State, here: Iterate, tau: Tensor | None, known: Tensor | None, domain: Domain
    ) -> tuple[State, Tensor]:
        # Looking into τ makes a GPU's host wait, so it is done at the first step alone.
        # A graph that is being traced has no numbers to look at.
        first = state.point is state.previous and not torch.compiler.is_compiling()
        if tau is None or (first and not bool((tau > 0).all())):
            received = "none" if tau is None else f"{tau.min().item():g}"
            raise InputError(
                "Mean field needs an entropy weight above zero in every example; received "
                f"{received}. Give the objective or the solve entropy=1.0, or add "
                "spen.Entropy(domain, 1.0) to the energy."
            )
        dual = -here.gradient / tau[:, None]
        if self.damping:
            dual = self.damping * state.point + (1 - self.damping) * dual
        return at_dual(state, dual, known, domain)


@dataclass(frozen=True)
class MirrorBundle(DualRule):
    """Mirror descent that remembers one cut: a proximal bundle method with two of them.

    A gradient g at y says that the objective S (without its entropy) is about S(y) + g·(ȳ − y)
    nearby: a cut. This rule knows two, the newest and one that stands for all before it, with slope
    d; all are (n, L). Where a step has crossed a kink, the old cut lies e > 0 below S, and the next
    step descends along the mixture of both slopes that leads back to where the cuts meet. So it
    walks along kinks, where g alone jumps from side to side. With n = g − d and W the derivative
    ∂y/∂θ of the mirror map,

        β = [n·W(g + τθ) − e (1/η + τ)] / n·Wn, within 0 and 1 (0 where e ≤ 0)
        d ← g − β n,   θ ← (θ − η d) / (1 + η τ)

    The step size η grows by ``grow`` at every step, and shrinks by ``shrink`` where the last
    one raised the objective. It begins where the first step moves no dual further than
    ``reach``, so the scale of an energy does not matter.

    Args:
        reach: how far the first step moves the dual of the steepest label.
        grow: the factor of the step size after a step that lowered the objective.
        shrink: its factor after one that raised it.

    >>> import torch
    >>> from spen import Descent, Form, UnitBox
    >>> from spen.energies.form import Block
    >>> from spen.energies.form import nonlinearity
    >>> one = torch.ones(1)
    >>> at_most_one = Block(torch.ones(1, 2), -one, 9 * one, nonlinearity("relu"))
    >>> problem = Form(linear=torch.tensor([[-2.0, -3.0]]), blocks=(at_most_one,))
    >>> Descent(MirrorBundle()).solve(problem, UnitBox(2)).y.round(decimals=2)
    tensor([[0., 1.]])
    """

    reach: float = 8.0
    grow: float = 1.2
    shrink: float = 0.5
    uses_value: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self, reach="positive", grow="positive", shrink="share above zero")
        if self.grow < 1:
            raise InputError(f"grow must be 1 or more; received {self.grow!r}.")

    def step(
        self, state: State, here: Iterate, tau: Tensor | None, known: Tensor | None, domain: Domain
    ) -> tuple[State, Tensor]:
        if here.value is None:
            raise InputError("MirrorBundle needs the value of the objective; received None.")
        value = here.value[:, None]
        # Cuts are of the objective without its entropy, which the step itself applies exactly.
        smooth = value
        if tau is not None:
            tau = tau[:, None]
            smooth = value - tau * domain.negative_entropy(here.y)[:, None]
        if not state.memory:
            rate = (self.reach / here.gradient.abs().amax(1, keepdim=True)).clamp(*RATES)
            slope, cut = here.gradient, smooth
        else:
            last_rate, old_slope, promised, last_value = state.memory
            # In arithmetic, because torch.where copies its numbers to the GPU, and waits.
            raised = (value > last_value).to(value.dtype)
            rate = last_rate * (self.grow + raised * (self.shrink - self.grow))
            rate = rate.clamp(*RATES)
            pull, resistance = here.gradient, 1 / rate
            if tau is not None:
                pull, resistance = pull + tau * state.point, resistance + tau
            change, gap = here.gradient - old_slope, smooth - promised
            # Also where a bad start has left no promise at all: nan is not above zero.
            below = ~(gap > 0)
            gap = gap.masked_fill(below, 0.0)
            along = domain.covariance(here.y, change, pull)[:, None] - gap * resistance
            bend = domain.covariance(here.y, change, change)[:, None].clamp(min=FLAT)
            share_of_old = (along / bend).clamp(0, 1).masked_fill(below, 0.0)
            slope, cut = here.gradient - share_of_old * change, smooth - share_of_old * gap
        dual = state.point - rate * slope
        if tau is not None:
            dual = dual / (1 + rate * tau)
        state, y = at_dual(state, dual, known, domain)
        promised = cut + domain.sum(slope * (y - here.y))[:, None]
        return state._replace(memory=(rate, slope, promised, value)), y


RULES: dict[str, type[Rule]] = {
    "bundle": MirrorBundle,
    "mirror": MirrorDescent,
    "projected": ProjectedGradient,
    "mean_field": MeanField,
}
