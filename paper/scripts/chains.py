"""Chains beside torch-struct and pytorch-crf: how long, and whether all say the same.

    python paper/scripts/chains.py [--device cpu] [--seconds 5]
        [--out paper/records/sequences/chains-cpu.json]
    python paper/scripts/chains.py --show paper/records/sequences/chains-cpu.json

Each shape is one batch: so many rows of drawn lengths up to T, and K classes. All start from the
same scores of positions and of transitions, in float32; what each makes of them before it can
begin is part of its time. torch-struct and pytorch-crf are left out where they are not installed.

- log-partition and gradient: what a training step of a CRF needs, the gradient with respect to
  both kinds of scores. Gradients are marginals.
- marginals: of each class at each position, nothing recorded.
- best tagging: Viterbi. torch-struct's argmax is the gradient of a maximum.

Calls take turns; times are those of the quickest round, which a busy machine disturbs least.
`--out` keeps them, and `--show` prints the table of what was kept. Beside the times it says how far
answers are apart from this library's, and how far each library's, this one's too, are from
what tensor operations find in float64.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

import spen
from spen.cli.show import text_table
from spen.energies.chain import ChainProblem
from spen.files import versions
from spen.inference.discrete import viterbi
from spen_paper.bench.timing import interleave
from spen_paper.fits import device_in_words

TITLES = {"torch_struct": "torch-struct", "torchcrf": "pytorch-crf"}

SHAPES = {
    "letters of words (OCR)": (100, 14, 26),
    "parts of speech (Twitter)": (32, 30, 25),
    "chunks (CoNLL-2000)": (64, 45, 23),
    "one sentence": (1, 25, 25),
    "many tags": (16, 20, 60),
}
WITHIN = 1e-5
"""How far answers may be apart, relative to the largest."""


class Batch(NamedTuple):
    """Scores, positive where likely: of positions, transitions, first and last class."""

    unary: Tensor
    transitions: Tensor
    start: Tensor
    end: Tensor
    mask: Tensor

    @staticmethod
    def draw(rows: int, longest: int, classes: int, device: str) -> Batch:
        """Draw a batch whose first row is the longest."""
        generator = torch.Generator().manual_seed(0)
        lengths = torch.randint(longest // 2, longest + 1, (rows,), generator=generator)
        lengths[0] = longest
        shapes = [(rows, longest, classes), (classes, classes), (classes,), (classes,)]
        scores = [torch.randn(shape, generator=generator) for shape in shapes]
        mask = torch.arange(longest) < lengths[:, None]
        batch = Batch(*(each.to(device) for each in (*scores, mask)))
        for each in batch.learned:
            each.requires_grad_()
        return batch

    @property
    def learned(self) -> list[Tensor]:
        """What a training step wants gradients of."""
        return [self.unary, self.transitions]

    def double(self) -> Batch:
        """Return the same numbers in float64."""
        numbers = [each.detach().double().requires_grad_() for each in self[:-1]]
        return Batch(*[*numbers, self.mask])


Answers = dict[str, Callable[[], tuple[Tensor, ...]]]


def of_spen(batch: Batch) -> Answers:
    """Return what each task takes with this library."""
    classes = len(batch.start)
    domain = spen.Simplex(classes, positions=batch.mask.shape[1])
    zeros = batch.start.new_zeros(len(batch.mask))

    def problem() -> spen.Problem:
        scores = spen.Form(linear=-batch.unary.flatten(1), mask=batch.mask)
        ends = -batch.start, -batch.end
        return scores + ChainProblem(-batch.transitions, *ends, zeros, batch.mask)

    def train() -> tuple[Tensor, ...]:
        logs = spen.ForwardBackward().log_partition(problem(), domain)
        return logs, *torch.autograd.grad(logs.sum(), batch.learned)

    def marginals() -> tuple[Tensor, ...]:
        with torch.no_grad():
            soft = spen.ForwardBackward().solve(problem(), domain)
        return -soft.energy, soft.y.reshape(batch.unary.shape)

    def best() -> tuple[Tensor, ...]:
        with torch.no_grad():
            return (-spen.Viterbi().solve(problem(), domain).energy,)

    return {"log-partition and gradient": train, "marginals": marginals, "best tagging": best}


def exact(batch: Batch) -> dict[str, tuple[Tensor, ...]]:
    """Return what each task should say: found in float64, without any kernel."""
    answers = of_spen(batch.double())
    no_machine_code = mock.patch.object(viterbi, "machine_code", return_value=None)
    no_kernel = mock.patch.object(viterbi.on_gpu, "knows_chains", return_value=False)
    with no_machine_code, no_kernel:
        return {task: answer() for task, answer in answers.items()}


def of_pytorch_crf(batch: Batch, torchcrf: ModuleType) -> Answers:
    """Return the same with pytorch-crf; its marginals are gradients."""
    crf = torchcrf.CRF(len(batch.start), batch_first=True).to(batch.unary.device)
    with torch.no_grad():
        crf.start_transitions.copy_(batch.start)
        crf.end_transitions.copy_(batch.end)
    # A tensor takes the parameter's place, so that its gradient can be asked for.
    del crf.transitions
    crf.transitions = batch.transitions

    def logs() -> Tensor:
        return crf._compute_normalizer(batch.unary.transpose(0, 1), batch.mask.transpose(0, 1))

    def train() -> tuple[Tensor, ...]:
        found = logs()
        return found, *torch.autograd.grad(found.sum(), batch.learned)

    def marginals() -> tuple[Tensor, ...]:
        found = logs()
        return found.detach(), torch.autograd.grad(found.sum(), batch.learned[:1])[0]

    def best() -> tuple[Tensor, ...]:
        with torch.no_grad():
            paths = crf.decode(batch.unary, batch.mask)
        return (torch.stack([_score(batch, row, tags) for row, tags in enumerate(paths)]),)

    return {"log-partition and gradient": train, "marginals": marginals, "best tagging": best}


def of_torch_struct(batch: Batch, struct: ModuleType) -> Answers:
    """Return the same with torch-struct, which takes one table for each two neighbours."""
    lengths = batch.mask.sum(1)
    places = torch.arange(len(lengths), device=lengths.device)

    def chain() -> struct.LinearChainCRF:
        last = torch.zeros_like(batch.unary).index_put((places, lengths - 1), batch.end)
        unary = batch.unary + last
        # [row, position, to, from]
        tables = batch.transitions.T + unary[:, 1:, :, None]
        first = torch.nn.functional.pad(
            (unary[:, 0] + batch.start)[:, None, None, :], (0, 0, 0, 0, 0, tables.shape[1] - 1)
        )
        return struct.LinearChainCRF(tables + first, lengths=lengths)

    def train() -> tuple[Tensor, ...]:
        found = chain().partition
        return found, *torch.autograd.grad(found.sum(), batch.learned)

    def marginals() -> tuple[Tensor, ...]:
        with torch.no_grad():
            found = chain()
        edges = found.marginals
        return found.partition, torch.cat([edges[:, :1].sum(2), edges.sum(3)], 1)

    def best() -> tuple[Tensor, ...]:
        with torch.no_grad():
            found = chain()
        tagging = found.argmax
        return ((tagging * found.log_potentials).sum((1, 2, 3)),)

    return {"log-partition and gradient": train, "marginals": marginals, "best tagging": best}


def _score(batch: Batch, row: int, tags: list[int]) -> Tensor:
    here = torch.tensor(tags, device=batch.unary.device)
    places = torch.arange(len(here), device=here.device)
    score = batch.unary[row, places, here].sum() + batch.transitions[here[:-1], here[1:]].sum()
    return score + batch.start[here[0]] + batch.end[here[-1]]


def furthest(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> float:
    """Return how far answers are apart, relative to the largest of ours."""
    pairs = zip(ours, theirs, strict=True)
    return max(((a - b.to(a)).abs().max() / a.abs().max()).item() for a, b in pairs)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each task and shape")
    parser.add_argument("--out", type=Path, help="keeps the times")
    parser.add_argument("--show", type=Path, help="prints the table of what was kept")
    chosen = parser.parse_args()
    if chosen.show is not None:
        print(render(json.loads(chosen.show.read_text())["lines"]))
        return
    makers: dict[str, Callable[..., Answers]] = {"spen": of_spen}
    others = {"torch_struct": of_torch_struct, "torchcrf": of_pytorch_crf}
    for name, make in others.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            print(f"{name} is not installed, so it is left out.")
        else:
            makers[name] = lambda batch, make=make, module=module: make(batch, module)
    device = torch.device(chosen.device)
    lines = []
    for title, shape in SHAPES.items():
        batch = Batch.draw(*shape, chosen.device)
        answers = {name: make(batch) for name, make in makers.items()}
        right = exact(batch)
        for task in answers["spen"]:
            calls = {name: tasks[task] for name, tasks in answers.items()}
            found = {name: call() for name, call in calls.items()}
            times = interleave(calls, device, rounds=25, seconds=chosen.seconds)
            others = list(calls)[1:]
            line = {
                "batch": title,
                "shape": shape,
                "task": task,
                "milliseconds": {
                    name: round(1e3 * min(each), 4) for name, each in times.seconds.items()
                },
                "apart": {name: furthest(found["spen"], found[name]) for name in others},
                "off": {name: furthest(right[task], each) for name, each in found.items()},
            }
            lines.append(line)
            print(line, flush=True)
    record = {"device": device_in_words(device), "versions": machine(), "lines": lines}
    if chosen.out is not None:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\n{record['device']}, {record['versions']}; milliseconds, and how many times spen's")
    print(render(lines))


def machine() -> dict[str, str]:
    """Return the versions of all that was timed."""
    found = versions()
    for name in ("numba", "torch-struct", "pytorch-crf"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def in_figures(value: float) -> str:
    """Return a number of about three figures, and no powers of ten."""
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def render(lines: list[dict[str, Any]]) -> str:
    """Lay a record out."""
    others = list(lines[0]["apart"])
    header = ["rows × positions, classes", "", "spen, ms", *(f"{TITLES[n]}, ms" for n in others)]
    # Older records do not say it.
    if all("off" in line for line in lines):
        header.append(f"off by: {', '.join(['spen', *map(TITLES.__getitem__, others)])}")
    rows = []
    for line in lines:
        rows_, positions, classes = line["shape"]
        times, apart = line["milliseconds"], line["apart"]
        cells = [f"{rows_} × {positions}, {classes}", line["task"], f"{times['spen']:.2f}"]
        for name in others:
            verdict = "" if apart[name] < WITHIN else f", APART BY {apart[name]:.0e}"
            ratio = times[name] / times["spen"]
            cells.append(f"{in_figures(times[name])} ({in_figures(ratio)} ×){verdict}")
        if "off" in line:
            cells.append(", ".join(f"{line['off'][name]:.0e}" for name in ["spen", *others]))
        rows.append(cells)
    return text_table(header, rows)


if __name__ == "__main__":
    main()
