"""What a bench ran on, in words."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import torch

from spen.files import versions

OPTIONAL = ("numba", "triton", "scipy", "scikit-learn")
"""Packages that decide which code runs, beside those of every record."""


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
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def free_bytes(device: torch.device) -> int:
    """Return how much memory a device has left, or what the machine has where nobody tells.

    >>> free_bytes(torch.device("cpu")) > 0
    True
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    table = Path("/proc/meminfo")
    if table.exists():
        for line in table.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
