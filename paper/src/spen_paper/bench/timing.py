"""Times that can be compared: calls that take turns in one process; how many, and on what."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from spen.files import versions

QUICK = 0.02
"""Seconds; calls that take less run once untimed before each timed run, since what ran in
between has taken their data out of the caches."""

FEWEST_ROUNDS = 3
OPTIONAL = ("numba", "triton", "scipy", "scikit-learn")
"""Packages that decide which code runs, beside those of every record."""


def note(text: str) -> None:
    """Print a line on the error output, so that the standard output holds figures alone."""
    print(f"spen: {text}", file=sys.stderr, flush=True)  # noqa: T201


@dataclass(frozen=True)
class Effort:
    """Sizes and repetitions of a bench; the defaults are those of the command.

    Attributes:
        rounds: how often calls are timed in turns, at most.
        seconds: after so long no further round is begun.
        labels: numbers of labels, for growth with the labels.
        label_rows: rows that are solved there.
        burst: descents over fewer labels than this are timed several at a time: one is too short.
        largest_table: the most labels for which a pairwise CRF is tried.
        rows: numbers of rows, for growth with the rows.
        chunk: rows that are solved at a time there, to bound memory.
        longest: seconds that one size may take; larger ones are extrapolated.
        single_rows: how many rows are predicted one by one.

    >>> Effort().labels[0], Effort().labels[-1]
    (128, 32768)
    """

    rounds: int = 25
    seconds: float = 20.0
    labels: tuple[int, ...] = tuple(128 << k for k in range(9))
    label_rows: int = 256
    burst: int = 4096
    largest_table: int = 8192
    rows: tuple[int, ...] = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
    chunk: int = 1 << 16
    longest: float = 60.0
    single_rows: int = 200

    @property
    def few_rounds(self) -> int:
        """The number of rounds of what takes long."""
        return min(FEWEST_ROUNDS, self.rounds)

    @classmethod
    def of(cls, device: torch.device) -> Effort:
        """Return what suits a device: a GPU needs more rows to be busy, and has room for them.

        >>> Effort.of(torch.device("cpu")) == Effort()
        True
        """
        if device.type != "cuda":
            return cls()
        return cls(label_rows=2048, largest_table=32768, chunk=1 << 20)


@dataclass(frozen=True)
class Timings:
    """Seconds of some calls, one for each round in which all of them ran.

    >>> timings = Timings({"slow": [2.0, 3.0, 8.0], "quick": [1.0, 1.0, 2.0]})
    >>> timings.milliseconds("slow"), timings.ratio("slow", "quick")
    (3000.0, 3.0)
    """

    seconds: Mapping[str, Sequence[float]]

    def milliseconds(self, name: str) -> float:
        """Return the median time of a call."""
        return 1e3 * statistics.median(self.seconds[name])

    def ratio(self, slow: str, quick: str) -> float:
        """Return how many times as long one call takes as another: the median over rounds."""
        pairs = zip(self.seconds[slow], self.seconds[quick], strict=True)
        return statistics.median(a / b for a, b in pairs)

    def medians(self) -> dict[str, float]:
        """Return the median time of every call in milliseconds."""
        return {name: self.milliseconds(name) for name in self.seconds}


def interleave(
    calls: Mapping[str, Callable[[], object]], device: torch.device, *, rounds: int, seconds: float
) -> Timings:
    """Time calls in turns, so that what else the machine does meets all of them alike.

    Args:
        calls: by name. Each runs once before anything is timed, so that it is compiled.
        device: whose work is waited for.
        rounds: how often each call is timed, at most.
        seconds: after so long no further round is begun, once there are a few.

    >>> timings = interleave({"nothing": int}, torch.device("cpu"), rounds=4, seconds=1.0)
    >>> len(timings.seconds["nothing"])
    4
    """
    last = {name: timed(call, device) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    began = time.perf_counter()
    for number in range(rounds):
        if number >= FEWEST_ROUNDS and time.perf_counter() - began > seconds:
            break
        for name, call in calls.items():
            if last[name] < QUICK:
                call()
            last[name] = timed(call, device)
            found[name].append(last[name])
    return Timings(found)


def timed(call: Callable[[], object], device: torch.device) -> float:
    """Return the seconds that a call takes, until its device has done all of it."""
    wait_for(device)
    began = time.perf_counter()
    call()
    wait_for(device)
    return time.perf_counter() - began


def wait_for(device: torch.device) -> None:
    """Wait until a device has done what it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return k of the power law value ∝ sizeᵏ that fits best, in logarithms.

    >>> round(exponent([1, 2, 4], [5.0, 20.0, 80.0]), 6)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Return the machine as far as it matters for times.

    >>> machine = describe_machine(torch.device("cpu"))
    >>> machine["gpu"] is None, machine["threads"] > 0
    (True, True)
    """
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "cpu": processor(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "system": f"{platform.system()} {platform.machine()}",
        "load": round(os.getloadavg()[0], 2),
        "versions": versions() | {name: _version(name) for name in OPTIONAL},
    }


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor() -> str:
    """Return the processor's own name, where the system tells it."""
    return _told_by_system("cpuinfo", "model name") or platform.processor() or platform.machine()


def _told_by_system(file: str, name: str) -> str | None:
    """Return a value from a table of Linux, None where there is none."""
    path = Path("/proc", file)
    lines = path.read_text("utf-8", errors="replace").splitlines() if path.exists() else []
    parts = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in parts if key.strip() == name), None)


def free_bytes(device: torch.device) -> int:
    """Return how much memory a device has left, or what the machine has where nobody tells.

    >>> free_bytes(torch.device("cpu")) > 0
    True
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    available = _told_by_system("meminfo", "MemAvailable")
    if available is not None:
        return 1024 * int(available.split()[0])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
