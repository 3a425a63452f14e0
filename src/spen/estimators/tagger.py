"""SPENTagger: sequences with a tag for each position, in the manner of scikit-learn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from spen.batch.context import Context
from spen.batch.ragged import Ragged
from spen.energies.base import energy_terms
from spen.errors import InputError, check_settings, check_whole
from spen.estimators.base import SettingAndMethod, _seed
from spen.estimators.progress import showing
from spen.estimators.sentences import (
    ENCODERS,
    KINDS,
    find_classes,
    in_words,
    named,
    read_sentences,
    read_tags,
    tag_numbers,
    warn_of_unseen,
)
from spen.estimators.spans import entity_f1, token_accuracy
from spen.estimators.tag_predictor import TagPredictor
from spen.estimators.tag_rules import TagRules
from spen.estimators.tagger_plan import RECIPES, Recipe, TaggerPlan
from spen.features import seeded
from spen.files import versions
from spen.inference.base import Inference
from spen.kernels.threads import ends_with_python
from spen.model import usable_device
from spen.objectives.base import Objective
from spen.sequences import (
    ArrayNetwork,
    SequenceFeatures,
    SparseScores,
    TokenNetwork,
    sequence_features,
)
from spen.training.checkpoint import History
from spen.training.loop import train_on
from spen.training.processes import our_processes
from spen.training.sequences import MISSING, SequenceRows

if TYPE_CHECKING:
    from spen.training.checkpoint import Epoch


class Tagging(NamedTuple):
    """One of the best taggings of a sentence.

    Attributes:
        tags: of each position.
        energy: of the whole.

    >>> Tagging(["B-NP", "I-NP"], -3.5).tags
    ['B-NP', 'I-NP']
    """

    tags: list[Any]
    energy: float


METRICS = ("entity_f1", "accuracy")
"""What ``score`` may be."""

PATIENCE = 5
"""Epochs without a better score of held-out sentences, after which ``early_stopping=True`` ends."""

LEAST_STEPS = 200
"""Steps that training makes, however few sentences there are, where epochs are not given."""


@dataclass(eq=False, repr=False, kw_only=True)
class Tagger(BaseEstimator):
    """The contract of spen's taggers: sentences in, a tag for each position out.

    A subclass says by ``plan`` which energy is learned and how.

    Attributes:
        classes_: the tags, in order.
        model_: the ``spen.SPEN``.
        encoder_: what makes numbers of sentences.
        metric_: what ``score`` returns: "entity_f1" where tags are those of spans, else "accuracy".
        forbidden_: pairs of tags of which the second may not follow the first; None is the outside.
        history_: the epochs of training.
        held_out_score_: the token accuracy of held-out sentences, or None.
        notes_: text for readers of the model file.
    """

    features: Any = None
    constraints: Any = "auto"
    epochs: str | int = "auto"
    lr: str | float = "auto"
    batch_size: str | int = "auto"
    dropout: str | float = "auto"
    weight_decay: str | float = "auto"
    early_stopping: bool | int = False
    held_out: float = 0.1
    device: str | torch.device = "auto"
    random_state: Any = None
    verbose: int = 0

    @abstractmethod
    def plan(self) -> tuple[Any, Any, Any]:
        """Return the energy, the objective and the inference, as settings or names."""

    @ends_with_python
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        eval_set: Any = None,
        callbacks: Sequence[Callable[[Epoch], None]] = (),
    ) -> Self:
        """Learn from sentences and their tags.

        Processes that torchrun started learn together: each calls this with the same arguments
        (docs/processes.md).

        Args:
            X: a list of sentences: arrays (T, d), lists of words, or lists of dicts: of features,
                as sklearn-crfsuite takes them, or of a CoNLL file's columns, as ``load_dataset``
                reads them (keys are their numbers; the first one holds the words).
            y: a list of tags for each, text or whole numbers; None or nan where one is missing.
            sample_weight: (n,) how much each sentence counts.
            eval_set: a pair (sentences, tags) to stop early by, in place of those held out of X.
            callbacks: called after each epoch with its ``Epoch``.
        """
        # Each process has its own device, which "cuda" stands for from then on.
        processes = our_processes()
        # Everything is checked before anything of this object changes.
        kind, sentences = read_sentences(X)
        tags = read_tags(y, list(map(len, sentences)))
        classes = find_classes(tags)
        plan = TaggerPlan.of(
            *self.plan(),
            self._recipe(kind, len(sentences)),
            kind == "features" and self.features is None,
        )
        rules = TagRules.of(self.constraints, classes.tolist(), tags)
        weight = _weights(sample_weight, len(sentences))
        device, seed = usable_device(self.device), _seed(self.random_state)
        if seed is None:
            draws = np.random.default_rng()
            seed = processes.said_by_first(lambda: int(draws.integers(2**31 - 1)))
        kept, held = np.arange(len(sentences)), None
        if eval_set is not None:
            held = self._eval_set(eval_set, kind)
        if self.early_stopping is not False:
            patience = PATIENCE if self.early_stopping is True else int(self.early_stopping)
            plan = replace(plan, patience=patience)
            if held is None:
                kept, rest = self._hold_out(len(sentences), seed)
                held = [sentences[i] for i in rest], [tags[i] for i in rest]
        encoder = ENCODERS[kind].of(sentences, kept)
        inputs = encoder.encode([sentences[i] for i in kept])
        with seeded(torch.Generator().manual_seed(seed)):
            # Torch's modules draw weights when they are made, whatever becomes of those.
            features = self._features(encoder, len(classes), inputs, plan.recipe, seed)
        model = plan.build(features, rules, seed).to(device)
        in_force = rules.beside(model.energy)
        broken = in_force.broken(tags)
        if broken is not None:
            raise InputError(f"The energy forbids what training tags do: {broken} Correct it.")
        in_force.check_possible(tag_numbers(tags, classes, "y"), "tags in y")

        def rows(inputs: Ragged, tags: list[list[Any]], weight: np.ndarray) -> SequenceRows:
            numbers = Ragged.of(tag_numbers(tags, classes, "y"), np.int64).to(device)
            complete = not bool((numbers.values == MISSING).any())
            # So that rates do not depend on how long sentences are.
            each = torch.from_numpy(weight).float() / numbers.lengths.double().mean().float()
            sizes = len(classes), each.to(device), complete, features.alike
            return SequenceRows(inputs.to(device), numbers, *sizes)

        learn, judge = rows(inputs, [tags[i] for i in kept], weight[kept]), None
        if held is not None:
            with named("eval_set"):
                in_force.check_possible([[MISSING] * len(each) for each in held[0]])
                judge = rows(encoder.encode(held[0]), held[1], np.ones(len(held[0])))
        runs, history, score = plan.runs(model), History(), None
        total = sum(stage.epochs for _, stage in runs)
        title = "fit" if self.verbose and processes.is_first else None
        with showing(title, total) as progress:
            for part, stage in runs:
                progress.begin(stage.name)
                told = (*progress.training(), *callbacks)
                done = train_on(part, [stage], learn, judge, seed, _share_right, told)
                history.epochs.extend(done.epochs)
                if judge is not None:
                    kept_epoch = 0 if stage.keep == "last" else done.best_epoch(stage.name)
                    score = done.epochs[kept_epoch - 1].score
                    progress.tried(stage.name, float(score or 0.0))
        self.take(TagPredictor(model, encoder, rules, plan.objective, plan.inference))
        self.metric_ = "entity_f1" if rules.are_spans_in(tags) else "accuracy"
        self.history_, self.held_out_score_ = history, score
        self.notes_ = {"training sentences": f"{len(kept):,}"} | versions()
        return self

    def take(self, predictor: TagPredictor) -> None:
        """Take over what was fitted or loaded."""
        self.predictor_, self.model_ = predictor, predictor.model
        self.encoder_ = predictor.encoder
        self.classes_ = np.array(predictor.rules.names)
        self.forbidden_ = predictor.in_force.pairs

    # Predictions ------------------------------------------------------------------------

    @ends_with_python
    def predict(self, X: Any, known: Any = None) -> list[list[Any]]:
        """Return the tags of each sentence: those of the least energy that can be found.

        Args:
            X: sentences, as ``fit`` takes them.
            known: tags to hold fixed: a list for each sentence, None where one is to be inferred.
        """
        predictor = self._fitted()
        sentences = predictor.read(X)

        def tags(context: Context) -> list[list[int]]:
            y = predictor.best(context)
            return y.unflatten(1, (-1, predictor.n_classes)).argmax(2).tolist()

        found = predictor.over(sentences, self._known(known, sentences), tags)
        return list(map(self._named, found, sentences))

    @ends_with_python
    def predict_marginals(self, X: Any, known: Any = None) -> list[np.ndarray]:
        """Return the probability of each tag at each position: (T, K) for each sentence.

        Columns are ``classes_``. Of energies that are chains they are exact; of others they are
        where inference ends. A hinge trains no probabilities, and what it trained is read as if
        it did.
        """
        predictor = self._fitted()
        sentences = predictor.read(X)

        def marginals(context: Context) -> np.ndarray:
            y = predictor.soft(context).y
            return y.unflatten(1, (-1, predictor.n_classes)).cpu().numpy()

        found = predictor.over(sentences, self._known(known, sentences), marginals)
        return [y[: len(sentence)].copy() for y, sentence in zip(found, sentences, strict=True)]

    @ends_with_python
    def predict_n_best(self, X: Any, n: int, known: Any = None) -> list[list[Tagging]]:
        """Return the n taggings of the least energy of each sentence, the best first.

        Sentences that have fewer taggings return fewer. It needs an energy that is a chain.
        """
        check_whole(n, "n")
        predictor = self._fitted()
        if not predictor.is_chain:
            terms = " + ".join(type(each).__name__ for each in energy_terms(self.model_.energy))
            raise InputError(
                f"predict_n_best needs an energy that is a chain; this model's is {terms}. Fit "
                "with energy='chain'."
            )
        sentences = predictor.read(X)

        def best(context: Context) -> Any:
            found = predictor.n_best(context, n)
            return zip(found.tags.tolist(), found.energy.tolist(), strict=True)

        found = predictor.over(sentences, self._known(known, sentences), best)
        return [
            [
                Tagging(self._named(tags, sentence), energy)
                for tags, energy in zip(*each, strict=True)
                if energy < torch.inf
            ]
            for each, sentence in zip(found, sentences, strict=True)
        ]

    @SettingAndMethod
    @ends_with_python
    def energy(self, X: Any, y: Any) -> np.ndarray:
        """Return the energy of any tagging of each sentence, (n,).

        Args:
            X: sentences, as ``fit`` takes them.
            y: a tag for each position.
        """
        predictor = self._fitted()
        sentences = predictor.read(X)
        tags = read_tags(y, list(map(len, sentences)))
        _check_complete(tags, "an energy is that of a whole tagging")

        def energies(context: Context) -> list[float]:
            assert context.known is not None
            given = torch.nan_to_num(context.known, nan=0.0)
            return self.model_.energy.bind(context).value(given).tolist()

        numbers = Ragged.of(tag_numbers(tags, self.classes_, "y"), np.int64)
        return np.array(predictor.over(sentences, numbers, energies))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return how good predictions are: ``entity_f1`` where tags are those of spans, else the
        share of positions that have the right tag. ``metric_`` says which.

        A tag that was not in training counts as one that was missed, with a warning. A missing one
        does not count; spans need all tags.
        """
        sentences = self._fitted().read(X)
        truth = read_tags(y, list(map(len, sentences)))
        warn_of_unseen(truth, self.classes_)
        found = self.predict(sentences)
        if self.metric_ == "entity_f1":
            if sample_weight is not None:
                raise InputError("sample_weight goes with token accuracy; this model scores spans.")
            _check_complete(truth, "spans need those of all positions")
            return entity_f1(truth, found)
        return token_accuracy(truth, found, _weights(sample_weight, len(truth)))

    @ends_with_python
    def save(self, path: Path | str) -> None:
        """Write the whole tagger to one safetensors file; ``spen.load`` reads it."""
        from spen.estimators.tagger_file import save

        check_is_fitted(self)
        save(self, path)

    @ends_with_python
    def report(
        self, path: Path | str, X: Any = None, y: Any = None, *, title: str | None = None
    ) -> Path:
        """Write one HTML page that shows the tagger, and return where it is (see docs/report.md).

        Args:
            path: the file to write.
            X: sentences, as ``fit`` takes them. Those that were not trained on say most; without
                any, the page has what the model alone tells.
            y: their tags; None where one is missing.
            title: of the page.
        """
        from spen.report.page import write_report
        from spen.report.sentences import JudgedSentences

        self._fitted()
        if (X is None) != (y is None):
            raise InputError("report takes sentences and their tags, X and y, or neither of them.")
        judged = None if X is None else JudgedSentences.of(self, X, y, "the sentences given")
        return write_report(path, title or type(self).__name__, self, judged)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments by name."""
        settings = super().get_params(deep)
        return {name: vars(self).get(name, value) for name, value in settings.items()}

    # How it works -----------------------------------------------------------------------

    def _recipe(self, kind: str, n: int) -> Recipe:
        """Return how so many sentences of a kind are learned, by the settings."""
        check_settings(self, held_out="share above zero")
        rules = {
            "epochs": "whole",
            "batch_size": "whole",
            "lr": "positive",
            "dropout": "share",
            "weight_decay": "zero or more",
        }
        given = {name: getattr(self, name) for name in rules if getattr(self, name) != "auto"}
        recipe = replace(RECIPES[kind], **given)
        check_settings(recipe, **rules)
        if self.epochs == "auto":
            # A handful of sentences is gone through more often.
            steps_an_epoch = -(-n // recipe.batch_size)
            recipe = replace(recipe, epochs=max(recipe.epochs, LEAST_STEPS // steps_an_epoch))
        if not isinstance(self.early_stopping, bool | np.bool_):
            check_whole(self.early_stopping, "early_stopping")
        return recipe

    def _hold_out(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        count = round(self.held_out * n)
        if not 0 < count < n:
            raise InputError(
                f"early_stopping holds out a share of {self.held_out} of {n} sentences, which "
                "must leave some on both sides. Give an eval_set, or more sentences."
            )
        order = np.random.default_rng(seed).permutation(n)
        return np.sort(order[count:]), np.sort(order[:count])

    def _eval_set(self, given: Any, kind: str) -> tuple[list[Any], list[list[Any]]]:
        if not isinstance(given, tuple) or len(given) != 2:
            raise InputError(
                f"eval_set must be a pair (sentences, tags); received a {type(given).__name__}."
            )
        with named("eval_set"):
            other, sentences = read_sentences(given[0])
            tags = read_tags(given[1], list(map(len, sentences)))
        if other != kind:
            raise InputError(f"eval_set holds {KINDS[other]}, and X {KINDS[kind]}.")
        return sentences, tags

    def _features(
        self, encoder: Any, n_classes: int, inputs: Ragged, recipe: Recipe, seed: int
    ) -> SequenceFeatures:
        """Return a new feature network."""
        if self.features is not None:
            given = encoder.width if encoder.kind == "arrays" else encoder
            trial = inputs.batch(torch.tensor([0]))
            return sequence_features(self.features, given, trial, seed)
        if encoder.kind == "arrays":
            return ArrayNetwork(encoder.width, dropout=recipe.dropout)
        if encoder.kind == "features":
            return SparseScores(len(encoder.names) + 1, n_classes)
        return TokenNetwork(encoder.sizes, len(encoder.characters) + 2, dropout=recipe.dropout)

    def _known(self, known: Any, sentences: list[Any]) -> Ragged | None:
        """Return the numbers of tags that are known, if each sentence has a tagging."""
        if known is None:
            self.predictor_.in_force.check_possible([[MISSING] * len(each) for each in sentences])
            return None
        tags = read_tags(known, list(map(len, sentences)), "known")
        numbers = tag_numbers(tags, self.classes_, "known")
        self.predictor_.in_force.check_possible(numbers)
        return Ragged.of(numbers, np.int64)

    def _named(self, numbers: list[int], sentence: Any) -> list[Any]:
        """Return the tags of a sentence's positions."""
        return [self.predictor_.rules.names[k] for k in numbers[: len(sentence)]]

    def _fitted(self) -> TagPredictor:
        if "predictor_" not in vars(self):
            check_is_fitted(self)
        return self.predictor_


