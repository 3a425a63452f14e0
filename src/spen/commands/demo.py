"""``spen demo``: a first result in one command."""

from __future__ import annotations

from pathlib import Path

METHODS = ("linear", "mlp", "spen")
ROWS = 1500


def demo(*, out: Path = Path("spen-demo")) -> None:
    """Train a linear model, an MLP and a SPEN on the paper's synthetic task.

    Prints Table 3's row for 1,500 training rows beside the paper's, and draws what the
    SPEN learned about its labels.

    Args:
        out: The folder for records and pictures.
    """
    from spen.progress import say

    say("16 labels in 4 blocks; in each block exactly one label is on. No model is told that.")
    say(f"Training each model twice: on 4/5 of {ROWS:,} rows to tune it, then on all of them.\n")

    import numpy as np

    from spen.errors import require
    from spen.reproduce.records import Records
    from spen.reproduce.structure import block_score, block_span_score
    from spen.reproduce.table3 import collect, render

    require("matplotlib", "report")
    from spen.report.plots import draw_measurements

    records = collect(METHODS, (ROWS,), (0,), Records(out))
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
