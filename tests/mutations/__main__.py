"""Plants bugs and says which the tests catch.

    python tests/mutations planted              every bug of ``planted.py``: its test must fail
    python tests/mutations drawn 100 0          100 changes that seed 0 draws
    python tests/mutations drawn 100 0 --share 2/6      every sixth of them, from the second on
    python tests/mutations unchanged            the tests that judge drawn ones, without any change

Nothing is written but the log, ``mutations-NAME.json`` in the folder for temporary files, or what
``--log FILE`` names: a changed file is compiled from memory, in a process of its own. Of drawn
changes, those that are in the log already are not tried again. Where tests fail without a change,
they say nothing: ``unchanged`` has to print "survived" for each.
"""

from __future__ import annotations

import argparse
import doctest
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCES = (ROOT / "src", ROOT / "paper/src")

MOST_SECONDS = 240
"""Of the processor, for the tests of one change; a change may make a loop endless."""

CAUGHT, SURVIVED, ENDLESS, BROKEN = "caught", "survived", "endless", "broken"


class FromMemory(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Gives one module a source that is not the file's."""

    def __init__(self, path: Path, source: bytes) -> None:
        (root,) = (root for root in SOURCES if path.is_relative_to(root))
        parts = path.relative_to(root).with_suffix("").parts
        super().__init__(".".join(parts).removesuffix(".__init__"), str(path))
        self.source = source

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        """Return this loader for its module, and nothing for others."""
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source anew, whatever is kept of the file's."""
        return compile(self.source, self.path, "exec", dont_inherit=True)


def outcome(
    path: Path, source: bytes, tests: Sequence[str], *, examples: bool = False
) -> tuple[str, float]:
    """Return what tests say of a changed source, and the processor's seconds.

    Args:
        path: of the file.
        source: what it would hold.
        tests: as pytest names them.
        examples: whether those in the file's docstrings are tried before.
    """
    child = os.fork()
    if child == 0:
        _in_child(path, source, tests, examples)
    _, status, used = os.wait4(child, 0)
    seconds = round(used.ru_utime + used.ru_stime, 1)
    if os.WIFSIGNALED(status):
        return ENDLESS, seconds
    # Of pytest: 0 all passed, 1 some failed; 2 a file could not even be imported.
    words = {0: SURVIVED, 1: CAUGHT, 2: CAUGHT}
    return words.get(os.waitstatus_to_exitcode(status), BROKEN), seconds


def _in_child(path: Path, source: bytes, tests: Sequence[str], examples: bool) -> None:
    code = 99
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS + 5))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        changed = FromMemory(path, source)
        sys.meta_path.insert(0, changed)
        code = 0
        if examples:
            # Pytest would take them from the file as it is.
            options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
            module = importlib.import_module(changed.name)
            code = int(doctest.testmod(module, optionflags=options).failed > 0)
        if not code:
            import pytest

            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
    finally:
        os._exit(code)


def plant(log: Path) -> int:
    """Try every bug of the list; the exit code is 1 where one is not caught."""
    from mutations.planted import PLANTED

    missed = []
    for bug in PLANTED:
        path = ROOT / bug.path
        source = path.read_text()
        if source.count(bug.old) != 1:
            found, seconds = "does not apply", 0.0
        else:
            changed = source.replace(bug.old, bug.new).encode()
            found, seconds = outcome(path, changed, [bug.test])
        if found != CAUGHT:
            missed.append(bug)
        note(log, {"bug": f"{bug.path}: {bug.new}", "test": bug.test, "found": found,
                   "seconds": seconds})  # fmt: skip
    print(f"{len(PLANTED) - len(missed)} of {len(PLANTED)} caught", flush=True)
    return int(bool(missed))


def try_unchanged(log: Path) -> int:
    """Run the tests that judge drawn changes on sources as they are; 1 where some fail."""
    from mutations.drawn import TESTS

    failed = 0
    for pattern, tests in TESTS.items():
        path = next(path for path in sorted(ROOT.glob(pattern)) if path.name != "__init__.py")
        found, seconds = outcome(path, path.read_bytes(), tests, examples=True)
        failed |= found != SURVIVED
        note(log, {"bug": f"none in {pattern}", "found": found, "seconds": seconds})
    return int(failed)


def try_drawn(count: int, seed: int, share: tuple[int, int], log: Path) -> int:
    """Try the changes that a seed draws; survivors are for people to look at."""
    from mutations.drawn import draw, judges_of

    tried = {}
    if log.exists():
        tried = {json.loads(line)["bug"]: json.loads(line) for line in log.open()}
    number, shares = share
    for change in draw(count, seed)[number - 1 :: shares]:
        if str(change) in tried:
            continue
        path = ROOT / change.path
        changed = change.apply(path.read_bytes())
        found, seconds = outcome(path, changed, judges_of(change), examples=True)
        tried[str(change)] = {"bug": str(change), "found": found, "seconds": seconds}
        note(log, tried[str(change)])
    counts = {found: sum(each["found"] == found for each in tried.values())
              for found in (CAUGHT, ENDLESS, SURVIVED, BROKEN)}  # fmt: skip
    print(counts, flush=True)
    return 0


def note(log: Path, record: dict[str, Any]) -> None:
    """Show a record, and add it to the log."""
    print(f"{record['found']:9} {record['seconds']:6.1f} s  {record['bug']}", flush=True)
    with log.open("a") as file:
        file.write(json.dumps(record) + "\n")


def main(arguments: Sequence[str]) -> int:
    """Run one of the kinds."""
    parser = argparse.ArgumentParser(prog="python tests/mutations", description=__doc__)
    parser.add_argument("kind", choices=("planted", "drawn", "unchanged"))
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--share", default="1/1", help="which part of the drawn ones, such as 2/6")
    parser.add_argument("--log", type=Path)
    given = parser.parse_args(arguments)
    log = given.log or Path(tempfile.gettempdir()) / f"mutations-{given.kind}.json"
    os.chdir(ROOT)
    for folder in (HERE.parent, *SOURCES):
        sys.path.insert(0, str(folder))
    # Every child has these at once: they take longer to import than most tests to run.
    for name in ("torch", "numpy", "scipy.optimize", "sklearn.multiclass", "numba"):
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    import torch

    # A fork takes no threads along.
    torch.set_num_threads(1)
    if given.kind == "planted":
        return plant(log)
    if given.kind == "unchanged":
        return try_unchanged(log)
    number, _, shares = given.share.partition("/")
    return try_drawn(given.count, given.seed, (int(number), int(shares)), log)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
