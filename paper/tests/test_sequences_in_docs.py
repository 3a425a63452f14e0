"""The figures of sequences in the docs are those of committed records, as scripts print them."""

import importlib.util
import json
import re
import statistics
import sys
from pathlib import Path

import pytest

from spen_paper.tables import tagging

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "paper/records/sequences"


def script(name):
    path = ROOT / "paper/scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"script_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def cells(text):
    """The cells of the rows of tables in a text, without the lines below headers."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in rows]
    return [row for row in rows if not all(re.fullmatch("-*", cell) for cell in row)]


def tables(path, header):
    """The cells of each table of a page whose header begins so."""
    lines = (ROOT / path).read_text().splitlines()
    begins = [k for k, line in enumerate(lines) if line.startswith(header)]
    ends = [next(k for k in range(begin, len(lines)) if lines[k][:1] != "|") for begin in begins]
    return [cells("\n".join(lines[i:j])) for i, j in zip(begins, ends, strict=True)]


def table(path, header):
    """The cells of the one table of a page whose header begins so."""
    (found,) = tables(path, header)
    return found


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize(
    ("name", "header"), [("chains", "| rows × positions"), ("decoding", "| energy  ")]
)
def test_times_are_those_of_the_record(name, header, device):
    record = json.loads((RECORDS / f"{name}-{device}.json").read_text())
    shown = tables("docs/sequences.md", header)[device == "h200"]
    assert cells(script(name).render(record["lines"])) == shown
    text = (ROOT / "docs/sequences.md").read_text()
    for package in ("torch", "torch-struct", "pytorch-crf"):
        version = record["versions"].get(package)
        assert version is None or f"{package} {version.split('+')[0]}" in text


@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_what_is_said_of_chains_beside_others_holds(device):
    lines = json.loads((RECORDS / f"chains-{device}.json").read_text())["lines"]
    within = script("chains").WITHIN
    for line in lines:
        times = line["milliseconds"]
        assert times["spen"] < min(times["torch_struct"], times["torchcrf"])
        assert max(line["apart"].values()) < within


def test_what_is_said_of_decoding_holds():
    for line in json.loads((RECORDS / "decoding-cpu.json").read_text())["lines"]:
        times = line["milliseconds"]
        ratio = {name: each / times["local"] for name, each in times.items()}
        assert ratio["chain"] < 1.5
        assert ratio["chain + convolution, 5 steps of descent"] < 3
        assert ratio["chain + convolution, best of 16"] < 3
        assert ratio["chain + convolution, 5 structured steps"] > 3


def test_what_is_said_of_decoding_on_a_gpu_holds():
    for line in json.loads((RECORDS / "decoding-h200.json").read_text())["lines"]:
        times = line["milliseconds"]
        ratio = {name: each / times["local"] for name, each in times.items()}
        assert ratio["chain"] < 1.5
        assert ratio["chain + convolution, 5 steps of descent"] > 3
        assert ratio["chain + convolution, best of 16"] < 3


TABLES = [("twitter", "official"), ("chunking", "official")]
TABLES += [("ocr", split) for split in ("folds", "one-fold", "new-words")]


def records_of(task, split):
    lines = [
        json.loads(line)
        for path in sorted(RECORDS.glob("records*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    mine = [each for each in lines if each["dataset"] == task]
    mine = [each for each in mine if each["settings"]["split"] == split]
    return tagging.whole(mine, list(tagging.tables_of(task, split)))


@pytest.mark.parametrize(("task", "split"), TABLES)
def test_tables_are_those_of_the_records(task, split):
    names, found = records_of(task, split)
    printed = cells(tagging.render(task, split, names, found))
    # Seconds are another machine's.
    wanted = [row[:-1] for row in printed]
    assert table("docs/reproduce.md", f"| {task}, {split} ") == wanted
    text = " ".join((ROOT / "docs/reproduce.md").read_text().replace("−", "-").split())
    for remark in tagging.remarks(task, split, found):
        if pair := re.match(r"(\w+ − \w+), paired: ([+-][\d.]+(?: ± [\d.]+)?)", remark):
            assert f"{pair[1]} {pair[2]}".replace("−", "-") in text, remark


@pytest.mark.parametrize(("task", "split"), TABLES)
def test_records_are_of_the_settings_that_stand_now(task, split):
    tables = tagging.tables_of(task, split)
    for record in records_of(task, split)[1]:
        settings = {k: v for k, v in record["settings"].items() if k not in ("split", "n_test")}
        wanted = {k: v for k, v in tables[record["method"]].items() if k != "title"}
        assert settings == json.loads(json.dumps(wanted)), record["method"]


def test_what_is_said_of_letters_is_in_the_records():
    text = " ".join((ROOT / "docs/reproduce.md").read_text().split())
    lines = (RECORDS / "records-ocr.jsonl").read_text().splitlines()
    runs = [json.loads(line) for line in lines]
    mine = [r for r in runs if (r["settings"]["split"], r["method"]) == ("one-fold", "spelling")]
    errors = [r["metrics"]["letter_error"] for r in mine]
    assert len(errors) == 6
    assert f"has {min(errors):.2f} to {max(errors):.2f} % of wrong letters" in text
    _, folds = records_of("ocr", "folds")
    mean = statistics.fmean(
        r["metrics"]["letter_error"] for r in folds if r["method"] == "spelling"
    )
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"with {mean:.2f} % of letters wrong".replace("0.", ".") in readme
    _, parts = records_of("ocr", "new-words")
    found = {(r["method"], r["fold"]): r["metrics"]["letter_error"] for r in parts}
    below = {
        other: sum(found["spen", fold] < found[other, fold] for fold in range(5))
        for other in ("crf", "local")
    }
    assert below == {"crf": 5, "local": 2}
    assert "below its CRF in every part, and below its local model in two of five" in text
