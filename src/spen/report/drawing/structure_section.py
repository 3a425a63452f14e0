"""The section on labels: measurements as heat maps, pairs as graphs, both as tables."""

from __future__ import annotations

from typing import Any

from spen.report.drawing.graph import label_graph
from spen.report.drawing.heat import named, overview
from spen.report.drawing.markup import details, figure, paragraph, section, side_by_side, table

Facts = dict[str, Any]


def structure_section(structure: Facts | None, pairs: Facts | None) -> str:
    """Return what the energy has learned about labels, or that there is nothing to show."""
    parts = []
    if structure is None and pairs is None:
        words = "This energy scores each label by itself, or its structure differs from row to row."
        return section("labels", "What the energy knows about labels", paragraph(words))
    if structure is not None:
        parts.append(_measurements(structure))
    if pairs is not None and pairs["energy"]:
        parts.append(_pairs(pairs, structure["names"] if structure else []))
    return section("labels", "What the energy knows about labels", *parts)


def _measurements(structure: Facts) -> str:
    count, total = structure["measurements"], structure["labels"]
    shown = (
        f"the {structure['shown']:,} strongest of {total:,}"
        if total > structure["shown"]
        else f"all {total:,}"
    )
    words = (
        f"The energy sees labels through {count:,} measurements, weighted sums of labels. Labels "
        "that are measured alike stand side by side; so do measurements of the same labels. "
        "Orange weights are above zero, blue ones below."
    )
    parts = [paragraph(words)]
    small = structure["named"]
    if total > len(small["names"]) or count > len(small["rows"]):
        sides = [f"{count:,} measurements", f"{shown} labels"]
        down, across = sides if structure["labels_across"] else sides[::-1]
        caption = (
            f"The measurement matrix: {down} (down) by {across} (across). Full colour is a weight "
            f"of ±{structure['limit']:g} or more."
        )
        parts.append(figure(overview(structure), caption, "wide"))
    strongest = table(
        ["number", "readout", "labels of largest weight"],
        [
            [
                each["measurement"],
                each["readout"],
                ", ".join(f"{name} ({weight:+.2f})" for name, weight in each["labels"]),
            ]
            for each in structure["strongest"]
        ],
        caption="Each measurement's strongest labels, those with the largest say first",
        numbers=[0, 1],
    )
    caption = (
        f"{len(small['names'])} labels by {len(small['rows'])} measurements, by their numbers; "
        "blocks of one colour are labels that the energy treats as a group."
    )
    return "".join([*parts, side_by_side(figure(named(small), caption), strongest)])


def _pairs(pairs: Facts, alike: list[str]) -> str:
    """Draw the pairs, around the circle in the order in which alike labels stand together."""
    rank = {name: k for k, name in enumerate(alike)}
    listed = range(len(pairs["names"]))
    order = sorted(listed, key=lambda node: rank.get(pairs["names"][node], len(rank)))
    place = {node: k for k, node in enumerate(order)}
    names = [pairs["names"][node] for node in order]
    looked = pairs["looked_at"]
    among = "all labels" if looked == pairs["labels"] else f"the {looked:,} labels it weighs most"

    def placed(listed: list[Any], sign: int) -> list[tuple[int, int, float]]:
        return [(place[a], place[b], sign * value) for a, b, value in listed]

    # The energy is minimised: what it adds for a pair pushes the pair apart.
    energy = label_graph("Pairs by the energy", names, placed(pairs["energy"], -1))
    words = (
        f"The {len(pairs['energy'])} pairs among {among} that change the energy most when both "
        f"labels are on, {pairs['background']}; no label with more than three of a kind. Solid "
        "blue lines pull together, dashed orange ones push apart; thicker is stronger."
    )
    figures = [figure(energy, "By the energy.")]
    header, numbers = ["label", "and", "the energy", "strength"], [3]
    rows = [
        [
            pairs["names"][a],
            pairs["names"][b],
            "pulls together" if value < 0 else "pushes apart",
            abs(value),
        ]
        for a, b, value in pairs["energy"]
    ]
    if pairs["data"] is not None:
        data = label_graph("Pairs in the data", names, placed(pairs["data"], 1))
        figures.append(
            figure(
                data,
                f"By the data: the same labels, together more or less than by chance in "
                f"{pairs['rows']:,} rows.",
            )
        )
        words += (
            f" For {pairs['agree']} of the {len(rows)} the data say the same: such labels meet "
            "more, or less, often than by chance."
        )
        header, numbers = [*header, "rows with both", "by chance"], [3, 4, 5]
        counts = zip(rows, pairs["together"], pairs["expected"], strict=True)
        rows = [[*row, together, expected] for row, together, expected in counts]
    caption = "The same pairs in numbers"
    listed = table(header, rows, caption=caption, numbers=numbers, sortable=True)
    return (
        f"<h3>Pairs of labels</h3>\n{paragraph(words)}{side_by_side(*figures)}"
        f"{details(caption, listed)}"
    )
