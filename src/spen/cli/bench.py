"""``spen bench``: what inference costs on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spen.cli.files import dataset_for
from spen.cli.show import show_json, show_table

if TYPE_CHECKING:
    from spen.bench.subject import Subject


def bench(
    *,
    device: str = "auto",
    out: Path = Path("runs/bench"),
    model: Path | None = None,
    data: str | None = None,
    json: bool = False,
) -> None:
    """Measure inference: ratios of times that are taken in turns, in one process.

    The model is the paper's on Bibtex, trained once and kept in OUT. Without Bibtex, rows of
    its shape are generated. Writes OUT/bench.json and OUT/bench.png. Takes some minutes.

    Args:
        device: auto takes a GPU where there is one; or cpu, cuda.
        out: The folder for the model, the figures and the picture.
        model: A model file of your own to measure instead, with rows from --data.
        data: For --model: a file with the features and labels of its training file, or a
            name from `spen data list`; bibtex if nothing is said.
        json: Print the nine figures as one JSON object instead of tables.
    """
    from spen.bench.paper_model import paper_subject
    from spen.bench.run import measure, tell_what_is_missing, write
    from spen.bench.tables import machine_in_words, tables_of
    from spen.cli.show import say
    from spen.errors import InputError
    from spen.model import usable_device

    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file. Name a folder.")
    if data is not None and model is None:
        raise InputError("--data needs --model: without one, the paper's model is measured.")
    chosen = usable_device(device)
    if model is None:
        subject = paper_subject(out, chosen)
    else:
        subject = _own(model, data or "bibtex", str(chosen))
    record = measure(subject)
    paths = write(record, out)
    tell_what_is_missing(record)
    if json:
        show_json(record["figures"])
        return
    for table in tables_of(record):
        show_table(*table)
    say(machine_in_words(record))
    say(f"Wrote {', '.join(map(str, paths))}")


def _own(model: Path, data: str, device: str) -> Subject:
    """Return the user's own model, with rows that it has not seen where there are some."""
    from spen.bench.subject import Subject
    from spen.estimators.model_file import load

    classifier = load(model, device)
    return Subject.of(classifier, dataset_for(classifier, data), f"{model} on {data}")
