"""Every figure of README's tables, and of the tables that back its claims, is that of a record.

A table in a text is compared with what the command that it names prints from committed records.
"""

import functools
import json
import re
import sys
from pathlib import Path

import pytest

import spen
from spen_paper import fits
from spen_paper.figures import mean_and_deviation
from spen_paper.studies import known, noise, questions
from spen_paper.tables import table1, table3

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "paper/records"
NUMBER = re.compile(r"[+−-]?\d*\.\d+|[+−-]?\d+")


def numbers(text: str) -> list[float]:
    """Return the numbers of a text, in their order."""
    return [float(each.replace("−", "-")) for each in NUMBER.findall(text)]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table(path: str, header: str) -> list[list[str]]:
    """Return the cells of a table in a text, which is found by how its header begins."""
    lines = (ROOT / path).read_text().splitlines()
    [first] = [number for number, line in enumerate(lines) if line.startswith(header)]
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            return rows
        rows.append(cells(line))
    return rows


def lines_of(folder: str, name: str = "records.jsonl") -> list[dict]:
    return [json.loads(line) for line in (RECORDS / folder / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def minutes():
    sys.path.insert(0, str(ROOT / "paper/scripts"))
    try:
        import first_minutes
    finally:
        sys.path.pop(0)
    return first_minutes


def test_readme_compares_as_the_script_prints(minutes, capsys):
    minutes.show(lines_of("first-minutes"))
    printed = [cells(line) for line in capsys.readouterr().out.splitlines() if "|" in line]
    keys = {"Yeast": "yeast-test", "Slashdot": "slashdot-test", "Bibtex": "bibtex-test"}
    keys["scikit-learn's generator"] = "generated"
    metrics = {"F1": "f1", "rows with every label right": "subset"}
    found, name = 0, ""
    for what, metric, theirs, ours in table("README.md", "| | metric |"):
        name = keys[what.split(",")[0]] if what else name
        rows = [row for row in printed if row[:2] == [name, metrics[metric]]]
        alone, beside = rows
        # The best of all rivals stands in README, with its name.
        rivals = [numbers(cell.partition("(")[0]) for cell in beside[2:-1] if cell != "not run"]
        assert numbers(theirs) == max(rivals, key=lambda pair: pair[0]), (what, metric)
        assert numbers(ours) == numbers(alone[3]) == numbers(beside[-1]), (what, metric)
        found += 1
    assert found >= 7


def test_what_readme_says_of_small_tables_is_in_the_records(minutes, capsys):
    minutes.show(lines_of("first-minutes"))
    lines = capsys.readouterr().out.splitlines()
    [first] = [number for number, line in enumerate(lines) if line.startswith("| F1 ")]
    gaps = []
    for line in lines[first + 2 :]:
        *rivals, ours = [numbers(cell)[0] for cell in cells(line)[1:-1]]
        gaps.append(ours - max(rivals))
    text = " ".join((ROOT / "README.md").read_text().split())
    [told] = re.findall(r"best such rival on all five, by ([\d.]+) to ([\d.]+) points", text)
    assert len(gaps) == 5
    assert [*told] == [f"{min(gaps):.1f}", f"{max(gaps):.1f}"]


NEW, BEFORE = "records.jsonl", "records-before.jsonl"


def of_table1(dataset: str, file: str = NEW) -> list[dict]:
    """Return the records of methods that were run with as many seeds as any."""
    file = "records-delicious.jsonl" if (dataset, file) == ("delicious", NEW) else file
    found = [record for record in lines_of("table1", file) if record["dataset"] == dataset]
    seeds: dict[str, set[int]] = {}
    for record in found:
        seeds.setdefault(record["method"], set()).add(record["seed"])
    most = max(map(len, seeds.values()))
    return [record for record in found if len(seeds[record["method"]]) == most]


def printed_rows(text: str) -> dict[str, list[str]]:
    return {row[0]: row for row in map(cells, text.splitlines())}


DATASETS = {"bibtex": "Bibtex", "delicious": "Delicious"}
BY_TITLE = {table1.TITLES[name]: name for name in ("mlp", "mlp-best", "spen-single", "spen-best")}


@functools.cache
def printed_pairs(dataset: str) -> dict[str, list[str]]:
    return printed_rows(table1.render_pairs(of_table1(dataset)))


def methods_of(dataset: str) -> list[str]:
    return [n for n in table1.TITLES if any(r["method"] == n for r in of_table1(dataset))]


@pytest.mark.parametrize("dataset", DATASETS)
def test_table_1_is_that_of_its_records(dataset):
    names = methods_of(dataset)
    assert dataset == "delicious" or names == [*table1.TITLES]
    printed = printed_rows(table1.render(dataset, names, of_table1(dataset)))
    rows = table("docs/reproduce.md", f"| {DATASETS[dataset]}: F1 ")
    assert len(rows) == len(names)
    text = (ROOT / "docs/reproduce.md").read_text()
    assert dataset == "bibtex" or f"--method {','.join(names)}" in text
    for title, *figures in rows:
        assert [figure.strip("*") for figure in figures] == printed[title][1:], title


@pytest.mark.parametrize("dataset", DATASETS)
def test_what_the_energy_adds_is_that_of_the_records(dataset):
    printed = printed_pairs(dataset)
    rows = table("docs/reproduce.md", f"| {DATASETS[dataset]}: difference ")
    assert len(rows) == len(table1.PAIRS)
    for name, *figures in rows:
        assert [each.replace("−", "-") for each in figures] == printed[name][1:], name


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_table_of_before_is_that_of_its_records(dataset):
    old = of_table1(dataset, BEFORE)
    names = [name for name in table1.TITLES if any(r["method"] == name for r in old)]
    printed = printed_rows(table1.render(dataset, names, old))
    rows = table("docs/reproduce.md", "| before ")
    assert len(rows) == len(names) == 9
    for title, *figures in rows:
        part = figures[:2] if dataset == "bibtex" else figures[2:]
        assert part == printed[title][3:5], title


REPEATED = {"bibtex": "| without repeated rows ", "delicious": "| Delicious, without repeated "}


@pytest.mark.parametrize("dataset", DATASETS)
def test_figures_without_repeated_rows_are_those_of_the_records(dataset):
    try:
        data = fits.dataset_of(dataset)
    except spen.InputError:
        pytest.skip("which test rows repeat a training row is told by the set, not here")
    said, _, printed, _ = table1.without_repeated(of_table1(dataset), data)
    assert ("21 of 2,515" if dataset == "bibtex" else "871 of 3,185") in said
    rows = table("docs/reproduce.md", REPEATED[dataset])
    assert len(rows) == len(methods_of(dataset))
    for title, *figures in rows:
        assert figures == printed_rows(printed)[title][1:], title


def test_what_readme_says_of_table_1_is_in_its_records():
    text = " ".join((ROOT / "README.md").read_text().split())
    [found] = re.findall(
        r"Bibtex has (.*?) \(.*?worth (.*?) \((.*?) under .*?"
        r"Delicious (\S+ ± \S+) \(.*?, worth (\S+ ± \.\d)",
        text,
    )
    bibtex, worth, worth_expected, delicious, worth_there = found
    for dataset, words in (("bibtex", bibtex), ("delicious", delicious)):
        scores = table1.scores_of(of_table1(dataset), "spen-best", "threshold")
        assert numbers(words) == numbers(mean_and_deviation(list(scores.values())))
    # The error is that over test rows.
    gap, there = (printed_pairs(name)["spen-best − control-best"] for name in DATASETS)
    for words, over_seeds, over_rows in (
        (worth, gap[1], gap[2]),
        (worth_expected, gap[5], gap[6]),
        (worth_there, there[1], there[2]),
    ):
        told = [numbers(over_seeds)[0], numbers(over_rows)[0]]
        assert numbers(words) == [round(each, 1) for each in told]


def test_table_3_is_that_of_its_records():
    names = [*table3.methods_for(1500)]
    sizes = sorted({record["n_train"] for record in lines_of("table3")})
    printed = printed_rows(table3.render(names, sizes, lines_of("table3")))
    rows = table("docs/reproduce.md", "| " + " " * 59 + " | parameters |")
    assert len(rows) == len(names)
    for title, *figures in rows:
        assert figures == printed[title][1:], title
    for title, *figures in table("docs/how-to-choose.md", "| " + " " * 59 + " | 1,500 rows |"):
        assert figures == [printed[title][2], printed[title][4]], title


def test_the_table_of_measurements_is_that_of_its_records(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="the study draws before it prints")
    (tmp_path / "records.jsonl").write_text(
        (RECORDS / "structure/records.jsonl").read_text(encoding="utf-8"), encoding="utf-8"
    )
    table3.structure(3, tmp_path)
    printed = printed_rows(capsys.readouterr().out)
    rows = table("docs/reproduce.md", "| energy                | one block ")
    assert len(rows) == len(table3.CASES)
    for title, *figures in rows:
        assert figures == printed[title][1:], title


def known_records(dataset: str) -> list[dict]:
    """Return the records of each seed, by method."""
    seeds: dict[int, dict] = {}
    titles = {"SPENClassifier": "spen", "KnownLabelsClassifier": "conditional"}
    for record in lines_of("known"):
        if record["dataset"] == dataset:
            seeds.setdefault(record["seed"], {})[record["method"]] = record
            assert record["method"] == "local" or (
                titles[record["settings"]["classifier"]] == record["method"]
            )
    return list(seeds.values())


SHOWN = {"nothing": "0 %", "1 of the true labels": "1 named", "2": "2 named", "3": "3 named"}


@pytest.mark.parametrize("dataset", sorted({r["dataset"] for r in lines_of("known")}))
def test_tables_of_known_labels_are_those_of_their_records(dataset):
    found, heading = known_records(dataset), f"| {dataset}: known |"
    rows = table("docs/classifier.md" if dataset == "yeast" else "docs/reproduce.md", heading)
    assert len(rows) == len(known.REVEALINGS)
    for words, *columns in rows:
        way = SHOWN.get(words, words)
        for name, cell in zip(known.MADE, columns, strict=False):
            wanted = [*map(float, known._means(found, name, way))]
            assert numbers(cell.replace("*", "")) == wanted, (dataset, words, name)
        assert numbers(columns[3]) == numbers(known.relative_gap(found, way)), (dataset, words)


def test_what_readme_says_of_known_labels_is_in_the_records():
    text = " ".join((ROOT / "README.md").read_text().split())
    [(half, scores, told)] = re.findall(
        r"half of Yeast's labels told, .*? log loss of (\.\d+), .*? have (\.\d+) .*? has (\.\d+)",
        text,
    )
    found = known_records("yeast")
    for name, words in zip(known.MADE, (half, told, scores), strict=True):
        mean = float(known._means(found, name, "50 %")[0])
        assert words == f"{mean:.3f}".removeprefix("0")


def test_what_readme_says_of_known_labels_on_bibtex_is_in_the_records():
    text = " ".join((ROOT / "README.md").read_text().split())
    [numbers_of] = re.findall(r"on Bibtex (\.\d+), (\.\d+) and (\.\d+);", text)
    found = known_records("bibtex")
    for name, words in zip(("spen", "local", "conditional"), numbers_of, strict=True):
        mean = float(known._means(found, name, "50 %")[0])
        assert words == f"{mean:.4f}".removeprefix("0")


def test_what_readme_says_of_known_labels_on_larger_sets_is_in_the_records():
    text = " ".join((ROOT / "README.md").read_text().split())
    [told] = re.findall(r"on three larger sets, .*? it is ahead .*? by (\d) to (\d) %", text)
    sets = ("delicious", "debian-tags", "debian-depends")
    gaps = [numbers(known.relative_gap(known_records(name), "50 %"))[0] for name in sets]
    assert [-float(each) for each in told] == [round(max(gaps)), round(min(gaps))]


PLANTED = {"yeast": "Yeast", "bibtex": "Bibtex", "delicious": "Delicious",
           "debian-tags": "Debian tags"}  # fmt: skip


def planted_records(dataset: str) -> dict[str, dict]:
    found = [record for record in lines_of("noise") if record["dataset"] == dataset]
    assert {record["seed"] for record in found} == {0}
    return {record["method"]: record for record in found}


@pytest.mark.parametrize(("first", "second"), [("yeast", "bibtex"), ("delicious", "debian-tags")])
def test_tables_of_planted_errors_are_those_of_their_records(first, second):
    both = planted_records(first), planted_records(second)
    by_title = {title: name for name, title in noise.TITLES.items()}
    rows = table("docs/reproduce.md", f"| | {PLANTED[first]}: precision |")
    assert len(rows) == len(noise.TITLES) + 1
    for title, *figures in rows:
        wanted = [
            each[by_title[title]]["metrics"][name] if title in by_title else each["spen"]["chance"]
            for each in both
            for name in noise.METRICS
        ]
        assert figures == [f"{value:.1f}" for value in wanted], title


def test_planted_errors_in_short_are_those_of_their_records():
    rows = table("docs/classifier.md", "| | label_issues | cleanlab, label-wise scores |")
    assert len(rows) == len(PLANTED)
    for (words, *figures), dataset in zip(rows, PLANTED, strict=True):
        found = planted_records(dataset)
        assert words == f"{PLANTED[dataset]} ({found['spen']['planted']:,} errors)"
        names = ("spen", "cleanlab-mlp", "cleanlab-spen")
        assert figures == [f"{found[name]['metrics']['precision']:.1f}" for name in names]
    text = " ".join((ROOT / "README.md").read_text().split())
    [(least, most)] = re.findall(r"found ([\d.]+) to ([\d.]+) times as often as by cleanlab", text)
    ratios = []
    for dataset in PLANTED:
        found = {name: r["metrics"]["precision"] for name, r in planted_records(dataset).items()}
        ratios.append(found.pop("spen") / max(found.values()))
    assert (least, most) == (f"{min(ratios):.1f}", f"{max(ratios):.1f}")


@pytest.mark.parametrize("dataset", ["delicious", "debian-tags"])
def test_tables_of_questions_are_those_of_their_records(dataset):
    found: dict[int, dict[str, dict]] = {}
    for record in lines_of("questions", f"records-{dataset}.jsonl"):
        key = questions._key(record["method"], record["settings"]["asked"])
        found.setdefault(record["seed"], {})[key] = record
    seeds = list(found.values())
    scores = {
        name: {n: questions._mean_of(seeds, name, n) for n in questions.ASKED}
        for name in questions.STRATEGIES
    }
    printed = printed_rows(questions.table(scores, "log_loss"))
    rows = table("docs/classifier.md", f"| log loss after | {PLANTED[dataset]}: ours |")
    assert [row[0] for row in rows] == [str(n) for n in questions.ASKED]
    for count, *figures in rows:
        ours, doubt, chance, gap, _ = printed[count][1:]
        assert [figure.strip("*") for figure in figures[:3]] == [ours, doubt, chance]
        assert figures[3] == ("" if count == "0" else gap)
