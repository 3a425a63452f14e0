"""A self-contained HTML file on a model: no network, readable without a script.

``gather`` puts all that a page says into one plain dictionary; the template says it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from spen.errors import InputError
from spen.estimators.base import LabelClassifier
from spen.estimators.compare import SCORES, Comparison, in_percent
from spen.estimators.tagger import Tagger
from spen.files import versions, write_atomically
from spen.report import charts, scores, tag_scores
from spen.report.examples import example_facts
from spen.report.folder import folder_facts
from spen.report.label_relations import pair_facts, structure_facts
from spen.report.model import model_facts, tagger_facts, tagger_training, training_facts
from spen.report.sentences import (
    JudgedSentences,
    TagSubject,
    sentence_facts,
    transition_facts,
)
from spen.report.subject import Judged, Subject, common_beginning, isolated

ASSETS = ("page.css", "elements.js", "solver.js", "player.js", "chain.js", "tagging.js", "page.js")

Facts = dict[str, Any]


def gather(
    title: str,
    classifier: LabelClassifier | None = None,
    judged: Judged | None = None,
    *,
    labels: Any = None,
    folder: Path | None = None,
    comparison: Comparison | None = None,
) -> Facts:
    """Return what a page says about a model, about rows that judge it, about a run folder.

    Args:
        title: of the page.
        classifier: fitted; None where a folder is all there is.
        judged: rows with labels; without them the page has what the model alone tells.
        labels: (n, L) in which pairs of labels are counted; None takes those of ``judged``.
        folder: with records and pictures.
        comparison: with other classifiers.
    """
    facts: Facts = {"title": title, "versions": versions(), "folder": None, "model": None}
    facts["comparison"] = None if comparison is None else comparison_facts(comparison)
    if folder is not None:
        facts["folder"] = folder_facts(folder)
    if classifier is None:
        return facts
    facts |= {"model": model_facts(classifier), "training": training_facts(classifier)}
    facts["beginning"] = common_beginning([str(name) for name in classifier.label_names_.tolist()])
    facts["structure"] = structure_facts(classifier)
    if judged is None:
        return facts | {"rows": None, "pairs": pair_facts(classifier, None, None)}
    if not len(judged.rows):
        raise InputError(f"{judged.name} are no rows at all. Name data that have some.")
    subject = Subject(classifier, judged)
    remembered = classifier.training_rows_
    facts["rows"] = {
        "name": judged.name,
        "count": len(judged.rows),
        "total": judged.total,
        "seen": int(remembered.contains(judged.rows.X).sum()) if remembered else None,
        "cardinality": round(float(np.nansum(subject.truth) / len(judged.rows)), 2),
    }
    return facts | {
        "pairs": pair_facts(classifier, subject, judged.rows.Y if labels is None else labels),
        "scores": scores.score_facts(subject),
        "convergence": scores.convergence_facts(subject),
        "examples": example_facts(subject),
        "labels": scores.label_scores(subject),
        "calibration": scores.calibration_facts(subject),
        "hardest": scores.hardest_rows(subject),
    }


def gather_tagger(
    title: str,
    tagger: Tagger,
    judged: JudgedSentences | None = None,
    *,
    folder: Path | None = None,
) -> Facts:
    """Return what a page says about a tagger, and about sentences that judge it.

    Args:
        title: of the page.
        tagger: fitted.
        judged: sentences with tags; without them the page has what the model alone tells.
        folder: with records and pictures.
    """
    facts: Facts = {
        "title": title,
        "versions": versions(),
        "folder": None if folder is None else folder_facts(folder),
        "model": tagger_facts(tagger),
        "training": tagger_training(tagger),
        "transitions": transition_facts(tagger, judged),
        "rows": None,
        "sentences": None,
    }
    if judged is None:
        return facts
    subject, lengths = TagSubject(tagger, judged), list(map(len, judged.X))
    found = tag_scores.tag_rows(subject)
    facts["rows"] = {
        "name": judged.name,
        "count": len(judged.X),
        "total": judged.total,
        "positions": sum(lengths),
        "wrong": found["wrong"],
        "longest": max(lengths),
    }
    return facts | {
        "scores": tag_scores.tagger_scores(subject),
        "sentences": sentence_facts(subject),
        "tags": found,
        "spans": tag_scores.span_rows(subject),
    }


def comparison_facts(comparison: Comparison) -> Facts:
    """Return the table of a comparison, what to know of it, and every decoding of each."""
    header, rows = comparison.table()
    every = [
        [each.name, decoding, *(in_percent(scores[name]) for name in SCORES)]
        for each in comparison.entries
        for decoding, scores in each.scores.items()
    ]
    return {"header": header, "rows": rows, "notes": comparison.notes(), "every": every}


def write_report(path: Path | str, title: str, model: Any, *what: Any, **options: Any) -> Path:
    """Gather what a page says, write it as one HTML file, and return where it is.

    Args:
        path: the file to write.
        title: of the page.
        model: a classifier, a tagger, or None where a folder is all there is.
        what: more, as ``gather`` or ``gather_tagger`` takes it.
        options: likewise.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder. Name a file in it, such as {path / 'report.html'}.")
    collect: Any = gather_tagger if isinstance(model, Tagger) else gather
    return write_page(collect(title, model, *what, **options), path)


def write_page(facts: Facts, path: Path) -> Path:
    """Write what ``gather`` returned as one HTML file, and return where it is."""
    write_atomically(path, render(facts).encode("utf-8"))
    return path


def render(facts: Facts) -> str:
    """Return the page as text."""
    name = "sentences" if "sentences" in facts else "page"
    return _environment().get_template(f"{name}.html.jinja").render(facts)


@cache
def _environment() -> Environment:
    """Return what renders the template: all that it is given is escaped, but for our own assets."""
    environment = Environment(
        loader=PackageLoader("spen.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_in_words,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters |= {"fixed": _fixed, "shorten": charts.shorten}
    folder = files("spen.report") / "assets"
    assets = {name: Markup((folder / name).read_text(encoding="utf-8")) for name in ASSETS}
    environment.globals |= {"assets": assets, "charts": charts, "zip": zip}
    return environment


def _in_words(value: Any) -> Any:
    """Return a value as the page shows it; None is a dash.

    >>> _in_words(None), _in_words(1234), _in_words(0.5), _in_words("\\x00")
    ('–', '1,234', '0.5', '\ufffd')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    return isolated(value) if type(value) is str else value


def _fixed(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"
