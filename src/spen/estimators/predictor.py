"""The predictor: the one path from X to labels, and how it goes."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from spen.batch.context import Context
from spen.batch.limits import limits
from spen.domains import Simplex
from spen.errors import choose
from spen.estimators.calibration import Calibration
from spen.estimators.decoding import decode
from spen.estimators.plan import Prediction
from spen.estimators.scaling import Scaling
from spen.features import evaluating
from spen.inference.backward import Detached
from spen.inference.base import Inference, Solution, join_solutions
from spen.inference.descent import Descent
from spen.inference.polished import Polished
from spen.kernels.threads import threads_for
from spen.metrics import search_error_rate
from spen.model import SPEN

DIAGNOSED_STEPS = 500
"""Steps that a diagnosis allows where a prediction makes a fixed, small number."""


@dataclass(frozen=True)
class Predictor:
    """From checked rows to labels: scaled → features → solved → calibrated → decoded.

    Attributes:
        model: the SPEN, on the device where all of it is computed up to the probabilities.
        prediction: what its inference minimises, and with which solver.
        scaling: of the rows.
        calibration: of the probabilities.
        decoding: how probabilities become labels, by name; see ``spen.estimators.decoding.decode``.
        tuned: what each decoding takes, by its name.

    >>> import spen
    >>> data = spen.exclusive_blocks(n_train=90, n_test=5)
    >>> clf = spen.SPENClassifier(hidden=(8,), epochs=2, random_state=0)
    >>> predictor = clf.fit(data.train.X, data.train.Y).predictor_
    >>> for probabilities in predictor.probabilities(data.test.X):
    ...     print(probabilities.shape, predictor.decode(probabilities).shape)
    torch.Size([5, 16]) (5, 16)
    """

    model: SPEN
    prediction: Prediction
    scaling: Scaling
    calibration: Calibration
    decoding: str
    tuned: dict[str, Any]

    @cached_property
    def exclusive(self) -> bool:
        """Whether each row has one class, not a set of labels."""
        return isinstance(self.model.domain, Simplex)

    @property
    def soft_decoding(self) -> str:
        """The decoding, or where that looks at energies the one that looks at probabilities."""
        return "half" if self.decoding == "joint" else self.decoding

    def scale(self, X: Any) -> Any:
        """Return rows (n, d) as the feature network takes them."""
        return self.scaling.transform(X)

    def solve(self, scaled: Any, known: Any = None) -> Solution:
        """Minimise the energy of scaled rows; known labels (n, L) are 1, 0, or nan."""
        return solve(self.model, self.prediction, scaled, known)

    def calibrate(self, y: Tensor, known: Any = None) -> Tensor:
        """Return probabilities of what inference left, (n, L); known labels keep their value."""
        held = None if known is None else torch.as_tensor(known)
        with threads_for(y.numel()):
            soft = self.calibration.apply(y, held)
        if held is None:
            return soft
        domain = self.model.domain
        return domain.hold(soft, domain.complete_known(held.to(soft)))

    def chunks(self, X: Any, labels: Any = None) -> Iterator[tuple[Any, Any]]:
        """Yield rows and what is said of their labels, as many at a time as limits allow."""
        rows, step = X.shape[0], limits.rows_at_once(self.model.domain.size)
        if rows <= step:
            # Cutting all rows out of a sparse matrix would take as long as predicting one.
            yield X, labels
            return
        for first in range(0, rows, step):
            chunk = slice(first, first + step)
            yield X[chunk], None if labels is None else labels[chunk]

    def probabilities(self, X: Any, known: Any = None) -> Iterator[Tensor]:
        """Yield the probability of each label of each row, (n, L), on the model's device.

        They come a chunk at a time, which changes no bit of them.
        """
        endings = []
        for some, held in self.chunks(X, known):
            solution = self.solve(self.scale(some), held)
            endings.append((solution.steps, solution.status))
            yield self.calibrate(solution.y, held)
        warn_unless_converged(endings)

    def predictions(self, X: Any, known: Any = None) -> Iterator[tuple[Tensor, np.ndarray]]:
        """Yield the probabilities and the labels of rows, a chunk at a time."""
        joint = self.lowest_labels(X, known) if self.decoding == "joint" else None
        for probabilities in self.probabilities(X, known):
            yield probabilities, next(joint) if joint else self.decode(probabilities)

    def decode(self, probabilities: Any, decoding: str | None = None) -> np.ndarray:
        """Turn probabilities (n, L) into labels of 0 and 1; None takes the predictor's decoding."""
        if isinstance(probabilities, Tensor):
            probabilities = probabilities.cpu().numpy()
        if self.exclusive:
            return self.model.domain.round(torch.as_tensor(probabilities)).numpy().astype(int)
        decoding = self.decoding if decoding is None else decoding
        if decoding not in self.tuned:
            choose(decoding, self.tuned, "decoding")
        return decode(probabilities, decoding, self.tuned[decoding])

    def lowest_labels(self, X: Any, known: Any = None) -> Iterator[np.ndarray]:
        """Yield the labelling of each row with the lowest energy that can be found, (n, L).

        They come a chunk at a time, as ``probabilities`` do.
        """
        endings = []
        for some, held in self.chunks(X, known):
            solution = lowest(self.model, self.prediction, self.scale(some), held)
            endings.append((solution.steps, solution.status))
            yield solution.y.cpu().numpy().astype(int)
        warn_unless_converged(endings)

    def energy(self, X: Any, labels: Any) -> np.ndarray:
        """Return the energy (n,) of a labelling (n, L), dense or sparse, of checked rows."""
        parts = [
            self.model.energy_of(self.scale(some), dense(given))
            for some, given in self.chunks(X, labels)
        ]
        return torch.cat(parts).cpu().numpy()

    def diagnose(self, X: Any, truth: Any, *, polish: bool = False) -> Diagnosis:
        """Minimise the energy of each row until it converges, and compare with the truth.

        The objective is the one that predictions minimise, its entropy included. Predictions
        that make a fixed number of steps are given as many as they need here.

        Args:
            X: (n, d) checked rows.
            truth: (n, L) their labels, dense or sparse.
            polish: diagnose ``lowest_labels`` in place of predictions.
        """
        model, objective = self.model, self.prediction.objective
        inference = patient_inference(self.prediction.inference, polish=polish)
        energies, solutions, first = [], [], 0
        scaled = self.scale(X)
        with torch.no_grad(), threads_for(model.work(scaled)):
            for context, rows in model.contexts(scaled):
                problem = model.smoothed(context, objective.entropy)
                part = problem.select(torch.arange(rows, device=model.reference.device))
                target = torch.from_numpy(dense(truth[first : first + rows]))
                energies.append(part.value(target.to(model.reference)))
                solved = model.solve_context(context, inference, objective.start, objective.entropy)
                # Without the labels that were found: of all rows, they would take much memory.
                solutions.append(replace(solved.first(rows), y=solved.y[:rows, :0], trace=None))
                first += rows
        solution = join_solutions(solutions)
        gaps = solution.gap
        if gaps is not None:
            gaps = (gaps / solution.energy.abs().clamp_min(1e-12)).cpu().numpy()
        return Diagnosis(
            converged=float(solution.converged.float().mean()),
            steps=solution.steps.cpu().numpy(),
            search_errors=search_error_rate(torch.cat(energies), solution.energy),
            endings=solution.describe(),
            gaps=gaps,
        )


