"""Tables with words in files: CSV and JSON lines, tags, compressed files."""

import gzip
import json

import pytest
from reading import little_memory, values

from spen.batch.limits import limits
from spen.data.dataset import summarise
from spen.data.load import load_dataset, open_rows, recognise
from spen.data.words import Tags
from spen.errors import InputError, MissingPackageError

POSTS = 'id,body,tags\n1,"The sun,\nat last",sun; sea\n2,?,\n3,Snow,snow;sun\n'


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        content = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


@pytest.mark.parametrize("name", ["posts.csv", "posts.csv.gz"])
def test_a_table_with_words_and_tags(write, name):
    data = load_dataset(write(name, POSTS), labels="tags")
    assert data.name == "posts"
    assert data.feature_names == ("id", "body")
    assert (data.label_column, data.label_names) == ("tags", ("sea", "snow", "sun"))
    wanted = {"id": ["1", "2", "3"], "body": ["The sun,\nat last", None, "Snow"]}
    assert data.train.X.to_dict("list") == wanted
    assert values(data.train.Y) == [[1, 0, 1], [0, 0, 0], [0, 1, 1]]
    assert data.train.rows([2]).X.to_dict("list") == {"id": ["3"], "body": ["Snow"]}
    assert summarise(data).n_features == 2


def test_labels_beside_words_may_have_columns_of_their_own(write):
    data = load_dataset(write("a.csv", "a,rain,snow\nred,1,0\n,?,true\n"), labels=-2)
    assert (data.label_column, data.label_names) == (None, ("rain", "snow"))
    assert values(data.train.X.to_numpy()) == [["red"], [None]]
    assert data.train.Y[1, 1] == 1
    assert data.train.Y[1, 0] != data.train.Y[1, 0]
    with pytest.raises(InputError, match="line 2: column 'rain': a label holds '2'"):
        load_dataset(write("b.csv", "a,rain,snow\nred,2,0\n"), labels=-2)


def test_tables_of_numbers_stay_arrays_unless_words_are_asked_for(write):
    path = write("a.csv", "a,b,y\n1.5,2,1\n3,4,0\n")
    assert load_dataset(path, labels=["y"]).train.X.dtype == "float32"
    words = load_dataset(path, labels=["y"], words=True)
    assert words.train.X.to_dict("list") == {"a": ["1.5", "3"], "b": ["2", "4"]}
    assert values(words.train.Y) == [[1], [0]]


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        (["a;b", "b", None], [["a", "b"], ["b"], []]),
        (["a|b", "c, d"], [["a", "b"], ["c, d"]]),
        (["a, b", "b,c;"], [["a", "b"], ["b", "c;"]]),
        (["new york", "rome"], [["new york"], ["rome"]]),
        (['["a;b", "c"]', "[]", "[x"], [["a;b", "c"], [], ["[x"]]),
        ([["a", 3], [" "]], [["a", "3"], []]),
    ],
)
def test_one_rule_tells_tags_apart(cells, read):
    tags = Tags.of(cells)
    assert [tags.read(cell) for cell in cells] == read


def test_json_lines(write, tmp_path):
    rows = [
        {"text": "The sun", "n": 1.5, "labels": ["sun", "sea"]},
        {"text": None, "labels": [], "extra": True},
    ]
    text = "\n".join(map(json.dumps, rows))
    write("a-train.jsonl.gz", text)
    write("a-test.jsonl.gz", '{"text": "Ice", "labels": ["snow"]}\n')
    data = load_dataset(tmp_path)
    assert data.feature_names == ("text", "n", "extra")
    assert data.label_names == ("sea", "snow", "sun"), "of both parts together"
    assert values(data.test.Y) == [[0, 1, 0]]
    assert data.train.X.to_dict("list")["n"] == [1.5, None]
    assert recognise(tmp_path / "a-test.jsonl.gz") == "jsonl"
    for line, what in [("[1]", "expected a JSON object"), ("{", "this is no JSON")]:
        with pytest.raises(InputError, match=f"line 2: {what}"):
            load_dataset(write("b.jsonl", f'{{"a": 1, "y": []}}\n{line}\n'))
    with pytest.raises(InputError, match="does not say which columns are labels"):
        load_dataset(write("c.jsonl", '{"a": 1}\n'))
    with pytest.raises(InputError, match="no tag in any row"):
        load_dataset(write("d.jsonl", '{"a": 1, "y": []}\n'))


def test_files_are_read_a_chunk_at_a_time(write):
    path = write("a.csv.gz", "body,tags\n" + "some words of a row,sun;sea\n" * 100_000)
    with little_memory(24):
        reader = open_rows(path, words=True, labels_required=False)
        counts = [len(chunk) for chunk, _ in zip(reader.chunks(rows=1000), range(30), strict=False)]
    assert counts == [1000] * 30


def test_files_that_are_damaged(write, tmp_path):
    packed = gzip.compress(POSTS.encode() * 100)
    (tmp_path / "cut.csv.gz").write_bytes(packed[:-20])
    with pytest.raises(InputError, match=r"cut\.csv\.gz is compressed, and cannot be unpacked"):
        load_dataset(tmp_path / "cut.csv.gz", labels="tags")
    with pytest.raises(InputError, match="line 3: the cells cannot be told apart"):
        load_dataset(write("open.csv", 'body,tags\n"no end,sun\n\n'), labels="tags")
    with pytest.raises(InputError, match="line 2: the row has 3 cells"):
        load_dataset(write("more.csv", "body,tags\na,b,c\n"), labels="tags", words=True)


def test_a_small_file_cannot_fill_memory(write, monkeypatch):
    path = write("bomb.csv.gz", "body,tags\n" + "".join(f"{i:050},sun\n" for i in range(60_000)))
    monkeypatch.setattr(limits, "growth", 1 << 20)
    with pytest.raises(InputError, match="reading it takes matrices of"):
        load_dataset(path, labels="tags")


def test_without_pandas_numbers_can_be_read(write, monkeypatch):
    monkeypatch.setattr("spen.data.load.find_spec", lambda name: None)
    assert load_dataset(write("a.csv", "a,y\n1,0\n2,1\n"), labels=["y"]).train.X.shape == (2, 1)
    with pytest.raises(MissingPackageError, match=r"'red' is not a number.*spen\[tables\]"):
        load_dataset(write("b.csv", "a,y\nred,0\n"), labels=["y"])
