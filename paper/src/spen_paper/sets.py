"""Data sets by name, those that are not in spen's catalogue too: Debian's packages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from scipy import sparse

import spen
from spen import Dataset, InputError, Split
from spen.cli.files import in_order
from spen.data.catalog import data_folders
from spen.errors import choose
from spen_paper.fits import dataset_of

DEBIAN = {"debian-tags": "tags", "debian-depends": "depends"}
"""What is to be predicted of a package, by the name of the data set."""

SETS = ("yeast", "bibtex", "delicious", *DEBIAN)


def load(name: str) -> Dataset:
    """Return the training and the test rows of a data set, with Y as a CSR matrix.

    Debian's packages are looked for in the folders of other data sets, under ``debian``; their
    names and descriptions are encoded by what the training rows hold, and labels that no training
    row has are left out of the test rows.
    """
    choose(name, dict.fromkeys(SETS), "data set")
    data = _debian(name) if name in DEBIAN else dataset_of(name)
    return replace(data, train=_with_sparse_labels(data.train), test=_with_sparse_labels(data.test))


def _debian(name: str) -> Dataset:
    train, test = (
        spen.load_dataset(_debian_file(f"{DEBIAN[name]}-{part}.jsonl.gz"), labels="labels")
        for part in ("train", "test")
    )
    encoder = spen.TableEncoder(text=("name", "text")).fit(train.train.X)
    names = [str(label) for label in train.label_names]
    given = [str(label) for label in test.label_names]
    labels = in_order(sparse.csr_matrix(test.train.Y), given, names)
    return replace(
        train,
        name=name,
        train=Split(encoder.transform(train.train.X), train.train.Y),
        test=Split(encoder.transform(test.train.X), labels),
        feature_names=encoder.feature_names,
    )


def _debian_file(name: str) -> Path:
    looked = [folder / "debian" / name for folder in data_folders()]
    for path in looked:
        if path.exists():
            return path
    raise InputError(f"There is no {name}. Put it into {looked[0].parent}, or set SPEN_DATA.")


def _with_sparse_labels(rows: Any) -> Split:
    return replace(rows, Y=sparse.csr_matrix(rows.Y))
