"""Which code runs: the fused kernel where one can, the general path elsewhere, and in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import spen
from spen.batch.context import Context
from spen.energies.form import Form
from spen.inference import fused
from spen.kernels import cpu

pytest.importorskip("numba")

BOX = spen.UnitBox(4)


def form(rows: int = 3, dtype: torch.dtype = torch.float32) -> Form:
    generator = torch.Generator().manual_seed(0)
    return Form(linear=torch.randn(rows, 4, generator=generator, dtype=dtype))


@pytest.mark.parametrize(
    "rule", [spen.MirrorBundle(), spen.MirrorDescent(), spen.ProjectedGradient()]
)
def test_auto_takes_the_kernel_and_says_so(rule: spen.Rule) -> None:
    solution = spen.Descent(rule).solve(form(), BOX)
    assert solution.backend == "fused-cpu"
    general = spen.Descent(rule, backend="general").solve(form(), BOX)
    assert general.backend == "general"
    torch.testing.assert_close(solution.energy, general.energy, rtol=1e-4, atol=1e-5)
    assert torch.equal(solution.steps, general.steps)


class Deep(spen.Energy):
    """An energy without a canonical form."""

    n_labels, n_features = 4, 4

    def forward(self, features: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (features * y).sum(1) + y.prod(1)


class OwnRule(spen.MirrorDescent):
    """A subclass, which may step in any way."""


DEEP = Deep().bind(Context(torch.zeros(3, 4)))
BATCH = spen.Stopping(scope="batch")
CASES: dict[str, tuple[dict[str, Any], spen.Problem, spen.Domain, str]] = {
    "trace": ({"trace": True}, form(), BOX, "no trace"),
    "batch": ({"stopping": BATCH}, form(), BOX, "each example by itself"),
    "fraction": ({"stopping": spen.Stopping(fraction=0.5)}, form(), BOX, "fraction=1"),
    "domain": ({}, form(), spen.Simplex(4), "Simplex"),
    "form": ({}, DEEP, BOX, "no canonical form"),
    "rule": ({"rule": OwnRule()}, form(), BOX, "OwnRule"),
    "float64": ({}, form(dtype=torch.float64), BOX, "float64"),
    "unrolled": ({"backward": spen.Unrolled()}, form(), BOX, "cannot be differentiated"),
}


@pytest.mark.parametrize("name", CASES)
def test_where_no_kernel_can_auto_goes_on_and_fused_says_why(name: str) -> None:
    settings, problem, domain, reason = CASES[name]
    assert spen.Descent(**settings).solve(problem, domain).backend == "general"
    with pytest.raises(spen.InputError, match=reason):
        spen.Descent(**settings, backend="fused").solve(problem, domain)


@pytest.fixture
def fresh_look_at_numba() -> Iterator[None]:
    cpu.trouble_with_numba.cache_clear()
    yield
    cpu.trouble_with_numba.cache_clear()


@pytest.mark.usefixtures("fresh_look_at_numba")
def test_without_numba_the_general_path_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "find_spec", lambda name: None)
    assert spen.Descent().solve(form(), BOX).backend == "general"
    with pytest.raises(spen.InputError, match=r"spen\[fast\]"):
        spen.Descent(backend="fused").solve(form(), BOX)


@pytest.mark.usefixtures("fresh_look_at_numba")
def test_with_a_broken_numba_the_general_path_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ImportError("Numba needs NumPy 2.0 or less")

    monkeypatch.setattr(cpu, "import_module", broken)
    assert spen.Descent().solve(form(), BOX).backend == "general"
    with pytest.raises(spen.InputError, match=r"NumPy 2.0 or less"):
        spen.Descent(backend="fused").solve(form(), BOX)


def test_a_device_without_a_kernel_takes_the_general_path() -> None:
    form = Form(linear=torch.zeros(1, 2, device="meta"))
    start = torch.zeros(1, 2, device="meta")
    with torch.no_grad():
        reason = fused.solve_fused(spen.Descent(), form, spen.UnitBox(2), start, None)
    assert reason == "there is no kernel for the device 'meta'"


def test_a_wrong_name_is_refused() -> None:
    with pytest.raises(spen.InputError, match="fused"):
        spen.Descent(backend="fuse")  # type: ignore[arg-type]


def test_known_labels_and_a_start_reach_the_kernel() -> None:
    known = torch.tensor([[1.0, torch.nan, torch.nan, 0.0]]).repeat(3, 1)
    solution = spen.Descent(backend="fused").solve(form(), BOX, torch.full((3, 4), 0.9), known)
    assert (solution.y[:, 0] == 1).all()
    assert (solution.y[:, 3] == 0).all()
    with pytest.raises(spen.InputError, match="only 0 and 1"):
        spen.Descent(backend="fused").solve(form(), BOX, known=torch.full((3, 4), 0.5))


def model() -> tuple[spen.SPEN, np.ndarray, np.ndarray]:
    energy = spen.LocalEnergy(8, 6) + spen.LabelEnergy(6, 4, "softplus")
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(40, 5)).astype(np.float32)
    labels = (generator.random((40, 6)) < 0.4).astype(np.float32)
    return spen.SPEN(spen.MLP(5, 8), energy, spen.UnitBox(6), seed=0), inputs, labels


@pytest.mark.parametrize("delta", ["hamming", "squared"])
def test_the_hinge_uses_the_kernel_and_learns_the_same(
    delta: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, inputs, labels = model()
    ran: list[str] = []
    solve = spen.Descent.solve

    def spy(*args: Any, **kwargs: Any) -> spen.Solution:
        solution = solve(*args, **kwargs)
        ran.append(solution.backend)
        return solution

    monkeypatch.setattr(spen.Descent, "solve", spy)
    labels[0, 0] = np.nan  # so that a target has to be completed, too
    gradients = []
    for backend in ("fused", "general"):
        net.zero_grad()
        context = net.context(inputs, target=labels)
        descent = spen.Descent(stopping=spen.Stopping(20, 0, 0), backend=backend)  # type: ignore[arg-type]
        spen.Hinge(delta=delta).loss(net, descent, context).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in net.parameters()])  # type: ignore[union-attr]
    assert ran == ["fused-cpu"] * 2 + ["general"] * 2
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_a_model_predicts_by_the_kernel_in_any_batch() -> None:
    net, inputs, _ = model()
    whole = net.solve(inputs)
    assert whole.backend == "fused-cpu"
    alone = net.solve(inputs[7:8])
    torch.testing.assert_close(alone.y[0], whole.y[7], rtol=0, atol=1e-5)
