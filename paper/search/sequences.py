"""The search behind the taggers of `spen reproduce ocr|twitter|chunking`: no test row is looked at.

    SPEN_DATA=FOLDER python paper/search/sequences.py --only twitter/official/network > LOG
    SPEN_DATA=FOLDER python paper/search/sequences.py --only twitter/official/spen --log LOG
        [--device cuda] [--part 0 --of 1] [--seconds 400] [--out FOLDER]
    python paper/search/sequences.py --best paper/search/sequences.jsonl

Every point below is a method with some settings changed, trained and judged on development rows
(``spen_paper.corpora.divisions`` with search=True: of OCR letters training rows of the first fold,
of Twitter oct27.test, of CoNLL-2000 every tenth training sentence). What was tried is in
sequences.jsonl, one JSON line per run; --best prints the groups that were tried whole, the best
point first. Points of group "network" say how features are trained, for all methods alike, and come
first; the others say what energy is learned, over the network that --log says was best. A test
compares the settings of tagging.toml with the winners.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from spen_paper.corpora import divisions
from spen_paper.records import Record, Records
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


def margin(each: float) -> dict[str, Any]:
    """Return a change to the margin of a wrong tag."""
    return {"objective": {"name": "hinge", "margin": each}}


def margin_among(each: float, n: int) -> dict[str, Any]:
    """Return a change to the margin of a wrong tag, among so many taggings."""
    return margin(each) | {"inference": {"name": "best_of", "n": n}}


def n_best(n: int, **also: float) -> dict[str, Any]:
    """Return a change to so many taggings among which the right one is learned."""
    return {
        "objective": {"name": "n_best", "n": n} | also,
        "inference": {"name": "best_of", "n": 2 * n},
    }


def tokens(**settings: Any) -> dict[str, Any]:
    """Return a change to a network of words of other sizes."""
    return {"network": {"name": "tokens", "dropout": 0.5} | settings}


NO_DROPOUT = {"network": {"dropout": 0.0}}
LARGER = {"network": {"filters": 64, "dropout": 0.5}}

GROUPS: dict[tuple[str, str], dict[str, list[tuple[str, dict[str, Any]]]]] = {
    ("ocr", "one-fold"): {
        "network": [
            ("crf", {}),
            ("crf", {"network": {"move": 1.5}}),
            ("crf", LARGER),
            ("crf", {"batch_size": 32}),
            ("crf", LARGER | {"longer": 2}),
        ],
        "spen": [("spen", {}), ("spen", windows(9, 256)), ("spen", n_best(128))],
        "ssvm": [
            ("ssvm", NO_DROPOUT),
            ("ssvm", NO_DROPOUT | {"lr": 5e-4}),
            ("ssvm", {"network": {"dropout": 0.3}}),
        ],
        "spelling": [
            ("spelling", {}),
            ("spelling", n_best(128)),
            ("spelling", spells(13, 512) | n_best(64)),
            ("spelling", {"epochs": 120}),
            ("spelling", n_best(32, language=1.0)),
            ("spelling", n_best(128, language=1.0)),
            ("spelling", n_best(128, language=1.0) | {"longer": 2}),
        ],
    },
    ("ocr", "new-words"): {
        "network": [
            ("crf", {}),
            ("crf", LARGER),
            ("crf", {"weight_decay": 0.1}),
            ("crf", LARGER | {"batch_size": 32}),
            ("crf", LARGER | {"batch_size": 32, "longer": 2}),
            ("crf", LARGER | {"batch_size": 32, "weight_decay": 0.1}),
        ],
        "spen": [
            ("spen", {}),
            ("spen", windows(3, 32)),
            ("spen", {"weight_decay": 0.1}),
            ("spen", windows(3, 32) | {"weight_decay": 0.3}),
        ],
        "ssvm": [("ssvm", {}), ("ssvm", NO_DROPOUT)],
    },
    ("ocr", "folds"): {
        "network": [
            ("crf", {}),
            ("crf", LARGER),
            ("crf", LARGER | {"batch_size": 32}),
            ("crf", LARGER | {"batch_size": 32, "longer": 2}),
            ("crf", {"network": {"filters": 96, "dropout": 0.5}, "batch_size": 32}),
        ],
        "spen": [("spen", {}), ("spen", windows(9, 256))],
        "ssvm": [("ssvm", {}), ("ssvm", NO_DROPOUT)],
        "spelling": [
            ("spelling", {}),
            ("spelling", n_best(128)),
            ("spelling", n_best(32, language=1.0)),
            ("spelling", n_best(128, language=1.0)),
            ("spelling", n_best(128, language=1.0) | {"longer": 2}),
        ],
    },
    ("twitter", "official"): {
        "network": [
            ("crf", {}),
            ("crf", {"dropout": 0.65}),
            ("crf", {"weight_decay": 0.1}),
            ("crf", tokens(hidden=256)),
            ("crf", tokens(hidden=256, layers=2)),
        ],
        "spen": [
            ("spen", {}),
            ("spen", n_best(16)),
            ("spen", n_best(16) | {"epochs": 22}),
            ("spen", n_best(16) | windows(5, 32)),
            ("spen", n_best(16) | spells(4, 64)),
            ("spen", n_best(16) | spells(4, 64) | {"epochs": 22}),
            ("spen", windows(3, 32) | margin_among(0.5, 32)),
        ],
        "ssvm": [("ssvm", {}), ("ssvm", margin(0.5)), ("ssvm", margin(2.0))],
    },
    ("chunking", "official"): {
        "network": [
            ("crf", {}),
            ("crf", {"dropout": 0.6}),
            ("crf", {"weight_decay": 0.1}),
            ("crf", tokens(hidden=256)),
            ("crf", tokens(hidden=256, layers=2)),
            ("crf", tokens(hidden=256, width=200) | {"batch_size": 32}),
        ],
        "spen": [
            ("spen", {}),
            ("spen", n_best(16)),
            ("spen", n_best(16) | {"epochs": 16}),
            ("spen", n_best(16) | windows(5, 64)),
            ("spen", n_best(16) | spells(4, 64)),
        ],
        "ssvm": [("ssvm", {}), ("ssvm", margin(0.5)), ("ssvm", margin(2.0))],
    },
}
"""The points of each group, by set and division; the first is what the settings said at first.

