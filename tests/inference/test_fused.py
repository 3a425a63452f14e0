"""Steps by torch.compile: the same answers, and one notice where nothing can be compiled."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator

import pytest
import torch

import spen
from spen.batch.context import Context
from spen.inference import descent, fused

BOX = spen.UnitBox(5)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    fused.compiled.cache_clear()
    yield
    fused.compiled.cache_clear()


def problem(rows: int = 40) -> spen.Problem:
    torch.manual_seed(0)
    deep = spen.LabelEnergy(5, measurements=3, nonlinearity="softplus", hidden=(4,))
    return deep.bind(Context(torch.zeros(rows, 1))) + spen.Form(linear=torch.randn(rows, 5))


def solve(backend: str, rows: int = 40) -> spen.Solution:
    with torch.no_grad():
        return spen.Descent(backend=backend).solve(problem(rows), BOX)  # type: ignore[arg-type]


def test_compiled_steps_are_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only the capturing is compiled here: making machine code takes half a minute.
    captured = functools.partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", captured)
    plain, fast = solve("general"), solve("compiled")
    assert (plain.backend, fast.backend) == ("general", "compiled")
    torch.testing.assert_close(fast.y, plain.y)
    assert torch.equal(fast.steps, plain.steps)
    assert fused.compiled.cache_info().currsize == 1
    assert not fused.compiled(descent.Work.advance).failed
    assert fused.compiled.cache_info().currsize == 1, "this must be the step that was made"


def test_without_a_compiler_it_is_said_once_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(step: object, **_: object) -> object:
        def fail(*_: object) -> None:
            raise RuntimeError("No working C++ compiler found\nand a long story")

        return fail

    monkeypatch.setattr(torch, "compile", no_compiler)
    with pytest.warns(RuntimeWarning, match="uncompiled: No working C\\+\\+ compiler found$"):
        first = solve("compiled")
    torch.testing.assert_close(first.y, solve("general").y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve("compiled")


def test_an_error_of_the_energy_is_the_energys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(spen.Energy):
        n_labels, n_features = 5, 5

        def forward(self, features: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            raise ArithmeticError("my own mistake")

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    broken = Broken().bind(Context(torch.zeros(2, 5)))
    with torch.no_grad(), pytest.raises(ArithmeticError, match="my own mistake"):
        spen.Descent(backend="compiled").solve(broken, BOX)
