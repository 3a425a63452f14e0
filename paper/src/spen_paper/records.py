"""Records of runs, in a file that survives being killed."""

from __future__ import annotations

import base64
import json
import os
import time
import warnings
import zlib
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from spen.errors import InputError, choose
from spen.files import full_disk_named, versions
from spen_paper.bench.timing import describe_machine

F1_RULE = "example-averaged F1 x 100; a row empty in truth and prediction counts 1"
KEY = ("experiment", "dataset", "method", "n_train", "seed", "fold", "decoding", "settings")
"""What makes two records the same run."""

Record = dict[str, Any]


class Records:
    """The runs of a folder, in ``records.jsonl``; one that is there is not run again.

    Records that were kept beside it, in ``records-*.jsonl``, are read too.

    >>> import tempfile
    >>> records = Records(tempfile.mkdtemp())
    >>> records.add({"experiment": "table3", "method": "linear", "metrics": {"f1": 80.0}})
    >>> Records(records.folder).find({"experiment": "table3", "method": "linear"})["metrics"]
    {'f1': 80.0}
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "records.jsonl"
        self._records: dict[str, Record] = {}
        # Said before hours of work, not after them.
        if (self.folder.exists() and not self.folder.is_dir()) or self.path.is_dir():
            raise InputError(f"{self.folder} cannot hold records. Name another folder with out.")
        for path in sorted(self.folder.glob("records*.jsonl")):
            for record in _complete_lines(path):
                self._records[_key(record)] = record

    def find(self, run: Record) -> Record | None:
        """Return the record of a run that was made before, with the same settings."""
        return self._records.get(_key(run))

    def add(self, record: Record) -> None:
        """Append a record, and wait until it is on the disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record, separators=(",", ":")) + "\n"
        with full_disk_named(self.path), self.path.open("ab+") as file:
            # A run killed in mid-write leaves half a line; the next one starts on its own.
            if file.tell() and not _ends_with_newline(file):
                line = "\n" + line
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self._records[_key(record)] = record

    def make(self, identity: Record, measure: Callable[[], Record]) -> Record:
        """Return the record of one run; measure it unless it is there (see ``make_all``)."""
        return self.make_all({"": identity}, lambda: {"": measure()})[""]

    def make_all(
        self, wanted: dict[str, Record], measure: Callable[[], dict[str, Record]]
    ) -> dict[str, Record]:
        """Return the records that one fit makes together; make them unless all are there.

        Args:
            wanted: the identity of each, by any name.
            measure: fits, and returns what belongs to each name besides.
        """
        found = {name: self.find(identity) for name, identity in wanted.items()}
        if all(found.values()):
            return {name: record for name, record in found.items() if record is not None}
        began = time.perf_counter()
        with warnings.catch_warnings():
            # Rows whose inference has not converged count like any other.
            warnings.simplefilter("ignore", ConvergenceWarning)
            measured = measure()
        common = {"seconds": round(time.perf_counter() - began, 3), "versions": versions()}
        made = {name: identity | common | measured[name] for name, identity in wanted.items()}
        for record in made.values():
            self.add(record)
        return made


def kept(
    out: Path | None,
    experiment: str,
    settings: Record,
    measure: Callable[[], Any],
    device: str = "cpu",
) -> Record:
    """Return what a script measures, with the machine: from a folder's records if it is there.

    Args:
        out: the folder; None measures and keeps nothing.
        experiment: what is measured.
        settings: of the measurement; others are another record.
        measure: returns what is found, as JSON can hold it.
        device: whose name belongs to it.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> kept(folder, "answer", {"rows": 2}, lambda: 42)["found"]
    42
    >>> kept(folder, "answer", {"rows": 2}, lambda: 43)["found"]
    42
    """

    def measured() -> Record:
        return {"machine": describe_machine(torch.device(device)), "found": measure()}

    run = {"experiment": experiment, "settings": settings}
    return run | measured() if out is None else Records(out).make(run, measured)


def identity(
    experiment: str,
    dataset: str,
    method: str,
    n_train: int,
    seed: int,
    settings: Record,
    *,
    fold: int | None = None,
    decoding: str | None = None,
    rule: str = F1_RULE,
) -> Record:
    """Return what tells a run from others, and the rule of its scores."""
    values = (experiment, dataset, method, n_train, seed, fold, decoding, settings)
    return dict(zip(KEY, values, strict=True)) | {"rule": rule}


def brief(thing: Any) -> Any:
    """Describe settings for a record: classes by name, with what is not as they have it anyway.

    What is left out does not tell runs apart, so a setting that is added later, with a
    default that changes nothing, leaves old records valid.

    >>> from spen.inference.descent import Descent, Stopping
    >>> brief(Descent(stopping=Stopping(max_steps=20)))
    {'class': 'Descent', 'stopping': {'class': 'Stopping', 'max_steps': 20}}
    """
    if isinstance(thing, type):
        return thing.__name__
    if is_dataclass(thing):
        own = {
            field.name: brief(getattr(thing, field.name))
            for field in fields(thing)
            if brief(getattr(thing, field.name)) != _default(field)
        }
        return {"class": type(thing).__name__} | own
    if isinstance(thing, dict):
        return {str(name): brief(value) for name, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [brief(item) for item in thing]
    if hasattr(thing, "tolist"):  # an array, or a number of one
        return thing.tolist()
    return thing if isinstance(thing, str | int | float | bool | None) else repr(thing)


ROW_PARTS = 10_000
"""Of 1, in which the scores of rows are kept."""


def pack_rows(scores: np.ndarray) -> str:
    """Return the scores of rows (n,), between 0 and 1, as a short text for a record.

    >>> unpack_rows(pack_rows(np.array([0.0, 2 / 3, 1.0])))
    array([0.    , 0.6667, 1.    ])
    """
    parts = np.rint(np.asarray(scores, float) * ROW_PARTS).astype("<u2")
    return base64.b64encode(zlib.compress(parts.tobytes(), 9)).decode()


def unpack_rows(text: str) -> np.ndarray:
    """Return the scores that ``pack_rows`` has written."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), "<u2") / ROW_PARTS


def _default(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return brief(field.default)
    return MISSING if field.default_factory is MISSING else brief(field.default_factory())


def _key(record: Record) -> str:
    return json.dumps([record.get(name) for name in KEY], sort_keys=True)


def _complete_lines(path: Path) -> Iterable[Record]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue  # half a line, of a run that was killed while it wrote
        if isinstance(record, dict):
            yield record


def _ends_with_newline(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def check_seeds(seeds: int) -> None:
    """Raise unless there is a seed to run."""
    if seeds < 1:
        raise InputError(f"seeds must be 1 or more; received {seeds}.")


def methods_named(text: str | None, known: Iterable[str]) -> list[str]:
    """Return the methods that a comma-separated list names, in the table's order; None is all.

    >>> methods_named("mlp,br", ["br", "lr", "mlp"])
    ['br', 'mlp']
    """
    order = dict.fromkeys(known)
    if text is None:
        return list(order)
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    for name in wanted:
        choose(name, order, "method")
    if not wanted:
        raise InputError(f"No method is named. Choose from: {', '.join(order)}.")
    return [name for name in order if name in wanted]
