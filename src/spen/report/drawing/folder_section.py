"""The section on a run folder: a table of its runs, its pictures, what could not be read."""

from __future__ import annotations

from typing import Any

from spen.report.drawing.dots import dot_chart
from spen.report.drawing.markup import details, figure, paragraph, section, table, text


def folder_section(folder: dict[str, Any]) -> str:
    """Return the runs, the pictures and the notes of a folder."""
    parts = []
    for each in folder["tables"]:
        title = " on ".join(word for word in (each["experiment"], each["dataset"]) if word)
        header = each["header"]
        numbers = range(header.index("runs"), len(header)) if "runs" in header else ()
        points = [point for point in each["points"] if point[1] is not None]
        if len(points) > 1:
            words = (
                f"{title}: {each['metric'].replace('_', ' ')} of each line of the table, ± its "
                "deviation over runs."
            )
            parts.append(figure(dot_chart(f"{each['metric']}, {title}", points), words))
        parts.append(
            table(header, each["rows"], caption=title or "Runs", numbers=numbers, sortable=True)
        )
    if folder["tables"]:
        parts.append(
            paragraph(
                "Means over the runs of a line, ± their standard deviation where there are "
                "several; scores in percent."
            )
        )
    parts += [paragraph(f"Rule of the scores: {rule}.") for rule in folder["rules"]]
    parts += [paragraph(note, "note") for note in _notes(folder)]
    for picture in folder["pictures"]:
        image = (
            f'<img class="picture" src="{text(picture["address"])}" alt="{text(picture["name"])}">'
        )
        parts.append(figure(image, picture["name"]))
    if folder["versions"]:
        parts.append(
            details(
                "Versions",
                table(["versions", "runs"], folder["versions"], caption="Versions", numbers=[1]),
            )
        )
    return section("runs", f"Runs in {folder['name']}", *parts)


def _notes(folder: dict[str, Any]) -> list[str]:
    notes = []
    if folder["broken_lines"]:
        lines = (
            "1 line is" if folder["broken_lines"] == 1 else f"{folder['broken_lines']} lines are"
        )
        notes.append(
            f"{lines} cut off or damaged in the records, as a killed run leaves them, and left "
            "out. Run the same command again to make those runs."
        )
    if folder["other_records"]:
        notes.append(f"{folder['other_records']:,} records have no metrics and are left out.")
    if len(folder["versions"]) > 1:
        notes.append(
            f"The runs were made by {len(folder['versions'])} different sets of versions (listed "
            "below): means may mix what is not alike."
        )
    if folder["large_pictures"]:
        names = ", ".join(folder["large_pictures"])
        notes.append(f"Too large for this page, and left in the folder: {names}.")
    return notes
