"""The problems that ``h200.py`` solves: drawn ones with every term, and forms from files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import spen
from spen.energies.form import Block, Form
from spen.energies.nonlinearities import nonlinearity
from spen.kernels.interface import StepRule

BUNDLE = StepRule("dual", reach=8.0, grow=1.2, shrink=0.5)
PAPER = StepRule("dual", lr=0.1, momentum=0.95)

Case = tuple[Form, StepRule, Tensor, Tensor | None]
"""A form, a rule, a start, and what is known."""


def drawn(n: int, n_labels: int, m: int, g: str = "relu", **terms: bool) -> Form:
    """Draw a form on the GPU."""
    generator = torch.Generator("cuda").manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device="cuda")

    blocks = [Block(draw(m, n_labels), draw(m), draw(m), nonlinearity(g))] if m else []
    if terms.get("conditional"):
        blocks = [replace(block, bias=draw(n, m)) for block in blocks]
    if terms.get("two_blocks"):
        blocks.append(Block(0.3 * draw(3, n_labels), draw(3), draw(3), nonlinearity("softplus")))
    tau = draw(n).abs() + 0.1 if terms.get("tau") else None
    return Form(
        constant=draw(n),
        linear=4 * draw(n, n_labels),
        quadratic=draw(n, n_labels) if terms.get("quadratic") else None,
        blocks=tuple(blocks),
        tau=tau,
        domain=None if tau is None else spen.UnitBox(n_labels),
    )


def from_file(path: str) -> Form:
    """Read a bound form."""
    arrays = np.load(path)
    names = ("measurements", "bias", "readout", "constant", "linear")
    C, b, c, constant, linear = (torch.from_numpy(arrays[name]).cuda() for name in names)
    return Form(
        constant, linear, blocks=(Block(C, b, c, nonlinearity(str(arrays["nonlinearity"]))),)
    )


def repeated(form: Form, rows: int) -> Form:
    """Return the rows of a form over and over again."""
    return form.select(torch.arange(rows, device="cuda") % form.rows_like.shape[0])


def uniform(form: Form) -> Tensor:
    """Return the centre of the box for every row, without writing it out."""
    assert form.linear is not None
    return torch.full((), 0.5, device="cuda").expand(form.linear.shape)


def centred(form: Form, step: StepRule = BUNDLE) -> Case:
    """Return the problem of a form from the centre of the box."""
    return form, step, uniform(form), None


def cases(n: int) -> dict[str, Callable[[], Case]]:
    """Return problems that between them use every part of the kernels."""

    def case(
        g: str,
        m: int = 15,
        n_labels: int = 159,
        step: StepRule = BUNDLE,
        given: bool = False,
        **terms: bool,
    ) -> Callable[[], Case]:
        def build() -> Case:
            form = drawn(n, n_labels, m, g, **terms)
            if not given:
                return form, step, uniform(form), None
            generator = torch.Generator("cuda").manual_seed(1)
            start = torch.rand(n, n_labels, generator=generator, device="cuda")
            marks = torch.rand(n, n_labels, generator=generator, device="cuda")
            return form, step, start, torch.where(marks < 0.2, (marks < 0.1).float(), torch.nan)

        return build

    every: dict[str, Any] = {
        "conditional": True,
        "quadratic": True,
        "tau": True,
        "two_blocks": True,
    }
    return {
        "relu": case("relu"),
        "relu, paper's rule": case("relu", step=PAPER),
        "hardtanh": case("hardtanh"),
        "softplus, 16 measurements": case("softplus", m=16),
        "sigmoid, per-row bias": case("sigmoid", conditional=True),
        "square, entropy": case("square", m=6, tau=True),
        "quadratic, two blocks": case("relu", m=12, quadratic=True, two_blocks=True),
        "start, known": case("relu", given=True),
        "all terms": case("hardtanh", given=True, **every),
        "all terms, paper's rule": case(
            "hardtanh", step=replace(PAPER, momentum=0.5, decay=0.05), given=True, **every
        ),
        "no blocks": case("relu", m=0),
        "32 measurements": case("relu", m=32),
        "14 labels": case("relu", n_labels=14, m=4),
        "500 labels": case("relu", n_labels=500),
    }
