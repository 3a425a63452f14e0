"""The sections on scores: label by label, calibration, the hardest rows."""

from __future__ import annotations

from typing import Any

from spen.report.drawing.charts import Curve, line_chart
from spen.report.drawing.markup import figure, paragraph, section, side_by_side, table

Facts = dict[str, Any]


def label_section(facts: Facts) -> str:
    """Return the table of labels, which the page's script sorts."""
    listed, total = len(facts["rows"]), facts["labels"]
    words = f"The {listed:,} most frequent of {total:,} labels. " if listed < total else ""
    words += "Choose a column's heading to sort by it."
    if facts["never_predicted"]:
        words += (
            f" Never predicted, though some rows have them: {facts['never_predicted']:,} labels."
        )
    header = ["label", "rows with it", "predicted", "precision", "recall", "F1"]
    rows = table(
        header,
        [
            [*row[:3], *(value if value is None else f"{value:.1f}" for value in row[3:])]
            for row in facts["rows"]
        ],
        caption="Scores of each label, in percent",
        numbers=range(1, 6),
        sortable=True,
        name="label-scores",
    )
    return section("scores", "Label by label", paragraph(words), f'<div class="tall">{rows}</div>')


def calibration_section(facts: Facts) -> str:
    """Return the calibration curve and its numbers."""
    guide = Curve("", [0.0, 1.0], [0.0, 1.0], "guide")
    curve = Curve("", facts["probability"], facts["share"], dots=True)
    chart = line_chart(
        "Calibration curve",
        [guide, curve],
        "probability that was given",
        "share of labels that are on",
        square=True,
    )
    words = (
        f"All {facts['decisions']:,} label decisions in {facts['bins']} intervals of probability. "
        f"On the thin diagonal a label that is given 30 % is on in 30 % of its rows; the mean "
        f"distance from it is {facts['error']:g} %."
    )
    rows = zip(facts["probability"], facts["share"], facts["counts"], strict=True)
    numbers = table(
        ["probability", "share on", "decisions"],
        [[f"{p:.3f}", f"{share:.3f}", count] for p, share, count in rows],
        caption="The calibration curve in numbers",
        numbers=[0, 1, 2],
    )
    return section(
        "calibration",
        "Do probabilities mean what they say?",
        side_by_side(figure(chart, words), numbers),
    )


def hardest_section(rows: list[Facts]) -> str:
    """Return the rows with the lowest F1."""
    if not rows:
        return ""
    errors = sum(row["search_error"] for row in rows)
    words = (
        "The rows with the lowest F1. Where the true labels have the lower energy, inference has "
        "missed them (a search error); elsewhere the energy itself prefers the wrong labels. "
        f"Of these {len(rows)}, {errors} are search errors."
    )
    listed = [
        [
            row["row"],
            f"{row['f1']:.1f}",
            ", ".join(row["true"]) or "nothing",
            ", ".join(row["predicted"]) or "nothing",
            f"{row['gap']:.2f}",
            "search" if row["search_error"] else "energy",
        ]
        for row in rows
    ]
    header = ["row", "F1", "true", "predicted", "E(true) − E(found)", "whose error"]
    return section(
        "hardest",
        "The hardest rows",
        paragraph(words),
        table(header, listed, caption="Hardest rows", numbers=[0, 1, 4], sortable=True),
    )
