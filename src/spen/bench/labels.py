"""Growth with the number of labels, beside a pairwise CRF's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from spen.batch.context import Context
from spen.bench.effort import Effort
from spen.bench.machine import free_bytes
from spen.bench.timing import FEWEST_ROUNDS, exponent, interleave
from spen.domains import UnitBox
from spen.energies.base import Energy, Problem
from spen.energies.label import LabelEnergy
from spen.energies.local import LocalEnergy
from spen.energies.pairwise import PairwiseEnergy
from spen.inference.descent import Descent, Stopping

FEATURES, MEASUREMENTS = 150, 16
STEPS = {"fused": 20, "general": 5, "crf": 3}
"""Steps that are timed: exactly so many, since the tolerances are zero."""

COPIES = 6
"""Tables of pairs that a CRF needs at a time, with what is made on the way."""


def measure_labels(effort: Effort, device: torch.device, fused: bool) -> dict[str, Any]:
    """Time a step, and count parameters, of energies over more and more labels.

    Parameters are those of the label energy, and of the CRF's pairs; the local energy, which
    both have, is left out.

    Args:
        effort: the sizes.
        device: where to compute.
        fused: whether there is a kernel.
    """
    calls, parameters = label_calls(effort, device, fused)
    rounds = min(FEWEST_ROUNDS, effort.rounds)
    timings = interleave(calls, device, rounds=rounds, seconds=effort.seconds)
    kinds = ["fused", "general", "crf"] if fused else ["general", "crf"]
    result: dict[str, Any] = {
        "rows": effort.label_rows,
        "measurements": MEASUREMENTS,
        "step_time_of": kinds[0],
    }
    for kind in kinds:
        sizes = [n for n in effort.labels if f"{kind} {n}" in calls]
        each = 1e3 / effort.label_rows / STEPS[kind]
        times = [each * timings.milliseconds(f"{kind} {n}") / _burst(effort, n) for n in sizes]
        counts = [parameters["crf" if kind == "crf" else "spen"][n] for n in sizes]
        result[kind] = {"labels": sizes, "step_us_per_row": times, "parameters": counts}
        if len(sizes) > 1:
            result[kind] |= {
                "step_time_exponent": exponent(sizes, times),
                "parameters_exponent": exponent(sizes, counts),
            }
    return result


@torch.no_grad()
def label_calls(
    effort: Effort, device: torch.device, fused: bool
) -> tuple[dict[str, Callable[[], object]], dict[str, dict[int, int]]]:
    """Return the descents to time, by kind and number of labels, and parameters by both."""
    calls: dict[str, Callable[[], object]] = {}
    parameters: dict[str, dict[int, int]] = {"spen": {}, "crf": {}}
    generator = torch.Generator(device).manual_seed(0)
    shape = (effort.label_rows, FEATURES)
    context = Context(torch.randn(shape, generator=generator, device=device))

    def add(kind: str, n: int, energy: Energy, backends: tuple[str, ...]) -> None:
        parameters[kind][n] = sum(p.numel() for p in energy.parameters())
        problem = (LocalEnergy(FEATURES, n) + energy).to(device).bind(context)
        for backend in backends:
            title = "crf" if kind == "crf" else backend
            stopping = Stopping(STEPS[title], objective_rtol=0, iterate_atol=0)
            descent = replace(Descent(stopping=stopping), backend=backend)
            calls[f"{title} {n}"] = partial(_descend, descent, problem, n, _burst(effort, n))

    for n in effort.labels:
        paths = ("fused", "general") if fused else ("general",)
        add("spen", n, LabelEnergy(n, MEASUREMENTS, "relu"), paths)
        table = COPIES * 4 * n * n
        if n <= effort.largest_table and table < free_bytes(device) / 2:
            add("crf", n, PairwiseEnergy(n), ("general",))
    return calls, parameters


def _descend(descent: Descent, problem: Problem, n: int, times: int) -> None:
    for _ in range(times):
        descent.solve(problem, UnitBox(n))


def _burst(effort: Effort, n: int) -> int:
    return max(1, effort.burst // n)
