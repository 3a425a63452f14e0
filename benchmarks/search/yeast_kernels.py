"""Which kernels for Table 2's best row: errors on held-out parts of training folds of Yeast.

    python benchmarks/search/yeast_kernels.py [--folds 0 1 2 3 4] [--seeds 7 8]

Divides the rows as ``spen reproduce table2`` does with these seeds, and looks at the training
parts of the folds alone: a fifth is held out, and kernel ridge regression on the rest predicts
it, without a label energy. Beside it stands the error on the rest, each row by a regression on
all other rows. Seeds 0 to 2 are left for the table itself.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler

from spen.data.dataset import hold_out
from spen.data.load import load_dataset
from spen.progress import text_table
from spen.reproduce.kernel_ridge import KernelRidge, Kernels
from spen.reproduce.protocol import HELD_OUT
from spen.reproduce.table2 import DATASET, all_rows, split_of

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


def errors(kernels: Kernels, folds: list[int], seeds: list[int]) -> tuple[list[float], list[float]]:
    """Return the Hamming error × 100 of held-out rows, and of rows left out singly, per fold."""
    rows = all_rows(load_dataset(DATASET))
    held_out, left_out = [], []
    for seed in seeds:
        for fold in folds:
            kept, held = hold_out(split_of(rows, fold, 10, seed)[0], HELD_OUT, seed)
            scaler = StandardScaler().fit(kept.X)
            X, new = (scaler.transform(each.X).astype(np.float32) for each in (kept, held))
            ridge = KernelRidge(kernels, X, kept.Y)
            held_out.append(wrong(ridge(torch.from_numpy(new)), held.Y))
            left_out.append(wrong(ridge.unseen, kept.Y))
    return held_out, left_out


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


if __name__ == "__main__":
    main()
