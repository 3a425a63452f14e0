"""The page as a file: self-contained, escaped, and right for odd models and folders."""

import json
import os
import re
from html.parser import HTMLParser
from itertools import chain

import numpy as np
import pytest
from pages import TURNING, are_isolated, fitted
from scipy import sparse

import spen
from spen.batch.splits import Split
from spen.cli.report import report
from spen.errors import InputError
from spen.report.folder import folder_facts
from spen.report.page import gather, render, write_page
from spen.report.subject import Judged

NASTY = [
    "<script>alert(1)</script>", 'a "quoted" & <b>bold</b> \'name\'', "</script><img src=x>",
    "line\u2028separator", "\\u003c", "${x}`", "",
]  # fmt: skip


class Tags(HTMLParser):
    """Reads a page as a browser would: which elements, which text, which addresses."""

    def __init__(self):
        super().__init__()
        self.tags, self.words, self.addresses, self.open = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        values = dict(attrs)
        self.addresses += [
            values[key] for key in ("src", "href", "action", "data") if key in values
        ]
        assert not [key for key in values if key.startswith("on")], "no handlers in attributes"

    def handle_data(self, data):
        self.words.append(data)


def read(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    return tags


def facts_in(page: str) -> dict:
    return json.loads(re.search(r'id="facts">(.*?)</script>', page, re.DOTALL)[1])


def test_names_are_escaped_everywhere():
    classifier, rows = fitted(NASTY, labels=7)
    page = render(gather("<i>title</i>", classifier, Judged.of(rows, "rows of <x>")))
    tags = read(page)
    assert tags.tags.count("script") == 2, "the facts and the script, no more"
    assert "b" in tags.tags, "the page's own"
    assert "i" not in tags.tags
    assert "x" not in tags.tags
    assert tags.tags.count("img") == page.count("<img id=")
    assert facts_in(page)["examples"]["names"] == [n.replace("\u2028", "\ufffd") for n in NASTY]
    assert NASTY[0] in tags.words
    assert "\u2028" not in re.search(r'id="facts">(.*?)</script>', page, re.DOTALL)[1]


def test_text_and_json_survive_what_names_may_hold():
    odd = ["<&>\u2028\ud800", "\x00\x1b\ud800", "tab\tand\nline"]
    classifier, rows = fitted(odd, labels=3)
    page = render(gather(odd[1], classifier, Judged.of(rows, odd[1])))
    page.encode("utf-8")
    tags = read(page)
    names = ["<&>\ufffd\ufffd", "\ufffd\ufffd\ufffd", "tab\tand\nline"]
    assert facts_in(page)["examples"]["names"] == names
    assert tags.words.count(names[1]) > 5, "in the heading, in tables and in drawings"
    assert names[0] in tags.words
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f]", page), "nor in attributes"


def test_nothing_leaves_the_page():
    classifier, rows = fitted()
    page = render(gather("a page", classifier, Judged.of(rows, "rows")))
    outside = [a for a in read(page).addresses if not a.startswith(("#", "data:image/"))]
    assert outside == []
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert "default-src 'none'" in page


def test_it_is_readable_without_a_script():
    """Figures and tables are in the HTML, with what they say as text."""
    classifier, rows = fitted()
    page = render(gather("a page", classifier, Judged.of(rows, "rows")))
    before = page[: page.index('<script type="application/json"')]
    tags = read(before)
    assert tags.tags.count("article") == 12, "every example"
    assert tags.tags.count("svg") > 15
    assert tags.tags.count("table") >= 5
    words = " ".join(tags.words)
    for part in (
        "F1, averaged over rows",
        "label 3",
        "steps until a tolerance is met",
        "precision",
    ):
        assert part in words
    ids = re.findall(r'<section id="(\w+)"', page)
    assert re.findall(r'<a href="#(\w+)"', page) == ids, "every section is linked, in order"


@pytest.mark.parametrize("energy", ["label", "conditional", "local"])
def test_a_model_without_data_shows_itself_and_says_what_is_missing(energy):
    classifier, _ = fitted(energy=energy)
    page = render(gather("a page", classifier))
    assert "--data FILE" in page
    assert '<section id="examples"' not in page
    assert '<section id="training"' in page