The rule: the best development score of a group wins, the first of those that tie. The network is
chosen first; what its winner changes, all points of the other groups change too. Of OCR letters
the networks with smaller batches and longer training ("longer" multiplies the epochs) are a second
round: of the first the larger network had won, and the others over it had been tried. Two kinds of
points came in after trials on the same development rows, by scripts that are not here: language
models that learn from labels alone, of letters (one fold, with the smaller network), and windows by
a margin, of tweets.
"""


def points() -> list[tuple[str, str, str, str, dict[str, Any]]]:
    """Return all points: the set, the division, the group, the method and what is changed."""
    return [
        (*place, group, method, changes)
        for place, groups in GROUPS.items()
        for group, tried in groups.items()
        for method, changes in tried
    ]


def ranked(records: list[Record], place: tuple[str, str], group: str) -> list[Record]:
    """Return what was tried of a group, the best first; it counts when all of it was."""
    tried = GROUPS[place][group]
    found = {
        json.dumps(r["changes"], sort_keys=True): r for r in records if _is_of(r, place, group)
    }
    keys = [json.dumps(changes, sort_keys=True) for _, changes in tried]
    if not all(key in found for key in keys):
        return []
    sign = 1 if place[0] == "ocr" else -1
    return sorted((found[key] for key in keys), key=lambda record: sign * record["score"])


def _is_of(record: Record, place: tuple[str, str], group: str) -> bool:
    return (record["task"], record["split"], record["group"]) == (*place, group)


def best(records: list[Record]) -> list[str]:
    """Return a line for each point of the groups that were tried, the best first."""
    return [
        f"{' '.join(place)} {group}: {r['score']:.2f} {r['method']} "
        f"{json.dumps(r['changes'])} ({r['seconds']:.0f} s)"
        for place, groups in GROUPS.items()
        for group in groups
        for r in ranked(records, place, group)
    ]


def read(paths: list[Path]) -> list[Record]:
    """Return the lines of logs."""
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def main() -> None:
    """Try the points that nobody has tried, or say which were best."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--part", type=int, default=0, help="this process's, from 0")
    parser.add_argument("--of", type=int, default=1, help="so many processes share the points")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--only", help="such as ocr/one-fold,chunking/official/network")
    parser.add_argument("--log", type=Path, nargs="+", help="what was tried of networks before")
    parser.add_argument("--out", default="runs/search")
    parser.add_argument("--tiny", type=int, default=0, help="only so many sentences, one epoch")
    parser.add_argument("--best", type=Path, nargs="+", help="files of what was tried")
    chosen = parser.parse_args()
    if chosen.best:
        for line in best(read(chosen.best)):
            print(line)
        return
    began, records = time.perf_counter(), Records(Path(chosen.out))
    if chosen.of > 1:
        records.path = records.folder / f"records-{chosen.part}.jsonl"
    log = read(chosen.log) if chosen.log else []
    tried = [each for each in points() if chosen.only is None or _named(each, chosen.only)]
    for number, (task, split, group, method, changes) in enumerate(tried):
        if number % chosen.of != chosen.part or time.perf_counter() - began > chosen.seconds:
            continue
        table = tables_of(task, split)[method]
        if group != "network":
            if not (network := ranked(log, (task, split), "network")):
                raise SystemExit(
                    f"Networks of {task}/{split} come first: --log has not all of them."
                )
            table = with_changes(table, network[0]["changes"])
        table = with_changes(table, changes)
        settings = {name: value for name, value in table.items() if name != "title"}
        point = {"task": task, "split": split, "group": group, "method": method, "changes": changes}
        division = next(iter(divisions(task, split, search=True)))
        if chosen.tiny:
            cut = [part.take(range(chosen.tiny)) for part in (division.train, division.test)]
            division = type(division)(division.fold, *cut)
            table = table | {"epochs": 1}
        made = tagger(table, SEED, chosen.device, f"{task} {method}")
        wanted = {"experiment": "search", "dataset": task, "method": method}
        wanted["settings"] = point | {"table": settings}

        def record(made: Any = made, division: Any = division, task: str = task) -> dict[str, Any]:
            return measure(made, division, task)

        found = records.make(wanted, record)
        line = point | {
            "settings": settings,
            "seed": SEED,
            "score": found["metrics"][NUMBERS[task]],
        }
        line |= {"seconds": round(found["seconds"], 1), "device": found["device"]}
        print(json.dumps(line), flush=True)


def _named(point: tuple[Any, ...], only: str) -> bool:
    """Say whether names such as ocr/one-fold or chunking/official/network have a point."""
    return any("/".join(point[: name.count("/") + 1]) == name for name in only.split(","))


if __name__ == "__main__":
    main()
