"""Feature networks of sequences: from tokens or arrays to the features of each position."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spen.batch.ragged import SequenceBatch
from spen.described import register
from spen.errors import InputError, check_share, check_whole
from spen.features import HE, Features, drop, fill_fan_in, fill_uniform, seeded


class SequenceFeatures(Features):
    """A feature network of sequences: values (n, T, …) and their mask → features (n, T, f).

    Attributes:
        alike: whether it must be given sequences of one length, without padding.
    """

    # A batch of sequences is no matrix that could be made dense.
    accepts_sparse: ClassVar[bool] = True
    draws_itself: ClassVar[bool] = True
    alike = False


class Recurrent(nn.Module):
    """A recurrent layer in both directions, (n, T, d) → (n, T, 2 h): padding changes no number.

    Args:
        width: d.
        hidden: h.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.forth = nn.LSTM(width, hidden, batch_first=True)
        self.back = nn.LSTM(width, hidden, batch_first=True)

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        # Each row is turned round within its length, so that it begins with no padding.
        along = torch.arange(mask.shape[1], device=mask.device)
        turned = torch.where(mask, mask.sum(1, keepdim=True) - 1 - along, along)[:, :, None]
        there, _ = self.forth(values)
        back, _ = self.back(values.gather(1, turned.expand_as(values)))
        return torch.cat([there, back.gather(1, turned.expand_as(back))], 2)


