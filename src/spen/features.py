"""Feature networks F(x): from the inputs to what the energies look at."""

from __future__ import annotations

import inspect
import itertools
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from spen.batch.context import Context
from spen.batch.groups import in_turns
from spen.batch.inputs import InputBatch, InputKind, InputRows
from spen.batch.rows import Inputs, SparseBatch, affine, densify
from spen.described import keep_arguments
from spen.domains import DUAL_LIMIT
from spen.errors import InputError, check_share, check_whole, one_of

if TYPE_CHECKING:
    from spen.energies.local import LocalEnergy


DTYPES = {"bfloat16": torch.bfloat16}
"""Types that features can be computed in beside that of their weights."""

HE = 6**0.5
"""He's gain of a layer whose inputs are a ReLU's, which passes on half of the variance."""


class Features(nn.Module):
    """A feature network: inputs (n, n_inputs) → features (n, n_features).

    Attributes:
        n_inputs: the width of the inputs; None takes any.
        n_features: the width of F(x); None where only a trial can tell.

    >>> class Squares(Features):
    ...     def __init__(self, n_inputs):
    ...         super().__init__()
    ...         self.n_inputs = self.n_features = n_inputs
    ...     def forward(self, inputs, generator=None):
    ...         return inputs**2
    >>> Squares(3).of(torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[1., 4., 9.]])
    """

    # Most have both, and code says features.n_features; so they are no int | None.
    n_inputs: Any = None
    n_features: Any = None

    accepts_sparse: ClassVar[bool] = False
    """Whether ``forward`` takes a SparseBatch; otherwise sparse batches come in as dense."""

    accepts_batches: ClassVar[bool] = False
    """Whether ``forward`` takes an InputBatch; otherwise a dict of tensors comes in as such, and
    the mask of rows that were filled up by the name ``mask`` or ``attention_mask``."""

    compute_dtype: str | None = None
    """"bfloat16" computes F(x) in that type, as far as torch.autocast sees fit, whatever its
    weights are; features come out in the type of the weights, and energies see no other."""

    draws_itself: ClassVar[bool] = False
    """Whether all that is random in ``forward`` is drawn from its generator. Otherwise torch's own
    generators are set from it, and put back afterwards, so that a seed decides ``nn.Dropout``."""

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        keep_arguments(cls)

    @abstractmethod
    def forward(self, inputs: Any, generator: torch.Generator | None = None) -> Tensor:
        """Return F(x). A generator means training: dropout masks are drawn from it."""

    def of(self, inputs: Inputs, generator: torch.Generator | None = None) -> Tensor:
        """Return F(x) of a batch, dense or sparse; without a generator, in evaluation mode."""
        batch = inputs if self.accepts_sparse else densify(inputs)
        if generator is None:
            with evaluating(self):
                return self._of(batch, None)
        if self.draws_itself:
            return self._of(batch, generator)
        with seeded(generator):
            return self._of(batch, generator)

    def _of(self, batch: Inputs, generator: torch.Generator | None) -> Tensor:
        if self.compute_dtype is None:
            return self._called(batch, generator)
        like = next((p for p in self.parameters() if p.is_floating_point()), torch.empty(0))
        with torch.autocast(like.device.type, DTYPES[self.compute_dtype]):
            features = self._called(batch, generator)
        return features.to(like.dtype)

    def _called(self, batch: Inputs, generator: torch.Generator | None) -> Tensor:
        try:
            if isinstance(batch, InputBatch) and not self.accepts_batches:
                return batch.call(self, generator, named=False)
            return self(batch, generator)
        except IndexError as problem:
            fields = batch.fields.values() if isinstance(batch, InputBatch) else (batch,)
            ids = [f for f in fields if isinstance(f, Tensor) and f.dtype == torch.int64]
            if not ids:
                raise
            raise InputError(
                f"{type(getattr(self, 'module', self)).__name__} does not know some of the ids, "
                f"which go from {min(int(f.min()) for f in ids)} to "
                f"{max(int(f.max()) for f in ids)}, or rows are longer than it takes ({problem})."
            ) from problem

    def reset(self, generator: torch.Generator) -> None:
        """Draw the initial parameters from the generator: those of torch's modules, unless a
        subclass has its own way."""
        reset_modules(self, generator)


