"""Probabilities that mean what they say: a scale and shifts, fitted on held-out rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor

from spen.domains import DUAL_LIMIT

RIDGE = 5.0
"""How many decisions' worth of trust there is in no correction at all."""

SURE = 1e-7
"""How far from 0 and 1 probabilities are taken to be, at least."""

SETTLED = 1e-9
"""A step of log-odds, and of a scale, that is too small to show in float32 ends the steps."""

_TINY = np.finfo(float).tiny

LARGEST_BLOCK = 2**24
"""Decisions that are looked at together: 128 MiB for each number about them."""

SCALES = (0.2, 3.0)
"""The least and the largest scale: beyond, a network is wrong in other ways."""


@dataclass(frozen=True)
class Calibration:
    """p ↦ σ(scale · logit p + shift), label by label; for classes p ↦ softmax(scale · log p).

    Attributes:
        scale: below 1 it softens probabilities, which overfitted networks need.
        shift: (L,) added to the log-odds of each label; zero for classes.
        exclusive: True for classes.
        half: that of rows of which half of the labels are known, or None where it is the same. In
            between, scales and shifts are in between. Known labels say much about the others, and
            how far to trust that is another question than how far to trust a network.
    """

    scale: float
    shift: np.ndarray
    exclusive: bool
    half: Calibration | None = None

    @classmethod
    def of(cls, truth: np.ndarray, soft: np.ndarray, exclusive: bool) -> Calibration:
        """Minimise the log loss of held-out rows, with a ridge towards no correction.

        Args:
            truth: (n, L) of 0 and 1; nan where a label is missing.
            soft: (n, L) probabilities.
            exclusive: True for classes.

        >>> truth = np.array([[1.0], [0.0], [0.0], [0.0]] * 50)
        >>> fitted = Calibration.of(truth, np.full((200, 1), 0.5), exclusive=False)
        >>> fitted.apply(np.array([[0.5]])).round(1)
        array([[0.3]], dtype=float32)
        """
        if exclusive:
            return cls(_softmax_scale(truth, soft), np.zeros(soft.shape[1]), True)
        decisions = _Decisions(truth, soft)
        scale, shift = _newton(decisions)
        labels = np.zeros(soft.shape[1])
        for _ in range(8):
            slope, bend = RIDGE * labels, np.full(len(labels), RIDGE)
            for _, error, weight in decisions.at(scale, shift, labels):
                slope, bend = error.sum(0) + slope, weight.sum(0) + bend
            step = np.clip(slope / bend, -1, 1)
            labels -= step
            if np.abs(step).max() < SETTLED:
                break
        return cls(scale, shift + labels, False)

    @cached_property
    def neutral(self) -> bool:
        """Whether it leaves probabilities as they are."""
        return self.scale == 1 and not self.shift.any()

    def apply(self, soft: Any, known: Tensor | None = None) -> Any:
        """Return calibrated probabilities as float32, strictly inside (0, 1).

        Args:
            soft: (n, L) probabilities, as a tensor or an array; what comes back is one too, and a
                tensor stays on its device.
            known: (n, L) labels that were known, nan where they were not; None means none.
        """
        if not isinstance(soft, Tensor):
            return self.apply(torch.from_numpy(np.asarray(soft)), known).numpy()
        if known is not None and self.half is not None:
            share = 1 - torch.isnan(known).double().mean(1, keepdim=True)
            return self._between(soft, (2 * share).clamp_max(1).to(soft.device))
        if self.neutral:
            return soft.float()
        y = soft.to(torch.float64, copy=True)
        if self.exclusive:
            dual = self.scale * y.clamp_min(_TINY).log()
            dual = (dual - dual.amax(1, keepdim=True)).clamp_min(-DUAL_LIMIT)
            return torch.softmax(dual, 1).float()
        dual = y.logit_(SURE).mul_(self.scale).add_(self._shift.to(y.device))
        return dual.clamp_(-DUAL_LIMIT, DUAL_LIMIT).sigmoid_().float()

    def _between(self, soft: Tensor, weight: Tensor) -> Tensor:
        """Return probabilities of rows by how near (n, 1) they are to having half known."""
        assert self.half is not None
        scale = self.scale + weight * (self.half.scale - self.scale)
        shift = torch.lerp(self._shift.to(weight), self.half._shift.to(weight), weight)
        dual = scale * soft.double().logit(SURE) + shift
        return dual.clamp_(-DUAL_LIMIT, DUAL_LIMIT).sigmoid_().float()

    # Not cached: a graph that is being traced has tensors of its own kind.
    @property
    def _shift(self) -> Tensor:
        return torch.from_numpy(self.shift)


