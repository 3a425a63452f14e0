"""Gathers all that a page says into one dictionary, which JSON can hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from spen.errors import InputError
from spen.estimators.base import LabelClassifier
from spen.files import versions
from spen.report.facts.convergence import convergence_facts
from spen.report.facts.examples import example_facts
from spen.report.facts.folder import folder_facts
from spen.report.facts.model import model_facts, score_facts
from spen.report.facts.pairs import CANDIDATES, global_terms, looks_at_features, pair_facts
from spen.report.facts.scores import calibration_facts, hardest_rows, label_scores
from spen.report.facts.structure import strongest_labels, structure_facts
from spen.report.facts.training import training_facts
from spen.report.names import common_beginning, shown_names
from spen.report.subject import Judged, Subject

SAMPLED_ROWS = 8
"""Rows over which what energies do with pairs is averaged."""

Facts = dict[str, Any]


def gather(
    title: str,
    classifier: LabelClassifier | None = None,
    judged: Judged | None = None,
    *,
    labels: Any = None,
    folder: Path | None = None,
) -> Facts:
    """Return what a page says about a model, about rows that judge it, about a run folder.

    Args:
        title: of the page.
        classifier: fitted; None where a folder is all there is.
        judged: rows with labels; without them the page has what the model alone tells.
        labels: (n, L) in which pairs of labels are counted; None takes those of ``judged``.
        folder: with records and pictures.
    """
    facts: Facts = {"title": title, "versions": versions(), "folder": None, "model": None}
    if folder is not None:
        facts["folder"] = folder_facts(folder)
    if classifier is None:
        return facts
    facts |= {"model": model_facts(classifier), "training": training_facts(classifier)}
    facts["beginning"] = common_beginning([str(name) for name in classifier.label_names_.tolist()])
    facts["structure"] = structure_facts(classifier)
    facts["rows"] = None
    if judged is None:
        facts["pairs"] = _pairs(classifier, None, None)
        return facts
    if not len(judged.rows):
        raise InputError(f"{judged.name} are no rows at all. Name data that have some.")
    subject = Subject(classifier, judged)
    facts["rows"] = {
        "name": judged.name,
        "count": len(judged.rows),
        "total": judged.total,
        "seen": int(classifier.seen_in_training(judged.rows.X).sum()),
        "cardinality": round(float(np.nansum(subject.truth) / len(judged.rows)), 2),
    }
    return facts | {
        "pairs": _pairs(classifier, subject, judged.rows.Y if labels is None else labels),
        "scores": score_facts(subject),
        "convergence": convergence_facts(subject),
        "examples": example_facts(subject),
        "labels": label_scores(subject),
        "calibration": calibration_facts(subject),
        "hardest": hardest_rows(subject),
    }


def _pairs(classifier: LabelClassifier, subject: Subject | None, labels: Any) -> Facts | None:
    model, terms = classifier.model_, global_terms(classifier.model_)
    names = shown_names(classifier.label_names_.tolist())
    features, backgrounds = model.reference.new_zeros(1, 0), None
    if subject is not None:
        rows = np.arange(min(SAMPLED_ROWS, len(subject.judged.rows)))
        features = model.context(subject.scaled[rows]).features.detach()
        backgrounds = np.nan_to_num(subject.truth[rows])
    elif looks_at_features(terms):
        return None
    try:
        numbers = strongest_labels(classifier.structure(), CANDIDATES)
    except InputError:
        numbers = np.arange(min(CANDIDATES, len(names)))
        if labels is not None:
            count = np.asarray(np.nan_to_num(labels.sum(0))).ravel()
            numbers = np.argsort(-count, kind="stable")[:CANDIDATES]
    return pair_facts(terms, names, numbers, features, backgrounds, labels)
