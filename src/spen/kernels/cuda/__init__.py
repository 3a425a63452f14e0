"""The GPU kernels: which forms they take, how they lay out their work, and how they are launched.

Nothing in this file needs Triton until a kernel is asked for.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from spen.batch.context import take
from spen.domains import UnitBox
from spen.energies.form import Form
from spen.kernels.interface import KINDS, Fused, Limits, StepRule

MOST_NUMBERS = 2**30
"""Entries of y in one launch: the kernels count in 32 bits."""

MOST_STATE = 2**28
"""Entries of each state that the streaming kernel keeps in memory."""

ROWS = 16
"""Rows of a tile: the fewest that the matrix units take."""

WIDTHS = ((16, 8), (16, 16), (32, 8), (32, 16), (32, 32))
"""The labels that a warp can hold, in two chunks, since chunks are powers of two."""

MOST_ENTRIES = 1280
"""Entries of C that a warp can hold in registers beside its rows."""

REGISTERS = 65536
"""Registers of a multiprocessor."""


class JoinedBlocks(NamedTuple):
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
    >>> refusal(form, StepRule(lr=0.1), torch.full((1, 2), 0.5), None)
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
    if step.primal:
        return "the GPU kernels make mirror steps only"
    if unknown:
        return f"the GPU kernels do not know the nonlinearity {min(unknown)!r}"
    if any(block.readout.ndim > 1 for block in form.blocks):
        return "each row weighs measurements in its own way, as in training with dropout"
    if any(block.measurements.ndim > 2 for block in form.blocks):
        return "each row measures labels of its own, as with a shortlist"
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
    found, programs = _unwritten(start), _count_programs(start, plan)
    if not programs:
        return found
    from spen.kernels.cuda.tiles import descend_tiles

    joined = _join_blocks(form, start)
    constants = {
        "WIDTH_1": plan.widths[0],
        "WIDTH_2": plan.widths[1],
        "PADDED": plan.padded,
        "LINES": plan.lines,
        "REFILL": plan.refill,
        "FOLD": joined.total < plan.padded,
        "FULL": plan.warps * plan.widths[0] <= start.shape[1],
        **_constants(start, joined, plan),
    }
    rows, numbers = _rows(form, start, known), _numbers(step, limits, start, joined)
    arguments = (*rows, *joined[:4], *found, *numbers)
    options = {"num_warps": plan.warps, "maxnreg": plan.registers, "enable_fp_fusion": True}
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
    found = _unwritten(start)
    at_once = max(1, MOST_STATE // (ROWS * start.shape[1]))
    programs = min(at_once, _count_programs(start, plan))
    if not programs:
        return found
    from spen.kernels.cuda.streams import descend_streams

    joined = _join_blocks(form, start)
    high, low, size = _tiled_halves(joined.matrix, plan)
    unit = (joined.readout * size).abs().amax()
    tiles, chunks = high.shape[:2]
    slots = programs * ROWS
    states = start.new_empty(4, slots, tiles * plan.warps * plan.width)
    slopes = start.new_zeros(slots, chunks * plan.chunk)
    constants = {
        "WIDTH": plan.width,
        "CHUNK": plan.chunk,
        "CHUNKS": chunks,
        **_constants(start, joined, plan),
    }
    matrix = (high, low, size, unit.masked_fill(unit == 0, 1.0))
    rows, numbers = _rows(form, start, known), _numbers(step, limits, start, joined)
    arguments = (*rows, *matrix, *joined[1:4], *states, slopes, *found, *numbers, tiles)
    options = {"num_warps": plan.warps, "enable_fp_fusion": True}
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


def _join_blocks(form: Form, start: Tensor) -> JoinedBlocks:
    """Put the blocks of a form together; with one block, or none, nothing is copied."""
    blocks = form.blocks
    if not blocks:
        nothing = start.new_zeros(1, start.shape[1])
        return JoinedBlocks(nothing, nothing[0], nothing[0, :1], None, 0, 0)
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
    return JoinedBlocks(
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
    step: StepRule, limits: Limits, start: Tensor, joined: JoinedBlocks
) -> tuple[int | float | None, ...]:
    """Return the sizes, the rule and the limits; None for what a kernel can leave out."""
    n, n_labels = start.shape
    bundle = (step.reach, step.grow, step.shrink) if step.reach else (None, None, None)
    return (
        n,
        n_labels,
        joined.total,
        0 if start.stride(0) == 0 else n_labels,
        None if step.reach else step.lr,
        step.momentum or None,
        step.decay or None,
        *bundle,
        limits.objective_rtol,
        limits.iterate_atol or None,
        1 if limits.both else None,
        limits.max_steps,
    )


def _constants(start: Tensor, joined: JoinedBlocks, plan: TilePlan | StreamPlan) -> dict[str, Any]:
    """Return what both kernels are compiled for."""
    return {
        "WARPS": plan.warps,
        "ROWS": ROWS,
        "KIND": joined.kind,
        "BIAS_BY_ROW": joined.total > 0 and joined.bias.ndim == 2,
        "ONE_START": start.stride() == (0, 0),
        "ASSEMBLY": start.is_cuda,
    }


def _unwritten(start: Tensor) -> Fused:
    n, n_labels = start.shape
    steps = torch.empty(n, dtype=torch.int64, device=start.device)
    return Fused(start.new_empty(n, n_labels), start.new_empty(n), steps, torch.empty_like(steps))


def _count_programs(start: Tensor, plan: TilePlan | StreamPlan) -> int:
    """Return how many programs to launch: enough for all rows, and no more than run at once."""
    return min(-(-start.shape[0] // ROWS), plan.programs * _processors(start.device))


_COMPILED: dict[tuple[Any, ...], tuple[Any, list[Any]]] = {}


def launch(
    kernel: Any,
    device: torch.device,
    programs: int,
    arguments: Sequence[Tensor | float | None],
    constants: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Launch a kernel; the second time without asking Triton once more which version to take.

    Triton looks at some thirty arguments at every launch, for longer than a small batch takes.

    Args:
        kernel: a function for ``triton.jit`` whose last arguments are the constants.
        device: where to.
        programs: how many programs to run.
        arguments: the others, in their order.
        constants: what it is compiled for, by name.
        options: how it is compiled.
    """
    kinds = tuple(map(_kind, arguments))
    key = (kernel.__name__, device, kinds, *constants.values(), *options.values())
    with _launching_on(device):
        if key in _COMPILED:
            compiled, rest = _COMPILED[key]
            compiled[(programs, 1, 1)](*arguments, *rest)
            return
        compiled = kernel[(programs,)](*arguments, **constants, **options)
    # Triton's interpreter compiles nothing.
    if compiled is not None:
        _COMPILED[key] = compiled, [constants[name] for name in kernel.arg_names[len(arguments) :]]


