"""Threads: beside a busy process, at the end of Python, eight at once, and for ten minutes."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

import spen

SLOWER = 2.5
"""How much longer something may take beside a busy process."""

GROWTH = 20.0
"""MiB by which a process may grow while it predicts, saves and loads for ten minutes."""

Figure = tuple[str, str, str, bool]
TINY = {"hidden": (8,), "epochs": 2, "folds": 1, "dropout": 0.1, "random_state": 0}
TINY |= {"device": "cpu"}


def figures(scale: float) -> Iterator[Figure]:
    """Yield the figures of this part of the long tests."""
    yield from beside_a_busy_process(
        rounds=max(1, round(3 * scale)), epochs=max(1, round(12 * scale))
    )
    yield exits(max(1, round(100 * scale)))
    with tempfile.TemporaryDirectory() as folder:
        yield eight_at_once(Path(folder), rounds=max(1, round(20 * scale)))
        yield soak(Path(folder), seconds=600 * scale)


def rows(count: int = 60, features: int = 6, labels: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Return random rows, and labels that depend on them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((count, features))
    return X, (X @ rng.standard_normal((features, labels)) > 0.3).astype(int)


# Beside a busy process ----------------------------------------------------------------------


@contextmanager
def busy_process() -> Iterator[None]:
    """Let another process burn a core meanwhile."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def beside_a_busy_process(rounds: int, epochs: int) -> Iterator[Figure]:
    """Time a small fit, a large one and single rows, quiet and beside a busy process in turns."""
    goal = f"at most {SLOWER} times the quiet time"
    threads = torch.get_num_threads()
    small, large = rows(300, 30, 6), rows(2000, 100, 20)
    settings = {"epochs": epochs, "folds": 1, "dropout": 0.25, "refit": False, "random_state": 0}
    fitted = spen.SPENClassifier(**settings).fit(*small)

    def fit(data: tuple[np.ndarray, np.ndarray]) -> list[float]:
        began = time.perf_counter()
        spen.SPENClassifier(**settings).fit(*data)
        return [time.perf_counter() - began]

    def predict() -> list[float]:
        marks = [time.perf_counter()]
        for number in range(1000):
            fitted.predict(small[0][number % 300][None])
            marks.append(time.perf_counter())
        return np.diff(marks).tolist()

    def both(work: Callable[[], list[float]]) -> tuple[np.ndarray, np.ndarray]:
        quiet, busy = [], []
        for _ in range(rounds):
            quiet += work()
            with busy_process():
                busy += work()
        return np.array(quiet), np.array(busy)

    for name, data in (("small", small), ("large", large)):
        quiet, busy = (np.median(times) for times in both(lambda data=data: fit(data)))
        shape = " × ".join(map(str, (*data[0].shape, data[1].shape[1])))
        yield (
            f"a {name} fit, {shape}, of {threads} threads, beside a busy process",
            goal,
            f"{busy / quiet:.2f} times ({quiet:.1f} s quiet, {busy:.1f} s busy)",
            bool(busy <= SLOWER * quiet),
        )
    quiet, busy = (1e3 * np.percentile(times, [50, 99]) for times in both(predict))
    yield (
        "a row through predict, the 99th percentile beside a busy process",
        goal,
        f"{busy[1]:.2f} ms (median {busy[0]:.2f}; quiet {quiet[1]:.2f}, median {quiet[0]:.2f})",
        bool(busy[1] <= SLOWER * quiet[1]),
    )


# At the end of Python -----------------------------------------------------------------------

EXITS = """
import itertools, json, os, random, sys, tempfile, threading, time
from torture.threads import TINY, rows
import spen

X, Y = rows()
fitted = spen.SPENClassifier(**TINY).fit(X, Y)
folder = tempfile.TemporaryDirectory()
path = os.path.join(folder.name, "m.spen")
fitted.save(path)

def forever(work):
    while True:
        work()

kinds = [
    lambda: fitted.predict(X),
    lambda: fitted.predict_proba(X[:1]),
    lambda: spen.SPENClassifier(**TINY).fit(X, Y),
    lambda: spen.load(path).energy(X, Y),
]
codes = []
for number in range(int(sys.argv[1])):
    child = os.fork()
    if not child:
        folder._finalizer.detach()
        for work in kinds:
            threading.Thread(target=forever, args=(work,), daemon=True).start()
        time.sleep(random.Random(number).uniform(0.1, 0.5))
        sys.exit()
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(codes))
"""


