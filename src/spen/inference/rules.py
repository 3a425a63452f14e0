"""Rules: how one descent step goes from an iterate to the next.

The simple ones; the default, ``MirrorBundle``, has a file of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from spen.domains import Domain
from spen.errors import InputError, check_positive, check_share
from spen.inference.bundle import MirrorBundle
from spen.inference.rule import Iterate, Rule, State, at_dual


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
        check_positive(self.lr, "lr")
        check_positive(self.decay, "decay", zero=True)
        check_share(self.momentum, "momentum")

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
class MirrorDescent(GradientRule):
    """Entropic mirror descent: the step is made on the dual θ, and y = to_primal(θ).

    An entropy term of weight τ is applied exactly, by dividing the moved dual by
    1 + η_t τ, so that local energy with τ = 1 ends at σ(−local scores).
    """

    applies_entropy: ClassVar[bool] = True

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
        rate = self._rate(state, here)
        dual = self._move(state, here.gradient, rate)
        if tau is not None:
            dual = dual / (1 + rate * tau[:, None])
        return at_dual(state, dual, known, domain)


@dataclass(frozen=True)
class ProjectedGradient(GradientRule):
    """Projected gradient descent: the step is made on y, and the result projected back."""

    def init(self, y: Tensor, domain: Domain) -> State:
        return self._start(domain.project(y))

    def step(
        self,
        state: State,
        here: Iterate,
        tau: Tensor | None,
        known: Tensor | None,
        domain: Domain,
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
class MeanField(Rule):
    """Parallel mean field: every label becomes the best response to what the others are now.

        θ ← damping · θ − (1 − damping) · ∇E(y) / τ,   y = to_primal(θ)

    An energy that is linear in each label, as local and pairwise ones are, has
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
    applies_entropy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_share(self.damping, "damping")

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
        # Looking into τ makes a GPU's host wait, so it is done at the first step alone.
        first = state.point is state.previous
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


RULES: dict[str, type[Rule]] = {
    "bundle": MirrorBundle,
    "mirror": MirrorDescent,
    "projected": ProjectedGradient,
    "mean_field": MeanField,
}
