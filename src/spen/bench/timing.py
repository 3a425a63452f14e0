"""Times that can be compared: calls that take turns in one process, medians, ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

QUICK = 0.02
"""Seconds; calls that take less run once untimed before each timed run, since what ran in
between has taken their data out of the caches."""

FEWEST_ROUNDS = 3


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
    calls: Mapping[str, Callable[[], object]],
    device: torch.device,
    *,
    rounds: int,
    seconds: float,
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
