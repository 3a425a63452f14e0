"""What makes the host wait for a GPU, and how many operations a step takes, counted on a CPU."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import spen
from spen.inference.discrete import viterbi

WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "unique_consecutive", "_unique2"}
VIEWS = {
    "view",
    "_unsafe_view",
    "slice",
    "expand",
    "t",
    "transpose",
    "unsqueeze",
    "select",
    "alias",
}


class Counts(TorchDispatchMode):
    """Counts operations, and those that ask for numbers, so that a GPU's host would wait."""

    def __init__(self):
        super().__init__()
        self.waits = self.operations = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        by_mask = name.startswith("index") and any(
            each is not None and each.dtype == torch.bool
            for each in (args[1] if isinstance(args[1], list | tuple) else ())
        )
        self.waits += name in WAITS or by_mask
        self.operations += name not in VIEWS
        return function(*args, **(kwargs or {}))


class Readings(TorchFunctionMode):
    """Counts numbers that are read without an operation."""

    def __init__(self):
        super().__init__()
        self.waits = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.waits += getattr(function, "__name__", "") in ("tolist", "numpy", "cpu")
        return function(*args, **(kwargs or {}))


def counted(inference, energy):
    """Solve a batch of sequences; return what was counted."""
    context = spen.Context(
        torch.randn(8, 12, 3, generator=torch.Generator().manual_seed(0)),
        mask=torch.arange(12) < torch.tensor([12, 5, 1, 8, 3, 12, 7, 2])[:, None],
    )
    domain = spen.Simplex(4, positions=12)
    with torch.no_grad():
        problem = energy.bind(context) + spen.Entropy(domain).bind(context)
        with Counts() as counts, Readings() as readings:
            inference.solve(problem, domain)
    counts.waits += readings.waits
    return counts


ENERGY = spen.LocalEnergy(3, 4) + spen.ChainEnergy(4, [(0, 1)]) + spen.ConvolutionEnergy(4)
SOLVERS = {
    "unrolled": lambda stopping: spen.Descent(
        spen.MirrorDescent(0.5, 0.0), stopping, backward=spen.Unrolled()
    ),
    "stopping": lambda stopping: spen.Descent(spen.MirrorDescent(0.5, 0.0), stopping),
    "bundle": lambda stopping: spen.Descent(stopping=stopping),
    "structured": lambda stopping: spen.StructuredDescent(stopping=stopping),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_steps_without_tolerances_ask_for_no_number(name, monkeypatch):
    # The kernels for chains on a CPU read numbers, as it may.
    monkeypatch.setattr(viterbi, "machine_code", lambda *_: None)
    few, many = (counted(SOLVERS[name](spen.Stopping(n, 0.0, 0.0)), ENERGY) for n in (3, 9))
    assert few.waits == many.waits == 0
    assert few.operations < many.operations


def test_a_step_with_tolerances_does():
    few, many = (counted(spen.Descent(stopping=spen.Stopping(n, 1e-9)), ENERGY) for n in (3, 9))
    assert few.waits < many.waits


def test_a_step_of_a_tagger_takes_few_operations():
    few, many = (counted(SOLVERS["unrolled"](spen.Stopping(n, 0.0, 0.0)), ENERGY) for n in (3, 9))
    assert (many.operations - few.operations) / 6 <= 27
