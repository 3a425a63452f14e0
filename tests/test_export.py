"""Models leave as graphs of tensors; here as programs of torch.export, which need no extra."""

import importlib.util
import io

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import spen
from spen.estimators import export as export_module
from spen.estimators.graph import PredictionGraph, cell_numbers

QUICK = {"hidden": (4,), "dropout": 0.1, "epochs": 2, "random_state": 0}
HINGE = {"objective": "hinge", "energy": "label", "cross_fit": False}


@pytest.fixture(scope="module")
def data():
    return spen.exclusive_blocks(n_train=60, n_test=20)


@pytest.fixture(scope="module")
def hinge(data):
    return spen.SPENClassifier(**QUICK | HINGE).fit(data.train.X, data.train.Y)


def run(path, rows, known):
    module = torch.export.load(io.BytesIO(path.read_bytes())).module()
    soft, labels = module(torch.from_numpy(np.asarray(rows, np.float64)), torch.from_numpy(known))
    return soft.numpy(), labels.numpy()


def test_a_program_repeats_predict_and_each_row_stops_by_itself(hinge, data, tmp_path):
    exported = hinge.export(tmp_path / "model.pt2", data.test.X, to="torch")
    assert (exported.rows, exported.different) == (20, 0)
    assert "On 20 rows labels are equal" in str(exported)
    rows = data.test.X
    known = np.full((20, 16), np.nan, np.float32)
    known[:, 3] = 1
    soft, labels = run(exported.path, rows, known)
    assert np.abs(soft - hinge.predict_proba(rows, known=known)).max() < 1e-4
    assert np.array_equal(labels, hinge.predict(rows, known=known))
    alone = [run(exported.path, rows[i : i + 1], known[i : i + 1])[0] for i in range(3)]
    assert np.abs(np.concatenate(alone) - soft[:3]).max() < 1e-5


def test_what_does_not_repeat_predict_is_not_written(hinge, tmp_path, monkeypatch):
    usual = export_module.PredictionGraph.forward

    def wrong(self, X, known):
        soft, labels = usual(self, X, known)
        return soft, 1 - labels

    monkeypatch.setattr(export_module.PredictionGraph, "forward", wrong)
    with pytest.raises(spen.InputError, match="labels of 200 of 200 rows differ"):
        hinge.export(tmp_path / "model.pt2", to="torch")
    assert not list(tmp_path.iterdir())


class Bent(spen.Energy):
    """An energy whose gradient autograd finds."""

    def __init__(self, n_labels):
        super().__init__()
        self.n_labels = n_labels
        self.weight = torch.nn.Parameter(torch.ones(n_labels))

    def forward(self, features, y):
        return (y * self.weight).sum(1).sin()


REFUSED = {
    "a base of scikit-learn": ({"base": LogisticRegression()}, "its base LogisticRegression"),
    "no form": ({"energy": spen.LocalEnergy.unsized() + Bent.unsized()}, "the energy Bent"),
    "no descent": (
        {
            "objective": "hinge",
            "energy": spen.LocalEnergy.unsized() + spen.PairwiseEnergy.unsized(),
            "inference": spen.LinearRelaxation(),
            "cross_fit": False,
        },
        "its inference LinearRelaxation",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exported_is_named(name, data, tmp_path):
    settings, words = REFUSED[name]
    clf = spen.SPENClassifier(**QUICK | settings).fit(data.train.X, data.train.Y[:, :4])
    with pytest.raises(spen.InputError, match=f"cannot be exported: {words}"):
        clf.export(tmp_path / "model.pt2", to="torch")


def test_text_is_named(tmp_path):
    table = {"words": [f"sun and sea {i}" for i in range(40)]}
    encoder = spen.TableEncoder(text="words")
    clf = spen.SPENClassifier(encoder=encoder, **QUICK).fit(table, [["a"], ["b"]] * 20)
    with pytest.raises(spen.InputError, match="its column 'words' is text"):
        clf.export(tmp_path / "model.pt2", to="torch")


def test_cells_become_the_features_that_the_encoder_makes():
    days = np.array(["1582-10-15T07:00:01", "2000-02-29", "1899-12-31T23:59:59", "NaT"])
    table = {
        "day": days.astype("datetime64[s]"),
        "size": [1.0, None, 1e30, -3.0],
        "colour": ["red", "blue", None, "red"],
        "sure": [True, False, True, True],
    }
    encoder = spen.TableEncoder().fit(table)
    other = table | {"colour": ["green", "red", None, "blue"]}
    from spen.estimators.graph import encoded

    found = encoded(encoder, torch.from_numpy(cell_numbers(encoder, other)))
    assert np.abs(found.numpy() - encoder.transform(other)).max() < 1e-6


def test_known_labels_that_are_neither_0_nor_1_are_unknown(hinge, data):
    graph = PredictionGraph(hinge.predictor_)
    rows = torch.from_numpy(np.asarray(data.test.X[:2], np.float64))
    nothing, odd = torch.full((2, 16), torch.nan), torch.full((2, 16), 7.0)
    assert torch.equal(graph(rows, nothing)[0], graph(rows, odd)[0])


def test_a_format_that_is_none_is_told(hinge, tmp_path):
    with pytest.raises(spen.InputError, match=r"Unknown to 'onyx'\. Did you mean 'onnx'"):
        hinge.export(tmp_path / "model.onnx", to="onyx")


def test_the_extra_is_named_where_it_is_missing(hinge, tmp_path, monkeypatch):
    usual = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else usual(name)
    )
    with pytest.raises(spen.MissingPackageError, match=r"pip install 'spen\[onnx\]'"):
        hinge.export(tmp_path / "model.onnx")