def test_one_label():
    classifier, rows = fitted(["only"], labels=1)
    page = render(gather("a page", classifier, Judged.of(rows, "rows")))
    assert "only" in page


def test_ten_thousand_labels():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8)).astype(np.float32)
    Y = sparse.csr_matrix((rng.random((60, 10_000)) < 0.002).astype(np.float32))
    names = [f"label/{k}" for k in range(10_000)]
    clf = spen.SPENClassifier(
        hidden=(), epochs=1, folds=1, random_state=0, device="cpu", refit=False
    )
    clf.fit(X, Y, label_names=names)
    facts = gather("a page", clf, Judged.of(Split(X, Y), "rows"))
    page = render(facts)
    assert len(page) < 3_000_000
    assert facts["examples"]["why_not"] == "the energy has too many weights for a page"
    assert "The 1,000 most frequent of 10,000 labels" in page


def test_a_shortlist_is_not_repeated_by_the_page():
    data = spen.exclusive_blocks(n_train=120, n_test=20, seed=0)
    descent = spen.Descent(spen.MirrorDescent(1.0, 0.0), spen.Stopping(5), shortlist=6)
    clf = spen.SPENClassifier(inference=descent, epochs=2, random_state=0)
    clf.fit(data.train.X, data.train.Y)
    facts = gather("a page", clf, Judged.of(data.test, "rows"))
    assert "infer a shortlist" in facts["examples"]["why_not"]
    assert all(example["trace"]["y"] for example in facts["examples"]["examples"])


@pytest.mark.parametrize("labels", [14, 60])
def test_pictures_of_labels_show_few_and_say_of_how_many(labels):
    classifier, rows = fitted(labels=labels)
    facts = gather("a page", classifier, Judged.of(rows, "rows"))
    named, pairs = facts["structure"]["named"], facts["pairs"]
    shown = list(chain(*named["groups"]))
    assert len(set(shown)) == min(labels, 24)
    assert np.shape(named["matrix"]) == (len(named["rows"]), len(shown))
    weights = dict(zip(shown, np.transpose(named["matrix"]), strict=True))
    structure = classifier.structure()
    chosen = structure.measurements[np.array(named["rows"]) - 1]
    for name, values in weights.items():
        assert np.allclose(values, chosen[:, structure.label_names.index(name)], atol=6e-4)
    assert len(pairs["energy"]) <= 20
    assert sorted(chain(*pairs["groups"])) == list(range(len(pairs["names"])))
    place = {node: k for k, group in enumerate(pairs["groups"]) for node in group}
    pulled = [pair for *pair, strength in pairs["energy"] if strength < 0]
    assert pulled
    assert all(place[a] == place[b] for a, b in pulled), "in one group"
    words = " ".join(" ".join(read(render(facts)).words).split())
    which = "all 14 labels (down)" if labels == 14 else "24 of 60 labels, those of the largest"
    assert which in words
    assert f"{len(pairs['energy'])} of {labels * (labels - 1) // 2:,} pairs among all" in words


def test_search_errors_are_told_once_in_words():
    classifier, rows = fitted()
    facts = gather("a page", classifier, Judged.of(rows, "rows"))
    for missed, said in ((2, "on 2 of 80 rows (2.5 %) inference"), (0, "none of 80 rows")):
        facts["convergence"]["missed"] = missed
        page = render(facts)
        words = " ".join(" ".join(read(page[: page.index("<script")]).words).split())
        assert words.lower().count("search error") == 1
        assert f"Search errors: {said}" in words


def test_rows_that_all_take_as_many_steps_need_no_picture():
    classifier, rows = fitted()
    facts = gather("a page", classifier, Judged.of(rows, "rows"))
    assert "Rows by steps until convergence" in render(facts)
    facts["convergence"] |= {"quickest": 6, "middle": 6, "most": 6, "slowest": 6}
    page = render(facts)
    assert "Rows by steps until convergence" not in page
    assert "each of 80 rows takes 6 to converge" in " ".join(page.split())


