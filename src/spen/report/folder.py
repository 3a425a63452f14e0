"""A run folder: its records as tables, its models and pictures."""

from __future__ import annotations

import base64
import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from spen.errors import InputError
from spen.report.subject import isolated

RECORDS = "records*.jsonl"
"""Where runs are: in records.jsonl, and in files that were kept beside it (see ``Records``)."""

DEEPEST = 50
"""Lists and dictionaries in one another that a record may have."""

LARGEST_PICTURE = 600_000
"""Bytes of a picture that is put into the page; a larger one is named."""

LARGEST_NUMBER = 1e100
"""Larger ones are no scores, and their sums would not be finite."""

GROUP = ("experiment", "dataset", "method", "variant", "n_train", "decoding")
"""What a line of the table says; its runs share their settings, but for seed and fold."""

OF_A_RUN = ("variant", "initial_weights", "n_test")
"""Settings that the table says itself, or that differ from seed to seed or from fold to fold."""

FIRST_METRICS = ("f1", "hamming", "steps", "search_errors")
"""Columns that come before all others."""

Line = tuple[list[str], list[dict[str, Any]]]
"""What a line of a table says of its runs, and the runs."""


def folder_facts(folder: Path) -> dict[str, Any]:
    """Return the runs of a folder as a table, its pictures, and what could not be read.

    A line that is cut off, as a killed run leaves one, is counted and left out.
    """
    files = sorted(path for path in folder.glob(RECORDS) if path.is_file())
    read = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    lines = [line for text in read for line in text.splitlines() if line.strip()]
    records = [record for record in map(_record_in, lines) if record is not None]
    broken = len(lines) - len(records)
    runs = [record for record in records if isinstance(record.get("metrics"), dict)]
    pictures, left_out = _pictures(folder)
    models = sorted(path.name for path in folder.glob("*.spen"))
    if not runs and not pictures and not models:
        raise InputError(_why_nothing(folder, files, len(records), broken))
    return {
        "name": folder.resolve().name,
        "runs": len(runs),
        "broken_lines": broken,
        "other_records": len(records) - len(runs),
        "tables": _tables(runs),
        "rules": sorted({str(run["rule"]) for run in runs if run.get("rule")}),
        "versions": _versions(runs),
        "pictures": pictures,
        "large_pictures": left_out,
    }


