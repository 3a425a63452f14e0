"""The tables of taggers, on generated words with tiny settings."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

import spen
from spen.data.tagged import LETTERS
from spen_paper import corpora
from spen_paper.corpora import SPLITS, Division, Tagged, divisions
from spen_paper.letters import LetterNetwork
from spen_paper.records import Records
from spen_paper.tables import tagging
from spen_paper.tables.tagging import tables_of, tagger, with_changes

TINY = {"epochs": 2, "batch_size": 4, "network": {"filters": 2, "width": 5}}


def letters(path, rng):
    """Write a file of handwritten words: ten folds, each of which holds all eight words."""
    words = ["ab", "xe", "omplex", "queenly", "abcdefgh", *("abcabcabcab"[:n] for n in (9, 10, 11))]
    words *= 10
    numbers = [LETTERS.index(letter) for word in words for letter in word]
    path.parent.mkdir()
    np.savez(
        path,
        X=rng.integers(2, size=(len(numbers), 128)).astype("uint8"),
        y=np.array(numbers, "uint8"),
        word_lengths=np.array(list(map(len, words)), "int32"),
        word_fold=(np.arange(len(words)) // 8).astype("uint8"),
    )


@pytest.fixture
def data(tmp_path, monkeypatch):
    letters(tmp_path / "ocr_letters" / "letters.npz", np.random.default_rng(0))
    monkeypatch.setenv("SPEN_DATA", str(tmp_path))


def test_divisions_share_no_word_between_training_and_test(data):
    for split in SPLITS["ocr"]:
        found = list(divisions("ocr", split))
        assert len(found) == (5 if split == "new-words" else 10)
        for each in found:
            sizes = len(each.train.X), len(each.test.X)
            assert sum(sizes) == 80
            assert (sizes[0] < sizes[1]) == (split == "one-fold")
            images = [[x.tobytes() for x in part.X] for part in (each.train, each.test)]
            assert not {*images[0]} & {*images[1]}
            if split == "new-words":
                trained, tested = ({*map("".join, part.y)} for part in (each.train, each.test))
                assert not trained & tested
        (searched,) = divisions("ocr", split, search=True)
        # Settings are chosen without the test rows of the first fold.
        held = {x.tobytes() for x in found[0].test.X}
        for part in (searched.train, searched.test):
            assert not held & {x.tobytes() for x in part.X}
    with pytest.raises(spen.InputError, match="Did you mean 'one-fold'"):
        next(divisions("ocr", "onefold"))


def tiny_tables(task, split):
    return {
        name: with_changes(table, TINY if "network" in table else {"epochs": 1})
        for name, table in tables_of(task, split).items()
    }


def test_a_table_is_made_and_resumed(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tagging, "tables_of", tiny_tables)
    run = ("ocr", "one-fold", "crf,spen,spelling,gspen", 1, 2, "cpu", tmp_path / "out")
    tagging.tagging(*run)
    shown = capsys.readouterr().out
    for words in ("SPEN (chain + language model)", "spen − crf, paired", "letter error", "2 divi"):
        assert words in shown
    path = tmp_path / "out" / "records.jsonl"
    before = path.read_text()
    found = [json.loads(line) for line in before.splitlines()]
    assert [(each["fold"], each["method"]) for each in found] == [
        (fold, name) for fold in (0, 1) for name in ("crf", "spen", "spelling", "gspen")
    ]
    assert all(0 <= each["metrics"]["letter_error"] <= 100 for each in found)
    # A run that is there is not made again, and says the same.
    monkeypatch.setattr(tagging, "measure", None)
    tagging.tagging(*run)
    assert capsys.readouterr().out == shown
    assert path.read_text() == before


def test_a_measured_score_is_that_of_the_test_rows(data):
    division = next(divisions("ocr", "folds"))
    made = tagger(tiny_tables("ocr", "folds")["crf"], 0, "cpu", "here")
    error = tagging.measure(made, division, "ocr")["metrics"]["letter_error"]
    pairs = [
        (a, b)
        for truth, found in zip(division.test.y, made.predict(division.test.X), strict=True)
        for a, b in zip(truth, found, strict=True)
    ]
    assert error == pytest.approx(100 * np.mean([a != b for a, b in pairs]), abs=1e-3)


def test_every_table_makes_a_tagger():
    for task, splits in SPLITS.items():
        for split in splits:
            tables = tables_of(task, split)
            assert {"local", "crf", "ssvm", "spen"} <= {*tables}
            for name, table in tables.items():
                made = tagger(table, 0, "cpu", name)
                assert made.epochs >= 5
                assert (made.features is None) == (task == "twitter")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epoch": 3}, "Unknown key 'epoch' in here. Did you mean 'epochs'"),
        ({"device": "cpu"}, "Unknown key 'device' in here"),
        ({"objective": {"name": "nbest"}}, "Did you mean 'n_best'"),
        ({"inference": {"name": "best-of"}}, "Did you mean 'best_of'"),
    ],
)
def test_a_typo_in_the_settings_is_named(changes, words):
    with pytest.raises(spen.InputError, match=words):
        tagger(tables_of("ocr", "folds")["crf"] | changes, 0, "cpu", "here")


def test_a_typo_in_the_network_is_named():
    for network, words in (
        ({"name": "letter"}, "Did you mean 'letters'"),
        ({"name": "letters", "filter": 3}, "Unknown key 'filter'.*Did you mean 'filters'"),
    ):
        with pytest.raises(spen.InputError, match=words):
            tagger(tables_of("ocr", "folds")["crf"] | {"network": network}, 0, "cpu", "here")


def test_a_network_of_words_has_the_sizes_that_its_encoder_has():
    network = {"name": "tokens", "hidden": 3, "layers": 2, "width": 4, "dropout": 0.0}
    made = tagger({"energy": "chain", "network": network, "epochs": 1}, 0, "cpu", "here")
    made.fit([["the", "dog"], ["barks"]], [["D", "N"], ["V"]])
    features = made.model_.features
    assert features.n_features == 6
    assert len(features.rest.layers) == 2
    assert features.marks[0].weight.shape == (made.encoder_.sizes[0], 4)
    with pytest.raises(spen.InputError, match="Unknown key 'sizes'"):
        tagger({"network": {"name": "tokens", "sizes": [3]}}, 0, "cpu", "here")


def test_letters_are_by_themselves_and_moved_in_training_alone():
    network = LetterNetwork(filters=3, width=7)
    network.reset(torch.Generator().manual_seed(0))
    rng = np.random.default_rng(0)
    values = torch.from_numpy(rng.integers(2, size=(2, 5, 128)).astype("float32"))
    mask = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    found = network((values, mask))
    assert found.shape == (2, 5, 7)
    assert (found[1, 2:] == 0).all()
    alone = network((values[:1, 2:3], mask[:1, :1]))
    torch.testing.assert_close(alone[0, 0], found[0, 2])
    draws = [network((values, mask), torch.Generator().manual_seed(k)) for k in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    # Half of an image lies within a third of it on either side: nothing is moved out of sight.
    still = LetterNetwork(move=0.0, dropout=0.0)
    assert torch.equal(still((values, mask)), still((values, mask), torch.Generator()))


SCRIPTS = Path(__file__).parents[1]


def test_runs_side_by_side_fill_one_table(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tagging, "tables_of", tiny_tables)
    made = []

    def measure(tagger, division, task):
        made.append((task, division.fold))
        return {"metrics": {"letter_error": 1.0}, "parameters": 3}

    monkeypatch.setattr(tagging, "measure", measure)
    out = tmp_path / "runs"
    for part in ("0", "1"):
        arguments = ["tagging.py", "--only", "ocr/new-words", "--of", "2", "--out", str(out)]
        monkeypatch.setattr("sys.argv", [*arguments, "--part", part])
        runpy.run_path(str(SCRIPTS / "scripts" / "tagging.py"), run_name="__main__")
    assert len(made) == 5 * len(tiny_tables("ocr", "new-words"))
    assert len(list(out.glob("records-*.jsonl"))) == 2
    capsys.readouterr()
    tagging.tagging("ocr", "new-words", None, 1, None, "cpu", out)
    assert "spen − crf, paired: +0.00" in capsys.readouterr().out
    assert not Records(out).path.exists()


def test_the_search_looks_at_development_rows_alone(data, tmp_path, monkeypatch, capsys):
    seen = []

    def division(task, split, search=False):
        assert search
        seen.append((task, split))
        yield Division(0, Tagged([], []), Tagged([], []))

    search = runpy.run_path(str(SCRIPTS / "search" / "sequences.py"))
    scope = search["main"].__globals__
    number = {"ocr": "letter_error", "twitter": "accuracy", "chunking": "f1"}
    monkeypatch.setitem(scope, "divisions", division)
    monkeypatch.setitem(
        scope,
        "measure",
        lambda made, division, task: {"metrics": {number[task]: len(seen)}, "device": "cpu"},
    )
    place = ["--out", str(tmp_path / "search")]
    monkeypatch.setattr("sys.argv", ["sequences.py", *place, "--only", "ocr/folds/spen"])
    with pytest.raises(SystemExit, match="Networks of ocr/folds come first"):
        search["main"]()
    networks = ",".join("/".join((*each, "network")) for each in search["GROUPS"])
    monkeypatch.setattr("sys.argv", ["sequences.py", *place, "--only", networks])
    search["main"]()
    log = tmp_path / "networks.jsonl"
    log.write_text(capsys.readouterr().out)
    seen.clear()
    monkeypatch.setattr("sys.argv", ["sequences.py", *place, "--log", str(log)])
    search["main"]()
    lines = capsys.readouterr().out
    assert len(lines.splitlines()) == len(seen) == len(search["points"]())
    (tmp_path / "log.jsonl").write_text(lines)
    monkeypatch.setattr("sys.argv", ["sequences.py", "--best", str(tmp_path / "log.jsonl")])
    search["main"]()
    best = capsys.readouterr().out.splitlines()
    # Lower is better for letters, higher for all else.
    first = {line.split(":")[0]: float(line.split(": ")[1].split()[0]) for line in best[::-1]}
    assert first["ocr one-fold network"] == 1
    assert first["chunking official ssvm"] == len(seen)


@pytest.mark.parametrize(
    ("task", "split"), [(task, each) for task in SPLITS for each in SPLITS[task]]
)
def test_settings_are_those_that_won_the_search(task, split):
    search = runpy.run_path(str(SCRIPTS / "search" / "sequences.py"))
    log = search["read"]([SCRIPTS / "search" / "sequences.jsonl"])
    tables = tables_of(task, split)
    for group in search["GROUPS"][task, split]:
        winner = search["ranked"](log, (task, split), group)[0]
        mine = {name: each for name, each in tables[winner["method"]].items() if name != "title"}
        assert mine == winner["settings"], group


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(corpora, "data_folders", lambda: [tmp_path])
    monkeypatch.setattr(spen, "load_dataset", lambda name: None)
    with pytest.raises(spen.InputError, match="Set SPEN_DATA"):
        next(divisions("ocr", "folds"))
