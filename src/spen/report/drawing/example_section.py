"""The section on single rows: bars from the start to the end of inference."""

from __future__ import annotations

from typing import Any

from spen.report.drawing.heat import shorten
from spen.report.drawing.markup import paragraph, section, text

NAMES, LINE, BAR = 150, 19, 190
Facts = dict[str, Any]


def example_section(facts: Facts) -> str:
    """Return the rows as still pictures; with a script, they become one that moves."""
    words = (
        "Inference moves the soft labels ȳ from a start to where the energy is low. Bars are "
        "where it ends, the thin marks where it began; a dot marks the labels that are true."
    )
    still = "".join(_example(example, facts["names"]) for example in facts["examples"])
    note = ""
    if facts["why_not"]:
        note = paragraph(
            f"Answers to labels set by hand were computed beforehand: {facts['why_not']}.", "note"
        )
    return section(
        "examples",
        "Examples, step by step",
        paragraph(words),
        '<div id="player" hidden></div>\n',
        f'<div class="stills columns">{still}</div>\n',
        note,
    )


def _example(example: Facts, names: list[str]) -> str:
    shown, true = example["shown"], set(example["truth"])
    height = LINE * len(shown) + 6
    width = NAMES + BAR + 50
    parts = []
    for k, label in enumerate(shown):
        y, value, start = LINE * k + 2, example["end"][k], example["start"][k]
        name, began = names[label], f"{NAMES + 6 + BAR * start:.1f}"
        mark = (
            f'<circle class="true" cx="{NAMES - 2}" cy="{y + 8}" r="3.5"/>' if label in true else ""
        )
        parts.append(
            f'<text x="{NAMES - 12}" y="{y + 12}" text-anchor="end">{text(shorten(name, 20))}'
            f"<title>{text(name)}{', true' if label in true else ''}</title></text>{mark}"
            f'<rect class="track" x="{NAMES + 6}" y="{y + 2}" width="{BAR}" height="12"/>'
            f'<rect class="bar" x="{NAMES + 6}" y="{y + 2}" width="{BAR * value:.1f}" height="12"/>'
            f'<line class="began" x1="{began}" x2="{began}" y1="{y}" y2="{y + 16}"/>'
            f'<text x="{width - 2}" y="{y + 12}" text-anchor="end">{value:.2f}</text>'
        )
    energies = example["energies"]
    course = f"Energy {energies[0]:.2f} → {energies[-1]:.2f} in {example['steps']} steps."
    listed = ", ".join(names[label] for label in example["predicted"]) or "nothing"
    truth = ", ".join(names[label] for label in example["truth"]) or "nothing"
    title = f"Row {example['row']}"
    return (
        f"<article><h3>{title} <small>{text(example['why'])}</small></h3>"
        f'<svg viewBox="0 0 {width} {height}" class="chart" style="max-width:{width}px" role="img" '
        f'aria-label="Soft labels of row {example["row"]}">{"".join(parts)}</svg>'
        f"<p><b>True:</b> {text(truth)}. <b>Predicted:</b> {text(listed)}. "
        f"{text(course)}</p></article>"
    )
