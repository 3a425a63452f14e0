"""Runs a part of the long tests in a process of its own, which may fork: it has no threads."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__)
Figure = tuple[str, str, str, bool]


def figures_apart(scale: float, *names: str) -> Iterator[Figure]:
    """Yield what ``figures_here(scale)`` of each ``torture.NAME`` yields there."""
    command = [sys.executable, str(HERE), str(scale), *names]
    path = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield tuple(json.loads(line))
    if process.returncode:
        yield f"{names} ran to the end", "exit code 0", str(process.returncode), False


def main(scale: str, *names: str) -> None:
    """Print the figures, one a line."""
    import torch

    # Before anything is computed: a fork takes no threads along.
    torch.set_num_threads(1)
    # What commands print is not for whoever reads the figures.
    figures = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for name in names:
        for figure in importlib.import_module(f"torture.{name}").figures_here(float(scale)):
            print(json.dumps(figure), file=figures, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
