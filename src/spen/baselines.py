"""Baselines, which a SPEN is compared with: the other rows of the paper's first table.

Each is a classifier with the manners of ``SPENClassifier``, held-out rows, calibration and
decoding included, so that a comparison compares models and nothing else.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from sklearn.exceptions import ConvergenceWarning

from spen.energies.local import KnownLabelsEnergy, LocalEnergy
from spen.energies.pairwise import ConditionalPairwiseEnergy
from spen.errors import InputError, check_positive, check_whole, choose
from spen.estimators.base import LabelClassifier, NetworkClassifier
from spen.estimators.plan import Choice, Plan, Prediction, Shape
from spen.estimators.recipe import check_decoding, folds_of, is_auto, make_plan, metric_of
from spen.estimators.tagger import Tagger
from spen.inference.descent import Descent, Stopping
from spen.inference.rules import MeanField
from spen.objectives.base import Objective
from spen.objectives.label_wise import CrossEntropy, HiddenCrossEntropy, SquaredError
from spen.objectives.unrolled import UnrolledLikelihood
from spen.training.stage import Stage

__all__ = [
    "BRClassifier",
    "CRFTagger",
    "DMFClassifier",
    "KnownLabelsClassifier",
    "LRClassifier",
    "LocalTagger",
    "MLPClassifier",
    "PRLRClassifier",
    "StructuredSVMTagger",
]

STRENGTHS = (0.03, 0.1, 0.3, 1.0)
"""Values of C that are tried for linear models."""

LOW_RANK_STRENGTHS = (0.02, 0.05, 0.15)
"""Values of C that are tried with each rank: two factors that fit each other want more ridge."""

RANKS = (0.1, 0.25, 0.5)
"""Ranks that are tried, as shares of the largest one."""

ITERATIONS = 300
"""The most that L-BFGS makes; logistic regressions stop before, low-rank models may not."""

KNOWN_WIDTHS, KNOWN_EPOCHS, KNOWN_RATES = (1024, 1024), (12, 40), (5e-4, 1e-3)
"""Layers of a network that is told known labels, and the epochs and rates that are tried."""

LAST, SETTLED = 10, 1e-3
"""A loss has settled if its last iterations, this many, changed it by a smaller share."""


@dataclass(eq=False, repr=False, kw_only=True)
class _Linear(LabelClassifier):
    """A model that is linear in x: L-BFGS minimises its loss on all rows at once."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> Self:
        """Learn from rows and their labels, as ``SPENClassifier`` does and with its options; warn
        if more is to learn."""
        super().fit(X, y, sample_weight, **options)
        losses = [epoch.loss for epoch in (self.refit_history_ or self.history_).epochs]
        # A low-rank model creeps on for long, without getting better: that is no news.
        if len(losses) == ITERATIONS and not _is_settled(losses):
            warnings.warn(
                f"L-BFGS made all {ITERATIONS} iterations, and in the last {LAST} of them the "
                f"loss still went from {losses[-1 - LAST]:.4g} to {losses[-1]:.4g}. A smaller C "
                "or features of like scales let it end sooner.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self


def _is_settled(losses: Sequence[float]) -> bool:
    return abs(losses[-1] - losses[-1 - LAST]) <= SETTLED * abs(losses[-1])


@dataclass(eq=False, repr=False, kw_only=True)
class BRClassifier(_Linear):
    """Binary relevance: an independent logistic regression for each label, all at once.

        P(y_i = 1 | x) = σ(−b_i·x − b0_i),   x (n, d), y (n, L)

    Args:
        C: the inverse strength of the l2 regularisation, as in scikit-learn; "auto" chooses
            it on held-out rows.

    The other settings are those of ``SPENClassifier``.

    >>> import spen
    >>> data = spen.exclusive_blocks(n_train=90, n_test=100)
    >>> BRClassifier(random_state=0).fit(data.train.X, data.train.Y).predict(data.test.X).shape
    (100, 16)
    """

    C: str | float = "auto"

    def plan(self, shape: Shape) -> Plan:
        decays = _decays(self.C, STRENGTHS, shape)
        choices = tuple(Choice((), weight_decay=decay) for decay in decays)
        return _convex_plan(self, shape, CrossEntropy(), choices)


@dataclass(eq=False, repr=False, kw_only=True)
class LRClassifier(_Linear):
    """Low-rank weights: scores V U x (and biases), of fewer dimensions than there are labels.

        P(y_i = 1 | x) = σ(−V_i·U x),   x (n, d), U (rank, d), V (L, rank)

    The model of Yu, Jain, Kar & Dhillon, "Large-scale Multi-label Learning with Missing
    Labels", ICML 2014: the loss of each label, with a ridge on both factors. They alternate
    between the factors; here one L-BFGS minimises the same objective over both.

    Args:
        rank: the dimensions; "auto" chooses them on held-out rows.
        loss: "logistic" or "squared".
        C: the inverse strength of the ridge, as in scikit-learn; "auto" chooses it too.

    The other settings are those of ``SPENClassifier``.

    >>> import spen
    >>> data = spen.exclusive_blocks(n_train=90, n_test=100)
    >>> clf = LRClassifier(rank=8, C=1.0, random_state=0).fit(data.train.X, data.train.Y)
    >>> clf.plan_.chosen.hidden
    (8,)
    """

    rank: str | int = "auto"
    loss: str = "logistic"
    C: str | float = "auto"

    def plan(self, shape: Shape) -> Plan:
        losses: dict[str, Objective] = {"logistic": CrossEntropy(), "squared": SquaredError()}
        objective = choose(self.loss, losses, "loss")
        largest = min(shape.labels, shape.features)
        ranks: Any = sorted({max(1, round(part * largest)) for part in RANKS})
        if not is_auto(self.rank):
            check_whole(self.rank, "rank")
            ranks = [self.rank]
        decays = _decays(self.C, LOW_RANK_STRENGTHS, shape)
        choices = [Choice((rank,), weight_decay=decay) for rank in ranks for decay in decays]
        return _convex_plan(self, shape, objective, tuple(choices))


@dataclass(eq=False, repr=False, kw_only=True)
class MLPClassifier(NetworkClassifier):
    """A feed-forward network: the features and the local energy of a SPEN, without the rest.

        P(y_i = 1 | x) = σ(−b_i·F(x) − b0_i),   x (n, d), y (n, L)

    The settings of its network are those of ``SPENClassifier``, with the same defaults.

    Args:
        members: how many networks are trained, from seeds of their own, and averaged; "auto" is 1.
        linear_member: average a logistic regression in, too.

    >>> import spen
    >>> data = spen.exclusive_blocks(n_train=90, n_test=100)
    >>> clf = MLPClassifier(hidden=(8,), epochs=5).fit(data.train.X, data.train.Y)
    >>> clf.predict_proba(data.test.X).shape
    (100, 16)
    """

    members: str | int = "auto"
    linear_member: bool = False

    def plan(self, shape: Shape) -> Plan:
        return make_plan(self.get_params(deep=False) | {"energy": "local"}, shape)


@dataclass(eq=False, repr=False, kw_only=True)
class DMFClassifier(NetworkClassifier):
    """Deep mean field: unrolled mean-field steps of a fully connected pairwise CRF.

        y ← σ(−∇E(y)),   E(y) = y·A(x) y + s(x)·y,   A(x) = Σ_k h_k(x) A_k,   y (n, L)

    The paper's appendix: unaries from a trained MLP, which are then clamped; pairwise factors
    A(x); a fixed number of parallel mean-field updates from y = ½; the
    likelihood of the last one, differentiated through all of them. It has L² parameters.

    Args:
        terms: k, how many pairwise matrices the factors are a mixture of.
        steps: mean-field updates.
        pretrain: False trains unaries and factors together from the start.
        pairwise_epochs: passes over the data for the pairwise factors.
        pairwise_rate: their learning rate.
        pairwise_decay: their weight decay.

    The other settings are those of ``SPENClassifier``, for the MLP.

    >>> import spen
    >>> data = spen.exclusive_blocks(n_train=90, n_test=100)
    >>> clf = DMFClassifier(hidden=(8,), epochs=5).fit(data.train.X, data.train.Y)
    >>> clf.predict(data.test.X).shape
    (100, 16)
    """

    terms: int = 1
    steps: int = 5
    pretrain: bool = True
    pairwise_epochs: int = 10
    pairwise_rate: float = 1e-3
    pairwise_decay: float = 1e-2

    def plan(self, shape: Shape) -> Plan:
        check_whole(self.terms, "terms")
        check_whole(self.steps, "steps")
        energy = LocalEnergy.unsized() + ConditionalPairwiseEnergy.unsized(terms=self.terms)
        objective = UnrolledLikelihood(entropy=1.0, start="uniform")
        inference = Descent(MeanField(), Stopping(max_steps=self.steps))
        settings = {"energy": energy, "objective": objective, "inference": inference}
        plan = make_plan(self.get_params(deep=False) | settings, shape)
        (every,) = plan.stages
        slow = {"global_lr": None, "lr": self.pairwise_rate, "epochs": self.pairwise_epochs}
        pairwise = replace(
            every, name="pairwise", parts=("global",), weight_decay=self.pairwise_decay, **slow
        )
        if self.pretrain:
            return replace(plan, stages=(plan.trial, pairwise))
        return replace(plan, stages=(replace(every, global_lr=self.pairwise_rate),))


@dataclass(eq=False, repr=False, kw_only=True)
class PRLRClassifier(NetworkClassifier):
    """A network for labels that are partly missing: ones are trusted, zeros are not.

        P(marked_i = 1 | x) = (1 − m) P(y_i = 1 | x),   marks and y (n, L)

    The paper's missing-label row is the posterior-regularised low-rank model of Lin et al.
    (2014). Here a label that is on is marked with probability 1 − m, independently (Elkan &
    Noto, "Learning Classifiers from Only Positive and Unlabeled Data", KDD 2008), and the
    likelihood of the marks is trained. That is a setting of the loss alone, so it combines
    with any energy: ``SPENClassifier(missing="auto")``. Calibration sees marks alone, so
    probabilities stay those of marks.

    Args:
        missing: m; "auto" chooses it on held-out rows, from shares above zero.

    The other settings are those of ``SPENClassifier``.

    >>> import spen
    >>> data = spen.exclusive_blocks(n_train=90, n_test=100)
    >>> clf = PRLRClassifier(missing=0.2, hidden=(8,), epochs=5).fit(data.train.X, data.train.Y)
    >>> clf.plan_.stages[0].objective
    CrossEntropy(missing=0.2)
    """

    missing: str | float = "auto"

    def plan(self, shape: Shape) -> Plan:
        return make_plan(self.get_params(deep=False) | {"energy": "local"}, shape)


@dataclass(eq=False, repr=False, kw_only=True)
class KnownLabelsClassifier(NetworkClassifier):
    """A feed-forward network of x and the known labels: it infers the rest without an energy.

        P(y_i = 1 | x, known) = σ(f_i(x, [known = 1], [known = 0])),   known (n, L)

    Its inputs are x and two vectors more, which mark the labels that are known to be on and those
    known to be off. In training each row is told a random part of its labels, a share drawn evenly
    from 0 to 1, and the loss is the log loss of the others. Up to 2,000 labels, known labels also
    have a direct weight for each output; of more labels a known zero is marked by 1/√L, because as
    many ones would drown all else.

    Dropout, rate and epochs are chosen on held-out rows by the log loss of hidden labels, where
    none, a quarter and a half of the labels are known; probabilities are calibrated for rows of
    which half of the labels are known too. Both are as in ``SPENClassifier``.

    Args:
        hidden: the widths of the layers; "auto" is (1024, 1024).
        dropout: the share of units zeroed in training, after each layer.
        lr: the learning rate; "auto" chooses it too.
        epochs: passes over the data; "auto" chooses between 12 and 40.

    The other settings are those of ``SPENClassifier``.

    >>> import spen
    >>> data = spen.exclusive_blocks(n_train=90, n_test=100)
    >>> clf = KnownLabelsClassifier(hidden=(8, 8), epochs=5).fit(data.train.X, data.train.Y)
    >>> clf.predict(data.test.X, known={0: 1})[:, 0].min()
    np.float32(1.0)
    """

    def plan(self, shape: Shape) -> Plan:
        if shape.exclusive:
            raise InputError(
                "KnownLabelsClassifier is for sets of labels; y holds classes, and where one is "
                "known nothing is left to infer. Choose another classifier."
            )
        own = self.get_params(deep=False)
        auto = {"hidden": KNOWN_WIDTHS, "epochs": KNOWN_EPOCHS[-1]}
        settings = own | {name: each for name, each in auto.items() if is_auto(own[name])}
        plan = make_plan(settings | {"energy": "local"}, shape)
        if not plan.chosen.hidden:
            raise InputError(
                "hidden must have at least one width, that of the layer which x and the known "
                f"labels share; received {self.hidden!r}."
            )
        sizes: dict[str, Any] = {"hidden": plan.chosen.hidden[1:], "dropout": 0.0}
        if (mark := mark_of_zeros(shape.labels)) != 1:
            sizes["zeros"] = mark
        energy = KnownLabelsEnergy.unsized(**sizes)
        stage = replace(plan.trial, objective=HiddenCrossEntropy())
        # The first layer is added up of x's part, the features, and of the known labels'.
        choices = tuple(
            Choice(
                each.hidden[:1],
                input_dropout=each.input_dropout,
                energy_dropout=each.dropout,
                lr=rate,
                epochs=epochs,
            )
            for each in plan.choices
            for rate in (KNOWN_RATES if is_auto(self.lr) else (None,))
            for epochs in (KNOWN_EPOCHS if is_auto(self.epochs) else (None,))
        )
        plan = replace(plan, choices=choices, energy=energy, trial=stage, stages=(stage,))
        return replace(plan, linear=True, tried="all", by_known=True)


def mark_of_zeros(labels: int) -> float:
    """Return what a told network marks a known zero with, see ``KnownLabelsEnergy``."""
    return 1.0 if labels <= KnownLabelsEnergy.MOST_LINKED else labels**-0.5


ALL = (
    BRClassifier,
    LRClassifier,
    MLPClassifier,
    DMFClassifier,
    PRLRClassifier,
    KnownLabelsClassifier,
)


def _convex_plan(
    classifier: LabelClassifier, shape: Shape, objective: Objective, choices: tuple[Choice, ...]
) -> Plan:
    """Return the plan of a model that is linear in x, trained by L-BFGS on all rows at once."""
    settings = classifier.get_params(deep=False)
    check_decoding(settings)
    low_rank = bool(choices[0].hidden)
    parts = ("features", "local") if low_rank else ("local",)
    stage = Stage(
        "label by label", objective, parts=parts, epochs=ITERATIONS, optimiser="lbfgs", keep="last"
    )
    return Plan(
        choices=choices,
        energy=LocalEnergy.unsized(),
        trial=stage,
        stages=(stage,),
        prediction=Prediction(CrossEntropy(), Descent()),
        decoding=classifier.decoding,
        metric=metric_of(settings, shape),
        **folds_of(settings, shape),
        linear=low_rank,
    )


def _decays(C: Any, tried: Sequence[float], shape: Shape) -> tuple[float, ...]:
    """Return weight decays of the mean loss, for inverse strengths C of its sum."""
    if is_auto(C):
        return tuple(1 / (value * shape.rows) for value in tried)
    check_positive(C, "C")
    return (1 / (C * shape.rows),)


@dataclass(eq=False, repr=False, kw_only=True)
class LocalTagger(Tagger):
    """A tagger whose tags know nothing of each other: the network of a ``SPENTagger`` alone.

        P(y_t = k | x) = softmax_k(−b_k·F(x)_t − b0_k),   F(x) (rows, T, f)

    It minimises the log loss of each tag. Forbidden transitions hold for its predictions too. The
    settings are those of ``SPENTagger``.

    >>> X, y = [["a", "dog"], ["the", "dog", "barks"]] * 4, [["D", "N"], ["D", "N", "V"]] * 4
    >>> LocalTagger(epochs=10, random_state=0).fit(X, y).predict([["the", "dog"]])
    [['D', 'N']]
    """

    def plan(self) -> tuple[Any, Any, Any]:
        return "local", "likelihood", "auto"


@dataclass(eq=False, repr=False, kw_only=True)
class CRFTagger(Tagger):
    """A linear-chain conditional random field, P(y) ∝ exp(−E(y)), by its exact likelihood.

        loss = E(ȳ) + log Σ_y exp(−E(y)),   y (rows, T K) over all taggings

    The settings are those of ``SPENTagger``.

    >>> X, y = [["a", "dog"], ["the", "dog", "barks"]] * 4, [["D", "N"], ["D", "N", "V"]] * 4
    >>> CRFTagger(epochs=10, random_state=0).fit(X, y).predict([["the", "dog"]])
    [['D', 'N']]
    """

    def plan(self) -> tuple[Any, Any, Any]:
        return "chain", "likelihood", "auto"


@dataclass(eq=False, repr=False, kw_only=True)
class StructuredSVMTagger(Tagger):
    """A structured support vector machine on a chain: the margin of a tagging is its wrong tags.

        loss = max_y [Δ(y, ȳ) − E(y)] + E(ȳ),   y (rows, T K) over all taggings

    The settings are those of ``SPENTagger``.

    >>> X, y = [["a", "dog"], ["the", "dog", "barks"]] * 4, [["D", "N"], ["D", "N", "V"]] * 4
    >>> StructuredSVMTagger(epochs=10, random_state=0).fit(X, y).predict([["the", "dog"]])
    [['D', 'N']]
    """

    def plan(self) -> tuple[Any, Any, Any]:
        return "chain", "hinge", "auto"


TAGGERS = (LocalTagger, CRFTagger, StructuredSVMTagger)
