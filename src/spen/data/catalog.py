"""The data sets that have a name: what they are, where they come from, where they are kept."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from spen.errors import InputError, choose

MULAN = (
    "https://raw.githubusercontent.com/tsoumakas/mulan/"
    "43f6389095ad71984264db4387a8074b22bc7d4a/data/multi-label"
)
"""The Mulan project's folder of data sets, at one commit, so that the bytes never change."""


@dataclass(frozen=True)
class RemoteFile:
    """A file at the public address.

    Attributes:
        name: the file's name.
        size: its length in bytes; None where it is not known.
        sha256: its checksum; None where it is not known, so that it cannot be verified.
    """

    name: str
    size: int | None
    sha256: str | None


@dataclass(frozen=True)
class Entry:
    """A data set that has a name.

    Attributes:
        name: the name, which is also the folder's.
        sentence: what it is about.
        n_train, n_test: rows for training (validation included) and for testing.
        n_features, n_labels: columns.
        files: what loading it needs.
        row_split: (train, validation, test) rows in file order, for a set that comes as
            one file; None where the files are split already.
    """

    name: str
    sentence: str
    n_train: int
    n_test: int
    n_features: int
    n_labels: int
    files: tuple[RemoteFile, ...]
    row_split: tuple[int, int, int] | None = None

    def address(self, file: RemoteFile, base_url: str | None = None) -> str:
        """Return the address of one of the files, at Mulan's or at a mirror.

        >>> ENTRIES["yeast"].address(ENTRIES["yeast"].files[2], "https://example.org/sets/")
        'https://example.org/sets/yeast/yeast.xml'
        """
        return f"{(base_url or MULAN).rstrip('/')}/{self.name}/{file.name}"


ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="bibtex",
            sentence="Tags that people gave to BibTeX entries, from the words of the entry.",
            n_train=4880,
            n_test=2515,
            n_features=1836,
            n_labels=159,
            files=(
                RemoteFile(
                    "bibtex-train.arff",
                    2292961,
                    "8dcc9de6e0b2cebaec8c1f4fac78431adeeb73cfd3ab879b530a66d366e59174",
                ),
                RemoteFile(
                    "bibtex-test.arff",
                    1215637,
                    "9b03329cde64d3f994bdf7fbbac3f3b10fe185c311cb9ae725475f59c7f3f922",
                ),
                RemoteFile(
                    "bibtex.xml",
                    5880,
                    "08fe20013c1e75dcf1888c185f5187c95e76495b8518ce289b4d3afce38d1232",
                ),
            ),
        ),
        Entry(
            name="bookmarks",
            sentence="Tags that people gave to web bookmarks, from the words of the page's entry.",
            n_train=60000,
            n_test=27856,
            n_features=2150,
            n_labels=208,
            files=(
                RemoteFile(
                    "bookmarks.arff",
                    73273832,
                    "5ce6788f4ed7704bb9b0f474b504c840055c68380f94f2889bc1e2a36bf5efd8",
                ),
                RemoteFile("bookmarks.xml", None, None),
            ),
            row_split=(48000, 12000, 27856),
        ),
        Entry(
            name="delicious",
            sentence="Tags that people gave to web pages, from the words of the page.",
            n_train=12920,
            n_test=3185,
            n_features=500,
            n_labels=983,
            files=(
                RemoteFile(
                    "delicious-train.arff",
                    3056590,
                    "030186cdb542ebdd32052fcdbb1ebe30115b3a22518c1b4b198c45eb827aebe1",
                ),
                RemoteFile(
                    "delicious-test.arff",
                    757565,
                    "2dfb01723a819914b0ca83361177ed413ce3f2169851d9f228d4692915d63944",
                ),
                RemoteFile(
                    "delicious.xml",
                    34303,
                    "4e0c0f93c7d86a39b9fca4aaefaa00e9428f2c80277732dfbf03ca48e2c14da2",
                ),
            ),
        ),
        Entry(
            name="yeast",
            sentence="Functions of yeast genes, from expression measurements and profiles.",
            n_train=1500,
            n_test=917,
            n_features=103,
            n_labels=14,
            files=(
                RemoteFile(
                    "yeast-train.arff",
                    1501117,
                    "e759dc991ff54694a4ff9c4314f3be0d6fd2b1994a4b563f57e416394c6aebbd",
                ),
                RemoteFile(
                    "yeast-test.arff",
                    918515,
                    "4aaac102bff9669a765bf0b378602e5cc8c3b181048282e2f003117b496d552a",
                ),
                RemoteFile(
                    "yeast.xml",
                    526,
                    "c3056cc26444b5158b1588d1b73bec9c45429e10f0957ad085903423cb81f247",
                ),
            ),
        ),
    )
}
"""The data sets that have a name."""


def entry_of(name: str) -> Entry:
    """Return the entry of a name, or raise an error that suggests the nearest one.

    >>> entry_of("yeast").n_labels
    14
    """
    return choose(name, ENTRIES, "data set")


def cache_folder() -> Path:
    """Return the user's cache folder for data sets.

    >>> cache_folder().name
    'spen'
    """
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "spen"
    # The XDG rules: an empty or relative path counts as not set.
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "spen"


def data_folders() -> list[Path]:
    """Return where data sets are looked for, in order: ``$SPEN_DATA``, then the cache."""
    named = os.environ.get("SPEN_DATA", "").strip()
    first = [Path(named).expanduser()] if named else []
    return [*first, cache_folder()]


def find(name: str) -> Path | None:
    """Return the folder that holds all files of a data set, or None where none does."""
    entry = entry_of(name)
    for folder in data_folders():
        if all((folder / name / file.name).is_file() for file in entry.files):
            return folder / name
    return None


def locate(name: str) -> Path:
    """Return the folder that holds all files of a data set, or say how to get them.

    >>> locate("yaest")
    Traceback (most recent call last):
    ...
    spen.errors.UnknownNameError: Unknown data set 'yaest'. Did you mean 'yeast'? Choose from: ...
    """
    folder = find(name)
    if folder is None:
        searched = " or ".join(str(place / name) for place in data_folders())
        raise InputError(
            f"The data set {name!r} is not in {searched}. "
            f"Get it with: spen data fetch {name} — or {by_hand(name)}"
        )
    return folder


def by_hand(name: str, folder: Path | None = None) -> str:
    """Return a sentence that says what to download and where to put it.

    Only the files that are missing from the folder are named.
    """
    entry = entry_of(name)
    folder = folder or data_folders()[0] / name
    missing = [file for file in entry.files if not (folder / file.name).is_file()]
    addresses = " and ".join(entry.address(file) for file in missing)
    return f"download {addresses} into the folder {folder}."
