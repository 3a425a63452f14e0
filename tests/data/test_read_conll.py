"""CoNLL files: sentences of tokens with tags in columns."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spen
from spen.data.conll import ConllReader
from spen.data.dataset import summarise
from spen.data.load import looks_like, open_rows
from spen.data.reader import Options

CHUNKS = "the DT B-NP\ndog NN I-NP\nbarks VBZ B-VP\n\nit PRP B-NP\n"
TWEETS = 'I\tO\n"\t,\n\\\tG\n\n#fun\t#\n\n\n:)\tE\n'


def read(tmp_path, text, name="a.conll", **options):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return spen.load_dataset(path, **options)


def lists(array):
    return [list(each) for each in array]


def test_columns_parted_by_spaces(tmp_path):
    data = read(tmp_path, CHUNKS)
    assert lists(data.train.Y) == [["B-NP", "I-NP", "B-VP"], ["B-NP"]]
    assert data.train.X[0][1] == {"0": "dog", "1": "NN"}
    assert data.label_names == ("B-NP", "B-VP", "I-NP")
    assert data.feature_names == ("0", "1")
    assert data.test is None


@pytest.mark.parametrize("column", [1, -2])
def test_any_column_holds_the_tags(tmp_path, column):
    data = read(tmp_path, CHUNKS, labels=column)
    assert lists(data.train.Y) == [["DT", "NN", "VBZ"], ["PRP"]]
    assert data.train.X[1] == [{"0": "it", "2": "B-NP"}]


def test_tabs_quotes_backslashes_and_hashtags(tmp_path):
    data = read(tmp_path, TWEETS)
    assert lists(data.train.X) == [["I", '"', "\\"], ["#fun"], [":)"]]
    assert lists(data.train.Y) == [["O", ",", "G"], ["#"], ["E"]]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("a b\tX\nc\tY\n", [["a b", "c"]]),
        ("a\u00a0b X\n\u2028 Y\n", [["a\u00a0b", "\u2028"]]),
        ("a  X\r\nb X  \r\n\r\nc X", [["a", "b"], ["c"]]),
        ("-DOCSTART- O\n\na X\n\n-DOCSTART- O\n\nb X\n", [["a"], ["b"]]),
        ("# sent_id = 1\na\tX\n\n# text = b\nb\tX\n", [["a"], ["b"]]),
        ("\n \t\na X\n\n\n\n", [["a"]]),
        ("\ufeffa X\n", [["a"]]),
    ],
)
def test_what_is_a_token(tmp_path, text, tokens):
    assert lists(read(tmp_path, text).train.X) == tokens


def test_a_folder_of_parts_without_being_told(tmp_path):
    (tmp_path / "train.txt").write_text(CHUNKS)
    (tmp_path / "test.txt").write_text("he PRP B-NP\n\nran VBD B-VP\nup RP B-PRT\n")
    data = spen.load_dataset(tmp_path)
    assert len(data.train), len(data.test) == (2, 2)
    # Both parts have the names of all tags.
    assert data.label_names == ("B-NP", "B-PRT", "B-VP", "I-NP")


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("@you\t@\nare\tV\n\nok\tA\n", "conll"),
        ("8:30\t$\nnow\tR\n\nok\tA\n", "conll"),
        (CHUNKS, "conll"),
        ("1 1:2 3:4\n\n2 1:3 2:1\n", "libsvm"),
        ("@relation 'a b'\n\n@attribute x numeric\n", "mulan"),
        ("a\tb\n1\t2\n3\t4\n", "csv"),
    ],
)
def test_formats_are_told_apart(tmp_path, text, format):
    (tmp_path / "a.txt").write_text(text)
    assert looks_like(tmp_path / "a.txt") == format


def test_packed(tmp_path):
    data = read(tmp_path, gzip.compress(CHUNKS.encode()), "a.conll.gz")
    assert lists(data.train.Y) == [["B-NP", "I-NP", "B-VP"], ["B-NP"]]


cells = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\n\t "), min_size=1, max_size=5
).filter(lambda cell: cell != "-DOCSTART-" and "\ufeff" not in cell)


@given(
    st.lists(st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=4), min_size=1),
    st.sampled_from("\t "),
    st.integers(0, 2),
)
def test_what_is_written_is_read(tmp_path_factory, sentences, separator, column):
    lines = ["\n".join(separator.join(token) for token in each) for each in sentences]
    path = Path(tmp_path_factory.mktemp("conll")) / "a.conll"
    path.write_text("\n\n".join(lines), encoding="utf-8", newline="\n")
    reader = ConllReader(path, Options(labels=column))
    tags = [[token[column] for token in each] for each in sentences]
    assert lists(reader.read().Y) == tags
    assert reader.label_names == tuple(sorted({tag for each in tags for tag in each}))
    beside = [i for i in range(3) if i != column]
    expected = [[{str(i): token[i] for i in beside} for token in each] for each in sentences]
    assert lists(reader.read().X) == expected


def test_in_chunks_and_blocks(tmp_path, monkeypatch):
    path = tmp_path / "a.conll"
    path.write_text(CHUNKS * 1 + "\n" + CHUNKS)
    whole = open_rows(path).read()
    assert len(whole) == 4
    monkeypatch.setattr("spen.data.reader.BLOCK", 1)
    for rows in (1, 3):
        chunks = list(open_rows(path).chunks(rows))
        assert [len(chunk) for chunk in chunks] == ([1] * 4 if rows == 1 else [3, 1])
        assert lists(np.concatenate([chunk.Y for chunk in chunks])) == lists(whole.Y)
    unlabelled = open_rows(path, labels_required=False).read()
    assert unlabelled.Y is None
    assert unlabelled.X[1] == [{"0": "it", "1": "PRP", "2": "B-NP"}]


@pytest.mark.parametrize(
    ("text", "options", "what"),
    [
        ("a X\nb\n", {}, "line 2: expected 2 columns parted by spaces, as in the lines before"),
        ("a\tX\nb X\n", {}, "line 2: expected 2 columns parted by tabs"),
        ("a\tX\n\tX\n", {}, "line 2: column 0 is empty"),
        ("a\tX\nb\t\n", {}, "line 2: column 1 is empty"),
        ("a X\n", {"labels": 2}, "has 2 columns; labels must be the number of the one"),
        ("a X\n", {"labels": ["tag"]}, "received ['tag']"),
        ("a\nb\n", {}, "has one column alone"),
        ("\n\n", {}, "has no rows of data"),
        (b"a X\n\nb\xff X\n", {}, "line 3, character 2: the byte 0xff is not UTF-8"),
        (b"a X\n\nb\xff X\n", {}, "Save the file as UTF-8. It is sentence 1, position 0."),
        ("a X\nb\n", {}, "received 1: 'b'. It is sentence 0, position 1."),
        ("-DOCSTART- -\n\na X\n\n\nb X\nc X\nd\n", {}, "line 8: exp"),
        ("-DOCSTART- -\n\na X\n\n\nb X\nc X\nd\n", {}, "It is sentence 1, position 2."),
        ("# 1\na\tX\n\n# 2\n\tX\n", {}, "line 5: column 0 is empty"),
        ("# 1\na\tX\n\n# 2\n\tX\n", {}, "It is sentence 1, position 0."),
    ],
)
def test_faults_name_file_and_line(tmp_path, text, options, what):
    with pytest.raises(spen.InputError) as caught:
        read(tmp_path, text, **options)
    assert what in str(caught.value)
    assert str(tmp_path / "a.conll") in str(caught.value)


def test_parts_must_have_the_same_columns(tmp_path):
    (tmp_path / "train.txt").write_text(CHUNKS)
    (tmp_path / "test.txt").write_text("he B-NP\n\nran B-VP\nup B-PRT\n")
    with pytest.raises(spen.InputError, match="must have the same columns; they have"):
        spen.load_dataset(tmp_path)


def test_figures_of_sequences_are_refused_in_words(tmp_path):
    with pytest.raises(spen.InputError, match="with a tag for each token; this counts sets"):
        summarise(read(tmp_path, CHUNKS))


REAL = Path(os.environ.get("SPEN_DATA", "")) / "conll2000"


@pytest.mark.skipif(not REAL.is_dir(), reason="the data set is not there")
def test_real_chunks():
    data = spen.load_dataset(REAL)
    assert (len(data.train), len(data.test)) == (8936, 2012)
    assert sum(map(len, data.train.Y)) == 211727
    assert len(data.label_names) == 23
    assert data.train.X[0][0] == {"0": "Confidence", "1": "NN"}


TWEETS_THERE = REAL.parent / "twitter_pos"


@pytest.mark.skipif(not TWEETS_THERE.is_dir(), reason="the data set is not there")
def test_real_tweets():
    counts = {"oct27.train": 1000, "oct27.dev": 327, "oct27.test": 500, "daily547.conll": 547}
    for name, count in counts.items():
        assert looks_like(TWEETS_THERE / name) == "conll"
        data = spen.load_dataset(TWEETS_THERE / name)
        assert len(data.train) == count
        assert set(data.label_names) <= set("NOS^ZLMVARTPDG#@~UE$,!&XY")
