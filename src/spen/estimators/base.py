"""The base of every classifier of spen: fit by a plan, predict, decode, save."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MethodType
from typing import Any, Literal, Self

import numpy as np
from scipy import sparse as scipy_sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import (
    _check_sample_weight,
    _get_feature_names,
    check_array,
    check_is_fitted,
    check_random_state,
    validate_data,
)
from torch import Tensor

from spen.batch.arrays import unmasked
from spen.batch.rows import compressed_rows
from spen.batch.splits import RowDigests, Split
from spen.domains import Simplex, UnitBox
from spen.errors import InputError
from spen.estimators.calibration import log_odds
from spen.estimators.decoding import probability_rows
from spen.estimators.fit import Fitted, fit
from spen.estimators.plan import HELD_OUT, Plan, Shape
from spen.estimators.predictor import Diagnosis, Predictor
from spen.estimators.scaling import CHECKS, Scaling, checked_rows
from spen.estimators.structure import LabelStructure
from spen.estimators.tables import TableEncoder, needs_encoder
from spen.estimators.targets import Targets, align, align_known, label_weights, read_targets
from spen.files import versions
from spen.kernels.threads import ends_with_python
from spen.model import usable_device


class SettingAndMethod:
    """A method whose name is also a constructor argument: ``energy`` is both by nature.

    Setting the attribute stores the argument, as scikit-learn wants it; reading it gives the
    method. ``get_params`` returns the argument.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self._method if instance is None else MethodType(self._method, instance)

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self._name] = value