class Network(Features):
    """Any module as a feature network; inputs of any kind come to it as they are (docs/inputs.md).

    Its weights are left as they are, so that it may have been trained before.

    Args:
        module: (n, …) inputs → (n, width) features. The arrays of a dict come as keywords, if its
            ``forward`` has parameters of their names, otherwise as one dict of tensors.
        n_features: that width, where it is known.
        n_inputs: the width of the inputs, where they are rows of numbers.
        dtype: "bfloat16" computes in that type, under torch.autocast; None in that of the weights.

    >>> network = Network(nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8)))
    >>> network.of(torch.ones(1, 3)).shape
    torch.Size([1, 8])
    """

    def __init__(
        self,
        module: nn.Module,
        n_features: int | None = None,
        n_inputs: int | None = None,
        dtype: str | None = None,
    ) -> None:
        super().__init__()
        if dtype is not None:
            one_of(dtype, DTYPES, "dtype")
            self.compute_dtype = dtype
        self.module = module
        self.n_features = n_features
        self.n_inputs = n_inputs

    accepts_batches: ClassVar[bool] = True

    def forward(self, inputs: Any, generator: torch.Generator | None = None) -> Tensor:
        kind = type(self.module).__name__
        batch = isinstance(inputs, InputBatch)
        features = inputs.call(self.module) if batch else self.module(inputs)
        if not isinstance(features, Tensor):
            raise InputError(
                f"{kind} must return a tensor of features; it returned a {type(features).__name__}."
                " Wrap it in a module that picks or pools what it returns."
            )
        if features.ndim != 2 or features.shape[0] != inputs.shape[0]:
            raise InputError(
                f"{kind} must return (rows, features); of {inputs.shape[0]} rows it returned shape "
                f"{tuple(features.shape)}. Pool or flatten what is over."
            )
        if not features.is_floating_point():
            raise InputError(f"{kind} must return floats; it returned {features.dtype}.")
        if self.n_features not in (None, features.shape[1]):
            raise InputError(
                f"{kind} returned {features.shape[1]} features where {self.n_features} are "
                "expected."
            )
        return features

    def reset(self, generator: torch.Generator) -> None:
        """Leave the weights as they are."""


def as_features(
    source: Any,
    seed: int | None = None,
    like: int | InputRows | InputKind | None = None,
    dtype: str | None = None,
) -> Features:
    """Return a feature network: itself, a module, or what a function makes with this seed.

    Args:
        source: Features, an nn.Module, which keeps its weights, or a function that returns one. It
            is called with the width of the inputs, if that is known and it takes one argument.
        seed: of what a function draws; None takes what torch has.
        like: the width of the inputs, or rows of any kind: a trial with such rows then finds the
            width of the features. Or what is known of such rows, the width of the features too.
        dtype: the type that features are computed in, where it is not that of the weights.

    >>> a, b = (as_features(lambda: nn.Linear(3, 2), seed=0) for _ in range(2))
    >>> torch.equal(a.module.weight, b.module.weight)
    True
    >>> as_features(lambda n_inputs: nn.Linear(n_inputs, 2), seed=0, like=3).n_features
    2
    """
    if isinstance(source, Features) and like is None:
        return source
    context = nullcontext() if seed is None else seeded(torch.Generator().manual_seed(seed))
    with context:
        if not isinstance(source, nn.Module) and callable(source):
            source = _made(source, like)
        if not isinstance(source, nn.Module):
            raise InputError(
                "features must be a spen.Features, an nn.Module or a function that returns one; "
                f"received {source!r}."
            )
        features = source if isinstance(source, Features) else Network(source, dtype=dtype)
        if like is None:
            return features
        if dtype is not None:
            features.compute_dtype = dtype
        width = like.n_features if isinstance(like, InputKind) else _width(features, like)
    n_inputs = like if isinstance(like, int) else None
    if isinstance(features, Network):
        return Network(features.module, width, n_inputs, features.compute_dtype)
    features.n_inputs, features.n_features = n_inputs, width
    return features


def wants_width(source: Any) -> bool:
    """Return whether features are for rows of numbers: a function of their width, or a network
    that has one."""
    if isinstance(source, nn.Module) or not callable(source):
        return getattr(source, "n_inputs", None) is not None
    return len(_wanted(source)) == 1


