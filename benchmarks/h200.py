"""The GPU kernels against the general path on a CUDA device: answers first, then times.

    python benchmarks/h200.py [--form FILE.npz ...] [--rows N] [--skip PART ...]

The parts are answers, plans, small and large. A file holds a bound form: linear, constant,
measurements, readout, bias and the name of the nonlinearity; without one a random form of
Bibtex's shape is used. Nothing is saved.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from h200_problems import (
    BUNDLE,
    PAPER,
    Case,
    cases,
    centred,
    drawn,
    from_file,
    repeated,
    uniform,
)
from torch import Tensor

import spen
from spen.energies.form import Form
from spen.kernels import cuda
from spen.kernels.cuda_plans import TilePlan, stream_plan
from spen.kernels.interface import Fused, Limits, StepRule

LIMITS = Limits(max_steps=100, objective_rtol=1e-3, iterate_atol=1e-4)
LOOSE = replace(LIMITS, objective_rtol=2e-2)
WORKERS = 14
PLANS = {
    "4 warps, 2 programs": TilePlan(4, (32, 8), 16, programs=2),
    "4 warps, 3 programs": TilePlan(4, (32, 8), 16, programs=3),
    "4 warps, 1 program": TilePlan(4, (32, 8), 16, refill=2, programs=1),
    "2 warps, 4 programs": TilePlan(2, (64, 16), 16, programs=4),
    "8 warps, 1 program": TilePlan(8, (16, 8), 16, programs=1),
}
REFILLS = {"4 warps, 2 programs": (2, 6, 8)}
SHAPES = {
    "983 labels, 15 measurements": (3185, 983, 15),
    "4,096 labels, 16 measurements": (2515, 4096, 16),
    "4,096 labels, 256 measurements": (2515, 4096, 256),
    "32,768 labels, 16 measurements": (512, 32768, 16),
}


def general(case: Case) -> spen.Solution:
    """Solve by the general path."""
    form, step, start, known = case
    rule = spen.MirrorDescent(step.lr or 1.0, step.momentum, step.decay)
    if step.is_bundle:
        rule = spen.MirrorBundle(step.reach, step.grow, step.shrink)
    stopping = spen.Stopping(LIMITS.max_steps, LIMITS.objective_rtol, LIMITS.iterate_atol)
    with torch.no_grad():
        descent = spen.Descent(rule, stopping, backend="general")
        return descent.minimise(form, spen.UnitBox(start.shape[1]), start, known)


def fused(case: Case) -> Fused:
    """Solve with the kernel and the plan that the library chooses."""
    form, step, start, known = case
    return cuda.minimise(form, step, LIMITS, start, known)


def streamed(case: Case) -> Fused:
    """Solve with the streaming kernel."""
    form, step, start, known = case
    plan = stream_plan(sum(len(block.readout) for block in form.blocks))
    return cuda.on_streams(form, step, LIMITS, start, known, plan)


def planned(form: Form, step: StepRule, plan: TilePlan, limits: Limits = LIMITS) -> Fused:
    """Solve on chip with a plan."""
    return cuda.on_chip(form, step, limits, uniform(form), None, plan)


def solved(form: Form) -> spen.Solution:
    """Solve by the library's own call."""
    stopping = spen.Stopping(LOOSE.max_steps, LOOSE.objective_rtol, LOOSE.iterate_atol)
    assert form.linear is not None
    with torch.no_grad():
        descent = spen.Descent(stopping=stopping, backend="fused")
        return descent.solve(form, spen.UnitBox(form.linear.shape[1]))


def plans_of(title: str) -> list[TilePlan]:
    """Return a plan with each of the refills to try."""
    plan = PLANS[title]
    return [plan, *(replace(plan, refill=each) for each in REFILLS.get(title, ()))]


def jobs(forms: dict[str, Form]) -> list[Callable[[], object]]:
    """Return one call of each kernel that is timed or checked, so that they compile at once."""
    found: list[Callable[[], object]] = []
    for form in forms.values():
        few = repeated(form, 32)
        for plan in itertools.chain.from_iterable(map(plans_of, PLANS)):
            found.append(lambda f=few, p=plan: planned(f, BUNDLE, p))
        found.append(lambda f=few: fused((f, PAPER, uniform(f), None)))
    for build in cases(32).values():
        found += [lambda b=build: fused(b()), lambda b=build: streamed(b())]
    for _, n_labels, m in SHAPES.values():
        found.append(lambda L=n_labels, m=m: fused(centred(drawn(32, L, m))))
    return found


