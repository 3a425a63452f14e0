"""What the page of a tagger shows: sentences to look at closely, and what may follow what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from spen.batch.context import Context
from spen.batch.ragged import Ragged
from spen.energies.base import SumEnergy, energy_terms
from spen.energies.chain import ChainEnergy, ConditionalChainEnergy
from spen.energies.local import LocalEnergy
from spen.errors import InputError
from spen.estimators.sentences import read_tags
from spen.estimators.tag_predictor import TagPredictor
from spen.estimators.tagger import Tagger
from spen.features import evaluating
from spen.inference.descent import Descent
from spen.inference.discrete.viterbi import Chain, Viterbi, read_chain
from spen.report.examples import OF_EACH_KIND
from spen.report.subject import isolated, packed
from spen.training.sequences import MISSING

MOST_SENTENCES = 20_000
"""Of more a page judges a random part."""

LONGEST_SHOWN = 60
"""Positions of a sentence to look at; longer ones are shown where there are no others."""

LARGEST = 400_000
"""Numbers of chains that a page carries: two megabytes of text."""

FRAMES = 12
"""Steps of a descent that a page keeps."""

SETTINGS = 120
"""Tags of a sentence that Python sets one by one, where the page cannot answer itself."""

TOP = 3
"""Of each position so many probabilities are kept of such an answer."""

SHOWN_TAGS = 20
"""Tags in the picture of transitions."""

STRONGEST = 12
"""Transitions in numbers, of the likeliest and of the unlikeliest ones."""


@dataclass(frozen=True)
class JudgedSentences:
    """Sentences whose tags are known.

    Attributes:
        X: as the tagger's ``predict`` takes them.
        tags: of each sentence; None where one is missing.
        name: what to call them, such as "the test sentences of conll2000".
        total: how many there were before a part was taken.
        numbers: where each stood among those, from 0.
    """

    X: list[Any]
    tags: list[list[Any]]
    name: str
    total: int
    numbers: np.ndarray

    @classmethod
    def of(cls, tagger: Tagger, X: Any, y: Any, name: str) -> JudgedSentences:
        """Check sentences and their tags, and take a random part of too many."""
        sentences = tagger.predictor_.read(X)
        tags = read_tags(y, [len(each) for each in sentences])
        total, numbers = len(sentences), np.arange(len(sentences))
        if total > MOST_SENTENCES:
            numbers = np.sort(np.random.default_rng(0).permutation(total)[:MOST_SENTENCES])
        kept, told = ([every[i] for i in numbers] for every in (sentences, tags))
        return cls(kept, told, name, total, numbers)


@dataclass(frozen=True)
class TagSubject:
    """A tagger beside sentences that judge it; what several parts of a page need, computed once.

    Attributes:
        tagger: fitted.
        judged: sentences with tags.
    """

    tagger: Tagger
    judged: JudgedSentences

    @property
    def predictor(self) -> TagPredictor:
        """What makes predictions."""
        return self.tagger.predictor_

    @cached_property
    def predicted(self) -> list[list[Any]]:
        """The predicted tags of each sentence."""
        return self.tagger.predict(self.judged.X)

    @cached_property
    def alone(self) -> list[list[Any]]:
        """What each position says by itself: the tags of the best local score."""
        predictor = self.predictor
        terms = energy_terms(predictor.model.energy)
        local = SumEnergy(*(term for term in terms if isinstance(term, LocalEnergy)))

        def tags(context: Context) -> list[list[int]]:
            domain = predictor.model.domain.of_batch(context)
            best = Viterbi().solve(local.bind(context), domain).y
            return best.unflatten(1, (-1, predictor.n_classes)).argmax(2).tolist()

        names = predictor.rules.names
        found = predictor.over(self.judged.X, None, tags)
        return [
            [names[k] for k in tags[: len(sentence)]]
            for tags, sentence in zip(found, self.judged.X, strict=True)
        ]

    @cached_property
    def rights(self) -> np.ndarray:
        """The share of right positions of each sentence; nan where no tag is known."""
        return shares_right(self.judged.tags, self.predicted)


def shares_right(truth: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]]) -> np.ndarray:
    """Return the share of right positions of each sentence.

    >>> shares_right([["a", "b"], [None]], [["a", "a"], ["a"]])
    array([0.5, nan])
    """
    shares = []
    for tags, guess in zip(truth, found, strict=True):
        known = [a == b for a, b in zip(tags, guess, strict=True) if a is not None]
        shares.append(sum(known) / len(known) if known else np.nan)
    return np.array(shares)


# Sentences to look at -----------------------------------------------------------------------


def sentence_facts(subject: TagSubject) -> dict[str, Any]:
    """Return some sentences with their tags and what inference does with them.

    Of a chain the page has the scores, and infers by itself, exactly. Otherwise ``why_not`` says
    why it cannot; then each sentence has the steps of its inference, and the ``answers`` to tags
    that are set by hand.
    """
    predictor, chosen = subject.predictor, choose_sentences(subject)
    places = {tag: k for k, tag in enumerate(predictor.rules.names)}
    examples: list[dict[str, Any]] = []
    for row, why in chosen:
        truth = subject.judged.tags[row]
        example = {
            "number": int(subject.judged.numbers[row]),
            "why": why,
            "tokens": [shown_token(token, t) for t, token in enumerate(subject.judged.X[row])],
            # −1 is a tag that is missing, or was not trained.
            "truth": [places.get(tag, MISSING) for tag in truth],
            "predicted": [places[tag] for tag in subject.predicted[row]],
        }
        examples.append(example)
    sentences = [subject.judged.X[row] for row, _ in chosen]
    facts: dict[str, Any] = {
        "names": [isolated(str(name)) for name in predictor.rules.names],
        "hues": hues(predictor.rules.names, subject.judged.tags),
        "examples": examples,
        "pairs": None,
        "why_not": _add_chains(predictor, sentences, examples),
    }
    if facts["why_not"] is None:
        # What is alike in all sentences stands beside them.
        tables = {example["chain"]["pairs"] for example in examples}
        if len(tables) == 1:
            facts["pairs"] = tables.pop()
            for example in examples:
                example["chain"]["pairs"] = None
    else:
        for sentence, example in zip(sentences, examples, strict=True):
            last = _add_steps(predictor, sentence, example)
            _add_answers(predictor, sentence, example, last)
    return facts


def choose_sentences(subject: TagSubject) -> list[tuple[int, str]]:
    """Return sentences with the reason why each is shown.

    What tags say about each other puts some positions right and leads others astray, against what
    each position alone would say. Other sentences are typical, and some are hard.
    """
    rights, lengths = subject.rights, np.array([len(each) for each in subject.judged.X])
    usable = np.flatnonzero(~np.isnan(rights) & (lengths > 1) & (lengths <= LONGEST_SHOWN))
    if not len(usable):
        usable = np.argsort(lengths, kind="stable")[:1]
        rights = np.nan_to_num(rights)
    chosen: dict[int, str] = {}

    def add(order: np.ndarray, why: str) -> None:
        fresh = [int(row) for row in order if int(row) not in chosen][:OF_EACH_KIND]
        chosen.update(dict.fromkeys(fresh, why))

    gain = (rights - shares_right(subject.judged.tags, subject.alone))[usable] * lengths[usable]
    by_gain = np.argsort(-gain, kind="stable")
    add(usable[by_gain[gain[by_gain] > 0]], "improved by the energy")
    add(usable[by_gain[gain[by_gain] < 0][::-1]], "led astray by the energy")
    # Of typical length, from the middle outwards.
    typical = usable[np.argsort(abs(lengths[usable] - np.median(lengths[usable])), kind="stable")]
    add(typical, "typical")
    add(usable[np.argsort(rights[usable], kind="stable")], "hard")
    return list(chosen.items())


def shown_token(token: Any, t: int) -> str:
    """Return what a page calls a token: its word, or its number from 0.

    >>> shown_token("car", 0), shown_token({"0": "car", "1": "NN"}, 0), shown_token([0.5], 3)
    ('car', 'car', '3')
    """
    if isinstance(token, Mapping):
        token = next((value for value in token.values() if isinstance(value, str)), t)
    return isolated(str(token if isinstance(token, str) else t))


def hues(names: Sequence[Any], tags: Sequence[Sequence[Any]]) -> list[int | None]:
    """Return the hue of each tag, the frequent ones far apart; one for all parts of a span type.

    The outside of spans has none.

    >>> hues(["B-NP", "I-NP", "O", "B-VP"], [["B-NP", "I-NP", "O"]])
    [210, 210, None, 348]
    """
    kinds = {name: str(name).split("-", 1)[-1] for name in names}
    counts = Counter(kinds[tag] for sentence in tags for tag in sentence if tag in kinds)
    order = sorted({kind for kind in kinds.values() if kind != "O"}, key=lambda k: (-counts[k], k))
    golden = 137.5
    places = {kind: round(210 + golden * k) % 360 for k, kind in enumerate(order)}
    return [places.get(kinds[name]) for name in names]


@torch.no_grad()
def _add_chains(
    predictor: TagPredictor, sentences: Sequence[Any], examples: Sequence[dict[str, Any]]
) -> str | None:
    """Give each example its chain, or say why a page cannot have it."""
    if not predictor.is_chain:
        terms = " + ".join(type(each).__name__ for each in energy_terms(predictor.model.energy))
        return f"a page infers chains, and this energy is {terms}"
    chains: dict[int, tuple[Chain, int]] = {}
    with evaluating(predictor.model):
        for rows, context in predictor.contexts(sentences):
            domain = predictor.model.domain.of_batch(context)
            chain = read_chain(predictor.chain(context), domain, None, "A page")
            chains |= {int(row): (chain, place) for place, row in enumerate(rows.tolist())}
    size = 0
    for row, example in enumerate(examples):
        chain, place = chains[row]
        length = len(example["tokens"])
        pairs = chain.pairs[min(place, len(chain.pairs) - 1)]
        pairs = pairs[: max(1, length - 1)] if len(pairs) > 1 else pairs
        size += chain.unary.shape[2] * length + (pairs.numel() if row == 0 or len(pairs) > 1 else 0)
        if size > LARGEST:
            for each in examples:
                each.pop("chain", None)
            return "the scores of these sentences are too many for a page"
        example["chain"] = {
            "constant": float(chain.constant[place]),
            "unary": packed(chain.unary[place, :length]),
            "pairs": packed(pairs),
        }
    return None


@torch.no_grad()
def _add_steps(predictor: TagPredictor, sentence: Any, example: dict[str, Any]) -> np.ndarray:
    """Give an example the steps of its inference; return where it ends, (T, K)."""
    inference = predictor.inference
    if isinstance(inference, Descent):
        inference = replace(inference, trace=True, backend="general")
    traced = replace(predictor, inference=inference)
    with evaluating(predictor.model):
        _, context = next(predictor.contexts([sentence]))
        solution = traced.soft(context)
    ys, length = solution.y[None], len(example["tokens"])
    if solution.trace is not None:
        ys = solution.trace.y[: int(solution.steps[0]) + 1]
    at = np.unique(np.linspace(0, len(ys) - 1, min(FRAMES, len(ys))).round().astype(int))
    steps = ys[at, 0].reshape(len(at), -1, predictor.n_classes)[:, :length].cpu().numpy()
    example["trace"] = {"steps": at.tolist(), "y": [packed(y) for y in steps]}
    return steps[-1]


def _add_answers(
    predictor: TagPredictor, sentence: Any, example: dict[str, Any], last: np.ndarray
) -> None:
    """Solve an example again with one tag set after the other, the likeliest of each position.

    ``answers`` has, by "position=tag", the best tagging, and of each position the TOP likeliest
    tags with their probabilities × 10,000.
    """
    length, classes = last.shape
    each = max(2, min(classes, SETTINGS // length))
    known = []
    for t in range(length):
        likely = np.argsort(-last[t], kind="stable").tolist()
        tags = [example["predicted"][t], example["truth"][t], *likely]
        tags = [tag for tag in dict.fromkeys(tags) if tag != MISSING][:each]
        known += [[tag if place == t else MISSING for place in range(length)] for tag in tags]
    known = [tags for tags in known if _is_possible(predictor, tags)]

    def solve(context: Context) -> list[tuple[list[int], Any]]:
        soft = predictor.soft(context)
        best = predictor.decoded(soft.y, context)
        shape = len(best), -1, classes
        return list(
            zip(best.reshape(shape).argmax(2).tolist(), soft.y.reshape(shape).cpu(), strict=True)
        )

    found = predictor.over([sentence] * len(known), Ragged.of(known, np.int64), solve)
    example["answers"] = {}
    for tags, (best, y) in zip(known, found, strict=True):
        t = next(place for place, tag in enumerate(tags) if tag != MISSING)
        values, which = y[:length].topk(min(TOP, classes), 1)
        example["answers"][f"{t}={tags[t]}"] = {
            "tags": packed(best[:length], "<u2"),
            "top": packed(which.numpy(), "<u2"),
            "p": packed(np.rint(10_000 * values.numpy()), "<u2"),
        }


def _is_possible(predictor: TagPredictor, tags: list[int]) -> bool:
    try:
        predictor.in_force.check_possible([tags])
    except InputError:
        return False
    return True


# What follows what --------------------------------------------------------------------------


def transition_facts(tagger: Tagger, judged: JudgedSentences | None) -> dict[str, Any] | None:
    """Return the scores of transitions, those of the beginning and of the end; None without any.

    ``matrix`` is of ``rows`` by ``columns``, the shown tags: a score is an energy with its sign
    turned, above zero where the second is likely after the first, None where that is forbidden.
    """
    predictor = tagger.predictor_
    terms = energy_terms(predictor.model.energy)
    chains = [term for term in terms if isinstance(term, ChainEnergy)]
    k = predictor.n_classes
    if not chains and not predictor.rules.forbidden:
        return None
    # Row K is the beginning, column K the end.
    scores = np.zeros((k + 1, k + 1))
    for chain in chains:
        scores[:k, :k] -= chain.transitions.detach().cpu().numpy()
        scores[k, :k] -= chain.start.detach().cpu().numpy()
        scores[:k, k] -= chain.end.detach().cpu().numpy()
    for pair in predictor.in_force.forbidden:
        scores[pair] = np.nan
    scores[k, k] = np.nan
    counts = _counts(predictor, judged)
    shown = np.arange(k)
    if k > SHOWN_TAGS:
        weight = counts[:k].sum(1) + counts[:, :k].sum(0) if judged else 0
        order = np.argsort(-(weight + np.nanmax(abs(scores[:k, :k]), 1) / 1e6), kind="stable")
        shown = np.sort(order[:SHOWN_TAGS])
    around = np.append(shown, k)
    names = [isolated(str(name)) for name in predictor.rules.names]
    part = scores[np.ix_(around, around)]
    matrix: list[list[Any]] = [
        [None if np.isnan(v) else round(float(v), 2) for v in row] for row in part
    ]
    matrix[-1][-1] = ""  # no sentence is without positions
    return {
        "tags": k,
        "rows": [*(names[i] for i in shown), "beginning"],
        "columns": [*(names[i] for i in shown), "end"],
        "matrix": matrix,
        "largest": float(np.nanmax(abs(part))) or 1.0,
        "forbidden": len(set(predictor.in_force.forbidden)),
        "depends": any(isinstance(chain, ConditionalChainEnergy) for chain in chains),
        "learned": bool(chains),
        "strongest": _strongest(scores, counts, [*names, ""], judged is not None),
    }


def _counts(predictor: TagPredictor, judged: JudgedSentences | None) -> np.ndarray:
    """Count what follows what in the tags of sentences, the outside last."""
    k = predictor.n_classes
    places = {tag: i for i, tag in enumerate(predictor.rules.names)} | {None: MISSING}
    counts = np.zeros((k + 2, k + 2), int)
    for sentence in judged.tags if judged else ():
        # What is missing, or was not trained, is counted in the last row and column.
        numbers = [k, *(places.get(tag, MISSING) for tag in sentence), k]
        np.add.at(counts, (numbers[:-1], numbers[1:]), 1)
    return counts[: k + 1, : k + 1]


def _strongest(
    scores: np.ndarray, counts: np.ndarray, names: list[str], counted: bool
) -> list[list[Any]]:
    """Return the likeliest transitions and the unlikeliest: names, score and how often."""
    places = np.argwhere(~np.isnan(scores) & (scores != 0))
    order = np.argsort([-scores[tuple(place)] for place in places], kind="stable")
    chosen = order if len(order) <= 2 * STRONGEST else [*order[:STRONGEST], *order[-STRONGEST:]]
    last = len(names) - 1
    found = []
    for i, j in places[np.array(chosen, int)].tolist():
        before, after = ("beginning" if i == last else names[i]), ("end" if j == last else names[j])
        row = [before, after, round(float(scores[i, j]), 2)]
        found.append([*row, int(counts[i, j])] if counted else row)
    return found
