"""What a bench found, as tables for people."""

from __future__ import annotations

from typing import Any

from spen.bench.figures import KEYS, MEANINGS
from spen.bench.prediction import TITLES

Table = tuple[str, list[str], list[list[str]]]
"""A title, a header and rows of text."""


def tables_of(record: dict[str, Any]) -> list[Table]:
    """Return every table of a bench, the nine figures last, where a terminal ends."""
    return [
        _predictions(record),
        _rules(record),
        *_agreement(record),
        *_training(record),
        _labels(record),
        _rows(record),
        _figures(record),
    ]


def number(value: float) -> str:
    """Return a figure with three digits or, where it is large, without a fraction.

    >>> number(1.2345), number(12_345.6), number(0.0123)
    ('1.23', '12,346', '0.0123')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def machine_in_words(record: dict[str, Any]) -> str:
    """Say what the bench ran on, in a line.

    >>> machine = {"cpu": "A CPU", "cores": 2, "threads": 2, "gpu": None, "load": 0.1}
    >>> machine_in_words({"machine": machine | {"versions": {"torch": "2.9", "numba": None}}})
    'A CPU, 2 cores, 2 threads; torch 2.9'
    """
    machine = record["machine"]
    parts = [machine["cpu"], f"{machine['cores']} cores", f"{machine['threads']} threads"]
    if machine["gpu"]:
        parts.insert(0, machine["gpu"])
    kept = [f"{name} {text}" for name, text in machine["versions"].items() if text]
    return f"{', '.join(parts)}; {', '.join(kept)}"


def _predictions(record: dict[str, Any]) -> Table:
    found = record["prediction"]
    times = found["milliseconds"]
    rows = [
        [TITLES[name], number(value), number(value / times["mlp_forward"])]
        for name, value in times.items()
    ]
    return f"{found['rows']:,} rows", ["", "ms", "/ MLP"], rows


def _rules(record: dict[str, Any]) -> Table:
    found = record["rules"]
    header = ["rule", "tolerance", "steps", "most", "converged, %", "mean energy"]
    header += ["lower / higher, %", "F1 × 100"]
    titles = {"paper": "paper's", "default": "default", "default_same_tolerance": "default"}
    rows = []
    for name, title in titles.items():
        one = found[name]
        shares = [f"{100 * one['energies'][side]:.1f}" for side in ("lower", "higher")]
        cells = [title, f"{one['tolerance']:.0e}", f"{one['steps']:.2f}", str(one["most_steps"])]
        cells += [f"{100 * one['converged']:.1f}", f"{one['energy']:.4f}"]
        cells.append("" if name == "paper" else " / ".join(shares))
        cells.append("" if one["f1"] is None else f"{one['f1']:.2f}")
        rows.append(cells)
    return f"{found['rows']:,} rows; energies against the paper's rule", header, rows


def _agreement(record: dict[str, Any]) -> list[Table]:
    if not record["agreement"]:
        return []
    header = ["the kernel and", "rows", "same energy, %", "same labels, %", "largest gap"]
    rows = []
    for name, one in record["agreement"].items():
        cells = [name, f"{one['rows']:,}"]
        if one["rows"]:
            cells += [f"{100 * one[key]:.3f}" for key in ("same_energy", "same_labels")]
            cells.append(f"{one['largest_gap']:.1e}")
        rows.append(cells + [""] * (len(header) - len(cells)))
    return [("Rows that converged; energies are the same within 10⁻⁴", header, rows)]


def _training(record: dict[str, Any]) -> list[Table]:
    if not record["hinge"]:
        return []
    header = ["stage", "rows", "fused, ms", "step by step, ms", "ratio"]
    rows = [
        [
            name,
            f"{one['rows']:,}",
            *(number(one["milliseconds"][path]) for path in ("fused", "general")),
            number(one["general_over_fused"]),
        ]
        for name, one in record["hinge"].items()
    ]
    return [("One training epoch of the hinge", header, rows)]


def _labels(record: dict[str, Any]) -> Table:
    found = record["labels"]
    kinds = [kind for kind in ("fused", "general", "crf") if kind in found]
    words = {"fused": "fused", "general": "step by step", "crf": "pairwise CRF"}
    header = ["labels", *(f"{words[kind]}, µs" for kind in kinds), "parameters", "CRF's"]
    rows = []
    for n in found["general"]["labels"]:
        cells = [f"{n:,}"]
        cells += [_at(found[kind], n, "step_us_per_row") for kind in kinds]
        cells += [_at(found[kind], n, "parameters") for kind in ("general", "crf")]
        rows.append(cells)
    exponents = [found[kind].get("step_time_exponent") for kind in kinds]
    counts = [found[kind].get("parameters_exponent") for kind in ("general", "crf")]
    rows.append(["exponent", *("" if k is None else f"{k:.2f}" for k in (*exponents, *counts))])
    return f"One step of one row, in batches of {found['rows']:,}", header, rows


def _at(found: dict[str, Any], n: int, name: str) -> str:
    return number(found[name][found["labels"].index(n)]) if n in found["labels"] else ""


def _rows(record: dict[str, Any]) -> Table:
    found = record["growth_with_rows"]
    rows = [
        [f"{n:,}", number(ms), number(1e3 * ms / n)]
        for n, ms in zip(found["rows"], found["milliseconds"], strict=True)
    ]
    each = f"{number(found['ns_per_row_and_step'])} ns a row and step"
    title = f"Inference alone; {each}; a million rows: {found['million']['how']}"
    return title, ["rows", "ms", "µs a row"], rows


def _figures(record: dict[str, Any]) -> Table:
    found = record["figures"]
    rows = [[key, "–" if found[key] is None else number(found[key]), MEANINGS[key]] for key in KEYS]
    return record["subject"], ["figure", "", "what it is"], rows
