"""``spen doctor``: versions, devices, kernels and data folders, on one screen."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import spen
from spen.cli.show import say, show_json

_NEED = re.compile(r"(?P<package>[\w.-]+)(?:\[[^]]*\])?(?P<range>[^;]*)")
_EXTRA = re.compile(r"extra == '([^']+)'")
FOR_DEVELOPERS = ("dev", "docs")
"""Extras whose packages no user needs."""


def doctor(*, json: bool = False) -> None:
    """Versions, devices, kernels and data folders, on one screen to paste into an issue.

    Args:
        json: Print one JSON object instead of text.
    """
    found = {"spen": {"version": spen.__version__}} | {
        part.__name__.strip("_"): _all_of(part)
        for part in (_machine, _packages, _devices, _kernels, _limits, _data)
    }
    if json:
        show_json(found)
        return
    say(f"spen {spen.__version__}")
    for title, facts in list(found.items())[1:]:
        say(f"\n{title}")
        width = max(map(len, facts), default=0)
        for name, fact in facts.items():
            say(f"  {name:<{width}}  {fact}")


def _all_of(part: Callable[[], Iterator[tuple[str, str]]]) -> dict[str, str]:
    """Return the facts of a part; what is broken is one of them, and hides no other part."""
    facts = {}
    try:
        for name, fact in part():
            facts[name] = fact
    except Exception as problem:
        facts["FAILS"] = f"{type(problem).__name__}: {problem}"
    return facts


def _machine() -> Iterator[tuple[str, str]]:
    import torch

    yield "Python", f"{platform.python_version()} ({platform.python_implementation()})"
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield "spen is in", _short(Path(spen.__file__).parent)
    yield "threads", f"{torch.get_num_threads()} of torch, as OMP_NUM_THREADS or the cores say"


def _packages() -> Iterator[tuple[str, str]]:
    """Yield the version of each package that spen needs or can use."""
    try:
        needs = requires("spen") or []
    except PackageNotFoundError:
        yield "spen", "runs from its sources, so what it needs is not known"
        return
    wanted: dict[str, str] = {}
    for need in needs:
        extra = _EXTRA.search(need)
        match = _NEED.match(need)
        if match is None or (extra and extra[1] in FOR_DEVELOPERS):
            continue
        wanted.setdefault(match["package"], extra[1] if extra else "")
    for package, extra in wanted.items():
        try:
            yield package, version(package)
        except PackageNotFoundError:
            cure = f"pip install 'spen[{extra}]'" if extra else "spen needs it"
            yield package, f"not installed: {cure}"
    # Triton comes with torch where that is built for CUDA.
    for package in ("triton", "spen-paper"):
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"


def _devices() -> Iterator[tuple[str, str]]:
    import torch

    yield "cpu", torch.backends.cpu.get_cpu_capability()
    if not torch.cuda.is_available():
        built = torch.version.cuda
        why = "torch finds no CUDA device" if built else "this torch is built without CUDA"
        yield "cuda", f"none: {why}"
        return
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        memory = f"{about.total_memory / 2**30:.0f} GiB"
        yield f"cuda:{number}", f"{about.name}, {about.major}.{about.minor}, {memory}"


def _kernels() -> Iterator[tuple[str, str]]:
    """Yield how the kernel of each device does on a small problem, or why there is none."""
    import torch

    for device in ("cpu", "cuda"):
        if device == "cuda" and not torch.cuda.is_available():
            yield device, "not tried: there is no CUDA device"
            continue
        yield device, _try_kernel(device)


def _try_kernel(device: str) -> str:
    """Return whether the kernel of a device finds what single steps find."""
    import torch

    from spen.inference.fused import solve_fused

    generator = torch.Generator().manual_seed(0)
    energy = spen.LocalEnergy(12, 12) + spen.LabelEnergy(
        12, measurements=4, nonlinearity="softplus"
    )
    energy.reset(generator)
    features = torch.randn((8, 12), generator=generator).to(device)
    form, box = energy.to(device).bind(spen.Context(features)), spen.UnitBox(12)
    stopping = spen.Stopping(max_steps=50)
    descent = spen.Descent(spen.MirrorDescent(lr=0.1), stopping, backend="general")
    try:
        with torch.no_grad():
            began = time.perf_counter()
            fused = solve_fused(descent, form, box, box.uniform(form.rows_like), None)
            seconds = time.perf_counter() - began
            if isinstance(fused, str):
                return f"single steps, since {fused}"
            apart = float((fused.energy - descent.solve(form, box).energy).abs().max())
    except Exception as problem:  # what fails here, and how, is the answer
        return f"FAILS: {type(problem).__name__}: {problem}"
    if apart > 1e-3:
        return f"WRONG: its energies are off by {apart:.1e}; please report it"
    return f"runs, and agrees with single steps (first call {seconds:.1f} s, compiling included)"


def _limits() -> Iterator[tuple[str, str]]:
    from dataclasses import asdict

    from spen.batch.limits import in_words

    for name, value in asdict(spen.limits).items():
        yield name, in_words(value)


def _data() -> Iterator[tuple[str, str]]:
    from spen.data.catalog import ENTRIES, data_folders, find

    for folder in data_folders():
        here = sorted(name for name in ENTRIES if find(name) == folder / name)
        fact = ", ".join(here) or "no data set of spen data list"
        yield _short(folder), fact if folder.is_dir() else "is not there"


def _short(path: Path) -> str:
    """Write a path without the name of the home folder, which is often a person's."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
