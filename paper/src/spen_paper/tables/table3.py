"""Table 3, the synthetic task with exclusive labels in blocks, and pictures of what is learned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from spen import exclusive_blocks
from spen.cli.show import say, text_table
from spen.data.synthetic import block_score, block_span_score
from spen.errors import choose, require
from spen_paper.figures import mean_and_deviation
from spen_paper.records import F1_RULE, Record, Records, check_seeds
from spen_paper.tables.protocol import Method, read_methods, run

SIZES = (1500, 15000)
N_TEST = 10_000
PAPER = {
    "linear": {1500: 80.0, 15000: 81.8},
    "mlp": {1500: 81.6, 15000: 96.3},
    "spen": {1500: 91.5, 15000: 96.7},
}
"""The paper's figures. Its SPEN has 4 hidden units."""

CASES = (("relu", 15000), ("hardtanh", 15000), ("hardtanh", 1500))
"""Nonlinearity and training rows: the paper's two figures, and the one on 10 % of the data."""

SCORES_IN_WORDS = (
    "one block: 100 x the mean over measurements of the squared cosine with the nearest block;\n"
    "100 means that each measurement weighs one block evenly; a random one has about 15,\n"
    "a random combination of blocks 62.\n"
    "equal within blocks: the same with the nearest combination of blocks; at random 25."
)


def table3(seeds: int, out: Path, method: str | None, n_train: int | None) -> None:
    """Compare linear, MLP and SPEN on the paper's synthetic task (Table 3)."""
    check_seeds(seeds)
    names = list(read_methods("table3"))
    if method is not None:
        choose(method, dict.fromkeys(names), "method")
        names = [method]
    sizes = SIZES if n_train is None else (n_train,)
    records = collect(names, sizes, range(seeds), Records(out))
    say(render(names, sizes, records))
    repeated = "1 seed" if seeds == 1 else f"{seeds} seeds, mean ± standard deviation"
    say(f"\nTest F1 on {N_TEST:,} rows, {repeated}; {F1_RULE}.")
    say("The threshold was chosen on a held-out fifth of the training rows, all else beforehand.")
    say(f"Records: {Records(out).path}")


def collect(
    names: Sequence[str],
    sizes: Sequence[int],
    seeds: Sequence[int],
    records: Records,
    experiment: str = "table3",
) -> list[Record]:
    """Return the record of every method, size and seed."""
    found = []
    for size in sizes:
        for seed in seeds:
            data = exclusive_blocks(size, N_TEST, seed=seed)
            methods = methods_for(size, experiment)
            found += [run(experiment, name, methods[name], data, seed, records) for name in names]
    return found


def methods_for(n_train: int, name: str = "table3") -> dict[str, Method]:
    """Return the settings for a training size: those of the nearer of the paper's two."""
    nearer = min(SIZES, key=lambda size: abs(math.log(size / n_train)))
    return read_methods(name, SIZES.index(nearer))


def render(names: Sequence[str], sizes: Sequence[int], records: list[Record]) -> str:
    """Lay the table out: ours with its deviation over seeds, beside the paper's."""
    header = ["", "parameters"]
    for size in sizes:
        header += [f"{size:,} rows", "paper"]
    rows = []
    for name, method in read_methods("table3").items():
        if name not in names:
            continue
        mine = [record for record in records if record["method"] == name]
        row = [method.title, f"{mine[0]['parameters']:,}"]
        for size in sizes:
            scores = [r["metrics"]["f1"] for r in mine if r["n_train"] == size]
            paper = PAPER.get(name, {}).get(size)
            row += [mean_and_deviation(scores), "" if paper is None else f"{paper:.1f}"]
        rows.append(row)
    return text_table(header, rows)


def structure(seeds: int, out: Path) -> None:
    """Draw the learned measurement matrices for ReLU and HardTanh (the paper's figures).

    Writes PNG and SVG, and prints how block-like each matrix is.
    """
    check_seeds(seeds)
    require("matplotlib", "report")
    from spen_paper.plots import draw_measurements

    records = Records(out)
    methods = methods_for(CASES[0][1], "structure")
    panels, rows = [], []
    for name, size in CASES:
        title = f"{methods[name].title}, {size:,} rows"
        found = collect([name], [size], range(seeds), records, experiment="structure")
        matrices = [np.array(record["measurements"]) for record in found]
        panels.append((title, matrices[0]))
        figures = [
            [100 * block_score(matrix) for matrix in matrices],
            [100 * block_span_score(matrix) for matrix in matrices],
            [record["metrics"]["f1"] for record in found],
        ]
        rows.append([title, *map(mean_and_deviation, figures)])
    paths = draw_measurements(panels, records.folder / "structure")
    say(text_table(["energy", "one block", "equal within blocks", "F1"], rows))
    say(f"\n{SCORES_IN_WORDS}")
    for path in paths:
        say(f"Picture: {path}")
