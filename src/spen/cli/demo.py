"""``spen demo``: a first result in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spen.data.dataset import Dataset
    from spen.reproduce.protocol import Fitted

METHODS = ("linear", "mlp", "spen")
ROWS = 1500
SHOWN_ROWS = 1000
"""Test rows that the page looks at."""


def demo(*, out: Path = Path("spen-demo")) -> None:
    """Train a linear model, an MLP and a SPEN on the paper's synthetic task.

    Prints Table 3's row for 1,500 training rows beside the paper's, draws what the SPEN
    learned about its labels, and writes a page on it.

    Args:
        out: The folder for records, pictures, the model and the page.
    """
    from spen.cli.show import say

    say("16 labels in 4 blocks; in each block exactly one label is on. No model is told that.")
    say(f"Training each model twice: on 4/5 of {ROWS:,} rows to tune it, then on all of them.\n")

    import numpy as np

    from spen.data.synthetic import exclusive_blocks
    from spen.errors import require
    from spen.reproduce.records import Records
    from spen.reproduce.structure import block_score, block_span_score
    from spen.reproduce.table3 import N_TEST, collect, render

    require("matplotlib", "report")
    from spen.report.plots import draw_measurements

    fits: list[Fitted] = []
    records = collect(METHODS, (ROWS,), (0,), Records(out), fits.append)
    say(render(METHODS, (ROWS,), records))
    say("\nF1 in percent on 10,000 new rows, averaged over examples. One seed; the whole table:")
    say("  spen reproduce table3")

    matrix = np.array(records[-1]["measurements"])
    title = f"What the SPEN's {len(matrix)} measurements look at"
    picture, _ = draw_measurements([(title, matrix)], out / "measurements")
    say(
        f"\nThe SPEN's measurements weigh labels of a block alike: "
        f"{100 * block_span_score(matrix):.0f} % of their weight is equal within blocks\n"
        f"(25 % by chance), and single blocks account for {100 * block_score(matrix):.0f} %."
    )
    say(f"See them in {picture}")
    page = _write_page(out, fits, exclusive_blocks(ROWS, N_TEST, seed=0))
    say(f"See the whole model, and set its labels by hand, in {page}")


def _write_page(out: Path, fits: list[Fitted], data: Dataset) -> Path:
    """Write the page on the SPEN, which an earlier demo may have left in the folder."""
    from spen.estimators.model_file import load
    from spen.report.page import gather, write_page
    from spen.report.subject import Judged
    from spen.reproduce import protocol
    from spen.reproduce.as_classifier import as_classifier
    from spen.reproduce.table3 import methods_for

    path, method = out / "synthetic.spen", methods_for(ROWS)["spen"]
    kept = [fit for fit in fits if fit.method == method]
    if kept or not _is_of(path, data):
        fitted = kept[0] if kept else protocol.fit(method, data.train, seed=0)
        as_classifier(fitted, data, "spen demo").save(path)
    judged = Judged.of(data.test, "new rows of the synthetic task", SHOWN_ROWS)
    facts = gather(
        "A SPEN on the paper's synthetic task", load(path), judged, labels=data.train.Y, folder=out
    )
    return write_page(facts, out / "report.html")


def _is_of(path: Path, data: Dataset) -> bool:
    """Whether a file holds a model of these training rows."""
    from spen.errors import SpenError
    from spen.estimators.model_file import load

    try:
        return path.exists() and bool(load(path).seen_in_training(data.train.X).all())
    except SpenError:
        return False
