"""A generated data set and tiny settings, under the name of a real one."""

from dataclasses import replace
from typing import Any

from scipy import sparse

import spen
from spen_paper.studies import study

DENSE = replace(spen.exclusive_blocks(90, 40, n_features=8, seed=3), name="bibtex")


def _sparse(rows: spen.Split) -> spen.Split:
    return spen.Split(sparse.csr_matrix(rows.X), sparse.csr_matrix(rows.Y.astype("int8")))


DATA = replace(DENSE, train=_sparse(DENSE.train), test=_sparse(DENSE.test))
"""In the form in which the real one is loaded."""

_NETWORK: dict[str, Any] = {
    "hidden": [6],
    "dropout": 0.1,
    "input_dropout": 0.0,
    "epochs": 1,
    "batch_size": 32,
    "folds": 2,
}
_HINGE: dict[str, Any] = {"objective": {"name": "hinge"}, "epochs": 1, "optimiser": "sgd"}
_FIRST: dict[str, Any] = {"objective": {"name": "cross_entropy"}, "parts": ["features", "local"]}

TABLES: dict[str, dict[str, Any]] = {
    "mlp": _NETWORK | {"classifier": "MLPClassifier"},
    "dmf": _NETWORK | {"classifier": "DMFClassifier", "pairwise_epochs": 1},
    "spen-single": _NETWORK
    | {
        "classifier": "SPENClassifier",
        "cross_fit": True,
        "energy": [{"name": "ConditionalScoreEnergy", "measurements": 4}],
        "objective": {
            "name": "unrolled",
            "entropy": 1.0,
            "start": "local",
            "reveal": 0.9,
            "f1": 5.0,
        },
    },
    "spen-paper": {
        "classifier": "SPENClassifier",
        "hidden": [6],
        "dropout": 0.1,
        "folds": 1,
        "energy": [{"name": "LabelEnergy", "measurements": 3}],
        "objective": {"name": "hinge"},
        "inference": {"stopping": {"max_steps": 5}},
        "stages": [
            _FIRST | {"name": "local", "epochs": 4, "lr": 0.1},
            _HINGE | {"name": "global", "parts": ["global"], "lr": 0.02},
            _HINGE | {"name": "all", "lr": 0.003},
        ],
    },
}


TABLES["spen-known"] = TABLES["spen-single"]


def use(monkeypatch: Any) -> None:
    """Let studies find the tiny settings and the generated data."""
    monkeypatch.setattr(study, "settings_of", lambda dataset, name: TABLES)
    monkeypatch.setattr(study, "dataset_of", lambda dataset: DATA)
