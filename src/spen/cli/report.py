"""``spen report``: one page that shows a model, or what a run folder came to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spen.cli.files import check_out, dataset_for, parse_labels
from spen.cli.show import say, show_json

if TYPE_CHECKING:
    from spen.estimators.base import LabelClassifier
    from spen.estimators.tagger import Tagger
    from spen.report.sentences import JudgedSentences
    from spen.report.subject import Judged


def report(
    source: Path,
    *,
    data: str | None = None,
    format: str | None = None,
    labels: str | None = None,
    out: Path | None = None,
    device: str = "cpu",
    json: bool = False,
) -> None:
    """Write one self-contained HTML page on a model or a run folder.

    The page needs no network, and is readable without JavaScript.

    Args:
        source: A model file that `spen fit` wrote, or a folder with records.jsonl, pictures
            or one model file, as `spen reproduce` and `spen demo` write it.
        data: Rows with the features and labels of the training file, or sentences with tags, or
            a name from `spen data list`: they bring scores and examples. Of data that come with a
            split, the test part is taken.
        format: The file's format, where it cannot be recognised.
        labels: The column that holds tags, where it is not the one of the training file.
        out: The page to write; by default report.html in the folder, or beside the model file
            with its name.
        device: Where to compute.
        json: Print one JSON object instead of text.
    """
    from spen.errors import InputError
    from spen.estimators.model_file import load_to_predict as load
    from spen.estimators.tagger import Tagger
    from spen.report.page import write_report
    from spen.report.subject import isolated

    if not source.exists():
        raise InputError(f"{source} is not there. Name a model file or a run folder.")
    folder = source if source.is_dir() else None
    model = _model_in(source, needed=data is not None) if folder else source
    target = out or (source / "report.html" if folder else source.with_suffix(".html"))
    check_out(target)
    classifier, judged, more = None, None, {}
    title = isolated(source.resolve().name)
    if model is not None:
        classifier = load(model, device)
        if data is not None:
            if isinstance(classifier, Tagger):
                judged = sentences_of(classifier, data, format, labels)
            else:
                judged, more["labels"] = rows_of(classifier, data, format, labels)
            title = f"{title} on {isolated(Path(data).name)}"
    write_report(target, title, classifier, judged, folder=folder, **more)
    if json:
        show_json({"page": str(target), "bytes": target.stat().st_size})
    else:
        say(f"Wrote {target} ({target.stat().st_size / 1e6:.2f} MB)")


def rows_of(
    classifier: LabelClassifier, data: str, format: str | None, labels: str | None = None
) -> tuple[Judged, Any]:
    """Return the rows that judge a model, and the labels in which pairs are counted.

    Pairs are counted in the training rows where the data have them apart, as the model saw
    those.
    """
    from dataclasses import replace

    from spen.estimators.scaling import checked_rows
    from spen.report.subject import Judged

    found = dataset_for(classifier, data, format, labels)
    rows = found.train if found.test is None else found.test
    name = f"the rows of {found.name}" if found.test is None else f"the test rows of {found.name}"
    judged = replace(rows, X=checked_rows(classifier, rows.X))
    return Judged.of(judged, name), found.train.Y


def sentences_of(
    tagger: Tagger, data: str, format: str | None, labels: str | None
) -> JudgedSentences:
    """Return the sentences that judge a tagger."""
    from spen.cli.tags import sentences_with_tags
    from spen.report.sentences import JudgedSentences

    name, part, rows = sentences_with_tags(tagger, data, format, parse_labels(labels))
    name = f"the {'test ' if part == 'test' else ''}sentences of {name}"
    return JudgedSentences.of(tagger, rows.X, list(rows.Y), name)


def _model_in(folder: Path, needed: bool) -> Path | None:
    """Return the one model of a folder; None where there is none or no need to choose."""
    from spen.errors import InputError

    models = sorted(folder.glob("*.spen"))
    if len(models) == 1:
        return models[0]
    if needed:
        listed = ", ".join(path.name for path in models[:5])
        has = f"several models ({listed})" if models else "no model (*.spen)"
        raise InputError(
            f"{folder} has {has}, so --data has nothing to judge. Name one: spen report "
            "MODEL --data FILE."
        )
    return None