def _record_in(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    level: list[Any] = [record]
    for _ in range(DEEPEST):
        lists = [each.values() if isinstance(each, dict) else each for each in level]
        level = [child for each in lists for child in each if isinstance(child, dict | list)]
    return None if level else record


def _why_nothing(folder: Path, files: list[Path], others: int, broken: int) -> str:
    records = "no records.jsonl"
    if files:
        records = (
            f"no whole record of a run in {', '.join(path.name for path in files)} ({broken} lines "
            f"are cut off or are not JSON, {others} have no metrics)"
        )
    return (
        f"{folder} has nothing to report: {records}, no model (*.spen) and no picture. Name the "
        "--out folder of a `spen reproduce` or `spen demo`, or a model file: spen report "
        "model.spen --data FILE."
    )


def _tables(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one table for each experiment and data set: a line a method, means over runs."""
    groups: dict[tuple[str, ...], dict[str, list[dict[str, Any]]]] = {}
    for run in runs:
        settings = run["settings"] if isinstance(run.get("settings"), dict) else {}
        said = run | {"variant": settings.get("variant")}
        if run.get("fold") is not None:
            said["n_train"] = None  # Folds differ by a row.
        key = tuple(_text(said.get(name)) for name in GROUP)
        others = {name: value for name, value in settings.items() if name not in OF_A_RUN}
        same = groups.setdefault(key, {})
        same.setdefault(json.dumps(others, sort_keys=True), []).append(run)
    tables: dict[tuple[str, str], list[Line]] = {}
    for (experiment, dataset, *said), by_settings in groups.items():
        lines = tables.setdefault((experiment, dataset), [])
        for number, members in enumerate(by_settings.values(), 1):
            # Where a line is there twice, it is told apart by a number.
            lines.append(([*said, str(number) if len(by_settings) > 1 else ""], members))
    return [_table(*title, lines) for title, lines in tables.items()]


def _table(experiment: str, dataset: str, lines: list[Line]) -> dict[str, Any]:
    scores = [_numbers([run["metrics"] for run in members]) for _, members in lines]
    names = set().union(*scores)
    metrics = [name for name in FIRST_METRICS if name in names]
    metrics += sorted(names - set(metrics))
    header = ["method", "variant", "training rows", "decoding", "settings"]
    header += ["runs", *metrics, "seconds"]
    rows, points = [], []
    short_names = _short_names([said for said, _ in lines])
    for (said, members), name, found in zip(lines, short_names, scores, strict=True):
        values = [found.get(metric, []) for metric in metrics]
        seconds = _numbers(members).get("seconds", [])
        rows.append([*said, len(members), *map(_mean, values), _mean(seconds)])
        if values and values[0]:
            mean, spread = round(statistics.fmean(values[0]), 4), round(_spread(values[0]), 4)
            points.append([name, mean - spread, mean, mean + spread])
    # A column that says the same nothing everywhere is left out.
    kept = [i for i in range(len(header)) if any(row[i] != "" for row in rows)]
    return {
        "experiment": experiment,
        "dataset": dataset,
        "metric": metrics[0] if metrics else "",
        "points": points,
        "header": [header[i].replace("_", " ") for i in kept],
        "rows": [[row[i] for i in kept] for row in rows],
    }


def _short_names(lines: list[list[str]]) -> list[str]:
    """Return what tells lines apart: the method, and what is not the same for all.

    >>> _short_names([["mlp", "", "99"], ["spen", "", "99"]])
    ['mlp', 'spen']
    """
    differs = [i for i in range(1, len(lines[0])) if len({line[i] for line in lines}) > 1]
    return [", ".join(line[i] for i in (0, *differs) if line[i]) for line in lines]


def _numbers(records: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the numbers that records have under each name; nan and infinity are none."""
    values: dict[str, list[float]] = {}
    for record in records:
        for name, value in record.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and abs(value) < LARGEST_NUMBER:
                values.setdefault(isolated(name), []).append(float(value))
    return values


def _spread(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _mean(values: list[float]) -> str:
    """Return the mean in words, with its deviation where there are several values."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):.2f}"
    return mean if len(values) < 2 else f"{mean} ± {_spread(values):.2f}"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else isolated(str(value))


def _versions(runs: list[dict[str, Any]]) -> list[list[Any]]:
    """Return each set of versions in words with its number of runs, the most frequent first."""

    def words(run: dict[str, Any]) -> str:
        versions = run.get("versions")
        if not isinstance(versions, dict):
            return "versions not recorded"
        return ", ".join(isolated(f"{name} {versions[name]}") for name in sorted(versions))

    return [[text, count] for text, count in Counter(map(words, runs)).most_common()]


def _pictures(folder: Path) -> tuple[list[dict[str, str]], list[str]]:
    """Return the folder's pictures as data addresses, and the names of those that are too large.

    Where a picture is there as SVG and as PNG, the sharp one is taken unless it is large.
    """
    kinds = {".svg": "image/svg+xml", ".png": "image/png"}
    stems = {path.stem for path in folder.iterdir() if path.suffix in kinds}
    pictures, left_out = [], []
    for stem in sorted(stems):
        paths = [path for suffix in kinds if (path := folder / f"{stem}{suffix}").is_file()]
        small = [path for path in paths if path.stat().st_size <= LARGEST_PICTURE]
        if not small:
            left_out += [isolated(path.name) for path in paths]
            continue
        content = base64.b64encode(small[0].read_bytes()).decode("ascii")
        address = f"data:{kinds[small[0].suffix]};base64,{content}"
        pictures.append({"name": stem.replace("-", " ").replace("_", " "), "address": address})
    return pictures, left_out