class _Decisions:
    """Held-out labels and their log-odds z, (n, L), in blocks of rows where there are many."""

    def __init__(self, truth: np.ndarray, soft: np.ndarray) -> None:
        self._truth, self._soft = truth, soft
        step = max(1, LARGEST_BLOCK // soft.shape[1])
        self._spans = [slice(first, first + step) for first in range(0, len(soft), step)]
        self._kept = self._block(self._spans[0]) if len(self._spans) == 1 else None

    def _block(self, rows: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        target, missing = self._truth[rows], np.isnan(self._truth[rows])
        z = torch.from_numpy(self._soft[rows]).double().logit(SURE).numpy()
        return (np.nan_to_num(target), z, missing) if missing.any() else (target, z, None)

    def at(
        self, scale: float, shift: float, labels: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield z, p − truth and p (1 − p) of each block, where p = σ(scale · z + shift + labels).

        Both are zero where a label is missing, and are overwritten with the next block.
        """
        for rows in self._spans:
            target, z, missing = self._kept or self._block(rows)
            p = scale * z
            p += shift
            if labels is not None:
                p += labels
            special.expit(p, out=p)
            weight = 1 - p
            weight *= p
            p -= target
            if missing is not None:
                p[missing] = weight[missing] = 0.0
            yield z, p, weight


def _newton(decisions: _Decisions) -> tuple[float, float]:
    """Return the scale and the shift that all labels share."""
    scale, shift = 1.0, 0.0
    for _ in range(12):
        slope = np.array([RIDGE * (scale - 1), RIDGE * shift])
        bend = np.array([[RIDGE, 0.0], [0.0, RIDGE]])
        for z, error, weight in decisions.at(scale, shift):
            total, straight = error.sum(), weight.sum()
            slope += (np.multiply(error, z, out=error).sum(), total)
            cross = np.multiply(weight, z, out=weight).sum()
            bend += [[np.multiply(weight, z, out=weight).sum(), cross], [cross, straight]]
        step = np.linalg.solve(bend, slope)
        scale = float(np.clip(scale - step[0], *SCALES))
        shift = float(np.clip(shift - step[1], -3, 3))
        if np.abs(step).max() < SETTLED:
            break
    return scale, shift


def _softmax_scale(truth: np.ndarray, soft: np.ndarray) -> float:
    """Return the scale of least log loss, by trying them: it is a function of one number."""
    z = np.log(np.maximum(soft.astype(float), _TINY))
    scales = np.geomspace(*SCALES, 61)

    def loss(scale: float) -> float:
        dual = scale * z
        top = dual.max(1, keepdims=True)
        total = top[:, 0] + np.log(np.exp(dual - top).sum(1))
        return float((total - (truth * dual).sum(1)).sum() + RIDGE / 2 * (scale - 1) ** 2)

    return float(min(scales, key=loss))


def log_odds(probability: Any) -> Any:
    """Return log p / (1 − p), as far as float64 goes, and finite at both ends.

    >>> log_odds(0.5)
    np.float64(0.0)
    """
    tiny = np.finfo(np.float64).tiny
    clipped = np.clip(np.asarray(probability, dtype=np.float64), tiny, 1 - 2**-53)
    return np.log(clipped) - np.log1p(-clipped)
