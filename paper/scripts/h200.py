"""Times of the GPU kernel's plans on a CUDA device: milliseconds, and ns a row and step.

    python paper/scripts/h200.py [--form FILE.npz] [--rows N] [--out FOLDER]

A file holds a bound form: linear, constant, measurements, readout, bias and the name of the
nonlinearity; without one a random form of Bibtex's shape is used. Each line has two tolerances,
1e-3 and 2e-2. With --out what is measured is kept in FOLDER/records.jsonl, and where it is there
already it is printed again, on any machine. That answers are those of the general path is a matter
of tests/kernels/test_cuda.py, and `spen bench --device cuda` compares both on a trained model.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from spen import Block, Form
from spen.cli.show import text_table
from spen.energies.form import nonlinearity
from spen.kernels import cuda
from spen.kernels.cuda import TilePlan
from spen.kernels.interface import Limits, StepRule
from spen_paper.bench.timing import timed
from spen_paper.records import kept

BUNDLE = StepRule(reach=8.0, grow=1.2, shrink=0.5)
PAPER = StepRule(lr=0.1, momentum=0.95)
LIMITS = [Limits(max_steps=100, objective_rtol=rtol, iterate_atol=1e-4) for rtol in (1e-3, 2e-2)]
PAPERS = "the paper's rule"
BEST = TilePlan(4, (32, 8), 16, programs=2)
PLANS = {
    "4 warps, 2 programs": BEST,
    "… refill 2": replace(BEST, refill=2),
    "… refill 6": replace(BEST, refill=6),
    "… refill 8": replace(BEST, refill=8),
    "4 warps, 3 programs": TilePlan(4, (32, 8), 16, programs=3),
    "4 warps, 1 program": TilePlan(4, (32, 8), 16, refill=2, programs=1),
    "2 warps, 4 programs": TilePlan(2, (64, 16), 16, programs=4),
    "8 warps, 1 program": TilePlan(8, (16, 8), 16, programs=1),
}


def drawn(n: int, n_labels: int, m: int) -> Form:
    """Draw a form on the GPU."""
    generator = torch.Generator("cuda").manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device="cuda")

    block = Block(draw(m, n_labels), draw(m), draw(m), nonlinearity("relu"))
    return Form(constant=draw(n), linear=4 * draw(n, n_labels), blocks=(block,))


def from_file(path: str) -> Form:
    """Read a bound form."""
    arrays = np.load(path)
    names = ("measurements", "bias", "readout", "constant", "linear")
    C, b, c, constant, linear = (torch.from_numpy(arrays[name]).cuda() for name in names)
    block = Block(C, b, c, nonlinearity(str(arrays["nonlinearity"])))
    return Form(constant, linear, blocks=(block,))


def milliseconds(call: Callable[[], object], repeats: int = 3) -> float:
    """Return the median time of a call, the launch included; it has run once to compile."""
    call()
    return 1e3 * statistics.median(timed(call, torch.device("cuda")) for _ in range(repeats))


def measure(form: Form, rule: StepRule, plan: TilePlan) -> list[dict[str, float]]:
    """Return times and steps of a plan at both tolerances."""
    start = torch.full((), 0.5, device="cuda").expand(form.rows_like.shape)
    found = []
    for limits in LIMITS:

        def solve(limits: Limits = limits):
            return cuda.on_chip(form, rule, limits, start, None, plan)

        found.append({"ms": milliseconds(solve), "steps": solve().steps.double().mean().item()})
    return found


def measure_all(path: str | None, n: int) -> dict[str, list[dict[str, float]]]:
    """Return what every plan takes by the default rule, and the best one by the paper's."""
    form = from_file(path) if path else drawn(2000, 159, 15)
    rows = form.select(torch.arange(n, device="cuda") % form.rows_like.shape[0])
    found = {title: measure(rows, BUNDLE, plan) for title, plan in PLANS.items()}
    return found | {PAPERS: measure(rows, PAPER, BEST)}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--form", help="a bound form; without it one is drawn")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, help="keeps what was measured")
    options = parser.parse_args()
    form = hashlib.sha256(Path(options.form).read_bytes()).hexdigest() if options.form else None
    settings = {"form": form, "rows": options.rows}
    measured = partial(measure_all, options.form, options.rows)
    record = kept(options.out, "plans", settings, measured, "cuda")
    print(f"{record['machine']['gpu']}, {options.rows:,} rows")
    parts = ("ms", "ns a row and step", "steps")
    header = ["", *(f"{of}: {part}" for of in ("10⁻³", "2 · 10⁻²") for part in parts)]
    rows = []
    for title, both in record["found"].items():
        cells = []
        for each in both:
            nanoseconds = 1e6 * each["ms"] / options.rows / each["steps"]
            cells += [f"{each['ms']:.1f}", f"{nanoseconds:.2f}", f"{each['steps']:.1f}"]
        rows.append([title, *cells])
    print(text_table(header, rows))


if __name__ == "__main__":
    main()
