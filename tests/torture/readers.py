"""Readers of files: a million broken ones, and small ones that would fill memory.

Each is read, or refused with a sentence, within 10 times its size and 200 MB of memory. As a
program, this is the process that reads them, whose memory the system limits.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import reading
from scipy import sparse

from spen.data import load, reader, table
from spen.data.dataset import Dataset
from spen.errors import SpenError

INPUTS = 1_000_000
TIMES, MORE = 10, 200_000_000
"""What reading may take: so many times the file, and so many bytes more."""

CPU_SECONDS, BYTES_A_SECOND = 20, 50_000
"""CPU time for a single input; most take less than a thousandth."""

Found = tuple[str, str, str, bool]


def figures(scale: float) -> Iterator[Found]:
    """Yield what held, each with its goal."""
    count, workers = max(1000, round(INPUTS * scale)), os.cpu_count() or 1
    workers = min(workers, -(-count // 1000))
    began = time.perf_counter()
    ranges = [(count * k // workers, count * (k + 1) // workers) for k in range(workers)]
    done = [_start("fuzz", *span) for span in ranges]
    results = [_result(process) for process in done]
    faults = [fault for result in results for fault in result["faults"]]
    tried, read = (sum(result[key] for result in results) for key in ("tried", "read"))
    rate = tried / (time.perf_counter() - began)
    words = f"{tried:,} inputs, {read:,} of them read, {len(faults)} faults, {rate:,.0f} a second"
    words += "".join(f"\n    {fault}" for fault in faults[:5])
    yield ("fuzzed files", f"{count:,} read or refused", words, tried == count and not faults)
    size = int(20e6 * min(1.0, 25 * scale))
    result = _result(_start("grow", size))
    words = f"{result['tried']} kinds of {size / 1e6:g} MB"
    words += "".join(f"\n    {fault}" for fault in result["faults"])
    yield (
        "files that would fill memory",
        f"read within {TIMES} × the file + {MORE / 1e6:g} MB, or refused",
        words,
        not result["faults"],
    )


def _start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-m", "torture.readers", *map(str, arguments)]
    tests = Path(__file__).parent.parent
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=tests, stdout=pipe, stderr=pipe, text=True)


def _result(process: subprocess.Popen[str]) -> dict:
    out, err = process.communicate()
    if process.returncode == 0:
        return json.loads(out.splitlines()[-1])
    words = f"the process ended with {process.returncode}: {err[-2000:]}"
    return {"tried": 0, "read": 0, "faults": [words]}


# ---- Files to be broken: small, but with blocks that are smaller still.

MANY = "1.5,0,1\n-2,1,0\n'3',0,?\n4 , 1 ,0 {2}\n" * 6
NOMINAL = (
    "% one\n@RELATION 'r: -C -2 -split-number 3'\n@attribute 'a b' {red,'dark green',blue}\n"
    "@attribute c {no,yes}\n@attribute d real\n@attribute e {x,y}\n@attribute y1 {0,1}\n"
    '@attribute "y\'2" numeric\n@data\n'
)
ROWS = "red,yes,1e3,x,0,1\n'dark green',no,-.5,y,1,0 % two\nblue no 3 x 1 ?\n\n" * 4
HOLES = "{0 blue,1 yes,4 1}\n{}\n{2 -1e-3, 5 1},{0.5}\n{ 0 'dark green' , 3 y}\n{4 ?}\n" * 4
LATIN = "@relation r\n@attribute gr\u00f6\u00dfe real\n@attribute y {0,1}\n@data\n1,1\n\t2\t0\n"
LONG_XMC = "12 9 7\n" + "0,6 0:1.5 8:-1e-3 # a\n 3:2\n5\n \n" * 3
LONG_LIBSVM = "0,3 0:1.5 3:1\n# a\n 2:2\n4 1:1 2:1 3:.5\n" * 5
WIDE_CSV = '"a";b; c;y;z\n1;true;-2;0;1\n0.5;FALSE;1e3;1;?\n"7";0;+1;;0\n' * 1 + "1;0;2;1;1\n" * 9
XML = '<labels xmlns="urn:x">\n<label name="y1"><label name="y\'2"/></label></labels>\n'


def _npy(array: object) -> bytes:
    array = np.asarray(array)
    return _npy_head(array.dtype.str, array.shape) + array.tobytes()


def _npy_head(descr: str, shape: tuple[int, ...]) -> bytes:
    head = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    padded = head.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded


def _zip(members: dict[str, bytes], packed: bool = False) -> bytes:
    """Return an archive; zipfile would take longer than all the rest."""
    body, directory = b"", b""
    for name, content in members.items():
        squeeze = zlib.compressobj(1, zlib.DEFLATED, -15)
        data = squeeze.compress(content) + squeeze.flush() if packed else content
        sizes = struct.pack("<IIIHH", zlib.crc32(content), len(data), len(content), len(name), 0)
        head = struct.pack("<HHHHH", 20, 0, 8 if packed else 0, 0, 33) + sizes
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + head
        directory += struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + name.encode()
        body += b"PK\x03\x04" + head + name.encode() + data
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    return body + directory + b"PK\x05\x06" + end


X, Y = np.eye(6, 4) * 1.5, np.eye(6, 3, dtype=np.int8)
NAMES = {"feature_names": np.array(list("abc\u00e4")), "label_names": np.array(list("xyz"))}


def _csr(name: str, dense: np.ndarray) -> dict[str, object]:
    matrix = sparse.csr_matrix(dense)
    arrays = matrix.data, matrix.indices, matrix.indptr, matrix.shape
    parts = zip(("data", "indices", "indptr", "shape"), arrays, strict=True)
    return {f"{name}_{key}": array for key, array in parts}


HOLED = np.where(np.eye(6, 3) > 0, np.nan, 0).astype(np.float32)
ARCHIVES = [
    {f"{name}.npy": _npy(array) for name, array in arrays.items()}
    for arrays in (
        {"X": X, "Y": Y} | NAMES | {"train": [0, 1, 2], "valid": [3], "test": [4, 5]},
        {"X": X.astype(np.float16), "Y": HOLED},
        _csr("X", X) | _csr("Y", Y) | NAMES,
        _csr("X", X) | {"Y": Y.astype(bool), "notes": np.array(["of no use"])},
        _csr("Y", HOLED) | {"X": X.astype("<i4")},
    )
]
MEKA, TWO = {"format": None}, {"labels": ["y1", "y'2"]}
TEXTS: list[tuple[bytes, dict]] = [
    *((text, {"format": form, "labels": ["y"]} if form in ("mulan", "csv") else {"format": form})
      for text, form in reading.FILES.values() if form != "npz"),
    ((reading.HEAD + MANY).encode(), {"labels": ["y"]}),
    ((reading.HEAD + "{0 1.5,2 1}\n{}\n{1 1}\n{2 ?}\n" * 9).encode(), {"labels": -1}),
    ((NOMINAL + ROWS).encode(), MEKA), ((NOMINAL + ROWS).encode(), TWO),
    ((NOMINAL + HOLES).encode(), MEKA), ((NOMINAL + HOLES).encode(), TWO),
    (LATIN.encode("latin-1"), {"labels": ["y"]}), (LATIN.encode(), {"labels": 1}),
    (LONG_XMC.encode(), {"format": "xmc"}), (LONG_XMC.encode(), {"labels": list("abcdefg")}),
    (LONG_LIBSVM.encode(), {"format": "libsvm"}),
    (LONG_LIBSVM.encode(), {"n_features": 4, "n_labels": 5, "zero_based": True}),
    (WIDE_CSV.encode(), {"labels": ["y", "z"]}),
    (WIDE_CSV.encode(), {"format": "csv", "labels": -2}),
]  # fmt: skip
PIECES = [
    *(b"", b"0", b"1", b"-1", b"?", b"nan", b"inf", b"1e400", b"1e39", b"-0", b".", b"1_0", b"+"),
    *(b"9" * 11, b"2147483647", b"2147483648", b"4294967296", b"9223372036854775808", b"0x1"),
    *(b"{", b"}", b",", b";", b":", b" ", b"\t", b"\n", b"\r", b"\r\n", b"\n\n", b"\x00", b"\xff"),
    *(b"'", b'"', b"\\", b"\\'", b"%", b"#", b"@data\n", b"@attribute q real\n", b"@relation r"),
    *(b"{0,1}", b"{5}", b"{}", b"{a,b}", b"=", b"a=red", b"\xc3\xa4", b"\xe2\x80\xae", b"\x1b[2J"),
    *(b"-C 2", b"-split-number 9", b"<!DOCTYPE x>", b"<label/>", b"\xef\xbb\xbf", b"PK\x03\x04"),
    *(b"(6, 4)", b"(2**40, 1)", b"(99999999, 99999)", b"'<f4'", b"'<U9'", b"'|O'", b"'<U0'"),
]  # fmt: skip
NUMBER = re.compile(rb"[0-9.]+")


def broken(rng: random.Random) -> tuple[bytes, bytes | None, dict]:
    """Return a file, the XML file beside it if there is one, and how to read it."""
    kind = rng.random()
    if kind < 0.2:
        members = dict(rng.choice(ARCHIVES))
        for name in rng.sample(sorted(members), min(len(members), rng.choice((0, 1, 1, 2)))):
            members[name] = change(rng, members[name])
        if rng.random() < 0.1:
            members[rng.choice(sorted(members))] = rng.choice(list(rng.choice(ARCHIVES).values()))
        content = _zip(members, rng.random() < 0.2)
        return (content if rng.random() < 0.9 else change(rng, content)), None, {}
    if kind < 0.25:
        return rng.randbytes(rng.randrange(200)), None, {"format": rng.choice(FORMATS)}
    content, options = rng.choice(TEXTS)
    xml = XML.encode() if options is MEKA and rng.random() < 0.5 else None
    if xml is not None and rng.random() < 0.5:
        return content, change(rng, xml), {"format": rng.choice((None, "mulan"))}
    if rng.random() < 0.05:
        options = options | {"format": rng.choice(FORMATS)}
    return change(rng, content), xml, options


FORMATS = (None, *(name for name in reader.FORMATS if name != "parquet"))
"""Parquet is read by pyarrow, which may be missing."""


def change(rng: random.Random, content: bytes) -> bytes:
    """Return some bytes with a few of them cut, replaced, repeated, moved or flipped."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        start = rng.randrange(len(content) + 1)
        stop = min(len(content), start + rng.choice((0, 1, 1, 2, 4, 16, 60)))
        kind = rng.randrange(8)
        if kind < 3:
            content = content[:start] + rng.choice(PIECES) + content[stop:]
        elif kind == 3 and (numbers := list(itertools.islice(NUMBER.finditer(content), 400))):
            start, stop = rng.choice(numbers).span()
            content = content[:start] + rng.choice(PIECES[:19]) + content[stop:]
        elif kind == 4:
            content = content[:start] if rng.random() < 0.3 else content[:start] + content[stop:]
        elif kind == 5:
            content = content[:stop] + content[start:stop] * rng.choice((1, 2, 40)) + content[stop:]
        elif kind == 6 and start < len(content):
            flipped = content[start] ^ (1 << rng.randrange(8))
            content = content[:start] + bytes([flipped]) + content[start + 1 :]
        else:
            content = content[:start] + rng.randbytes(rng.randrange(4)) + content[stop:]
    return content