@dataclass(eq=False, repr=False, kw_only=True)
class SPENTagger(Tagger):
    """A tagger with a learned energy of whole taggings.

        ŷ = argmin_y E(F(x), y),   x (n, T, d), y (n, T) of tags

    Sentences are arrays, words, or dicts of features; with no other settings it takes a network
    that suits them. Where the energy is a chain, training and inference are exact (a CRF, or with
    objective="hinge" a structured SVM); others descend, from the marginals of the chain in them.

    Args:
        energy: "local" (a score for each tag at each position), "chain" (also for what follows
            what), "chain+convolution" (also for windows of three tags: of letters in handwriting
            it is better than a chain, of words in text not), or a description such as
            ``spen.LocalEnergy.unsized() + spen.ChainEnergy.unsized()``.
        objective: "likelihood" (exact, of chains), "hinge" (max-margin, of chains), "unrolled"
            (the likelihood through the steps of inference, of all else), or an Objective; "auto"
            is the likelihood where that can be.
        inference: the ``spen.Descent`` for energies beyond chains; "auto" makes five steps.
        features: your own feature network in place of ours: an nn.Module from (n, T, d) arrays to
            (n, T, width) features, which is given ``mask``, (n, T), if its forward takes that, or
            else sees sentences of one length together. Or a function that makes one, called with d.
            Of words it takes the numbers that ``encoder_`` makes, and the function takes that.
        constraints: what may not follow what: "auto" takes the rules of BIO, BIOES or BILOU where
            tags are such and obey them; "spans" insists on these; a list of pairs of tags, of which
            the second may not follow the first (None is the outside); or None.
        epochs: passes over the sentences ("auto": 30, of dicts of features 20, and more of few);
            an energy beyond chains then trains for a third more.
        lr: the learning rate, which falls to zero.
        batch_size: sentences in a mini-batch.
        dropout: the share of units zeroed in training.
        weight_decay: regularisation of the weights.
        early_stopping: True ends training after 5 epochs (a number: after so many) in which the
            token accuracy of held-out sentences was not better, and keeps the best.
        held_out: the share of sentences that are held out for that.
        device: "auto" takes a GPU where there is one; or "cpu", "cuda", ...
        random_state: decides all random draws; None draws anew each time.
        verbose: 1 shows how far training is.

    Attributes:
        classes_: the tags, in order.
        model_: the ``spen.SPEN``.
        encoder_: what makes numbers of sentences.
        metric_: what ``score`` returns: "entity_f1" where tags are those of spans, else "accuracy".
        forbidden_: pairs of tags of which the second may not follow the first; None is the outside.
        history_: the epochs of training.
        held_out_score_: the token accuracy of held-out sentences, or None.

    >>> import spen
    >>> X = [["the", "red", "car"], ["a", "car"], ["the", "red", "wine"]] * 4
    >>> y = [["D", "A", "N"], ["D", "N"], ["D", "A", "N"]] * 4
    >>> tagger = spen.SPENTagger(energy="chain", epochs=10, random_state=0).fit(X, y)
    >>> tagger.predict([["a", "red", "car"]])
    [['D', 'A', 'N']]
    """

    energy: Any = field(default="chain", kw_only=False)
    objective: str | Objective = field(default="auto", kw_only=False)
    inference: Literal["auto"] | Inference = field(default="auto", kw_only=False)

    def plan(self) -> tuple[Any, Any, Any]:
        return vars(self)["energy"], self.objective, self.inference


# The setting of this name is a method too: see SettingAndMethod.
SPENTagger.energy = vars(Tagger)["energy"]


def _check_complete(tags: list[list[Any]], why: str) -> None:
    """Raise unless each position has a tag."""
    for i, sentence in enumerate(tags):
        if None in sentence:
            where = in_words(i, sentence.index(None))
            raise InputError(f"{where} has no tag in y; {why}.")


def _weights(given: Any, n: int) -> np.ndarray:
    """Return how much each sentence counts, one on average."""
    if given is None:
        return np.ones(n)
    weights = np.asarray(given, np.float64)
    if weights.shape != (n,) or not (np.isfinite(weights) & (weights >= 0)).all():
        raise InputError(f"sample_weight must be {n} numbers of zero or more.")
    if not weights.any():
        raise InputError("sample_weight is zero everywhere: no sentence counts.")
    return weights / weights.mean()


def _share_right(truth: Tensor, soft: Tensor) -> float:
    """Return the share of positions whose most probable class is the true one."""
    known = truth.any(1)
    return float((truth.argmax(1) == soft.argmax(1))[known].double().mean())
