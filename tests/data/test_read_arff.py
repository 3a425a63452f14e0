"""ARFF files written by hand, with known answers."""

from pathlib import Path

import numpy as np
import pytest
from reading import WEATHER, WEATHER_XML, arff, values
from scipy import sparse

from spen.data.dataset import join
from spen.data.load import load_dataset, open_rows
from spen.errors import InputError


@pytest.fixture
def write(tmp_path):
    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_dense_arff_with_xml(write):
    write("weather.xml", WEATHER_XML)
    data = load_dataset(write("weather.arff", WEATHER))
    assert data.name == "weather"
    assert data.feature_names == ("wind speed", "sunny")
    # The XML lists them in another order; the ARFF file decides.
    assert data.label_names == ("rain", "snow")
    assert isinstance(data.train.X, np.ndarray)
    assert data.train.X.dtype == np.float32
    np.testing.assert_array_equal(data.train.X, np.float32([[1.5, 1], [-0.2, 0]]))
    assert isinstance(data.train.Y, sparse.csr_matrix)
    assert data.train.Y.dtype == np.int8
    assert values(data.train.Y) == [[0, 1], [1, 0]]
    assert data.test is None
    assert data.valid is None


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_part_alone_finds_the_xml_of_the_whole(write, part):
    write("weather.xml", WEATHER_XML)
    assert load_dataset(write(f"weather-{part}.arff", WEATHER)).label_names == ("rain", "snow")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda text: text.replace("\n", "\r\n"), "windows"),
        (lambda text: text.replace(" ", "\t"), "tabs"),
        (lambda text: "\ufeff" + text, "mark"),
        (lambda text: text.rstrip("\n"), "no last line end"),
        (lambda text: text.replace("1.5,1,0,1", "  1.5 ,1, 0\t, 1 % so it was"), "blanks"),
        (lambda text: text.replace("1.5,1,0,1", "1.5 1 0 1"), "blanks only"),
        (lambda text: text.replace("@", "  @").replace("{0,1}", "{0 , '1'} % two"), "indented"),
        (lambda text: text.replace("1.5,1,0,1", "+1.50,\"1\",'0',1.0"), "quotes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_ways_to_write_arff(write, change, name):
    usual = load_dataset(write("a.arff", WEATHER), labels=["rain", "snow"])
    path = write("b.arff", change(WEATHER).replace("wind\tspeed", "wind speed"))
    other = load_dataset(path, labels=["rain", "snow"])
    assert other.feature_names == usual.feature_names
    np.testing.assert_array_equal(other.train.X, usual.train.X)
    assert (other.train.Y != usual.train.Y).nnz == 0


SPARSE = arff("a {0,1}\nb numeric\nc {0,1}\nd {0,1}", "{0 1,1 .5,3 1}\n{}\n\n{ 2 1, 1 -3 }")


def test_sparse_arff_and_meka_counts(write):
    path = write("s.arff", SPARSE)
    last = load_dataset(path, labels=-2).train
    assert isinstance(last.X, sparse.csr_matrix)
    assert values(last.X) == [[1, 0.5], [0, 0], [0, -3]]
    assert values(last.Y) == [[0, 1], [0, 0], [1, 0]]
    first = load_dataset(path, labels=1)
    assert first.label_names == ("a",)
    assert first.feature_names == ("b", "c", "d")
    assert values(first.train.Y) == [[1], [0], [0]]


def test_sparse_rows_leave_out_the_value_that_is_listed_first(write):
    attributes = "y {1,0}\nz {0,1}\ncolour {red,green,blue}\nbig {no,yes}\ndry {true,false}"
    path = write("o.arff", arff(attributes, "{}\n{0 0,1 1,2 blue,3 yes,4 false}\n{2 red}"))
    data = load_dataset(path, labels=["y", "z"])
    assert data.feature_names == ("colour=red", "colour=green", "colour=blue", "big", "dry")
    assert values(data.train.Y) == [[1, 0], [0, 1], [1, 0]]
    assert values(data.train.X) == [[1, 0, 0, 0, 1], [0, 0, 1, 1, 0], [1, 0, 0, 0, 1]]


def test_nominal_features_become_columns(write):
    attributes = "y {0,1}\nsex {male,female}\nsize {S,M,'X L'}\nsign {-1,1}\none {only}"
    data = load_dataset(write("n.arff", arff(attributes, "1,female,'X L',-1,only")), labels=1)
    assert data.feature_names == (
        "sex=female",
        "size=S",
        "size=M",
        "size=X L",
        "sign",
        "one=only",
    )
    assert values(data.train.X) == [[1, 0, 0, 1, 0, 1]]


def test_an_attribute_of_very_many_values_makes_x_sparse(write):
    many = ",".join(f"v{i}" for i in range(500))
    data = load_dataset(write("m.arff", arff(f"y {{0,1}}\nid {{{many}}}", "1,v7\n0,v9")), labels=1)
    assert sparse.issparse(data.train.X)
    assert data.train.X.nonzero()[1].tolist() == [7, 9]


def test_names_of_attributes(write):
    names = [r"TAG_m\'usica", r"dise\~no", "c#", "a/b", "?", "'it\\'s 5 %'", '"two words"', "ä"]
    path = write("n.arff", arff("\n".join(f"{name} {{0,1}}" for name in names), "0,1,0,1,0,1,0,1"))
    data = load_dataset(path, labels=2)
    # A backslash outside quotes is part of the name.
    assert data.label_names == (r"TAG_m\'usica", r"dise\~no")
    assert data.feature_names == ("c#", "a/b", "?", "it's 5 %", "two words", "ä")
    xml = write("l.xml", r'<labels><label name="TAG_m\'usica"/><label name="it\'s 5 %"/></labels>')
    assert load_dataset(path, labels=xml).label_names == (r"TAG_m\'usica", "it's 5 %")


def test_old_files_in_latin_1(write):
    text = arff("größe numeric\nwetter {kühl,heiß}\ny {0,1}", "1,heiß,1")
    data = load_dataset(write("l.arff", text.encode("latin-1")), labels=["y"])
    assert data.feature_names == ("größe", "wetter=heiß")
    assert values(data.train.X) == [[1, 1]]


def test_nested_labels_in_xml(write):
    write("h.xml", '<labels><label name="a"><label name="c"/></label><label name="b"/></labels>')
    path = write("h.arff", arff("x numeric\nc {0,1}\nb {0,1}\na {0,1}", "1,1,0,1"))
    assert load_dataset(path).label_names == ("c", "b", "a")


@pytest.mark.parametrize(
    ("options", "labels", "train"),
    [
        ("-C 2", ("a", "b"), 4),
        ("-c 1 -split-number 3", ("a",), 3),
        ("-split-percentage 50 -C -1", ("d",), 2),
    ],
)
def test_meka_options(write, options, labels, train):
    rows = "1,0,2,1\n0,1,3,0\n1,1,4,0\n0,0,5,1"
    text = arff("a {0,1}\nb {0,1}\nc numeric\nd {0,1}", rows, f"'Name: {options}' %50")
    reader = open_rows(path := write("m.arff", text))
    assert reader.format == "meka"
    data = load_dataset(path)
    assert data.label_names == labels
    assert len(data.train) == train
    assert (len(data.test) if data.test else 0) == 4 - train
    if data.test:
        assert values(join([data.train, data.test]).X) == values(reader.read().X)


def test_meka_and_xml_must_agree(write):
    text = arff("a {0,1}\nb {0,1}\nc numeric", "1,0,2", "'N: -C 2'")
    path = write("m.arff", text)
    write("m.xml", '<labels><label name="b"/></labels>')
    with pytest.raises(InputError, match=r"-C 2.*m\.xml.*format='mulan'"):
        load_dataset(path)
    assert load_dataset(path, format="mulan").label_names == ("b",)
    assert load_dataset(path, format="meka").label_names == ("a", "b")
    write("m.xml", '<labels><label name="b"/><label name="a"/></labels>')
    assert load_dataset(path).label_names == ("a", "b")


def test_weights_of_rows(write):
    path = write("w.arff", arff("x numeric\ny {0,1}", "1,0\n2,1, {0.25}\n3,1,{4} % heavy"))
    assert load_dataset(path, labels=["y"]).train.weight.tolist() == [1, 0.25, 4]
    path = write("v.arff", arff("x numeric\ny {0,1}", "{0 1}, {2}\n{}"))
    assert load_dataset(path, labels=["y"]).train.weight.tolist() == [2, 1]


def test_rows_without_a_weight_have_one_wherever_the_file_is_cut(write, monkeypatch):
    monkeypatch.setattr("spen.data.reader.BLOCK", 8)
    path = write("w.arff", arff("x numeric\ny {0,1}", "1,0\n2,1\n3,1,{0.25}\n4,0\n5,1\n6,0"))
    assert load_dataset(path, labels=["y"]).train.weight.tolist() == [1, 1, 0.25, 1, 1, 1]
    chunks = open_rows(path, labels=["y"]).chunks(4)
    assert next(chunks).weight.tolist() == [1, 1, 0.25, 1]


def test_missing_labels_make_y_dense(write):
    text = arff("x numeric\ny {0,1}\nz {0,1}", "1,0,1\n2,?,1")
    Y = load_dataset(write("q.arff", text), labels=-2).train.Y
    assert isinstance(Y, np.ndarray)
    assert Y.dtype == np.float32
    np.testing.assert_array_equal(Y, [[0, 1], [np.nan, 1]])
    table = write("q.csv", "x,y,z\n1,0,1\n2,,1\n3,NaN,?\n")
    Y = load_dataset(table, labels=["y", "z"]).train.Y
    np.testing.assert_array_equal(Y, [[0, 1], [np.nan, 1], [np.nan, np.nan]])
