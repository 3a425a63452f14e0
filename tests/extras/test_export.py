"""Exported models in a real onnxruntime (the extra "onnx")."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import spen
from spen.cli import main

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

EXAMPLE = Path(__file__).parents[2] / "examples" / "predict_onnx.py"
QUICK = {"hidden": (4,), "dropout": 0.1, "epochs": 2, "random_state": 0}
LOCAL, MIRROR = spen.LocalEnergy.unsized(), spen.MirrorDescent(lr=0.1)
RATES = LOCAL + spen.LabelEnergy.unsized(measurements=3) + spen.StepRates.unsized(steps=3)
MODELS = {
    "the default": {"cross_fit": True},
    "members, linear": {"members": 2, "linear_member": True, "cross_fit": True},
    "trees": {"base": ["extra_trees", "network"]},
    "label-wise": {"energy": "local"},
    "conditional": {"energy": "conditional", "decoding": "row_threshold", "cross_fit": False},
    "deep": {"energy": LOCAL + spen.LabelEnergy.unsized(measurements=4, hidden=(3,))},
    "pairs": {"energy": LOCAL + spen.PairwiseEnergy.unsized(), "decoding": "label_thresholds"},
    "convex": {"energy": LOCAL + spen.ConvexEnergy.unsized(measurements=3), "decoding": "half"},
    "hinge": {"objective": "hinge", "energy": "label", "cross_fit": False},
    "joint": {"decoding": "joint", "cross_fit": False},
    "rates": {
        "objective": spen.EndToEnd(),
        "energy": RATES,
        "inference": spen.Descent(MIRROR, spen.Stopping(max_steps=20)),
    },
}
LOOPS = {"hinge": 1, "joint": 2, "rates": 1}


@pytest.fixture(scope="module")
def data():
    return spen.exclusive_blocks(n_train=100, n_test=40)


def session_of(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options)


def told(n, labels=16):
    known = np.full((n, labels), np.nan, np.float32)
    known[:, 0], known[::2, 5] = 0, 1
    return known


@pytest.mark.parametrize("name", MODELS)
def test_onnxruntime_repeats_predict(name, data, tmp_path):
    clf = spen.SPENClassifier(**QUICK | MODELS[name]).fit(data.train.X, data.train.Y)
    exported = clf.export(tmp_path / "model.onnx")
    session, rows = session_of(exported.path), np.asarray(data.test.X, np.float64)
    within = 1e-3 if name == "hinge" else 1e-5
    for known in (None, told(40), told(40)[:1]):
        given = {"X": rows} | ({} if known is None else {"known": known})
        soft, labels = session.run(None, given)
        whole = None if known is None else np.broadcast_to(known, (40, 16))
        wanted = clf.predict_proba(rows, known=whole)
        assert np.abs(soft - wanted).max() < within
        assert np.array_equal(labels, clf.predict(rows, known=whole))
        one, _ = session.run(
            None, given | {"X": rows[:1]} if known is None else {"X": rows[:1], "known": known[:1]}
        )
        assert np.abs(one - soft[:1]).max() < within
    nodes = [node.op_type for node in onnx.load(exported.path).graph.node]
    assert nodes.count("Loop") == LOOPS.get(name, 0)


def test_classes(data, tmp_path):
    classes = np.array(["sun", "sea", "snow"])[data.train.Y.argmax(1) % 3]
    clf = spen.SPENClassifier(**QUICK).fit(data.train.X, classes)
    session = session_of(clf.export(tmp_path / "model.onnx").path)
    rows = np.asarray(data.test.X, np.float64)
    soft, labels = session.run(None, {"X": rows})
    assert np.abs(soft - clf.predict_proba(rows)).max() < 1e-5
    assert np.array_equal(clf.classes_[labels.argmax(1)], clf.predict(rows))
    known = np.array([[1, 0, 0]], np.float32)
    assert session.run(None, {"X": rows, "known": known})[1][:, 0].all()


def test_sparse_rows_of_all_sizes(tmp_path):
    draw = np.random.default_rng(0)
    X = draw.random((120, 50)) * (draw.random((120, 50)) < 0.1)
    Y = (draw.random((120, 4)) < 0.4).astype(int)
    clf = spen.SPENClassifier(**QUICK).fit(X, Y)
    session = session_of(clf.export(tmp_path / "model.onnx", X).path)
    rows = np.stack([X[0], 0 * X[0], 1e30 * X[0], 1e-30 * X[0]])
    soft, labels = session.run(None, {"X": rows})
    assert np.abs(soft - clf.predict_proba(rows)).max() < 1e-5
    assert np.array_equal(labels, clf.predict(rows))


@pytest.fixture(scope="module")
def table():
    draw = np.random.default_rng(0)
    rows = 60
    return {
        "age": [None if i % 7 == 0 else float(draw.normal(40, 9)) for i in range(rows)],
        "colour": [["red", "blue", None][i] for i in draw.integers(3, size=rows)],
        "day": [f"20{i % 30 + 10}-02-{i % 28 + 1:02}" for i in range(rows)],
    }


def test_the_example_needs_neither_spen_nor_torch(table, tmp_path):
    labels = [["warm"], ["warm", "wet"], []] * 20
    clf = spen.SPENClassifier(**QUICK).fit(table, labels)
    clf.export(tmp_path / "model.onnx")
    rows = [{name: table[name][i] for name in table} for i in range(20)]
    asked = [{"row": row} for row in rows]
    asked[3]["known"] = {"wet": 1}
    lines = "\n".join(map(json.dumps, asked)) + "\n"
    blocked = "import sys; sys.modules.update(spen=None, torch=None); import runpy; "
    blocked += f"sys.argv = ['', {str(tmp_path / 'model.onnx')!r}]; "
    blocked += f"runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", blocked], input=lines, capture_output=True, text=True, check=True
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    some = {name: column[:20] for name, column in table.items()}
    known = [{} for _ in rows]
    known[3] = {"wet": 1}
    assert found == clf.predict_labels(some, known=known)


def test_the_command(data, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [f"x{i}" for i in range(64)]
    clf = spen.SPENClassifier(**QUICK).fit(data.train.X, data.train.Y, feature_names=names)
    clf.save("model.spen")
    lines = [",".join(names), *(",".join(map(str, row)) for row in data.test.X)]
    Path("rows.csv").write_text("\n".join(lines))
    main(["export", "model.spen", "--data", "rows.csv"])
    assert "Wrote model.onnx" in (said := capsys.readouterr().out)
    assert "On 40 rows labels are equal" in said
    with pytest.raises(SystemExit):
        main(["export", "model.spen"])
    assert "model.onnx is already there" in capsys.readouterr().err
    about = json.loads(session_of("model.onnx").get_modelmeta().custom_metadata_map["spen"])
    assert (about["features"], about["classes"]) == (names, False)
    main(["export", "model.spen", "--to", "torch", "--json"])
    assert json.loads(capsys.readouterr().out)["out"] == "model.pt2"
