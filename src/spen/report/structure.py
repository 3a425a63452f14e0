"""What the energy has learned about labels: its measurements, and its pairs beside the data's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spen.batch.context import Context
from spen.energies.base import Energy, add_problems, energy_terms
from spen.energies.local import LocalEnergy
from spen.errors import InputError
from spen.estimators.base import LabelClassifier
from spen.estimators.fit import densified
from spen.estimators.structure import LabelStructure
from spen.model import SPEN
from spen.report.subject import Subject, packed, rounded, shown_names

MOST_LABELS = 300
"""Labels of the overview; beyond, their order would take long and show nothing."""

NAMED_LABELS, NAMED_MEASUREMENTS = 40, 16
"""What is shown with names."""

LISTED_MEASUREMENTS, STRONGEST = 12, 4
"""Measurements of the table, and the labels that it names of each."""

SAMPLED_ROWS = 8
"""Rows over which what energies do with pairs is averaged."""

CANDIDATES = 100
"""Labels whose pairs are looked at."""

OF_EACH_SIGN, OF_EACH_LABEL = 16, 3
"""Pairs that a graph draws: of those that attract and of those that repel, and of one label."""

AT_ONCE = 1 << 20
"""Entries of y whose energies are computed together."""

LARGEST_WORK = 200_000_000
"""Entries of y whose energies are computed in all; of many labels, fewer pairs are looked at."""


def structure_facts(classifier: LabelClassifier) -> dict[str, Any] | None:
    """Return the measurement matrix sorted for the eye; None where the energy has none."""
    try:
        structure = classifier.structure()
    except InputError:
        return None
    names = shown_names(structure.label_names)
    count, total = structure.measurements.shape
    labels = strongest_labels(structure, MOST_LABELS)
    matrix, rows, columns = sorted_matrix(structure, np.arange(count), labels)
    small, small_rows, small_columns = sorted_matrix(
        structure,
        structure.by_strength()[:NAMED_MEASUREMENTS],
        np.sort(strongest_labels(structure, NAMED_LABELS)),
    )
    # The longer side lies across, as windows do.
    labels_across = len(columns) >= len(rows)
    across = matrix if labels_across else matrix.T
    # A few weights may be far larger; full colour begins where they do.
    limit = float(np.quantile(np.abs(matrix), 0.995)) or 1.0
    return {
        "measurements": count,
        "labels": total,
        "shown": len(labels),
        "matrix": {
            "limit": float(f"{limit:.3g}"),
            "names": [names[i] for i in columns],
            "rows": (rows + 1).tolist(),
            "labels_across": labels_across,
            "shape": list(across.shape),
            "values": packed(np.round(127 * np.clip(across / limit, -1, 1)), "i1"),
        },
        "named": {
            "names": [names[i] for i in small_columns],
            "rows": (small_rows + 1).tolist(),
            "matrix": rounded(small, 3),
        },
        "strongest": _listed_measurements(structure, names),
    }


def strongest_labels(structure: LabelStructure, count: int) -> np.ndarray:
    """Return the numbers of the labels with the largest weights in what counts."""
    weights = structure.measurements
    if _weighs_measurements(structure):
        weights = weights * structure.readout[:, None]
    return np.argsort(-np.linalg.norm(weights, axis=0), kind="stable")[:count]


def sorted_matrix(
    structure: LabelStructure, rows: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return part of the matrix with alike labels and alike measurements side by side.

    Beside it come the numbers of its measurements and of its labels, in that order.
    """
    part = replace(structure, measurements=structure.measurements[rows][:, columns])
    across = part.order()
    matrix = part.measurements[:, across]
    down = np.argsort(np.abs(matrix).argmax(1), kind="stable")
    return matrix[down], rows[down], columns[across]


