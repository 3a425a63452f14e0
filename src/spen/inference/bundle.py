"""The default rule: a bundle of two cuts, which walks along kinks where momentum bounces off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from spen.domains import Domain
from spen.errors import InputError, check_positive, check_share
from spen.inference.rule import Iterate, Rule, State, at_dual

RATES = (1e-30, 1e6)
"""Where nothing stops the step size from shrinking or growing, it stops at these, far from
underflow and overflow."""

FLAT = 1e-12
"""Two cuts whose slopes differ by less, in the squared norm of the mirror map, are one."""


@dataclass(frozen=True)
class MirrorBundle(Rule):
    """Mirror descent that remembers one cut: a proximal bundle method with two of them.

    A gradient g at y says that the objective S (without its entropy) is about S(y) + g·(ȳ − y)
    nearby: a cut. This rule knows two, the newest and one that stands for all before it, with
    slope d. Where a step has crossed a kink, the old cut lies e > 0 below S, and the next step
    descends along the mixture of both slopes that leads back to where the cuts meet. So it
    walks along kinks, where g alone jumps from side to side. With n = g − d and W the
    derivative ∂y/∂θ of the mirror map,

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
    >>> from spen.energies.nonlinearities import nonlinearity
    >>> one = torch.ones(1)
    >>> at_most_one = Block(torch.ones(1, 2), -one, 9 * one, nonlinearity("relu"))
    >>> problem = Form(linear=torch.tensor([[-2.0, -3.0]]), blocks=(at_most_one,))
    >>> Descent(MirrorBundle()).solve(problem, UnitBox(2)).y.round(decimals=2)
    tensor([[0., 1.]])
    """

    reach: float = 8.0
    grow: float = 1.2
    shrink: float = 0.5
    applies_entropy: ClassVar[bool] = True
    uses_value: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive(self.reach, "reach")
        check_positive(self.grow, "grow")
        check_positive(self.shrink, "shrink")
        check_share(self.shrink, "shrink")
        if self.grow < 1:
            raise InputError(f"grow must be 1 or more; received {self.grow!r}.")

    def init(self, y: Tensor, domain: Domain) -> State:
        return self._start(domain.clamp_dual(domain.to_dual(y)))

    def step(
        self,
        state: State,
        here: Iterate,
        tau: Tensor | None,
        known: Tensor | None,
        domain: Domain,
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
        promised = cut + (slope * (y - here.y)).sum(1, keepdim=True)
        return state._replace(memory=(rate, slope, promised, value)), y