def test_the_calibration_curve_shows_how_many_decisions_a_point_has():
    classifier, rows = fitted()
    facts = gather("a page", classifier, Judged.of(rows, "rows"))
    chart = re.search(r'aria-label="Calibration curve">(.*?)</svg>', render(facts), re.DOTALL)[1]
    counts = facts["calibration"]["counts"]
    sizes = [float(size) for size in re.findall(r'<circle[^>]* r="([^"]*)"', chart)]
    assert len(set(counts)) > 3
    assert np.array_equal(np.argsort(counts, kind="stable"), np.argsort(sizes, kind="stable"))
    assert re.findall(r'class="bar"[^>]*><title>[^<]*, ([\d,]+) decisions', chart) == [
        f"{count:,}" for count in counts
    ]
    assert [word for word in read(chart).words if word.isdigit()][-len(counts) :]


def test_a_report_in_one_call(tmp_path):
    classifier, rows = fitted(list("abcdef"))
    page = classifier.report(tmp_path / "page.html", rows.X, rows.Y)
    assert page == tmp_path / "page.html"
    expected = page.read_text(encoding="utf-8")
    assert '<section id="examples"' in expected
    assert "SPENClassifier" in expected
    lists = [[name for name, on in zip("abcdef", row, strict=True) if on] for row in rows.Y]
    for X, Y in ((rows, None), (rows.X, lists), (sparse.csr_array(rows.X), rows.Y)):
        classifier.report(page, X, Y)
        assert page.read_text(encoding="utf-8") == expected
    missing = rows.Y.copy()
    missing[0, 0] = np.nan
    classifier.report(str(page), rows.X, missing, title="Some <title>")
    assert "Some &lt;title&gt;" in page.read_text(encoding="utf-8")
    classifier.report(page)
    assert '<section id="examples"' not in page.read_text(encoding="utf-8")
    with pytest.raises(InputError, match="X and Y, or neither"):
        classifier.report(page, rows.X)
    with pytest.raises(InputError, match="is a folder"):
        classifier.report(tmp_path, rows)


def test_a_report_of_named_columns_and_of_classes(tmp_path):
    pandas = pytest.importorskip("pandas")
    _, rows = fitted()
    X = pandas.DataFrame(rows.X, columns=list("vwxyz"))
    settings = {"hidden": (), "epochs": 2, "refit": False, "remember_rows": True, "device": "cpu"}
    for Y in (pandas.DataFrame(rows.Y, columns=list("abcdef")), rows.Y.argmax(1)):
        classifier = spen.SPENClassifier(**settings).fit(X, Y)
        page = classifier.report(tmp_path / "page.html", X, Y).read_text(encoding="utf-8")
        assert "80 of these rows have the same features" in page


def test_a_page_shows_a_comparison(tmp_path):
    classifier, rows = fitted()
    found = classifier.compare(rows.X, rows.Y, ["logistic"])
    path = classifier.report(tmp_path / "page.html", comparison=found)
    words = read(path.read_text(encoding="utf-8")).words
    assert {"Beside other classifiers", "logistic", "label_thresholds"} <= set(words)
    header, lines = found.table()
    assert {*header, *lines[0], *lines[1], *found.notes()[2:]} <= set(words)


def test_more_rows_than_a_page_needs_are_sampled():
    judged = Judged.of(Split(np.zeros((50, 2)), np.zeros((50, 3))), "rows", most=10)
    assert len(judged.rows) == 10
    assert judged.total == 50
    assert len(set(judged.numbers.tolist())) == 10


def record(**own):
    base = {
        "experiment": "table9", "dataset": "toy", "method": "spen", "n_train": 100, "seed": 0,
        "decoding": "threshold", "metrics": {"f1": 50.0, "odd <name>": 1.0}, "seconds": 2.0,
        "rule": "some rule", "versions": {"spen": "0.1.0"},
    }  # fmt: skip
    return json.dumps(base | own)


def folder_page(folder, capsys) -> str:
    report(folder)
    assert str(folder / "report.html") in capsys.readouterr().out
    return (folder / "report.html").read_text(encoding="utf-8")


