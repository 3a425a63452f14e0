"""Data sets of sequences: those that have a name, handwritten words, and figures."""

import numpy as np
import pytest

import spen
from spen.batch.arrays import object_array
from spen.data import catalog
from spen.data.catalog import ENTRIES, find
from spen.data.tagged import read_letters, summarise_tags

LETTERS = {
    "X": np.eye(5, 6, dtype=np.uint8),
    "y": np.array([2, 0, 19, 0, 25], np.uint8),
    "word_lengths": np.array([3, 2], np.int32),
    "word_fold": np.array([1, 0], np.uint8),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEN_DATA", str(tmp_path))
    monkeypatch.setattr(catalog, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path


def test_handwritten_words_come_with_their_folds(folder):
    (folder / "ocr_letters").mkdir()
    path = folder / "ocr_letters" / "letters.npz"
    np.savez(path, **LETTERS)
    words, folds = read_letters(path)
    assert [list(word) for word in words.Y] == [["c", "a", "t"], ["a", "z"]]
    np.testing.assert_array_equal(words.X[1], LETTERS["X"][3:])
    assert folds.tolist() == [1, 0]
    data = spen.load_dataset("ocr_letters")
    assert (data.train.Y[0], data.test.Y[0]) == (["c", "a", "t"], ["a", "z"])
    assert len(data.feature_names) == 6


@pytest.mark.parametrize(
    "change",
    [
        {"word_lengths": np.array([3, 3])},
        {"word_lengths": np.array([5, 0])},
        {"word_fold": np.array([1])},
        {"y": np.array([2, 0, 19, 0, 26])},
        {"y": np.array([2.0, 0, 19, 0, 25])},
        {"X": np.zeros(5)},
    ],
)
def test_damaged_words_are_told(tmp_path, change):
    np.savez(tmp_path / "a.npz", **LETTERS | change)
    with pytest.raises(spen.InputError, match="its letters, their words and their folds"):
        read_letters(tmp_path / "a.npz")


def test_other_files_are_told_apart(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(2), Y=np.eye(2))
    (tmp_path / "b.npz").write_text("no archive")
    for name in ("a.npz", "b.npz"):
        with pytest.raises(spen.InputError, match=f"{name} is no file of handwritten words"):
            read_letters(tmp_path / name)
    with pytest.raises(spen.InputError, match="There is no file"):
        read_letters(tmp_path / "c.npz")


def test_a_part_may_be_of_several_files(folder):
    place = folder / "twitter_pos"
    place.mkdir()
    for k, file in enumerate(ENTRIES["twitter_pos"].files):
        (place / file.name).write_text(f'a\tD{k}\n"\tN\n\nb\tN\n')
    data = spen.load_dataset("twitter_pos")
    assert [len(part) for part in (data.train, data.valid, data.test)] == [4, 2, 2]
    assert [tags[0] for tags in data.train.Y] == ["D0", "N", "D1", "N"]
    assert data.label_names == ("D0", "D1", "D2", "D3", "N")


def test_figures_of_tags():
    words = object_array([["a", "b"], ["a", "c"], ["d"]])
    tags = object_array([["D", "N"], ["D", None], ["D"]])
    both = spen.Split(words, tags)
    data = spen.Dataset("mine", both.rows([0]), both.rows([1, 2]), ("0",), ("D", "N"))
    figures = summarise_tags(data)
    assert figures.sentences == {"train": 1, "test": 2}
    assert figures.positions == {"train": 2, "test": 3}
    assert (figures.longest, figures.n_tags, figures.missing) == (2, 2, 1)
    assert figures.unseen == pytest.approx(2 / 3)
    assert figures.top_tags == (("D", 3), ("N", 1))


@pytest.mark.parametrize(
    ("name", "sizes", "tags"),
    [
        ("twitter_pos", (1327, 547), 25),
        ("conll2000", (8936, 2012), 23),
        ("ocr_letters", (6251, 626), 26),
    ],
)
def test_the_real_sets(name, sizes, tags):
    if find(name) is None:
        pytest.skip(f"the real files of {name} are not here")
    data, entry = spen.load_dataset(name), ENTRIES[name]
    assert (len(data.train), len(data.test)) == sizes
    assert len(data.label_names) == entry.n_labels == tags
    valid = 0 if data.valid is None else len(data.valid)
    assert (entry.n_train, entry.n_test) == (sizes[0] + valid, sizes[1])
