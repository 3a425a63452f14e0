"""The paper's side remarks: each claim, what we measured, and whether they agree.

All figures are test F1 with one threshold, as in the paper. A rule that was written down
beforehand decides; it stands beside the verdict.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import spen
from spen.baselines import MLPClassifier
from spen.cli.show import say, text_table
from spen.data.dataset import Summary, summarise
from spen.estimators.base import LabelClassifier
from spen_paper.figures import difference, mean_and_deviation, paired
from spen_paper.fits import describe_plan, plan_of, tell
from spen_paper.records import Record
from spen_paper.studies.study import Study, few_rows, longer_for
from spen_paper.studies.variants import Changes, changed, with_energy, without_joint_stage
from spen_paper.tables.protocol import Method, run
from spen_paper.tables.table3 import methods_for

FEW = 0.1
"""The share of the training rows that stands for little data."""

PAIRWISE_HELP = {"bibtex": True, "delicious": False, "bookmarks": False}
"""Whether deep mean field is better in the paper with its pairwise terms than without."""

ONE_FOLD: Changes = {"folds": 1}
"""Deep mean field is slow; one held-out part is enough for one threshold."""


DATASETS = {
    "bibtex": (159, 1836, 4880, "2.40"),
    "delicious": (983, 500, 12920, "19.02"),
    "bookmarks": (208, 2150, 60000, "2.03"),
    "yeast": (14, 103, 2417, "30.3"),
}
"""Labels, features, training rows and "% true labels", as the paper prints them."""

SYNTHETIC_ROWS, SYNTHETIC_TEST_ROWS = 1500, 10_000


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


def claims(dataset: str, seeds: int, device: str, out: Path) -> None:
    """Put the paper's side remarks to the test, one row each.

    All of them on Bibtex; on another data set those on deep mean field alone.
    """
    study = Study.open("claims", dataset, seeds, device, out)
    table, about_data = dataset_table()
    found = list(_mean_field(study))
    if dataset == "bibtex":
        found += [*_bias(study), *_little_data(study), about_data]
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
    pretrained = study.scores("dmf", "pre-trained unaries", ONE_FOLD)["threshold"]
    scratch = study.scores("dmf", "no pre-training", ONE_FOLD | {"pretrain": False})["threshold"]
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
    unaries = study.scores("dmf", "unaries alone", ONE_FOLD, kind=MLPClassifier)["threshold"]
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

    def energy(kind: type[spen.LabelEnergy]) -> list[float]:
        plan = plan_of(study.classifier("spen-paper"), study.data.train)
        changes = {"energy": with_energy(plan, kind)}
        return study.scores("spen-paper", kind.__name__, changes)["threshold"]

    measured = {
        f"synthetic task, {name}": (
            synthetic_f1(study, name, True),
            synthetic_f1(study, name, False),
        )
        for name in ("hardtanh", "relu")
    }
    measured[study.data.name] = energy(spen.LabelEnergy), energy(LinearMeasurements)
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
        return {"energy": with_energy(plan_of(made, study.data.train), spen.ConditionalEnergy)}

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


class LinearMeasurements(spen.LabelEnergy):
    """E(y) = c₂·g(C₁ y): a label energy whose measurements are linear, not affine.

    Args:
        n_labels: L.
        measurements: the number of rows of C₁.
        nonlinearity: g: relu, hardtanh, softplus or sigmoid.

    >>> energy = LinearMeasurements(4, measurements=2)
    >>> energy.bias.tolist(), energy.bias.requires_grad
    ([0.0, 0.0], False)
    """

    def __init__(self, n_labels: int, measurements: int, nonlinearity: str = "hardtanh") -> None:
        super().__init__(n_labels, measurements, nonlinearity)
        # What is frozen stays frozen in training, and here it starts at zero.
        self.bias.requires_grad_(False)


@dataclass(frozen=True)
class WithoutBias(Method):
    """A method whose label energy has linear measurements."""

    @property
    def energy(self) -> spen.UnsizedEnergy:
        """The energy without its sizes; it starts with the weights of the one with biases."""
        settings = {"measurements": self.measurements, "nonlinearity": self.nonlinearity}
        return spen.LocalEnergy.unsized() + LinearMeasurements.unsized(**settings)


def synthetic_f1(study: Study, nonlinearity: str, bias: bool) -> list[float]:
    """Return the F1 of Table 3's SPEN on the synthetic task, with or without the bias.

    Measurements start with weights of both signs and a bias of zero, so that the two differ
    in nothing else.
    """
    method = replace(
        methods_for(SYNTHETIC_ROWS)["spen"], nonlinearity=nonlinearity, initial="signed"
    )
    if not bias:
        method = WithoutBias(**vars(method))
    found = []
    for seed in range(study.seeds):
        data = spen.exclusive_blocks(SYNTHETIC_ROWS, SYNTHETIC_TEST_ROWS, seed=seed)
        name = f"spen, {nonlinearity}, {'affine' if bias else 'linear'}"
        record = run(study.experiment, name, method, data, seed, study.records)
        tell(f"{name}, seed {seed}", {"synthetic": record})
        found.append(record["metrics"]["f1"])
    return found


def train_and_test(
    study: Study,
    variant: str,
    share: float,
    changes: Callable[[LabelClassifier], Changes] = lambda made: {},
) -> dict[str, list[float]]:
    """Return the F1 of training rows ("train") and of test rows ("test"), seed by seed.

    Args:
        study: whose settings of the paper's SPEN are taken.
        variant: what the records call it.
        share: of the training rows; with few rows epochs are more.
        changes: of the constructor's arguments.
    """
    method, found = "spen-paper", []
    for seed in range(study.seeds):
        data = few_rows(study.data, share, seed)
        made = study.classifier(method, seed)
        made = changed(made, longer_for(share)(made))
        made = changed(made, changes(made))

        def measure(made=made, data=data) -> Record:
            made.fit(data.train.X, data.train.Y)
            scores = {}
            for name, rows in (("f1", data.test), ("train_f1", data.train)):
                labels = made.decode(made.predict_proba(rows.X), "threshold")
                scores[name] = round(100 * spen.example_f1(rows.Y, labels), 4)
            return {"metrics": scores}

        settings = describe_plan(made, data) | {"variant": variant, "share": share}
        identity = study.identity(method, seed, data, settings, "threshold")
        record = study.records.make(identity, measure)
        tell(f"{method}, {variant}, {share:g} of the rows, seed {seed}", {"threshold": record})
        found.append(record["metrics"])
    return {"test": [m["f1"] for m in found], "train": [m["train_f1"] for m in found]}


def gaps(scores: dict[str, list[float]]) -> list[float]:
    """Return training − test F1, seed by seed: how far a model overfits.

    >>> gaps({"train": [90.0, 80.0], "test": [40.0, 45.0]})
    [50.0, 35.0]
    """
    return [a - b for a, b in zip(scores["train"], scores["test"], strict=True)]


def dataset_table() -> tuple[str, Claim]:
    """Return the paper's table of data sets, counted anew, and what its last column means."""
    header = ["", "labels", "features", "training rows", "rows", "labels a row", "labels on, %"]
    rows, read_as = [], {}
    for name, printed in DATASETS.items():
        try:
            figures = summarise(spen.load_dataset(name), top=0)
        except spen.InputError:
            rows.append([name, *("not at hand",) * 6, printed[3], ""])
            continue
        read_as[name] = meaning(figures, printed[3])
        counted = (figures.n_labels, figures.n_features, figures.rows["train"])
        beside = [_beside(*pair) for pair in zip(counted, printed[:3], strict=True)]
        means = [f"{figures.cardinality:.2f}", f"{100 * figures.density:.2f}"]
        total = f"{sum(figures.rows.values()):,}"
        rows.append([name, *beside, total, *means, printed[3], read_as[name]])
    table = text_table([*header, 'paper\'s "% true labels"', "which is"], rows)
    measured = "; ".join(f"{name}: {words}" for name, words in read_as.items()) or "no set at hand"
    agreed = bool(read_as) and set(read_as.values()) == {"labels on, %"}
    return table, Claim(
        '"% true labels" of its data-set table is the share of labels that are on',
        measured,
        "for every set at hand the column is the share of labels that are on, to its last digit",
        agreed,
    )


def meaning(figures: Summary, printed: str) -> str:
    """Say which figure of a data set a printed one is, to its last digit.

    >>> figures = summarise(spen.exclusive_blocks(100, 50))
    >>> meaning(figures, "4.0"), meaning(figures, "25.0"), meaning(figures, "3")
    ('labels a row', 'labels on, %', 'neither')
    """
    digits = len(printed.partition(".")[2])
    candidates = {"labels a row": figures.cardinality, "labels on, %": 100 * figures.density}
    near = [name for name, value in candidates.items() if f"{value:.{digits}f}" == printed]
    return near[0] if near else "neither"


def _beside(ours: int, papers: int) -> str:
    return f"{ours:,}" if ours == papers else f"{ours:,} (paper: {papers:,})"
