"""What the energy has learned about labels: its measurements, in an order that shows blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from spen.errors import InputError
from spen.estimators.base import LabelClassifier
from spen.estimators.structure import LabelStructure
from spen.report.facts.arrays import packed, rounded
from spen.report.names import shown_names

MOST_LABELS = 300
"""Labels of the overview; beyond, their order would take long and show nothing."""

NAMED_LABELS, NAMED_MEASUREMENTS = 40, 16
"""What is shown with names."""

LISTED_MEASUREMENTS, STRONGEST = 12, 4
"""Measurements of the table, and the labels that it names of each."""


def structure_facts(classifier: LabelClassifier) -> dict[str, Any] | None:
    """Return the measurement matrix sorted for the eye; None where the energy has none."""
    try:
        structure = _with_shown_names(classifier.structure())
    except InputError:
        return None
    most = min(MOST_LABELS, structure.measurements.shape[1])
    labels = strongest_labels(structure, most)
    matrix, rows, columns = sorted_matrix(_part(structure, labels))
    labels_across = matrix.shape[1] >= matrix.shape[0]
    named = np.sort(strongest_labels(structure, NAMED_LABELS))
    by_say = structure.by_say()[:NAMED_MEASUREMENTS]
    small = replace(
        _part(structure, named),
        measurements=structure.measurements[by_say][:, named],
        readout=structure.readout[by_say] if _weighs(structure) else structure.readout,
    )
    named_matrix, named_rows, named_columns = sorted_matrix(small)
    # A few weights may be far larger; full colour begins where they do.
    limit = float(np.quantile(np.abs(matrix), 0.995)) or 1.0
    return {
        "measurements": len(structure.measurements),
        "labels": structure.measurements.shape[1],
        "shown": len(labels),
        "limit": float(f"{limit:.3g}"),
        "names": [structure.label_names[labels[i]] for i in columns],
        "rows": (rows + 1).tolist(),
        # The longer side lies across, as windows do.
        "labels_across": labels_across,
        "shape": list(matrix.shape if labels_across else matrix.T.shape),
        "values": packed(
            np.round(127 * np.clip((matrix if labels_across else matrix.T) / limit, -1, 1)), "i1"
        ),
        "named": {
            "names": [structure.label_names[named[i]] for i in named_columns],
            "rows": [int(by_say[i]) + 1 for i in named_rows],
            "matrix": rounded(named_matrix, 3),
        },
        "strongest": _strongest(structure),
    }


def strongest_labels(structure: LabelStructure, count: int) -> np.ndarray:
    """Return the numbers of the labels with the largest weights in what counts."""
    weights = structure.measurements
    if _weighs(structure):
        weights = weights * structure.readout[:, None]
    return np.argsort(-np.linalg.norm(weights, axis=0), kind="stable")[:count]


def sorted_matrix(structure: LabelStructure) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrix with alike labels and alike measurements side by side, and both orders."""
    columns = structure.order()
    matrix = structure.measurements[:, columns]
    rows = np.argsort(np.abs(matrix).argmax(1), kind="stable")
    return matrix[rows], rows, columns


def _strongest(structure: LabelStructure) -> list[dict[str, Any]]:
    numbers = structure.by_say()[:LISTED_MEASUREMENTS]
    top = structure.strongest(STRONGEST)[:LISTED_MEASUREMENTS]
    return [
        {
            "measurement": int(number) + 1,
            "readout": float(f"{structure.readout[number]:.3g}") if _weighs(structure) else None,
            "labels": [[name, round(weight, 3)] for name, weight in labels],
        }
        for number, labels in zip(numbers, top, strict=True)
    ]


def _part(structure: LabelStructure, labels: np.ndarray) -> LabelStructure:
    names = tuple(structure.label_names[i] for i in labels)
    return replace(structure, measurements=structure.measurements[:, labels], label_names=names)


def _with_shown_names(structure: LabelStructure) -> LabelStructure:
    return replace(structure, label_names=tuple(shown_names(structure.label_names)))


def _weighs(structure: LabelStructure) -> bool:
    """Whether the readout weighs the measurements themselves, not a further layer."""
    return len(structure.readout) == len(structure.measurements)
