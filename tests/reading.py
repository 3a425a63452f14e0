"""Small files of every format, and what the tests of readers share."""

import gzip
import io
import tracemalloc
from contextlib import contextmanager

import numpy as np
from scipy import sparse

XMC = "4 3 5\n2,0 0:1.5 2:-2\n 1:1\n4\n \n"

WEATHER = """% a comment
@RELATION weather

@Attribute 'wind speed' REAL
@attribute sunny {0,1}
@attribute rain {0,1}
@attribute snow numeric
@DATA
1.5,1,0,1
% another comment

-2e-1, 0, 1, 0
"""
WEATHER_XML = '<labels xmlns="urn:x"><label name="snow"/><label name="rain"></label></labels>'

HEAD = "@relation r\n@attribute a numeric\n@attribute b {0,1}\n@attribute y {0,1}\n@data\n"
DENSE = HEAD + "1.5,0,1\n-2,1,0\n"
SPARSE = HEAD + "{0 1.5,2 1}\n{}\n{1 1}\n"
MEKA = HEAD.replace("@relation r", "@relation 'r: -C -1 -split-number 1'") + "1,0,1\n2,1,0\n"
SMALL_XMC = "2 3 4\n0,3 0:1.5 2:1\n 1:2\n"
LIBSVM = "0,3 1:1.5 3:1\n 2:2\n"
CSV = "a,b,y\n1.5,0,1\n-2,1,0\n"
WORDS = 'a,b,y\nsun,"two\nlines",sun;sea\n,0,\n'
SENTENCES = "the DT B-NP\ndog NN I-NP\n\nbarks VBZ B-VP\n"
LINES = '{"a": "sun", "y": ["sea"]}\n{"a": 1.5, "b": null, "y": []}\n'


def arff(attributes: str, rows: str, relation: str = "r") -> str:
    lines = "\n".join(f"@attribute {line}" for line in attributes.split("\n"))
    return f"@relation {relation}\n{lines}\n@data\n{rows}\n"


def values(matrix) -> list:
    return (matrix.toarray() if sparse.issparse(matrix) else matrix).tolist()


def npz(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def csr_parts(**changes):
    parts = {"data": [1, 1], "indices": [0, 2], "indptr": [0, 1, 2], "shape": [2, 3]} | changes
    return {f"X_{key}": value for key, value in parts.items()}


DENSE_NPZ = npz(X=[[1.5, 0], [0, 1]], Y=[[1], [0]], train=[0], test=[1])
FILES = {
    "dense.arff": (DENSE.encode(), "mulan"),
    "sparse.arff": (SPARSE.encode(), "mulan"),
    "meka.arff": (MEKA.encode(), "meka"),
    "xmc.txt": (SMALL_XMC.encode(), "xmc"),
    "libsvm.txt": (LIBSVM.encode(), "libsvm"),
    "table.csv": (CSV.encode(), "csv"),
    "words.csv": (WORDS.encode(), "csv"),
    "packed.csv.gz": (gzip.compress(WORDS.encode(), mtime=0), "csv"),
    "lines.jsonl": (LINES.encode(), "jsonl"),
    "sentences.conll": (SENTENCES.encode(), "conll"),
    "dense.npz": (DENSE_NPZ, "npz"),
    "sparse.npz": (npz(**csr_parts(), Y=[[1], [0]]), "npz"),
}


@contextmanager
def little_memory(megabytes: int = 64):
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes << 20
    finally:
        tracemalloc.stop()
