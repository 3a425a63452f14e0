"""``spen data``: which data sets there are, what is in them, and getting them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from spen.cli.files import parse_labels
from spen.cli.show import download_bar, say, show_json, show_table


def list_sets(*, json: bool = False) -> None:
    """The data sets that have a name, and where they are.

    Args:
        json: Print one JSON object instead of a table.
    """
    from spen.data.catalog import ENTRIES, find

    found = {name: find(name) for name in ENTRIES}
    if json:
        records = [_record(entry) | {"folder": _text(found[entry.name])} for entry in _entries()]
        show_json({"datasets": records})
        return
    rows = [
        (
            entry.name,
            entry.n_train + entry.n_test,
            "words" if entry.n_features is None else entry.n_features,
            entry.n_labels,
            found[entry.name] or f"not here: spen data fetch {entry.name}",
        )
        for entry in _entries()
    ]
    show_table("Data sets", ["name", "rows", "features", "labels", "where"], rows)


def show(
    source: str,
    *,
    format: str | None = None,
    labels: str | None = None,
    n_features: int | None = None,
    n_labels: int | None = None,
    top: int = 10,
    json: bool = False,
) -> None:
    """The figures of a data set: sizes, label statistics, frequent labels and pairs; or tags.

    Args:
        source: A name from `spen data list`, or the path of a file or a folder.
        format: The file's format, where it cannot be recognised.
        labels: Which columns are labels, where the file does not say: names between commas,
            an XML file, or a count (negative: the last ones).
        n_features: How many features there are, where the file does not say.
        n_labels: How many labels there are, where the file does not say.
        top: How many of the most frequent labels and pairs to show.
        json: Print one JSON object instead of tables.
    """
    from spen.data.dataset import summarise
    from spen.data.load import load_dataset
    from spen.data.tagged import is_tagged, summarise_tags
    from spen.errors import InputError

    if top < 1:
        raise InputError(f"--top must be 1 or more; received {top}.")
    data = load_dataset(
        source,
        format=format,
        labels=parse_labels(labels),
        n_features=n_features,
        n_labels=n_labels,
    )
    if is_tagged(data):
        _show_tags(summarise_tags(data, top), json)
        return
    figures = summarise(data, top)
    if json:
        show_json(asdict(figures))
        return
    rows: list[tuple[str, Any]] = [(f"{part} rows", n) for part, n in figures.rows.items()]
    rows += [
        ("features", figures.n_features),
        ("labels", figures.n_labels),
        ("cardinality: labels on per row", f"{figures.cardinality:.3f}"),
        ("density: share of labels that are on", f"{figures.density:.5f}"),
        ("rows without labels", f"{100 * figures.unlabelled:.2f} %"),
        ("different label sets", figures.labelsets),
    ]
    if figures.missing:
        rows.append(("missing labels", f"{100 * figures.missing:.2f} %"))
    if figures.repeated is not None:
        rows.append(("test rows with the features of a training row", figures.repeated))
    show_table(figures.name, ["figure", "value"], rows)
    n_rows = sum(figures.rows.values())
    show_table(
        "Most frequent labels",
        ["label", "rows", "share"],
        [(name, n, _percent(n, n_rows)) for name, n in figures.top_labels],
    )
    show_table(
        "Labels most often on together",
        ["label", "and", "rows", "share"],
        [(a, b, n, _percent(n, n_rows)) for a, b, n in figures.top_pairs],
    )
    say("Label figures are over all rows together.")


def _show_tags(figures: Any, json: bool) -> None:
    """Show the figures of sequences."""
    if json:
        show_json(asdict(figures))
        return
    total = sum(figures.positions.values())
    rows: list[tuple[str, Any]] = [
        (f"{part} sentences", n) for part, n in figures.sentences.items()
    ]
    rows += [(f"{part} positions", n) for part, n in figures.positions.items()]
    rows += [("positions of the longest", figures.longest), ("tags", figures.n_tags)]
    if figures.missing:
        rows.append(("positions without a tag", figures.missing))
    if figures.unseen is not None:
        share = f"{100 * figures.unseen:.2f} %"
        rows.append(("tokens of the test part that training does not have", share))
    show_table(figures.name, ["figure", "value"], rows)
    show_table(
        "Most frequent tags",
        ["tag", "positions", "share"],
        [(tag, n, _percent(n, total)) for tag, n in figures.top_tags],
    )
    show_table(
        "What most often follows what",
        ["tag", "then", "times"],
        [(one, other, n) for one, other, n in figures.top_pairs],
    )
    say("Figures of tags are over all sentences together.")


def fetch(name: str, *, base_url: str | None = None, json: bool = False) -> None:
    """Download a data set to `$SPEN_DATA`, or to your cache folder if that is not set.

    Files are verified by their checksum; a download that was cut off goes on where it ended.

    Args:
        name: A name from `spen data list`.
        base_url: Another address that holds the folders of the data sets, such as a mirror.
        json: Print one JSON object instead of text.
    """
    from spen.data import catalog as module

    with download_bar(quiet=json) as progress:
        done = module.fetch(name, base_url=base_url, progress=progress)
    if json:
        files = [asdict(file) | {"path": str(file.path)} for file in done]
        show_json({"name": name, "folder": str(done[0].path.parent), "files": files})
        return
    for file in done:
        how = "downloaded" if file.downloaded else "was there already"
        sure = "verified" if file.verified else "not verified, since its checksum is not known"
        say(f"{file.path}: {how}, {sure}")


def _entries() -> list[Any]:
    from spen.data.catalog import ENTRIES

    return [ENTRIES[name] for name in sorted(ENTRIES)]


def _record(entry: Any) -> dict[str, Any]:
    names = ("name", "sentence", "n_train", "n_test", "n_features", "n_labels")
    return {name: getattr(entry, name) for name in names}


def _text(path: Any) -> str | None:
    return None if path is None else str(path)


def _percent(count: int, total: int) -> str:
    return f"{100 * count / total:.2f} %"
