"""The one path from sentences to tags: encoded, featured, solved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from spen.batch.context import Context
from spen.batch.limits import limits
from spen.batch.ragged import Ragged
from spen.energies.base import Problem, energy_terms
from spen.energies.chain import ChainEnergy
from spen.energies.form import Form
from spen.errors import InputError
from spen.estimators.sentences import KINDS, read_sentences
from spen.estimators.tag_rules import TagRules
from spen.estimators.tagger_plan import is_chain
from spen.features import evaluating
from spen.inference.base import Inference, Solution
from spen.inference.discrete.viterbi import ForwardBackward, NBest, Viterbi
from spen.kernels.threads import stop_if_python_ends, threads_for
from spen.model import SPEN
from spen.objectives.base import Objective
from spen.training.sequences import MISSING, SequenceRows


@dataclass(frozen=True)
class TagPredictor:
    """A trained tagger, without its manners.

    Attributes:
        model: over positions.
        encoder: what makes numbers of sentences.
        rules: what may not follow what, and the names of the classes.
        objective: says how energies beyond chains are minimised,
        inference: by this.
    """

    model: SPEN
    encoder: Any
    rules: TagRules
    objective: Objective
    inference: Inference

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.rules.names)

    @property
    def is_chain(self) -> bool:
        """Whether inference is exact."""
        return is_chain(self.model.energy)

    @cached_property
    def in_force(self) -> TagRules:
        """The rules, with those that the energy has of its own."""
        return self.rules.beside(self.model.energy)

    def read(self, X: Any) -> list[Any]:
        """Return sentences of the kind that was trained on."""
        kind, sentences = read_sentences(X)
        if kind != self.encoder.kind:
            raise InputError(
                f"X holds {KINDS[kind]}, and the model was trained on {KINDS[self.encoder.kind]}."
            )
        return sentences

    @torch.no_grad()
    def over(
        self,
        sentences: Sequence[Any],
        known: Ragged | None,
        solve: Callable[[Context], Iterable[Any]],
    ) -> list[Any]:
        """Return what ``solve`` finds for each sentence: it goes over the rows of a context.

        Args:
            sentences: that ``read`` has returned.
            known: the numbers of tags that are known.
            solve: is called with one context after the other.
        """
        found: list[Any] = [None] * len(sentences)
        with evaluating(self.model):
            for rows, context in self.contexts(sentences, known):
                for row, result in zip(rows.tolist(), solve(context), strict=False):
                    found[row] = result
        return found

    @torch.no_grad()
    def contexts(
        self, sentences: Sequence[Any], known: Ragged | None = None
    ) -> Iterator[tuple[Tensor, Context]]:
        """Yield the numbers of some sentences and their context, batch after batch.

        Batches are filled up, so that no sentence is rounded apart from others: a context has more
        rows than there are numbers, and what is computed of these is to be left out.
        """
        features: Any = self.model.features
        device, at_once = self.model.reference.device, limits.rows_at_once(self.n_classes)
        inputs = self.encoder.encode(sentences).to(device)
        rows = SequenceRows(inputs, inputs, self.n_classes, torch.ones(0))
        longest = float(inputs.lengths.double().mean())
        with threads_for(rows.work(self.model, int(at_once / longest))):
            for some in inputs.in_order(at_once, features.alike):
                stop_if_python_ends()
                batch = inputs.batch(some, fill=True, alike=features.alike)
                told = None
                if known is not None:
                    tags = known.batch(some, fill=True, alike=features.alike)
                    told = self._told(tags.values).to(device)
                yield some, Context(features.of(batch), known=told, mask=batch.mask)

    def _told(self, tags: Tensor) -> Tensor:
        """Return numbers of classes (n, T) as known labels (n, T K)."""
        one_hot = torch.nn.functional.one_hot(tags.clamp_min(0), self.n_classes)
        return torch.where((tags != MISSING)[:, :, None], one_hot, torch.nan).flatten(1)

    def soft(self, context: Context) -> Solution:
        """Return the marginals, or for energies beyond chains where inference ends."""
        if self.is_chain:
            problem, domain = self.chain(context), self.model.domain.of_batch(context)
            return ForwardBackward().solve(problem, domain, known=context.known)
        return self.objective.predict(self.model, self.inference, context)

    def best(self, context: Context) -> Tensor:
        """Return the best tagging that can be found, among those that are allowed, (n, T K)."""
        if not self.is_chain:
            return self.decoded(self.soft(context).y, context)
        domain = self.model.domain.of_batch(context)
        return Viterbi().solve(self.chain(context), domain, known=context.known).y

    def decoded(self, y: Tensor, context: Context) -> Tensor:
        """Return the tagging that is allowed and has the largest product of probabilities y."""
        domain = self.model.domain.of_batch(context)
        if not self.in_force.forbidden:
            # What is known has probability one already.
            return domain.round(y)
        problem = Form(linear=-domain.to_dual(y), mask=context.mask) + self._barred(context)
        return Viterbi().solve(problem, domain, known=context.known).y

    def n_best(self, context: Context, n: int) -> NBest:
        """Return the n best taggings of a chain."""
        problem, domain = self.chain(context), self.model.domain.of_batch(context)
        return Viterbi().best(problem, domain, n, known=context.known)

    def chain(self, context: Context) -> Problem:
        """Return the problem of a chain; an energy of scores alone is told the rules."""
        problem, terms = self.model.energy.bind(context), energy_terms(self.model.energy)
        has_chain = any(isinstance(term, ChainEnergy) for term in terms)
        return problem if has_chain else problem + self._barred(context)

    def _barred(self, context: Context) -> Problem:
        """Return a chain that says what is forbidden, and nothing else."""
        return self._rules_alone.to(self.model.reference).bind(context)

    @cached_property
    def _rules_alone(self) -> ChainEnergy:
        return ChainEnergy(self.n_classes, self.in_force.forbidden)
