"""The commands on sentences: fit, predict and evaluate on CoNLL files."""

import json
import re

import numpy as np
import pytest

import spen
from spen.cli.tags import predict_tags

from .test_tables import run

SENTENCES = [
    ("the red car", "D A N"),
    ("a car", "D N"),
    ("the very red wine", "D R A N"),
    ("wine", "N"),
] * 3


def conll(columns, separator="\t"):
    """A file with columns of each sentence: functions of a word and its tag."""
    sentences = []
    for words, tags in SENTENCES:
        pairs = zip(words.split(), tags.split(), strict=True)
        sentences.append("\n".join(separator.join(c(w, t) for c in columns) for w, t in pairs))
    return "\n\n".join(sentences) + "\n"


def word(w, t):
    return w


def start(w, t):
    return w[0]


def tag(w, t):
    return t


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tags")
    (path / "train.conll").write_text(conll([word, tag]))
    (path / "plain.conll").write_text(conll([word]))
    (path / "first.conll").write_text(conll([tag, word], " "))
    (path / "columns.conll").write_text(conll([word, start, tag]))
    (path / "rows.csv").write_text("x,y\n1,0\n2,1\n")
    spen.SPENClassifier(hidden=(), epochs=1).fit(np.eye(4), np.eye(4)).save(path / "rows.spen")
    settings = ("--energy", "chain", "--epochs", 30, "--lr", 0.02, "--json")
    code, out, err = run("fit", path / "train.conll", "--out", path / "m.spen", *settings)
    assert code == 0, err
    record = json.loads(out)
    assert (record["sentences"], record["positions"], record["tags"]) == (12, 30, 4)
    return path


def test_a_file_of_sentences_makes_a_tagger(folder):
    tagger = spen.load(folder / "m.spen")
    assert type(tagger) is spen.SPENTagger
    code, out, err = run("evaluate", folder / "m.spen", folder / "train.conll", "--json")
    assert code == 0, err
    record = json.loads(out)
    assert record["metrics"] == {"accuracy": 1.0, "sentences": 1.0}
    code, out, _ = run("evaluate", folder / "m.spen", folder / "train.conll")
    assert "100.00" in out


@pytest.mark.parametrize("name", ["train.conll", "plain.conll"])
def test_predictions_are_one_more_column(folder, tmp_path, name):
    target = tmp_path / "out.conll"
    code, out, err = run("predict", folder / "m.spen", folder / name, "--out", target, "--json")
    assert code == 0, err
    assert json.loads(out)["sentences"] == 12
    more = [word, tag, tag] if name == "train.conll" else [word, tag]
    assert target.read_text() == conll(more) + "\n"
    code, out, err = run("predict", folder / "m.spen", folder / name, "--out", "-")
    assert out == target.read_text()


@pytest.mark.parametrize(("name", "column"), [("first.conll", 0), ("columns.conll", -1)])
def test_any_column_may_hold_the_tags(folder, tmp_path, name, column):
    settings = ("--energy", "chain", "--epochs", 30, "--lr", 0.02, "--json")
    file, model = folder / name, tmp_path / "m.spen"
    code, _, err = run("fit", file, "--labels", column, "--out", model, *settings)
    assert code == 0, err
    code, out, err = run("evaluate", model, file, "--json")
    assert code == 0, err
    assert json.loads(out)["metrics"]["accuracy"] == 1
    code, out, err = run("predict", model, file, "--out", "-")
    assert code == 0, err
    assert [line.split("\t")[-1] for line in out.split("\n\n")[0].split("\n")] == ["D", "A", "N"]


def test_letters_are_predicted_by_the_name_of_their_set(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "ocr_letters").mkdir()
    letters = np.tile(np.eye(4, dtype=np.uint8), (6, 1))
    words = {"X": letters, "y": np.tile(np.arange(4, dtype=np.uint8), 6)}
    words |= {"word_lengths": np.full(12, 2), "word_fold": np.arange(12) % 3}
    np.savez(tmp_path / "ocr_letters" / "letters.npz", **words)
    model, settings = tmp_path / "m.spen", ("--energy", "local", "--epochs", 20, "--lr", 0.02)
    assert run("fit", "ocr_letters", "--out", model, *settings)[0] == 0
    code, out, err = run("predict", model, "ocr_letters", "--out", "-")
    assert code == 0, err
    assert out == "a\nb\n\nc\nd\n\na\nb\n\nc\nd\n\n"
    assert json.loads(run("evaluate", model, "ocr_letters", "--json")[1])["part"] == "test"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fit", "train.conll", "--hidden", "3", "--out", "x"), "holds sequences, .*: hidden"),
        (("fit", "train.conll", "--metric", "f1", "--out", "x"), "holds sequences, .*: metric"),
        (("fit", "train.conll", "--energy", "label", "--out", "x"), "Unknown energy 'label'"),
        (("predict", "m.spen", "rows.csv"), "takes sentences as CoNLL files have them, and"),
        (("evaluate", "m.spen", "rows.csv"), "takes sentences .* rows.csv holds rows of CSV"),
        (("report", "m.spen", "--data", "rows.csv"), "takes sentences .* holds rows of CSV"),
        (("evaluate", "rows.spen", "train.conll"), "takes rows, and train.conll holds sentences"),
        (("predict", "rows.spen", "train.conll"), "takes rows, and train.conll holds sentences"),
        (("predict", "m.spen", "columns.conll"), "has 3 columns; the model takes the 2 of its tr"),
        (("predict", "m.spen", "train.conll", "--known", "D=1"), "is a tagger, which writes a tag"),
        (("predict", "m.spen", "train.conll", "--write", "sparse"), "is a tagger, which writes a"),
        (("evaluate", "m.spen", "train.conll", "--known", "D"), "--known is for sets of labels"),
        (("ask", "m.spen", "train.conll"), "holds a SPENTagger, which tags sequences"),
    ],
)
def test_a_wrong_kind_of_file_or_option_is_told(folder, monkeypatch, arguments, words):
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert re.search(words, err), err
    assert sorted(folder.iterdir()) == before