def _listed_measurements(structure: LabelStructure, names: list[str]) -> list[dict[str, Any]]:
    """Return the measurements of the table, each with its readout and its strongest labels."""
    named = replace(structure, label_names=tuple(names))
    numbers = structure.by_strength()[:LISTED_MEASUREMENTS]
    top = named.strongest(STRONGEST)[:LISTED_MEASUREMENTS]
    weighs = _weighs_measurements(structure)
    return [
        {
            "measurement": int(number) + 1,
            "readout": float(f"{structure.readout[number]:.3g}") if weighs else None,
            "labels": [[name, round(weight, 3)] for name, weight in labels],
        }
        for number, labels in zip(numbers, top, strict=True)
    ]


def _weighs_measurements(structure: LabelStructure) -> bool:
    """Whether the readout weighs the measurements themselves, not a further layer."""
    return len(structure.readout) == len(structure.measurements)


def pair_facts(
    classifier: LabelClassifier, subject: Subject | None, labels: Any
) -> dict[str, Any] | None:
    """Return the strongest pairs of the energy, beside how the same labels meet in the data.

    Args:
        classifier: fitted; None is returned where its energy does not see labels together.
        subject: brings rows whose other labels stay as they are beside a pair; without it all
            others are off, and None is returned of energies that differ from row to row.
        labels: (n, L) the data's, or None where none are at hand.
    """
    model, terms = classifier.model_, global_terms(classifier.model_)
    names = shown_names(classifier.label_names_.tolist())
    if subject is not None:
        rows = np.arange(min(SAMPLED_ROWS, len(subject.judged.rows)))
        features = model.context(subject.scaled[rows]).features.detach()
        backgrounds = np.nan_to_num(subject.truth[rows])
        background = f"with all others as they are, averaged over {len(rows)} rows"
    elif any(term.n_features is not None for term in terms):
        return None
    else:
        features, backgrounds = model.reference.new_zeros(1, 0), np.zeros((1, len(names)))
        background = "with all others off"
    # Energies of 4 labellings a pair and row are computed, each of all labels.
    most = int(np.sqrt(LARGEST_WORK / (2 * backgrounds.size)))
    numbers = _labels_to_pair(classifier, labels)[: max(2, most)]
    if not terms or len(numbers) < 2:
        return None
    table = interactions(terms, numbers, features, backgrounds)
    first, second = np.triu_indices(len(numbers), 1)
    strength = table[first, second]
    top = _strongest_pairs(first, second, strength)
    nodes = np.unique(np.concatenate([first[top], second[top]]))
    facts: dict[str, Any] = {
        "looked_at": len(numbers),
        "labels": len(names),
        "names": [names[numbers[node]] for node in nodes],
        "energy": _links(
            np.searchsorted(nodes, first[top]), np.searchsorted(nodes, second[top]), strength[top]
        ),
        "background": background,
        "data": None,
    }
    if labels is None:
        return facts
    together, expected, phi = meetings(labels, numbers)
    inner_first, inner_second = np.triu_indices(len(nodes), 1)
    inner = phi[nodes[inner_first], nodes[inner_second]]
    best = _strongest_pairs(inner_first, inner_second, inner)
    return facts | {
        "together": together[first[top], second[top]].astype(int).tolist(),
        "expected": rounded(expected[first[top], second[top]], 1),
        "data": _links(inner_first[best], inner_second[best], inner[best]),
        "agree": int((strength[top] * phi[first[top], second[top]] < 0).sum()),
        "rows": labels.shape[0],
    }


def global_terms(model: SPEN) -> list[Energy]:
    """Return the energies that see labels together."""
    return [term for term in energy_terms(model.energy) if not isinstance(term, LocalEnergy)]


def _labels_to_pair(classifier: LabelClassifier, labels: Any) -> np.ndarray:
    """Return the labels whose pairs are looked at: of largest weights, or the frequent ones."""
    try:
        return strongest_labels(classifier.structure(), CANDIDATES)
    except InputError:
        if labels is None:
            return np.arange(min(CANDIDATES, len(classifier.label_names_)))
        count = np.asarray(np.nan_to_num(labels.sum(0))).ravel()
        return np.argsort(-count, kind="stable")[:CANDIDATES]