def _wanted(make: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that a function must be given, one after the other."""
    return [
        parameter
        for parameter in inspect.signature(make).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]


def _made(make: Callable[..., Any], like: Any) -> Any:
    """Call a function that makes a feature network."""
    name = getattr(make, "__qualname__", repr(make))
    wanted = _wanted(make)
    if len(wanted) > 1:
        raise InputError(
            f"{name} makes features and wants {', '.join(map(str, wanted))}; all that it is given "
            "is the width of the inputs. Wrap it in a function of that, or of nothing."
        )
    if not wanted:
        return make()
    if isinstance(like, int):
        return make(like)
    if like is None:
        raise InputError(
            f"{name} wants {wanted[0]}, but the width of the inputs is not known here. Call it "
            f"yourself: features={name}(64)."
        )
    raise InputError(
        f"{name} wants {wanted[0]}, the width of a matrix of numbers, and X holds "
        f"{_kind_of(like).in_words()}. Let it take nothing."
    )


def width_of_features(model: Any) -> int:
    """Return the width of what a model's network, or the first of several, makes of inputs."""
    first: Any = model.features
    if isinstance(first, LabelScores):
        first = first.networks[0]
    return first.n_features


def _kind_of(like: InputRows | InputKind) -> InputKind:
    return like.kind if isinstance(like, InputRows) else like


@torch.no_grad()
def _width(features: Features, like: int | InputRows) -> int:
    """Return the width of F(x), by a trial with two rows: of zeros, or the first of those given."""
    named = features.module if isinstance(features, Network) else features
    kind = type(named).__name__
    weight = next((p for p in features.parameters() if p.is_floating_point()), torch.empty(0))
    if isinstance(like, int):
        if features.n_inputs not in (None, like):
            raise InputError(f"{kind} takes {features.n_inputs} inputs, but rows have {like}.")
        rows: Any = torch.zeros(2, like, dtype=weight.dtype, device=weight.device)
        words = f"rows of {like} numbers, a tensor of shape (rows, {like})"
    else:
        words = like.kind.in_words()
        if features.n_inputs is not None:
            raise InputError(f"{kind} takes rows of {features.n_inputs} numbers, not {words}.")
        rows = like.to(weight.dtype, weight.device).span(0, 1, 1)
    try:
        return features.of(rows).shape[1]
    except (RuntimeError, TypeError, LookupError, AttributeError, ArithmeticError) as problem:
        hint = ""
        if "whole numbers" in words:
            hint = (
                " Whole numbers come to it as they are, as ids do; to have numbers scaled, pass "
                "X.astype(float)."
            )
        raise InputError(
            f"{kind} cannot take {words}: {type(problem).__name__}: {problem}{hint}"
        ) from problem


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode, and back as it was."""
    with _MODES:
        users = _EVALUATED.get(module)
        training = [part for part in module.modules() if part.training]
        if users is None and training:
            users = _EVALUATED[module] = [0, training]
        if users is not None:
            users[0] += 1
            for part in training:
                part.training = False
    try:
        yield
    finally:
        if users is not None:
            with _MODES:
                users[0] -= 1
                # Not under another thread's feet: the last one switches back.
                if not users[0]:
                    del _EVALUATED[module]
                    for part in users[1]:
                        part.training = True


_MODES = threading.RLock()
_EVALUATED: WeakKeyDictionary[nn.Module, list[Any]] = WeakKeyDictionary()
"""Modules that were found in training mode: how many use them now, and which parts of them."""

_SEEDS = threading.RLock()


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Let what draws from torch's own generators follow this one; they are put back afterwards.

    The generator moves on only if something was drawn.
    """
    on_gpu = generator.device.type == "cuda"
    # Torch's own generators are one for all threads.
    with _SEEDS, torch.random.fork_rng([generator.device] if on_gpu else []):
        before = generator.get_state()
        if on_gpu:
            # No number comes to the host, which would have to wait for it.
            torch.empty(1, device=generator.device).uniform_(generator=generator)
            seed = hash((generator.initial_seed(), generator.get_offset())) % 2**62
        else:
            # Here even where all else is built without numbers.
            seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
        torch.manual_seed(seed)
        fresh = _drawn(generator.device)
        yield
        if _drawn(generator.device) == fresh:
            generator.set_state(before)


def _drawn(device: torch.device) -> tuple[bytes, int]:
    """Return where torch's own generators stand."""
    own = torch.cuda.default_generators[device.index or 0] if device.type == "cuda" else None
    return torch.get_rng_state().numpy().tobytes(), 0 if own is None else own.get_offset()


def reset_modules(module: nn.Module, generator: torch.Generator) -> None:
    """Draw the weights of all modules inside that know how to, from the generator."""
    parts: list[Any] = [part for part in module.modules() if part is not module]
    drawn = [part for part in parts if callable(getattr(part, "reset_parameters", None))]
    if not drawn:
        return
    with seeded(generator):
        for part in drawn:
            part.reset_parameters()


class Identity(Features):
    """F(x) = x, (n, d): with a local energy, a linear classifier.

    >>> Identity(64).n_features
    64
    """

    draws_itself: ClassVar[bool] = True

    def __init__(self, n_inputs: int) -> None:
        super().__init__()
        check_whole(n_inputs, "n_inputs")
        self.n_inputs = self.n_features = n_inputs

    def forward(self, inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return inputs

    def extra_repr(self) -> str:
        return f"{self.n_inputs}"


class _Stack(Features):
    """Affine layers of given widths; ``_activate`` comes after each."""

    def __init__(self, *widths: int, dropout: float = 0.0, input_dropout: float = 0.0) -> None:
        super().__init__()
        if len(widths) < 2:
            raise InputError(
                f"{type(self).__name__} takes the number of inputs and then the width of each "
                f"layer; received {widths}."
            )
        for width in widths:
            check_whole(width, "A width")
        check_share(dropout, "dropout")
        check_share(input_dropout, "input_dropout")
        self.widths = widths
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.n_inputs, self.n_features = widths[0], widths[-1]
        # (inputs, outputs), so that a sparse input picks whole rows of it.
        self.weights = nn.ParameterList(
            torch.empty(narrow, wide) for narrow, wide in itertools.pairwise(widths)
        )
        self.biases = nn.ParameterList(torch.empty(width) for width in widths[1:])
        self.reset(torch.Generator().manual_seed(0))

    accepts_sparse: ClassVar[bool] = True
    draws_itself: ClassVar[bool] = True
    _gain: ClassVar[float] = 1.0

    def _activate(self, z: Tensor) -> Tensor:
        return z

    def forward(self, inputs: Any, generator: torch.Generator | None = None) -> Tensor:
        hidden: Any = inputs
        if self.input_dropout and generator is not None:
            hidden = drop_inputs(inputs, self.input_dropout, generator)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            hidden = self._activate(affine(hidden, weight, bias))
            if self.dropout and generator is not None:
                hidden = drop(hidden, self.dropout, generator)
        return hidden

    def reset(self, generator: torch.Generator) -> None:
        for weight, bias in zip(self.weights, self.biases, strict=True):
            fan_in = weight.shape[0]
            fill_fan_in(weight.t(), generator, self._gain)
            fill_uniform(bias, -(fan_in**-0.5), fan_in**-0.5, generator)

    def extra_repr(self) -> str:
        extra = f", input_dropout={self.input_dropout}" if self.input_dropout else ""
        return f"{', '.join(map(str, self.widths))}, dropout={self.dropout}{extra}"


class Linear(_Stack):
    """F(x) = A_k … A_1 x with biases, (n, d) → (n, f): of low rank where a layer is narrow.

    Args:
        widths: the number of inputs, then the width of each layer.
        dropout: the share of outputs zeroed in training, after each layer.
        input_dropout: the share of inputs zeroed in training.

    >>> Linear(64, 8).n_features
    8
    """


class MLP(_Stack):
    """F(x) = g(A_k … g(A_1 x)), equation 3 with ReLU, biases and any depth: (n, d) → (n, f).

    Args:
        widths: the number of inputs, then the width of each layer.
        dropout: the share of units zeroed in training, after each layer.
        input_dropout: the share of inputs zeroed in training.

    >>> MLP(1836, 150, 150, dropout=0.5)
    MLP(
      1836, 150, 150, dropout=0.5
      (weights): ParameterList(...)
      (biases): ParameterList(...)
    )
    """

    _gain: ClassVar[float] = HE

    def _activate(self, z: Tensor) -> Tensor:
        return torch.relu(z)


class LabelScores(Features):
    """F(x) = the log-odds that a label-wise model gives each label, (n, L).

    Of several models the log-odds are averaged.

    Args:
        models: the feature network and the local energy of each label-wise model.
        weights: of the models in the average; None means equal ones.

    >>> from spen import MLP, LocalEnergy
    >>> LabelScores((MLP(3, 8), LocalEnergy(8, 4))).n_features
    4
    """

    # Its networks make dense what they do not take as it is, and see to their own draws.
    accepts_sparse: ClassVar[bool] = True
    accepts_batches: ClassVar[bool] = True
    draws_itself: ClassVar[bool] = True

    def __init__(
        self, *models: tuple[Features, LocalEnergy], weights: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        if not models:
            raise InputError("LabelScores takes at least one pair (network, local energy).")
        self.networks = nn.ModuleList(network for network, _ in models)
        self.locals = nn.ModuleList(local for _, local in models)
        self.weights = tuple(weights or [1 / len(models)] * len(models))
        network, local = models[0]
        self.n_inputs = network.n_inputs
        self.n_features = local.n_labels

    def forward(self, inputs: Any, generator: torch.Generator | None = None) -> Tensor:
        total: Any = 0.0
        models: Any = zip(self.networks, self.locals, self.weights, strict=True)
        for network, local, weight in models:
            total = total - weight * local.scores(Context(network.of(inputs, generator)))
        return total.clamp(-DUAL_LIMIT, DUAL_LIMIT)

    def reset(self, generator: torch.Generator) -> None:
        parts: Any = (*self.networks, *self.locals)
        for part in parts:
            part.reset(generator)


def drop(values: Tensor, rate: float | tuple[float, ...], generator: torch.Generator) -> Tensor:
    """Zero a share of the entries and scale up the others, with a mask of our own.

    Models side by side have a rate each.

    ``F.dropout`` draws from the global generator, which belongs to the user. A byte of
    randomness is drawn per entry, which is a quarter of the work of a number; so the share
    is one of 256.
    """
    cut: Any = round(256 * rate) if isinstance(rate, float | int) else _cuts(rate, values)
    words = torch.empty(-(-values.numel() // 8), dtype=torch.int64, device=values.device)
    words.random_(-(2**63), None, generator=generator)
    draws = words.view(torch.uint8)[: values.numel()].view(values.shape)
    return values * (draws >= cut).to(values.dtype).mul_(256 / (256 - cut))


def _cuts(rates: tuple[float, ...], values: Tensor) -> Tensor:
    """Return the rate of each row's model as one of 256, (n, 1), for models side by side."""
    cuts = torch.tensor([[round(256 * rate)] for rate in rates], device=values.device)
    return in_turns(cuts, len(values))


def drop_inputs(
    inputs: Tensor | SparseBatch, rate: Any, generator: torch.Generator
) -> Tensor | SparseBatch:
    """Zero a share of the inputs; of sparse ones, only the entries that are there are drawn."""
    if isinstance(inputs, Tensor):
        return drop(inputs, rate, generator)
    if isinstance(rate, float | int):
        return replace(inputs, values=drop(inputs.values, rate, generator))
    # One entry a row, and the rate of each entry's own model.
    counts = inputs.offsets.diff()
    rows = torch.repeat_interleave(counts, output_size=inputs.columns.shape[0])
    rates = torch.tensor(rate, device=rows.device)[rows % len(rate)]
    kept = torch.rand(rates.shape, generator=generator, device=rows.device) >= rates
    return replace(inputs, values=inputs.values * kept / (1 - rates))


# Initial weights come from a generator that is handed in, so the global one stays untouched. They
# are drawn on the CPU in float32, so that one seed gives one model on every device.


@torch.no_grad()
def fill_uniform(weight: Tensor, low: float, high: float, generator: torch.Generator) -> None:
    """Fill with U(low, high)."""
    weight.copy_(low + (high - low) * torch.rand(weight.shape, generator=generator))


@torch.no_grad()
def fill_normal(weight: Tensor, scale: float, generator: torch.Generator) -> None:
    """Fill with N(0, scale²)."""
    weight.copy_(scale * torch.randn(weight.shape, generator=generator))


def fill_fan_in(weight: Tensor, generator: torch.Generator, gain: float = 1.0) -> None:
    """Fill a layer (outputs, inputs) with U(−s, s), s = gain/√inputs."""
    scale = gain * weight.shape[1] ** -0.5
    fill_uniform(weight, -scale, scale, generator)
