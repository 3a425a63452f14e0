"""A small fit of a stream with a checkpoint, for the test that kills it in the middle.

Usage: killed_stream.py ROWS CHECKPOINT MODEL (it sleeps before each part and buffer)
"""

import sys
import time
from pathlib import Path

import torch

import spen
from spen.training import checkpoint, store, streamed

SETTINGS = {(store, "BLOCK"): 4000, (streamed, "BUFFER"): 16_000, (checkpoint, "SAVED_TIMES"): 0}
"""Blocks and buffers as of a large file; a kill may find any epoch."""


def fit(rows: Path, run: Path, model: Path) -> None:
    clf = spen.SPENClassifier(hidden=(8,), epochs=4, random_state=3, device="cpu")
    clf.fit(spen.open_rows(rows, labels=-16), checkpoint=run, resume=True)
    clf.save(model)


def slowly(function, seconds):
    def wait(*given):
        time.sleep(seconds)
        return function(*given)

    return wait


if __name__ == "__main__":
    torch.set_num_threads(1)
    for (module, name), value in SETTINGS.items():
        setattr(module, name, value)
    store.StoreWriter.add = slowly(store.StoreWriter.add, 0.3)
    streamed.StreamedRows.read = slowly(streamed.StreamedRows.read, 0.03)
    fit(*map(Path, sys.argv[1:4]))
