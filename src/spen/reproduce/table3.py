"""Table 3: the synthetic task with mutually exclusive labels in blocks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from spen.cli.show import say, text_table
from spen.data.synthetic import exclusive_blocks
from spen.errors import InputError, choose
from spen.estimators.fit import epoch_bar
from spen.reproduce.plain import run_plain
from spen.reproduce.protocol import F1_RULE, Fitted, run
from spen.reproduce.records import Record, Records
from spen.reproduce.settings import Method, read_methods

SIZES = (1500, 15000)
N_TEST = 10_000
PAPER = {
    "linear": {1500: 80.0, 15000: 81.8},
    "mlp": {1500: 81.6, 15000: 96.3},
    "spen": {1500: 91.5, 15000: 96.7},
}
"""The paper's figures. Its SPEN has 4 hidden units."""


def table3(
    seeds: int = 3,
    out: Path = Path("runs/table3"),
    method: str | None = None,
    n_train: int | None = None,
) -> None:
    """Compare linear, MLP and SPEN on the paper's synthetic task (Table 3).

    Runs that are already in OUT/records.jsonl are not made again, so a killed run goes on.
    """
    if seeds < 1:
        raise InputError(f"seeds must be 1 or more; received {seeds}.")
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
    keep: Callable[[Fitted], None] | None = None,
) -> list[Record]:
    """Return the record of every method, size and seed; hand each new fit to ``keep``."""
    found = []
    for size in sizes:
        for seed in seeds:
            data = exclusive_blocks(size, N_TEST, seed=seed)
            methods = methods_for(size)
            for name in names:
                method = methods[name]
                epochs = sum(stage.epochs for stage in method.stages)
                title = f"{name}, {size:,} rows, seed {seed}"
                with epoch_bar(title, 2 * epochs) as progress:
                    record = run("table3", name, method, data, seed, records, progress, keep)
                    found.append(record)
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


def mean_and_deviation(values: Sequence[float]) -> str:
    """Write "mean ± standard deviation"; a single value stands alone.

    >>> mean_and_deviation([80.0, 82.0])
    '81.0 ± 1.4'
    """
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.1f}"


if __name__ == "__main__":
    run_plain(table3)
