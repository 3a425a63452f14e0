"""Inference over a shortlist: of many labels, the few of each row that could be on.

A step on all labels costs O(measurements × labels). Nearly all labels of a row are off, and their
own scores say which: those are held at zero, where they add nothing to any measurement, and the
others are inferred at O(measurements × shortlist) a step, however many labels there are.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from spen.domains import UnitBox
from spen.errors import InputError
from spen.inference.base import Solution, Task, Trace


def shortened(task: Task, size: int) -> tuple[Task, Tensor]:
    """Return the task of each row's likeliest labels alone, and which they are, (n, size).

    Likeliest are those with the largest −a, the score of each label by itself. A label that is
    known to be on is among them; one that is known to be off needs no place.

    Args:
        task: on a unit box, in canonical form.
        size: how many labels of a row are inferred.
    """
    problem, domain, start, known = task
    if not isinstance(domain, UnitBox):
        raise InputError(
            f"A shortlist is of label sets (UnitBox), and the domain is {domain}. "
            "Leave shortlist out."
        )
    form = problem.form
    if form is None or form.linear is None:
        missing = "no canonical form (see spen.Form)" if form is None else "no score of each label"
        raise InputError(
            f"A shortlist goes by the labels' own scores in an energy's canonical form, and this "
            f"energy has {missing}. Add spen.LocalEnergy, or leave shortlist out."
        )
    likely = -form.linear.detach()
    if known is not None:
        likely = torch.where(torch.isnan(known), likely, (2 * known - 1) * torch.inf)
        most = int((known == 1).sum(1).max())
        if most > size:
            raise InputError(
                f"A row has {most} labels that are known to be on, and shortlist={size} has no "
                "place for them all. Make it larger."
            )
    # In the order of labels: sums must not depend on how a device breaks ties.
    chosen = likely.topk(size, dim=1, sorted=False).indices.sort(1).values
    own_known = None if known is None else known.gather(1, chosen)
    return Task(form.of_labels(chosen), UnitBox(size), start.gather(1, chosen), own_known), chosen


def lengthened(found: Solution, chosen: Tensor, n_labels: int) -> Solution:
    """Return the solution with all labels, those outside the shortlist at zero.

    A bound on how far the energy is above its minimum holds for the shortlist alone, so none is
    given.
    """
    trace = found.trace
    if trace is not None:
        at = chosen.expand(len(trace.y), -1, -1)
        wide = trace.y.new_zeros(*trace.y.shape[:2], n_labels)
        trace = Trace(wide.scatter(2, at, trace.y), trace.energy)
    y = found.y.new_zeros(len(chosen), n_labels).scatter(1, chosen, found.y)
    return replace(found, y=y, trace=trace, gap=None)
