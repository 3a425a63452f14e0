"""Times of the GPU kernel's plans on a CUDA device: milliseconds, and ns a row and step.

    python paper/scripts/h200.py [--form FILE.npz ...] [--rows N]

A file holds a bound form: linear, constant, measurements, readout, bias and the name of the
nonlinearity; without one a random form of Bibtex's shape is used. Each line has two tolerances,
1e-3 and 2e-2. Nothing is saved. That answers are those of the general path is a matter of
tests/kernels/test_cuda.py, and `spen bench --device cuda` compares both on a trained model.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from spen import Block, Form
from spen.energies.form import nonlinearity
from spen.kernels import cuda
from spen.kernels.cuda import TilePlan
from spen.kernels.interface import Limits, StepRule
from spen_paper.bench.timing import timed

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


def line(form: Form, rule: StepRule, plan: TilePlan) -> str:
    """Return times and steps of a plan at both tolerances."""
    start = torch.full((), 0.5, device="cuda").expand(form.rows_like.shape)
    found = []
    for limits in LIMITS:

        def solve(limits: Limits = limits):
            return cuda.on_chip(form, rule, limits, start, None, plan)

        taken, steps = milliseconds(solve), solve().steps.double().mean().item()
        each = 1e6 * taken / len(start) / steps
        found.append(f"{taken:8.2f} ms {each:6.3f} ns ({steps:.1f} steps)")
    return "".join(found)


def main() -> None:
    """Time every plan by the default rule, and the best one by the paper's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--form", action="append", default=[])
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    forms = {path.rsplit("/", 1)[-1]: from_file(path) for path in options.form}
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for name, form in (forms or {"drawn": drawn(2000, 159, 15)}).items():
        print(f"\n{name}: {options.rows:,} rows, ms, ns per row and step")
        rows = form.select(torch.arange(options.rows, device="cuda") % form.rows_like.shape[0])
        for title, plan in PLANS.items():
            print(f"{title:24s} {line(rows, BUNDLE, plan)}", flush=True)
        print(f"{PAPERS:24s} {line(rows, PAPER, BEST)}", flush=True)


if __name__ == "__main__":
    main()
