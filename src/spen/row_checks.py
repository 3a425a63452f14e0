"""The rows to predict: scikit-learn's checks, and a short way past them for plain good rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted, validate_data

CHECKS: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
"""What a classifier's rows must be, in the words of scikit-learn's ``check_array``."""


def checked_rows(estimator: Any, X: Any) -> Any:
    """Return rows for a fitted estimator to predict, or raise as scikit-learn does.

    One row takes scikit-learn longer to check than to predict, so what can be seen at a glance
    to pass all checks, and to come back as it is, skips them.

    Args:
        estimator: that ``fit`` has given its n_features_in_.
        X: (n, d) numbers, in any form that ``check_array`` takes.
    """
    if not _surely_good(X, vars(estimator)):
        check_is_fitted(estimator)
        return validate_data(estimator, X, reset=False, **CHECKS)
    return X


def _surely_good(X: Any, attributes: dict[str, Any]) -> bool:
    """Return whether an array or a CSR matrix passes; False where it takes a closer look."""
    # Subclasses may behave in any other way; and where features have names, their lack is told.
    if type(X) not in _PLAIN or "feature_names_in_" in attributes or X.ndim != 2:
        return False
    if X.shape[0] == 0 or X.shape[1] != attributes.get("n_features_in_"):
        return False
    values = X if isinstance(X, np.ndarray) else X.data
    if values.dtype != np.float64 and values.dtype != np.float32:
        return False
    # A sum is finite only where all its terms are; where it overflows, they may still be.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()))


_PLAIN = (np.ndarray, sparse.csr_array, sparse.csr_matrix)
