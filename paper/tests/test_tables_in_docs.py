"""The tables of the texts are those that commands print from committed records."""

from __future__ import annotations

import json
import math
import re
import statistics
from typing import Any

import pytest
from printed import (
    ROOT,
    benches,
    check,
    page,
    printed,
    printed_by_script,
    rows_of,
    shown,
    tables_in,
    words_of,
)

REPRODUCE, CONVERGENCE = "docs/reproduce.md", "docs/convergence.md"
PERFORMANCE, OF_TABLE2 = "docs/performance.md", "docs/table2.md"
TO_CHOOSE, TO_EXPORT = "docs/how-to-choose.md", "docs/export.md"
OF_CLASSIFIER, LARGE, PROCESSES = "docs/classifier.md", "docs/large.md", "docs/processes.md"

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
SCRIPTS, COST = "python paper/scripts", "paper/records/costs"
EPOCHS = f"{SCRIPTS}/costs.py epochs --out {COST}"
SHORTLIST = f"{SCRIPTS}/costs.py shortlist --out {COST}"
BY_PROCESSES = f"{SCRIPTS}/costs.py processes --repeats 9 --out {COST}"
BOOKMARKS = f"{SCRIPTS}/costs.py bookmarks --out {COST}"
MANY_LABELS = f"{SCRIPTS}/costs.py labels --out {COST}"
STEPS = f"{SCRIPTS}/steps.py --out paper/records/steps"
STEPS_TOO = f"{SCRIPTS}/steps.py --nonlinearity hardtanh --out paper/records/steps"
EXPORTS = f"{SCRIPTS}/export.py yeast bibtex delicious --out paper/records/export"
KERNELS = f"{SCRIPTS}/searched.py kernels --out paper/records/searched"
RANKED = f"{SCRIPTS}/searched.py noise --out paper/records/searched"
STREAMED = f"{SCRIPTS}/large.py fit --out paper/records/large"
IN_TURNS = f"{SCRIPTS}/large.py ratio --out paper/records/large"
IN_TURNS_TOO = f"{SCRIPTS}/large.py ratio --sparse --out paper/records/large"
COUNTING = f"{SCRIPTS}/first_minutes.py counting --out paper/records/defaults"
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
    (PERFORMANCE, "| ReLU |", 1, (STEPS,)),
    (PERFORMANCE, "| HardTanh |", 1, (STEPS_TOO,)),
    (PERFORMANCE, "| labels | their scores (64 features) |", 1, (SHORTLIST,)),
    (TO_CHOOSE, "| units a layer |", 1, (EPOCHS,)),
    (OF_TABLE2, "| kernels, ridge 0.1 |", 1, (KERNELS,)),
    (OF_TABLE2, "| stages of spen-best, ridge 0.1 |", 1, (KERNELS,)),
    (REPRODUCE, "| | Yeast | with the evidence |", 1, (RANKED,)),
    (TO_EXPORT, "| | rows | labels differ |", 1, (EXPORTS,)),
    (PROCESSES, "| | batch |", 1, (BY_PROCESSES,)),
]
"""Pages, how headers begin, how many tables have such a one, and the commands that print them."""


def said(command: str) -> str:
    if command.startswith(SCRIPTS):
        return printed_by_script(command)
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
        whole = command in BENCHES or command.startswith(SCRIPTS)
        assert (command if whole else f"spen reproduce {command}") in words_of(path)
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


AVERAGED = {
    "1 energy": ("1", {}),
    "2": ("2", {}),
    "4": ("4", {}),
    "8": ("8", {}),
    "4, weight decay .1": ("4", {"weight_decay": 0.1}),
    "4, weight decay .1, over wider networks": ("4", {"weight_decay": 0.1, "network": 10}),
}
LARGE_SETS = ("delicious", "debian-tags", "debian-depends")


def test_what_averages_of_energies_have_is_in_the_log():
    [[_, *rows]] = shown(REPRODUCE, "| averaged, held-out training rows |")
    assert [row[0] for row in rows] == list(AVERAGED)
    for title, *columns in rows:
        count, settings = AVERAGED[title]
        point = {"global_lr": 0.03, "weight_decay": 0.01} | settings
        for dataset, cell in zip(LARGE_SETS, columns, strict=True):
            found = [
                line["losses"][count]
                for line in log("many")
                if (line["part"], line["dataset"]) == ("averaged", dataset)
                and {k: v for k, v in line["point"].items() if k != "seeds"} == point
                and count in line["losses"]
            ]
            each = cell.split(" / ") if cell else []
            assert bool(found) == bool(each), (title, dataset)
            # Of one point with four seeds and with eight the first four are the same.
            for losses in found:
                assert each == rounded(losses, each), (title, dataset)


