"""The search behind the taggers of `spen reproduce ocr|twitter|chunking`: no test row is looked at.

    SPEN_DATA=FOLDER python paper/search/sequences.py [--device cuda] [--part 0 --of 1]
        [--seconds 400] [--only twitter/official] [--out search] | --best sequences.jsonl

Every point below is a method with some settings changed, trained and judged on development rows
(``spen_paper.corpora.divisions`` with search=True: of OCR letters training rows of the first fold,
of Twitter oct27.test, of CoNLL-2000 every tenth training sentence). What was tried is in
sequences.jsonl, one JSON line per run; --best prints the best point of each group. Points of group
"network" say how features are trained, for all methods alike; the others what energy is learned.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from spen_paper.corpora import divisions
from spen_paper.records import Records
from spen_paper.tables.tagging import NUMBERS, measure, tables_of, tagger, with_changes

SEED = 100
LOCAL, CHAIN = {"name": "LocalEnergy"}, {"name": "ChainEnergy"}


def windows(window: int, measurements: int) -> dict[str, Any]:
    """Return a change to windows of so many tags."""
    term = {"name": "ConvolutionEnergy", "window": window, "measurements": measurements}
    return {"energy": [LOCAL, CHAIN, term]}


def spells(window: int, hidden: int) -> dict[str, Any]:
    """Return a change to a language model over labels."""
    term = {"name": "LanguageEnergy", "window": window, "hidden": hidden}
    return {"energy": [LOCAL, CHAIN, term]}


def n_best(n: int) -> dict[str, Any]:
    """Return a change to so many taggings among which the right one is learned."""
    return {
        "objective": {"name": "n_best", "n": n},
        "inference": {"name": "best_of", "n": 2 * n},
    }


GROUPS: dict[tuple[str, str], dict[str, list[tuple[str, dict[str, Any]]]]] = {
    ("ocr", "one-fold"): {
        "network": [
            ("crf", {}),
            ("crf", {"network": {"move": 1.5}}),
            ("crf", {"network": {"filters": 64, "dropout": 0.5}}),
            ("crf", {"batch_size": 16}),
        ],
        "spen": [("spen", {}), ("spen", windows(9, 256)), ("spen", n_best(128))],
        "ssvm": [
            ("ssvm", {}),
            ("ssvm", {"lr": 5e-4}),
            ("ssvm", {"batch_size": 64}),
            ("ssvm", {"batch_size": 64, "lr": 5e-4}),
            ("ssvm", {"network": {"dropout": 0.0}}),
            ("ssvm", {"network": {"dropout": 0.3}}),
        ],
        "spelling": [
            ("spelling", {}),
            ("spelling", n_best(128)),
            ("spelling", n_best(128) | {"batch_size": 16}),
            ("spelling", spells(13, 512) | n_best(64)),
        ],
    },
    ("ocr", "new-words"): {
        "network": [
            ("crf", {}),
            ("crf", {"network": {"filters": 64, "dropout": 0.5}}),
        ],
        "spen": [
            ("spen", {}),
            ("spen", windows(3, 32)),
            ("spen", {"weight_decay": 0.1}),
            ("spen", windows(3, 32) | {"weight_decay": 0.3}),
        ],
    },
    ("ocr", "folds"): {
        "network": [("crf", {})],
        "spen": [("spen", {}), ("spen", windows(9, 256))],
        "spelling": [("spelling", {}), ("spelling", n_best(128))],
    },
    ("twitter", "official"): {
        "network": [
            ("crf", {}),
            ("crf", {"dropout": 0.65}),
            ("crf", {"weight_decay": 0.1}),
            ("crf", {"epochs": 40}),
        ],
        "spen": [
            ("spen", {}),
            ("spen", n_best(16)),
            ("spen", n_best(16) | windows(5, 32)),
            ("spen", n_best(16) | spells(4, 64)),
        ],
    },
    ("chunking", "official"): {
        "network": [("crf", {}), ("crf", {"dropout": 0.6})],
        "spen": [("spen", {}), ("spen", n_best(16)), ("spen", n_best(16) | windows(5, 64))],
    },
}
"""The points of each group, by set and division; the first is what the settings said at first."""


def points() -> list[tuple[str, str, str, str, dict[str, Any]]]:
    """Return all points: the set, the division, the group, the method and what is changed."""
    return [
        (*place, group, method, changes)
        for place, groups in GROUPS.items()
        for group, tried in groups.items()
        for method, changes in tried
    ]


def best(records: list[dict[str, Any]]) -> list[str]:
    """Return a line for each group: its points, the best one first."""
    lines = []
    for place, groups in GROUPS.items():
        for group in groups:
            mine = [r for r in records if (r["task"], r["split"], r["group"]) == (*place, group)]
            lower = place[0] == "ocr"
            mine.sort(key=lambda r: r["score"] if lower else -r["score"])
            lines += [
                f"{' '.join(place)} {group}: {r['score']:.2f} {r['method']} "
                f"{json.dumps(r['changes'])} ({r['seconds']:.0f} s)"
                for r in mine
            ]
    return lines


def main() -> None:
    """Try the points that nobody has tried, or say which were best."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--part", type=int, default=0, help="this process's, from 0")
    parser.add_argument("--of", type=int, default=1, help="so many processes share the points")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--only", help="a set and its division, such as ocr/one-fold")
    parser.add_argument("--out", default="runs/search")
    parser.add_argument("--tiny", type=int, default=0, help="only so many sentences, one epoch")
    parser.add_argument("--best", type=Path, nargs="+", help="files of what was tried")
    chosen = parser.parse_args()
    if chosen.best:
        lines = [line for path in chosen.best for line in path.read_text().splitlines()]
        for line in best([json.loads(each) for each in lines]):
            print(line)
        return
    began, records = time.perf_counter(), Records(Path(chosen.out))
    tried = [each for each in points() if chosen.only in (None, "/".join(each[:2]))]
    for number, (task, split, group, method, changes) in enumerate(tried):
        if number % chosen.of != chosen.part or time.perf_counter() - began > chosen.seconds:
            continue
        point = {"task": task, "split": split, "group": group, "method": method, "changes": changes}
        division = next(iter(divisions(task, split, search=True)))
        table = with_changes(tables_of(task, split)[method], changes)
        if chosen.tiny:
            cut = [part.take(range(chosen.tiny)) for part in (division.train, division.test)]
            division = type(division)(division.fold, *cut)
            table = table | {"epochs": 1}
        made = tagger(table, SEED, chosen.device, f"{task} {method}")
        wanted = {"experiment": "search", "dataset": task, "method": method, "settings": point}

        def record(made: Any = made, division: Any = division, task: str = task) -> dict[str, Any]:
            return measure(made, division, task)

        found = records.make(wanted, record)
        score = found["metrics"][NUMBERS[task]]
        line = point | {"seed": SEED, "score": score, "seconds": round(found["seconds"], 1)}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