def test_a_folder_of_runs(tmp_path, capsys):
    lines = [record(), record(seed=1, metrics={"f1": 52.0}), record(method="mlp <x>")]
    (tmp_path / "records.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "steps.svg").write_text("<svg onload='alert(1)'></svg>")
    page = folder_page(tmp_path, capsys)
    words = " ".join(read(page).words)
    assert "51.00 ± 1.41" in words
    assert page.count('<circle class="dot') == 2, "a dot for each method"
    assert "mlp <x>" in words
    assert "odd <name>" in words
    assert "some rule" in words
    assert "onload" not in page, "a picture is an image, whose scripts do not run"
    assert "different sets of versions" not in words


def test_runs_of_different_settings_are_not_averaged(tmp_path, capsys):
    first = {"rate": 1, "initial_weights": "a"}
    lines = [
        record(settings=first, metrics={"f1": 10.0}),
        record(settings=first | {"initial_weights": "b"}, seed=1, metrics={"f1": 20.0}),
        record(settings={"rate": 2}, metrics={"f1": 30.0}),
        record(settings={"rate": 2, "variant": "half <x>"}, metrics={"f1": 40.0}),
    ]
    (tmp_path / "records.jsonl").write_text("\n".join(lines) + "\n")
    words = read(folder_page(tmp_path, capsys)).words
    assert [word for word in words if re.fullmatch(r"\d\d\.00( ± .*)?", word)] == [
        "15.00 ± 7.07", "30.00", "40.00",
    ]  # fmt: skip
    assert "half <x>" in words


def test_records_cut_off_in_mid_line_and_of_mixed_versions(tmp_path, capsys):
    lines = [record(), record(seed=1, versions={"spen": "0.2.0"}), record(seed=2, versions=None)]
    lines += [json.dumps({"experiment": "x"}), "[1, 2]", record(seed=3)[:60]]
    (tmp_path / "records.jsonl").write_text("\n".join(lines))
    words = " ".join(read(folder_page(tmp_path, capsys)).words)
    assert "2 lines are cut off or damaged" in words
    assert "1 records have no metrics" in words
    assert "3 different sets of versions" in words
    assert "versions not recorded" in words


def test_a_pipe_among_the_records_is_no_file_of_records(tmp_path, capsys):
    (tmp_path / "records.jsonl").write_text(record() + "\n")
    os.mkfifo(tmp_path / "records-pipe.jsonl")
    assert "1 runs" in " ".join(read(folder_page(tmp_path, capsys)).words)


def test_folds_that_differ_by_a_row_are_one_line(tmp_path):
    folds = [(2175, 242), (2175, 242), (2176, 241)]
    lines = [
        record(fold=k, n_train=rows, settings={"n_test": test})
        for k, (rows, test) in enumerate(folds)
    ]
    (tmp_path / "records.jsonl").write_text("\n".join(lines) + "\n")
    (table,) = folder_facts(tmp_path)["tables"]
    assert len(table["rows"]) == 1
    assert "training rows" not in table["header"]


def test_records_that_were_kept_beside_the_others_are_read_too(tmp_path, capsys):
    (tmp_path / "records.jsonl").write_text(record() + "\n")
    (tmp_path / "records-older.jsonl").write_text(record(seed=1) + "\n" + record(seed=2)[:60])
    words = " ".join(read(folder_page(tmp_path, capsys)).words)
    assert "2 runs" in words
    assert "1 line is cut off or damaged" in words


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no records.jsonl, no model"),
        ("", r"no whole record of a run in records.jsonl \(0 lines are cut off"),
        ('{"experiment": "x", "metr', "1 lines are cut off"),
        ('{"experiment": "x"}\n', "1 have no metrics"),
    ],
)
def test_a_folder_with_nothing_to_show_says_what_is_missing(tmp_path, content, message):
    if content is not None:
        (tmp_path / "records.jsonl").write_text(content)
    with pytest.raises(InputError, match=message):
        report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_the_command_on_a_model(tmp_path, capsys):
    classifier, rows = fitted()
    classifier.save(tmp_path / "m.spen")
    names = [f"x{k}" for k in range(5)] + [f"label {k}" for k in range(6)]
    table = np.hstack([rows.X, rows.Y])
    lines = [",".join(names), *(",".join(f"{v:.6g}" for v in row) for row in table)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    report(tmp_path / "m.spen", data=str(tmp_path / "rows.csv"), json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["page"] == str(tmp_path / "m.html")
    page = (tmp_path / "m.html").read_text(encoding="utf-8")
    assert told["bytes"] == len(page.encode())
    assert "m.spen on rows.csv" in page

    report(tmp_path, data=str(tmp_path / "rows.csv"), out=tmp_path / "f.html")
    assert '<section id="examples"' in (tmp_path / "f.html").read_text(encoding="utf-8")
    classifier.save(tmp_path / "n.spen")
    with pytest.raises(InputError, match=r"several models \(m.spen, n.spen\)"):
        report(tmp_path, data=str(tmp_path / "rows.csv"))
    with pytest.raises(InputError, match="is not there"):
        report(tmp_path / "none.spen")
    with pytest.raises(InputError, match="is a folder"):
        report(tmp_path / "m.spen", out=tmp_path)


def test_a_page_takes_its_place_at_once(tmp_path):
    classifier, _ = fitted()
    path = tmp_path / "deep" / "page.html"
    assert write_page(gather("a page", classifier), path) == path
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]


def test_notes_travel_with_the_model_file(tmp_path):
    classifier, _ = fitted()
    classifier.notes_ |= {"trained on": "<x>", "command": "spen fit /home/me/secret.csv"}
    classifier.save(tmp_path / "m.spen")
    again = spen.load(tmp_path / "m.spen")
    assert again.notes_ == classifier.notes_
    assert again.notes_["training rows"] == "80"
    page = render(gather("a page", again))
    assert "&lt;x&gt;" in page
    assert "secret" not in page, "as older files have it"


@pytest.mark.parametrize(
    "inference", [spen.Polished(), spen.Exact(), spen.LinearRelaxation(), spen.BeliefPropagation()]
)
def test_solvers_that_keep_no_trace(inference):
    data = spen.exclusive_blocks(n_train=60, n_test=20, n_features=8, n_blocks=2)
    clf = spen.SPENClassifier("pairwise", inference, "hinge", hidden=(), epochs=2, folds=1)
    clf.fit(data.train.X, data.train.Y, label_names=data.label_names)
    facts = gather("a model", clf, Judged.of(data.test, "new rows"))
    assert facts["examples"]["examples"]
    assert "</html>" in render(facts)


def test_names_turn_the_direction_of_nothing_else(tmp_path, capsys):
    classifier, rows = fitted(TURNING)
    page = render(gather("\u202etitle", classifier, Judged.of(rows, f"the rows of {TURNING[0]}")))
    page = page[: page.index('<script type="application/json"')]
    shown = re.split(r"<[^<>]*>", page) + re.findall(r'="([^"]*)"', page)
    assert sum("\u05d0" in text for text in shown) > 20
    assert sum("abc\ufffdevil" in text for text in shown) > 20
    assert are_isolated(shown)
    assert not are_isolated(TURNING[:1])
    lines = [record(method=TURNING[0], dataset=TURNING[1], metrics={"f1": 1.0, TURNING[2]: 2.0})]
    (tmp_path / "records.jsonl").write_text("\n".join(lines) + "\n")
    words = read(folder_page(tmp_path, capsys)).words
    assert any("\u05d0" in word for word in words)
    assert are_isolated(words)


@pytest.mark.parametrize(
    "line",
    [
        '{"a":' * 100_000,
        '{"metrics": {"f1": 1}, "settings": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"metrics": {"f1": 1}, "settings": ' + '{"a":' * 900 + "1" + "}" * 901,
        '{"metrics": {"f1": ' + "9" * 5000 + "}}",
        "[" * 900 + "]" * 900,
    ],
    ids=["cut off", "lists", "settings", "digits", "a list"],
)
def test_records_that_are_nested_deeply_are_left_out(tmp_path, capsys, line):
    (tmp_path / "records.jsonl").write_text(f"{line}\n{record()}\n")
    assert "1 line is cut off or damaged" in " ".join(read(folder_page(tmp_path, capsys)).words)


def test_numbers_that_are_no_scores_are_left_out(tmp_path, capsys):
    odd = {"f1": 50.0, "a": float("inf"), "b": float("nan"), "c": 10**400, "d": -1e308}
    (tmp_path / "records.jsonl").write_text(record(metrics=odd) + "\n" + record(seed=1) + "\n")
    assert "50.00 ± 0.00" in " ".join(read(folder_page(tmp_path, capsys)).words)
