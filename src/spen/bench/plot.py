"""What a bench found, as a picture."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spen.bench.prediction import TITLES
from spen.files import write_atomically

KINDS = {
    "fused": ("SPEN, fused", "o"),
    "general": ("SPEN, step by step", "s"),
    "crf": ("pairwise CRF", "^"),
}


def draw(record: dict[str, Any], path: Path) -> Path:
    """Draw predictions, growth with labels (time, parameters) and growth with rows."""
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    axes = figure.subplots(2, 2)
    _predictions(axes[0, 0], record["prediction"])
    _growth(axes[0, 1], record["labels"], "step_us_per_row", "one step of one row, µs")
    _growth(axes[1, 0], record["labels"], "parameters", "parameters of the energy over labels")
    _rows(axes[1, 1], record["growth_with_rows"])
    machine = record["machine"]
    figure.suptitle(f"{record['subject']}; {machine['gpu'] or machine['cpu']}", fontsize=10)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=144, format="png")
    write_atomically(path, picture.getvalue())
    return path


def _predictions(axis: Axes, found: dict[str, Any]) -> None:
    times = found["milliseconds"]
    values = [value / times["mlp_forward"] for value in times.values()]
    places = range(len(times))
    axis.barh(places, values, color=["tab:blue" if "fused" in name else "0.7" for name in times])
    # "…" carries on the line above, which a picture reads from the top too.
    axis.set_yticks(places, [TITLES[name] for name in times], fontsize=7)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xlabel("time / time of the MLP's forward pass")
    axis.set_title(f"{found['rows']:,} rows", fontsize=10)


def _growth(axis: Axes, found: dict[str, Any], name: str, words: str) -> None:
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


def _rows(axis: Axes, found: dict[str, Any]) -> None:
    axis.plot(found["rows"], found["milliseconds"], marker="o", markersize=4)
    _logarithmic(axis, "rows", "inference alone, ms")
    axis.set_title(f"a million rows: {found['million']['how']}", fontsize=10)


def _logarithmic(axis: Axes, across: str, up: str) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.grid(alpha=0.3)
