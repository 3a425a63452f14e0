"""The commands on tables with words, text and tags."""

import csv
import gzip
import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest

import spen
from spen.cli.app import main

FIT = ("--hidden", "4", "--epochs", "2", "--json")


def run(*arguments):
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code or 0
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    words = {"sun": "warm and bright", "sea": "salt and waves", "snow": "cold and white"}
    rows = []
    for i in range(60):
        tags = [tag for tag in words if rng.random() < 0.5]
        body = " ".join(["A post,\nno", str(i), *(words[tag] for tag in tags)])
        rows.append({"id": i, "body": body, "place": "north" if i % 3 else "", "tags": tags})
    with (path / "posts.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row | {"tags": ";".join(row["tags"])} for row in rows)
    with gzip.open(path / "posts.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    options = ("--text", "body", "--drop", "id", "--labels", "tags", "--out", path / "m.spen")
    code, out, err = run("fit", path / "posts.csv", *options, *FIT)
    assert code == 0, err
    assert json.loads(out)["labels"] == 3
    return path


def test_a_model_of_posts_predicts_and_is_judged(folder):
    model = spen.load(folder / "m.spen")
    assert {column.name for column in model.encoder_.columns_} == {"body", "place"}
    outputs = []
    for name in ("posts.csv", "posts.jsonl.gz"):
        code, out, err = run("predict", folder / "m.spen", folder / name, "--out", "-")
        assert code == 0, err
        outputs.append(out)
        code, out, err = run("evaluate", folder / "m.spen", folder / name, "--json")
        assert code == 0, err
        outputs.append(json.loads(out)["metrics"])
    assert outputs[0] == outputs[2], "a JSON null and an empty cell are the same"
    assert outputs[1] == outputs[3]
    assert len(outputs[0].splitlines()) == 61
    page = folder / "page.html"
    code, _, err = run("report", folder / "m.spen", "--data", folder / "posts.csv", "--out", page)
    assert code == 0, err
    assert "sea" in page.read_text()


def test_fit_says_what_it_took_columns_for(folder, tmp_path):
    options = ("--labels", "tags", "--out", tmp_path / "m.spen", *FIT)
    code, out, err = run("fit", folder / "posts.csv", *options)
    assert code == 0, err
    assert json.loads(out)["columns"] == {"id": "number", "body": "text", "place": "category"}
    code, out, err = run("fit", folder / "posts.csv", *options[:3], tmp_path / "n.spen", *FIT[:-1])
    assert code == 0, err
    assert re.search(r"\| columns of text +\| body +\|", out)
    assert re.search(r"\| columns of categories +\| place +\|", out)


def test_rows_to_predict_need_no_tags_and_no_order(folder):
    (folder / "new.csv").write_text("place,body\nnorth,warm and bright\n")
    code, out, err = run("predict", folder / "m.spen", folder / "new.csv", "--out", "-")
    assert (code, len(out.splitlines())) == (0, 2), err
    (folder / "less.csv").write_text("place\nnorth\n")
    code, _, err = run("predict", folder / "m.spen", folder / "less.csv", "--out", "-")
    assert code != 0
    assert "lacks the column 'body'" in err


def test_tags_that_the_model_does_not_know_are_left_out_and_named(folder):
    (folder / "other.csv").write_text("body,place,tags\nwarm,north,sun;rain\ncold,north,snow\n")
    code, out, err = run("evaluate", folder / "m.spen", folder / "other.csv", "--json")
    assert code == 0, err
    assert "1 labels of" in err
    assert "rain" in err
    assert json.loads(out)["rows"] == 2


def test_a_model_of_lists_is_fitted_without_options(folder):
    out = folder / "lines.spen"
    code, text, err = run("fit", folder / "posts.jsonl.gz", "--out", out, *FIT)
    assert code == 0, err
    assert json.loads(text)["labels"] == 3
    code, _, err = run("evaluate", out, folder / "posts.jsonl.gz", "--json")
    assert code == 0, err