def exits(count: int) -> Figure:
    """End processes whose daemon threads predict, fit and load; each is a fork of one."""
    command = [sys.executable, "-W", "ignore", "-c", EXITS, str(count)]
    where = str(Path(__file__).parents[1])
    done = subprocess.run(command, capture_output=True, text=True, cwd=where)
    codes = json.loads(done.stdout or "[]")
    wrong = [code for code in codes if code]
    return (
        f"{count} ends of Python while daemon threads predict, fit and load",
        "exit code 0, nothing on stderr",
        f"{len(wrong)} others {sorted(set(wrong))} {done.stderr[:200]}".rstrip(" []"),
        len(codes) == count and not wrong and not done.stderr,
    )


# Eight at once ------------------------------------------------------------------------------


def eight_at_once(folder: Path, rounds: int) -> Figure:
    """Fit, predict, load and save in eight threads at once, and compare with one alone."""
    X, Y = rows()
    fitted = spen.SPENClassifier(**TINY).fit(X, Y)
    wanted, shared = fitted.predict_proba(X), folder / "shared.spen"
    fitted.save(shared)

    def fit(_: int) -> np.ndarray:
        return spen.SPENClassifier(**TINY).fit(X, Y).predict_proba(X)

    def predict(number: int) -> np.ndarray:
        single = fitted.predict_proba(X[number : number + 1])
        return fitted.predict_proba(X) if np.allclose(single, wanted[number], atol=1e-5) else single

    def load(_: int) -> np.ndarray:
        return spen.load(shared).predict_proba(X)

    def save(number: int) -> np.ndarray:
        fitted.save(shared)
        fitted.save(folder / f"{number}.spen")
        return spen.load(folder / f"{number}.spen").predict_proba(X)

    kinds = (fit, predict, load, save)

    def work(number: int) -> int:
        order = itertools.islice(itertools.cycle(kinds), number % 4, number % 4 + rounds * 4)
        return sum(not np.array_equal(kind(number), wanted) for kind in order)

    with ThreadPoolExecutor(8) as threads:
        wrong = sum(threads.map(work, range(8)))
    calls = 8 * 4 * rounds
    what = f"{calls} fits, predictions, loads and saves in 8 threads"
    return what, "0 other answers than alone", f"{wrong} others", wrong == 0


# For long -----------------------------------------------------------------------------------


def soak(folder: Path, seconds: float, least: int = 20) -> Figure:
    """Predict, load, save and score in a loop, and see how much memory that takes in the end.

    Args:
        folder: for a model file.
        seconds: how long.
        least: rounds at least, and before memory is first looked at.
    """
    X, Y = rows(400)
    known = np.where(np.random.default_rng(1).random(Y.shape) < 0.3, Y, np.nan)
    classifier = spen.SPENClassifier(**TINY).fit(X[:60], Y[:60])
    path = folder / "soak.spen"
    before, end = 0.0, time.monotonic() + seconds
    began, number = time.monotonic(), 0
    # The first tenth fills caches, and the heap with the holes that it goes on to use.
    while number < 2 * least or time.monotonic() < end:
        some = slice(number % 300, number % 300 + 1 + number % 97)
        classifier.predict(X[some])
        classifier.predict_proba(X[some], known=known[some])
        classifier.predict(X[some], sparse=True)
        classifier.energy(X[some], Y[some])
        classifier.save(path)
        classifier = spen.load(path)
        number += 1
        if not before and number >= least and time.monotonic() >= began + 0.1 * seconds:
            before = resident()
    growth = resident() - before
    what = f"{number} rounds of predicting, loading, saving, energies and known labels"
    return what, f"at most {GROWTH:.0f} MiB more", f"{growth:.1f} MiB more", growth <= GROWTH


def resident() -> float:
    """Return the memory that this process has, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmRSS.")
