"""``spen demo``: a first result in one command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spen.cli.files import check_out
from spen.cli.show import say, text_table

if TYPE_CHECKING:
    from spen.data.dataset import Dataset
    from spen.estimators.base import LabelClassifier

ROWS, TEST_ROWS = 1500, 10_000
SHOWN_ROWS = 1000
"""Test rows that the page looks at."""

PAPER = {"linear": 80.0, "3-layer MLP (64, 16)": 81.6, "SPEN, 4 measurements": 91.5}
"""The paper's F1 with 1,500 rows, of the models that are trained."""


def demo(*, out: Path = Path("spen-demo")) -> None:
    """Train a linear model, an MLP and a SPEN on the paper's synthetic task.

    Prints Table 3's row for 1,500 training rows beside the paper's, draws what the SPEN
    learned about its labels, and writes a page on it.

    Args:
        out: The folder for records, pictures, the model and the page.
    """
    for name in ("synthetic.spen", "records.jsonl", "measurements.png", "report.html"):
        check_out(out / name)
    say("16 labels in 4 blocks; in each block exactly one label is on. No model is told that.")
    say(f"Training each model twice: on 4/5 of {ROWS:,} rows to tune it, then on all of them.\n")

    from spen.data.synthetic import block_score, block_span_score, exclusive_blocks
    from spen.errors import require

    require("matplotlib", "report")
    from spen.report.page import gather, write_page
    from spen.report.subject import Judged

    data = exclusive_blocks(ROWS, TEST_ROWS, seed=0)
    records, clf = _models(out, data)
    rows = [
        [r["method"], f"{r['parameters']:,}", f"{r['metrics']['f1']:.1f}", f"{PAPER[r['method']]}"]
        for r in records
    ]
    say(text_table(["", "parameters", f"{ROWS:,} rows", "paper"], rows))
    say("\nF1 in percent on 10,000 new rows, averaged over examples. One seed; the whole table:")
    say("  spen reproduce table3")
    structure = clf.structure()
    matrix, picture = structure.measurements, out / "measurements.png"
    for path in (picture, picture.with_suffix(".svg")):
        structure.plot(path)
    say(
        f"\nThe SPEN's measurements weigh labels of a block alike: "
        f"{100 * block_span_score(matrix):.0f} % of their weight is equal within blocks\n"
        f"(25 % by chance), and single blocks account for {100 * block_score(matrix):.0f} %."
    )
    say(f"See them in {picture}")
    judged = Judged.of(data.test, "new rows of the synthetic task", SHOWN_ROWS)
    title = "A SPEN on the paper's synthetic task"
    facts = gather(title, clf, judged, labels=data.train.Y, folder=out)
    page = write_page(facts, out / "report.html")
    say(f"See the whole model, and set its labels by hand, in {page}")


def classifiers() -> dict[str, LabelClassifier]:
    """Return the models, not fitted, by their titles."""
    import spen

    common: dict[str, Any] = {"decoding": "threshold", "random_state": 0, "device": "cpu"}
    common["remember_rows"] = True  # to know an earlier demo's model by; its rows are nobody's
    # The paper's step of 0.1 with momentum 0.95 oscillates at the kinks of HardTanh.
    rule = spen.MirrorDescent(lr=0.05, momentum=0.8)
    short, long = (spen.Descent(rule, spen.Stopping(steps)) for steps in (40, 300))
    label_wise: dict[str, Any] = {"objective": spen.CrossEntropy(), "schedule": "cosine"}
    linear = spen.Stage(
        "local", **label_wise, parts=("local",), epochs=60, lr=0.01, weight_decay=1e-3
    )
    # It must converge: stopped early, its scores are too small for the margin.
    local = replace(linear, lr=0.1, weight_decay=2e-4)
    together = replace(linear, parts=("features", "local"), epochs=100, lr=0.003)
    stages = (
        local,
        spen.Stage("global", spen.Hinge(), short, parts=("global",), epochs=20, lr=0.03, clip=1.0),
        spen.Stage("all", spen.Hinge(), short, epochs=50, lr=0.01, schedule="cosine", clip=1.0),
    )
    network = {"hidden": (64, 16), "dropout": 0.0}
    decayed = replace(together, optimiser="adamw", weight_decay=1.0)
    counting = spen.LabelEnergy.unsized(measurements=4, nonlinearity="hardtanh", initial="counting")
    models = (
        spen.SPENClassifier("local", hidden=(), stages=(linear,), **common),
        spen.SPENClassifier("local", stages=(decayed,), **network, **common),
        spen.SPENClassifier(counting, long, hidden=(), stages=stages, **common),
    )
    return dict(zip(PAPER, models, strict=True))


def _models(out: Path, data: Dataset) -> tuple[list[dict[str, Any]], LabelClassifier]:
    """Return a record of each model and the SPEN; those of an earlier demo, if they are there."""
    import json
    import time
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    from spen.described import to_json
    from spen.errors import SpenError
    from spen.estimators.model_file import load_classifier as load
    from spen.files import versions, write_atomically
    from spen.metrics import example_f1

    path, log = out / "synthetic.spen", out / "records.jsonl"
    models = classifiers()
    settings = [to_json(clf.get_params(), brief=True) for clf in models.values()]
    try:
        records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        clf = load(path)
        rows = len(data.train)
        same = [(r["settings"], r["n_train"]) for r in records] == [(s, rows) for s in settings]
        if same and clf.notes_["training rows"] == f"{rows:,}":
            return records, clf
    except (OSError, SpenError, ValueError, KeyError, TypeError, RecursionError):
        pass
    records, clf = [], models[list(models)[-1]]
    for (name, clf), setting in zip(models.items(), settings, strict=True):
        began = time.perf_counter()
        names: Any = {"label_names": data.label_names, "feature_names": data.feature_names}
        clf.set_params(verbose=1).fit(data.train.X, data.train.Y, **names)
        with warnings.catch_warnings():
            # Some rows go to and fro at a kink of HardTanh; the page shows how many.
            warnings.simplefilter("ignore", ConvergenceWarning)
            f1 = example_f1(data.test.Y, clf.predict(data.test.X))
        records.append(
            {
                "experiment": "demo",
                "dataset": data.name,
                "method": name,
                "n_train": len(data.train),
                "seed": 0,
                "fold": None,
                "decoding": "threshold",
                "metrics": {"f1": round(100 * f1, 4)},
                "seconds": round(time.perf_counter() - began, 2),
                "parameters": sum(p.numel() for p in clf.model_.parameters()),
                "settings": setting,
                "versions": versions(),
            }
        )
    clf.notes_["trained on"] = data.name
    clf.save(path)
    lines = "".join(json.dumps(record) + "\n" for record in records)
    write_atomically(log, lines.encode())
    return records, clf
