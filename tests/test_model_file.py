"""A classifier in a file: the same after a round trip, and never a crash or a surprise."""

import json
import os
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from live_bytes import peak_bytes
from scipy import sparse

import spen
from spen.energies.base import Energy
from spen.files import FORMAT, read_tensors, write_tensors

QUICK = {"hidden": (8,), "dropout": 0.1, "epochs": 2, "random_state": 0}


@pytest.fixture(scope="module")
def data() -> spen.Dataset:
    return spen.exclusive_blocks(n_train=80, n_test=30)


@pytest.fixture
def file(data, tmp_path):
    path = tmp_path / "model.spen"
    spen.SPENClassifier(**QUICK).fit(data.train.X, data.train.Y).save(path)
    return path


def test_a_link_stays_a_link_to_what_was_written(data, file, tmp_path):
    link = tmp_path / "elsewhere" / "current.spen"
    link.parent.mkdir()
    link.symlink_to(file)
    other = spen.SPENClassifier(**QUICK | {"random_state": 1}).fit(data.train.X, data.train.Y)
    other.save(link)
    assert link.is_symlink()
    found = spen.load(file).predict_proba(data.test.X)
    assert np.array_equal(found, other.predict_proba(data.test.X))
    assert [path.name for path in link.parent.iterdir()] == ["current.spen"]


VARIANTS = {
    "plain": {},
    "threshold": {"decoding": "threshold"},
    "label thresholds": {"decoding": "label_thresholds", "refit": False},
    "row threshold": {"decoding": "row_threshold", "refit": False},
    "hinge": {
        "objective": "hinge",
        "inference": spen.Descent(stopping=spen.Stopping(500, require="both")),
    },
    "described": {
        "energy": spen.LabelEnergy.unsized(measurements=3, nonlinearity="relu", hidden=(2,)),
        "objective": spen.UnrolledLikelihood(entropy=0.5),
        "hidden": (5, 4),
        "label_weight": np.ones(16),
        "random_state": np.random.RandomState(0),
    },
}


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_a_round_trip_changes_no_bit(data, tmp_path, settings):
    X = data.test.X
    clf = spen.SPENClassifier(**(QUICK | settings))
    clf.fit(data.train.X, data.train.Y, label_names=data.label_names)
    clf.save(tmp_path / "model.spen")
    again = spen.load(tmp_path / "model.spen")
    assert np.array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert np.array_equal(again.predict(X), clf.predict(X))
    assert again.predict(X).dtype == clf.predict(X).dtype
    assert again.predict_labels(X) == clf.predict_labels(X)
    assert np.array_equal(again.energy(X, data.test.Y), clf.energy(X, data.test.Y))
    assert again.training_rows_ is None
    assert again.history_ == clf.history_
    assert again.plan_ == clf.plan_
    unlike = ("device", "random_state", "label_weight")
    ours, theirs = (
        {k: v for k, v in c.get_params().items() if k not in unlike} for c in (again, clf)
    )
    assert ours == theirs
    again.save(tmp_path / "second.spen")
    assert np.array_equal(
        spen.load(tmp_path / "second.spen").predict_proba(X), clf.predict_proba(X)
    )


def test_names_classes_and_sparse_inputs_come_back(data, tmp_path):
    X = pd.DataFrame(data.train.X, columns=[f"f{i}" for i in range(64)])
    y = np.array(["ant", "bee", "cat", "dog"])[data.train.Y[:, :4].argmax(1)]
    clf = spen.SPENClassifier(**QUICK).fit(X, y)
    clf.save(tmp_path / "classes.spen")
    again = spen.load(tmp_path / "classes.spen")
    assert again.classes_.tolist() == clf.classes_.tolist()
    assert again.predict(X).tolist() == clf.predict(X).tolist()
    with pytest.raises(ValueError, match="feature names"):
        again.predict(X.rename(columns={"f3": "other"}))

    columns = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])
    Y = pd.DataFrame(data.train.Y[:, :3].astype(int), columns=columns)
    clf = spen.SPENClassifier(**QUICK).fit(X, Y)
    clf.save(tmp_path / "pairs.spen")
    assert spen.load(tmp_path / "pairs.spen").label_names_.tolist() == columns.tolist()

    rows = sparse.random(50, 12, 0.3, format="csr", random_state=0)
    clf = spen.SPENClassifier(**QUICK).fit(
        rows, [["x"] if i % 2 else ["y", "z"] for i in range(50)]
    )
    clf.save(tmp_path / "sparse.spen")
    again = spen.load(tmp_path / "sparse.spen")
    assert again.predict_labels(rows) == clf.predict_labels(rows)


