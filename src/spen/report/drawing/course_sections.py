"""The sections on how training and inference went, as curves with their numbers."""

from __future__ import annotations

from typing import Any

from spen.report.drawing.charts import Curve, bar_chart, line_chart
from spen.report.drawing.markup import details, figure, paragraph, section, side_by_side, table

Facts = dict[str, Any]


def training_section(runs: list[Facts]) -> str:
    """Return the loss and the held-out score of each stage."""
    if not runs:
        return ""
    stages = [(run["run"], stage) for run in runs for stage in run["stages"]]
    charts = [chart for run, stage in stages for chart in _stage_charts(run, stage)]
    rows = [
        [run, stage["name"], k + 1, f"{loss:.4g}", stage["score"][k] if stage["score"] else None]
        for run, stage in stages
        for k, loss in enumerate(stage["loss"])
    ]
    header = ["run", "stage", "epoch", "loss", "held-out score × 100"]
    caption = "Every epoch in numbers"
    listed = details(caption, table(header, rows, caption=caption, numbers=[2, 3, 4]))
    return section("training", "Training", side_by_side(*charts, kind="columns small"), listed)


def _stage_charts(run: str, stage: Facts) -> list[str]:
    epochs = list(range(1, len(stage["loss"]) + 1))
    name, seconds = stage["name"], stage["seconds"]
    passes = "1 epoch" if len(epochs) == 1 else f"{len(epochs)} epochs"
    loss = line_chart(
        f"Loss of the stage {name}", [Curve("", epochs, stage["loss"])], "epoch", "loss a row"
    )
    charts = [figure(loss, f"Stage “{name}” of {run}: {passes}, {seconds:g} s.")]
    if stage["score"] is not None:
        score = line_chart(
            f"Held-out score of the stage {name}",
            [Curve("", epochs, stage["score"], "second")],
            "epoch",
            "held-out score × 100",
        )
        best, end = max(stage["score"]), stage["score"][-1]
        words = (
            f"Stage “{name}” on rows that were held out: {end:.1f} in the end, {best:.1f} at best."
        )
        charts.append(figure(score, words))
    return charts


def convergence_section(facts: Facts) -> str:
    """Return the histogram of steps, and energy and score along the steps."""
    fixed, rows = facts["fixed"], facts["rows"]
    words = (
        f"Predictions make {facts['made']} steps, no more. Given as many as they need, "
        if fixed
        else f"Predictions make at most {facts['made']} steps. Given as many as they need, "
    )
    words += (
        f"half of {rows:,} rows converge within {facts['middle']}, nine in ten within "
        f"{facts['most']}, the slowest after {facts['slowest']}. "
        f"{facts['search_errors']:g} % are search errors: the true labels have a lower energy "
        "than what inference found."
    )
    steps = bar_chart(
        "Rows by steps until convergence",
        facts["edges"],
        facts["counts"],
        "steps until a tolerance is met",
        "rows",
    )
    charts = [figure(steps, "How long rows take: a tall left side is quick inference.")]
    table_of = ""
    along = facts["along"]
    if along is not None:
        energy = line_chart(
            "Mean energy along the steps",
            [Curve("", along["steps"], along["energy"], dots=True)],
            "step",
            "mean energy",
        )
        score = line_chart(
            "Score along the steps",
            [Curve("", along["steps"], along["score"], "second", dots=True)],
            "step",
            f"{along['score_name']} × 100",
        )
        charts.append(
            figure(energy, "What is minimised, on average: where it is flat, steps buy nothing.")
        )
        charts.append(
            figure(
                score, f"What the steps are worth: {along['score_name']} if inference ended there."
            )
        )
        listed = list(zip(along["steps"], along["energy"], along["score"], strict=True))
        caption = f"Energy and {along['score_name']} along the steps, {along['rows']:,} rows"
        table_of = details(
            caption,
            table(
                ["step", "energy", along["score_name"]], listed, caption=caption, numbers=[0, 1, 2]
            ),
        )
    return section(
        "convergence",
        "How inference converges",
        paragraph(words),
        side_by_side(*charts, kind="columns small"),
        table_of,
    )