# ---- One file, read.


def consistent(data: Dataset) -> None:
    """Check that a data set is one: shapes that fit, indices in range, values that may be there."""
    for part in (data.train, data.valid, data.test):
        if part is None:
            continue
        if part.X.ndim == 1:  # sequences
            assert list(map(len, part.X)) == list(map(len, part.Y))
            assert {tag for tags in part.Y for tag in tags} <= set(data.label_names)
            assert all(len(tags) for tags in part.Y)
            continue
        assert part.X.shape == (len(part), len(data.feature_names))
        assert part.Y.shape == (len(part), len(data.label_names))
        for matrix in (part.X, part.Y):
            if sparse.issparse(matrix):
                matrix.check_format(full_check=True)
                assert matrix.has_canonical_format
        numbers = part.X.data if sparse.issparse(part.X) else part.X
        assert hasattr(part.X, "iloc") or np.isfinite(numbers).all()  # a DataFrame holds words
        labels = part.Y.data if sparse.issparse(part.Y) else part.Y
        assert (np.isin(labels, (0, 1)) | np.isnan(labels)).all()
    for names in (data.feature_names, data.label_names):
        assert len(names) > 1000 or len(set(names)) == len(names)


class Reader:
    """Reads files within a limit of memory and of time, and keeps what went wrong."""

    def __init__(self, folder: Path) -> None:
        self.path, self.xml = folder / "file.arff", folder / "file.xml"
        self.tried, self.read, self.faults = 0, 0, []
        self.statm = os.open("/proc/self/statm", os.O_RDONLY)
        self.most = resource.getrlimit(resource.RLIMIT_AS)[1]
        signal.signal(signal.SIGPROF, self._too_long)

    def __call__(self, name: str, content: bytes, xml: bytes | None, **options: Any) -> None:
        """Read a file, all of it or in chunks; a sentence is as good as rows."""
        self.tried += 1
        self.path.write_bytes(content)
        if xml is not None:
            self.xml.write_bytes(xml)
        chunk = options.pop("chunk", None)
        size = len(content) + len(xml or b"")
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS + size / BYTES_A_SECOND)
        self._limit(TIMES * size + MORE)
        data = None
        try:
            if chunk is None:
                data = load.load_dataset(self.path, **options)
            else:
                rows = load.open_rows(self.path, labels_required=False, **options)
                sum(len(part) for part in rows.chunks(chunk))
            self.read += 1
        except SpenError as problem:
            if not re.search(r"file\.(arff|xml)|^labels is empty", str(problem)):
                self.faults.append(f"{name}: the file is not named in: {problem}")
        except BaseException as problem:
            place = traceback.extract_tb(problem.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            self.faults.append(f"{name}: {type(problem).__name__} {problem} at {where}")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            resource.setrlimit(resource.RLIMIT_AS, (self.most, self.most))
            if xml is not None:
                self.xml.unlink()
        if data is not None:
            consistent(data)

    def _limit(self, more: int) -> None:
        """Allow the process so many bytes more than it has now."""
        size = int(os.pread(self.statm, 100, 0).split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + more, self.most))

    @staticmethod
    def _too_long(*_: object) -> None:
        raise TimeoutError("too much CPU time")


