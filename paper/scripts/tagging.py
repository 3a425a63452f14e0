"""Runs of `spen reproduce ocr|twitter|chunking` by several processes side by side.

    SPEN_DATA=FOLDER python paper/scripts/tagging.py --part 0 --of 8 --out FOLDER [--device cuda]
        [--seconds 400] [--seeds 3] [--only ocr/folds,twitter] [--without gspen]

Each process takes every so-many-th run, the first seeds and folds of all tables before others, and
keeps its records in OUT/records-PART.jsonl; runs that are there are not made again. In the end
`spen reproduce ocr --out OUT` prints the tables, for it reads all of them.
"""

from __future__ import annotations

import argparse
import time
import traceback
from pathlib import Path

from spen_paper.corpora import SPLITS, Division, divisions
from spen_paper.records import Records
from spen_paper.tables.tagging import NUMBERS, run, tables_of

Run = tuple[int, int, str, str, str, Division]


def all_runs(seeds: int, only: list[str] | None) -> list[Run]:
    """Return all runs, in the order of their worth."""
    found = []
    for task, splits in SPLITS.items():
        for split in splits:
            if only is not None and not {task, f"{task}/{split}"} & {*only}:
                continue
            for division in divisions(task, split):
                # Ten folds are as many runs as ten seeds.
                for seed in range(1 if task == "ocr" else seeds):
                    for method in tables_of(task, split):
                        order = seed if division.fold is None else division.fold
                        found.append((order, seed, task, split, method, division))
    return sorted(found, key=lambda each: each[0])


def main() -> None:
    """Make the runs of one process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--part", type=int, default=0, help="this process's, from 0")
    parser.add_argument("--of", type=int, default=1, help="so many processes share the runs")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", help="sets or sets/divisions, separated by commas")
    parser.add_argument("--without", default="", help="methods, separated by commas")
    parser.add_argument("--list", action="store_true", help="how many runs there are")
    parser.add_argument("--out", default="runs/tagging")
    chosen = parser.parse_args()
    began, records = time.perf_counter(), Records(Path(chosen.out))
    records.path = records.folder / f"records-{chosen.part}.jsonl"
    runs = all_runs(chosen.seeds, chosen.only and chosen.only.split(","))
    runs = [each for each in runs if each[4] not in chosen.without.split(",")]
    if chosen.list:
        print(f"{len(runs)} runs")
        return
    for number, (_, seed, task, split, method, division) in enumerate(runs):
        if number % chosen.of != chosen.part:
            continue
        if time.perf_counter() - began > chosen.seconds:
            print("Time is up.", flush=True)
            return
        try:
            found = run(task, split, method, division, seed, chosen.device, records)
        except Exception:  # one run that fails does not end the others
            traceback.print_exc()
            continue
        score, seconds = found["metrics"][NUMBERS[task]], found["seconds"]
        place = f"{task} {split} {method}, fold {division.fold}, seed {seed}"
        print(f"{place}: {score:.2f} ({seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
