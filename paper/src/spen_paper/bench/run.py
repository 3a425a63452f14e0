"""The whole bench: measured, written, laid out in tables and drawn."""

from __future__ import annotations

import io
import json
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.exceptions import ConvergenceWarning

from spen.files import write_atomically
from spen_paper.bench import measurements
from spen_paper.bench.model import TimedModel
from spen_paper.bench.timing import Effort, describe_machine, note

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEANINGS = {
    "predict_over_mlp": "whole prediction / the MLP's forward pass, on the same rows",
    "autograd_loop_over_fused": "a PyTorch loop with autograd / the kernel: inference alone",
    "general_over_fused": "step by step / the kernel: inference alone",
    "steps_paper_over_default": "steps to the same energy, the paper's rule / the default one",
    "hinge_epoch_general_over_fused": "training epoch step by step / with the kernel",
    "step_time_exponent_in_labels": "k where the time of a step grows like labelsᵏ",
    "parameters_exponent_in_labels": "k where the parameters grow like labelsᵏ",
    "single_row_ms": "SPENClassifier.predict of one row, ms",
    "million_rows_ms": "inference alone on a million rows, ms",
}

NEED_A_KERNEL = ("autograd_loop_over_fused", "general_over_fused", "hinge_epoch_general_over_fused")
KINDS = {
    "fused": ("SPEN, fused", "o"),
    "general": ("SPEN, step by step", "s"),
    "crf": ("pairwise CRF", "^"),
}

Record = dict[str, Any]
Table = tuple[str, list[str], list[list[str]]]
"""A title, a header and rows of text."""


def measure(subject: TimedModel, effort: Effort | None = None) -> Record:
    """Measure everything, and return what was found as JSON can hold it.

    Args:
        subject: the model and its rows.
        effort: how much to measure; None is what the command does.
    """
    effort = effort or Effort.of(subject.device)
    machine = describe_machine(subject.device)
    _warn_if_busy(machine)
    reason = subject.why_not_fused()
    record: Record = {
        "machine": machine,
        "device": subject.device.type,
        "subject": subject.note,
        "not_fused": reason,
    }
    with warnings.catch_warnings():
        # How many rows converge is in the record.
        warnings.simplefilter("ignore", ConvergenceWarning)
        note("measuring steps, energies and F1 of both rules")
        record["rules"] = measurements.compare_rules(subject)
        record["agreement"] = None if reason else measurements.measure_agreement(subject)
        note("measuring predictions beside the MLP's forward pass")
        record["prediction"] = measurements.measure_prediction(subject, effort)
        note("measuring single rows")
        record["single_row"] = measurements.measure_single_rows(subject, effort)
        note("measuring training epochs")
        record["hinge"] = None if reason else measurements.measure_hinge(subject, effort)
        note(f"measuring {effort.labels[0]:,} to {effort.labels[-1]:,} labels")
        record["labels"] = measurements.measure_labels(effort, subject.device, fused=not reason)
        note(f"measuring {effort.rows[0]:,} to {effort.rows[-1]:,} rows")
        record["growth_with_rows"] = measurements.measure_rows(subject, effort)
    figures, missing = figures_of(record)
    return {"figures": figures, "missing": missing} | record


def write(record: Record, out: Path) -> list[Path]:
    """Write ``bench.json`` and, where matplotlib is there, ``bench.png``; return the paths."""
    path = out / "bench.json"
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(path, (text + "\n").encode())
    if find_spec("matplotlib") is None:
        note("bench.png is not drawn: matplotlib is not installed; pip install 'spen[report]'")
        return [path]
    return [path, draw(record, out / "bench.png")]


def tell_what_is_missing(record: Record) -> None:
    """Say on stderr what was not measured and why, and what is lost without a kernel."""
    for key, reason in record["missing"].items():
        note(f"{key} was not measured: {reason}.")
    if record["not_fused"]:
        ratio = record["figures"]["predict_over_mlp"]
        note(
            f"No kernel runs here: {record['not_fused']}. Every step is made by PyTorch, and a "
            f"prediction takes {ratio:.3g} times as long as the MLP's forward pass."
        )


def _warn_if_busy(machine: Record) -> None:
    # Half a core is what this process itself and a quiet system leave in the average.
    if machine["load"] > 0.5 + machine["cores"] / 2:
        note(
            f"the machine is busy (load {machine['load']} on {machine['cores']} cores), so times "
            "are too long and ratios uncertain."
        )


