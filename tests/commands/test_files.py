"""``spen fit``, ``predict`` and ``evaluate``, as a user at a terminal meets them."""

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import spen
from spen.batch.splits import Split
from spen.cli.app import main
from spen.cli.files import check_out
from spen.cli.predict import _write
from spen.cli.show import UNSEEN, show_table
from spen.training import loop
from spen.training.checkpoint import Run

LABELS = ["sun", "sea;side", "snow"]


def run(*arguments, check=True):
    """Call the command line in this process, which has imported torch already."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code or 0
    result = SimpleNamespace(stdout=out.getvalue(), stderr=err.getvalue(), returncode=code)
    assert not check or result.returncode == 0, result.stderr
    return result


def write_csv(path, rows, columns):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with training and test files, and a model fitted by the command line."""
    path = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 4)).round(4)
    Y = (X[:, :3] > 0).astype(int)
    columns = ["a", "b", "c", "d", *LABELS]
    write_csv(path / "train.csv", np.hstack([X, Y])[:100], columns)
    write_csv(path / "test.csv", np.hstack([X, Y])[90:], columns)
    write_csv(path / "unlabelled.csv", X[100:], columns[:4])
    out = run("fit", path / "train.csv", "--labels", ",".join(LABELS), "--out", path / "m.spen",
              "--hidden", "16", "--epochs", 20, "--remember-rows")  # fmt: skip
    assert "held-out rows, before the last fit" in out.stdout
    assert "\x1b" not in out.stdout, "plain text in a pipe"
    return path


def test_predictions_are_those_of_the_library(folder):
    clf = spen.load(folder / "m.spen")
    X = np.loadtxt(folder / "unlabelled.csv", delimiter=",", skiprows=1)
    out = run("predict", folder / "m.spen", folder / "unlabelled.csv", "--out", folder / "p.csv")
    assert "Wrote 50 rows" in out.stdout
    rows = list(csv.reader((folder / "p.csv").read_text().splitlines()))
    expected = clf.predict_labels(X)
    assert rows[0] == ["labels"]
    assert [row[0].replace("\\;", "\0").split(";") if row[0] else [] for row in rows[1:]] == [
        [name.replace(";", "\0") for name in row] for row in expected
    ]

    run("predict", folder / "m.spen", folder / "unlabelled.csv", "--write", "probabilities",
        "--out", folder / "soft.csv")  # fmt: skip
    header, *rows = csv.reader((folder / "soft.csv").read_text().splitlines())
    assert header == LABELS
    assert np.allclose(np.array(rows, dtype=float), clf.predict_proba(X), rtol=1e-5)

    sparse = run("predict", folder / "m.spen", folder / "unlabelled.csv", "--write", "sparse",
                 "--out", "-")  # fmt: skip
    pairs = [dict(p.split(":") for p in line.split()) for line in sparse.stdout.splitlines()]
    assert [[LABELS[int(i)] for i in row] for row in pairs] == expected


def test_labels_in_a_file_to_predict_are_ignored(folder):
    with_labels, without = (
        run("predict", folder / "m.spen", folder / name, "--out", "-").stdout.splitlines()
        for name in ("test.csv", "unlabelled.csv")
    )
    assert with_labels[11:] == without[1:]


def test_evaluation_gives_rules_and_warns_of_rows_seen_in_training(folder):
    text = run("evaluate", folder / "m.spen", folder / "test.csv")
    assert "10 of 60 rows have the same features as some training row" in text.stderr
    for word in ("example_f1", "micro_f1", "hamming_error", "precision_at_3", "calibration_error"):
        assert word in text.stdout
    assert "a row empty in both counts 1" in text.stdout

    record = json.loads(run("evaluate", folder / "m.spen", folder / "test.csv", "--json").stdout)
    clf = spen.load(folder / "m.spen")
    table = np.loadtxt(folder / "test.csv", delimiter=",", skiprows=1)
    expected = spen.example_f1(table[:, 4:], clf.predict(table[:, :4]))
    assert record["metrics"]["example_f1"] == pytest.approx(expected)
    assert record["repeated_rows"] == 10
    assert record["rows"] == 60
    assert set(record["rules"]) == set(record["metrics"])


def test_labels_in_another_order_are_matched_by_name(folder):
    table = list(csv.reader((folder / "test.csv").read_text().splitlines()))
    turned = [[*row[4:][::-1], *row[:4]] for row in table]
    write_csv(folder / "turned.csv", turned[1:], turned[0])
    a, b = (
        json.loads(run("evaluate", folder / "m.spen", folder / name, "--json").stdout)["metrics"]
        for name in ("test.csv", "turned.csv")
    )
    assert a == pytest.approx(b)