TOLD = {
    "zeros marked with 1, 40 epochs, rate .0005": {"lr": 0.0005, "epochs": 40},
    "zeros left out, 40 epochs, rate .001": {"lr": 0.001, "epochs": 40, "zeros": 0.0},
    "with 1/√L, 12 epochs, rate .001": {"lr": 0.001, "epochs": 12, "zeros": "root"},
    "with 1/√L, 40 epochs, rate .001": {"lr": 0.001, "epochs": 40, "zeros": "root"},
    "with 1/√L, 40 epochs, rate .0005": {"lr": 0.0005, "epochs": 40, "zeros": "root"},
}


def test_how_a_told_network_marks_zeros_is_in_the_log():
    [[_, *rows]] = shown(REPRODUCE, "| told network, depends |")
    assert [row[0] for row in rows] == list(TOLD)
    for title, *cells in rows:
        [losses] = [r["losses"] for r in log("many") if r["point"] == TOLD[title]]
        assert cells == rounded(losses, cells), title


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
        r"seven kinds of it lay between ([\d.]+) and ([\d.]+), and the CRF at ([\d.]+):", text
    )
    tried = scores("twitter", "official", "spen")
    assert (len(tried), low, high) == (7, min(tried), max(tried))
    assert crf == max(scores("twitter", "official", "network"))
    [(best, before)] = re.findall(r"\(([\d.]+) for the CRF, against ([\d.]+) before\)", text)
    tried = scores("chunking", "official", "network")
    assert (best, before) == (max(tried), tried[0])
    [(best, before)] = re.findall(r"has ([\d.]+) % of wrong .*? against ([\d.]+) % with", text)
    tried = scores("ocr", "one-fold", "network")
    assert (best, before) == (min(tried), tried[0])
    [(spelled, without)] = re.findall(r"say: ([\d.]+) % of wrong letters with it, ([\d.]+) %", text)
    changes = {"inference": {"name": "best_of", "n": 256}}
    objective = {"name": "n_best", "n": 128}
    for found, more in ((spelled, {"language": 1.0}), (without, {})):
        wanted = changes | {"objective": objective | more}
        lines = [r for r in log("sequences") if (r["split"], r["changes"]) == ("folds", wanted)]
        assert found == f"{lines[-1]['score']:.2f}"


def record(folder: str, experiment: str, **settings: Any) -> dict[str, Any]:
    """Return what a script found and kept, of the one run with these settings."""
    lines = [
        json.loads(line) for line in page(f"paper/records/{folder}/records.jsonl").splitlines()
    ]
    [found] = [
        each["found"]
        for each in lines
        if each["experiment"] == experiment and settings.items() <= each["settings"].items()
    ]
    return found


RULES = {
    "the paper's: rate .1, momentum .95": "paper: rate .1, momentum .95",
    "rate .05, momentum .8": "rate .05, momentum .8",
    "rate 1, no momentum": "rate 1, no momentum",
    "the same, decaying as 1/t": "rate 1, decaying",
    "momentum that a label loses when its gradient turns": "restart per label",
    "Nesterov's momentum with adaptive restart": "adaptive restart",
    "a step size per label, by the signs of its gradients": "step per label",
    "a step size per row, by the slope at a step's end": "step per row",
    "Barzilai–Borwein in the mirror map": "Barzilai-Borwein",
    "a secant along the last change of the gradient": "secant",
    "two cuts, the second being the last gradient alone": "two cuts, no aggregate",
    "two cuts without energies (the gap guessed from gradients)": "two cuts, no values",
    "two cuts, fixed rate of 1": "two cuts, fixed rate",
    "default": "default",
}
"""As the page calls them, and as the script does."""


def test_rules_that_were_dropped_took_the_steps_of_the_record():
    [[_, *rows]] = shown(PERFORMANCE, "| rule | state beside θ, sums over L |")
    assert [row[0] for row in rows] == list(RULES)
    relu, hardtanh = (
        {each["rule"]: each for each in record("steps", "steps", nonlinearity=name)["rules"]
         if each["tolerance"] == 1e-3}
        for name in ("relu", "hardtanh")
    )  # fmt: skip
    for title, _, *cells, _ in rows:
        one, other = relu[RULES[title]], hardtanh[RULES[title]]
        wanted = [
            f"{one['steps']:.1f}, {one['converged']:.1f} %, {one['energy']:.3f}",
            f"{other['steps']:.1f}, {other['energy']:.3f}",
        ]
        assert [cell.strip("*") for cell in cells] == wanted, title
    both = ("paper: rate .1, momentum .95", "default")
    paper, default = (f"{relu[name]['steps']:.1f}" for name in both)
    assert f"tolerance of 1e-3 it is {paper} → {default} steps here" in words_of(PERFORMANCE)


