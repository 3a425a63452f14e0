"""Bases that skops keeps in model files (the extra "bases")."""

import base64
import json

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import spen
from spen.estimators import bases
from spen.files import read_tensors, write_tensors

skops = pytest.importorskip("skops.io")

QUICK = {"hidden": (4,), "dropout": 0.1, "epochs": 2, "random_state": 0}
BASES = {
    "one label at a time": LogisticRegression(C=0.5),
    "all labels together": KNeighborsClassifier(3),
    "a pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "averaged": [HistGradientBoostingClassifier(max_iter=2), "network", "extra_trees"],
}


@pytest.fixture(scope="module")
def data():
    whole = spen.exclusive_blocks(n_train=60, n_test=20)
    rows, labels = whole.train.X, whole.train.Y[:, :5].copy()
    labels[:, 2] = 0
    return rows, labels, whole.test.X


def fit(data, base, **settings):
    return spen.SPENClassifier(base=base, **QUICK | settings).fit(*data[:2])


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_a_round_trip_changes_no_bit(data, base, tmp_path):
    clf = fit(data, base)
    clf.save(tmp_path / "model.spen")
    again = spen.load(tmp_path / "model.spen")
    assert np.array_equal(again.predict_proba(data[2]), clf.predict_proba(data[2]))
    assert repr(again.base) == repr(clf.base)
    assert again.notes_["base 1"].endswith(" MB")
    # What came from a file can be fitted again.
    again.fit(*data[:2])


class Foreign(LogisticRegression):
    """A class that is not scikit-learn's own."""


def test_classes_of_others_are_refused_by_name(data, tmp_path):
    with pytest.raises(spen.InputError, match="Foreign, which is not scikit-learn's own"):
        fit(data, Foreign()).save(tmp_path / "model.spen")
    assert not (tmp_path / "model.spen").exists()


def test_files_cannot_bring_classes_of_others(data, tmp_path):
    path = tmp_path / "model.spen"
    fit(data, LogisticRegression()).save(path)
    tensors, header = read_tensors(path)
    content = base64.b64encode(skops.dumps(Foreign())).decode()
    wrong = json.loads(json.dumps(header))
    wrong["settings"]["base"] = {"skops": content}
    write_tensors(path, tensors, wrong)
    with pytest.raises(spen.errors.CheckpointError, match="cannot be used"):
        spen.load(path)


def test_damaged_bases_are_refused(data, tmp_path):
    path = tmp_path / "model.spen"
    fit(data, LogisticRegression()).save(path)
    tensors, header = read_tensors(path)
    name = "model/features.networks.0._extra_state"
    draw = np.random.default_rng(0)
    for _ in range(20):
        harmed = tensors[name].clone()
        harmed[int(draw.integers(len(harmed)))] ^= 0xFF
        write_tensors(path, tensors | {name: harmed}, header)
        try:
            found = spen.load(path).predict_proba(data[2])
        except spen.errors.CheckpointError:
            continue
        assert np.isfinite(found).all()
    for wrong in ({"doubt": 0.0}, {"asked": True}, {"prior": 2.0}):
        ((part, value),) = wrong.items()
        harmed = {f"model/features.networks.0.{part}": None}
        for each in harmed:
            harmed[each] = tensors[each].clone().fill_(value)
        write_tensors(path, tensors | harmed, header)
        with pytest.raises(spen.errors.CheckpointError, match="do not fit its labels"):
            spen.load(path)
    header["plan"]["bases"][0]["sizes"] = [10**13]
    write_tensors(path, tensors, header)
    with pytest.raises(spen.errors.CheckpointError, match="The settings want"):
        spen.load(path)


def test_what_scikit_learn_only_imports_is_not_its_own():
    names = ["sklearn.linear_model._logistic.LogisticRegression", "sklearn.tree._tree.Tree"]
    assert bases._foreign(names) == []
    bad = ["sklearn.utils._testing.check_output", "sklearn.utils.fixes.np", "os.system"]
    assert bases._foreign(bad) == bad
