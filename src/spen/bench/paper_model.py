"""The model that is measured unless the user names another: the paper's, on Bibtex."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from spen.batch.splits import Split, hold_out
from spen.bench.generated import words_and_tags
from spen.bench.notes import note
from spen.bench.subject import Subject
from spen.data.catalog import find
from spen.data.dataset import Dataset
from spen.errors import SpenError
from spen.estimators.base import LabelClassifier
from spen.estimators.model_file import load
from spen.reproduce.classifiers import classifier, dataset_of, settings_of

HELD_OUT = 0.2
SHORTER = 8
"""By how much training is shortened on generated rows, which nobody wants to wait for."""


def paper_subject(out: Path, device: torch.device) -> Subject:
    """Return the paper's model of Bibtex, trained now or, where it is kept, before.

    It learns from four fifths of the training rows; the others judge. Without Bibtex at hand,
    rows of its shape are generated, and training is shortened.

    Args:
        out: the folder where ``paper.spen`` is kept.
        device: where to train and to measure.
    """
    if find("bibtex") is not None:
        return subject_on(dataset_of("bibtex"), out, device)
    note(
        "Bibtex is not at hand (spen data fetch bibtex), so rows of its shape are generated and "
        "training is shortened."
    )
    return subject_on(words_and_tags(), out, device, shorter=SHORTER)


def subject_on(data: Dataset, out: Path, device: torch.device, shorter: int = 1) -> Subject:
    """Train the paper's model on a data set, or find it in a folder.

    Args:
        data: with sparse rows.
        out: the folder where ``paper.spen`` is kept.
        device: where to train and to measure.
        shorter: by how much to divide the epochs of each stage.
    """
    fitted, kept = paper_model(data, out / "paper.spen", device, shorter=shorter)
    size = f"{data.train.X.shape[1]:,} features, {len(data.label_names)} labels"
    words = f"the paper's SPEN on {data.name} ({size}), trained on {len(kept):,} rows"
    return Subject.of(fitted, data, words if shorter == 1 else f"{words} for a short while")


def paper_model(
    data: Dataset,
    path: Path,
    device: torch.device,
    *,
    settings: str = "bibtex",
    seed: int = 0,
    shorter: int = 1,
) -> tuple[LabelClassifier, Split]:
    """Return the paper's model, trained on four fifths of the training rows, and those rows.

    Args:
        data: with sparse rows.
        path: where the model is kept, once it is trained.
        device: where to train.
        settings: the data set whose settings of Table 1 are taken.
        seed: of the training.
        shorter: by how much to divide the epochs of each stage.
    """
    kept, _ = hold_out(data.train, HELD_OUT, seed=0)
    fitted = _kept_model(path, kept.X, device)
    if fitted is None:
        table = settings_of(settings)["spen-paper"]
        where = f"table1.toml, [{settings}.spen-paper]"
        stages = [s | {"epochs": max(1, s["epochs"] // shorter)} for s in table["stages"]]
        changes: dict[str, Any] = {"folds": 1, "stages": stages}
        fitted = classifier(table, seed=seed, device=str(device), where=where, **changes)
        note(f"Training the paper's model on {data.name} once; it is kept in {path}.")
        fitted.set_params(verbose=1)
        names = {"label_names": data.label_names, "feature_names": data.feature_names}
        fitted.fit(kept.X, kept.Y, **names)
        fitted.save(path)
    return fitted, kept


def _kept_model(path: Path, rows: Any, device: torch.device) -> LabelClassifier | None:
    """Return the model of an earlier bench, if it was trained on these rows."""
    if not path.exists():
        return None
    try:
        fitted = load(path, str(device))
        fits = fitted.n_features_in_ == rows.shape[1] and fitted.seen_in_training(rows).all()
    except SpenError as problem:
        note(f"{problem} It is trained anew.")
        return None
    return fitted if fits else None
