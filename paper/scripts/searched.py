"""Two comparisons of paper/search, kept: what kernels are worth, and how to rank wrong labels.

    SPEN_DATA=FOLDER python paper/scripts/searched.py kernels [--out paper/records/searched]
    SPEN_DATA=FOLDER python paper/scripts/searched.py noise [--out paper/records/searched]

kernels: what `paper/search/yeast_kernels.py` compares, with its folds and seeds. noise: what
`paper/search/noise.py` compares on Yeast and Bibtex, with its seed. Neither reads a test row. With
--out what is measured is kept in FOLDER/records.jsonl, and where it is there already it is printed
again.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import spen
from spen.cli.show import text_table
from spen_paper import sets
from spen_paper.__main__ import main
from spen_paper.records import kept
from spen_paper.studies.noise import SHARE, plant
from spen_paper.tables.machines import read_machines

FOLDS, SEEDS = [0, 1, 2, 3, 4], [7, 8]
"""Those of yeast_kernels.py."""


def search(name: str) -> ModuleType:
    """Return a module of paper/search."""
    path = Path(__file__).parents[1] / "search" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"search_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def kernels(*, out: Path | None = None) -> None:
    """Print the errors of kernels, and those of the stages of spen-best over them."""
    settings = {"folds": FOLDS, "seeds": SEEDS}
    found = kept(out, "kernels", settings, kernels_of)["found"]
    rows = [
        [name, *(f"{statistics.fmean(errors):.2f}" for errors in both)]
        for name, both in found["kernels"].items()
    ]
    print(text_table(["kernels, ridge 0.1", "held out", "left out singly"], rows))
    rows = [[name, f"{statistics.fmean(each):.2f}"] for name, each in found["stages"].items()]
    print()
    print(text_table(["stages of spen-best, ridge 0.1", "held out"], rows))
    print(f"\nBest cut of the features: after the first {found['cut']}.")


def kernels_of() -> dict[str, Any]:
    """Return the errors of each fold."""
    tried, best = search("yeast_kernels"), read_machines()["spen-best"]
    stages = {
        "energy": best.stages[1:],
        "scale and shift, then energy": best.stages,
        "scale and shift": best.stages[:1],
    }
    return {
        "kernels": {
            name: tried.errors(kernels, FOLDS, SEEDS) for name, kernels in tried.TRIED.items()
        },
        "stages": {
            name: tried.energy_errors(replace(best, stages=some), FOLDS, SEEDS)
            for name, some in stages.items()
        },
        "cut": tried.best_cut(),
    }


def noise(*, out: Path | None = None) -> None:
    """Print the precision of each way to rank, as it is and with the evidence."""
    found = {
        name: kept(out, "noise", {"dataset": name}, partial(noise_of, name))["found"]
        for name in ("yeast", "bibtex")
    }
    rows = []
    for way in found["yeast"]["ways"]:
        cells = [way]
        for each in found.values():
            of = each["ways"].get(way)
            cells += [f"{of['as it is']:.1f}", f"{of['told'][MIDDLE]:.1f}"] if of else ["", ""]
        rows.append(cells)
    print(text_table(["", "Yeast", "with the evidence", "Bibtex", "with it"], rows))
    for name, each in found.items():
        told = next(of["told"] for of in each["ways"].values() if len(of["told"]) > 1)
        shares = ", ".join(f"{100 * float(share):g} %: {of:.1f}" for share, of in told.items())
        print(f"{name}, label_issues with another share of wrong labels: {shares}")


MIDDLE = "0.05"


def noise_of(name: str) -> dict[str, Any]:
    """Return the precision of each way on one set."""
    tried = search("noise")
    train = sets.load(name).train
    planted = plant(train.Y, SHARE, tried.SEED)
    labels = planted.given.toarray().astype(float)
    part = np.random.default_rng(tried.SEED).permutation(len(train)) % tried.FOLDS
    odds: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        for fold in range(tried.FOLDS):
            ours, held = np.flatnonzero(part != fold), np.flatnonzero(part == fold)
            rows = spen.Split(train.X, planted.given).rows(ours)
            own, alone = (
                tried.fitted(Path(folder) / f"{fold}-{energy}.spen", energy, rows)
                for energy in ("auto", "local")
            )
            for way, z in tried.ways(own, alone, train.X[held], labels[held]).items():
                odds.setdefault(way, np.zeros(labels.shape))[held] = z
    ways = {}
    for way, z in odds.items():
        told = {}
        for share in tried.SHARES if way == tried.CHOSEN else (tried.WRONG,):
            if_one, if_zero = tried.evidence(labels, share)
            score = np.where(labels == 1, -z - if_one, z + if_zero)
            told[str(share)] = tried.precision(planted, score)
        plain = tried.precision(planted, np.where(labels == 1, -z, z))
        ways[way] = {"as it is": plain, "told": told}
    return {"errors": planted.count, "ways": ways}


if __name__ == "__main__":
    main((kernels, noise), "searched.py", __doc__)
