"""The tolerance at which the default rule is as good as the paper's at the model's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spen.inference.base import Solution
from spen.inference.descent import Descent, Stopping
from spen.inference.rules import MirrorDescent

PAPERS_RULE = MirrorDescent(lr=0.1, momentum=0.95)

LOOSER = (50.0, 20.0, 10.0, 5.0, 2.0)
"""By how much a tolerance may be loosened, the most first."""


def matched_stopping(solve: Callable[[Descent], Solution], stopping: Stopping) -> Stopping:
    """Return the loosest stopping that ends at no higher a mean energy than the paper's rule.

    A tolerance bounds the change of the energy in one step. With momentum a small change is
    often a turning point, while the default rule's changes shrink as it arrives. So the same
    number is stricter for the default rule, and comparing steps at the same number would
    compare different answers.

    Args:
        solve: minimises the energies of some rows.
        stopping: of the paper's rule.

    >>> import torch
    >>> from spen import Form, UnitBox
    >>> problem = Form(linear=torch.tensor([[2.0, -2.0]]))
    >>> found = matched_stopping(lambda d: d.solve(problem, UnitBox(2)), Stopping(100, 1e-4))
    >>> found.max_steps, found.objective_rtol >= 1e-4
    (100, True)
    """
    wanted = solve(Descent(PAPERS_RULE, stopping)).energy.double().mean()
    for factor in LOOSER:
        looser = replace(stopping, objective_rtol=factor * stopping.objective_rtol)
        if solve(Descent(stopping=looser)).energy.double().mean() <= wanted:
            return looser
    return stopping
