"""What the command line knows of Python's settings: names, defaults, known labels, messages."""

import csv
import json
import re
import typing

import numpy as np
import pytest

import spen
from spen.cli.app import in_options, main
from spen.cli.fit import fit
from spen.estimators.plan import Shape
from spen.estimators.recipe import ENERGIES, make_plan
from spen.estimators.tagger_plan import ENERGIES as TAG_ENERGIES
from spen.estimators.tagger_plan import OBJECTIVES as TAG_OBJECTIVES

from .test_files import LABELS, run, write_csv

QUICK = ["--hidden", "", "--epochs", "1", "--json"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("options")
    X = np.random.default_rng(0).standard_normal((60, 4)).round(4)
    rows = np.hstack([X, (X[:, :3] > 0).astype(int)])
    write_csv(path / "train.csv", rows[:40], ["a", "b", "c", "d", *LABELS])
    write_csv(path / "test.csv", rows[40:], ["a", "b", "c", "d", *LABELS])
    (path / "pair").mkdir()
    for part in ("train", "test"):
        (path / "pair" / f"{part}.csv").write_text((path / f"{part}.csv").read_text())
    run("fit", path / "train.csv", *NAMED, *QUICK, "--out", path / "m.spen")
    return path


NAMED = ["--labels", ",".join(LABELS)]
OF_SENTENCES = {"energy": {"chain", "chain+convolution"}, "objective": {"likelihood"}}
"""What only a tagger knows; "local", "hinge" and "unrolled" are for both."""


def choices(option):
    """Return what the command line offers for an option, of rows with sets of labels."""
    literal, _ = typing.get_args(typing.get_type_hints(fit)[option])
    offered = typing.get_args(literal)
    assert set(offered) >= OF_SENTENCES[option]
    return tuple(each for each in offered if each not in OF_SENTENCES[option])


@pytest.mark.parametrize("setting", ["energy", "objective"])
def test_every_energy_and_objective_is_offered_and_works(folder, setting, tmp_path):
    assert setting != "energy" or set(choices("energy")) == set(ENERGIES)
    shape = Shape(100, 4, 3, False, False)
    own = {"decoding": "threshold", "metric": "f1", "folds": 1, "held_out": 0.2, "refit": True}
    for name in choices(setting):
        make_plan(own | {setting: name}, shape)
        run("fit", folder / "train.csv", *NAMED, *QUICK, f"--{setting}", name,
            "--out", tmp_path / "m.spen")  # fmt: skip
        assert spen.load(tmp_path / "m.spen").get_params()[setting] == name
    with pytest.raises(spen.InputError) as problem:
        make_plan(own | {setting: "none of them"}, shape)
    listed = str(problem.value).partition("Choose from: ")[2].rstrip(".").split(", ")
    assert sorted(listed) == sorted(choices(setting)), "what Python has, the command line has"
    wrong = run("fit", folder / "train.csv", f"--{setting}", choices(setting)[0] + "x", check=False)
    assert f'Did you mean "{choices(setting)[0]}"' in wrong.stderr


def test_what_a_tagger_knows_is_offered():
    for setting, names in (("energy", TAG_ENERGIES), ("objective", TAG_OBJECTIVES)):
        literal, _ = typing.get_args(typing.get_type_hints(fit)[setting])
        assert {*names} - {"auto"} <= {*typing.get_args(literal)}
        assert {*names} >= OF_SENTENCES[setting]


def test_settings_are_handed_on(folder, monkeypatch):
    """Only those that are given, so that the classifier's own defaults hold."""
    taken = []

    class Recorded:
        def __init__(self, **settings):
            taken.append(settings)
            raise spen.InputError("seen")

    monkeypatch.setattr("spen.estimators.classifier.SPENClassifier", Recorded)
    given = ["--metric", "subset", "--preset", "best", "--no-cross-fit", "--members", "3",
             "--missing", ".1", "--folds", "2", "--dropout", ".5"]  # fmt: skip
    for options in ([], given):
        run("fit", folder / "train.csv", *NAMED, *options, "--out", "x", check=False)
    common = {"hidden", "device", "random_state", "remember_rows", "verbose", "encoder"}
    assert set(taken[0]) == common
    own = {name: value for name, value in taken[1].items() if name not in common}
    assert own == {"metric": "subset", "preset": "best", "cross_fit": False, "members": 3,
                   "missing": 0.1, "folds": 2, "dropout": 0.5}  # fmt: skip


def test_files_that_are_not_named_are_new_ones(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("fit", folder / "train.csv", *NAMED, "--hidden", "", "--epochs", "1")
    assert "Wrote train.spen" in done.stdout
    assert spen.load("train.spen").label_names_.tolist() == LABELS
    again = run("fit", folder / "train.csv", *NAMED, *QUICK, check=False)
    assert "train.spen is already there. Add --out train.spen to write over it" in again.stderr
    run("fit", folder / "train.csv", *NAMED, *QUICK, "--out", "train.spen")

    assert (
        "Wrote 20 rows to test-predictions.csv"
        in run("predict", "train.spen", folder / "test.csv").stdout
    )
    before = (tmp_path / "test-predictions.csv").read_text()
    again = run("predict", "train.spen", folder / "test.csv", "--write", "probabilities",
                check=False)  # fmt: skip
    assert "test-predictions.csv is already there" in again.stderr
    assert (tmp_path / "test-predictions.csv").read_text() == before
    told = run("predict", "train.spen", folder / "test.csv", "--write", "sparse", "--json")
    assert json.loads(told.stdout)["out"] == "test-predictions.txt"


def test_the_test_rows_of_a_data_set_are_predicted(folder, tmp_path, monkeypatch):
    """As by its name, or by a folder with training and test rows."""
    monkeypatch.chdir(tmp_path)
    assert (
        "20 rows to pair-predictions.csv"
        in run("predict", folder / "m.spen", folder / "pair").stdout
    )
    found = (tmp_path / "pair-predictions.csv").read_text()
    assert found == run("predict", folder / "m.spen", folder / "test.csv", "--out", "-").stdout
    monkeypatch.setattr("spen.data.catalog.ENTRIES", {"holidays": None})

    def dataset_for(classifier, name, format):
        raise spen.InputError(f"asked for {name}")

    monkeypatch.setattr("spen.cli.files.dataset_for", dataset_for)
    result = run("predict", folder / "m.spen", "holidays", "--out", "p.csv", check=False)
    assert "asked for holidays" in result.stderr


def test_known_labels_are_held(folder, tmp_path):
    clf = spen.load(folder / "m.spen")
    X = np.loadtxt(folder / "test.csv", delimiter=",", skiprows=1)[:, :4]
    predict = ["predict", folder / "m.spen", folder / "test.csv", "--write", "probabilities",
               "--out", "-", "--known"]  # fmt: skip

    def soft(text):
        return np.array(list(csv.reader(run(*predict, text).stdout.splitlines()))[1:], float)

    expected = clf.predict_proba(X, known={"snow": 1, "sea;side": 0})
    assert np.allclose(soft('snow=1,"sea;side"=0'), expected, rtol=1e-5)
    cells = ["1", "0", "", "?", "1.0"] * 4
    (tmp_path / "known.csv").write_text("snow\n" + "\n".join(cells) + "\n")
    known = [{"snow": {"1": 1, "0": 0, "1.0": 1}.get(cell)} for cell in cells]
    assert np.allclose(soft(tmp_path / "known.csv"), clf.predict_proba(X, known=known), rtol=1e-5)
    (tmp_path / "known.csv").write_text("snow\n" + "1\n" * 21)
    more = run(*predict, tmp_path / "known.csv", check=False)
    assert "has more rows than there are to predict" in more.stderr
    (tmp_path / "known.csv").write_text("snow,sun\n1,0\n0\n")
    short = run(*predict, tmp_path / "known.csv", check=False)
    assert "known.csv, line 3: expected 2 cells; found 1" in short.stderr


def test_labels_that_are_told_are_not_scored(folder):
    clf = spen.load(folder / "m.spen")
    table = np.loadtxt(folder / "test.csv", delimiter=",", skiprows=1)
    X, Y = table[:, :4], table[:, 4:]
    evaluate = ["evaluate", folder / "m.spen", folder / "test.csv", "--json", "--known"]
    told = json.loads(run(*evaluate, "snow").stdout)["metrics"]
    labels = clf.predict(X, known=[{"snow": row[2]} for row in Y])
    assert told["hamming_error"] == pytest.approx((labels != Y)[:, :2].mean())
    assert "precision_at_3" not in told, "two are left"
    fixed = json.loads(run(*evaluate, "sun=0").stdout)["metrics"]
    labels = clf.predict(X, known={"sun": 0})
    assert fixed["hamming_error"] == pytest.approx((labels != Y)[:, 1:].mean())
    every = run(*evaluate, ",".join(LABELS), check=False)
    assert "none is left to score" in every.stderr


PYTHON = re.compile(r"\b[a-z_]+=|\b(?:True|False|None)\b|\b[a-z]+_[a-z_]+\b")
"""Arguments of Python, its constants, and names with an underscore."""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--epochs", "0"], "--epochs must be a whole number"),
        (["--hidden", "0"], "--hidden must be a whole number"),
        (["--hidden", "x"], "--hidden must be widths"),
        (["--batch-size", "0"], "--batch-size must be"),
        (["--weight-decay", "-1"], "--weight-decay must be"),
        (["--dropout", "1"], "--dropout must be"),
        (["--held-out", "0"], "--held-out must be"),
        (["--folds", "0"], "--folds must be"),
        (["--members", "0"], "--members must be"),
        (["--missing", "1"], "--missing must be"),
        (["--missing", ".1", "--objective", "hinge"], "--missing 0.1 works with"),
        (["--cross-fit", "--folds", "1"], "at least two folds; received --folds 1"),
        (["--cross-fit", "--energy", "local"], "--energy local has none. Choose another energy, or "
         "leave --cross-fit out"),
        (["--members", "2"], "Add --cross-fit, or leave them out"),
        (["--linear-member"], "--linear-member average"),
        (["--seed", "-1"], "--seed -1 cannot be used"),
        (["--device", "abacus"], "--device 'abacus' cannot be used"),
        (["--labels", ""], "''"),
        (["--labels", "9"], "9 of them cannot be the labels"),
        (["--labels", "sun,snwo"], "Did you mean 'snow'"),
        (["--labels", "0"], "0 of them"),
        (["--format", "csw"], "Did you mean 'csv'"),
        (["--format", "npz"], "looks like csv"),
        ([], "Give --labels: their names"),
    ],
)  # fmt: skip
def test_messages_speak_of_options(folder, options, words):
    named = [] if "--labels" in options or not options else NAMED
    result = run("fit", folder / "train.csv", *named, *options, "--out", folder / "x", check=False)
    assert result.returncode == 2
    assert words in result.stderr
    assert not PYTHON.search(result.stderr.replace(str(folder), "")), result.stderr