def _kind(argument: Tensor | float | None) -> object:
    """Return what Triton compiles different versions for."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % 16 == 0
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0
    return type(argument)


def _launching_on(device: torch.device) -> AbstractContextManager[object]:
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


# How work is laid out: which warps hold which labels, and how many rows ---------------------


@dataclass(frozen=True)
class TilePlan:
    """The layout of the on-chip kernel.

    Attributes:
        warps: how many warps share the labels of a tile of rows.
        widths: the labels of a warp, in two chunks.
        padded: measurements, filled up to a power of two.
        refill: how many rows of a tile must have ended before new ones take their places.
        programs: tiles at a time on each multiprocessor, which share its registers.
    """

    warps: int
    widths: tuple[int, int]
    padded: int
    refill: int = 4
    programs: int = 2

    @property
    def registers(self) -> int:
        """The most registers of a thread with which all programs fit at once."""
        return min(255, REGISTERS // (32 * self.warps * self.programs) // 8 * 8)

    @property
    def lines(self) -> int:
        """The memory lines of 32 numbers that a row has at most, as a power of two."""
        return 1 << (self.warps * sum(self.widths) // 32).bit_length()


@dataclass(frozen=True)
class StreamPlan:
    """The layout of the streaming kernel.

    Attributes:
        warps: how many warps share the labels of a tile.
        width: the labels of a warp in a tile.
        chunk: how many measurements are taken at a time, a power of two.
        programs: tiles of rows at a time on each multiprocessor.
    """

    warps: int
    width: int
    chunk: int
    programs: int = 2


@cache
def tile_plan(n_labels: int, n_measurements: int) -> TilePlan | None:
    """Return the on-chip layout with the least padding; None where a row does not fit.

    >>> tile_plan(159, 15)
    TilePlan(warps=4, widths=(32, 8), padded=16, refill=4, programs=2)
    >>> tile_plan(4096, 256) is None
    True
    """
    padded = _padded(n_measurements)
    choices = [
        (warps * sum(widths), warps, widths)
        for warps in (1, 2, 4, 8)
        for widths in WIDTHS
        if warps * sum(widths) >= n_labels and padded * sum(widths) <= MOST_ENTRIES
    ]
    if not choices:
        return None
    _, warps, widths = min(choices)
    return TilePlan(warps, widths, padded, programs=8 // warps)


def stream_plan(n_measurements: int) -> StreamPlan:
    """Return the streaming layout.

    >>> stream_plan(256)
    StreamPlan(warps=4, width=16, chunk=64, programs=2)
    """
    chunk = min(64, _padded(n_measurements))
    return StreamPlan(warps=4, width=16 if chunk == 64 else 32, chunk=chunk)


def _padded(measurements: int) -> int:
    """Fill a number of measurements up to a power of two that the matrix units take."""
    return max(16, 1 << (measurements - 1).bit_length())
