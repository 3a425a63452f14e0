"""One JSON record per run, in a file that survives being killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spen.errors import InputError
from spen.files import to_json

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
        line = json.dumps(record, sort_keys=True, separators=(",", ":")) + "\n"
        with self.path.open("ab+") as file:
            # A run killed in mid-write leaves half a line; the next one starts on its own.
            if file.tell() and not _ends_with_newline(file):
                line = "\n" + line
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self._records[_key(record)] = record


def brief(thing: Any) -> Any:
    """Describe settings for a record; see ``to_json``."""
    return to_json(thing, brief=True)


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