@pytest.mark.parametrize(
    ("tokens", "said", "expected"),
    [
        (["predict"], "x has 3 features; n_features says 4.", "x has 3 features; the model has 4."),
        (["data", "show"], "n_features says 4.", "--n-features says 4."),
        (["fit"], "Give format='mulan' to go by the XML.", "Give --format mulan to go by the XML."),
        (["fit"], "Give n_labels= if that is meant.", "Give --labels if that is meant."),
        (["fit"], "Name it with format=: csv.", "Name it with --format: csv."),
        (["fit"], "The labels and the energy of x.", "The labels and the energy of x."),
        ([], "labels must be names.", "labels must be names."),
    ],
)  # fmt: skip
def test_words_become_options_where_they_are_settings(tokens, said, expected):
    assert in_options(said, tokens) == expected


@pytest.mark.parametrize(
    "words", ["ask model.spen rows.csv --row 1.5", "fit train.csv --epochs 2.5"]
)
def test_whole_numbers_are_not_rounded(words, capsys):
    with pytest.raises(SystemExit):
        main(words.split())
    option, value = words.split()[-2:]
    assert f"{option} must be a whole number; received {value}." in capsys.readouterr().err


def test_warnings_are_a_line_of_ours(folder, monkeypatch):
    import warnings

    def warn(*arguments, **options):
        warnings.warn("epochs is small; try cross_fit=True.", UserWarning, stacklevel=2)
        raise spen.InputError("enough")

    monkeypatch.setattr("spen.data.load.load_dataset", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = run("fit", folder / "train.csv", "--out", folder / "x", check=False)
    assert result.stderr == "spen: --epochs is small; try --cross-fit.\nspen: enough\n"