def milliseconds(call: Callable[[], object], repeats: int = 5) -> float:
    """Return the median time of a call, the launch included."""
    call()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return 1e3 * float(np.median(times))


def replayed(call: Callable[[], object]) -> float:
    """Return the median time on the GPU alone, from a captured graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return milliseconds(graph.replay, 20)


def attempt(name: str, call: Callable[[], str]) -> None:
    """Print a line; a failure is printed too, and hides nothing else."""
    try:
        print(f"{name:42s} {call()}", flush=True)
    except Exception as error:
        reason = str(error).strip().splitlines() or [""]
        print(f"{name:42s} FAILED {type(error).__name__}: {reason[-1][:150]}", flush=True)


def agreement(found: Fused, wanted: spen.Solution) -> str:
    """Say how well two solutions agree."""
    both = (found.status == 1) & (wanted.status == 1)
    both = both if both.any() else torch.ones_like(both)
    gap = ((found.energy - wanted.energy).abs() / wanted.energy.abs().clamp_min(1e-6))[both]
    labels = ((found.y > 0.5) == (wanted.y > 0.5))[both].double().mean().item()
    same = (found.steps == wanted.steps).double().mean().item()
    ends = (found.status == wanted.status).double().mean().item()
    return (
        f"gap {gap.double().median():.0e} above 1e-4: {100 * (gap > 1e-4).double().mean():.2f}% "
        f"worst {gap.max():.0e} labels {100 * labels:.3f}% steps {100 * same:.1f}% "
        f"status {100 * ends:.1f}% of {wanted.steps.double().mean():.1f} steps"
    )


def answers(forms: dict[str, Form]) -> None:
    """Compare the answers of both kernels with those of the general path."""
    print("\n== answers: energies, labels, steps and status as in the general path ==")
    for name, build in cases(1000).items():
        attempt(f"{name} (on chip)", lambda b=build: agreement(fused(b()), general(b())))
        attempt(f"{name} (streams)", lambda b=build: agreement(streamed(b()), general(b())))
    for name, form in forms.items():
        for title, step in {"bundle": BUNDLE, "paper": PAPER}.items():
            case = centred(form, step)
            attempt(f"{name}, {title}", lambda c=case: agreement(fused(c), general(c)))


def plans(forms: dict[str, Form], n: int) -> None:
    """Time every plan on many rows."""
    for name, form in forms.items():
        print(f"\n== {name}: {n:,} rows, ms, ns per row and step ==")
        rows = repeated(form, n)

        def line(step: StepRule, plan: TilePlan, rows: Form = rows) -> str:
            found = []
            for limits in (LIMITS, LOOSE):
                taken = milliseconds(lambda k=limits: planned(rows, step, plan, k), 3)
                steps = planned(rows, step, plan, limits).steps.double().mean().item()
                each = 1e6 * taken / n / steps
                found.append(f"{taken:8.2f} ms {each:6.3f} ns ({steps:.1f} steps)")
            return "".join(found)

        for title in PLANS:
            for plan in plans_of(title):
                attempt(f"{title}, refill {plan.refill}", lambda p=plan, k=line: k(BUNDLE, p))
        attempt("the paper's rule", lambda k=line: k(PAPER, PLANS["4 warps, 2 programs"]))
        del rows, line


def autograd_loop(form: Form) -> Tensor:
    """Descend by the paper's rule as a user of PyTorch would write it."""
    (block,) = form.blocks
    assert form.linear is not None
    y = torch.full_like(form.linear, 0.5)
    logit, velocity = torch.zeros_like(y), torch.zeros_like(y)
    for _ in range(LIMITS.max_steps):
        y.requires_grad_()
        measured = F.linear(y, block.measurements, block.bias)
        energy = (form.linear * y).sum(1) + block.nonlinearity.value(measured) @ block.readout
        (gradient,) = torch.autograd.grad(energy.sum(), y)
        velocity = PAPER.momentum * velocity - PAPER.lr * gradient
        logit = (logit + velocity).clamp(-15, 15)
        last, y = y.detach(), torch.sigmoid(logit)
        if ((y - last).abs().amax(1) < LIMITS.iterate_atol).all():
            break
    return y


