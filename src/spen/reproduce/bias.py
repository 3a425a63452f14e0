"""Label energies without the bias in C₁, to see what it is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spen.data.synthetic import exclusive_blocks
from spen.energies.base import energy_terms
from spen.energies.label import LabelEnergy
from spen.model import SPEN
from spen.reproduce.protocol import run
from spen.reproduce.settings import Method
from spen.reproduce.study import Study, tell
from spen.reproduce.table3 import methods_for

ROWS, TEST_ROWS = 1500, 10_000


class LinearMeasurements(LabelEnergy):
    """E(y) = c₂·g(C₁ y): a label energy whose measurements are linear, not affine.

    Args:
        n_labels: L.
        measurements: the number of rows of C₁.
        nonlinearity: g: relu, hardtanh, softplus or sigmoid.

    >>> energy = LinearMeasurements(4, measurements=2)
    >>> energy.bias.tolist(), energy.bias.requires_grad
    ([0.0, 0.0], False)
    """

    def __init__(self, n_labels: int, measurements: int, nonlinearity: str = "hardtanh") -> None:
        super().__init__(n_labels, measurements, nonlinearity)
        # What is frozen stays frozen in training, and here it starts at zero.
        self.bias.requires_grad_(False)


@dataclass(frozen=True)
class WithoutBias(Method):
    """A method whose label energy has linear measurements."""

    def build(self, n_inputs: int, n_labels: int, seed: int) -> SPEN:
        """Return a new model with the weights of the one with biases, which start at zero."""
        model = super().build(n_inputs, n_labels, seed)
        for term in energy_terms(model.energy):
            if isinstance(term, LabelEnergy):
                term.bias.requires_grad_(False)
        return model


def synthetic_f1(study: Study, nonlinearity: str, bias: bool) -> list[float]:
    """Return the F1 of Table 3's SPEN on the synthetic task, with or without the bias.

    Measurements start with weights of both signs and a bias of zero, so that the two differ
    in nothing else.
    """
    method = replace(methods_for(ROWS)["spen"], nonlinearity=nonlinearity, initial="signed")
    if not bias:
        method = WithoutBias(**vars(method))
    found = []
    for seed in range(study.seeds):
        data = exclusive_blocks(ROWS, TEST_ROWS, seed=seed)
        name = f"spen, {nonlinearity}, {'affine' if bias else 'linear'}"
        record = run(study.experiment, name, method, data, seed, study.records)
        tell(f"{name}, seed {seed}", {"synthetic": record})
        found.append(record["metrics"]["f1"])
    return found
