"""The GPU kernels: which forms they take, and how they are launched."""

from __future__ import annotations

import importlib.util
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from spen.batch.context import take
from spen.domains import UnitBox
from spen.energies.form import Form
from spen.kernels.cuda_launch import launch
from spen.kernels.cuda_plans import ROWS, StreamPlan, TilePlan, stream_plan, tile_plan
from spen.kernels.interface import Fused, Limits, StepRule
from spen.kernels.packing import KINDS

MOST_NUMBERS = 2**30
"""Entries of y in one launch: the kernels count in 32 bits."""

MOST_STATE = 2**28
"""Entries of each state that the streaming kernel keeps in memory."""


class Measurements(NamedTuple):
    """All blocks of a form together; ``kinds`` only where their nonlinearities differ."""

    matrix: Tensor
    bias: Tensor
    readout: Tensor
    kinds: Tensor | None
    kind: int
    total: int


def refusal(form: Form, step: StepRule, start: Tensor, known: Tensor | None) -> str | None:
    """Say why the GPU kernels cannot minimise this form; None where they can.

    >>> form = Form(linear=torch.zeros(1, 2))
    >>> refusal(form, StepRule("dual", lr=0.1), torch.full((1, 2), 0.5), None)
    'the tensors are on cpu, not on a CUDA device'
    """
    unknown = {block.nonlinearity.name for block in form.blocks} - KINDS.keys()
    if not start.is_cuda:
        return f"the tensors are on {start.device.type}, not on a CUDA device"
    if not _has_triton():
        return "the package triton is not installed"
    if _capability(start.device) < (8, 0):
        return "the GPU kernels need compute capability 8.0 or newer"
    if start.dtype != torch.float32:
        return f"the GPU kernels work in float32, not in {str(start.dtype).removeprefix('torch.')}"
    if step.space != "dual":
        return "the GPU kernels make mirror steps only"
    if unknown:
        return f"the GPU kernels do not know the nonlinearity {min(unknown)!r}"
    if form.tau is not None and not isinstance(form.domain, UnitBox):
        return "the GPU kernels know the entropy of the unit box only"
    return None


def minimise(
    form: Form, step: StepRule, limits: Limits, start: Tensor, known: Tensor | None
) -> Fused:
    """Minimise every row of a form, without waiting for the GPU once.

    A start whose rows are all one row, or all one number, is best handed in expanded: then it
    is neither written nor read n times.
    """
    n, n_labels = start.shape
    most = MOST_NUMBERS // n_labels
    if n > most:
        parts = [
            minimise(form.select(rows), step, limits, start[rows], take(known, rows))
            for rows in torch.arange(n, device=start.device).split(most)
        ]
        return Fused(*(torch.cat(fields) for fields in zip(*parts, strict=True)))
    count = sum(len(block.readout) for block in form.blocks)
    plan = tile_plan(n_labels, count)
    if plan is None:
        return on_streams(form, step, limits, start, known, stream_plan(count))
    return on_chip(form, step, limits, start, known, plan)


def on_chip(
    form: Form, step: StepRule, limits: Limits, start: Tensor, known: Tensor | None, plan: TilePlan
) -> Fused:
    """Minimise with the state of each row in registers."""
    from spen.kernels.cuda_tiles import descend_tiles

    together = _together(form, start)
    found = _unwritten(start)
    programs = _programs(start, plan.programs)
    if programs:
        constants = {
            "WARPS": plan.warps,
            "ROWS": ROWS,
            "WIDTH_1": plan.widths[0],
            "WIDTH_2": plan.widths[1],
            "PADDED": plan.padded,
            "LINES": plan.lines,
            "REFILL": plan.refill,
            "FOLD": together.total < plan.padded,
            "FULL": plan.warps * plan.widths[0] <= start.shape[1],
            **_flags(start, together),
        }
        arguments = (
            *_rows(form, start, known),
            *together[:4],
            *found,
            *_numbers(step, limits, start, together),
        )
        options = {"num_warps": plan.warps, "maxnreg": plan.registers, "enable_fp_fusion": True}
        with _on(start.device):
            launch(descend_tiles, start.device, programs, arguments, constants, options)
    return found


