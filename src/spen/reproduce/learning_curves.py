"""Where the energy pays: with how many training rows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from spen.cli.show import say
from spen.reproduce.study import Scores, Study, draw, few_rows, longer_for
from spen.reproduce.study_tables import compare, curves

SHARES = (0.05, 0.1, 0.25, 0.5, 1.0)
METHODS = {"mlp": "MLP", "spen-single": "SPEN"}


def learning_curves(*, dataset: str, seeds: int, device: str, out: Path) -> None:
    """Compare MLP and SPEN on 5 to 100 % of the training rows."""
    study = Study.open("table1-learning-curves", dataset, seeds, device, out)
    total = len(study.data.train)
    cells: dict[str, dict[str, Scores]] = {}
    for share in SHARES:
        title = f"{100 * share:g} % ({round(share * total):,})"
        rows = {seed: few_rows(study.data, share, seed) for seed in range(seeds)}
        run = partial(
            study.scores,
            variant=f"{share:g} of the rows",
            changes=longer_for(share),
            data=rows.__getitem__,
        )
        cells[title] = {name: run(method) for method, name in METHODS.items()}
    for line in compare("training rows", cells, [("SPEN", "MLP")]):
        say(line)
    say("\nA share is drawn by its seed; all test rows are predicted. With few rows epochs are")
    say("those of the settings × min(4, 1/share), which keeps the number of steps in hand.")
    study.tell_protocol()
    counts = [share * total for share in SHARES]
    path = study.records.folder / "learning-curves"
    draw(lambda plots: plots.draw_curves(curves(counts, cells), path, "training rows"))
