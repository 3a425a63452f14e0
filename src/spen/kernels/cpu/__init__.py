"""The CPU kernel: numba code, eight examples in the lanes of a vector, in several threads.

Here is what calls it: which forms it takes, the flat arrays that it reads, and how it is compiled.
Nothing in this file needs numba until a kernel is asked for.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from spen.domains import DUAL_LIMIT
from spen.energies.form import Form
from spen.kernels.interface import KINDS, Fused, Limits, StepRule
from spen.kernels.threads import run_together, threads_allowed

ENTRIES_PER_THREAD = 4096
"""Entries of y that are worth waking a thread for: some tens of rows of a hundred labels."""

WIDTH = 8
"""Examples per vector register: what AVX has room for. Wider machines use part of theirs, narrower
ones take two or four registers."""

PANEL = 8
"""Labels, and measurements, that the kernel takes at a time; what is missing is filled with 0."""


def refusal(form: Form, step: StepRule, start: Tensor, known: Tensor | None) -> str | None:
    """Say why this kernel cannot minimise a form; None where it can.

    >>> form, step = Form(linear=torch.zeros(1, 2).double()), StepRule(lr=0.1)
    >>> refusal(form, step, torch.zeros(1, 2), None)
    'the kernel computes in float32, and the problem is in torch.float64'
    """
    tensors = [start, known, form.constant, form.linear, form.quadratic, form.tau]
    for block in form.blocks:
        tensors += [block.measurements, block.bias, block.readout]
        if block.nonlinearity.name not in KINDS:
            return f"the kernel does not know the nonlinearity {block.nonlinearity.name!r}"
        if block.readout.ndim > 1:
            return "each row weighs measurements in its own way, as in training with dropout"
        if block.measurements.ndim > 2:
            return "each row measures labels of its own, as with a shortlist"
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
    >>> minimise(form, StepRule(lr=0.5), Limits(50, 0.0, 0.0), start, None).y.round()
    tensor([[0., 1.]])
    """
    n, labels = start.shape
    fused, outputs = _outputs(n, labels)
    packed, kernel = pack(form, start, known), _kernel()
    threads = max(1, min(threads_allowed(), n, start.numel() // ENTRIES_PER_THREAD))
    run_together(lambda: kernel(packed, step, limits, *_work_memory(packed), *outputs), threads)
    return fused


def _outputs(n: int, labels: int) -> tuple[Fused, list[np.ndarray]]:
    """Return empty answers, and the same memory as the kernel takes it, with a row counter."""
    y, energy = np.empty((n, labels), np.float32), np.empty(n, np.float32)
    steps, status = np.empty(n, np.int64), np.empty(n, np.int64)
    fused = Fused(*(torch.from_numpy(array) for array in (y, energy, steps, status)))
    return fused, [np.zeros(1, np.int64), y.reshape(-1), energy, steps, status]


@functools.cache
def _kernel() -> Callable[..., None]:
    from spen.kernels.cpu.descent import make_descend

    # Solving nothing tells numba the types.
    nothing = torch.zeros(0, 1)
    packed = pack(Form(linear=nothing), nothing, None)
    numbers = (StepRule(), Limits(1, 0.0, 0.0))
    example = (packed, *numbers, *_work_memory(packed), *_outputs(0, 1)[1])
    return compile_kernel(make_descend(source_digest()), *example)


# What the kernel reads ----------------------------------------------------------------------


class RowTerm(NamedTuple):
    """The entries of all rows, and how far apart rows are: 0 where all examples share one."""

    entries: Any
    stride: int


class Packed(NamedTuple):
    """The flat float32 arrays of a form, of where it starts and of what is known.

    Quadratic, tau and known are empty where they are absent.

    Attributes:
        n_rows: n.
        n_labels: L.
        measurements: C of all blocks, by panels: (⌈L / 8⌉, m, 8).
        readout: (m,), all blocks together, filled up to a multiple of 8.
        kinds: (m,) the nonlinearity of each measurement.
        bias: (m,) or (n, m).
        constant: (1,) or (n,).
        linear: (L,) or (n, L).
        quadratic: (L,) or (n, L).
        tau: (1,) or (n,).
        known: (L,) or (n, L), nan for what is to be inferred.
        start: (L,) or (n, L).
    """

    n_rows: int
    n_labels: int
    measurements: np.ndarray
    readout: np.ndarray
    kinds: np.ndarray
    bias: RowTerm
    constant: RowTerm
    linear: RowTerm
    quadratic: RowTerm
    tau: RowTerm
    known: RowTerm
    start: RowTerm


def pack(form: Form, start: Tensor, known: Tensor | None) -> Packed:
    """Flatten a form; rows that are contiguous already are not copied.

    >>> import torch
    >>> packed = pack(Form(linear=torch.ones(2, 3)), torch.full((2, 3), 0.5), None)
    >>> packed.linear.stride, packed.bias.stride, packed.measurements.size
    (3, 0, 0)
    """
    n, labels = start.shape
    return Packed(
        n,
        labels,
        *_pack_blocks(form, n, labels),
        _row_term(start.new_zeros(1) if form.constant is None else form.constant),
        _row_term(start.new_zeros(1, labels) if form.linear is None else form.linear),
        _row_term(form.quadratic),
        _row_term(form.tau),
        _row_term(known),
        _row_term(start),
    )


def _row_term(tensor: Tensor | None) -> RowTerm:
    if tensor is None:
        return _ABSENT
    # numpy's steps are many times shorter than torch's, which matters for a single row.
    array = tensor.detach().numpy()
    if array.shape[0] == 1 or array.strides[0] == 0:
        return RowTerm(np.ascontiguousarray(array[:1]).reshape(-1), 0)
    stride = 1 if array.ndim == 1 else array.shape[1]
    return RowTerm(np.ascontiguousarray(array).reshape(-1), stride)


_ABSENT = RowTerm(np.zeros(0, np.float32), 0)


def _pack_blocks(
    form: Form, n: int, labels: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, RowTerm]:
    """Return the measurements by panels, their readout, which nonlinearity each has, and the
    biases: a row of them, or n rows."""
    m = _padded(sum(len(block.readout) for block in form.blocks))
    rows = 1 if all(block.bias.ndim == 1 for block in form.blocks) else n
    matrix, bias = np.zeros((m, _padded(labels)), np.float32), np.zeros((rows, m), np.float32)
    readout, kinds = np.zeros(m, np.float32), np.zeros(m, np.int64)
    first = 0
    for block in form.blocks:
        last = first + len(block.readout)
        matrix[first:last, :labels] = block.measurements.detach().numpy()
        bias[:, first:last] = block.bias.detach().numpy()
        readout[first:last] = block.readout.detach().numpy()
        kinds[first:last] = KINDS[block.nonlinearity.name]
        first = last
    panels = matrix.reshape(m, matrix.shape[1] // PANEL, PANEL).swapaxes(0, 1)
    biases = RowTerm(bias.reshape(-1), 0 if rows == 1 else m)
    return np.ascontiguousarray(panels).reshape(-1), readout, kinds, biases


def _padded(count: int) -> int:
    return -(-count // PANEL) * PANEL


def _work_memory(packed: Packed) -> tuple[np.ndarray, np.ndarray]:
    """Return what one thread works in: numbers, and whole numbers; ``descent`` lays them out."""
    size, m = _padded(packed.n_labels), len(packed.readout)
    numbers = (9 * size + 3 * m + 9) * WIDTH + size
    return np.zeros(numbers, np.float32), np.zeros(WIDTH + 1 + m, np.int64)


# Machine code -------------------------------------------------------------------------------


@functools.cache
def trouble_with_numba() -> str | None:
    """Say why numba cannot be used; None where it can."""
    if find_spec("numba") is None:
        return "numba is not installed; pip install 'spen[fast]' brings it"
    try:
        import_module("numba")
    except ImportError as problem:
        # Such as a numpy that is newer than numba knows.
        return f"numba cannot be imported ({problem})"
    return None


@functools.cache
def machine_code(
    function: Callable[..., Any], example: Callable[[], tuple[Any, ...]]
) -> Callable[..., Any] | None:
    """Return a function as machine code, or None where numba cannot be used.

    Args:
        function: loops that numba understands.
        example: makes arguments to call it with, which tell the types.
    """
    return None if trouble_with_numba() else compile_kernel(function, *example())


def compile_kernel(function: Callable[..., Any], *example: Any) -> Callable[..., Any]:
    """Compile a kernel for arguments like the example's, or find it on disk.

    Numba keeps the code beside the source or, where that cannot be written, in the user's
    cache directory. Where neither can be, or the disk is full, it is compiled in each process.

    Args:
        function: the kernel.
        example: arguments to call it with, which tell the types.
    """
    from numba import njit

    def compiled(cache: bool) -> Callable[..., Any]:
        kernel = njit(nogil=True, error_model="numpy", cache=cache)(function)
        kernel(*example)
        return kernel

    try:
        return compiled(cache=True)
    except (RuntimeError, OSError, AttributeError, ImportError):
        # Numba's words for "there is no place for it", and for code of an earlier version of ours
        # that names types which are gone.
        return compiled(cache=False)


def source_digest() -> str:
    """Return a digest of what a kernel is compiled from, so that old code is not found for it.

    Numba itself looks at the one file in which a kernel stands, not at those it imports.
    """
    digest = hashlib.sha256(str(DUAL_LIMIT).encode())
    here = Path(__file__).parent
    for path in sorted((*here.glob("*.py"), here.parent / "interface.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