def on_streams(
    form: Form,
    step: StepRule,
    limits: Limits,
    start: Tensor,
    known: Tensor | None,
    plan: StreamPlan,
) -> Fused:
    """Minimise with the state of each row in memory, C passing by in tiles."""
    from spen.kernels.cuda_streams import descend_streams

    together = _together(form, start)
    found = _unwritten(start)
    at_once = max(1, MOST_STATE // (ROWS * start.shape[1]))
    programs = min(at_once, _programs(start, plan.programs))
    if programs:
        high, low, size = _tiled_halves(together.matrix, plan)
        unit = (together.readout * size).abs().amax()
        tiles, chunks = high.shape[:2]
        slots = programs * ROWS
        states = start.new_empty(4, slots, tiles * plan.warps * plan.width)
        slopes = start.new_zeros(slots, chunks * plan.chunk)
        constants = {
            "WARPS": plan.warps,
            "ROWS": ROWS,
            "WIDTH": plan.width,
            "CHUNK": plan.chunk,
            "CHUNKS": chunks,
            **_flags(start, together),
        }
        arguments = (
            *_rows(form, start, known),
            high,
            low,
            size,
            unit.masked_fill(unit == 0, 1.0),
            *together[1:4],
            *states,
            slopes,
            *found,
            *_numbers(step, limits, start, together),
            tiles,
        )
        options = {"num_warps": plan.warps, "enable_fp_fusion": True}
        with _on(start.device):
            launch(descend_streams, start.device, programs, arguments, constants, options)
    return found


def _tiled_halves(matrix: Tensor, plan: StreamPlan) -> tuple[Tensor, Tensor, Tensor]:
    """Split C into two halves, (tiles, chunks, warps, chunk, width), so that a tile is one stretch
    of memory, and the sizes that were divided out of its rows."""
    m, n_labels = matrix.shape
    size = matrix.abs().amax(1)
    size = size.masked_fill(size == 0, 1.0)
    width = plan.warps * plan.width
    scaled = F.pad(matrix / size[:, None], (0, -n_labels % width, 0, -m % plan.chunk))
    tiles = scaled.view(-1, plan.chunk, scaled.shape[1] // width, plan.warps, plan.width)
    tiles = tiles.permute(2, 0, 3, 1, 4).contiguous()
    high = tiles.half()
    return high, (tiles - high).half(), size


def _together(form: Form, start: Tensor) -> Measurements:
    """Put the blocks of a form together; with one block, or none, nothing is copied."""
    blocks = form.blocks
    if not blocks:
        nothing = start.new_zeros(1, start.shape[1])
        return Measurements(nothing, nothing[0], nothing[0, :1], None, 0, 0)
    kinds = [KINDS[block.nonlinearity.name] for block in blocks for _ in range(len(block.readout))]
    if len(blocks) == 1:
        matrix, bias, readout = blocks[0].measurements, blocks[0].bias, blocks[0].readout
    else:
        shared = all(block.bias.ndim == 1 for block in blocks)
        matrix = torch.cat([block.measurements for block in blocks])
        bias = torch.cat(
            [b.bias if shared else b.bias.expand(start.shape[0], -1) for b in blocks], -1
        )
        readout = torch.cat([block.readout for block in blocks])
    alike = len(set(kinds)) == 1
    return Measurements(
        matrix.contiguous(),
        bias.contiguous(),
        readout.contiguous(),
        None if alike else torch.tensor(kinds, dtype=torch.int32, device=start.device),
        kinds[0] if alike else len(KINDS),
        len(kinds),
    )


def _rows(form: Form, start: Tensor, known: Tensor | None) -> list[Tensor | None]:
    """Return what has rows: linear, quadratic, tau, constant, start and known."""
    terms = (form.linear, form.quadratic, form.tau, form.constant)
    begin = start if start.stride(0) == 0 else start.contiguous()
    held = None if known is None else known.contiguous()
    return [*(None if term is None else term.contiguous() for term in terms), begin, held]


def _numbers(
    step: StepRule, limits: Limits, start: Tensor, together: Measurements
) -> tuple[int | float | None, ...]:
    """Return the sizes, the rule and the limits; None for what a kernel can leave out."""
    n, n_labels = start.shape
    bundle = (step.reach, step.grow, step.shrink) if step.is_bundle else (None, None, None)
    return (
        n,
        n_labels,
        together.total,
        0 if start.stride(0) == 0 else n_labels,
        None if step.is_bundle else step.lr,
        step.momentum or None,
        step.decay or None,
        *bundle,
        limits.objective_rtol,
        limits.iterate_atol or None,
        limits.max_steps,
    )


def _flags(start: Tensor, together: Measurements) -> dict[str, Any]:
    """Return what both kernels are compiled for."""
    return {
        "KIND": together.kind,
        "BIAS_BY_ROW": together.total > 0 and together.bias.ndim == 2,
        "ONE_START": start.stride() == (0, 0),
        "ASSEMBLY": start.is_cuda,
    }


def _unwritten(start: Tensor) -> Fused:
    n, n_labels = start.shape
    steps = torch.empty(n, dtype=torch.int64, device=start.device)
    return Fused(start.new_empty(n, n_labels), start.new_empty(n), steps, torch.empty_like(steps))


def _programs(start: Tensor, each: int) -> int:
    """Return how many programs to launch: enough for all rows, and no more than run at once."""
    return min(-(-start.shape[0] // ROWS), each * _processors(start.device))


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which launches go to a device; mostly they go there already."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(device)


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


@cache
def _processors(device: torch.device) -> int:
    # Triton's interpreter has none, and takes the tensors of the CPU.
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count
