"""The paper's side remarks: each claim, what we measured, and whether they agree.

All figures are test F1 with one threshold, as in the paper. A rule that was written down
beforehand decides; it stands beside the verdict.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spen.baselines import MLPClassifier
from spen.cli.show import say, text_table
from spen.energies.conditional import ConditionalEnergy
from spen.energies.label import LabelEnergy
from spen.estimators.base import LabelClassifier
from spen.reproduce.bias import LinearMeasurements, synthetic_f1
from spen.reproduce.dataset_table import dataset_table
from spen.reproduce.overfitting import gaps, train_and_test
from spen.reproduce.plain import run_plain
from spen.reproduce.study import Study, difference, paired
from spen.reproduce.table3 import mean_and_deviation
from spen.reproduce.variants import (
    Changes,
    plan_of,
    with_energy,
    without_joint_stage,
)

FEW = 0.1
"""The share of the training rows that stands for little data."""

PAIRWISE_HELP = {"bibtex": True, "delicious": False, "bookmarks": False}
"""Whether deep mean field is better in the paper with its pairwise terms than without."""

ONE_FOLD: Changes = {"folds": 1}
"""Deep mean field is slow; one held-out part is enough for one threshold."""


@dataclass(frozen=True)
class Claim:
    """A remark of the paper, put to the test.

    Attributes:
        text: what it says.
        measured: our figures.
        rule: when they agree with it.
        agreed: whether they do.
    """

    text: str
    measured: str
    rule: str
    agreed: bool


def claims(
    *,
    dataset: str = "bibtex",
    seeds: int = 3,
    device: str = "auto",
    out: Path = Path("runs/claims"),
) -> None:
    """Put the paper's side remarks to the test, one row each.

    All of them on Bibtex; on another data set those on deep mean field alone. Runs that are
    already in OUT/records.jsonl are not made again, so a killed run goes on.
    """
    study = Study.open("claims", dataset, seeds, device, out)
    table, about_data = dataset_table()
    found = list(_mean_field(study))
    if dataset == "bibtex":
        found += [*_bias(study), *_little_data(study), Claim(*about_data)]
    say(render(found))
    say("\nAgreed means, claim by claim:")
    for number, claim in enumerate(found, 1):
        say(f"{number}. {claim.rule}")
    if seeds == 1:
        say(
            "One seed has no standard error, so any difference counts here. "
            "For a verdict take three seeds or more."
        )
    say(f"\nThe data sets\n\n{table}")
    study.tell_protocol()


def render(found: list[Claim]) -> str:
    """Lay the claims out.

    >>> print(render([Claim("the sky is blue", "450 nm", "below 500 nm", True)]))
    |    | the paper says  | measured | agreed |
    | -- | --------------- | -------- | ------ |
    | 1. | the sky is blue | 450 nm   | yes    |
    """
    rows = [
        [f"{number}.", claim.text, claim.measured, "yes" if claim.agreed else "no"]
        for number, claim in enumerate(found, 1)
    ]
    return text_table(["", "the paper says", "measured", "agreed"], rows)


def clearly(first: list[float], second: list[float]) -> bool:
    """Return whether first is above second by more than the standard error, paired by seed.

    >>> clearly([2.0, 3.0, 4.0], [1.0, 2.5, 2.5]), clearly([1.0, 3.0], [2.0, 2.0])
    (True, False)
    """
    mean, error = paired(first, second)
    return mean > error


def _mean_field(study: Study) -> Iterator[Claim]:
    """Yield what is said of deep mean field: its pre-training, and its pairwise terms."""
    pretrained = _f1(study, "dmf", "pre-trained unaries", ONE_FOLD)
    scratch = _f1(study, "dmf", "no pre-training", ONE_FOLD | {"pretrain": False})
    ratio = statistics.fmean(scratch) / statistics.fmean(pretrained)
    yield Claim(
        "DMF without pre-trained unaries reaches about half",
        f"{mean_and_deviation(scratch)} against {mean_and_deviation(pretrained)}: "
        f"{100 * ratio:.0f} %",
        "between 35 and 65 % of F1 with pre-trained unaries",
        0.35 <= ratio <= 0.65,
    )
    if (helps := PAIRWISE_HELP.get(study.data.name)) is None:
        return
    unaries = _f1(study, "dmf", "unaries alone", ONE_FOLD, kind=MLPClassifier)
    gain = clearly(pretrained, unaries)
    yield Claim(
        f"DMF's pairwise terms {'help' if helps else 'are best ignored'} on {study.data.name}",
        f"with them {mean_and_deviation(pretrained)}, without {mean_and_deviation(unaries)}: "
        f"{difference(pretrained, unaries)}",
        "F1 with pairwise terms is "
        f"{'' if helps else 'not '}above that without by more than the standard error",
        gain == helps,
    )


def _bias(study: Study) -> Iterator[Claim]:
    """Yield what is said of the bias in C₁: on the synthetic task, and on the data set."""

    def energy(kind: type[LabelEnergy]) -> list[float]:
        plan = plan_of(study.classifier("spen-paper"), study.data.train)
        return _f1(study, "spen-paper", kind.__name__, {"energy": with_energy(plan, kind)})

    measured = {
        f"synthetic task, {name}": (
            synthetic_f1(study, name, True),
            synthetic_f1(study, name, False),
        )
        for name in ("hardtanh", "relu")
    }
    measured[study.data.name] = energy(LabelEnergy), energy(LinearMeasurements)
    for where, (affine, linear) in measured.items():
        mean, error = paired(affine, linear)
        yield Claim(
            f"the bias in C₁ is critical ({where})",
            f"with it {mean_and_deviation(affine)}, without {mean_and_deviation(linear)}: "
            f"{difference(affine, linear)}",
            "F1 falls without it by more than one point and two standard errors",
            mean > max(1.0, 2 * error),
        )


def _little_data(study: Study) -> Iterator[Claim]:
    """Yield what is said of overfitting: conditional energies, and features that are frozen."""

    def conditional(made: LabelClassifier) -> Changes:
        return {"energy": with_energy(plan_of(made, study.data.train), ConditionalEnergy)}

    def frozen(made: LabelClassifier) -> Changes:
        return without_joint_stage(plan_of(made, study.data.train))

    few = train_and_test(study, "label energy", FEW)
    few_conditional = train_and_test(study, "conditional energy", FEW, conditional)
    yield Claim(
        f"the conditional energy overfits on little data ({100 * FEW:g} % of the rows)",
        "training − test F1 "
        f"{mean_and_deviation(gaps(few_conditional))}, of the label energy "
        f"{mean_and_deviation(gaps(few))}: {difference(gaps(few_conditional), gaps(few))}; test F1 "
        f"{difference(few_conditional['test'], few['test'])}",
        "its training − test F1 is above the label energy's by more than the standard error",
        clearly(gaps(few_conditional), gaps(few)),
    )
    few_frozen = train_and_test(study, "frozen features", FEW, frozen)
    all_rows = train_and_test(study, "label energy", 1.0)
    all_frozen = train_and_test(study, "frozen features", 1.0, frozen)
    yield Claim(
        "freezing the features helps when data are few",
        f"frozen − trained: {difference(few_frozen['test'], few['test'])} on {100 * FEW:g} % of "
        f"the rows, {difference(all_frozen['test'], all_rows['test'])} on all",
        f"on {100 * FEW:g} % of the rows F1 with frozen features is above by more than the "
        "standard error",
        clearly(few_frozen["test"], few["test"]),
    )


def _f1(
    study: Study,
    method: str,
    variant: str,
    changes: Changes,
    kind: type[LabelClassifier] | None = None,
) -> list[float]:
    return study.scores(method, variant, lambda made: changes, kind=kind)["threshold"]


if __name__ == "__main__":
    run_plain(claims)