def test_the_file_holds_no_pickle_and_other_tools_can_read_it(file):
    from safetensors import safe_open

    with safe_open(file, framework="numpy") as opened:
        header = json.loads(opened.metadata()["spen"])
    assert header["spen"] == spen.__version__
    assert header["format"] == FORMAT
    assert not zipfile.is_zipfile(file)
    assert b"\x80\x04" not in file.read_bytes()[:2]


def test_a_cut_file_is_named_wherever_it_is_cut(file, tmp_path):
    whole = file.read_bytes()
    cut = tmp_path / "cut.spen"
    for length in (0, 1, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:length])
        with pytest.raises(spen.CheckpointError, match=r"cut\.spen"):
            spen.load(cut)


def test_foreign_and_newer_files_are_named(file, tmp_path):
    from safetensors.torch import save_file

    other = tmp_path / "other.spen"
    save_file({"x": torch.zeros(2)}, other)
    with pytest.raises(spen.CheckpointError, match="not one that spen wrote"):
        spen.load(other)
    other.write_text("x,y\n1,2\n")
    with pytest.raises(spen.CheckpointError, match="cannot be read"):
        spen.load(other)
    with pytest.raises(FileNotFoundError):
        spen.load(tmp_path / "nothing.spen")
    with pytest.raises(spen.CheckpointError, match="is a folder"):
        spen.load(tmp_path)
    _rewrite(file, other, lambda header: header | {"format": FORMAT + 1, "spen": "9.9"})
    with pytest.raises(spen.CheckpointError, match=r"written by spen 9\.9.*Use that version"):
        spen.load(other)
    _rewrite(file, other, lambda header: header | {"kind": "training"})
    with pytest.raises(spen.CheckpointError, match="not of a classifier"):
        spen.load(other)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: {k: v for k, v in header.items() if k != "plan"},
        lambda header: header | {"n_features": 3},
        lambda header: header | {"label_names": {"array": ["a"], "dtype": "|O"}},
        lambda header: header | {"settings": header["settings"] | {"energie": "label"}},
        lambda header: header | {"plan": header["plan"] | {"hidden": {"tuple": [7, 7]}}},
        lambda header: header | {"plan": header["plan"] | {"objective": {"class": "os.system"}}},
        lambda header: (
            header | {"plan": header["plan"] | {"objective": {"class": "Popen", "settings": {}}}}
        ),
        lambda header: header | {"history": [{"epoch": 1}]},
        lambda header: header | {"label_type": "nonsense"},
    ],
)
def test_a_header_that_does_not_fit_is_an_error_and_runs_no_code(file, tmp_path, change):
    other = tmp_path / "other.spen"
    _rewrite(file, other, change)
    with pytest.raises(spen.CheckpointError):
        spen.load(other)


def _rewrite(source, target, change):
    """Write a model file again with another header, and a checksum that fits it."""
    tensors, header = read_tensors(source)
    write_tensors(target, tensors, change(header))


def test_a_loaded_model_needs_its_file_no_more(data, file):
    """Whatever is written over the file, cut off it or made of it."""
    clf = spen.load(file)
    expected = clf.predict_proba(data.test.X)
    with file.open("r+b") as opened:
        opened.truncate(1000)
    assert np.array_equal(clf.predict_proba(data.test.X), expected)
    file.write_bytes(bytes(100_000))
    assert np.array_equal(clf.predict_proba(data.test.X), expected)


@pytest.mark.parametrize("form", [2, 3, 4])
def test_a_checksum_is_looked_at_whatever_the_version_says(file, form):
    content = file.read_bytes()
    old = b'\\"format\\": ' + str(FORMAT).encode()
    assert content.count(old) == 1
    file.write_bytes(content.replace(old, b'\\"format\\": ' + str(form).encode())[:-1] + b"~")
    with pytest.raises(spen.CheckpointError, match="checksum" if form <= FORMAT else "version"):
        spen.load(file)


def test_a_file_of_today_without_its_checksum_is_refused(file):
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    table = json.loads(content[8 : 8 + size])
    del table["__metadata__"]["digest"]
    file.write_bytes(content[:8] + json.dumps(table).encode().ljust(size) + content[8 + size :])
    with pytest.raises(spen.CheckpointError, match="checksum"):
        spen.load(file)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_neither_saved_nor_loaded(file, value):
    clf = spen.load(file)
    with torch.no_grad():
        next(clf.model_.parameters()).view(-1)[0] = value
    before = file.read_bytes()
    with pytest.raises(spen.CheckpointError, match="not finite"):
        clf.save(file)
    assert file.read_bytes() == before
    tensors, header = read_tensors(file)
    next(t for name, t in tensors.items() if name.startswith("model/")).view(-1)[0] = value
    write_tensors(file, tensors, header)
    with pytest.raises(spen.CheckpointError, match="not finite"):
        spen.load(file)