def test_the_roofline_is_what_its_counts_come_to():
    labels, padded, measurements, clock = 159, 160, 16, 1.8e9
    counts = [2 * labels, 3 * 2 * measurements * padded, 21 * padded]
    rates = [132 * each * clock for each in (16, 1024, 4 * 32)]
    [[_, *rows]] = shown(PERFORMANCE, "| what | count a row and step |")
    for row, count, rate in zip(rows, counts, rates, strict=True):
        words = [f"{count:,}", f"{rate / 1e12:.3g} T/s", f"{1e9 * count / rate:.2f}"]
        assert row[1:] == words
    text = words_of(PERFORMANCE)
    stored = 2 * 4 * labels
    assert f"once, is {stored:,} bytes: {1e9 * stored / 4.8e12:.1f} ms for a million" in text
    assert f"{1 - labels / 256:.0%}".replace("%", " %") + " of the work on padding" in text
    rows_of_h200 = bench("h200")["growth_with_rows"]
    each, steps = rows_of_h200["ns_per_row_and_step"], rows_of_h200["steps"]
    assert f"are {each:.2f} ns a row and step" in text
    assert f"({steps:.1f} steps)" in text


def taken(path: str, command: str, sentence: str, *figures: str) -> None:
    """Check that a page says a sentence with these figures, beside the command."""
    text = words_of(path)
    assert command in text
    assert sentence.format(*figures) in text, figures


def test_what_costs_prints_is_what_sentences_say():
    found = record("costs", "bookmarks")["taken"]
    rows, fit, predict = found["the rows alone"], found["fit"], found["predict 27,856 rows"]
    taken(
        REPRODUCE,
        BOOKMARKS,
        "takes {} seconds of CPU time, and predicting 27,856 rows {}; memory is {} GiB at most, "
        "of which the rows are {} (",
        f"{fit['cpu']:.0f}",
        f"{predict['cpu']:.1f}",
        f"{predict['gib']:.2f}",
        f"{rows['gib']:.2f}",
    )


def test_what_is_said_of_rows_beyond_memory_is_in_the_records():
    found = record("large", "fit", gib=5.0)
    [held_out] = re.findall(r"held-out rows *\| ([\d.]+)", "\n".join(found["said"]))
    taken(
        LARGE,
        STREAMED,
        "{} rows of 200 numbers and 20 labels, trained for an epoch with the default network (two "
        "layers of 512) within {} GiB of memory: {} s of CPU time, and {} s on two cores",
        f"{found['rows']:,}",
        f"{found['peak_gib']:.2f}",
        f"{found['cpu']:,.0f}",
        f"{found['seconds']:,.0f}",
    )
    sentence = "F1 of new rows was {}, where held-out rows had said {}."
    assert sentence.format(f"{found['f1']:.1f}", f"{float(held_out):.1f}") in words_of(LARGE)
    ratios = []
    for sparse in (False, True):
        both = record("large", "ratio", sparse=sparse)["taken"]
        medians = [statistics.median(both[name]) for name in ("memory", "store")]
        ratios.append(f"{medians[0] / medians[1]:.2f}".removeprefix("0"))
    sentence = "in memory: {} with 60,000 rows of 200 numbers, {} with as many sparse rows"
    taken(LARGE, IN_TURNS, sentence, *ratios)
    assert IN_TURNS_TOO in words_of(LARGE)


def test_memory_and_seconds_of_many_labels_are_those_of_the_record():
    found = record("costs", "labels")["taken"]
    most = max(part["gib"] for part in found.values())
    sentence = "predictions of 1,024 rows take {} GiB of memory at most on a CPU"
    taken(REPRODUCE, MANY_LABELS, sentence, f"{most:.1f}")


def test_what_measurements_cost_in_prediction_is_in_the_record():
    found = [record("costs", "widths")[width] for width in ("64", "256", "1024")]
    taken(
        OF_CLASSIFIER,
        f"{SCRIPTS}/costs.py widths --out {COST}",
        "takes {} ms on one CPU thread with 64 measurements, {} with 256, and {} with four times "
        "256, {} times as long as the first",
        *(f"{each:.3f}".removeprefix("0") for each in found),
        f"{found[2] / found[0]:.1f}",
    )


def test_energies_that_begin_by_counting_scored_as_the_record_says():
    found = record("defaults", "counting")
    neutral, counting = (f"{statistics.fmean(found[name]):.1f}" for name in ("neutral", "counting"))
    sentence = "came to {} on the synthetic task with 1,500 rows, against {} from the neutral"
    taken(OF_CLASSIFIER, COUNTING, sentence, counting, neutral)


