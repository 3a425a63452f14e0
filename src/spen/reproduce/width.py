"""Where the energy pays: with how wide a feature network."""

from __future__ import annotations

from pathlib import Path

from spen.cli.show import say
from spen.estimators.base import LabelClassifier
from spen.estimators.recipe import is_auto
from spen.reproduce.study import Scores, Study, draw
from spen.reproduce.study_tables import compare, curves
from spen.reproduce.variants import Changes, changed, plan_of, pre_training_alone

WIDTHS = (50, 150, 500, 1000, 2000)
PAPER_WIDTHS = (50, 150, 500)
"""The paper's networks are small, and its hinge takes long to train."""

DROPOUT: dict[str, Changes] = {
    "no dropout": {"dropout": 0.0, "input_dropout": 0.0},
    "dropout": {},
}
OUR_PAIR = ("SPEN", "MLP")
PAPER_PAIR = ("SPEN, hinge", "MLP, SGD")
LAYERS = 2
"""Where the settings leave the network to the recipe."""


def width(*, dataset: str, seeds: int, device: str, out: Path) -> None:
    """Compare MLP and SPEN, ours and the paper's, on narrow to wide feature networks."""
    study = Study.open("table1-width", dataset, seeds, device, out)
    panels = []
    for words, dropout in DROPOUT.items():
        ours = {str(units): _ours(study, units, words, dropout) for units in WIDTHS}
        papers = {str(units): _papers(study, units, words, dropout) for units in PAPER_WIDTHS}
        say(f"With the settings' {words}\n" if not dropout else f"With {words}\n")
        for cells, pair in ((ours, OUR_PAIR), (papers, PAPER_PAIR)):
            for line in compare("units a layer", cells, [pair]):
                say(line)
            say()
        for panel, other in zip(curves(WIDTHS, ours), curves(PAPER_WIDTHS, papers), strict=True):
            panels.append((f"{words}, {panel[0]}", panel[1] | other[1]))
    say('"MLP, SGD" is the stage that the paper\'s recipe trains first, and the hinge starts from.')
    study.tell_protocol()
    path = study.records.folder / "width"
    draw(lambda plots: plots.draw_curves(panels, path, "units a layer"))


def _ours(study: Study, units: int, words: str, dropout: Changes) -> dict[str, Scores]:
    """Return the MLP's scores, and those of a SPEN on the same features."""

    def changes(made: LabelClassifier) -> Changes:
        return {"hidden": _layers(made, units)} | dropout

    variant = f"{units} units, {words}"
    return {
        "MLP": study.scores("mlp", variant, changes),
        "SPEN": study.scores("spen-single", variant, changes),
    }


def _papers(study: Study, units: int, words: str, dropout: Changes) -> dict[str, Scores]:
    """Return the scores of the paper's SPEN, and of what its pre-training alone makes."""

    def hinge(made: LabelClassifier) -> Changes:
        return {"hidden": _layers(made, units)} | dropout

    def label_wise(made: LabelClassifier) -> Changes:
        other = changed(made, hinge(made))
        return hinge(made) | pre_training_alone(plan_of(other, study.data.train))

    variant = f"{units} units, {words}"
    return {
        "MLP, SGD": study.scores("spen-paper", f"{variant}, pre-training alone", label_wise),
        "SPEN, hinge": study.scores("spen-paper", variant, hinge),
    }


def _layers(made: LabelClassifier, units: int) -> tuple[int, ...]:
    hidden = made.get_params(deep=False)["hidden"]
    return (units,) * (LAYERS if is_auto(hidden) else len(hidden))
