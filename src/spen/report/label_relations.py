"""Relations of labels that an energy has learned: its measurements, its pairs beside the data's."""

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
from spen.estimators.structure import LabelStructure
from spen.metrics import as_array
from spen.model import SPEN
from spen.report.subject import Subject, rounded, shown_names

NAMED_LABELS, NAMED_MEASUREMENTS = 24, 12
"""What a heat map shows, so that names are legible on a phone too."""

MOST_GROUPS = 6
"""Groups of labels in a heat map."""

LISTED_MEASUREMENTS, STRONGEST = 12, 4
"""Measurements of the table, and the labels that it names of each."""

SAMPLED_ROWS = 8
"""Rows over which what energies do with pairs is averaged."""

CANDIDATES = 100
"""Labels whose pairs are looked at."""

OF_EACH_SIGN, OF_EACH_LABEL = 10, 2
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
    structure = replace(structure, label_names=tuple(shown_names(structure.label_names)))
    count, total = structure.measurements.shape
    by_strength, labels = structure.by_strength(), strongest_labels(structure, NAMED_LABELS)
    chosen = by_strength[:NAMED_MEASUREMENTS]
    groups = groups_of(structure.measurements[:, labels])
    matrix = structure.measurements[chosen][:, labels[np.concatenate(groups)]]
    # Measurements of the same labels stand side by side.
    down = np.argsort(np.abs(matrix).argmax(1), kind="stable")
    weighs = _weighs_measurements(structure)
    listed = by_strength[:LISTED_MEASUREMENTS].tolist()
    return {
        "measurements": count,
        "labels": total,
        "named": {
            "groups": [[structure.label_names[i] for i in labels[group]] for group in groups],
            "rows": (chosen[down] + 1).tolist(),
            "matrix": rounded(matrix[down], 3),
            "largest": round(float(np.abs(matrix).max()), 3) or 1.0,
        },
        "strongest": [
            {
                "measurement": number + 1,
                "readout": float(f"{structure.readout[number]:.3g}") if weighs else None,
                "labels": [[name, round(weight, 3)] for name, weight in weights],
            }
            for number, weights in zip(listed, structure.strongest(STRONGEST), strict=False)
        ],
    }


def strongest_labels(structure: LabelStructure, count: int) -> np.ndarray:
    """Return the numbers of the labels with the largest weights in what counts."""
    weights = structure.measurements
    if _weighs_measurements(structure):
        weights = weights * structure.readout[:, None]
    return np.argsort(-np.linalg.norm(weights, axis=0), kind="stable")[:count]