def test_what_is_said_of_kernels_and_rankings_is_in_the_records():
    found = record("searched", "kernels")
    names = ("energy", "scale and shift, then energy")
    both = (f"{statistics.fmean(found['stages'][name]):.2f}" for name in names)
    taken(OF_TABLE2, KERNELS, "on held-out rows it brings the error from {} to {} (below)", *both)
    assert f"on all features, on the first {found['cut']} and on the" in words_of(OF_TABLE2)
    ends = []
    for name in ("yeast", "bibtex"):
        ways = record("searched", "noise", dataset=name)["ways"].values()
        [told] = [way["told"].values() for way in ways if len(way["told"]) > 1]
        ends += [f"{min(told):.1f}", f"{max(told):.1f}"]
    sentence = "`label_issues` comes to {} to {} on Yeast and {} to {} on Bibtex"
    taken(REPRODUCE, RANKED, sentence, *ends)


def test_seconds_of_fits_are_those_of_the_records():
    by_method = {
        name: {
            each["seed"]: each["seconds"]
            for each in map(json.loads, page("paper/records/table1/records.jsonl").splitlines())
            if each["method"] == name and each["dataset"] == "bibtex"
        }
        for name in ("spen-paper", "spen-best")
    }
    medians = [f"{statistics.median(each.values()):.0f}" for each in by_method.values()]
    sentence = "its predictions took {} seconds, and those of `spen-best` {} (medians"
    assert sentence.format(*medians) in words_of(REPRODUCE)
    lines = map(json.loads, page("paper/records/first-minutes/records.jsonl").splitlines())
    cpu: dict[str, list[float]] = {"bibtex-test": [], "yeast-test": []}
    for each in lines:
        if each["method"] == "spen" and each["set"] in cpu:
            cpu[each["set"]].append(each["cpu_seconds"])
    medians = [f"{statistics.median(each):.0f}" for each in cpu.values()]
    sentence = "training set took {} seconds of CPU time and of Yeast's {}, predictions"
    assert sentence.format(*medians) in words_of(OF_CLASSIFIER)


ELSEWHERE = {
    "README.md": ["| | metric |"],
    "docs/classifier.md": ["| yeast: known |", "| | label_issues |"] + 2 * ["| log loss after |"],
    TO_CHOOSE: ["| | 1,500 rows | 15,000 rows |"],
    PERFORMANCE: ["| rule | state beside θ, sums over L |", "| what | count a row and step |"],
    REPRODUCE: [
        *("| Bibtex: F1 |", "| Bibtex: difference |", "| without repeated rows |", "| before |"),
        *("| held out |", "| | scores alone |", "| | parameters |", "| energy | one block |"),
        *("| twitter, official |", "| chunking, official |", "| ocr, one-fold |"),
        *("| bibtex: known |", "| delicious: known |", "| debian-tags: known |"),
        *("| debian-depends: known |", "| | Yeast: precision |", "| | Delicious: precision |"),
        *("| Delicious: F1 |", "| Delicious: difference |", "| held-out training rows |"),
        "| Delicious, without repeated rows |",
        *("| averaged, held-out training rows |", "| told network, depends |"),
        *("| ocr, folds |", "| ocr, new-words |"),
    ],
    "docs/sequences.md": 2 * ["| energy | tweets, 25 tags |", "| rows × positions, classes |"],
}
"""Tables that other tests compare with records, here or in files beside this one."""


def begins(rows: list[list[str]], header: str) -> bool:
    [cells] = rows_of(header)
    return rows[0][: len(cells)] == cells


def of_figures(rows: list[list[str]]) -> bool:
    """Say whether a table is one of measured figures: many cells begin with a number, or some with
    one that has a decimal point."""
    cells = [cell for row in rows[1:] for cell in row[1:] if cell]
    many = sum(bool(re.match(r"[×+-]? ?\.?\d", cell)) for cell in cells) > len(cells) / 3
    return many or sum(bool(re.match(r"[×+-]? ?\d*\.\d", cell)) for cell in cells) > 1


PAGES = ["README.md", "paper/README.md", "CONTRIBUTING.md"]
PAGES += [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", PAGES)
def test_every_table_of_figures_is_compared(path):
    compared = [header for each, header, *_ in TABLES if each == path] + ELSEWHERE.get(path, [])
    for rows in filter(of_figures, tables_in(page(path))):
        assert any(begins(rows, header) for header in compared), rows[0]


def test_no_table_is_taken_for_another_one_that_is_compared():
    for path, headers in ELSEWHERE.items():
        for header in set(headers):
            assert len(shown(path, header)) == headers.count(header), (path, header)


def test_no_page_has_a_place_that_was_to_be_filled():
    for path in ("README.md", *(f"docs/{each.name}" for each in (ROOT / "docs").glob("*.md"))):
        assert not re.findall(r"(?m)^[A-Z]+_[A-Z_]+$", page(path)), path