def _wide(header):
    return header | {"n_features": 40_000_000}


def _with_plan(**change):
    return lambda header: header | {"plan": header["plan"] | change}


STEPS = {"class": "Stopping", "settings": {"max_steps": 10**15}}
TERM = {"class": "LabelEnergy", "settings": {"dict": []}}
ABSURD = {
    "features": _wide,
    "hidden": _with_plan(hidden={"tuple": [10**9, 10**9]}),
    "members": _with_plan(members=10**9),
    "terms": _with_plan(energy={"energy": [TERM] * 100_000}),
    "steps": _with_plan(inference={"class": "Descent", "settings": {"stopping": STEPS}}),
    "module": _with_plan(energy={"class": "LocalEnergy", "settings": {"n_features": 10**6}}),
    "entropy": _with_plan(objective={"class": "Hinge", "settings": {"entropy": 1e308}}),
    "loss": lambda header: header | {"history": [header["history"][0] | {"loss": float("nan")}]},
    "name": lambda header: header | {"label_names": {"array": ["a"] * 16, "dtype": "<U99999999"}},
}


@pytest.mark.parametrize("change", ABSURD.values(), ids=ABSURD)
def test_a_small_file_that_asks_for_much_is_refused_before_it_gets_it(file, change):
    _rewrite(file, file, change)
    tracemalloc.start()

    def load():
        with pytest.raises(spen.CheckpointError):
            spen.load(file)

    try:
        assert peak_bytes(load) < 2**21
        assert tracemalloc.get_traced_memory()[1] < 10 * file.stat().st_size + 2**24
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("depth", [10_000, 1_000_000])
def test_deep_headers_are_refused(file, depth):
    header = "[" * depth + "]" * depth
    table = json.dumps({"__metadata__": {"spen": header}}).encode()
    file.write_bytes(len(table).to_bytes(8, "little") + table)
    with pytest.raises(spen.CheckpointError):
        spen.load(file)


@pytest.mark.parametrize("name", ["scale", "shift", "calibration_shift", "calibration_scale"])
def test_arrays_of_other_shapes_are_refused_on_load(file, name):
    tensors, header = read_tensors(file)
    write_tensors(file, tensors | {name: torch.ones(3, 5, dtype=torch.float64)}, header)
    with pytest.raises(spen.CheckpointError, match=f"Its {name}"):
        spen.load(file)


def test_a_pipe_is_no_model_and_nobody_waits_for_its_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe.spen")
    with pytest.raises(spen.CheckpointError, match="a pipe"):
        spen.load(tmp_path / "pipe.spen")


def test_a_file_above_the_limit_is_not_read(file, monkeypatch):
    monkeypatch.setattr(spen.limits, "model", 1000)
    with pytest.raises(spen.InputError, match=r"set spen\.limits\.model"):
        spen.load(file)


class HomeMade(Energy):
    def __init__(self, n_labels):
        super().__init__()
        self.n_labels = n_labels
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, features, y):
        return self.weight * y.sum(1)


def test_a_class_that_cannot_be_rebuilt_is_refused_by_name(data, tmp_path):
    clf = spen.SPENClassifier(energy=HomeMade.unsized(), **QUICK).fit(data.train.X, data.train.Y)
    path = tmp_path / "model.spen"
    path.write_text("what was there")
    with pytest.raises(spen.InputError, match="HomeMade"):
        clf.save(path)
    assert path.read_text() == "what was there"


def test_a_write_that_fails_leaves_the_old_file(file, data, monkeypatch):
    before = file.read_bytes()
    clf = spen.load(file)

    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk is full"):
        clf.save(file)
    assert file.read_bytes() == before
    assert [p.name for p in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("name", ["format-2", "format-3"])
def test_files_of_older_versions_still_load(name):
    """What they predicted when they were written stands beside them.

    Format 2 is of spen 0.1.0 before its rooms were rebuilt; format 3 was the first with a digest.
    """
    folder = Path(__file__).parent / "files"
    clf = spen.load(folder / f"{name}.spen")
    expected = np.load(folder / f"{name}.npz")
    data = spen.exclusive_blocks(n_train=120, n_test=8, seed=5)
    known = np.full((8, 16), np.nan)
    known[:, 0] = 1
    X, near = data.test.X, {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(clf.predict_proba(X), expected["probabilities"], **near)
    np.testing.assert_allclose(clf.predict_proba(X, known=known), expected["given"], **near)
    np.testing.assert_allclose(clf.energy(X, data.test.Y), expected["energy"], rtol=1e-4)
    assert np.array_equal(clf.predict(X), expected["labels"])
    assert clf.seen_in_training(data.train.X).all()
    assert tuple(clf.label_names_) == tuple(data.label_names)