def solve(model: SPEN, prediction: Prediction, inputs: Any, known: Any = None) -> Solution:
    """Return the solution of each row of inputs (n, n_inputs), which holds its soft labels."""
    contexts = model.contexts(inputs, known=known)
    return solve_contexts(model, prediction, contexts, model.work(inputs))


def solve_contexts(
    model: SPEN, prediction: Prediction, contexts: Iterable[tuple[Context, int]], work: float
) -> Solution:
    """Return the solution of each row of some batches.

    Args:
        model: whose energy is minimised.
        prediction: what inference minimises, and with which solver.
        contexts: of one batch after the other, and how many rows it has (see ``SPEN.contexts``).
        work: of a batch, as ``SPEN.work`` says it.
    """
    objective, inference = prediction.objective, prediction.inference
    with torch.no_grad(), evaluating(model), threads_for(work):
        parts = [
            objective.predict(model, inference, context).first(rows) for context, rows in contexts
        ]
    return parts[0] if len(parts) == 1 else join_solutions(parts)


def lowest(model: SPEN, prediction: Prediction, inputs: Any, known: Any = None) -> Solution:
    """Return the labelling of each row of inputs with the lowest energy that can be found."""
    objective = prediction.objective
    inference = patient_inference(prediction.inference, polish=True)
    settings: dict[str, Any] = {"start": objective.start, "entropy": objective.entropy}
    return model.solve(inputs, inference, known=known, **settings)


