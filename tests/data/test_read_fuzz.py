"""Random files: every reader gives a consistent data set or an error that names the file."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import DENSE, FILES
from torture import readers
from torture.readers import consistent

from spen.data.load import load_dataset
from spen.errors import InputError

PIECES = st.sampled_from(
    [
        *(b"", b"0", b"1", b"9" * 11, b"-1", b"?", b"nan", b"1e400", b"{", b"}", b",", b":", b" "),
        *(b"\n", b"\r\n", b"\x00", b"\xff", b"%", b"#", b"'", b'"', b"\\", b"@data\n", b"{0,1}"),
        *(b"\t", b"\xc3\xa4", b"@attribute y numeric\n", b"2147483648", b"0x1", b"1.5.5", b"{5}"),
    ]
)


@st.composite
def mutated(draw):
    """Draw a good file with some of its bytes cut, replaced, repeated or moved."""
    content, form = FILES[draw(st.sampled_from(sorted(FILES)))]
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        stop = min(len(content), start + draw(st.integers(0, 8)))
        kind = draw(st.sampled_from(["replace", "replace", "cut", "repeat"]))
        if kind == "replace":
            content = (
                content[:start] + draw(st.one_of(PIECES, st.binary(max_size=4))) + content[stop:]
            )
        elif kind == "cut":
            content = content[:start]
        else:
            content = content[:stop] + content[start:]
    return content, form


def read_or_refuse(path: Path, form: str | None) -> None:
    options = {"labels": ["y"]} if form in ("mulan", "csv") else {}
    try:
        data = load_dataset(path, format=form, **options)
    except InputError as problem:
        said = str(problem)
    else:
        consistent(data)
        return
    assert str(path) in said


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "file"


@pytest.mark.parametrize("name", FILES)
def test_the_files_to_be_mutated_are_good(scratch, name):
    content, form = FILES[name]
    scratch.write_bytes(content)
    labels = {"labels": ["y"]} if form in ("mulan", "csv") else {}
    consistent(load_dataset(scratch, **labels))
    read_or_refuse(scratch, form)


@settings(max_examples=600)
@given(case=mutated(), named=st.booleans())
def test_mutated_files_are_read_or_refused(scratch, case, named):
    content, form = case
    scratch.write_bytes(content)
    read_or_refuse(scratch, form if named else None)


@settings(max_examples=300)
@given(
    content=st.binary(max_size=200), form=st.sampled_from([None, *(f for _, f in FILES.values())])
)
def test_other_bytes_are_refused(scratch, content, form):
    scratch.write_bytes(content)
    read_or_refuse(scratch, form)


@settings(max_examples=200)
@given(content=st.binary(max_size=100))
def test_other_bytes_as_xml_are_refused(scratch, content):
    scratch.with_name("a.arff").write_text(DENSE)
    scratch.with_name("a.xml").write_bytes(b"<labels>" + content)
    with pytest.raises(InputError):
        load_dataset(scratch.with_name("a.arff"))


def test_broken_files_and_files_that_would_fill_memory():
    """The short form of ``make torture``."""
    assert [found for *found, reached in readers.figures(0.0002) if not reached] == []
