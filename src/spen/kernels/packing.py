"""A canonical form as the flat float32 arrays that the CPU kernel reads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from spen.energies.form import Form

PANEL = 8
"""Labels, and measurements, that the kernel takes at a time; what is missing is filled with 0."""

KINDS = {"relu": 0, "hardtanh": 1, "softplus": 2, "sigmoid": 3, "square": 4}
"""The nonlinearities by name, as the numbers that the kernel knows them by."""


class Settings(NamedTuple):
    """The step rule and the limits, in plain numbers."""

    primal: bool
    bundle: bool
    lr: float
    momentum: float
    decay: float
    reach: float
    grow: float
    shrink: float
    max_steps: int
    objective_rtol: float
    iterate_atol: float
    fixed: bool


class Packed(NamedTuple):
    """The arrays of a form, of where it starts and of what is known.

    A stride is how far apart the rows of an array are; 0 means that all examples share one.
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
    bias: np.ndarray
    bias_stride: int
    constant: np.ndarray
    constant_stride: int
    linear: np.ndarray
    linear_stride: int
    quadratic: np.ndarray
    quadratic_stride: int
    tau: np.ndarray
    tau_stride: int
    known: np.ndarray
    known_stride: int
    start: np.ndarray
    start_stride: int


def pack(form: Form, start: Tensor, known: Tensor | None) -> Packed:
    """Flatten a form; rows that are contiguous already are not copied.

    >>> import torch
    >>> packed = pack(Form(linear=torch.ones(2, 3)), torch.full((2, 3), 0.5), None)
    >>> packed.linear_stride, packed.bias_stride, packed.measurements.size
    (3, 0, 0)
    """
    n, labels = start.shape
    measurements, readout, kinds = _shared(form, labels)
    return Packed(
        n,
        labels,
        measurements,
        readout,
        kinds,
        *_bias(form, n),
        *_rows(start.new_zeros(1) if form.constant is None else form.constant),
        *_rows(start.new_zeros(1, labels) if form.linear is None else form.linear),
        *_rows(form.quadratic),
        *_rows(form.tau),
        *_rows(known),
        *_rows(start),
    )


def _rows(tensor: Tensor | None) -> tuple[np.ndarray, int]:
    """Return the entries, and how far apart rows are."""
    if tensor is None:
        return _EMPTY, 0
    # numpy's steps are many times shorter than torch's, which matters for a single row.
    array = tensor.detach().numpy()
    if array.shape[0] == 1 or array.strides[0] == 0:
        return np.ascontiguousarray(array[:1]).reshape(-1), 0
    return np.ascontiguousarray(array).reshape(-1), 1 if array.ndim == 1 else array.shape[1]


_EMPTY = np.zeros(0, np.float32)


def _shared(form: Form, labels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the measurements by panels, their readout, and which nonlinearity each has."""
    m = _padded(sum(len(block.readout) for block in form.blocks))
    matrix = np.zeros((m, _padded(labels)), np.float32)
    readout, kinds = np.zeros(m, np.float32), np.zeros(m, np.int64)
    first = 0
    for block in form.blocks:
        last = first + len(block.readout)
        matrix[first:last, :labels] = block.measurements.detach().numpy()
        readout[first:last] = block.readout.detach().numpy()
        kinds[first:last] = KINDS[block.nonlinearity.name]
        first = last
    panels = matrix.reshape(m, matrix.shape[1] // PANEL, PANEL).swapaxes(0, 1)
    return np.ascontiguousarray(panels).reshape(-1), readout, kinds


def _bias(form: Form, n: int) -> tuple[np.ndarray, int]:
    """Return the biases of all blocks together: a row of them, or n rows."""
    m = _padded(sum(len(block.readout) for block in form.blocks))
    rows = 1 if all(block.bias.ndim == 1 for block in form.blocks) else n
    together = np.zeros((rows, m), np.float32)
    first = 0
    for block in form.blocks:
        last = first + len(block.readout)
        together[:, first:last] = block.bias.detach().numpy()
        first = last
    return together.reshape(-1), 0 if rows == 1 else m


def _padded(count: int) -> int:
    return -(-count // PANEL) * PANEL
