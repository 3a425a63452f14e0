"""The CPU kernel: numba code, eight examples in the lanes of a vector, in several threads."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from spen.energies.form import Form
from spen.kernels.compilation import compile_kernel, source_digest, trouble_with_numba
from spen.kernels.interface import Fused, Limits, StepRule
from spen.kernels.packing import KINDS, Settings, pack
from spen.kernels.pool import run_together

ENTRIES_PER_THREAD = 4096
"""Entries of y that are worth waking a thread for: some tens of rows of a hundred labels."""


def refusal(form: Form, step: StepRule, start: Tensor, known: Tensor | None) -> str | None:
    """Say why this kernel cannot minimise a form; None where it can.

    >>> form, step = Form(linear=torch.zeros(1, 2).double()), StepRule("dual", lr=0.1)
    >>> refusal(form, step, torch.zeros(1, 2), None)
    'the kernel computes in float32, and the problem is in torch.float64'
    """
    tensors = [start, known, form.constant, form.linear, form.quadratic, form.tau]
    for block in form.blocks:
        tensors += [block.measurements, block.bias, block.readout]
        if block.nonlinearity.name not in KINDS:
            return f"the kernel does not know the nonlinearity {block.nonlinearity.name!r}"
    for tensor in tensors:
        if tensor is not None and tensor.dtype != torch.float32:
            return f"the kernel computes in float32, and the problem is in {tensor.dtype}"
        if tensor is not None and tensor.device.type != "cpu":
            return f"the kernel needs its data on the CPU, and some is on {tensor.device}"
    if start.stride(0) != 0 and bool(start.isnan().any()):
        # Its logarithms take nan for a number.
        return "the start holds nan"
    return trouble_with_numba()


def minimise(
    form: Form, step: StepRule, limits: Limits, start: Tensor, known: Tensor | None
) -> Fused:
    """Minimise every row of a form over the unit box.

    Args:
        form: in float32, on the CPU.
        step: how a step is made.
        limits: when a row ends.
        start: (n, L) inside the box; a row that is expanded is read once.
        known: (n, L) labels to hold: 1, 0, or nan for those to infer.

    >>> form, start = Form(linear=torch.tensor([[1.0, -1.0]])), torch.full((1, 2), 0.5)
    >>> minimise(form, StepRule("dual", lr=0.5), Limits(50, 0.0, 0.0), start, None).y.round()
    tensor([[0., 1.]])
    """
    from spen.kernels.lane_work import work_memory

    n, labels = start.shape
    fused, outputs = _outputs(n, labels)
    packed, settings, kernel = pack(form, start, known), _settings(step, limits), _kernel()
    threads = max(1, min(torch.get_num_threads(), n, start.numel() // ENTRIES_PER_THREAD))
    run_together(lambda: kernel(packed, settings, *work_memory(packed), *outputs), threads)
    return fused


def _outputs(n: int, labels: int) -> tuple[Fused, list[np.ndarray]]:
    """Return empty answers, and the same memory as the kernel takes it, with a row counter."""
    y, energy = np.empty((n, labels), np.float32), np.empty(n, np.float32)
    steps, status = np.empty(n, np.int64), np.empty(n, np.int64)
    fused = Fused(*(torch.from_numpy(array) for array in (y, energy, steps, status)))
    return fused, [np.zeros(1, np.int64), y.reshape(-1), energy, steps, status]


def _settings(step: StepRule, limits: Limits) -> Settings:
    return Settings(
        step.space == "primal",
        step.is_bundle,
        float(step.lr),
        float(step.momentum),
        float(step.decay),
        float(step.reach),
        float(step.grow),
        float(step.shrink),
        int(limits.max_steps),
        float(limits.objective_rtol),
        float(limits.iterate_atol),
        bool(limits.fixed),
    )


@functools.cache
def _kernel() -> Callable[..., None]:
    from spen.kernels.lane_descent import make_descend
    from spen.kernels.lane_work import work_memory

    # Solving nothing tells numba the types.
    nothing = torch.zeros(0, 1)
    packed = pack(Form(linear=nothing), nothing, None)
    settings = _settings(StepRule("dual", 1.0), Limits(1, 0.0, 0.0))
    example = (packed, settings, *work_memory(packed), *_outputs(0, 1)[1])
    return compile_kernel(make_descend(source_digest()), *example)
