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


def table1(
    *,
    dataset: str = "bibtex",
    method: str | None = None,
    seeds: int = 5,
    device: str = "auto",
    out: Path = Path("runs/table1"),
    study: str | None = None,
) -> None:
    """Table 1: every method of the paper on a real data set, under both decodings.

    Args:
        dataset: bibtex, delicious or bookmarks.
        method: Only these rows, separated by commas: br, lr, mlp, mlp-best, dmf, prlr,
            spen-paper, spen-single, spen-best.
        seeds: How many repetitions.
        device: auto, cpu or cuda.
        out: The folder for records; runs that are there already are not made again.
        study: In place of the table, a study of where the energy pays, or of what methods cost:
            learning-curves, width, known-labels, ablation, costs.
    """
    from spen.reproduce import table1 as module

    module.table1(dataset, method, seeds, device, out, study)


def table2(
    *,
    method: str | None = None,
    folds: int = 10,
    seeds: int = 1,
    out: Path = Path("runs/table2"),
    study: str | None = None,
) -> None:
    """Table 2: structured SVMs with exact, relaxed and approximate inference on Yeast.

    Args:
        method: Only these rows, separated by commas: exact, lp, lbp, lbp-plain, dmf, spen,
            spen-best, br.
        folds: Of the cross-validation.
        seeds: How often the rows are divided into folds.
        out: The folder for records; runs that are there already are not made again.
        study: In place of the table, violations: which violated margins each solver sees while it
            trains, and what it misses in prediction.
    """
    from spen.reproduce import table2 as module

    module.table2(method, folds, seeds, out, study)


def claims(
    *,
    dataset: str = "bibtex",
    seeds: int = 3,
    device: str = "auto",
    out: Path = Path("runs/claims"),
) -> None:
    """The paper's side remarks: the claim, what is measured here, agreed or not.

    Args:
        dataset: bibtex or delicious.
        seeds: How many repetitions.
        device: auto, cpu or cuda.
        out: The folder for records; runs that are there already are not made again.
    """
    from spen.reproduce import claims as module

    module.claims(dataset=dataset, seeds=seeds, device=device, out=out)


def structure(*, seeds: int = 3, out: Path = Path("runs/structure")) -> None:
    """The measurement matrices learned with ReLU and HardTanh, and how block-like they are.

    Args:
        seeds: How many repetitions; the picture shows the first.
        out: The folder for records and pictures.
    """
    from spen.reproduce import structure as module

    module.structure(seeds, out)


def convergence(
    *,
    dataset: str = "bibtex",
    seeds: int = 3,
    device: str = "auto",
    out: Path = Path("runs/convergence"),
) -> None:
    """How inference converges: steps, speed against F1, and search errors.

    Args:
        dataset: bibtex or delicious.
        seeds: How many models.
        device: Where they are trained: auto, cpu or cuda.
        out: The folder for models, records and pictures; what is there is not made again.
    """
    from spen.reproduce import convergence as module

    module.convergence(dataset=dataset, seeds=seeds, device=device, out=out)


def objectives(
    *,
    dataset: str = "bibtex",
    method: str | None = None,
    seeds: int = 3,
    device: str = "auto",
    out: Path = Path("runs/objectives"),
) -> None:
    """End-to-end, convex, hinge and unrolled training beside each other, on the same features.

    Args:
        dataset: bibtex.
        method: Only these rows, separated by commas: mlp, hinge, end-to-end, end-to-end-rates,
            unrolled, unrolled-f1, convex, convex-implicit, convex-hinge.
        seeds: How many repetitions.
        device: auto, cpu or cuda.
        out: The folder for records; runs that are there already are not made again.
    """
    from spen.reproduce import objectives as module

    module.objectives(dataset=dataset, method=method, seeds=seeds, device=device, out=out)