def small(forms: dict[str, Form]) -> None:
    """Time Bibtex's test set's size: whole predictions against the feature network's."""
    print("\n== 2,515 rows, ms ==")
    widths = itertools.pairwise((1836, 500, 500, 159))
    layers = [torch.randn(b, a, device="cuda") / a**0.5 for a, b in widths]
    X = torch.randn(2515, 1836, device="cuda")

    def network() -> Tensor:
        return F.linear(F.relu(F.linear(F.relu(F.linear(X, layers[0])), layers[1])), layers[2])

    def both(call: Callable[[], object]) -> str:
        return f"{milliseconds(call, 30):8.3f}, {replayed(call):8.3f} replayed"

    attempt("network", lambda: both(network))
    for name, form in forms.items():
        rows = repeated(form, 2515)
        case = centred(rows)

        def whole(rows: Form = rows) -> Fused:
            assert rows.linear is not None
            return fused(centred(replace(rows, linear=rows.linear.add_(network(), alpha=0.0))))

        def host(case: Case = case) -> str:
            began = time.perf_counter()
            for _ in range(50):
                fused(case)
            return f"{1e3 * (time.perf_counter() - began) / 50:8.3f}"

        attempt(f"{name}: fused", lambda c=case: both(lambda: fused(c)))
        attempt(f"{name}: Descent.solve, loose", lambda f=rows: both(lambda: solved(f)))
        attempt(f"{name}: network + fused", lambda w=whole: both(w))
        attempt(f"{name}: fused, the host's time", host)
        for title in ("4 warps, 2 programs", "4 warps, 1 program", "8 warps, 1 program"):
            for limits in (LIMITS, LOOSE):
                call = lambda f=rows, p=PLANS[title], k=limits: planned(f, BUNDLE, p, k)  # noqa: E731
                attempt(f"{name}: {title}", lambda c=call: f"{replayed(c):8.4f} replayed")
        start = uniform(rows).contiguous()
        case = (rows, BUNDLE, start, None)
        attempt(f"{name}: general", lambda c=case: f"{milliseconds(lambda: general(c)):8.3f}")
        call = lambda f=rows: autograd_loop(f)  # noqa: E731
        attempt(f"{name}: autograd loop", lambda c=call: f"{milliseconds(c, 3):8.3f}")


def large() -> None:
    """Time many labels."""
    print("\n== many labels: fused, general, ms ==")

    def line(n: int, n_labels: int, m: int) -> str:
        form = drawn(n, n_labels, m)
        here = milliseconds(lambda: fused(centred(form)), 3)
        there = milliseconds(lambda: general((form, BUNDLE, uniform(form).contiguous(), None)), 3)
        steps = fused(centred(form)).steps.double().mean().item()
        return f"{here:8.2f} {there:8.2f} ({1e6 * here / n / steps:.0f} ns per row and step)"

    for title, shape in SHAPES.items():
        attempt(title, lambda s=shape: line(*s))


def main() -> None:
    """Run the parts that were not skipped."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--form", action="append", default=[])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--skip", action="append", default=[])
    parser.add_argument("--warm", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    forms = {path.rsplit("/", 1)[-1]: from_file(path) for path in options.form}
    forms = forms or {"drawn": drawn(2000, 159, 15)}
    if options.warm is not None:
        for job in jobs(forms)[options.warm :: WORKERS]:
            attempt("", lambda j=job: str(j() and "")[:0])
        return
    began = time.perf_counter()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    again = [sys.executable, __file__, *(f"--form={path}" for path in options.form)]
    workers = [
        subprocess.Popen([*again, f"--warm={i}"], stdout=subprocess.DEVNULL) for i in range(WORKERS)
    ]
    for worker in workers:
        worker.wait()
    print(f"compiled in {time.perf_counter() - began:.0f} s")
    parts = {
        "plans": lambda: plans(forms, options.rows),
        "small": lambda: small(forms),
        "answers": lambda: answers(forms),
        "large": large,
    }
    for name, part in parts.items():
        if name not in options.skip:
            part()
            print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
