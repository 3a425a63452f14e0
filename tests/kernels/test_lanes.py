"""The functions of lanes against torch in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from spen.energies.form import NONLINEARITIES

numba = pytest.importorskip("numba")

from spen.kernels.cpu import arithmetic  # noqa: E402
from spen.kernels.cpu.lanes import WIDTH, address, load, store  # noqa: E402
from spen.kernels.interface import KINDS  # noqa: E402


def apply(function: Callable[[Any], Any], inputs: np.ndarray) -> np.ndarray:
    """Run a function of lanes on an array whose size is a multiple of their width."""

    @numba.njit
    def over(inputs: np.ndarray, outputs: np.ndarray) -> None:
        for i in range(0, len(inputs), WIDTH):
            store(address(outputs), i, function(load(address(inputs), i)))

    outputs = np.empty_like(inputs)
    over(inputs, outputs)
    return outputs


def test_the_sigmoid_is_accurate_to_1e_6() -> None:
    duals = np.linspace(-15, 15, 40_000, dtype=np.float32)
    wanted = torch.from_numpy(duals).double().sigmoid().numpy()
    found = apply(arithmetic.sigmoid, duals)
    assert np.abs(found - wanted).max() < 2e-7
    # Small probabilities are right in their own scale too, which log losses look at.
    assert np.abs(found / wanted - 1).max() < 1e-6
    assert apply(arithmetic.sigmoid, np.zeros(WIDTH, np.float32)).tolist() == [0.5] * WIDTH
    assert np.isnan(apply(arithmetic.sigmoid, np.full(WIDTH, np.nan, np.float32))).all()


def test_the_logarithm_is_accurate() -> None:
    numbers = np.geomspace(1e-30, 1e30, 40_000, dtype=np.float32)
    wanted = np.log(numbers.astype(np.float64))
    np.testing.assert_allclose(apply(arithmetic.log, numbers), wanted, rtol=2e-7, atol=2e-7)


def test_the_logit_is_that_of_the_unit_box() -> None:
    shares = np.linspace(0, 1, 4000, dtype=np.float32)
    inside = torch.from_numpy(shares).clamp(1 / (1 + np.exp(15)), 1 - 1 / (1 + np.exp(15)))
    # At the limits it is the limit itself, which in single precision no share leads back to.
    wanted = torch.logit(inside.double()).clamp(-15, 15).numpy()
    np.testing.assert_allclose(apply(arithmetic.logit, shares), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", NONLINEARITIES)
def test_nonlinearities_and_their_slopes(name: str) -> None:
    # With kinks, and so far out that an exponential would overflow.
    edges = [-1e4, -100.0, -1.0, -0.5, 0.0, 0.5, 1.0, 100.0, 1e4]
    points = np.concatenate([np.linspace(-20, 20, 4007), edges]).astype(np.float32)
    kind = KINDS[name]

    @numba.njit
    def over(inputs: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> None:
        for i in range(0, len(inputs), WIDTH):
            z = load(address(inputs), i)
            value, slope = arithmetic.value_and_slope(kind, z)
            store(address(values), i, value)
            store(address(slopes), i, slope)

    values, slopes = np.empty_like(points), np.empty_like(points)
    over(points, values, slopes)
    z = torch.from_numpy(points).double()
    oracle = NONLINEARITIES[name]
    np.testing.assert_allclose(values, oracle.value(z).numpy(), rtol=1e-6, atol=2e-7)
    np.testing.assert_allclose(slopes, oracle.derivative(z).numpy(), rtol=1e-6, atol=2e-7)