def test_fit_prints_json(folder):
    out = run("fit", folder / "train.csv", "--labels", ",".join(LABELS), "--hidden", "",
              "--epochs", 100, "--out", folder / "again.spen", "--json")  # fmt: skip
    record = json.loads(out.stdout)
    assert record["rows"] == 100
    assert record["features"] == 4
    assert record["labels"] == 3
    assert record["hidden"] == []
    assert out.stderr == ""
    forgets = run("evaluate", folder / "again.spen", folder / "test.csv", "--json")
    assert json.loads(forgets.stdout)["repeated_rows"] is None
    assert forgets.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "{f}/train.csv", "--out", "{f}/x.spen"], "label"),
        (["fit", "{f}/train.csv", "--labels", "sun,snw", "--out", "{f}/x.spen"], "Did you mean"),
        (["fit", "{f}/none.csv", "--labels", "sun", "--out", "{f}/x.spen"], "none.csv"),
        (["fit", "{f}/train.csv", "--labels", "sun", "--out", "{f}"], "is a folder"),
        (["fit", "{f}/pipe", "--labels", "sun", "--out", "{f}/x.spen"], "not a regular file"),
        (["fit", "{f}/pipe", "--labels", "sun", "--format", "csv", "--out", "{f}/x"], "regular"),
        (["fit", "{f}/train.csv", "--labels", "sun", "--hidden", "a", "--out", "{f}/x"], "widths"),
        (["fit", "{f}/train.csv", "--labels", "a", "--out", "{f}/x.spen"], "expected 0 or 1"),
        (["fit", "{f}/train.csv", "--labels", "sun", "--seed", "-1", "--out", "{f}/x"], "Seed"),
        (["predict", "{f}/m.spen", "{f}/test.csv", "--out", "{f}"], "is a folder"),
        (["predict", "{f}/none.spen", "{f}/test.csv"], "none.spen"),
        (["predict", "{f}/train.csv", "{f}/test.csv"], "train.csv"),
        (["predict", "{f}/m.spen", "{f}/none.csv"], "none.csv"),
        (["predict", "{f}/m.spen", "{f}/test.csv", "--json", "--out", "-"], "would mix"),
        (["predict", "{f}/m.spen", "yeats"], "Did you mean 'yeast'"),
        (
            ["predict", "{f}/m.spen", "{f}/test.csv", "--known", "sun=2"],
            "expected 1, 0, or nothing",
        ),
        (["predict", "{f}/m.spen", "{f}/test.csv", "--known", "snu=1"], "Did you mean 'sun'"),
        (["predict", "{f}/m.spen", "{f}/test.csv", "--known", "sun"], "such as sport=1,news=0"),
        (["predict", "{f}/m.spen", "{f}/test.csv", "--known", "{f}/three.csv"], "fewer rows"),
        (["predict", "{f}/m.spen", "{f}/test.csv", "--known", "{f}/bad.csv"], "Unknown label 'a'"),
        (["evaluate", "{f}/m.spen", "{f}/test.csv", "--known", "snwo"], "Did you mean 'snow'"),
        (["evaluate", "{f}/m.spen", "{f}/test.csv", "--known", "{f}/three.csv"], "fewer rows"),
        (["predict", "{f}/m.spen", "{f}/fewer.csv"], "3 features"),
        (["predict", "{f}/m.spen", "{f}/renamed.csv"], "'A'"),
        (["evaluate", "{f}/m.spen", "{f}/unlabelled.csv"], "sun"),
        (["evaluate", "{f}/m.spen", "{f}/bad.csv"], "bad.csv"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_two(folder, arguments, message, monkeypatch):
    write_csv(folder / "fewer.csv", [[1, 2, 3]], ["a", "b", "c"])
    write_csv(folder / "renamed.csv", [[1, 2, 3, 4]], ["A", "b", "c", "d"])
    (folder / "three.csv").write_text("snow\n1\n\n0\n")
    (folder / "bad.csv").write_text("a,b,c,d,sun\n1,2,x\n")
    if not (folder / "pipe").exists():
        os.mkfifo(folder / "pipe")
    before = sorted(path.name for path in folder.iterdir())
    monkeypatch.chdir(folder)
    result = run(*(a.format(f=folder) for a in arguments), check=False)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("spen: ")
    assert message in result.stderr
    assert sorted(path.name for path in folder.iterdir()) == before, "nothing is left behind"


def test_rows_are_written_before_the_next_are_read(folder, tmp_path):
    """So a file larger than memory can be predicted."""
    clf = spen.load(folder / "m.spen")
    lengths = []

    class Rows:
        def chunks(self):
            for _ in range(3):
                lengths.append(target.tell())
                yield Split(np.zeros((5, 4), dtype=np.float32), None)

    with (tmp_path / "p.csv").open("w") as target:
        assert _write(clf, Rows().chunks(), "probabilities", target) == 15
    assert lengths[0] < lengths[1] < lengths[2]


def test_a_reader_that_stops_early_is_not_an_error(folder):
    command = f"{sys.executable} -m spen predict {folder}/m.spen {folder}/test.csv --out - | true"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert result.stderr == ""


@pytest.mark.parametrize("base", [0, 1])
def test_a_libsvm_file_is_counted_as_the_training_file_was(tmp_path, base):
    """The rows to predict have no first feature, which tells nothing about how they count."""
    rng = np.random.default_rng(0)
    X = (rng.random((60, 3)) < 0.6).astype(int)
    X[0] = 1
    lines = [f"{int(row[1])} " + " ".join(f"{i + base}:1" for i in row.nonzero()[0]) for row in X]
    (tmp_path / "train.svm").write_text("\n".join(lines) + "\n")
    run("fit", tmp_path / "train.svm", "--format", "libsvm", "--hidden", "", "--epochs", 5,
        "--out", tmp_path / "m.spen", "--json")  # fmt: skip
    (tmp_path / "new.svm").write_text(f"0 {1 + base}:1\n0 {2 + base}:1\n")
    out = run("predict", tmp_path / "m.spen", tmp_path / "new.svm", "--format", "libsvm",
              "--write", "probabilities", "--out", "-")  # fmt: skip
    soft = np.array([line.split(",") for line in out.stdout.splitlines()[1:]], dtype=float)
    expected = spen.load(tmp_path / "m.spen").predict_proba(np.array([[0, 1, 0], [0, 0, 1]]))
    assert np.allclose(soft, expected, rtol=1e-4)


PLACES = {
    "under a file": "train.csv/x",
    "a folder": ".",
    "a file system of the kernel": "/proc/spen/x",
    "a long name": "y" * 300,
    "a long name in a new folder": "new/" + "y" * 300,
    "a loop of links": "loop/x",
}


@pytest.mark.parametrize("command", ["fit", "predict", "report", "demo"])
@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_cannot_be_written_is_told_before_the_work(
    folder, command, place, monkeypatch
):
    if not (folder / "loop").is_symlink():
        (folder / "loop").symlink_to("loop")

    def work(*arguments, **options):
        raise AssertionError("the work began")

    for start in ("data.load.load_dataset", "estimators.model_file.load", "cli.demo._models"):
        monkeypatch.setattr(f"spen.{start}", work)
    before = sorted(path.name for path in folder.iterdir())
    out = folder / PLACES[place]
    if command == "demo" and place == "a folder":
        out = folder / "train.csv"
    inputs = {
        "fit": [folder / "train.csv", "--labels", "sun"],
        "predict": [folder / "m.spen", folder / "test.csv"],
        "report": [folder / "m.spen"],
        "demo": [],
    }
    result = run(command, *inputs[command], "--out", out, check=False)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "cannot be written: " in result.stderr or "is a folder" in result.stderr
    assert sorted(path.name for path in folder.iterdir()) == before, "nothing is left behind"


def test_places_that_can_be_written(folder, tmp_path):
    for place in (tmp_path / "new" / "folder" / "x", tmp_path / "x", Path("/dev/null")):
        check_out(place)
    assert list(tmp_path.iterdir()) == []


def test_too_little_memory_is_one_line(folder, monkeypatch):
    said = "[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory"
    fit = ["fit", folder / "train.csv", "--labels", "sun", "--out", folder / "x.spen"]
    for problem in (MemoryError(), RuntimeError(said)):
        monkeypatch.setattr("spen.data.load.load_dataset", raising(problem))
        result = run(*fit, check=False)
        assert result.returncode == 2
        assert result.stderr.startswith("spen: there is not enough memory for this. Take fewer")
        assert result.stderr.count("\n") == 1
    monkeypatch.setattr("spen.data.load.load_dataset", raising(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        run(*fit)


def raising(problem):
    def fail(*arguments, **options):
        raise problem

    return fail


def test_a_model_file_does_not_tell_where_it_was_made(folder):
    content = (folder / "m.spen").read_bytes()
    for told in (str(folder), "train.csv", "spen fit", "--out"):
        assert told.encode() not in content


ODD = ["sun\x1b[2J", "sea\u202e", "snow\n\x9b31m"]


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A folder with a file and a model whose labels' names a terminal would obey."""
    path = tmp_path_factory.mktemp("odd")
    X = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
    names = {"label_names": ODD, "feature_names": ["a", "b", "c\x1b[2J"]}
    np.savez(path / "rows.npz", X=X, Y=(X > 0).astype(np.int8), **names)
    run("fit", path / "rows.npz", "--hidden", "", "--epochs", 2, "--out", path / "m.spen")
    return path


def test_names_do_not_command_a_terminal(odd):
    commands = [
        ["data", "show", odd / "rows.npz"],
        ["data", "show", odd / "rows.npz", "--json"],
        ["data", "show", odd / "none\x1b[2J.npz"],
        ["predict", odd / "m.spen", odd / "rows.npz", "--form\x1b[2J"],
        ["fit", odd / "rows.npz", "--labels", "\x1b[2J\u202e,b,c", "--out", odd / "\x1b[2J.spen"],
    ]
    for command in commands:
        result = run(*command, check=False)
        for text in (result.stdout, result.stderr):
            assert not UNSEEN.search(text.replace("\n", "")), text
    shown, told = (run(*command).stdout for command in commands[:2])
    assert "sun\\x1b[2J" in shown
    assert "sea\\u202e" in shown
    assert sorted(name for name, _ in json.loads(told)["top_labels"]) == sorted(ODD)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_predictions_keep_names_in_files_and_spell_them_out_on_a_terminal(odd):
    command = ["predict", odd / "m.spen", odd / "rows.npz", "--write", "probabilities"]
    run(*command, "--out", odd / "p.csv")
    with (odd / "p.csv").open(newline="") as file:
        assert next(csv.reader(file)) == ODD
    with contextlib.redirect_stdout(io.StringIO()) as piped:
        main([*map(str, command), "--out", "-"])
    assert next(csv.reader(io.StringIO(piped.getvalue()))) == ODD
    with contextlib.redirect_stdout(Terminal()) as terminal:
        main([*map(str, command), "--out", "-"])
    assert not UNSEEN.search(terminal.getvalue().replace("\n", ""))
    assert terminal.getvalue().startswith("sun\\x1b[2J,sea\\u202e,snow\\n\\x9b31m\n")


def test_tables_on_a_terminal_spell_names_out():
    with contextlib.redirect_stdout(Terminal()) as terminal:
        show_table("title\x07", ["name\x07"], [[name] for name in ODD])
    assert "sun\\x1b[2J" in terminal.getvalue()
    for sign in ("\x07", "\x1b[2J", "\u202e", "\x9b"):
        assert sign not in terminal.getvalue()


def test_a_fit_that_was_stopped_goes_on_from_its_checkpoint(folder, tmp_path, monkeypatch):
    fit = ["fit", folder / "train.csv", "--labels", ",".join(LABELS), "--hidden", "8",
           "--epochs", 3]  # fmt: skip
    run(*fit, "--out", tmp_path / "whole.spen")
    kept = ["--checkpoint", tmp_path / "kept", "--out", tmp_path / "m.spen"]
    save, saves = Run.save, []

    def save_or_stop(self):
        save(self)
        saves.append(self)
        if len(saves) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "save", save_or_stop)
    with pytest.raises(KeyboardInterrupt):
        run(*fit, *kept)
    assert not (tmp_path / "m.spen").exists()
    epochs = []
    train = loop._train_epoch
    monkeypatch.setattr(loop, "_train_epoch", lambda *a: epochs.append(1) or train(*a))
    run(*fit, "--out", tmp_path / "again.spen")
    in_all = len(epochs)
    epochs.clear()
    run(*fit, *kept)
    assert 0 < len(epochs) < in_all
    whole, resumed = (spen.load(tmp_path / name) for name in ("whole.spen", "m.spen"))
    X = np.loadtxt(folder / "unlabelled.csv", delimiter=",", skiprows=1)
    assert (whole.predict_proba(X) == resumed.predict_proba(X)).all()

    other = run(*fit, "--seed", 1, *kept, check=False)
    assert other.returncode == 2
    assert other.stderr.count("\n") == 1
    assert "belongs to another" in other.stderr
