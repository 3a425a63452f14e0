"""Which kernels for Table 2's best row: errors on held-out parts of training folds of Yeast.

    python paper/search/yeast_kernels.py [--folds 0 1 2 3 4] [--seeds 7 8]

Divides the rows as ``spen reproduce table2`` does with these seeds, and looks at the training
parts of the folds alone: a fifth is held out, and kernel ridge regression on the rest predicts
it, without a label energy. Beside it stands the error on the rest, each row by a regression on
all other rows. A second table has the label energy, with and without a scale and a shift for each
label before it. Seeds 0 to 2 are left for the table itself. At last it says where features are best
cut in two, by their correlations.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler

from spen.batch.splits import Split, hold_out
from spen.cli.show import text_table
from spen.data.load import load_dataset
from spen.estimators.plan import HELD_OUT
from spen_paper.tables.machines import KernelRidge, Kernels, Machine, read_machines, train_by
from spen_paper.tables.table2 import DATASET, all_rows, split_of

EXPRESSION, PROFILES = (0, 79), (79, 103)
BOTH = (EXPRESSION, PROFILES)
ALL = ((0, 103),)
TRIED = {
    "RBF 5": Kernels({"rbf": 5.0}),
    "Laplacian 3": Kernels({"laplacian": 3.0}),
    "RBF 5, Laplacian 3": Kernels({"rbf": 5.0, "laplacian": 3.0}),
    "the same, expression and profiles": Kernels({"rbf": 5.0, "laplacian": 3.0}, BOTH),
    "the same, all features and both": Kernels({"rbf": 5.0, "laplacian": 3.0}, ALL + BOTH),
    "RBF 4, Laplacian 2.5, all and both": Kernels({"rbf": 4.0, "laplacian": 2.5}, ALL + BOTH),
    "RBF 6, Laplacian 3.5, all and both": Kernels({"rbf": 6.0, "laplacian": 3.5}, ALL + BOTH),
}


def parts(folds: list[int], seeds: list[int]) -> Iterator[tuple[Split, Split, int]]:
    """Yield four fifths of each training part, the fifth that is held out, and the seed."""
    rows = all_rows(load_dataset(DATASET))
    for seed in seeds:
        for fold in folds:
            yield *hold_out(split_of(rows, fold, 10, seed)[0], HELD_OUT, seed), seed


def errors(kernels: Kernels, folds: list[int], seeds: list[int]) -> tuple[list[float], list[float]]:
    """Return the Hamming error × 100 of held-out rows, and of rows left out singly, per fold."""
    held_out, left_out = [], []
    for kept, held, _ in parts(folds, seeds):
        scaler = StandardScaler().fit(kept.X)
        X, new = (scaler.transform(each.X).astype(np.float32) for each in (kept, held))
        ridge = KernelRidge(kernels, X, kept.Y)
        held_out.append(wrong(ridge(torch.from_numpy(new)), held.Y))
        left_out.append(wrong(ridge.unseen, kept.Y))
    return held_out, left_out


def energy_errors(machine: Machine, folds: list[int], seeds: list[int]) -> list[float]:
    """Return the Hamming error × 100 of held-out rows by a machine of the table, per fold."""
    return [
        wrong(train_by(machine.plan(), kept, seed).solve(held.X).y - 0.5, held.Y)
        for kept, held, seed in parts(folds, seeds)
    ]


def best_cut() -> int:
    """Return where to cut the features in two so that those of one part are most alike.

    The mean absolute correlation within the parts, less that across, is largest. Labels are not
    looked at.
    """
    alike = np.abs(np.corrcoef(all_rows(load_dataset(DATASET)).X.T))
    np.fill_diagonal(alike, np.nan)

    def contrast(cut: int) -> float:
        within = np.concatenate([alike[:cut, :cut].ravel(), alike[cut:, cut:].ravel()])
        return float(np.nanmean(within) - alike[:cut, cut:].mean())

    return max(range(2, len(alike) - 1), key=contrast)


def wrong(scores: torch.Tensor, truth: np.ndarray) -> float:
    """Return the share of labels whose score has the wrong sign, × 100."""
    return 100 * float(((scores > 0).numpy() != truth).mean())


def main() -> None:
    """Print one line for each choice of kernels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 8])
    arguments = parser.parse_args()
    lines = []
    for name, kernels in TRIED.items():
        both = errors(kernels, arguments.folds, arguments.seeds)
        lines.append([name, *(f"{statistics.fmean(each):.2f}" for each in both)])
    print(text_table(["kernels, ridge 0.1", "held out", "left out singly"], lines))
    best = read_machines()["spen-best"]
    stages = {
        "energy": best.stages[1:],
        "scale and shift, then energy": best.stages,
        "scale and shift": best.stages[:1],
    }
    lines = []
    for name, some in stages.items():
        found = energy_errors(replace(best, stages=some), arguments.folds, arguments.seeds)
        lines.append([name, f"{statistics.fmean(found):.2f}"])
    print()
    print(text_table(["stages of spen-best, ridge 0.1", "held out"], lines))
    print(f"\nBest cut of the features: after the first {best_cut()}.")


if __name__ == "__main__":
    main()
