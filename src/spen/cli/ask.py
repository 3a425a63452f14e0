"""``spen ask``: a person answers about the labels of one row, the model says the rest."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spen.cli.files import rows_to_predict, with_known
from spen.cli.show import say, show_json, show_table, visible

if TYPE_CHECKING:
    import numpy as np

    from spen.batch.splits import Split
    from spen.estimators.asking import Question
    from spen.estimators.base import LabelClassifier

ANSWERS = ("yes", "no", "skip", "stop")

NOTHING, SURE = 5e-4, 0.99
"""A gain in nats that is printed as none, and how probable a label is that need not be asked."""

YOURS = {True: "as you said", False: ""}


def ask(
    model: Path,
    file: str,
    *,
    row: int | None = None,
    questions: int = 10,
    known: str | None = None,
    format: str | None = None,
    device: str = "cpu",
    json: bool = False,
) -> None:
    """Ask about a row's labels, those first that tell most about the others, and predict the rest.

    Answer yes, no, skip (or nothing: another label is asked about) or stop (or end the input); the
    first letters are enough. Where all that is left is as good as certain, no more is asked.
    Questions go to the error output, and what is predicted in the end
    to the standard output.

    Args:
        model: A model file that `spen fit` wrote.
        file: A file with the row, as `spen predict` reads it.
        row: Which row, from 1, where there are several.
        questions: How many questions at most.
        known: What is known of the labels before, as `spen predict` takes it.
        format: The file's format, where it cannot be recognised.
        device: Where to compute.
        json: Print one JSON object instead of a table.
    """
    import numpy as np

    from spen.errors import check_whole
    from spen.estimators.model_file import load_classifier as load

    if row is not None:
        check_whole(row, "row")
    check_whole(questions, "questions", least=0)
    classifier = load(model, device)
    chosen, held = _row_of(classifier, file, row, known, format)
    names = classifier.label_names_.tolist()
    answers = {name: int(value) for name, value in held.items() if not math.isnan(value)}
    may = np.array([name not in answers for name in names])
    for _ in range(questions):
        [found] = classifier.next_question(chosen.X, known=answers, k=1, among=may)
        if not found:
            break
        if found[0].gain < NOTHING and _is_certain(classifier, chosen, answers, may):
            _tell(f"Every label that is left is {SURE:.0%} certain: no question would tell more.")
            break
        answer = _answer(found[0])
        if answer == "stop":
            break
        may[found[0].index] = False
        if answer != "skip":
            answers[found[0].label] = int(answer == "yes")
    _show(classifier, chosen, answers, json)


def _row_of(
    classifier: LabelClassifier, file: str, row: int | None, known: str | None, format: str | None
) -> tuple[Split, dict[Any, float]]:
    """Return the row that is meant, and what is known of its labels."""
    from spen.errors import InputError

    count, found = 0, None
    for chunk, held in with_known(rows_to_predict(classifier, file, format), known, classifier):
        place = (row or 1) - 1 - count
        if 0 <= place < len(chunk):
            found = chunk.rows(slice(place, place + 1)), held[place] if held else {}
        count += len(chunk)
        if row is None and count > 1:
            raise InputError(f"{file} has several rows. Name the one to ask about with row=1.")
        if row is not None and found is not None:
            break
    if found is None:
        raise InputError(f"{file} has no row {row or 1:,}; it has {count:,}.")
    return found


def _is_certain(
    classifier: LabelClassifier, row: Split, answers: dict[Any, int], among: np.ndarray
) -> bool:
    """Say whether all labels among which a question would be asked are all but known."""
    import numpy as np

    soft = classifier.predict_proba(row.X, known=answers)[0][among]
    return bool((np.maximum(soft, 1 - soft) >= SURE).all())


def _answer(question: Question) -> str:
    """Return what the person at the terminal answers, one of ANSWERS."""
    likely = f"{100 * question.probability:.0f} % likely"
    told = f"{question.gain:.3f} nats" if question.gain >= NOTHING else "nothing"
    gain = f"the answer tells {told} about the others"
    words = f"{visible(str(question.label))}? ({likely}; {gain})"
    while True:
        _tell(f"{words} [yes/no/skip/stop] ", end="")
        line = sys.stdin.readline() if sys.stdin is not None else ""
        if not line or sys.stdin is None or not sys.stdin.isatty():
            # Nobody pressed enter, so what comes next would stand on the same line.
            _tell("")
        if not line:
            return "stop"
        meant = [answer for answer in ANSWERS if answer.startswith(line.strip().lower())]
        if not line.strip():
            return "skip"
        if len(meant) == 1:
            return meant[0]
        _tell("Please answer yes, no, skip or stop.")


def _show(classifier: LabelClassifier, row: Split, answers: dict[Any, int], json: bool) -> None:
    """Print the labels that are predicted for a row, the most probable first."""
    soft, labels = (part[0] for part in classifier.predict_both(row.X, known=answers))
    names = classifier.label_names_.tolist()
    order = sorted(labels.nonzero()[0].tolist(), key=lambda i: -soft[i])
    if json:
        found = {str(names[i]): float(f"{soft[i]:.6g}") for i in order}
        show_json({"known": {str(name): v for name, v in answers.items()}, "labels": found})
    elif order:
        rows = [[names[i], float(soft[i]), YOURS[names[i] in answers]] for i in order]
        show_table("Labels", ["label", "probability", ""], rows)
    else:
        say("No label is predicted.")


def _tell(words: str, end: str = "\n") -> None:
    print(words, end=end, file=sys.stderr, flush=True)  # noqa: T201
