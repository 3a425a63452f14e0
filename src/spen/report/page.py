"""One self-contained HTML file from what was gathered: no network, readable without a script."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from spen.files import write_atomically
from spen.report.drawing.course_sections import convergence_section, training_section
from spen.report.drawing.example_section import example_section
from spen.report.drawing.folder_section import folder_section
from spen.report.drawing.markup import script_json, text
from spen.report.drawing.model_sections import header, model_section
from spen.report.drawing.score_sections import calibration_section, hardest_section, label_section
from spen.report.drawing.structure_section import structure_section

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""What a browser may do for the page: nothing that leaves it."""

ADDRESSES = {
    "model": "Model",
    "examples": "Examples",
    "labels": "Label structure",
    "convergence": "Convergence",
    "scores": "Label by label",
    "calibration": "Calibration",
    "hardest": "Hardest rows",
    "training": "Training",
    "runs": "Runs",
}


def write_page(facts: dict[str, Any], path: Path) -> Path:
    """Write what ``gather`` returned as one HTML file, and return where it is."""
    write_atomically(path, render(facts).encode("utf-8"))
    return path


def render(facts: dict[str, Any]) -> str:
    """Return the page as text."""
    sections = _sections(facts)
    links = "".join(
        f'<a href="#{name}">{title}</a>' for name, title in ADDRESSES.items() if name in sections
    )
    navigation = f'<nav aria-label="Sections">{links}</nav>\n' if len(sections) > 1 else ""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{text(facts['title'])}</title>\n"
        f"<style>\n{_asset('page.css')}</style>\n</head>\n<body>\n"
        f"{header(facts)}{navigation}"
        f"<main>\n{''.join(sections.values())}</main>\n"
        f"<footer>Made with {text(versions)}.</footer>\n"
        f'<script type="application/json" id="facts">{script_json(_for_script(facts))}</script>\n'
        f"<script>\n{_asset('solver.js')}{_asset('player.js')}{_asset('page.js')}</script>\n"
        "</body>\n</html>\n"
    )


def _sections(facts: dict[str, Any]) -> dict[str, str]:
    """Return the sections that there is something to say in, in order."""
    sections, folder = {}, facts["folder"]
    runs = folder_section(folder) if folder and (folder["runs"] or folder["pictures"]) else ""
    if facts["model"] is None:
        return {"runs": runs}
    sections["model"] = model_section(facts)
    judged = facts["rows"] is not None
    if judged and facts["examples"]["examples"]:
        sections["examples"] = example_section(facts["examples"])
    sections["labels"] = structure_section(facts["structure"], facts["pairs"])
    if judged:
        if facts["convergence"] is not None:
            sections["convergence"] = convergence_section(facts["convergence"])
        sections["scores"] = label_section(facts["labels"])
        sections["calibration"] = calibration_section(facts["calibration"])
        sections["hardest"] = hardest_section(facts["hardest"])
    sections["training"] = training_section(facts["training"])
    sections["runs"] = runs
    return {name: content for name, content in sections.items() if content}


def _for_script(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the part of the facts that the page's script computes with."""
    structure = facts.get("structure")
    names = ("names", "rows", "labels_across", "shape", "values", "limit")
    return {
        "examples": facts.get("examples"),
        "matrix": structure and {name: structure[name] for name in names},
    }


def _asset(name: str) -> str:
    return (files("spen.report") / "assets" / name).read_text(encoding="utf-8")
