"""Kernel ridge regression: its closed forms against the definition, one row left out at a time."""

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge as Reference
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

import spen
from spen_paper.tables.machines import MEASURED, SURE, KernelRidge, Kernels

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 5)).astype(np.float32)
Y = (X[:, :3] + RANDOM.normal(size=(60, 3)) > 0).astype(np.float32)
NEW = RANDOM.normal(size=(7, 5)).astype(np.float32)
GROUPS = ((0, 5), (0, 2), (2, 5))
KERNELS = Kernels({"rbf": 2.0, "laplacian": 1.0}, GROUPS, ridge=0.3)


def gram(A: np.ndarray, B: np.ndarray, fitted: KernelRidge) -> np.ndarray:
    """The kernel by scikit-learn: a constant, and the mean over groups and kinds."""
    kinds = {"rbf": rbf_kernel, "laplacian": laplacian_kernel}
    parts = [kinds[name](A[:, group], B[:, group], gamma) for group, name, gamma in fitted.terms]
    return 1 + np.mean(parts, 0)


def log_odds(values: np.ndarray) -> np.ndarray:
    clipped = np.clip(values, SURE, 1 - SURE)
    return np.log(clipped / (1 - clipped))


def test_it_is_ridge_regression_with_the_mean_of_the_kernels():
    fitted = KernelRidge(KERNELS, X, Y)
    assert len(fitted.terms) == 6
    exact = [each.astype(np.float64) for each in (X, NEW)]
    reference = Reference(alpha=0.3, kernel="precomputed")
    reference.fit(gram(exact[0], exact[0], fitted), Y - 0.5)
    expected = log_odds(reference.predict(gram(exact[1], exact[0], fitted)) + 0.5)
    np.testing.assert_allclose(fitted(torch.from_numpy(NEW)).numpy(), expected, atol=1e-4)
    np.testing.assert_allclose(fitted.double()(torch.from_numpy(exact[1])), expected, atol=1e-5)


def test_unseen_scores_are_those_of_a_regression_on_all_other_rows():
    fitted = KernelRidge(KERNELS, X, Y)
    whole = gram(*[X.astype(np.float64)] * 2, fitted)
    for row in (0, 17, 59):
        others = np.delete(np.arange(len(X)), row)
        system = whole[np.ix_(others, others)] + 0.3 * np.eye(len(others))
        value = whole[row, others] @ np.linalg.solve(system, Y[others] - 0.5) + 0.5
        np.testing.assert_allclose(fitted.unseen[row], log_odds(value), atol=1e-4)
    seen = fitted(torch.from_numpy(X))
    assert ((fitted.unseen > 0).numpy() != Y).sum() > ((seen > 0).numpy() != Y).sum()


def test_a_width_counts_median_distances_of_the_group():
    fitted = KernelRidge(Kernels({"laplacian": 3.0}, ((2, 5),)), X, Y)
    part = X[:MEASURED, 2:]
    distances = np.abs(part[:, None] - part[None]).sum(2)
    ((group, name, gamma),) = fitted.terms
    assert (group, name) == (slice(2, 5), "laplacian")
    assert gamma * np.median(distances) == pytest.approx(3.0, rel=0.01)


def test_scores_do_not_depend_on_batch_neighbours():
    fitted = KernelRidge(KERNELS, X, Y)
    alone = torch.cat([fitted(torch.from_numpy(NEW[i : i + 1])) for i in range(len(NEW))])
    torch.testing.assert_close(alone, fitted(torch.from_numpy(NEW)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        (Kernels({"rbff": 1.0}), "Did you mean 'rbf'"),
        (Kernels({"rbf": 1.0}, ((0, 6),)), "within 0 and 5.*0 to 6"),
        (Kernels({"rbf": 1.0}, ((3, 3),)), "3 to 3"),
    ],
)
def test_what_cannot_be_is_refused(kernels, words):
    with pytest.raises(spen.InputError, match=words):
        KernelRidge(kernels, X, Y)
