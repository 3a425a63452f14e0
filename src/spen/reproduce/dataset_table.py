"""The paper's table of data sets, counted anew."""

from __future__ import annotations

from spen.cli.show import text_table
from spen.data.dataset import Summary, summarise
from spen.data.load import load_dataset
from spen.errors import InputError

PAPER = {
    "bibtex": (159, 1836, 4880, "2.40"),
    "delicious": (983, 500, 12920, "19.02"),
    "bookmarks": (208, 2150, 60000, "2.03"),
    "yeast": (14, 103, 2417, "30.3"),
}
"""Labels, features, training rows and "% true labels", as printed."""

CLAIM = '"% true labels" of its data-set table is the share of labels that are on'
RULE = "for every set at hand the column is the share of labels that are on, to its last digit"


def dataset_table() -> tuple[str, tuple[str, str, str, bool]]:
    """Return the table, and (claim, measured, rule, agreed) about its last column."""
    header = ["", "labels", "features", "training rows", "rows", "labels a row", "labels on, %"]
    rows, read_as = [], {}
    for name, printed in PAPER.items():
        try:
            figures = summarise(load_dataset(name), top=0)
        except InputError:
            rows.append([name, *("not at hand",) * 6, printed[3], ""])
            continue
        read_as[name] = meaning(figures, printed[3])
        rows.append(
            [
                name,
                _beside(figures.n_labels, printed[0]),
                _beside(figures.n_features, printed[1]),
                _beside(figures.rows["train"], printed[2]),
                f"{sum(figures.rows.values()):,}",
                f"{figures.cardinality:.2f}",
                f"{100 * figures.density:.2f}",
                printed[3],
                read_as[name],
            ]
        )
    table = text_table([*header, 'paper\'s "% true labels"', "which is"], rows)
    measured = "; ".join(f"{name}: {words}" for name, words in read_as.items()) or "no set at hand"
    agreed = bool(read_as) and set(read_as.values()) == {"labels on, %"}
    return table, (CLAIM, measured, RULE, agreed)


def meaning(figures: Summary, printed: str) -> str:
    """Say which figure of a data set a printed one is, to its last digit.

    >>> from spen import exclusive_blocks
    >>> figures = summarise(exclusive_blocks(100, 50))
    >>> meaning(figures, "4.0"), meaning(figures, "25.0"), meaning(figures, "3")
    ('labels a row', 'labels on, %', 'neither')
    """
    digits = len(printed.partition(".")[2])
    candidates = {"labels a row": figures.cardinality, "labels on, %": 100 * figures.density}
    near = [name for name, value in candidates.items() if f"{value:.{digits}f}" == printed]
    return near[0] if near else "neither"


def _beside(ours: int, papers: int) -> str:
    return f"{ours:,}" if ours == papers else f"{ours:,} (paper: {papers:,})"
