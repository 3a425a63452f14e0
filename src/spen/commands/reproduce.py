"""``spen reproduce``: the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path


def table3(
    *,
    seeds: int = 3,
    out: Path = Path("runs/table3"),
    method: str | None = None,
    n_train: int | None = None,
) -> None:
    """Table 3: linear, MLP and SPEN on the synthetic task with exclusive labels.

    Args:
        seeds: How many repetitions; each draws its own task and initial weights.
        out: The folder for records; runs that are there already are not made again.
        method: Only this row of the table.
        n_train: Only this training size.
    """
    from spen.reproduce import table3 as module

    module.table3(seeds, out, method, n_train)


def structure(*, seeds: int = 3, out: Path = Path("runs/structure")) -> None:
    """The measurement matrices learned with ReLU and HardTanh, and how block-like they are.

    Args:
        seeds: How many repetitions; the picture shows the first.
        out: The folder for records and pictures.
    """
    from spen.reproduce import structure as module

    module.structure(seeds, out)
