"""A SPEN: a feature network, an energy and a domain."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from spen.batch.arrays import Arrays
from spen.batch.context import Context
from spen.batch.inputs import LARGEST_PASSED_BATCH, InputRows, read_inputs
from spen.batch.limits import MOST_ROWS, limits
from spen.batch.positions import ROW_TILE
from spen.batch.rows import Rows, SparseRows, filled_batch, filled_rows, row_spans, whole_batch
from spen.described import module_from_json, module_to_json, weights_of
from spen.domains import Domain
from spen.energies.base import Energy, Problem, add_problems, energy_terms
from spen.energies.chain import ChainEnergy
from spen.energies.form import Form
from spen.energies.local import LocalEnergy
from spen.errors import InputError, check_positive, check_whole, choose, one_of
from spen.features import Features, as_features, evaluating
from spen.files import under, write_tensors
from spen.inference.base import Inference, Solution, join_solutions
from spen.inference.descent import Descent
from spen.inference.discrete.viterbi import marginals_of
from spen.kernels.threads import ends_with_python, stop_if_python_ends, threads_for
from spen.objectives.base import STARTS, Start

KIND = "model"
"""What the header of a file calls one that holds such a model."""

PARTS = ("features", "local", "global")
"""What a training stage can name: the feature network, the local energy, all other energies."""


class SPEN(nn.Module):
    """A structured prediction energy network E(F(x), y) over a domain of outputs.

        ŷ = argmin_y E(F(x), y) over the domain, (n, L)

    Args:
        features: the feature network F: spen's own, any nn.Module from (n, …) inputs to (n, width)
            features, which keeps its weights, or a function that returns one, called under the
            seed.
        energy: the energy, or a sum of energies.
        domain: where the relaxed output lives.
        seed: draws all initial parameters from this seed; None keeps those that the
            parts came with.

    At rest a model is in evaluation mode; training switches what it trains, and back.

    >>> import spen
    >>> energy = spen.LocalEnergy(8, 4) + spen.LabelEnergy(4, measurements=2)
    >>> model = spen.SPEN(spen.MLP(3, 8), energy, spen.UnitBox(4), seed=0)
    >>> model.solve([[0.0, 1.0, 2.0]]).y.shape
    torch.Size([1, 4])
    """

    def __init__(
        self, features: Any, energy: Energy, domain: Domain, seed: int | None = None
    ) -> None:
        super().__init__()
        if seed is not None:
            check_whole(seed, "seed", least=0)
        features = as_features(features, seed)
        if features.n_features is None:
            features.n_features = energy.n_features
        if energy.n_features not in (None, features.n_features):
            raise InputError(
                f"The energy looks at {energy.n_features} features, but the feature network "
                f"gives {features.n_features}. Make them equal."
            )
        if energy.n_labels != domain.size:
            raise InputError(
                f"The energy scores {energy.n_labels} labels, but the domain {domain} has "
                f"{domain.size}. Make them equal."
            )
        for term in energy_terms(energy):
            if getattr(term, "domain", domain) != domain:
                raise InputError(
                    f"{type(term).__name__} was made for {term.domain}, but the model's domain is "
                    f"{domain}. Make them equal."
                )
        self.features: Features = features
        self.energy = energy
        self.domain = domain
        if seed is not None:
            generator = torch.Generator().manual_seed(seed)
            features.reset(generator)
            energy.reset(generator)
        self.eval()

    @property
    def reference(self) -> Tensor:
        """A tensor of the type and on the device that the model computes with."""
        for parameter in self.parameters():
            return parameter
        return torch.empty(0)

    def part(self, *names: str) -> list[nn.Parameter]:
        """Return the parameters of "features", "local" or "global", or of several of these."""
        return [weight for module in self.part_modules(*names) for weight in module.parameters()]

    def part_modules(self, *names: str) -> list[nn.Module]:
        """Return the modules of "features", "local" or "global", or of several of these."""
        terms = energy_terms(self.energy)
        modules: dict[str, list[nn.Module]] = {
            "features": [self.features],
            "local": [term for term in terms if isinstance(term, LocalEnergy)],
            "global": [term for term in terms if not isinstance(term, LocalEnergy)],
        }
        for name in names:
            if name not in modules:
                choose(name, modules, "part")
        return [module for name in names for module in modules[name]]

    def work(self, inputs: Any, at_once: int | None = None) -> float:
        """Return rows × weights of a batch of these inputs, as ``threads_for`` wants to know it.

        Few rows are no work. Of the weights of an input a sparse row meets those of its entries.
        Of inputs of any kind each entry may meet all weights, as tokens and pixels do.
        """
        if isinstance(inputs, InputRows):
            rows = min(MOST_ROWS if at_once is None else at_once, len(inputs))
            entries = min(rows * inputs.shape[1], LARGEST_PASSED_BATCH)
            return float(entries) * sum(weight.numel() for weight in self.parameters())
        matrix: Any = inputs.matrix if isinstance(inputs, SparseRows) else inputs
        at_once = limits.rows_at_once(self.domain.size) if at_once is None else at_once
        rows = min(at_once, (getattr(matrix, "shape", None) or (0,))[0])
        if rows <= ROW_TILE:
            return 0.0
        width, density = matrix.shape[-1], 1.0
        if sparse.issparse(matrix):
            # Not by nnz: nobody has looked yet whether the matrix is sound.
            density = min(1.0, np.size(getattr(matrix, "data", ())) / (matrix.shape[0] * width))
        weights = [(parameter.numel(), width in parameter.shape) for parameter in self.parameters()]
        return rows * sum(size * (density if of_inputs else 1) for size, of_inputs in weights)

    def context(
        self,
        inputs: Any,
        target: Any = None,
        known: Any = None,
        observed: Any = None,
        weight: Any = None,
        generator: torch.Generator | None = None,
    ) -> Context:
        """Check a batch and compute its features, once.

        Args:
            inputs: (n, n_inputs) numbers, dense or a scipy sparse matrix; or inputs of any kind,
                if they are what the feature network takes (docs/inputs.md).
            target: (n, L) of 0 and 1; nan marks a missing label.
            known: (n, L) labels to hold fixed: 1, 0, or nan for those to infer.
            observed: (n, L) True where the target counts.
            weight: (n,) the weight of each example.
            generator: draws dropout masks; None means none are drawn.
        """
        arrays = self.arrays
        batch = whole_batch(arrays.rows(inputs, "X", self.features.n_inputs))
        rows, size = batch.shape[0], self.domain.size
        if target is not None:
            target, seen = arrays.targets(target, "Y", size, rows)
            target, seen = self.domain.complete_target(target, seen)
            observed = arrays.mask(observed, seen, rows, size)
        if known is not None:
            known = arrays.known(known, rows, size)
        if weight is not None:
            weight = arrays.weights(weight, rows)
        return Context(self.features.of(batch, generator), target, known, observed, weight)

    @property
    def arrays(self) -> Arrays:
        """What turns arrays into tensors of the type and on the device of the model."""
        reference = self.reference
        return Arrays(reference.dtype, reference.device)

    def local_scores(self, context: Context, generator: torch.Generator | None = None) -> Tensor:
        """Return the local energy's score of each label, (n, L): minus its logit.

        A generator means training: the energy's own dropout masks are drawn from it.
        """
        terms = [term for term in energy_terms(self.energy) if isinstance(term, LocalEnergy)]
        return _sum_of_scores([term.scores(context, generator) for term in terms])

    def starting_point(self, context: Context, start: Start) -> Tensor:
        """Return where inference begins: the domain's centre, the local model's output, or the
        chain's marginals."""
        one_of(start, STARTS, "start")
        if start == "uniform":
            return self.domain.of_batch(context).uniform(context.features)
        if start == "chain":
            terms = energy_terms(self.energy)
            with torch.no_grad():
                return self._marginals(terms, [term.bind(context) for term in terms], context)
        return self._output_of(self.local_scores(context))

    def _marginals(self, terms: list[Energy], problems: list[Problem], context: Context) -> Tensor:
        """Return the marginals of the local scores and chains among bound energies."""
        if not any(isinstance(term, ChainEnergy) for term in terms):
            raise InputError(
                'start="chain" needs a ChainEnergy among the energies; the model has none. '
                'Choose start="local" or "uniform".'
            )
        chain = [
            problem
            for term, problem in zip(terms, problems, strict=True)
            if isinstance(term, LocalEnergy | ChainEnergy)
        ]
        domain = self.domain.of_batch(context)
        return marginals_of(add_problems(chain), domain, context.known)

    def _output_of(self, scores: Tensor) -> Tensor:
        return self.domain.to_primal(-scores).detach()

    def solve_context(
        self,
        context: Context,
        inference: Inference,
        start: Start = "uniform",
        entropy: float = 0.0,
    ) -> Solution:
        """Minimise the energy of a bound batch; τ = ``entropy`` softens the answer."""
        problem, first = self.pose(context, start, entropy)
        return inference.solve(problem, self.domain.of_batch(context), first, context.known)

    def pose(
        self,
        context: Context,
        start: Start,
        entropy: float,
        generator: torch.Generator | None = None,
    ) -> tuple[Problem, Tensor | None]:
        """Return the ``smoothed`` problem and its ``starting_point``; None is the domain's centre.

        Both together take less than one after the other: local scores are computed once.
        """
        terms = energy_terms(self.energy)
        problems = [term.bind(context, generator) for term in terms]
        problem = self._smooth(problems, context, entropy)
        if start == "uniform":
            return problem, None
        if start == "chain":
            return problem, self._marginals(terms, problems, context)
        if start != "local":
            one_of(start, STARTS, "start")
        scores = [
            _scores_of(term, part, context)
            for term, part in zip(terms, problems, strict=True)
            if isinstance(term, LocalEnergy)
        ]
        return problem, self._output_of(_sum_of_scores(scores))

    def smoothed(
        self,
        context: Context,
        entropy: float,
        generator: torch.Generator | None = None,
        train_local: bool = True,
    ) -> Problem:
        """Bind the energy to a batch, and take τ = ``entropy`` times the entropy off it.

        Args:
            context: the batch.
            entropy: τ.
            generator: draws the random masks of training.
            train_local: False holds the local energies constant.
        """
        problems = []
        for term in energy_terms(self.energy):
            learns = train_local or not isinstance(term, LocalEnergy)
            with torch.set_grad_enabled(torch.is_grad_enabled() and learns):
                problems.append(term.bind(context, generator))
        return self._smooth(problems, context, entropy)

    def _smooth(self, problems: list[Problem], context: Context, entropy: float) -> Problem:
        if entropy:
            if not entropy > 0:
                check_positive(entropy, "entropy")
            # What spen.Entropy binds to; to make a module of it takes longer than to bind it.
            tau = context.features.new_full((context.n_rows,), entropy)
            domain = self.domain.of_batch(context)
            problems = [*problems, Form(tau=tau, domain=domain, mask=context.mask)]
        return add_problems(problems)

    @torch.no_grad()
    def solve(
        self,
        inputs: Any,
        inference: Inference | None = None,
        *,
        known: Any = None,
        start: Start = "uniform",
        entropy: float = 0.0,
        batch_size: int | None = None,
    ) -> Solution:
        """Predict: minimise the energy of each input.

        Args:
            inputs: (n, n_inputs) numbers, dense or a scipy sparse matrix; or inputs of any kind,
                if they are what the feature network takes (docs/inputs.md).
            inference: the solver; Descent() by default.
            known: (n, L) labels to hold fixed: 1, 0, or nan for those to infer.
            start: where inference begins.
            entropy: τ; above zero the prediction is softer.
            batch_size: how many inputs are solved at a time; None: as many as spen.limits allow.
        """
        inference = inference or Descent()
        if not isinstance(inference, Inference):
            raise InputError(f"inference must be an Inference; received {inference!r}.")

        def solve(context: Context) -> Solution:
            return self.solve_context(context, inference, start, entropy)

        return self.solve_with(solve, inputs, known=known, batch_size=batch_size)

    @ends_with_python
    @torch.no_grad()
    def solve_with(
        self,
        solve: Callable[[Context], Solution],
        inputs: Any,
        *,
        known: Any = None,
        batch_size: int | None = None,
    ) -> Solution:
        """Run ``solve`` on each of the ``contexts`` of some inputs, and join what it returns."""
        if self.features.n_inputs is None:
            # Once, so that it is known how much work they are.
            passed = read_inputs(inputs)
            inputs = inputs if passed is None else passed
        batches = self.contexts(inputs, known=known, batch_size=batch_size)
        with evaluating(self), threads_for(self.work(inputs, batch_size)):
            return join_solutions([solve(context).first(rows) for context, rows in batches])

    def forward(self, inputs: Any) -> Tensor:
        """Return the soft labels (n, L) that minimise the energy of each input."""
        return self.solve(inputs).y

    def predict(self, inputs: Any, known: Any = None) -> Tensor:
        """Return the labels of 0 and 1, (n, L), nearest to what minimises the energy.

        Args:
            inputs: (n, n_inputs) numbers, dense or a scipy sparse matrix; or inputs of any kind,
                if they are what the feature network takes (docs/inputs.md).
            known: (n, L) labels to hold fixed: 1, 0, or nan for those to infer.
        """
        return self.domain.round(self.solve(inputs, known=known).y)

    def contexts(
        self, inputs: Any, *, known: Any = None, batch_size: int | None = None
    ) -> Iterator[tuple[Context, int]]:
        """Yield the context of one batch of inputs after the other, and how many rows it has.

        Batches are filled up with copies of their last row, so that no row is rounded apart from
        others; what is computed of rows beyond that number is to be left out.

        Args:
            inputs: (n, n_inputs) numbers, dense or a scipy sparse matrix; or inputs of any kind,
                if they are what the feature network takes (docs/inputs.md).
            known: (n, L) labels to hold fixed: 1, 0, or nan for those to infer.
            batch_size: how many inputs are taken at a time; None: as many as spen.limits allow.

        >>> import spen
        >>> model = spen.SPEN(spen.Identity(2), spen.LocalEnergy(2, 3), spen.UnitBox(3), seed=0)
        >>> [model.local_scores(context)[:rows].shape for context, rows in model.contexts([[0, 1]])]
        [torch.Size([1, 3])]
        """
        arrays, network = self.arrays, self.features
        source = arrays.rows(inputs, "X", network.n_inputs)
        if known is not None:
            known = arrays.known(known, source.shape[0], self.domain.size)
        for first, last in self._spans(source, batch_size):
            stop_if_python_ends()
            with torch.no_grad():
                features = network.of(filled_batch(source, first, last, ROW_TILE))
            held = None if known is None else filled_rows(known, first, last, ROW_TILE)
            yield Context(features, known=held), last - first

    @ends_with_python
    @torch.no_grad()
    def energy_of(self, inputs: Any, y: Any, *, batch_size: int | None = None) -> Tensor:
        """Return the energy (n,) of any labelling, soft or hard."""
        source = self.arrays.rows(inputs, "X", self.features.n_inputs)
        labelling = self.arrays.matrix(y, "y", self.domain.size, source.shape[0])
        energies = []
        with evaluating(self), threads_for(self.work(source, batch_size)):
            for first, last in self._spans(source, batch_size):
                features = self.features.of(filled_batch(source, first, last, ROW_TILE))
                part = filled_rows(labelling, first, last, ROW_TILE)
                energies.append(self.energy.bind(Context(features)).value(part)[: last - first])
        return torch.cat(energies)

    @property
    def _made_of(self) -> tuple[None, tuple[Any, ...], dict[str, Any]]:
        return None, (self.features, self.energy, self.domain), {}

    def save(self, path: Path | str) -> None:
        """Write the model to one safetensors file; ``spen.load`` reads it.

        Parts that are not spen's own must be known by a name: see ``spen.register``.

        >>> import spen, tempfile
        >>> model = spen.SPEN(spen.MLP(2, 3), spen.LocalEnergy(3, 4), spen.UnitBox(4), seed=0)
        >>> path = f"{tempfile.mkdtemp()}/model.spen"
        >>> model.save(path)
        >>> torch.equal(spen.load(path)([[0, 1]]), model([[0, 1]]))
        True
        """
        header = {"kind": KIND, "model": module_to_json(self, "model")}
        write_tensors(path, {f"model/{k}": t for k, t in weights_of(self).items()}, header)

    @staticmethod
    def of_file(tensors: dict[str, Tensor], header: dict[str, Any]) -> SPEN:
        """Return the model that a file holds."""
        model = module_from_json(header["model"], under("model/", tensors), "model")
        if not isinstance(model, SPEN):
            raise TypeError(f"a {type(model).__name__} as a model")
        return model.eval()

    def _spans(self, source: Rows, batch_size: int | None) -> list[tuple[int, int]]:
        if batch_size is None:
            batch_size = limits.rows_at_once(max(self.domain.size, source.shape[1]))
        return row_spans(source, batch_size)


def _scores_of(local: LocalEnergy, bound: Problem, context: Context) -> Tensor:
    """Return the scores of a local energy, which binding has computed, but for a subclass that
    binds in its own way."""
    own = type(local).bind is not LocalEnergy.bind
    if own or not isinstance(bound, Form) or bound.linear is None:
        return local.scores(context)
    return bound.linear


def _sum_of_scores(scores: list[Tensor]) -> Tensor:
    if not scores:
        raise InputError("This needs a LocalEnergy among the energies; the model has none.")
    return functools.reduce(torch.add, scores)


def usable_device(name: str | torch.device) -> torch.device:
    """Return a device by name, or say that this machine does not have it."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, TypeError) as problem:
        raise InputError(
            f"device {name!r} cannot be used here ({str(problem).splitlines()[0]}). "
            "Choose 'auto' or 'cpu'."
        ) from None
