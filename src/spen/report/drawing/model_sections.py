"""The first sections of a page: what it is about, in a sentence, in numbers, in settings."""

from __future__ import annotations

from typing import Any

from spen.report.drawing.markup import details, facts_list, paragraph, section, table, text

Facts = dict[str, Any]


def header(facts: Facts) -> str:
    """Return the title, a sentence, and the few numbers that matter most."""
    tiles = "".join(
        f'<div class="tile"><b>{text(value)}</b><span>{text(name)}</span></div>'
        for name, value in _tiles(facts)
    )
    return (
        f"<header><h1>{text(facts['title'])}</h1>\n"
        f"{paragraph(_sentence(facts), 'lead')}"
        f'{f"""<div class="tiles">{tiles}</div>""" if tiles else ""}</header>\n'
    )


def model_section(facts: Facts) -> str:
    """Return what the model is, how it was made, and its scores with their rules."""
    model = facts["model"]
    parts = []
    if model["command"]:
        parts.append(f"<p>Made by <code>{text(model['command'])}</code></p>\n")
    parts.append(facts_list(model["facts"]))
    if facts["beginning"]:
        words = f"Label names are shown without their common beginning “{facts['beginning']}”."
        parts.append(paragraph(words))
    if facts["rows"] is not None:
        parts.append(_scores(facts))
    else:
        parts.append(
            paragraph(
                "No rows with labels were given, so this page has no scores, examples or "
                "convergence. Add them: spen report MODEL --data FILE.",
                "note",
            )
        )
    parts.append(details("All settings", facts_list(model["settings"])))
    return section("model", "The model", *parts)


def _scores(facts: Facts) -> str:
    rows = facts["rows"]
    words = f"Scores on {rows['name']}: {rows['count']:,} rows"
    if rows["total"] > rows["count"]:
        words += f", drawn at random from {rows['total']:,}"
    notes = ""
    if rows["seen"]:
        notes = paragraph(
            f"{rows['seen']:,} of these rows have the same features as some training row, so the "
            "scores are better than those of new rows.",
            "note",
        )
    listed = [[s["name"], _number(s["value"], 2), s["rule"]] for s in facts["scores"]]
    return notes + table(["score", "× 100", "rule"], listed, caption=words, numbers=[1])


def _sentence(facts: Facts) -> str:
    if facts["model"] is None:
        folder = facts["folder"]
        return f"What {folder['runs']:,} runs in the folder {folder['name']} came to."
    model = dict(facts["model"]["facts"])
    size = next((f"{model[name]} {name}" for name in ("labels", "classes") if name in model), "")
    words = f"A {facts['model']['kind']} over {size} and {model['features']} features"
    if facts["rows"] is None:
        return f"{words}."
    return f"{words}, judged by {facts['rows']['name']} ({facts['rows']['count']:,})."


def _tiles(facts: Facts) -> list[tuple[str, str]]:
    if facts["model"] is None or facts["rows"] is None:
        return []
    scores = {score["name"]: score["value"] for score in facts["scores"]}
    first = next(iter(facts["scores"]))
    tiles = [(f"{first['name']}, × 100", _number(first["value"]))]
    if "Hamming error" in scores:
        tiles.append(("wrong label decisions, %", _number(scores["Hamming error"], 2)))
    tiles.append(("labels a row, on average", f"{facts['rows']['cardinality']:.1f}"))
    convergence = facts["convergence"]
    if convergence is not None:
        tiles.append(("steps until inference converges, median", f"{convergence['middle']}"))
        tiles.append(("search errors, %", f"{convergence['search_errors']:.1f}"))
    return tiles


def _number(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
