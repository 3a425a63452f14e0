"""Pairs of labels: what the energy does with them, and how often the data have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from spen.batch.context import Context
from spen.energies.base import Energy, add_problems, energy_terms
from spen.energies.local import LocalEnergy
from spen.estimators.fit import densified
from spen.model import SPEN
from spen.report.facts.arrays import rounded

CANDIDATES = 100
"""Labels whose pairs are looked at."""

OF_EACH_SIGN, OF_EACH_LABEL = 16, 3
"""Pairs that a graph draws: of those that attract and of those that repel, and of one label."""

AT_ONCE = 1 << 20
"""Entries of y whose energies are computed together."""

LARGEST_WORK = 200_000_000
"""Entries of y whose energies are computed in all; of many labels, fewer pairs are looked at."""


def global_terms(model: SPEN) -> list[Energy]:
    """Return the energies that see labels together."""
    return [term for term in energy_terms(model.energy) if not isinstance(term, LocalEnergy)]


def looks_at_features(terms: list[Energy]) -> bool:
    """Whether what the energies do with labels differs from row to row."""
    return any(term.n_features is not None for term in terms)


def pair_facts(
    terms: list[Energy],
    names: list[str],
    numbers: np.ndarray,
    features: Tensor,
    backgrounds: np.ndarray | None,
    labels: Any,
) -> dict[str, Any] | None:
    """Return the strongest pairs of the energy, beside how the same labels meet in the data.

    Args:
        terms: the energies that see labels together; without any, None is returned.
        names: of all labels.
        numbers: the labels to look at, the most interesting first.
        features: (r, f) of some rows.
        backgrounds: (r, L) the labels of those rows, which stay as they are beside a pair; None
            for all labels off.
        labels: (n, L) the data's, or None where none are at hand.
    """
    rows = 1 if backgrounds is None else len(backgrounds)
    # Energies of 4 labellings a pair and row are computed, each of all labels.
    most = int(np.sqrt(LARGEST_WORK / (2 * rows * len(names))))
    numbers = numbers[: max(2, most)]
    if not terms or len(numbers) < 2:
        return None
    table = interactions(terms, numbers, features, backgrounds, len(names))
    first, second = np.triu_indices(len(numbers), 1)
    strength = table[first, second]
    top = _strongest(first, second, strength)
    nodes = np.unique(np.concatenate([first[top], second[top]]))
    place = {int(node): k for k, node in enumerate(nodes)}
    energy = [[place[int(first[k])], place[int(second[k])], float(strength[k])] for k in top]
    facts: dict[str, Any] = {
        "looked_at": len(numbers),
        "labels": len(names),
        "names": [names[numbers[node]] for node in nodes],
        "energy": [[a, b, float(f"{value:.3g}")] for a, b, value in energy],
        "background": "with all others off"
        if backgrounds is None
        else f"with all others as they are, averaged over {rows} rows",
        "data": None,
    }
    if labels is None:
        return facts
    together, expected, phi = meetings(labels, numbers)
    facts["together"] = [int(together[first[k], second[k]]) for k in top]
    facts["expected"] = rounded([expected[first[k], second[k]] for k in top], 1)
    inner_first, inner_second = np.triu_indices(len(nodes), 1)
    inner = phi[nodes[inner_first], nodes[inner_second]]
    best = _strongest(inner_first, inner_second, inner)
    facts["data"] = [
        [int(inner_first[k]), int(inner_second[k]), float(f"{inner[k]:.3g}")] for k in best
    ]
    facts["agree"] = int(sum(strength[k] * phi[first[k], second[k]] < 0 for k in top))
    facts["rows"] = labels.shape[0]
    return facts


def _strongest(first: np.ndarray, second: np.ndarray, strength: np.ndarray) -> np.ndarray:
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
    terms: list[Energy],
    numbers: np.ndarray,
    features: Tensor,
    backgrounds: np.ndarray | None,
    size: int,
) -> np.ndarray:
    """Return what energies add when two labels are on together, (k, k): below zero they attract.

    It is E(both) − E(one) − E(other) + E(neither) with all other labels as a row has them,
    averaged over rows.
    """
    first, second = np.triu_indices(len(numbers), 1)
    pairs = torch.from_numpy(np.stack([numbers[first], numbers[second]], axis=1))
    total = np.zeros(len(pairs))
    rows = 1 if backgrounds is None else len(backgrounds)
    for k in range(rows):
        row = features[k : k + 1]
        y = row.new_zeros(1, size)
        if backgrounds is not None:
            y = torch.from_numpy(backgrounds[k : k + 1]).to(row)
        total += _second_differences(terms, row, y, pairs.to(row.device))
    table = np.zeros((len(numbers), len(numbers)))
    table[first, second] = total / rows
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