def figures_of(record: dict[str, Any]) -> tuple[dict[str, float | None], dict[str, str]]:
    """Return the nine figures, None for what was not measured, and the reasons for those.

    Args:
        record: what the parts of a bench found, by their names.
    """
    ratios, labels = record["prediction"]["ratios"], record["labels"]
    reason = record["not_fused"]
    steps_of = labels[labels["step_time_of"]]
    # The stage with the smallest gain speaks for all.
    epochs = [stage["general_over_fused"] for stage in (record["hinge"] or {}).values()]
    found: dict[str, float | None] = {
        "predict_over_mlp": ratios.get(
            "predict_fused_over_mlp", ratios["predict_general_over_mlp"]
        ),
        "autograd_loop_over_fused": ratios.get("autograd_loop_over_fused_paper"),
        "general_over_fused": ratios.get("general_over_fused"),
        "steps_paper_over_default": record["rules"]["steps_paper_over_default"],
        "hinge_epoch_general_over_fused": min(epochs, default=None),
        "step_time_exponent_in_labels": steps_of.get("step_time_exponent"),
        "parameters_exponent_in_labels": steps_of.get("parameters_exponent"),
        "single_row_ms": max(record["single_row"]["milliseconds"].values()),
        "million_rows_ms": record["growth_with_rows"]["million"]["milliseconds"],
    }
    reasons = dict.fromkeys(MEANINGS, "too few sizes were measured")
    reasons["hinge_epoch_general_over_fused"] = "no stage of the model's training uses the hinge"
    if reason:
        reasons |= dict.fromkeys(NEED_A_KERNEL, reason)
    return found, {key: reasons[key] for key, value in found.items() if value is None}


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
        [measurements.TITLES[name], number(value), number(value / times["mlp_forward"])]
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
    rows = []
    for name, one in record["hinge"].items():
        times = [number(one["milliseconds"][path]) for path in ("fused", "general")]
        rows.append([name, f"{one['rows']:,}", *times, number(one["general_over_fused"])])
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
    values = {key: "–" if found[key] is None else number(found[key]) for key in MEANINGS}
    rows = [[key, words, values[key]] for key, words in MEANINGS.items()]
    return record["subject"], ["figure", "what it is", "value"], rows


def draw(record: dict[str, Any], path: Path) -> Path:
    """Draw predictions, growth with labels (time, parameters) and growth with rows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7.5), layout="constrained")
    axes = figure.subplots(2, 2)
    _draw_predictions(axes[0, 0], record["prediction"])
    _draw_growth(axes[0, 1], record["labels"], "step_us_per_row", "one step of one row, µs")
    _draw_growth(axes[1, 0], record["labels"], "parameters", "parameters of the energy over labels")
    _draw_rows(axes[1, 1], record["growth_with_rows"])
    machine = record["machine"]
    figure.suptitle(f"{record['subject']}; {machine['gpu'] or machine['cpu']}", fontsize=10)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=144, format="png")
    write_atomically(path, picture.getvalue())
    return path


def _draw_predictions(axis: Axes, found: dict[str, Any]) -> None:
    times = found["milliseconds"]
    values = [value / times["mlp_forward"] for value in times.values()]
    places = range(len(times))
    axis.barh(places, values, color=["tab:blue" if "fused" in name else "0.7" for name in times])
    # "…" carries on the line above, which a picture reads from the top too.
    axis.set_yticks(places, [measurements.TITLES[name] for name in times], fontsize=7)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xlabel("time / time of the MLP's forward pass")
    axis.set_title(f"{found['rows']:,} rows", fontsize=10)


def _draw_growth(axis: Axes, found: dict[str, Any], name: str, words: str) -> None:
    for kind, (title, marker) in KINDS.items():
        # The path makes no difference to the parameters.
        if kind not in found or (name == "parameters" and kind == "fused"):
            continue
        one = found[kind]
        power = one.get(f"{'parameters' if name == 'parameters' else 'step_time'}_exponent")
        title = title.partition(",")[0] if name == "parameters" else title
        label = title if power is None else f"{title}: labels^{power:.2f}"
        axis.plot(one["labels"], one[name], marker=marker, markersize=4, label=label)
    _logarithmic(axis, "labels", words)
    sizes = found["general"]["labels"]
    axis.set_xticks(sizes, [f"{n:,}" for n in sizes], fontsize=7)
    axis.minorticks_off()
    axis.legend(fontsize=8)


def _draw_rows(axis: Axes, found: dict[str, Any]) -> None:
    axis.plot(found["rows"], found["milliseconds"], marker="o", markersize=4)
    _logarithmic(axis, "rows", "inference alone, ms")
    axis.set_title(f"a million rows: {found['million']['how']}", fontsize=10)


def _logarithmic(axis: Axes, across: str, up: str) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.grid(alpha=0.3)
