"""Unrolled mirror steps on a form, with back-propagation written out.

Autograd keeps a node for every operation of every step. Where batches are small, making the nodes
and walking through them takes longer than computing. Here the same operations are made in the same
order without them, and gradients add up in the order in which autograd adds them: not a bit
differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from spen.batch.groups import linear, weight_gradient
from spen.domains import DUAL_LIMIT, UnitBox
from spen.energies.form import Form, nonlinearity
from spen.errors import InputError
from spen.inference.base import Task
from spen.inference.rules import MirrorDescent, prepare

if TYPE_CHECKING:
    from spen.inference.descent import Descent

SOFTPLUS = nonlinearity("softplus")

# Of torch's private names, which another version may not have: torch.func then refuses by itself.
transforms_are_active: Callable[[], bool] = getattr(
    torch._C, "_are_functorch_transforms_active", lambda: False
)


def steps_written_out(descent: Descent, task: Task) -> Tensor | None:
    """Return the iterate that all steps of a descent lead to, which can be differentiated once; or
    None where they are not of the kind that is written out here."""
    rule = descent.rule
    if type(rule) is not MirrorDescent or rule.momentum or rule.decay:
        return None
    if descent.backend != "auto" or descent.trace or type(task.domain) is not UnitBox:
        return None
    if torch.is_autocast_enabled(task.start.device.type) or transforms_are_active():
        return None
    prepared = prepare(task, rule)
    form, tau = prepared.problem, prepared.tau
    if type(form) is not Form or not _is_known(form) or prepared.rates is not None:
        return None
    if any(each is not None and each.requires_grad for each in (task.start, tau)):
        return None
    (state, y), (block,) = prepared.begin(task.start), form.blocks
    shrink = None if tau is None else 1 + rule.lr * tau[:, None]
    steps = _Steps(descent.stopping.max_steps, rule.lr, shrink, state.point, y, task.known)
    learned = (block.measurements, block.bias, block.readout, form.linear)
    return _MirrorSteps.apply(steps, *learned)


def _is_known(form: Form) -> bool:
    """Say whether a form is a score of each label and one block of smooth measurements."""
    if form.linear is None or form.quadratic is not None or form.mask is not None:
        return False
    smooth = [block.nonlinearity == SOFTPLUS and not block.by_row for block in form.blocks]
    return smooth == [True]


@dataclass(frozen=True)
class _Steps:
    """What all steps share and nothing learns.

    Attributes:
        count: how many steps are made.
        rate: η, the size of each.
        shrink: (n, 1) 1 + ητ, which the entropy divides duals by; None without entropy.
        point: (n, L) the dual that the first step starts from.
        y: (n, L) the iterate that it starts from.
        known: (n, L) labels to hold fixed, nan for those to infer; None for none.
    """

    count: int
    rate: float
    shrink: Tensor | None
    point: Tensor
    y: Tensor
    known: Tensor | None


class _MirrorSteps(torch.autograd.Function):
    """θ ← (θ − η (a + Cᵀ[c∘σ(C y + b)])) / (1 + ητ),   y = σ(θ)

    Duals θ stay within their bounds, and known labels are held.
    """

    @staticmethod
    def forward(
        ctx: Any, steps: _Steps, measurements: Tensor, bias: Tensor, readout: Tensor, scores: Tensor
    ) -> Tensor:
        point, y, known = steps.point, steps.y, steps.known
        held = None if known is None else ~known.isnan()
        ctx.steps, ctx.held, ctx.made = steps, held, []
        for _ in range(steps.count):
            slopes = linear(y, measurements).add_(bias).sigmoid_()
            pulls = slopes * readout
            moved = linear(pulls, measurements.mT).add_(scores)
            if held is not None:
                moved.masked_fill_(held, 0.0)
            moved.mul_(-steps.rate).add_(point)
            if steps.shrink is not None:
                moved.div_(steps.shrink)
            point = moved.clamp(-DUAL_LIMIT, DUAL_LIMIT)
            ctx.made.append((y, slopes, pulls, point != moved))
            y = point.sigmoid()
            if known is not None and held is not None:
                y = torch.where(held, known, y)
        # What is returned knows how it was made: kept in any other way, both would live for ever.
        ctx.save_for_backward(measurements, bias, readout, y)
        return y

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, *upward: Tensor
    ) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise InputError(
                "The steps of this descent are differentiated once. For second derivatives use "
                'Descent(backend="general"), or leave out create_graph=True.'
            )
        (of_y,), steps, held = upward, ctx.steps, ctx.held
        measurements, bias, readout, y = ctx.saved_tensors
        of_point: Tensor | None = None
        learned: dict[str, Tensor] = {}

        def add(name: str, gradient: Tensor) -> None:
            learned[name] = learned[name] + gradient if name in learned else gradient

        for number, (before, slopes, pulls, outside) in reversed([*enumerate(ctx.made)]):
            if held is not None:
                of_y = of_y.masked_fill(held, 0.0)
            moved = torch.ops.aten.sigmoid_backward(of_y, y)
            if of_point is not None:
                moved.add_(of_point)
            moved.masked_fill_(outside, 0.0)
            of_point = moved if steps.shrink is None else moved.div_(steps.shrink)
            down = of_point * -steps.rate
            add("scores", down)
            of_pulls = linear(down, measurements)
            add("measurements", weight_gradient(pulls, measurements.mT, down).mT)
            add("readout", (of_pulls * slopes).sum_to_size(readout.shape))
            of_measured = torch.ops.aten.sigmoid_backward(of_pulls * readout, slopes)
            add("bias", of_measured.sum_to_size(bias.shape))
            add("measurements", weight_gradient(before, measurements, of_measured))
            if number:
                of_y, y = linear(of_measured, measurements.mT), before
        names = ("measurements", "bias", "readout", "scores")
        return None, *(learned[name] for name in names)