def patient_inference(inference: Inference, *, polish: bool = False) -> Inference:
    """Return the inference of predictions with as many steps as it needs to converge.

    Args:
        inference: of predictions.
        polish: round what it finds, and flip labels while that lowers the energy.
    """
    if isinstance(inference, Descent):
        most = max(inference.stopping.max_steps, DIAGNOSED_STEPS)
        patient = replace(inference.stopping, max_steps=most)
        inference = replace(inference, stopping=patient, backward=Detached())
    return Polished(inference) if polish else inference


def dense(labels: Any) -> np.ndarray:
    """Return labels, dense or sparse, as a dense array."""
    return labels.toarray() if sparse.issparse(labels) else labels


def warn_unless_converged(endings: list[tuple[Tensor, Tensor]]) -> None:
    """Warn of rows on which inference ended before it had converged: once of all chunks, of which
    the steps and the status of each row are given."""
    steps, status = endings[0] if len(endings) == 1 else map(torch.cat, zip(*endings, strict=True))
    solution = Solution(status[:, None], status, steps, status)
    stopped = solution.cut_off.numpy()
    if stopped.any():
        warnings.warn(
            f"Inference did not converge for {int(stopped.sum())} of {len(stopped)} rows: "
            f"{solution.describe()} The best that was found is returned; more steps or time, or "
            "a smaller rate (inference=...) may help.",
            ConvergenceWarning,
            stacklevel=level_of_caller(),
        )


def level_of_caller() -> int:
    """Return how many calls up a warning finds the line that is not spen's own."""
    frame, level = inspect.currentframe(), 0
    # Torch's decorators stand between.
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("spen.", "torch.")):
        frame, level = frame.f_back, level + 1
    return level


@dataclass(frozen=True)
class Diagnosis:
    """How inference went.

    Attributes:
        converged: the share of rows that met a tolerance.
        steps: (n,) how many steps each row took.
        search_errors: the share of rows whose true labelling has a lower energy than the
            one that was found: what better inference could still win.
        endings: how many rows ended how, in words.
        gaps: (n,) how far each energy may be above its minimum, as a share of it; None where that
            is not known: it is for convex energies alone.

    >>> import spen
    >>> data = spen.exclusive_blocks(n_train=60, n_test=20)
    >>> clf = spen.SPENClassifier(hidden=(), epochs=2, random_state=0)
    >>> found = clf.fit(data.train.X, data.train.Y).diagnose(data.test.X, data.test.Y)
    >>> 0 <= found.search_errors <= 1, found.steps.shape
    (True, (20,))
    """

    converged: float
    steps: np.ndarray
    search_errors: float
    endings: str
    gaps: np.ndarray | None = None

    def histogram(self, bins: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Return the counts of rows by steps, and the edges between the bins: whole numbers, of
        which the lower one belongs to a bin."""
        edges = np.linspace(self.steps.min(), self.steps.max() + 1, bins + 1)
        return np.histogram(self.steps, bins=np.unique(edges.round().astype(int)))

    def __str__(self) -> str:
        low, middle, high = np.percentile(self.steps, [10, 50, 90])
        steps = (
            f"steps: {middle:.0f} in the middle, {low:.0f} to {high:.0f} for most, "
            f"{self.steps.max()} at most"
        )
        counts, edges = self.histogram()
        longest = max(int(counts.max()), 1)
        bars = [
            f"  {edges[i]:6d} to {edges[i + 1] - 1:<6d} {count:7d}  {'#' * (40 * count // longest)}"
            for i, count in enumerate(counts.tolist())
        ]
        if len(bars) == 1:
            steps, bars = f"steps: {self.steps.max()} for each row", []
        return "\n".join(
            [
                f"converged: {100 * self.converged:.1f} % of {len(self.steps)} rows",
                steps,
                *bars,
                f"search errors: {100 * self.search_errors:.1f} % (the truth has a lower energy)",
                *([] if self.gaps is None else [f"gap: {self.gaps.max():.1e} at most"]),
                self.endings,
            ]
        )
