"""The whole bench: every part, one after the other, and the file of what was found."""

from __future__ import annotations

import json
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from spen.bench.effort import Effort
from spen.bench.figures import figures_of
from spen.bench.hinge import measure_hinge
from spen.bench.labels import measure_labels
from spen.bench.machine import describe_machine
from spen.bench.notes import note
from spen.bench.prediction import measure_agreement, measure_prediction
from spen.bench.rows import measure_rows, measure_single_rows
from spen.bench.rules import compare_rules
from spen.bench.subject import Subject
from spen.files import write_atomically

Record = dict[str, Any]


def measure(subject: Subject, effort: Effort | None = None) -> Record:
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
        record["rules"] = compare_rules(subject)
        record["agreement"] = None if reason else measure_agreement(subject)
        note("measuring predictions beside the MLP's forward pass")
        record["prediction"] = measure_prediction(subject, effort)
        note("measuring single rows")
        record["single_row"] = measure_single_rows(subject, effort)
        note("measuring training epochs")
        record["hinge"] = None if reason else measure_hinge(subject, effort)
        note(f"measuring {effort.labels[0]:,} to {effort.labels[-1]:,} labels")
        record["labels"] = measure_labels(effort, subject.device, fused=not reason)
        note(f"measuring {effort.rows[0]:,} to {effort.rows[-1]:,} rows")
        record["growth_with_rows"] = measure_rows(subject, effort)
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
    from spen.bench.plot import draw

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
