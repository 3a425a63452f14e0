"""``make torture``: the long form of what ``make test`` tries in short, figures and all.

Each module beside this one that has a function ``figures(scale)`` makes one table: rows of
(what, goal, found, whether it was reached). ``scale`` is 1 here and small in ``make test``.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def main(names: list[str]) -> int:
    """Run the parts that are named, or all; the exit code is 1 where a goal was missed."""
    sys.path.insert(0, str(HERE.parent))
    missed = 0
    for name in names or NAMES:
        began = time.perf_counter()
        print(f"{name} ...", flush=True)
        for what, goal, found, reached in importlib.import_module(f"torture.{name}").figures(1.0):
            missed += not reached
            print(f"  {'ok  ' if reached else 'MISS'} {what}: {found} (goal: {goal})", flush=True)
        print(f"  {time.perf_counter() - began:.0f} s", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