@dataclass(eq=False, repr=False, kw_only=True)
class LabelClassifier(ClassifierMixin, BaseEstimator):
    """The contract of spen's classifiers: label sets or classes, probabilities, names, files.

    A subclass has settings of its own, and says by ``plan`` how it is trained.

    Attributes:
        classes_: the classes, or the numbers of the labels, 0 to L − 1.
        label_names_: the names of the labels, as Y's columns or lists gave them.
        model_: the ``spen.SPEN``.
        tuned_: what decoding chose on held-out rows: the threshold, the thresholds, or for
            "expected_f1" how likely empty label sets are, against independent labels.
        held_out_score_: the example-averaged F1 (for classes, the accuracy) of held-out rows.
        history_: the epochs of the run that was tuned.
        refit_history_: the epochs of the run on all rows, or None.
        feature_names_: the names of the features, where they are known.
        encoder_: the ``TableEncoder`` that makes features of a table; None where X holds numbers.
        plan_: the sizes and the training that were chosen.
        predictor_: the ``Predictor``, the path from checked rows to labels.
        training_rows_: the ``RowDigests`` of the training rows, or None if not to be remembered.
        notes_: text for readers of the model file: how many training rows, versions.
    """

    # Set by scikit-learn's own checks.
    n_features_in_: int = field(init=False)
    feature_names_in_: np.ndarray = field(init=False)

    decoding: Literal["threshold", "label_thresholds", "expected_f1"] = "expected_f1"
    label_weight: Any = None
    held_out: float = HELD_OUT
    folds: str | int = "auto"
    refit: bool = True
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0
    remember_rows: bool = False
    encoder: Any = None

    @abstractmethod
    def plan(self, shape: Shape) -> Plan:
        """Return how to train on data of this shape; check the constructor's arguments."""

    @ends_with_python
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        label_names: Sequence[Any] | None = None,
        feature_names: Sequence[str] | None = None,
        checkpoint: Path | str | None = None,
        resume: bool = False,
    ) -> Self:
        """Learn from rows and their labels.

        Args:
            X: (n, d) numbers: an array, a scipy sparse matrix or a DataFrame. Or a table of words,
                dates, text and missing cells: a DataFrame, a dict of columns, or a list of texts.
            y: (n, L) of 0 and 1, nan where a label is missing (array, sparse matrix, or a DataFrame
                whose columns name the labels); a list of label lists; or (n,) classes.
            sample_weight: (n,) the weight of each row in the loss; only ratios matter.
            label_names: the names of y's columns, where y does not name them itself.
            feature_names: the names of X's columns, where X does not; the model file keeps them.
            checkpoint: a folder that holds how far the fit is, all trials, folds and members of it.
                It may be deleted when the model is saved.
            resume: go on from there, if something is there. The result is bit-equal, on CPU, to a
                fit that was never interrupted.
        """
        # Everything is checked before anything of this object changes.
        encoder = self._learn_encoder(X)
        if encoder is not None:
            X, feature_names = encoder.transform(X), encoder.feature_names
        inputs = check_array(_plain(X), input_name="X", estimator=self, **CHECKS)
        _get_feature_names(X)  # raises where column names are of mixed types
        targets = read_targets(y, label_names)
        if targets.n_rows != inputs.shape[0]:
            raise InputError(
                f"X and y must have as many rows; received {inputs.shape[0]} and {targets.n_rows}."
            )
        if feature_names is not None and len(feature_names) != inputs.shape[1]:
            raise InputError(
                f"feature_names holds {len(feature_names)} names for {inputs.shape[1]} features."
            )
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(
                unmasked(sample_weight), inputs, dtype=np.float64, ensure_non_negative=True
            )
            # A row that counts nothing must not tune anything either.
            counts = weight > 0
            if not counts.any():
                raise InputError("sample_weight is zero everywhere: no row counts.")
            inputs, weight = inputs[counts], weight[counts] / weight.max()
            weight = weight / weight.mean()
            targets = replace(targets, matrix=targets.matrix[counts])
        scaling = Scaling.of(inputs)
        n_rows, n_features = inputs.shape
        size = len(targets.names)
        shape = Shape(n_rows, n_features, size, scaling.sparse, targets.exclusive)
        plan = self.plan(shape)
        weights = label_weights(self.label_weight, targets)
        if weights is not None:
            weights = weights / weights.max()
            weights = weights / weights.mean()
        rows = Split(scaling.transform(inputs), targets.matrix, weight)
        domain = Simplex(size) if targets.exclusive else UnitBox(size)
        fitted = fit(
            plan,
            rows,
            domain,
            seed=_seed(self.random_state),
            label_weight=weights,
            device=usable_device(self.device),
            title="fit" if self.verbose else None,
            checkpoint=checkpoint,
            resume=resume,
        )
        validate_data(self, X, skip_check_array=True)
        if feature_names is None:
            feature_names = getattr(self, "feature_names_in_", None)
        self.feature_names_ = None if feature_names is None else tuple(feature_names)
        self.take(fitted, scaling, targets, RowDigests.of(inputs) if self.remember_rows else None)
        self.encoder_ = encoder
        self.notes_ = {"training rows": f"{n_rows:,}"} | versions()
        return self

    def take(
        self, fitted: Fitted, scaling: Scaling, labels: Targets, seen: RowDigests | None
    ) -> None:
        """Take over what was fitted or loaded."""
        plan = fitted.plan
        self.model_, self.plan_ = fitted.model, plan
        self.predictor_ = fitted.predictor(scaling)
        self.tuned_ = fitted.tuned.get(plan.decoding)
        self.held_out_score_ = fitted.score
        self.history_, self.refit_history_ = fitted.history, fitted.refit_history
        self.label_names_, self.label_type_ = labels.names, labels.dtype
        self.classes_ = labels.names if labels.exclusive else np.arange(len(labels.names))
        self.training_rows_ = seen

    # Predictions ------------------------------------------------------------------------

    @ends_with_python
    def predict(
        self, X: Any, known: Any = None, *, sparse: bool = False, polish: bool = False
    ) -> Any:
        """Return labels of 0 and 1, (n, L), or classes, (n,).

        Args:
            X: (n, d) numbers.
            known: (n, L) labels to hold fixed: 1, 0, or nan for those to infer. A DataFrame
                may have some of the labels as its columns.
            sparse: return a CSR matrix, without ever holding a dense one.
            polish: return the labelling of the lowest energy that can be found, in place of
                decoded probabilities: inference until it converges, rounded, and then labels
                flipped one by one while that lowers the energy. For those who ask what the
                energy prefers; decoding is tuned for F1, and this is not.
        """
        predictor = self._fitted()
        inputs, known = self._inputs(X, known)
        exclusive = predictor.exclusive
        for name, asked in (("sparse", sparse), ("polish", polish)):
            if exclusive and asked:
                raise InputError(f"{name}=True is for sets of labels; this model predicts classes.")
        if polish:
            parts = predictor.lowest_labels(inputs, known)
        else:
            parts = map(predictor.decode, predictor.probabilities(inputs, known))
        if exclusive:
            parts = (self.classes_[labels.argmax(1)] for labels in parts)
        if sparse:
            rows = [scipy_sparse.csr_array(labels) for labels in parts]
            return scipy_sparse.vstack(rows, format="csr").astype(self.label_type_)
        kind = self.classes_.dtype if exclusive else self.label_type_
        return _joined(parts, inputs.shape[0], kind)

    @ends_with_python
    def predict_proba(self, X: Any, known: Any = None) -> np.ndarray:
        """Return probabilities (n, L), each strictly inside (0, 1) but for known labels.

        Classes have probabilities that sum to 1.
        """
        inputs, known = self._inputs(X, known)
        parts = self._fitted().probabilities(inputs, known)
        return _joined((part.cpu().numpy() for part in parts), inputs.shape[0], np.float32)

    @ends_with_python
    def decode(self, probabilities: Any, decoding: str | None = None) -> np.ndarray:
        """Turn what ``predict_proba`` returns into labels of 0 and 1, (n, L).

        Args:
            probabilities: (n, L).
            decoding: None for the classifier's own; "threshold" and "expected_f1" are always
                tuned along with it.
        """
        predictor = self._fitted()
        rows = probability_rows(probabilities, len(self.label_names_))
        return predictor.decode(rows, decoding)

    def decision_function(self, X: Any, known: Any = None) -> np.ndarray:
        """Return scores (n, L): log-odds, less those of the threshold where there is one.

        For two classes, (n,): the log-odds of the second.
        """
        inputs, known = self._inputs(X, known)
        parts = self._fitted().probabilities(inputs, known)
        return _joined(map(self._scores, parts), inputs.shape[0], np.float64)

    def predict_labels(self, X: Any, known: Any = None) -> list[list[Any]]:
        """Return the names of the labels of each row; for classes, lists of one."""
        if self._fitted().exclusive:
            return [[name] for name in self.predict(X, known).tolist()]
        labels = self.predict(X, known, sparse=True)
        names = self.label_names_.tolist()
        return [[names[i] for i in row] for row in np.split(labels.indices, labels.indptr[1:-1])]

    # Where a setting has this name too, it is both: what is learned, and how labels fit it.
    @SettingAndMethod
    @ends_with_python
    def energy(self, X: Any, Y: Any) -> np.ndarray:
        """Return the energy (n,) of any labelling: the lower, the better it fits.

        Args:
            X: (n, d) numbers.
            Y: labels in any form that ``fit`` takes; soft ones in [0, 1] too.
        """
        return self._fitted().energy(*self._labelled(X, Y))

    @ends_with_python
    def diagnose(self, X: Any, Y: Any, *, polish: bool = False) -> Diagnosis:
        """Say how inference goes on rows whose labels are known.

        Returns the share of rows that converge, the steps that they take, and how often
        inference misses the true labelling although its energy is lower.

        Args:
            X: (n, d) numbers.
            Y: labels in any form that ``fit`` takes.
            polish: diagnose what ``predict(polish=True)`` does.
        """
        inputs, truth = self._labelled(X, Y)
        return self._fitted().diagnose(inputs, truth, polish=polish)

    def seen_in_training(self, X: Any) -> np.ndarray:
        """Return which rows have the same features as some training row, (n,).

        Scores of such rows say little about new ones. Only a classifier that was fitted with
        ``remember_rows=True`` can tell.
        """
        inputs, _ = self._inputs(X, None)
        if self.training_rows_ is None:
            raise InputError(
                "This model does not remember its training rows: whoever holds a model that does "
                "can find out who was among them. To ask, fit it with remember_rows=True."
            )
        return self.training_rows_.contains(inputs)

    @ends_with_python
    def structure(self) -> LabelStructure:
        """Return what was learned about labels: the measurement matrix, with their names."""
        check_is_fitted(self)
        return LabelStructure.of(self.model_, tuple(self.label_names_.tolist()))

    @ends_with_python
    def save(self, path: Path | str) -> None:
        """Write the whole classifier to one safetensors file; ``spen.load`` reads it."""
        from spen.estimators.model_file import save

        check_is_fitted(self)
        save(self, path)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments by name."""
        settings = super().get_params(deep)
        return {name: vars(self).get(name, value) for name, value in settings.items()}

    # How it works -----------------------------------------------------------------------

    def _fitted(self) -> Predictor:
        """Return the predictor, or raise as scikit-learn does where ``fit`` was not called."""
        if "predictor_" not in vars(self):
            check_is_fitted(self)
        return self.predictor_

    def _learn_encoder(self, X: Any) -> TableEncoder | None:
        """Return what makes numbers of a table; None where X holds numbers already."""
        if self.encoder is None and not needs_encoder(X):
            return None
        encoder = TableEncoder() if self.encoder is None else self.encoder
        if not isinstance(encoder, TableEncoder):
            raise InputError(f"encoder must be a spen.TableEncoder or None; received {encoder!r}.")
        return copy(encoder).fit(X)  # a setting is left as it is

    def _inputs(self, X: Any, known: Any = None) -> tuple[Any, np.ndarray | None]:
        inputs = checked_rows(self, _plain(X))
        rows = inputs.shape[0]
        return inputs, None if known is None else align_known(known, self.label_names_, rows)

    def _scores(self, chunk: Tensor) -> np.ndarray:
        probabilities = chunk.cpu().numpy().astype(np.float64)
        if self._fitted().exclusive:
            scores = np.log(np.maximum(probabilities, np.finfo(float).tiny))
            return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores
        scores = log_odds(probabilities)
        return scores if self.plan_.decoding == "expected_f1" else scores - log_odds(self.tuned_)

    def _labelled(self, X: Any, Y: Any) -> tuple[Any, Any]:
        exclusive, (inputs, _) = self._fitted().exclusive, self._inputs(X)
        return inputs, align(Y, self.label_names_, exclusive, inputs.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.sparse = True
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkClassifier(LabelClassifier):
    """A classifier with a feature network, and the settings of that."""

    hidden: str | tuple[int, ...] = "auto"
    dropout: str | float = "auto"
    input_dropout: str | float = "auto"
    weight_decay: str | float = "auto"
    epochs: str | int = "auto"
    batch_size: str | int = "auto"


def _plain(X: Any) -> Any:
    """Return rows that neither scipy nor scikit-learn can go wrong on."""
    return compressed_rows(X, "X") if scipy_sparse.issparse(X) else unmasked(X)


def _joined(chunks: Iterable[np.ndarray], rows: int, dtype: Any) -> np.ndarray:
    """Put what was predicted of chunks together, without holding it twice."""
    first, result = 0, np.empty(0)
    for chunk in chunks:
        if not first:
            result = np.empty((rows, *chunk.shape[1:]), dtype)
        result[first : first + len(chunk)] = chunk
        first += len(chunk)
    return result


def _seed(random_state: Any) -> int | None:
    if random_state is None:
        return None
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as problem:
        raise InputError(f"random_state {random_state!r} cannot be used: {problem}") from None