def groups_of(weights: np.ndarray) -> list[np.ndarray]:
    """Return the labels of weights (m, k) in groups that are measured alike, alike ones in turn.

    There are as many groups, up to a few, as stand apart most clearly.

    >>> [group.tolist() for group in groups_of(np.array([[1, 0, 2, 0, 1], [0, 3, 0, 1, 0]]))]
    [[1, 3], [0, 2, 4]]
    """
    from scipy.cluster.hierarchy import fcluster, leaves_list, linkage

    labels = weights.shape[1]
    if labels < 3:
        return [np.arange(labels)]
    norms = np.linalg.norm(weights, axis=0)
    tree = linkage((weights / np.where(norms > 0, norms, 1.0)).T, "ward", optimal_ordering=True)
    # Between one merge and the next, from the last on: as many groups as steps back.
    apart = -np.diff(tree[::-1, 2])[: MOST_GROUPS - 1]
    number = fcluster(tree, 2 + int(apart.argmax()), "maxclust")
    leaves = leaves_list(tree)
    return np.split(leaves, np.flatnonzero(np.diff(number[leaves])) + 1)


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
    pairs, strength = strongest_pairs(interactions(terms, numbers, features, backgrounds))
    nodes, ends = np.unique(pairs, return_inverse=True)
    ends = ends.reshape(pairs.shape)
    facts: dict[str, Any] = {
        "looked_at": len(numbers),
        "labels": len(names),
        "among": len(numbers) * (len(numbers) - 1) // 2,
        "names": [names[number] for number in numbers[nodes]],
        "groups": linked_groups(ends[strength < 0], len(nodes)),
        "energy": _links(ends, strength),
        "background": background,
        "data": None,
    }
    if labels is None:
        return facts
    together, expected, phi = meetings(labels, numbers[nodes])
    of_pairs = tuple(ends.T)
    return facts | {
        "together": together[of_pairs].astype(int).tolist(),
        "expected": rounded(expected[of_pairs], 1),
        "data": _links(*strongest_pairs(phi)),
        "agree": int((strength * phi[of_pairs] < 0).sum()),
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


def strongest_pairs(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the strongest pairs of a symmetric (k, k) of both signs, no label too often.

    They are (p, 2), with their strengths (p,), the strongest first.

    >>> strongest_pairs(np.array([[0.0, 1.0, -2.0], [1.0, 0.0, 0.0], [-2.0, 0.0, 0.0]]))
    (array([[0, 2],
           [0, 1]]), array([-2.,  1.]))
    """
    pairs = np.stack(np.triu_indices(len(table), 1), axis=1)
    strength = table[tuple(pairs.T)]
    chosen: list[int] = []
    for sign in (-1, 1):
        used, left = np.zeros(len(table), dtype=int), OF_EACH_SIGN
        for k in np.argsort(-sign * strength, kind="stable"):
            if not left or sign * strength[k] <= 0:
                break
            if used[pairs[k]].max() < OF_EACH_LABEL:
                used[pairs[k]] += 1
                left -= 1
                chosen.append(int(k))
    order = np.array(sorted(chosen, key=lambda k: -abs(strength[k])), dtype=int)
    return pairs[order], strength[order]


def linked_groups(links: np.ndarray, nodes: int) -> list[list[int]]:
    """Return nodes in groups that links join, linked ones in turn; those without any come last.

    >>> linked_groups(np.array([[0, 3], [3, 1]]), 5)
    [[0, 3, 1], [2, 4]]
    """
    near: list[list[int]] = [[] for _ in range(nodes)]
    for one, other in links.tolist():
        near[one].append(other)
        near[other].append(one)
    groups, seen = [], set()
    # From the end of a chain, all of it is passed in turn.
    for first in sorted(range(nodes), key=lambda node: len(near[node])):
        group, ahead = [], [first] if near[first] else []
        while ahead:
            node = ahead.pop()
            if node not in seen:
                seen.add(node)
                group.append(node)
                ahead += near[node]
        groups.append(group)
    alone = [node for node in range(nodes) if node not in seen]
    return [group for group in [*sorted(groups, key=len, reverse=True), alone] if group]


def _links(pairs: np.ndarray, strength: np.ndarray) -> list[list[Any]]:
    """Return pairs as plain lists: the places of both labels, and the strength."""
    return [
        [*pair, float(f"{value:.3g}")] for pair, value in zip(pairs.tolist(), strength, strict=True)
    ]


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
    pairs, at_once = pairs.to(features.device), max(1, AT_ONCE // backgrounds.shape[1])
    total = features.new_zeros(len(pairs), dtype=torch.float64)
    for row, background in zip(features, torch.from_numpy(backgrounds).to(features), strict=True):
        for some, part in zip(pairs.split(at_once), total.split(at_once), strict=True):
            context = Context(row.expand(len(some), -1))
            problem = add_problems([term.bind(context) for term in terms])
            y, difference = background.repeat(len(some), 1), torch.zeros_like(part)
            for one, other, sign in ((1, 1, 1), (1, 0, -1), (0, 1, -1), (0, 0, 1)):
                y.scatter_(1, some, y.new_tensor([[one, other]]).expand(len(some), -1))
                difference += sign * problem.value(y).double()
            part += difference
    table = np.zeros((len(numbers), len(numbers)))
    table[first, second] = total.cpu().numpy() / len(backgrounds)
    return table + table.T


def meetings(labels: Any, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how often labels are on together, how often by chance, and their φ coefficient.

    >>> together, expected, phi = meetings(np.array([[1, 1], [1, 1], [0, 0], [0, 0]]), np.arange(2))
    >>> float(together[0, 1]), float(expected[0, 1]), float(phi[0, 1])
    (2.0, 1.0, 1.0)
    """
    chosen = np.nan_to_num(as_array(labels[:, numbers]))
    rows = max(1, len(chosen))
    together = chosen.T @ chosen
    share = chosen.sum(0) / rows
    expected = rows * np.outer(share, share)
    spread = np.sqrt(share * (1 - share))
    scale = np.outer(spread, spread)
    phi = np.divide(together / rows - expected / rows, scale, where=scale > 0, out=scale * 0)
    return together, expected, phi