class _Layers(nn.Module):
    """Recurrent layers with dropout before, between and after them."""

    def __init__(self, width: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        for size in (width, hidden, layers):
            check_whole(size, "A size")
        check_share(dropout, "dropout")
        self.dropout = dropout
        widths = [width] + [2 * hidden] * (layers - 1)
        self.layers = nn.ModuleList(Recurrent(each, hidden) for each in widths)

    def forward(self, values: Tensor, mask: Tensor, generator: torch.Generator | None) -> Tensor:
        hidden = self._drop(values, generator)
        for layer in self.layers:
            hidden = self._drop(layer(hidden, mask), generator)
        return hidden * mask[:, :, None]

    def _drop(self, values: Tensor, generator: torch.Generator | None) -> Tensor:
        return drop(values, self.dropout, generator) if self.dropout and generator else values

    def reset(self, generator: torch.Generator) -> None:
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                fill_fan_in(weight, generator)
            else:
                nn.init.zeros_(weight)
                if ".bias_ih" in name:
                    # What is remembered stays, at first.
                    nn.init.ones_(weight.data.chunk(4)[1])


@register("ArrayNetwork")
class ArrayNetwork(SequenceFeatures):
    """Sequences of numbers, (n, T, d): a layer for each position, then a recurrent one.

    Args:
        n_inputs: d.
        width: of the first layer.
        hidden: of the recurrent layer, in each direction.
        layers: how many recurrent layers there are.
        dropout: the share of units zeroed in training.
    """

    def __init__(
        self,
        n_inputs: int,
        width: int = 256,
        hidden: int = 128,
        layers: int = 1,
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        self.n_inputs, self.n_features = n_inputs, 2 * hidden
        self.first = nn.Linear(n_inputs, width)
        self.rest = _Layers(width, hidden, layers, dropout)

    def forward(self, inputs: Any, generator: torch.Generator | None = None) -> Tensor:
        values, mask = inputs
        hidden = torch.relu(self.first(values.to(self.first.weight.dtype)))
        return self.rest(hidden, mask, generator)

    def reset(self, generator: torch.Generator) -> None:
        fill_fan_in(self.first.weight, generator, HE)
        nn.init.zeros_(self.first.bias)
        self.rest.reset(generator)


@register("TokenNetwork")
class TokenNetwork(SequenceFeatures):
    """Sequences of words: what a word is, how it is written and what is around it.

    Values (n, T, c) are numbers: that of the word, those of its other marks, such as its shape and
    its ending, and those of its characters. 0 is nothing, and 1 what was not seen in training.

    Args:
        sizes: how many numbers there are of words and of each of the other marks.
        characters: how many numbers of characters there are.
        width: of the embedding of words.
        mark_width: of those of the other marks.
        filters: how many features of three neighbouring characters there are.
        hidden: of the recurrent layer, in each direction.
        layers: how many recurrent layers there are.
        dropout: the share of units zeroed in training.
        word_dropout: the share of words that are as if they had not been seen, in training.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        characters: int,
        width: int = 100,
        mark_width: int = 20,
        filters: int = 60,
        hidden: int = 128,
        layers: int = 1,
        dropout: float = 0.5,
        word_dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_share(word_dropout, "word_dropout")
        self.word_dropout = word_dropout
        self.n_features = 2 * hidden
        widths = [width] + [mark_width] * (len(sizes) - 1)
        self.marks = nn.ModuleList(map(nn.Embedding, sizes, widths))
        self.characters = nn.Embedding(characters, CHARACTER)
        self.filters = nn.Linear(3 * CHARACTER, filters)
        self.rest = _Layers(sum(widths) + filters, hidden, layers, dropout)

    def forward(self, inputs: Any, generator: torch.Generator | None = None) -> Tensor:
        values, mask = inputs
        numbers = values[:, :, : len(self.marks)]
        if generator is not None and self.word_dropout:
            draws = torch.rand(mask.shape, generator=generator, device=mask.device)
            word = torch.where(draws < self.word_dropout, UNSEEN, numbers[:, :, 0])
            numbers = torch.cat([word[:, :, None], numbers[:, :, 1:]], 2)
        parts = [table(numbers[:, :, i]) for i, table in enumerate(self.marks)]
        spelled = self._spelled(values[:, :, len(self.marks) :])
        return self.rest(torch.cat([*parts, spelled], 2), mask, generator)

    def _spelled(self, characters: Tensor) -> Tensor:
        """Return the largest of each feature of three neighbouring characters, (n, T, filters)."""
        present = (characters > 0)[:, :, :, None]
        each = F.pad(self.characters(characters) * present, (0, 0, 1, 1))
        length = characters.shape[2]
        three = torch.cat([each[:, :, i : i + length] for i in range(3)], 3)
        # Above zero, so that what stands beyond a word's end is never the largest.
        return (torch.relu(self.filters(three)) * present).amax(2)

    def reset(self, generator: torch.Generator) -> None:
        tables: Any = (*self.marks, self.characters)
        for table in tables:
            # Columns of variance 1 / d, and so words of length 1, beside units between −1 and 1.
            bound = (3 / table.weight.shape[1]) ** 0.5
            fill_uniform(table.weight, -bound, bound, generator)
        fill_fan_in(self.filters.weight, generator, HE)
        nn.init.zeros_(self.filters.bias)
        self.rest.reset(generator)


CHARACTER = 30
"""The width of the embedding of characters."""

UNSEEN = 1
"""The number of what was not seen in training."""


@register("SparseScores")
class SparseScores(SequenceFeatures):
    """Scores of classes that are linear in sparse features, (n, T, K); nothing is made dense.

    Values (n, T, m, 2) are pairs: the number of a feature, and how much of it there is; 0 and 0
    where a position has fewer than m. All weights start at zero.

    Args:
        n_inputs: how many features there are, number 0 included, which is none.
        n_labels: K.
    """

    def __init__(self, n_inputs: int, n_labels: int) -> None:
        super().__init__()
        self.n_inputs, self.n_features = n_inputs, n_labels
        self.weight = nn.Parameter(torch.zeros(n_inputs, n_labels))

    def forward(self, inputs: Any, generator: torch.Generator | None = None) -> Tensor:
        pairs = inputs.values.flatten(0, 1)
        numbers, amounts = pairs[:, :, 0].long(), pairs[:, :, 1].to(self.weight.dtype)
        scores = F.embedding_bag(numbers, self.weight, per_sample_weights=amounts, mode="sum")
        return scores.unflatten(0, inputs.mask.shape)

    def reset(self, generator: torch.Generator) -> None:
        nn.init.zeros_(self.weight)


@register("SequenceNetwork")
class SequenceNetwork(SequenceFeatures):
    """Any module as a feature network of sequences; it keeps its weights.

    A module whose ``forward`` takes a ``mask`` is given that too, (n, T), True where there is a
    position. Others get sequences of one length, and so never see padding.

    Args:
        module: (n, T, …) values → (n, T, f) features.
        n_features: f, where it is known.
    """

    draws_itself: ClassVar[bool] = False

    def __init__(self, module: nn.Module, n_features: int | None = None) -> None:
        super().__init__()
        self.module = module
        self.n_features = n_features
        self.alike = "mask" not in inspect.signature(module.forward).parameters

    def forward(self, inputs: Any, generator: torch.Generator | None = None) -> Tensor:
        values, mask = inputs
        if values.is_floating_point():
            like = next((p for p in self.parameters() if p.is_floating_point()), values)
            values = values.to(like.dtype)
        features = self.module(values) if self.alike else self.module(values, mask=mask)
        kind, shape = type(self.module).__name__, tuple(mask.shape)
        found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        if found[:2] != shape or len(found) != 3:
            raise InputError(
                f"{kind} must return the features of each position, {(*shape, 'f')}; of values "
                f"{tuple(values.shape)} it returned {found}."
            )
        if self.n_features not in (None, found[2]):
            raise InputError(
                f"{kind} returned {found[2]} features where {self.n_features} are expected."
            )
        return features * mask[:, :, None]

    def reset(self, generator: torch.Generator) -> None:
        """Leave the weights as they are."""


def sequence_features(source: Any, given: Any, trial: SequenceBatch, seed: int) -> SequenceFeatures:
    """Return a feature network: itself, a module, or what a function makes under a seed.

    Args:
        source: SequenceFeatures, an nn.Module or a function that returns one.
        given: what such a function is called with, if it takes one argument.
        trial: a sequence, by which the width of the features is found.
        seed: of what a function draws.
    """
    is_made = not isinstance(source, nn.Module) and callable(source)
    with seeded(torch.Generator().manual_seed(seed)) if is_made else nullcontext():
        # A copy: what is trained must not change what was given.
        module = _make(source, given) if is_made else copy.deepcopy(source)
    if not isinstance(module, nn.Module):
        raise InputError(
            f"features must be an nn.Module or a function that returns one; received {module!r}."
        )
    if isinstance(module, SequenceFeatures):
        return module
    network = SequenceNetwork(module)
    with torch.no_grad():
        try:
            width = network.of(trial).shape[2]  # type: ignore[arg-type]
        except InputError:
            raise
        except (RuntimeError, TypeError, LookupError, ArithmeticError) as problem:
            raise InputError(
                f"{type(module).__name__} cannot take sequences whose values are "
                f"{tuple(trial.shape)} {trial.values.dtype}: {type(problem).__name__}: {problem}"
            ) from problem
    return SequenceNetwork(module, width)


def _make(source: Callable[..., Any], given: Any) -> Any:
    wanted = [
        each
        for each in inspect.signature(source).parameters.values()
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    return source(given) if wanted else source()
