"""The measurement matrices of the paper's figures, and how block-like they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spen.cli.show import say, text_table
from spen.data.synthetic import block_membership, exclusive_blocks
from spen.errors import InputError, require
from spen.estimators.fit import epoch_bar
from spen.reproduce.plain import run_plain
from spen.reproduce.protocol import run
from spen.reproduce.records import Record, Records
from spen.reproduce.table3 import N_TEST, mean_and_deviation, methods_for

CASES = (("relu", 15000), ("hardtanh", 15000), ("hardtanh", 1500))
"""Nonlinearity and training rows: the paper's two figures, and the one on 10 % of the data."""


def structure(seeds: int = 3, out: Path = Path("runs/structure")) -> None:
    """Draw the learned measurement matrices for ReLU and HardTanh (the paper's figures).

    Writes PNG and SVG, and prints how block-like each matrix is.
    """
    if seeds < 1:
        raise InputError(f"seeds must be 1 or more; received {seeds}.")
    require("matplotlib", "report")
    from spen.report.plots import draw_measurements

    records = Records(out)
    methods = methods_for(CASES[0][1], "structure")
    panels, rows = [], []
    for name, size in CASES:
        title = f"{methods[name].title}, {size:,} rows"
        found = [_run(name, size, seed, records) for seed in range(seeds)]
        matrices = [np.array(record["measurements"]) for record in found]
        panels.append((title, matrices[0]))
        rows.append(
            [
                title,
                mean_and_deviation([100 * block_score(matrix) for matrix in matrices]),
                mean_and_deviation([100 * block_span_score(matrix) for matrix in matrices]),
                mean_and_deviation([record["metrics"]["f1"] for record in found]),
            ]
        )
    paths = draw_measurements(panels, records.folder / "structure")
    say(text_table(["energy", "one block", "equal within blocks", "F1"], rows))
    say(f"\n{SCORES_IN_WORDS}")
    for path in paths:
        say(f"Picture: {path}")


SCORES_IN_WORDS = (
    "one block: 100 x the mean over measurements of the squared cosine with the nearest block;\n"
    "100 means that each measurement weighs one block evenly; a random one has about 15,\n"
    "a random combination of blocks 62.\n"
    "equal within blocks: the same with the nearest combination of blocks; at random 25."
)


def _run(name: str, size: int, seed: int, records: Records) -> Record:
    method = methods_for(size, "structure")[name]
    data = exclusive_blocks(size, N_TEST, seed=seed)
    epochs = sum(stage.epochs for stage in method.stages)
    with epoch_bar(f"{name}, {size:,} rows, seed {seed}", 2 * epochs) as bar:
        return run("structure", name, method, data, seed, records, bar)


def block_score(matrix: np.ndarray, blocks: np.ndarray | None = None) -> float:
    """Return how far each measurement weighs a single block evenly, between 0 and 1.

    The mean over rows of the largest squared cosine with a block's indicator.

    >>> block_score(np.kron(np.eye(4), np.ones(4)))
    1.0
    """
    blocks = block_membership() if blocks is None else blocks
    return float(_squared_cosines(matrix, blocks).max(1).mean())


def block_span_score(matrix: np.ndarray, blocks: np.ndarray | None = None) -> float:
    """Return how far measurements are constant within every block, between 0 and 1.

    The mean over rows of the squared cosine with the space that the indicators span, so
    that a measurement may weigh several blocks.
    """
    blocks = block_membership() if blocks is None else blocks
    return float(_squared_cosines(matrix, blocks).sum(1).mean())


def _squared_cosines(matrix: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    rows = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    directions = blocks / np.linalg.norm(blocks, axis=1, keepdims=True)
    return (rows @ directions.T) ** 2


if __name__ == "__main__":
    run_plain(structure)
