"""ARFF and XML files that are wrong: an error that says where."""

import pytest
from reading import DENSE, HEAD, MEKA, arff, little_memory

from spen.batch.limits import limits
from spen.data.load import load_dataset, open_rows
from spen.errors import InputError


def arff_cases():
    rows = "a.arff, line 6"
    return [
        ("1,0", f"{rows}, character 4: the row has 2 values, but the file declares 3"),
        ("1,0,1,1", f"{rows}, character 6: the row goes on after its last value with ',1'"),
        ("1,,1", f"{rows}, character 3: expected a value; received ',1'"),
        ("1,2,1", f"{rows}, character 3: attribute 'b' holds '2', which is not one of its values"),
        ("x,0,1", f"{rows}, character 1: attribute 'a' holds 'x', which is not a number"),
        ("nan,0,1", "attribute 'a' holds 'nan', which is not a number"),
        ("1e39,0,1", "attribute 'a' holds '1e39', which is too large for single precision"),
        ("-inf,0,1", "not a number"),
        ("1_0,0,1", "not a number"),
        ("?,0,1", f"{rows}, character 1: attribute 'a' is missing (?). Fill it, or drop the row."),
        ("1,?,1", "attribute 'b' is missing"),
        ("1,0,2", "attribute 'y' holds '2'"),
        ("1,0,1\n{0 1}", "line 7, character 1: a sparse row in a file whose first row is dense"),
        ("{0 1}\n1,0,1", "line 7, character 1: a dense row in a file whose first row is sparse"),
        ("{0 1", f"{rows}, character 5: expected a comma or }} after a value. The file may be cut"),
        ("{0 1,", f"{rows}, character 6: expected the number of an attribute"),
        ("{0 1,2", f"{rows}, character 7: expected a value for attribute number 2"),
        ("{3 1}", f"{rows}, character 2: attribute number 3 is out of range: the file declares 3"),
        ("{99999999999999999999 1}", "expected the number of an attribute"),
        ("{-1 1}", f"{rows}, character 2: expected the number of an attribute, counted from 0"),
        ("{0 1,0 2}", f"{rows}, character 6: attribute number 0 stands twice"),
        ("{0 1}}", "the row goes on after its last value"),
        ("1,0,1, {-2}", f"{rows}, character 9: a row's weight must be zero or more"),
        ("1,'0,1", f"{rows}, character 3: expected a value"),
        ("1,0,1\n\n%c\n1,\x00,1", "line 9, character 3: attribute 'b' holds '\\x00'"),
    ]


@pytest.mark.parametrize(("rows", "what"), arff_cases())
def test_arff_rows(tmp_path, rows, what):
    path = tmp_path / "a.arff"
    path.write_text(HEAD + rows)
    with pytest.raises(InputError) as caught:
        load_dataset(path, labels=["y"])
    assert what in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("head", "what"),
    [
        ("", "line 1: the file ends before @data. Is it cut short?"),
        ("@relation r\n@attribute a numeric\n", "line 2: the file ends before @data"),
        ("@relation r\n@attribute a real\n@data 1\n", "line 3: rows must start on the line after"),
        ("@relation r\n@data\n1\n", "line 2: no @attribute stands before @data"),
        ("@relation r\n@attribute\n@data\n", "line 2, character 11: expected @attribute NAME TYPE"),
        ("@relation r\n@attribute a\n@data\n", "line 2, character 13: attribute 'a' has the type"),
        ("@relation r\n@attribute a text\n", "line 2: the file ends before @data"),
        ("@relation r\n@attribute a string\n@data\n", "attribute 'a' is of type string"),
        ("@relation r\n @attribute a date 'y'\n@data\n", "line 2, character 15: attribute 'a' is"),
        ("@relation r\n@attribute 'a numeric\n@data\n", "line 2, character 12: expected @attrib"),
        ("@relation r\n@attribute a {0,1\n@data\n", "must be separated by commas and end with }"),
        ("@relation r\n@attribute a {}\n@data\n", "must be separated by commas"),
        ("@relation r\n@attribute a {0,0}\n@data\n", "lists the value '0' twice"),
        ("@relation r\n@attribute a {0,1} 2\n@data\n", "after the values of attribute 'a' stands"),
        (
            "@relation r\n@attribute a numeric\n%\n@attribute 'a' {0,1}\n@data\n",
            "line 4, character 12: the attribute 'a' was declared in line 2 already",
        ),
        ("@relation r\n  attribute a numeric\n", "line 2, character 3: expected @relation"),
        ("\xff\xfe@\x00r\x00", "line 1: this is UTF-16 text"),
    ],
)
def test_arff_heads(tmp_path, head, what):
    path = tmp_path / "a.arff"
    path.write_bytes(head.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        load_dataset(path, labels=1, format="mulan")
    assert what in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("relation", "what"),
    [
        ("-C x", "option -C must be a number; received 'x'"),
        ("-C 3", "has 3 attributes; 3 of them cannot be the labels"),
        ("-C 0", "does not say which attributes are labels"),
        ("-C 1 -split-number 2", "its first 2 rows are for training, but it has 2"),
        ("-C 1 -split-number -1", "its first -1 rows are for training"),
        ("-C 1 -split-percentage 1e999", "must be a number"),
        ("-C -3000000000", "cannot be the labels"),
    ],
)
def test_meka_options(tmp_path, relation, what):
    path = tmp_path / "a.arff"
    path.write_text(MEKA.replace("-C -1 -split-number 1", relation).replace("a numeric", "a {1,2}"))
    with pytest.raises(InputError, match=what):
        load_dataset(path, labels=["y"] if "split" in relation else None)


