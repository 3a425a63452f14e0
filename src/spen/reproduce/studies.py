"""The studies of where the energy pays, by the name that ``--study`` takes."""

from __future__ import annotations

from collections.abc import Callable

from spen.reproduce.ablation import ablation
from spen.reproduce.known_labels import known_labels
from spen.reproduce.learning_curves import learning_curves
from spen.reproduce.width import width

STUDIES: dict[str, Callable[..., None]] = {
    "learning-curves": learning_curves,
    "width": width,
    "known-labels": known_labels,
    "ablation": ablation,
}
"""Each takes ``dataset``, ``seeds``, ``device`` and ``out``, and prints and draws by itself."""
