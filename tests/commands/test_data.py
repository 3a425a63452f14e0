"""``spen data``, as a person and as a program calls it."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from local_server import Server

from spen.cli import data
from spen.cli.show import download_bar, show_table
from spen.data.catalog import ENTRIES, find

SPEN = Path(sys.executable).parent / "spen"


def call(*arguments, **environment) -> subprocess.CompletedProcess:
    return subprocess.run(
        [SPEN, "data", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin", **{name: str(value) for name, value in environment.items()}},
    )


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def rows(tmp_path):
    """A folder with a training and a test file of the extreme-classification kind."""
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "train.txt").write_text("3 2 3\n0,1 0:1\n0,1,2 1:1\n 0:2\n")
    (folder / "test.txt").write_text("2 2 3\n0 0:1\n2 0:3\n")
    return folder


def test_list_says_where_each_set_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPEN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "yeast").mkdir()
    for file in ENTRIES["yeast"].files:
        (tmp_path / "yeast" / file.name).touch()
    data.list_sets()
    lines = capsys.readouterr().out.splitlines()
    (yeast,) = (line for line in lines if "yeast" in line)
    assert [cell.strip() for cell in yeast.strip("|").split("|")] == [
        "yeast",
        "2,417",
        "103",
        "14",
        str(tmp_path / "yeast"),
    ]
    assert sum("not here: spen data fetch" in line for line in lines) == len(ENTRIES) - 1
    data.list_sets(json=True)
    record = json.loads(capsys.readouterr().out)
    folders = {entry["name"]: entry["folder"] for entry in record["datasets"]}
    assert folders == {**dict.fromkeys(ENTRIES), "yeast": str(tmp_path / "yeast")}


def test_show_counts(rows, capsys):
    data.show(str(rows), json=True)
    assert json.loads(capsys.readouterr().out) == {
        "name": "rows",
        "rows": {"train": 3, "test": 2},
        "n_features": 2,
        "n_labels": 3,
        "cardinality": pytest.approx(7 / 5),
        "density": pytest.approx(7 / 15),
        "missing": 0.0,
        "unlabelled": pytest.approx(1 / 5),
        "labelsets": 5,
        "top_labels": [["label0", 3], ["label1", 2], ["label2", 2]],
        "top_pairs": [["label0", "label1", 2], ["label0", "label2", 1], ["label1", "label2", 1]],
        "repeated": 1,
    }
    data.show(str(rows), top=1)
    text = capsys.readouterr().out
    assert "| label0 | 3    | 60.00 % |" in text
    assert "| label0 | label1 | 2    | 40.00 % |" in text
    assert "label2" not in text
    assert "| rows without labels                           | 20.00 % |" in text


def test_show_counts_missing_labels(tmp_path, capsys):
    np.savez(tmp_path / "holes.npz", X=np.eye(2), Y=np.array([[1.0, np.nan], [0.0, 1.0]]))
    data.show(str(tmp_path / "holes.npz"))
    assert "25.00 %" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "repeated"), [("bibtex", 21), ("delicious", 871), ("yeast", 0)])
def test_show_agrees_with_what_is_known_of_the_real_sets(name, repeated, capsys):
    if find(name) is None:
        pytest.skip(f"the real files of {name} are not here")
    data.show(name, json=True)
    shown, entry = json.loads(capsys.readouterr().out), ENTRIES[name]
    assert shown["rows"] == {"train": entry.n_train, "test": entry.n_test}
    assert (shown["n_features"], shown["n_labels"]) == (entry.n_features, entry.n_labels)
    assert shown["repeated"] == repeated
    cardinality = {"bibtex": 2.40, "delicious": 19.02, "yeast": 4.24}[name]
    assert shown["cardinality"] == pytest.approx(cardinality, abs=0.005)
    empty = 14 if name == "delicious" else 0
    assert shown["unlabelled"] * sum(shown["rows"].values()) == pytest.approx(empty)


def test_fetch_downloads_and_says_so(tmp_path):
    missing = ENTRIES["yeast"].files[2]

    def sends_too_little(handler):
        handler.answer(200, Content_Length=5)
        handler.body(b"hello")

    server = Server(sends_too_little)
    try:
        done = call("fetch", "yeast", "--base-url", server.url, SPEN_DATA=tmp_path)
    finally:
        server.close()
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("spen: yeast-train.arff must have 1501117 bytes, but")
    assert f"{ENTRIES['yeast'].address(missing)} into the folder {tmp_path / 'yeast'}" in line
    assert not list((tmp_path / "yeast").iterdir())


def test_fetch_of_the_real_files(tmp_path):
    folder = find("yeast")
    if folder is None:
        pytest.skip("the real files of yeast are not here")

    def serve(handler):
        content = (folder / Path(handler.path).name).read_bytes()
        handler.answer(200, Content_Length=len(content))
        handler.body(content)

    server = Server(serve)
    try:
        arguments = ("fetch", "yeast", "--base-url", server.url)
        done = call(*arguments, XDG_CACHE_HOME=tmp_path, HOME=tmp_path)
        again = call(*arguments, "--json", XDG_CACHE_HOME=tmp_path, HOME=tmp_path)
    finally:
        server.close()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("downloaded, verified") == 3
    assert "yeast-train.arff: 1,501,117 bytes" in done.stderr
    files = json.loads(again.stdout)["files"]
    assert again.stderr == ""
    assert [file["downloaded"] for file in files] == [False] * 3
    assert [file["verified"] for file in files] == [True] * 3
    for file, entry in zip(files, ENTRIES["yeast"].files, strict=True):
        assert Path(file["path"]).stat().st_size == file["size"] == entry.size


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fetch", "yaest"], "Did you mean 'yeast'"),
        (["fetch", "yeast", "--base-url", "ftp://x"], "must start with http"),
        (["show", "yaest"], "Did you mean 'yeast'"),
        (["show", "bookmarks"], "spen data fetch bookmarks"),
        (["show", "no/such/file.arff"], "no/such/file.arff"),
        (["show", "yeast", "--top", "0"], "--top must be 1 or more"),
        (["lst"], "list"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_2(arguments, words, tmp_path):
    done = call(*arguments, SPEN_DATA=tmp_path, HOME=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_tables_are_drawn_on_a_terminal(monkeypatch):
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setenv("COLUMNS", "100")
    show_table("Labels", ["label", "rows"], [["[bold]odd[/bold]", 12345], ["plain", 7]])
    show_table("Nothing", ["label", "rows"], [])
    drawn = shown.getvalue()
    assert "[bold]odd[/bold]" in drawn, "a label's name is not markup"
    assert "12,345" in drawn
    assert "─" in drawn
    assert "| label" not in drawn


def test_downloads_have_a_bar_on_a_terminal(monkeypatch):
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("COLUMNS", "100")
    known, unknown = ENTRIES["bookmarks"].files
    with download_bar() as progress:
        assert progress is not None
        for file in (known, unknown):
            progress(file, 0)
            progress(file, 73_273_832)
    assert "bookmarks.arff" in shown.getvalue()
    assert "73.3/73.3 MB" in shown.getvalue()
    with download_bar(quiet=True) as progress:
        assert progress is None