def test_a_tagger_has_a_page(folder, tmp_path):
    page = tmp_path / "page.html"
    data = folder / "train.conll"
    code, _, err = run("report", folder / "m.spen", "--data", data, "--out", page, "--json")
    assert code == 0, err
    words = page.read_text(encoding="utf-8")
    assert "<title>m.spen on train.conll</title>" in words
    assert "judged by the sentences of train (12)" in words
    assert 'id="transitions"' in words
    assert run("report", folder / "m.spen", "--out", page)[0] == 0
    assert 'id="sentences"' not in page.read_text(encoding="utf-8")
    code, _, err = run("report", folder / "m.spen", "--data", folder / "rows.csv")
    assert code == 2
    assert "rows.csv" in err
    # A folder with a tagger and records has both in its page.
    (tmp_path / "m.spen").write_bytes((folder / "m.spen").read_bytes())
    (tmp_path / "records.jsonl").write_text('{"method": "crf", "metrics": {"accuracy": 88.5}}\n')
    assert run("report", tmp_path, "--data", data)[0] == 0
    words = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'id="runs"' in words
    assert 'id="sentences"' in words


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate"])
def test_faults_of_a_file_name_line_sentence_and_position(folder, tmp_path, command):
    file = tmp_path / "bad.conll"
    file.write_text("the\tD\n\na\tD\ncar\n")
    before = (file,) if command == "fit" else (folder / "m.spen", file)
    code, out, err = run(command, *before, *(("--out", tmp_path / "x") if command == "fit" else ()))
    assert (code, out) == (2, "")
    assert "bad.conll, line 4: expected 2 columns parted by tabs" in err
    assert "It is sentence 1, position 1." in err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.conll"]


@pytest.mark.filterwarnings("default")
def test_tags_that_were_not_trained_are_told_of_a_file(folder, tmp_path):
    file = tmp_path / "test.conll"
    file.write_text("the\tD\n\na\tD\ncar\tQ\n")
    code, out, err = run("evaluate", folder / "m.spen", file, "--json")
    assert code == 0
    assert json.loads(out)["metrics"]["sentences"] == 0.5
    assert "Sentence 1, position 1 has the tag 'Q' in y, which was not trained. It counts" in err


def test_a_sentence_without_tagging_is_told_by_its_number_in_the_file(tmp_path, monkeypatch):
    X, y = [["the", "car"], ["a", "wine"]] * 2, [["D", "N"]] * 4
    rules = [(None, "N"), ("D", None)]
    spen.SPENTagger("chain", epochs=1, constraints=rules).fit(X, y).save(tmp_path / "m.spen")
    (tmp_path / "a.conll").write_text("a\nb\n\nc\n\nd\ne\n")
    code, out, err = run("predict", tmp_path / "m.spen", tmp_path / "a.conll")
    assert (code, out) == (2, "")
    assert "Sentence 1, position 0: the forbidden transitions leave no tag for it" in err
    monkeypatch.setattr("spen.data.reader.BLOCK", 1)
    code, _, err = run("predict", tmp_path / "m.spen", tmp_path / "a.conll")
    assert code == 2
    assert "From sentence 1 on: Sentence 0, position 0: the forbidden transitions" in err
    assert not (tmp_path / "a-predictions.conll").exists()


def test_functions_behind_commands_need_no_command_line(folder, tmp_path, capsys):
    tagger, target = spen.load(folder / "m.spen"), tmp_path / "a.conll"
    file = str(folder / "plain.conll")
    predict_tags(tagger, folder / "m.spen", file, target, None, json=False)
    assert "Wrote 12 sentences" in capsys.readouterr().out