def _links(first: np.ndarray, second: np.ndarray, strength: np.ndarray) -> list[list[Any]]:
    """Return pairs as plain lists: the places of both labels, and the strength."""
    pairs = zip(first.tolist(), second.tolist(), strength, strict=True)
    return [[a, b, float(f"{value:.3g}")] for a, b, value in pairs]


def _strongest_pairs(first: np.ndarray, second: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """Return the numbers of the strongest pairs of both signs, no label too often."""
    chosen: list[int] = []
    for sign in (-1, 1):
        used = np.zeros(int(second.max(initial=0)) + 1, dtype=int)
        taken = 0
        for k in np.argsort(-sign * strength, kind="stable"):
            if taken == OF_EACH_SIGN or sign * strength[k] <= 0:
                break
            if max(used[first[k]], used[second[k]]) < OF_EACH_LABEL:
                used[[first[k], second[k]]] += 1
                taken += 1
                chosen.append(int(k))
    return np.array(sorted(chosen, key=lambda k: -abs(strength[k])), dtype=int)


@torch.no_grad()
def interactions(
    terms: list[Energy], numbers: np.ndarray, features: Tensor, backgrounds: np.ndarray
) -> np.ndarray:
    """Return what energies add when two labels are on together, (k, k): below zero they attract.

    It is E(both) − E(one) − E(other) + E(neither) with all other labels as a row has them,
    averaged over rows.

    Args:
        terms: the energies.
        numbers: (k,) the labels.
        features: (r, f) of the rows.
        backgrounds: (r, L) the labels of the rows.
    """
    first, second = np.triu_indices(len(numbers), 1)
    pairs = torch.from_numpy(np.stack([numbers[first], numbers[second]], axis=1))
    total = np.zeros(len(pairs))
    for k in range(len(backgrounds)):
        row = features[k : k + 1]
        y = torch.from_numpy(backgrounds[k : k + 1]).to(row)
        total += _second_differences(terms, row, y, pairs.to(row.device))
    table = np.zeros((len(numbers), len(numbers)))
    table[first, second] = total / len(backgrounds)
    return table + table.T


def _second_differences(
    terms: list[Energy], row: Tensor, background: Tensor, pairs: Tensor
) -> np.ndarray:
    """Return E(both) − E(one) − E(other) + E(neither) of each pair, for one row."""
    result = []
    for some in pairs.split(max(1, AT_ONCE // background.shape[1])):
        problem = add_problems([term.bind(Context(row.expand(len(some), -1))) for term in terms])
        y = background.repeat(len(some), 1)
        values = 0.0
        for one, other, sign in ((1, 1, 1), (1, 0, -1), (0, 1, -1), (0, 0, 1)):
            y.scatter_(1, some, y.new_tensor([[one, other]]).expand(len(some), -1))
            values = values + sign * problem.value(y).double()
        result.append(values.cpu().numpy())
    return np.concatenate(result)


def meetings(labels: Any, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how often labels are on together, how often by chance, and their φ coefficient.

    >>> together, expected, phi = meetings(np.array([[1, 1], [1, 1], [0, 0], [0, 0]]), np.arange(2))
    >>> float(together[0, 1]), float(expected[0, 1]), float(phi[0, 1])
    (2.0, 1.0, 1.0)
    """
    chosen = np.nan_to_num(densified(labels[:, numbers])).astype(np.float64)
    rows = max(1, len(chosen))
    together = chosen.T @ chosen
    share = chosen.sum(0) / rows
    expected = rows * np.outer(share, share)
    spread = np.sqrt(share * (1 - share))
    scale = np.outer(spread, spread)
    phi = np.divide(together / rows - expected / rows, scale, where=scale > 0, out=scale * 0)
    return together, expected, phi
