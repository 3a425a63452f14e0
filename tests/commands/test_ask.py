"""``spen ask``, with a person who answers through a pipe, and one who presses Ctrl-C."""

import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import spen

from .test_cli import _listen_to_ctrl_c
from .test_files import run, write_csv

NAMES = ["sun", "sea\x1b[2J", "snow", "side;walk"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("ask")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4)).round(4)
    Y = (X + rng.standard_normal(X.shape) > 0).astype(int)
    Y[:, 1] = Y[:, 0]
    clf = spen.SPENClassifier(hidden=(), epochs=20, random_state=0)
    clf.fit(X, Y, label_names=NAMES, feature_names=list("abcd")).save(path / "m.spen")
    write_csv(path / "one.csv", X[:1], list("abcd"))
    write_csv(path / "rows.csv", X[:20], list("abcd"))
    return path, clf, X


def ask(monkeypatch, typed, *arguments, check=True):
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    return run("ask", *arguments, check=check)


def by_hand(clf, x, replies):
    """Ask as the command should, and return what is known in the end."""
    known, may = {}, np.ones(4, bool)
    for reply in replies:
        [[best]] = clf.next_question(x, known, k=1, among=may)
        may[best.index] = False
        if reply is not None:
            known[best.label] = reply
    return known


@pytest.mark.parametrize(
    ("typed", "replies"),
    [
        ("yes\nno\nskip\nyes\n", [1, 0, None, 1]),
        ("Y\n\nn\nstop\nyes\n", [1, None, 0]),
        ("what?\ns\nno\nst\n", [0]),
        ("", []),
    ],
)
def test_answers_are_what_the_library_is_told(folder, monkeypatch, typed, replies):
    path, clf, X = folder
    out = ask(monkeypatch, typed, path / "m.spen", path / "rows.csv", "--row", 3, "--json")
    known = by_hand(clf, X[2:3], replies)
    soft, labels = (part[0] for part in clf.predict_both(X[2:3], known))
    found = json.loads(out.stdout)
    assert found["known"] == known
    expected = {NAMES[i]: pytest.approx(soft[i], abs=1e-5) for i in labels.nonzero()[0]}
    assert found["labels"] == expected
    assert list(found["labels"].values()) == sorted(found["labels"].values(), reverse=True)
    again = ("what?" in typed) * 2
    asked = len(replies) + (len(replies) < 4) + again
    assert out.stderr.count("[yes/no/skip/stop]") == asked
    assert out.stderr.count("Please answer") == again
    assert "\x1b" not in out.stderr, "a name gives the terminal no orders"


def test_the_table_says_what_came_from_the_person(folder, monkeypatch):
    path, clf, X = folder
    out = ask(monkeypatch, "yes\n", path / "m.spen", path / "one.csv", "--questions", 1)
    [[first]] = clf.next_question(X[:1], k=1)
    lines = [line for line in out.stdout.splitlines() if "as you said" in line]
    assert len(lines) == 1
    assert spen.cli.show.visible(first.label) in lines[0]
    assert f"{100 * first.probability:.0f} % likely" in out.stderr
    assert out.stderr.count("?") == 1
    nothing = ",".join(f'"{name}=0"' for name in NAMES)
    out = ask(monkeypatch, "", path / "m.spen", path / "one.csv", "--known", nothing)
    assert (out.stdout, out.stderr) == ("No label is predicted.\n", "")


def test_what_is_as_good_as_certain_is_not_asked(folder, monkeypatch):
    path, clf, X = folder
    [[found]] = clf.next_question(X[:1], k=1)
    question = replace(found, gain=1e-4)
    monkeypatch.setattr(spen.SPENClassifier, "next_question", lambda *_, **__: [[question]])
    for probability, prompts in ((0.999, 0), (0.9, 2)):
        soft = np.array([[probability, 0.001, 0.999, 0.002]])
        monkeypatch.setattr(spen.SPENClassifier, "predict_proba", lambda *_, soft=soft, **__: soft)
        out = ask(monkeypatch, "skip\n" * 2, path / "m.spen", path / "one.csv", "--questions", 2)
        assert out.stderr.count("[yes/no/skip/stop]") == prompts
        assert ("is 99% certain" in out.stderr) == (not prompts)


def test_what_is_known_before_is_not_asked(folder, monkeypatch):
    path, *_ = folder
    known = path / "known.csv"
    write_csv(known, [["", 1]] * 19 + [[0, ""]], ["sun", "snow"])
    typed = "no\n" * 9
    rows = [path / "m.spen", path / "rows.csv", "--known", known, "--json", "--row"]
    for row, name, value in ((1, "snow", 1), (20, "sun", 0)):
        out = ask(monkeypatch, typed, *rows, row)
        assert json.loads(out.stdout)["known"] == dict.fromkeys(NAMES, 0) | {name: value}
        assert out.stderr.count("[yes/no/skip/stop]") == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "has several rows. Name the one to ask about with --row 1."),
        (["--row", 21], "has no row 21; it has 20."),
        (["--row", 0], "--row must be a whole number of 1 or more"),
        (["--row", 1, "--questions", -1], "--questions must be a whole number"),
        (["--row", 1, "--known", "sum=1"], "Did you mean 'sun'"),
        (["--row", 1, "--known", "sun=1" + ",sun=0" * 100], "names a label twice"),
        (["--row", 1, "--known", ""], "--known takes labels"),
    ],
)
def test_a_mistake_is_one_line(folder, monkeypatch, options, words):
    path, *_ = folder
    found = ask(monkeypatch, "", path / "m.spen", path / "rows.csv", *options, check=False)
    assert found.returncode == 2
    assert words in found.stderr
    assert found.stderr.count("\n") == 1


def test_ctrl_c_at_a_question_stops_in_one_line(folder):
    path, *_ = folder
    process = subprocess.Popen(
        [sys.executable, "-m", "spen", "ask", path / "m.spen", path / "one.csv"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_listen_to_ctrl_c,
        text=True,
    )
    asked = process.stderr.read(1)
    while asked[-1] and not asked.endswith("stop] "):
        asked += process.stderr.read(1)
    os.kill(process.pid, signal.SIGINT)
    out, rest = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert rest == "spen: stopped\n"
