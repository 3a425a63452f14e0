"""The base of every classifier of spen: fit by a plan, predict, decode, save."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
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

from spen.batch.arrays import densified, unmasked
from spen.batch.inputs import InputKind, InputRows, is_nested, read_inputs
from spen.batch.rows import compressed_rows
from spen.batch.splits import RowDigests, Split
from spen.batch.streams import stream_of
from spen.domains import Simplex, UnitBox
from spen.errors import InputError, check_positive, check_share, check_whole
from spen.estimators.asking import SHORTLIST, Question, questions
from spen.estimators.calibration import log_odds
from spen.estimators.decoding import probability_rows
from spen.estimators.fit import Fitted, fit
from spen.estimators.issues import (
    WRONG,
    LabelIssues,
    cross_fitted_issues,
    find_issues,
    refuse_classes,
)
from spen.estimators.plan import HELD_OUT, Plan, Shape
from spen.estimators.predictor import Diagnosis, Predictor
from spen.estimators.scaling import AS_THEY_ARE, CHECKS, Scaling, checked_rows, numbers_wanted
from spen.estimators.streams import fit_stream
from spen.estimators.structure import LabelStructure
from spen.estimators.tables import TableEncoder, needs_encoder
from spen.estimators.targets import (
    Targets,
    align,
    align_among,
    align_known,
    check_index,
    is_frame,
    label_weights,
    read_targets,
)
from spen.features import wants_width, width_of_features
from spen.files import versions
from spen.kernels.threads import ends_with_python
from spen.metrics import score_by
from spen.model import usable_device
from spen.training.processes import our_processes

if TYPE_CHECKING:
    from spen.estimators.compare import Comparison
    from spen.estimators.export import Exported
    from spen.training.checkpoint import Epoch


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
        held_out_score_: the score of held-out rows, by ``metric``; for classes the accuracy.
        history_: the epochs of the run that was tuned.
        refit_history_: the epochs of the run on all rows, or None.
        feature_names_: the names of the features, where they are known.
        encoder_: the ``TableEncoder`` that makes features of a table; None where X holds numbers.
        inputs_: what rows are like, where X is no matrix; None where it is.
        labels_framed_: whether y was a DataFrame, or a Series of label lists.
        plan_: the sizes and the training that were chosen.
        predictor_: the ``Predictor``, the path from checked rows to labels.
        training_rows_: the ``RowDigests`` of the training rows, or None if not to be remembered.
        notes_: text for readers of the model file: how many training rows, versions.
    """

    # Set by scikit-learn's own checks.
    n_features_in_: int = field(init=False)
    feature_names_in_: np.ndarray = field(init=False)

    metric: Literal["f1", "micro_f1", "macro_f1", "subset", "hamming", "accuracy"] = "f1"
    decoding: str = "auto"
    label_weight: Any = None
    held_out: float = HELD_OUT
    folds: str | int = "auto"
    refit: bool = True
    device: str | torch.device = "auto"
    random_state: Any = None
    verbose: int = 0
    warm_start: bool = False
    remember_rows: bool = False
    encoder: Any = None

    @abstractmethod
    def plan(self, shape: Shape) -> Plan:
        """Return how to train on data of this shape; check the constructor's arguments."""

    @ends_with_python
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        label_names: Sequence[Any] | None = None,
        feature_names: Sequence[str] | None = None,
        eval_set: Any = None,
        callbacks: Sequence[Callable[[Epoch], None]] = (),
        checkpoint: Path | str | None = None,
        resume: bool = False,
    ) -> Self:
        """Learn from rows and their labels.

        Processes that torchrun started learn together: each calls this with the same arguments
        (docs/processes.md).

        Args:
            X: (n, d) numbers: an array, a scipy sparse matrix or a DataFrame. Or a table of words,
                dates, text and missing cells: a DataFrame, a dict of columns, or a list of texts.
                Or what ``features`` of your own take: images, token ids, dicts of arrays
                (docs/inputs.md). Or rows that come part by part, labels with them, because there
                may be more than memory holds: what ``spen.open_rows`` returns, or a Dataset or a
                DataLoader of PyTorch; y is then left out (docs/large.md).
            y: (n, L) of 0 and 1, nan where a label is missing (array, sparse matrix, or a DataFrame
                whose columns name the labels); a list of label lists; or (n,) classes.
            sample_weight: (n,) the weight of each row in the loss; only ratios matter.
            label_names: the names of y's columns, where y does not name them itself.
            feature_names: the names of X's columns, where X does not; the model file keeps them.
            eval_set: rows and labels of your own to choose, calibrate and tune by, in place of
                those that are held out of X; the model is trained on all of X, and not on them.
            callbacks: called after each epoch of each run with its ``Epoch``. Runs that are
                trained side by side have one for all of them.
            checkpoint: a folder that holds how far the fit is, all trials, folds and members of it.
                It may be deleted when the model is saved.
            resume: go on from there, if something is there. The result is bit-equal, on CPU, to a
                fit that was never interrupted.
        """
        # Each process has its own device, which "cuda" stands for from then on.
        our_processes()
        # Everything is checked before anything of this object changes.
        check_index(X, y, "y")
        if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
            raise InputError(f"callbacks must be a list of functions; received {callbacks!r}.")
        if isinstance(eval_set, list) and len(eval_set) == 1:
            # As other libraries take it: a list of pairs.
            [eval_set] = eval_set
        if (stream := stream_of(X)) is not None:
            if y is not None or sample_weight is not None:
                raise InputError(
                    "Rows that come part by part bring their labels and weights along. Leave y and "
                    "sample_weight out."
                )
            fit_stream(
                self,
                stream,
                reads=self._passed,
                holds=self._held,
                label_names=label_names,
                feature_names=feature_names,
                eval_set=eval_set,
                callbacks=callbacks,
                checkpoint=checkpoint,
                resume=resume,
                seed=_seed(self.random_state),
            )
            return self
        going_on = self.warm_start and hasattr(self, "predictor_")
        passed, encoder = self._passed(X), None
        if passed is None:
            encoder = self.encoder_ if going_on else self._learn_encoder(X)
            if encoder is not None:
                X, feature_names = encoder.transform(X), encoder.feature_names
                if isinstance(eval_set, tuple) and len(eval_set) == 2:
                    eval_set = encoder.transform(eval_set[0]), eval_set[1]
            with numbers_wanted():
                inputs: Any = check_array(_plain(X), input_name="X", estimator=self, **CHECKS)
            _get_feature_names(X)  # raises where column names are of mixed types
        else:
            inputs = passed
            if feature_names is not None:
                raise InputError("feature_names are for the columns of a matrix. Leave them out.")
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
        if going_on:
            scaling = self.predictor_.scaling
        else:
            scaling = Scaling.of(inputs) if passed is None else AS_THEY_ARE
        n_rows, n_features = inputs.shape
        size = len(targets.names)
        known = size, scaling.sparse, targets.exclusive
        matrix: Any = targets.matrix
        complete = scipy_sparse.issparse(matrix) or not np.isnan(matrix).any()
        own = eval_set is not None or self.warm_start
        shape = Shape(n_rows, n_features, *known, held_given=own, complete=complete)
        shape = replace(shape, passed=passed is not None)
        plan = self.plan(shape)
        if going_on:
            inputs = self._check_same(shape, targets, inputs)
            plan = plan.like(self.plan_)
        weights = label_weights(self.label_weight, targets)
        if weights is not None:
            weights = weights / weights.max()
            weights = weights / weights.mean()
        rows = Split(scaling.transform(inputs), targets.matrix, weight)
        held = None
        if eval_set is not None:
            held = self._held(eval_set, X if passed is None else passed, targets, scaling, shape)
        domain = Simplex(size) if targets.exclusive else UnitBox(size)
        fitted = fit(
            plan,
            rows,
            domain,
            seed=_seed(self.random_state),
            label_weight=weights,
            device=usable_device(self.device),
            title="fit" if self.verbose else None,
            held=held,
            start=self.model_ if going_on else None,
            callbacks=callbacks,
            checkpoint=checkpoint,
            resume=resume,
        )
        self.inputs_ = None
        if passed is None:
            validate_data(self, X, skip_check_array=True)
            if feature_names is None:
                feature_names = getattr(self, "feature_names_in_", None)
        else:
            self.inputs_ = replace(passed.kind, n_features=width_of_features(fitted.model))
            for name in {"n_features_in_", "feature_names_in_"} & set(vars(self)):
                delattr(self, name)
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
        self.labels_framed_ = labels.framed
        self.classes_ = labels.names if labels.exclusive else np.arange(len(labels.names))
        self.training_rows_ = seen

    # Predictions ------------------------------------------------------------------------

    @ends_with_python
    def predict(
        self, X: Any, known: Any = None, *, sparse: bool = False, polish: bool = False
    ) -> Any:
        """Return labels of 0 and 1, (n, L), or classes, (n,).

        Where ``fit`` had its labels in pandas and X is a DataFrame, label sets come as a DataFrame:
        the labels are its columns, and its index is X's.

        Args:
            X: (n, d) numbers.
            known: labels to hold fixed: (n, L) of 1, 0, or nan for those to infer; a DataFrame
                with some of the labels as its columns; a dict such as ``{"sport": 1}`` for all
                rows, or a list of such dicts, one a row.
            sparse: return a CSR matrix, without ever holding a dense one.
            polish: return the labelling of the lowest energy that can be found, in place of
                decoded probabilities: inference until it converges, rounded, and then labels
                flipped one by one while that lowers the energy. For those who ask what the
                energy prefers; decoding is tuned for ``metric``, and this is not.
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
            parts = (labels for _, labels in predictor.predictions(inputs, known))
        if exclusive:
            parts = (self.classes_[labels.argmax(1)] for labels in parts)
        if sparse:
            rows = [scipy_sparse.csr_array(labels) for labels in parts]
            return scipy_sparse.vstack(rows, format="csr").astype(self.label_type_)
        kind = self.classes_.dtype if exclusive else self.label_type_
        return self._framed(_joined(parts, inputs.shape[0], kind), X)

    @ends_with_python
    def predict_proba(self, X: Any, known: Any = None) -> Any:
        """Return probabilities (n, L), each strictly inside (0, 1) but for known labels.

        Classes have probabilities that sum to 1. DataFrames come as from ``predict``.
        """
        inputs, known = self._inputs(X, known)
        parts = self._fitted().probabilities(inputs, known)
        soft = _joined((part.cpu().numpy() for part in parts), inputs.shape[0], np.float32)
        return self._framed(soft, X)

    @ends_with_python
    def decode(self, probabilities: Any, decoding: str | None = None) -> np.ndarray:
        """Turn what ``predict_proba`` returns into labels of 0 and 1, (n, L).

        Args:
            probabilities: (n, L).
            decoding: None for the classifier's own; "threshold", "expected_f1" and "half" are
                always tuned along with it.
        """
        predictor = self._fitted()
        rows = probability_rows(probabilities, len(self.label_names_))
        return predictor.decode(rows, decoding)

    @ends_with_python
    def predict_both(self, X: Any, known: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Return what ``predict_proba`` does, and the labels of 0 and 1 for it, both (n, L)."""
        inputs, known = self._inputs(X, known)
        parts = self._fitted().predictions(inputs, known)
        soft, labels = zip(*((part.cpu().numpy(), found) for part, found in parts), strict=True)
        return np.concatenate(soft), np.concatenate(labels)

    def predict_top(self, X: Any, k: int, known: Any = None) -> list[list[Any]]:
        """Return the names of the k most probable labels of each row, the most probable first.

        Of equally probable ones the one in the earlier column comes first.
        """
        check_whole(k, "k", most=len(self.label_names_))
        soft = self.predict_proba(X, known)
        order = np.argsort(-soft, axis=1, kind="stable")[:, :k]
        names = self.label_names_.tolist()
        return [[names[i] for i in row] for row in order.tolist()]

    @ends_with_python
    def score(self, X: Any, y: Any, sample_weight: Any = None, known: Any = None) -> float:
        """Return the score of what is predicted, by ``metric``; for classes the accuracy.

        Args:
            X: (n, d) numbers.
            y: labels in any form that ``fit`` takes. A label that ``fit`` has not seen counts as
                one that was missed, and nan as one that is not known.
            sample_weight: (n,) how much each row counts.
            known: labels that are told, as ``predict`` takes them; they are not scored.
        """
        return score_by(self.plan_.metric, *self._judged(X, y, known), sample_weight)

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

    @ends_with_python
    def next_question(
        self,
        X: Any,
        known: Any = None,
        k: int = 5,
        *,
        among: Any = None,
        shortlist: int | None = SHORTLIST,
    ) -> list[list[Question]]:
        """Return, for each row, the k unknown labels whose answer tells most about the others.

        The expected gain of asking about label i is the entropy that its answer is expected to take
        off the others, in nats,

            gain_i = H₋ᵢ(now) − [p_i H₋ᵢ(y_i = 1) + (1 − p_i) H₋ᵢ(y_i = 0)],

        where H₋ᵢ = −Σ_j p_j log p_j + (1 − p_j) log(1 − p_j) goes over the labels j that are not
        known, without i, whose own doubt does not count. After an answer, the p_j are those of
        ``predict_proba`` with y_i among what is known. Now, they are the mean of those, p_i p_j(y_i
        = 1) + (1 − p_i) p_j(y_i = 0): for one joint distribution that is p_j itself, and where the
        model is not quite one, what any answer would do alike tells nothing. So gain_i is the sum
        of the mutual information of label i and each other one, and never below zero (but for
        rounding). A model without an energy between labels has gains of zero.

        Each label that is looked at is one inference after a yes and one after a no.

        Args:
            X: (n, d) numbers.
            known: labels that are known already, in any form that ``predict`` takes.
            k: how many questions; a row with fewer labels to ask about has as many as it has.
            among: the labels that may be asked: a list of names, or of columns, for all rows; or
                True and False for each label, (L,) or (n, L). None means all that are not known.
            shortlist: how many of a row's labels are looked at: those with probabilities nearest
                to one half (k at least). None looks at all.

        >>> import spen
        >>> data = spen.exclusive_blocks(n_train=99, n_test=2)
        >>> clf = spen.SPENClassifier(hidden=(), epochs=5, random_state=0)
        >>> clf = clf.fit(data.train.X, data.train.Y, label_names=data.label_names)
        >>> first, second = clf.next_question(data.test.X, known={"block0.0": 1}, k=2)
        >>> print(first[0])
        block...: ... % likely; the answer tells ... nats about the others
        """
        check_whole(k, "k")
        if shortlist is not None:
            check_whole(shortlist, "shortlist")
        predictor = self._fitted()
        inputs, held = self._inputs(X, known)
        may = align_among(among, self.label_names_, inputs.shape[0])
        names = self.label_names_.tolist()
        return questions(predictor, inputs, names, held, may, k, shortlist)

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

    @ends_with_python
    def label_issues(
        self,
        X: Any,
        Y: Any,
        *,
        top: int | None = None,
        folds: int = 3,
        unseen: bool = False,
        wrong: float = WRONG,
    ) -> LabelIssues:
        """Return the labels that are probably wrong or missing, the most probable first.

        With E the energy, yᵢ with j flipped the labels given to row i but for label j, and trust
        fitted to how far labels bear each other out, the log-odds that yᵢⱼ is wrong are
        E(yᵢ) − E(yᵢ with j flipped), the part of the features and that of the other labels each
        times its trust, less what speaks for a label because it was given.

        Each row is judged by a model that has not seen it: copies of this classifier, fitted or
        not, are fitted to all rows but a fold, and this one stays as it is.

        Args:
            X: (n, d) numbers, or a table.
            Y: sets of labels in any form that ``fit`` takes; nan, a missing label, is no issue.
            top: how many to return; None: those that are more probably wrong than not.
            folds: how many models are fitted; each takes as long as a fit.
            unseen: True says that the rows are new to this fitted classifier, which then judges
                them itself, without another fit.
            wrong: the share of the labels given that is taken to be wrong; as many are taken to be
                missing. It says how probabilities of the two kinds compare.

        >>> import spen
        >>> data = spen.exclusive_blocks(n_train=90, n_test=9)
        >>> clf = spen.SPENClassifier(hidden=(), epochs=5, random_state=0)
        >>> clf = clf.fit(data.train.X, data.train.Y)
        >>> len(clf.label_issues(data.test.X, data.test.Y, unseen=True, top=5))
        5
        """
        if top is not None:
            check_whole(top, "top")
        check_positive(wrong, "wrong")
        check_share(wrong, "wrong")
        check_index(X, Y, "Y")
        if unseen:
            refuse_classes(self._fitted().exclusive)
            inputs, labels = self._labelled(X, Y, missing=True)
            return find_issues(
                self.predictor_, inputs, labels, self.label_names_, top=top, wrong=wrong
            )
        passed, own = self._passed(X), self
        encoder = self._learn_encoder(X) if passed is None else None
        if encoder is not None:
            X, own = encoder.transform(X), copy(self)
            own.encoder = None
        X = _plain(X) if passed is None else passed
        names = vars(self).get("label_names_")
        settings = {"folds": folds, "names": names, "top": top, "wrong": wrong}
        return cross_fitted_issues(own, X, Y, **settings)

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

    @ends_with_python
    def export(self, path: Path | str, X: Any = None, *, to: str = "onnx") -> Exported:
        """Write the whole way from X to probabilities and labels as a file that other programs
        run (see docs/export.md), and say how it compared with ``predict``, row by row.

        Args:
            path: of the file.
            X: rows to compare by; None draws some.
            to: "onnx", or "torch" for a program of torch.export.
        """
        from spen.estimators.export import export

        self._fitted()
        width_of_matrix(self, "export")
        return export(self, path, X, to=to)

    @ends_with_python
    def report(
        self,
        path: Path | str,
        X: Any = None,
        Y: Any = None,
        *,
        title: str | None = None,
        comparison: Comparison | None = None,
    ) -> Path:
        """Write one HTML page that shows the model, and return where it is (see docs/report.md).

        Args:
            path: the file to write.
            X: (n, d) numbers, or a ``spen.Split`` that holds their labels too. Rows that were not
                trained on say most; without any, the page has what the model alone tells.
            Y: their labels in any form that ``fit`` takes; nan where one is missing.
            title: of the page.
            comparison: what ``compare`` returned, to be shown too.
        """
        from spen.report.page import write_report
        from spen.report.subject import Judged

        self._fitted()
        if Y is None and isinstance(X, Split):
            X, Y = X.X, X.Y
        if (X is None) != (Y is None):
            raise InputError("report takes rows and their labels, X and Y, or neither of them.")
        judged = None
        if X is not None:
            judged = Judged.of(Split(*self._labelled(X, Y, missing=True)), "the rows given")
        title = title or type(self).__name__
        return write_report(path, title, self, judged, comparison=comparison)

    @ends_with_python
    def compare(
        self,
        X: Any,
        Y: Any,
        against: Sequence[str] = ("logistic", "chain", "extra_trees", "boosting", "mlp"),
        *,
        held_out: float = 0.25,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> Comparison:
        """Say how these settings do beside scikit-learn's classifiers on the same rows.

        All are trained on part of the rows, this one too (a copy, so that nothing here changes),
        and the others judge. The probabilities of each are decoded in every way that spen knows,
        tuned in the same manner: on a fifth of the training part, before all of it is trained on.

        Args:
            X: (n, d) numbers: training rows.
            Y: their sets of labels, in any form that ``fit`` takes.
            against: "logistic" (a logistic regression for each label), "chain" (of logistic
                regressions), "extra_trees", "boosting" (of histograms, for each label), "mlp".
                Dense features are standardised where that matters. "network" is this classifier
                with energy="local": its networks alone, without an energy. Of inputs that are no
                matrix, nothing else can be compared.
            held_out: the share of rows that judge.
            random_state: decides which rows these are, and what the others draw.
            verbose: 1 prints a line for each classifier, when it is done.

        >>> import spen
        >>> data = spen.exclusive_blocks(n_train=99, n_test=1)
        >>> clf = spen.SPENClassifier(hidden=(), epochs=2)
        >>> found = clf.compare(data.train.X, data.train.Y, against=["logistic"])
        >>> [entry.name for entry in found.entries]
        ['SPENClassifier', 'logistic']
        """
        from spen.estimators.compare import compare

        # The others take numbers.
        passed, own = self._passed(X), self
        encoder = self._learn_encoder(X) if passed is None else None
        if encoder is not None:
            X, own = encoder.transform(X), copy(self)
            own.encoder = None
        return compare(
            own,
            _plain(X) if passed is None else passed,
            Y,
            against,
            held_out=held_out,
            random_state=random_state,
            verbose=verbose,
        )

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

    def _check_same(self, shape: Shape, targets: Targets, inputs: Any) -> Any:
        """Raise unless a fit can go on from here on such rows; return them as they are to be."""
        names, exclusive = self.label_names_.tolist(), self.predictor_.exclusive
        same = names == targets.names.tolist() and exclusive == shape.exclusive
        passed = self.inputs_
        before = shape.features if passed is not None else self.n_features_in_
        if not same or shape.features != before or shape.passed != (passed is not None):
            raise InputError(
                "warm_start=True goes on from the model as it is, so X and y must have the "
                f"features and labels of the fit before, {before} and {len(names)}; "
                f"received {shape.features} and {len(targets.names)}, or others. Set "
                "warm_start=False to begin anew."
            )
        return inputs if passed is None else passed.conform(inputs)

    def _held(self, given: Any, X: Any, targets: Targets, scaling: Scaling, shape: Shape) -> Split:
        """Return the rows that a user gave to tune by."""
        if not isinstance(given, tuple) or len(given) != 2:
            kind = type(given).__name__
            raise InputError(f"eval_set must be a pair (rows, labels); received a {kind}.")
        if isinstance(X, InputRows):
            inputs: Any = X.kind.conform(_passed_rows(given[0], "eval_set", X.kind), "eval_set")
            labels = align(given[1], targets.names, targets.exclusive, len(inputs), missing=True)
            return Split(inputs, labels)
        with numbers_wanted():
            inputs = check_array(_plain(given[0]), input_name="eval_set", estimator=self, **CHECKS)
        names, theirs = (_get_feature_names(each) for each in (X, given[0]))
        if names is not None and theirs is not None and list(names) != list(theirs):
            raise InputError(
                "eval_set must have the columns of X, in the same order; take rows[X.columns]."
            )
        if inputs.shape[1] != shape.features:
            raise InputError(
                f"The rows of eval_set have {inputs.shape[1]} features, and X has {shape.features}."
            )
        labels = align(given[1], targets.names, targets.exclusive, inputs.shape[0], missing=True)
        return Split(scaling.transform(inputs), labels)

    def _passed(self, X: Any) -> InputRows | None:
        """Return inputs that are no matrix, where the user's own network takes them."""
        own = getattr(self, "features", None)
        if isinstance(X, Mapping) and not any(map(is_nested, X.values())):
            return None  # the columns of a table
        if self.encoder is not None or own is None:
            if isinstance(X, InputRows | Mapping):
                raise InputError(
                    "X holds arrays by name, for a network of your own: pass features=, a module "
                    "that takes them, and no encoder. A table is a dict of columns, one entry a "
                    "row."
                )
            return None
        rows = read_inputs(X)
        # Whole numbers are numbers for networks with a width.
        as_numbers = rows is not None and rows.is_matrix and wants_width(own)
        return None if as_numbers else rows

    def _learn_encoder(self, X: Any) -> TableEncoder | None:
        """Return what makes numbers of a table; None where X holds numbers already."""
        if self.encoder is None and not needs_encoder(X):
            return None
        encoder = TableEncoder() if self.encoder is None else self.encoder
        if not isinstance(encoder, TableEncoder):
            raise InputError(f"encoder must be a spen.TableEncoder or None; received {encoder!r}.")
        return copy(encoder).fit(X)  # a setting is left as it is

    def _inputs(self, X: Any, known: Any = None) -> tuple[Any, np.ndarray | None]:
        check_index(X, known, "known")
        if (kind := vars(self).get("inputs_")) is not None:
            inputs: Any = kind.conform(_passed_rows(X, "X", kind))
        else:
            with numbers_wanted():
                inputs = checked_rows(self, _plain(X))
        rows = inputs.shape[0]
        return inputs, None if known is None else align_known(known, self.label_names_, rows)

    def _scores(self, chunk: Tensor) -> np.ndarray:
        probabilities = chunk.cpu().numpy().astype(np.float64)
        if self._fitted().exclusive:
            scores = np.log(np.maximum(probabilities, np.finfo(float).tiny))
            return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores
        scores = log_odds(probabilities)
        if self.plan_.decoding == "row_threshold":
            threshold, power = np.asarray(self.tuned_)
            largest = probabilities.max(axis=1, keepdims=True)
            return scores - log_odds(threshold * largest**power)
        thresholds = self.plan_.decoding in ("threshold", "label_thresholds")
        return scores - log_odds(self.tuned_) if thresholds else scores

    def _labelled(self, X: Any, Y: Any, *, missing: bool = False) -> tuple[Any, Any]:
        exclusive, (inputs, _) = self._fitted().exclusive, self._inputs(X)
        return inputs, align(Y, self.label_names_, exclusive, inputs.shape[0], missing=missing)

    def _judged(self, X: Any, y: Any, known: Any = None) -> tuple[Any, Any]:
        """Return the truth and the prediction, both with the model's labels as their first
        columns; labels that only the truth has come after them, and are never predicted.

        Labels that are told are missing in the truth.
        """
        names, exclusive = self.label_names_, self._fitted().exclusive
        found = self.predict(X, known) if exclusive else self.predict(X, known, sparse=True)
        labels = align(found, names, exclusive, found.shape[0])
        truth = align(y, names, exclusive, found.shape[0], truth=True)
        labels.resize(truth.shape)
        if known is not None:
            told = ~np.isnan(align_known(known, names, found.shape[0]))
            truth = np.array(densified(truth), float)
            truth[:, : len(names)][told] = np.nan
            if np.isnan(truth).all():
                raise InputError("known tells all labels of all rows: none is left to score.")
        return truth, labels

    def _framed(self, values: np.ndarray, X: Any) -> Any:
        """Return what was predicted of each label as a DataFrame, for those who have such."""
        if not (self.labels_framed_ and is_frame(X)) or self._fitted().exclusive:
            return values
        from pandas import DataFrame

        return DataFrame(values, index=X.index, columns=self.label_names_.tolist(), copy=False)

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
    lr: str | float = "auto"
    epochs: str | int = "auto"
    batch_size: str | int = "auto"
    early_stopping: bool | int = False


def width_of_matrix(classifier: LabelClassifier, asked: str) -> int:
    """Return how many columns a classifier's rows have; ``asked`` is what needs a matrix."""
    if classifier.inputs_ is not None:
        raise InputError(
            f"{asked} is for models of matrices and tables, and this one takes "
            f"{classifier.inputs_.in_words()}. Predict with it in Python: spen.load(...).predict."
        )
    return classifier.n_features_in_


def _passed_rows(X: Any, name: str, kind: InputKind) -> InputRows:
    """Return inputs for a model that takes no matrix."""
    rows = read_inputs(X, name)
    if rows is None:
        shape = getattr(X, "shape", None)
        received = f"a {type(X).__name__}" if shape is None else f"shape {tuple(shape)}"
        raise InputError(f"{name} must be {kind.in_words()}, as in the fit; received {received}.")
    return rows


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
