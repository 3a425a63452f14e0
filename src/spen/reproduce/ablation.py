"""Where the energy pays: what each part of the model and of its training is worth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spen.batch.splits import Split
from spen.cli.show import say, text_table
from spen.estimators.base import LabelClassifier
from spen.reproduce.study import DECODING_TITLES, Scores, Study, difference, draw, paired
from spen.reproduce.table3 import mean_and_deviation
from spen.reproduce.variants import Changes, hinge_variants, likelihood_variants

UNCHANGED = "unchanged"
NO_MEASUREMENTS = "0 measurements (the MLP)"
METHODS: dict[str, tuple[str, Callable[[LabelClassifier, Split], dict[str, Changes]]]] = {
    "spen-single": ("the cross-fitted SPEN", likelihood_variants),
    "spen-paper": ("the paper's SPEN, trained by a hinge", hinge_variants),
}


def ablation(*, dataset: str, seeds: int, device: str, out: Path) -> None:
    """Change one thing at a time in the cross-fitted SPEN and in the paper's."""
    study = Study.open("table1-ablation", dataset, seeds, device, out)
    panels = []
    for method, (words, variants_of) in METHODS.items():
        rows = {UNCHANGED: study.scores(method, UNCHANGED)}
        if method == "spen-single":
            rows[NO_MEASUREMENTS] = study.scores("mlp", NO_MEASUREMENTS)
        for title, changes in variants_of(study.classifier(method), study.data.train).items():
            rows[title] = study.scores(method, title, lambda made, changes=changes: changes)
        say(f"{words[0].upper()}{words[1:]}\n")
        say(render(rows))
        say()
        panels.append((words, bars(rows)))
    for line in IN_WORDS:
        say(line)
    study.tell_protocol()
    path = study.records.folder / "ablation"
    draw(lambda plots: plots.draw_differences(panels, path, "F1 − F1 of the unchanged model"))


IN_WORDS = (
    "A value that is missing from a series is that of the unchanged model.",
    "temperature: the weight of the entropy in inference, in training and prediction.",
    "without pre-training: as many epochs of the hinge, on everything, in its place.",
    "features never clamped: they train at the last stage's rate in the second stage too.",
)


def render(rows: dict[str, Scores]) -> str:
    """Lay out F1 by both decodings, with the difference to the unchanged model.

    >>> scores = {"threshold": [40.0], "expected_f1": [43.0]}
    >>> print(render({"unchanged": scores, "other": {"threshold": [39.0], "expected_f1": [44.0]}}))
    |           | one threshold | change | expected F1 | change |
    | --------- | ------------- | ------ | ----------- | ------ |
    | unchanged | 40.0          |        | 43.0        |        |
    | other     | 39.0          | -1.00  | 44.0        | +1.00  |
    """
    header = [""]
    for words in DECODING_TITLES.values():
        header += [words, "change"]
    base, lines = rows[UNCHANGED], []
    for title, scores in rows.items():
        line = [title]
        for decoding in DECODING_TITLES:
            change = difference(scores[decoding], base[decoding]) if title != UNCHANGED else ""
            line += [mean_and_deviation(scores[decoding]), change]
        lines.append(line)
    return text_table(header, lines)


def bars(rows: dict[str, Scores]) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the difference of each variant to the unchanged model, and its standard error."""
    base = rows[UNCHANGED]
    return {
        title: {
            words: paired(scores[decoding], base[decoding])
            for decoding, words in DECODING_TITLES.items()
        }
        for title, scores in rows.items()
        if title != UNCHANGED
    }