def fuzz(read: Reader, begin: int, end: int) -> None:
    """Read broken files, each drawn by its number, in blocks that are smaller than the files."""
    for number in range(begin, end):
        rng = random.Random(number)
        reader.BLOCK, reader.MOST_ENTRIES = rng.choice((16, 64, 400)), rng.choice((5, 1 << 19))
        reader.MOST_KNOWN, table.BLOCK = rng.choice((2, 1 << 16)), rng.choice((2, 1 << 20))
        reader.LONGEST_LINE = rng.choice((500, 1 << 22))
        content, xml, options = broken(rng)
        if rng.random() < 0.25:
            options = options | {"chunk": rng.choice((1, 3, 1000))}
        read(f"input {number}", content, xml, **options)


# ---- Files that would fill memory.

KINDS: dict[str, tuple[Callable[[int], bytes | tuple[bytes, bytes]], dict]] = {}


def _kind(**options: object) -> Callable:
    def keep(make: Callable) -> Callable:
        KINDS[make.__name__] = make, options
        return make

    return keep


def _filled(head: str, row: str, size: int) -> bytes:
    return head.encode() + row.encode() * (size // len(row))


def _listed(size: int, form: str, between: str = "") -> str:
    length = len(form % 10**6) + len(between)
    return between.join(form % k for k in range(10**6, 10**6 + size // length))


def _arff(attributes: str, rows: str = "{}\n") -> str:
    return f"@relation r\n{attributes}@attribute y {{0,1}}\n@data\n{rows}"


def _packed(**arrays: np.ndarray) -> bytes:
    return _zip({f"{name}.npy": _npy(array) for name, array in arrays.items()}, packed=True)


def _plain(**arrays: np.ndarray) -> bytes:
    return _zip({f"{name}.npy": _npy(array) for name, array in arrays.items()})


@_kind(format="xmc")
def rows_of_a_blank(size: int) -> bytes:
    return _filled(f"{size // 2} 3 4\n", " \n", size)


@_kind(format="xmc")
def rows_of_a_label(size: int) -> bytes:
    return _filled(f"{size // 2} 3 4\n", "1\n", size)


@_kind(format="libsvm")
def rows_of_pairs(size: int) -> bytes:
    return _filled("", "0 1:1 2:1 3:1 4:1 5:1\n", size)


@_kind(format="libsvm")
def a_long_row(size: int) -> bytes:
    return f"0 {_listed(min(size, 4 << 20), '%d:1', ' ')}\n".encode()


@_kind(format="xmc")
def two_thousand_million_features(size: int) -> bytes:
    return b"1 2000000000 4\n0 0:1\n"


@_kind(format="xmc")
def fifty_million_labels(size: int) -> bytes:
    return b"1 4 50000000\n0 0:1\n"


@_kind(labels=-1)
def empty_rows(size: int) -> bytes:
    return _filled(_arff("@attribute a real\n", ""), "{}\n", size)


@_kind(labels=-1001)
def empty_rows_and_a_missing_label(size: int) -> bytes:
    labels = "".join(f"@attribute y{k} {{0,1}}\n" for k in range(1000))
    rows = max(size, 10**6)
    return _filled(_arff(f"@attribute a real\n{labels}", "{1 ?}\n"), "{}\n", rows)


@_kind(labels=-1)
def empty_rows_that_leave_out_much(size: int) -> bytes:
    nominal = "".join(f"@attribute a{k} {{r,g,b}}\n" for k in range(250))
    return _filled(_arff(nominal, ""), "{}\n", max(size, 10**6))


@_kind(labels=-1)
def dense_rows_of_many_values(size: int) -> bytes:
    values = ",".join(f"{k:x}" for k in range(16))
    nominal = "".join(f"@attribute a{k} {{{values}}}\n" for k in range(100))
    return _filled(_arff(nominal, ""), "a," * 100 + "1\n", size)


@_kind(labels=-1)
def attributes_alone(size: int) -> bytes:
    return _arff(_listed(size, "@attribute %x real\n")).encode()


@_kind(labels=-1)
def values_alone(size: int) -> bytes:
    values = ",".join(f"{k:x}" for k in range(60_000))
    count = size // len(values)
    return _arff("".join(f"@attribute a{k} {{{values}}}\n" for k in range(count))).encode()


@_kind(labels=-1)
def a_long_name_of_many_values(size: int) -> bytes:
    values = ",".join(f"{k:x}" for k in range(6000))
    return _arff(f"@attribute {'a' * 1_000_000} {{{values}}}\n").encode()


@_kind(labels=-1)
def a_dense_row_too_long(size: int) -> bytes:
    return _arff("@attribute a real\n", "12," * (min(size, 4 << 20) // 3)).encode()


@_kind()
def nested_labels(size: int) -> tuple[bytes, bytes]:
    return reading.DENSE.encode(), b"<a>" * (size // 3)


@_kind()
def labels_alone(size: int) -> tuple[bytes, bytes]:
    listed = _listed(size, '<label name="%d"/>')
    return reading.DENSE.encode(), f"<labels>{listed}</labels>".encode()


@_kind(labels=-1, format="csv")
def columns_alone(size: int) -> bytes:
    return f"{_listed(min(size, 4 << 20), '%x', ',')}\n".encode()


@_kind(labels=-20, format="csv")
def cells_that_are_missing(size: int) -> bytes:
    return _filled("a" + "".join(f",y{k}" for k in range(20)) + "\n", "1" + "," * 20 + "\n", size)


@_kind()
def packed_zeros(size: int) -> bytes:
    rows = 40 * max(size, 10**6)
    return _packed(X=np.zeros((rows // 8, 8), np.int8), Y=np.zeros((rows // 8, 1), np.int8))


@_kind()
def packed_ones(size: int) -> bytes:
    rows = max(size, 10**6) // 2
    return _packed(X=np.zeros((rows, 1), np.int8), Y=np.ones((rows, 40), np.int8))


@_kind()
def plain_ones(size: int) -> bytes:
    return _plain(X=np.ones((size // 4, 1), np.int8), Y=np.ones((size // 4, 3), np.int8))


@_kind()
def plain_nan(size: int) -> bytes:
    nothing = np.full((size // 8, 2), np.nan, np.float16)
    return _plain(X=nothing, Y=nothing)


@_kind()
def packed_rows_and_a_missing_label(size: int) -> bytes:
    rows = max(size, 10**6) // 8
    Y = {"Y_data": [np.nan], "Y_indices": [0], "Y_indptr": np.arange(rows + 1) > 0}
    Y |= {"Y_indptr": Y["Y_indptr"].astype(np.int32), "Y_shape": [rows, 1000]}
    return _packed(X=np.ones((rows, 1), np.int8), **Y)


@_kind()
def names_of_no_characters(size: int) -> bytes:
    most = 2**31 - 2
    Y = {"Y_data": np.ones(0), "Y_indices": np.ones(0, int)}
    Y |= {"Y_indptr": [0, 0], "Y_shape": [1, most]}
    arrays = {f"{name}.npy": _npy(array) for name, array in (Y | {"X": [[1.0]]}).items()}
    return _zip(arrays | {"label_names.npy": _npy_head("<U0", (most,))})


def grow(read: Reader, size: int) -> None:
    """Read each kind of file that would take far more memory than it has bytes."""
    for name, (make, options) in KINDS.items():
        content, xml = made if isinstance(made := make(size), tuple) else (made, None)
        read(name.replace("_", " "), content, xml, **options)


def main(task: str, *numbers: str) -> None:
    """Do a task and print what it came to."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        read = Reader(Path(folder))
        {"fuzz": fuzz, "grow": grow}[task](read, *map(int, numbers))
    result = {"tried": read.tried, "read": read.read, "faults": read.faults[:20]}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
