"""The tables of the texts are those that commands print from committed records."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from printed import ROOT, benches, check, page, printed, rows_of, shown, tables_in, words_of

REPRODUCE, CONVERGENCE = "docs/reproduce.md", "docs/convergence.md"
PERFORMANCE, OF_TABLE2 = "docs/performance.md", "docs/table2.md"
TO_CHOOSE = "docs/how-to-choose.md"

CURVES = "table1 --study learning-curves --out paper/records/table1"
WIDTH = "table1 --study width --seeds 3 --out paper/records/table1"
KNOWN = "table1 --study known-labels --seeds 3 --out paper/records/table1"
ABLATION = "table1 --study ablation --seeds 3 --out paper/records/table1"
COSTS = "table1 --study costs --device cuda --out paper/records/table1"
CLAIMS = "claims --out paper/records/table1"
MORE_CLAIMS = "claims --dataset delicious --out paper/records/table1"
CONVERGES = "convergence --out paper/records/convergence"
DELICIOUS = "convergence --dataset delicious --seeds 1 --out paper/records/convergence"
TABLE2 = "table2 --out paper/records/table2"
DIVISIONS = "table2 --method spen-best,br-kernels --seeds 3 --out paper/records/table2"
VIOLATIONS = "table2 --study violations --out paper/records/table2"
OBJECTIVES = "objectives --dataset bibtex --seeds 2 --device cpu --out paper/records/objectives"
BENCHES = ("spen bench --device cpu", "spen bench --device cuda")

DRIFTED = {WIDTH: ("lr", "so the command makes these runs anew")}
"""A default that is another one by now than in some records, and how the text says so."""

TABLES: list[tuple[str, str, int, tuple[str, ...]]] = [
    (REPRODUCE, "| training rows |", 1, (CURVES,)),
    (REPRODUCE, "| units a layer |", 2, (WIDTH,)),
    (REPRODUCE, "| revealed |", 1, (KNOWN,)),
    (REPRODUCE, "| | one threshold |", 2, (ABLATION,)),
    (REPRODUCE, "| | training / MLP |", 1, (COSTS,)),
    (REPRODUCE, "| | the paper says |", 2, (CLAIMS, MORE_CLAIMS)),
    (CONVERGENCE, "| | median |", 2, (CONVERGES, DELICIOUS)),
    (CONVERGENCE, "| share of the batch that must converge |", 1, (CONVERGES,)),
    (CONVERGENCE, "| tolerance, at 90 % converged |", 1, (CONVERGES,)),
    (CONVERGENCE, "| tolerance | must be met |", 1, (CONVERGES,)),
    (CONVERGENCE, "| | search errors, % |", 1, (CONVERGES,)),
    (OF_TABLE2, "| | paper |", 1, (TABLE2,)),
    (OF_TABLE2, "| | violated |", 1, (VIOLATIONS,)),
    (OF_TABLE2, "| | search errors |", 1, (VIOLATIONS,)),
    (TO_CHOOSE, "| | published |", 1, (OBJECTIVES,)),
    (PERFORMANCE, "| figure | what it is | CPU: value |", 1, BENCHES),
    (PERFORMANCE, "| | CPU: ms |", 1, BENCHES),
    (PERFORMANCE, "| rule | tolerance | CPU: steps |", 1, BENCHES),
    (PERFORMANCE, "| labels | CPU: fused, µs |", 1, BENCHES),
    (PERFORMANCE, "| rows | CPU: ms |", 1, BENCHES),
    (PERFORMANCE, "| the kernel and |", 1, BENCHES),
]
"""Pages, how headers begin, how many tables have such a one, and the commands that print them."""


def said(command: str) -> str:
    drifted, _ = DRIFTED.get(command, (None, ""))
    return printed(command, drifted)


def without_data(rows: list[list[str]]) -> list[list[str]]:
    """Leave out the one claim that is about data sets themselves, which need not be here."""
    return [row for row in rows if not row[1].startswith('"% true labels"')]


@pytest.mark.parametrize(("path", "header", "count", "commands"), TABLES)
def test_tables_are_those_that_commands_print(path, header, count, commands):
    found = shown(path, header)
    assert len(found) == count
    texts = [said(command) for command in commands if command not in BENCHES]
    tables = [rows for text in texts for rows in tables_in(text)] or benches()
    for rows in found:
        check(without_data(rows), [*map(without_data, tables)])
    for command in commands:
        assert (command if command in BENCHES else f"spen reproduce {command}") in words_of(path)
        if command in DRIFTED:
            assert DRIFTED[command][1] in words_of(path)


def log(name: str) -> list[dict[str, Any]]:
    lines = page(f"paper/search/{name}.jsonl").splitlines()
    return [json.loads(line) for line in lines]


def rounded(values: list[float], cells: list[str]) -> list[str]:
    """Write values with as many digits as cells have."""
    digits = [len(cell.rpartition(".")[2]) for cell in cells]
    return [f"{value:.{n}f}".removeprefix("0") if cell.startswith(".") else f"{value:.{n}f}"
            for value, n, cell in zip(values, digits, cells, strict=True)]  # fmt: skip


HELD_OUT = {
    "best network": ("network", lambda kind: True),
    "best average": ("average", lambda kind: True),
    "with the stage, no energy": ("energy", lambda kind: kind == "none"),
    "with the best energy": ("energy", lambda kind: kind != "none"),
}


def test_what_the_search_found_is_in_its_log():
    [[_, *rows]] = shown(REPRODUCE, "| held out | Bibtex: threshold |")
    assert [row[0] for row in rows] == list(HELD_OUT)
    for title, *cells in rows:
        step, counts = HELD_OUT[title]
        values = []
        for dataset in ("bibtex", "delicious"):
            scores = [
                [line["held_out"][way] for way in ("threshold", "expected_f1")]
                for line in log("best")
                if (line["dataset"], line["step"]) == (dataset, step)
                and counts(line["point"].get("kind"))
            ]
            values += max(scores, key=sum)
        assert cells == rounded(values, cells), title


def test_how_the_energy_is_trained_was_searched_as_the_log_says():
    [[_, *rows]] = shown(REPRODUCE, "| | scores alone |")
    names = {"Yeast": "yeast", "Bibtex": "bibtex", "Delicious": "delicious"}
    names["Debian tags"] = "debian-tags"
    assert [row[0] for row in rows] == list(names)
    first = {"measurements": 256, "dropout": 0.25, "lr": 0.001}
    for title, *cells in rows:
        lines = [
            line
            for rate in (0.01, 0.03)
            for line in log("known")
            if line["dataset"] == names[title] and line["point"] == first | {"global_lr": rate}
        ]
        assert len(lines) == 2
        better = min(lines, key=lambda line: sum(map(math.log, line["losses"])))
        values = [better["scores_alone"], *better["losses"], better["point"]["global_lr"]]
        assert cells == rounded(values, cells), title


DAMPED = {
    "1,500 steps": {"steps": 1500},
    "6,000 steps": {"steps": 6000},
    "18,000 steps": {"steps": 18000},
    "weight decay .1": {"third": 1, "weight_decay": 0.1},
    "weight decay .3": {"third": 1, "weight_decay": 0.3},
    "eps 10⁻⁴ in AdamW": {"third": 1, "eps": 1e-4},
}


def test_what_was_tried_against_over_training_is_in_the_log():
    [[_, *rows]] = shown(REPRODUCE, "| held-out training rows | Delicious |")
    assert [row[0] for row in rows] == list(DAMPED)
    common = {"measurements": 256, "dropout": 0.25, "lr": 0.001, "global_lr": 0.03}
    for title, *columns in rows:
        for dataset, cell in zip(("delicious", "debian-tags", "debian-depends"), columns,
                                 strict=True):  # fmt: skip
            [line] = [
                line
                for line in log("known")
                if line["dataset"] == dataset and line["point"] == common | DAMPED[title]
            ]
            each = cell.split(" / ")
            assert each == rounded(line["losses"], each), (title, dataset)


@pytest.mark.parametrize(
    ("path", "command", "pattern"),
    [
        (OF_TABLE2, TABLE2, r"paired over folds: (\S+ ± \S+)"),
        (OF_TABLE2, DIVISIONS, r"kernel features .*?(\S+ ± \S+)"),
    ],
)
def test_figures_in_sentences_are_those_that_commands_print(path, command, pattern):
    found = re.findall(pattern, said(command))
    assert found
    for figure in found:
        # A zero has no sign there.
        assert figure.replace("-0.00", "0.00").replace("-", "−") in words_of(path), figure


def bench(name: str) -> dict[str, Any]:
    return json.loads(page(f"paper/records/bench/{name}.json"))


def test_figures_of_the_bench_in_sentences_are_those_of_its_record():
    cpu = bench("cpu")
    [ratio] = re.findall(r"inference take ([\d.]+) times the MLP's", words_of("README.md"))
    assert ratio == f"{cpu['figures']['predict_over_mlp']:.2f}"
    [steps] = re.findall(r"takes ([\d.]+) times fewer steps, to a lower", words_of(PERFORMANCE))
    rules = cpu["rules"]
    assert steps == f"{rules['paper']['steps'] / rules['default_same_tolerance']['steps']:.1f}"
    [each] = re.findall(r"Measured are (\d+) ns a row and step", words_of(PERFORMANCE))
    assert each == f"{cpu['growth_with_rows']['ns_per_row_and_step']:.0f}"


def test_what_was_tried_for_taggers_is_in_the_log():
    text = words_of(REPRODUCE)

    def scores(task: str, split: str, group: str) -> list[str]:
        wanted = task, split, group
        lines = [r for r in log("sequences") if (r["task"], r["split"], r["group"]) == wanted]
        return [f"{line['score']:.2f}" for line in lines]

    [(low, high, crf)] = re.findall(
        r"six kinds of it lay between ([\d.]+) and ([\d.]+), and the CRF at ([\d.]+):", text
    )
    tried = scores("twitter", "official", "spen")
    assert (len(tried), low, high) == (6, min(tried), max(tried))
    assert crf == max(scores("twitter", "official", "network"))
    [(best, before)] = re.findall(r"\(([\d.]+) for the CRF, against ([\d.]+) before\)", text)
    tried = scores("chunking", "official", "network")
    assert (best, before) == (max(tried), tried[0])
    [(best, before)] = re.findall(r"has ([\d.]+) % of wrong .*? against ([\d.]+) % with", text)
    tried = scores("ocr", "one-fold", "network")
    assert (best, before) == (min(tried), tried[0])


ELSEWHERE = {
    "README.md": ["| | metric |"],
    "docs/classifier.md": ["| yeast: known |", "| log loss after |", "| | label_issues |"],
    TO_CHOOSE: ["| | 1,500 rows | 15,000 rows |"],
    REPRODUCE: [
        *("| Bibtex: F1 |", "| Bibtex: difference |", "| without repeated rows |", "| before |"),
        *("| held out |", "| | scores alone |", "| | parameters |", "| energy | one block |"),
        *("| twitter, official |", "| chunking, official |", "| ocr, one-fold |"),
        *("| bibtex: known |", "| delicious: known |", "| debian-tags: known |"),
        *("| debian-depends: known |", "| | Yeast: precision |", "| | Delicious: precision |"),
        *("| Delicious: F1 |", "| Delicious: difference |", "| held-out training rows |"),
        "| Delicious, without repeated rows |",
    ],
    "docs/sequences.md": ["| energy | tweets, 25 tags |", "| rows × positions, classes |"],
}
"""Tables that other tests compare with records, here or in files beside this one."""

WITHOUT_RECORDS = {
    "docs/export.md": ["| | rows | labels differ |"],
    TO_CHOOSE: ["| units a layer | last iterate |"],
    PERFORMANCE: [
        *("| what | count a row and step |", "| ReLU (the trained `paper` model) |"),
        *("| HardTanh | tolerance |", "| rule | state beside θ, sums over L |", "| | ms |"),
        *("| | energy off by more than 10⁻⁴ |", "| labels | their scores (64 features) |"),
    ],
    "docs/processes.md": ["| | batch |"],
    REPRODUCE: ["| | Yeast | | Bibtex |"],
    OF_TABLE2: ["| kernels, ridge 0.1 |", "| stages of spen-best, ridge 0.1 |"],
}
"""Tables of which nothing is kept, as the section that they are in says."""


def begins(rows: list[list[str]], header: str) -> bool:
    [cells] = rows_of(header)
    return rows[0][: len(cells)] == cells


def of_figures(rows: list[list[str]]) -> bool:
    """Say whether a table is one of measured figures: a third of what it says begins with one."""
    cells = [cell for row in rows[1:] for cell in row[1:] if cell]
    return sum(bool(re.match(r"[×+-]? ?\.?\d", cell)) for cell in cells) > len(cells) / 3


PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]


@pytest.mark.parametrize("path", PAGES)
def test_every_table_of_figures_is_compared_or_said_to_have_no_record(path):
    compared = [header for each, header, *_ in TABLES if each == path] + ELSEWHERE.get(path, [])
    without = WITHOUT_RECORDS.get(path, [])
    told = 0
    for section in re.split(r"(?m)^#+ ", page(path)):
        for rows in filter(of_figures, tables_in(section)):
            if any(begins(rows, header) for header in without):
                assert "no record" in " ".join(section.split()).lower(), rows[0]
                told += 1
            else:
                assert any(begins(rows, header) for header in compared), rows[0]
    assert told == len(without)
