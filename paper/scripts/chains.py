"""Chains beside torch-struct and pytorch-crf: how long, and whether all say the same.

    python paper/scripts/chains.py [--device cpu] [--seconds 5]

Each shape is one batch: so many rows of drawn lengths up to T, and K classes. All start from the
same scores of positions and of transitions, in float32; what each makes of them before it can
begin is part of its time. torch-struct and pytorch-crf are left out where they are not installed.

- log-partition and gradient: what a training step of a CRF needs, the gradient with respect to
  both kinds of scores. Gradients are marginals.
- marginals: of each class at each position, nothing recorded.
- best tagging: Viterbi. torch-struct's argmax is the gradient of a maximum.

Calls take turns; times are those of the quickest round, which a busy machine disturbs least.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

import spen
from spen.energies.chain import ChainProblem
from spen_paper.bench.timing import interleave

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
    return max(((a - b).abs().max() / a.abs().max()).item() for a, b in pairs)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each task and shape")
    chosen = parser.parse_args()
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
    print(f"{torch.get_num_threads()} threads, {device}; milliseconds, and how many times spen's")
    for title, shape in SHAPES.items():
        batch = Batch.draw(*shape, chosen.device)
        answers = {name: make(batch) for name, make in makers.items()}
        print(f"\n{title}: rows, positions, classes {shape}")
        for task in answers["spen"]:
            calls = {name: tasks[task] for name, tasks in answers.items()}
            found = {name: call() for name, call in calls.items()}
            times = interleave(calls, device, rounds=25, seconds=chosen.seconds)
            quickest = {name: 1e3 * min(each) for name, each in times.seconds.items()}
            line = f"  {task:28}spen {quickest['spen']:8.2f}"
            for name in list(calls)[1:]:
                apart = furthest(found["spen"], found[name])
                verdict = "" if apart < WITHIN else f" APART BY {apart:.1e}"
                ratio = quickest[name] / quickest["spen"]
                line += f" | {name} {quickest[name]:8.2f} ({ratio:.1f}x){verdict}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
