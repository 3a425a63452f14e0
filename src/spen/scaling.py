"""Features on one scale, which is what networks train well on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse


@dataclass(frozen=True)
class Scaling:
    """x ↦ (x − shift) / scale, column by column; sparse inputs are not shifted.

    Attributes:
        shift: (d,) the mean of each dense column, or None.
        scale: (d,) the standard deviation of each dense column, or the largest magnitude of
            each sparse one; 1 where a column is constant.
    """

    shift: np.ndarray | None
    scale: np.ndarray

    @classmethod
    def of(cls, X: Any) -> Scaling:
        """Measure the columns of X.

        >>> Scaling.of(np.array([[1.0, 5.0], [3.0, 5.0]])).transform(np.array([[5.0, 6.0]]))
        array([[3., 1.]], dtype=float32)
        """
        if sparse.issparse(X):
            largest = abs(X).max(axis=0).toarray().ravel().astype(float)
            return cls(None, np.where(largest > 0, largest, 1.0))
        mean = X.mean(axis=0, dtype=np.float64)
        spread = X.std(axis=0, dtype=np.float64)
        # What rounding leaves of a constant column is not a scale.
        real = spread > 1e-7 * np.maximum(np.abs(mean), np.finfo(np.float64).tiny)
        return cls(mean, np.where(real, spread, 1.0))

    def transform(self, X: Any) -> Any:
        """Return the scaled rows as float32; sparse rows stay sparse."""
        if sparse.issparse(X):
            scaled = sparse.csr_array(X, dtype=np.float64, copy=True)
            if self.shift is None:
                scaled.data /= self.scale[scaled.indices]
                return scaled.astype(np.float32)
            X = scaled.toarray()
        shift = 0.0 if self.shift is None else self.shift
        return ((X - shift) / self.scale).astype(np.float32)
