"""What may not follow what: rules that tags obey, and that predictions are held to."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from spen.energies.base import Energy, energy_terms
from spen.energies.chain import OUTSIDE, ChainEnergy, Transition, forbidden_transitions
from spen.errors import InputError, one_of
from spen.estimators.sentences import in_words
from spen.estimators.spans import are_spans
from spen.training.sequences import MISSING


@dataclass(frozen=True)
class TagRules:
    """Pairs of classes of which the second may not follow the first.

    Attributes:
        names: of the classes.
        forbidden: the pairs as numbers, −1 for what is before and after a sentence.
    """

    names: tuple[Any, ...]
    forbidden: tuple[Transition, ...] = ()

    @classmethod
    def of(cls, rule: Any, names: Sequence[Any], tags: Sequence[Sequence[Any]]) -> TagRules:
        """Return the rules that a setting asks for.

        Args:
            rule: "auto", "spans", a list of pairs of tags, or None.
            names: of all classes.
            tags: of the training sentences, which must obey; "auto" gives in to them.
        """
        if rule is None or (isinstance(rule, str) and rule == "auto" and not are_spans(names)):
            return cls(tuple(names))
        if isinstance(rule, str):
            one_of(rule, ("auto", "spans"), "constraints")
            found = forbidden_transitions(list(map(str, names)))
        else:
            found = _pairs(rule, names)
        rules = cls(tuple(names), tuple(found))
        broken = rules.broken(tags)
        if broken is None:
            return rules
        if rule == "auto":
            words = "So no transition is forbidden, and score is the token accuracy."
            warnings.warn(f"Tags look like those of spans, but {broken} {words}", stacklevel=4)
            return cls(tuple(names))
        raise InputError(f"{broken[0].upper()}{broken[1:]} Correct it, or take constraints off.")

    def beside(self, energy: Energy) -> TagRules:
        """Return these rules with those that the chains of an energy have of their own."""
        found, outside = set(self.forbidden), len(self.names)
        for term in energy_terms(energy):
            if isinstance(term, ChainEnergy) and term.forbidden is not None:
                pairs = term.forbidden.nonzero().tolist()
                found |= {tuple(OUTSIDE if k == outside else k for k in pair) for pair in pairs}
        own = sorted(found - set(self.forbidden))
        return replace(self, forbidden=(*self.forbidden, *own))

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        """The pairs as names, None for the outside."""
        around = (*self.names, None)
        return [(around[i], around[j]) for i, j in self.forbidden]

    def are_spans_in(self, tags: Sequence[Sequence[Any]]) -> bool:
        """Say whether tags are those of spans, and obey the rules of such."""
        if not are_spans(self.names):
            return False
        forbidden = forbidden_transitions(self.names)
        return TagRules(self.names, tuple(forbidden)).broken(tags) is None

    def broken(self, tags: Sequence[Sequence[Any]]) -> str | None:
        """Say where some tags break a rule, if they do; one that is missing (None) breaks none."""
        places = {name: k for k, name in enumerate(self.names)}
        barred = set(self.forbidden)
        if not barred:
            return None
        for i, sentence in enumerate(tags):
            numbers = [OUTSIDE, *(places.get(tag) for tag in sentence), OUTSIDE]
            for t, pair in enumerate(pairwise(numbers)):
                if pair in barred:
                    words = ["nothing" if k == OUTSIDE else repr(self.names[k]) for k in pair]
                    where = in_words(i, min(t, len(sentence) - 1))
                    return f"{where[0].lower()}{where[1:]} has {words[1]} after {words[0]}."
        return None

    def check_possible(self, tags: Sequence[Sequence[int]], whose: str = "known tags") -> None:
        """Raise where some tags leave no tagging of a sentence.

        Args:
            tags: their numbers, of each sentence; −1 where there is none.
            whose: what errors call them.
        """
        if not self.forbidden:
            return
        k = len(self.names)
        allowed = np.ones((k + 1, k + 1), bool)
        allowed[tuple(np.array(self.forbidden).T)] = False
        # Of each number of positions, whether there is a tagging of which nothing is known.
        free: list[bool] = []
        reached: Any = allowed[-1, :-1]
        for _ in range(max(map(len, tags))):
            free.append(bool((reached & allowed[:-1, -1]).any()))
            reached = (reached[:, None] & allowed[:-1, :-1]).any(0)
        for i, sentence in enumerate(tags):
            told = any(tag != MISSING for tag in sentence)
            if not told and free[len(sentence) - 1]:
                continue
            reached = allowed[-1, :-1]
            for t, tag in enumerate(sentence):
                if t:
                    reached = (reached[:, None] & allowed[:-1, :-1]).any(0)
                if tag != MISSING:
                    reached = reached & (np.arange(k) == tag)
                if t == len(sentence) - 1:
                    reached = reached & allowed[:-1, -1]
                if not reached.any():
                    of_whom = f"the {whose} and " if told else ""
                    raise InputError(
                        f"{in_words(i, t)}: {of_whom}the forbidden transitions leave no tag for "
                        "it. Take some of them off."
                    )


def _pairs(rule: Any, names: Sequence[Any]) -> list[Transition]:
    """Return pairs of tags as numbers."""
    places = {name: k for k, name in enumerate(names)} | {None: OUTSIDE}
    found = []
    for pair in rule if isinstance(rule, list) else [rule]:
        is_pair = isinstance(pair, tuple) and len(pair) == 2
        if not is_pair or any(each not in places for each in pair) or pair == (None, None):
            raise InputError(
                "constraints must be 'auto', 'spans', None, or a list of pairs of tags, of which "
                f"the second may not follow the first; received {pair!r}."
            )
        found.append((places[pair[0]], places[pair[1]]))
    return found