@pytest.mark.parametrize(
    ("xml", "what"),
    [
        ("", "no element found"),
        ("<labels><label name='y'>", "l.xml, line 1, character 25: this is not XML"),
        ("<labels/>", "names no labels"),
        ("<labels>\n<label/></labels>", "line 2: a <label> must have a name"),
        ("<labels><label name='y'/><label name='y'/></labels>", "listed twice"),
        ("<labels><label name='z'/></labels>", "has no attribute 'z'. Choose from: a, b, y"),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><labels><label name='y'/></labels>", "document type"),
        ("<?xml version='1.0' encoding='none'?><labels/>", "unknown encoding"),
        ("<labels><label name='a'/></labels>", "'a' is a label and holds '1.5'; expected 0 or 1"),
        ("\x00\x01", "this is not XML"),
    ],
)
def test_xml(tmp_path, xml, what):
    (tmp_path / "l.xml").write_text(xml)
    (tmp_path / "a.arff").write_text(DENSE)
    with pytest.raises(InputError) as caught:
        load_dataset(tmp_path / "a.arff", labels=tmp_path / "l.xml")
    assert what in str(caught.value)


def test_xml_that_would_grow_without_bound(tmp_path):
    entities = "".join(f"<!ENTITY e{i} '{f'&e{i - 1};' * 10}'>" for i in range(1, 30))
    xml = f"<!DOCTYPE l [<!ENTITY e0 'ha'>{entities}]><labels><label name='&e29;'/></labels>"
    (tmp_path / "l.xml").write_text(xml)
    (tmp_path / "a.arff").write_text(DENSE)
    with little_memory(), pytest.raises(InputError, match="document type or entity"):
        load_dataset(tmp_path / "a.arff", labels=tmp_path / "l.xml")


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "{}" + " " * 10**6 + "x",
        HEAD + "1,0,1" + " " * 10**6 + "x",
        HEAD.replace("{0,1}", "{0" + " " * 10**6),
        HEAD.replace("{0,1}", "{'0" + "\\'" * 10**6),
        HEAD + "'" + "\\'" * 10**6,
    ],
    ids=["sparse row", "dense row", "values", "quote", "quoted value"],
)
def test_blanks_and_quotes_without_end_cost_no_time(tmp_path, text):
    path = tmp_path / "a.arff"
    path.write_text(text)
    with pytest.raises(InputError):
        load_dataset(path, labels=["y"])


def test_blanks_without_end_are_not_remembered(tmp_path):
    path = tmp_path / "a.arff"
    path.write_text(HEAD + "".join(f"{{0{' ' * (1_000_000 + i)}1}}\n" for i in range(40)))
    with little_memory(16):
        reader = open_rows(path, labels=["y"])
        assert sum(chunk.X.sum() for chunk in reader.chunks(rows=1)) == 40


def test_attributes_of_too_many_values(tmp_path):
    path = tmp_path / "a.arff"
    path.write_text(HEAD.replace("numeric", f"{{{','.join(map(str, range(70_000)))}}}"))
    with little_memory(), pytest.raises(InputError, match="'a' lists more than 65536 values"):
        load_dataset(path, labels=["y"])


def test_rows_that_stand_for_far_more_than_they_say(tmp_path, monkeypatch):
    monkeypatch.setattr("spen.data.reader.MOST_ENTRIES", 10_000)
    monkeypatch.setattr(limits, "growth", 1 << 18)
    attributes = "".join(f"@attribute a{i} {{1,0}}\n" for i in range(200))
    path = tmp_path / "a.arff"
    path.write_text(f"@relation r\n{attributes}@data\n" + "{}\n" * 1000)
    match = r"a\.arff has 8 KiB, but reading it takes matrices of .*SPEN_LIMIT_GROWTH="
    with pytest.raises(InputError, match=match):
        load_dataset(path, labels=1)
    assert sum(len(chunk) for chunk in open_rows(path, labels=1).chunks()) == 1000
    names = "".join(f"@attribute y{i} {{0,1}}\n" for i in range(50))
    rows = "{}\n" * 1000 + "{1 ?}\n"
    path.write_text(f"@relation r\n@attribute a real\n{names}@data\n{rows}")
    with pytest.raises(InputError, match="a dense matrix, since labels are missing, of 392 KiB"):
        load_dataset(path, labels=-50)
    monkeypatch.setattr(limits, "growth", 1 << 20)
    assert len(load_dataset(path, labels=-50).train) == 1001
    monkeypatch.setattr(limits, "table", 100_000)
    with pytest.raises(InputError, match=r"holds a dense matrix, since.*SPEN_LIMIT_TABLE="):
        load_dataset(path, labels=-50)


@pytest.mark.parametrize(
    ("attributes", "line", "first", "name"),
    [
        ("a {b,c,d}\n'a=b' numeric", 3, 2, "a=b"),
        ("'a=b' numeric\na {b,c,d}", 3, 2, "a=b"),
        ("a {'b=c',d,e}\nz real\n'a=b' {c,d,e}", 4, 2, "a=b=c"),
        ("colour {green,red}\n'colour=red' {no,yes}", 3, 2, "colour=red"),
    ],
)
def test_no_two_features_have_one_name(tmp_path, attributes, line, first, name):
    path = tmp_path / "a.arff"
    path.write_text(arff(f"{attributes}\ny {{0,1}}", ""))
    with pytest.raises(InputError) as caught:
        load_dataset(path, labels=["y"])
    assert f"a.arff, line {line}: " in str(caught.value)
    assert f"is called {name!r}, as one of line {first} is. Rename either" in str(caught.value)


def test_labels_are_named_once(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("1 1 2\n0 0:1\n")
    with pytest.raises(InputError, match="labels names 'rain' twice"):
        load_dataset(path, labels=["rain", "rain"])
