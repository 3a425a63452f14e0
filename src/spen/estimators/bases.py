"""Bases: classifiers of scikit-learn whose scores an energy is put on."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor

from spen.batch.splits import Split
from spen.described import from_json, to_json
from spen.errors import CheckpointError, InputError, check_whole, choose
from spen.estimators.forests import Forest, forest_kinds
from spen.estimators.plan import Base
from spen.estimators.predictor import dense
from spen.features import Features

TREES = 150
"""Of the forests that have a name here: held-out scores of small tables gain little by more."""

NAMED = {"extra_trees": "ExtraTreesClassifier", "forest": "RandomForestClassifier"}
"""The forests of scikit-learn that have a name here."""

NETWORK, LOGISTIC = "network", "logistic"
"""The names of what spen has itself."""


@dataclass(frozen=True)
class Estimator(Base):
    """A classifier of scikit-learn, which scores labels.

    One that takes several labels is fitted to all of them together, any other to one label after
    the other. Labels that are the same in all rows are not asked about.

    Attributes:
        estimator: not fitted; it is cloned.
        sizes: of what was fitted, for a file.
    """

    estimator: Any
    sizes: tuple[int, ...] = ()

    def fit(self, rows: Split, seed: int = 0) -> tuple[Features, Split]:
        targets = dense(rows.Y)
        # What it says of the rows that it has seen would mislead stages, so it has none.
        unseen = replace(rows, X=np.zeros((len(rows), targets.shape[1]), np.float32))
        if _is_forest(self.estimator):
            model = self._fitted(rows.X, _complete(targets, self.estimator), rows.weight, seed)
            return Forest.from_sklearn(model, targets.shape[1]), unseen
        return self._scores(rows, targets, seed), unseen

    def build(self, n_inputs: int, n_labels: int) -> Features:
        kind = Forest if _is_forest(self.estimator) else EstimatorScores
        return kind(n_inputs, n_labels, *self.sizes)

    def _scores(self, rows: Split, targets: np.ndarray, seed: int) -> EstimatorScores:
        known = ~np.isnan(targets)
        counts, ones = known.sum(0), np.nansum(targets, 0)
        asked = np.flatnonzero((ones > 0) & (ones < counts))
        models: list[Any] = []
        tags = get_tags(self.estimator)
        several = tags.classifier_tags is not None and tags.classifier_tags.multi_label
        if (several or not tags.target_tags.single_output) and len(asked) > 1:
            labels = _complete(targets[:, asked], self.estimator)
            models = [self._fitted(rows.X, labels, rows.weight, seed)]
        else:
            for label in asked:
                some = rows.rows(np.flatnonzero(known[:, label]))
                labels = targets[known[:, label], label][:, None]
                models.append(self._fitted(some.X, labels, some.weight, seed + int(label)))
        made = EstimatorScores(rows.X.shape[1], targets.shape[1], 0)
        made.models = models
        made.prior.copy_(torch.from_numpy((ones + 0.5) / (counts + 1)))
        made.asked[torch.from_numpy(asked)] = True
        made.doubt.fill_(0.5 / (len(rows) + 1))
        return made

    def _fitted(self, X: Any, labels: np.ndarray, weight: Any, seed: int) -> Any:
        model: Any = clone(self.estimator)
        for name, value in model.get_params().items():
            if value is None and name.split("__")[-1] == "random_state":
                model.set_params(**{name: seed % 2**32})
        if sparse.issparse(X) and not get_tags(model).input_tags.sparse:
            X = X.toarray()
        options = {}
        if weight is not None:
            last, prefix = model, ""
            if isinstance(model, Pipeline):
                name, last = model.steps[-1]
                prefix = f"{name}__"
            if not has_fit_parameter(last, "sample_weight"):
                raise InputError(
                    f"base holds {type(last).__name__}, whose fit takes no sample_weight, so rows "
                    "could not count differently. Leave sample_weight out, or choose another base."
                )
            options[f"{prefix}sample_weight"] = weight
        labels = labels.astype(np.int64)
        return model.fit(X, labels.ravel() if labels.shape[1] == 1 else labels, **options)


def _is_forest(estimator: Any) -> bool:
    # Not a class of others that is made of one: it may do anything.
    return type(estimator) in forest_kinds().values()


def _complete(targets: np.ndarray, estimator: Any) -> np.ndarray:
    """Return the targets of all labels together, of which none may be missing."""
    if np.isnan(targets).any():
        kind = type(estimator).__name__
        raise InputError(
            f"{kind} learns all labels together, and some are missing (nan) in y. Choose a base "
            f"that learns one label at a time (LogisticRegression), or fill them in."
        )
    return targets


class EstimatorScores(Features):
    """F(x) = the log-odds that classifiers of scikit-learn give each label, (n, L).

    Nobody is surer than n training rows allow: probabilities end ½ / (n + 1) from 0 and 1.

    Args:
        n_inputs: d.
        n_labels: L.
        size: of the fitted classifiers, in bytes, where they are still to be read from a file.

    Attributes:
        models: one for each label that is asked about, or one for all of them.
    """

    draws_itself: ClassVar[bool] = True
    prior: Tensor
    asked: Tensor
    doubt: Tensor

    def __init__(self, n_inputs: int, n_labels: int, size: int) -> None:
        super().__init__()
        check_whole(size, "size", least=0)
        self.n_inputs, self.n_features = n_inputs, n_labels
        self.size = size
        self.models: list[Any] | None = None
        self._content: Tensor | None = None
        self.register_buffer("prior", torch.zeros(n_labels, dtype=torch.float32))
        self.register_buffer("asked", torch.zeros(n_labels, dtype=torch.bool))
        self.register_buffer("doubt", torch.zeros((), dtype=torch.float32))

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many bytes the fitted classifiers take in a file."""
        return (self.get_extra_state().numel(),)

    def forward(self, inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        rows = inputs.detach().cpu().numpy()
        models = self.models or []
        together = len(models) < int(self.asked.sum())
        said = [_ones(model, rows, together) for model in models]
        chances = self.prior.expand(len(rows), -1).clone()
        if said:
            found = torch.from_numpy(np.concatenate(said, axis=1)).to(chances)
            chances[:, self.asked] = found
        return torch.logit(chances.to(inputs.dtype), float(self.doubt))

    def reset(self, generator: torch.Generator) -> None:
        """Leave the classifiers as they are."""

    def get_extra_state(self) -> Tensor:
        """Return the fitted classifiers as bytes."""
        if self.models is None:
            # What a file's header says is not allocated.
            return torch.empty(self.size, dtype=torch.uint8, device="meta")
        if self._content is None:
            # Once, because a second time it might be longer by a digit.
            self._content = torch.frombuffer(bytearray(_dumped(self.models)), dtype=torch.uint8)
        return self._content

    def set_extra_state(self, state: Tensor) -> None:
        """Take over fitted classifiers, of scikit-learn's own classes alone."""
        self.models, self._content = _loaded(state.numpy().tobytes()), None

    def extra_repr(self) -> str:
        return ", ".join(dict.fromkeys(type(model).__name__ for model in self.models or ()))

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        super()._load_from_state_dict(*args, **options)
        if self.models is None or self.asked.is_meta:
            return
        sound = isinstance(self.models, list) and 0 < self.doubt < 0.5
        sound &= len(self.models) in (int(self.asked.sum()), min(1, int(self.asked.sum())))
        for model in self.models:
            sound &= getattr(model, "n_features_in_", None) == self.n_inputs
            sound &= hasattr(model, "predict_proba")
        if not (sound and bool(((self.prior > 0) & (self.prior < 1)).all())):
            raise CheckpointError("It holds classifiers that do not fit its labels and features.")


def _ones(model: Any, rows: np.ndarray, together: bool) -> np.ndarray:
    """Return how probable a classifier finds each label that it was fitted to, (n, labels)."""
    said = model.predict_proba(rows)
    if isinstance(said, list):
        # One array for each label, with a column for each of its two values.
        return np.stack([each[:, 1] for each in said], axis=1)
    return said if together else said[:, 1:]


# What people name, and what files hold ------------------------------------------------------


def read_base(value: Any) -> tuple[bool, bool, tuple[Estimator, ...]]:
    """Return whether networks and a logistic regression are in a base, and its estimators."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    if not items:
        raise InputError("base is empty: name at least one, or leave it out (None).")
    own = [item for item in items if isinstance(item, str) and item in (NETWORK, LOGISTIC)]
    if len(set(own)) < len(own):
        raise InputError(f"base names {own[0]!r} twice. members averages several networks.")
    others = [item for item in items if not (isinstance(item, str) and item in own)]
    bases = tuple(Estimator(_estimator(item)) for item in others)
    return NETWORK in own, LOGISTIC in own, bases


def _estimator(item: Any) -> Any:
    if isinstance(item, str):
        named = choose(item, NAMED | dict.fromkeys((NETWORK, LOGISTIC), ""), "base")
        return forest_kinds()[named](TREES)
    if isinstance(item, type) or not all(hasattr(item, name) for name in ("fit", "get_params")):
        raise InputError(
            "base must be a classifier of scikit-learn, such as ExtraTreesClassifier(), one of "
            f"{', '.join(map(repr, (*NAMED, LOGISTIC, NETWORK)))}, or a list of these; received "
            f"{item!r}."
        )
    if not hasattr(item, "predict_proba"):
        raise InputError(
            f"base holds {item!r}, which has no predict_proba. Wrap it in "
            "sklearn.calibration.CalibratedClassifierCV, or choose another one."
        )
    return item


def base_to_json(value: Any) -> Any:
    """Describe a base as the constructor takes it, for a file."""
    if isinstance(value, str | None):
        return value
    if isinstance(value, list | tuple):
        return [base_to_json(item) for item in value]
    if not _is_forest(value):
        return {"skops": base64.b64encode(_dumped(value)).decode()}
    usual = type(value)().get_params(deep=False)
    own = {k: v for k, v in value.get_params(deep=False).items() if v is not usual[k]}
    if not isinstance(own.get("random_state"), int | None):
        del own["random_state"]
    return {
        "forest": type(value).__name__,
        "settings": {k: to_json(v, f"base {k}") for k, v in own.items()},
    }


def base_from_json(described: Any) -> Any:
    """Rebuild what ``base_to_json`` described."""
    if isinstance(described, str | None):
        return described
    if isinstance(described, list):
        return [base_from_json(item) for item in described]
    if "skops" in described:
        return _loaded(base64.b64decode(described["skops"]))
    settings = {k: from_json(v, "base") for k, v in described["settings"].items()}
    return choose(described["forest"], forest_kinds(), "forest")(**settings)


def bases_to_json(bases: Sequence[Base], networks: Sequence[Any]) -> list[dict[str, Any]]:
    """Describe fitted bases, so that ``bases_from_json`` knows how large they are."""
    return [
        {"estimator": base_to_json(base.estimator), "sizes": list(network.sizes)}
        for base, network in zip(bases, networks, strict=True)
        if isinstance(base, Estimator)
    ]


def bases_from_json(described: list[dict[str, Any]]) -> tuple[Estimator, ...]:
    """Rebuild what ``bases_to_json`` described."""
    return tuple(
        Estimator(base_from_json(each["estimator"]), tuple(map(int, each["sizes"])))
        for each in described
    )


def _skops() -> Any:
    try:
        import skops.io  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError(
            "A base other than a forest is kept in files by skops, which is not installed. "
            "pip install 'spen[bases]' brings it."
        ) from None
    return skops.io


def _dumped(estimator: Any) -> bytes:
    io = _skops()
    content = io.dumps(estimator)
    if strange := _foreign(io.get_untrusted_types(data=content)):
        raise InputError(
            f"The base holds {', '.join(strange)}, which is not scikit-learn's own, so a model "
            "file could not rebuild it safely. Keep the classifier with pickle at your own risk."
        )
    return content


def _loaded(content: bytes) -> Any:
    io = _skops()
    try:
        strange = io.get_untrusted_types(data=content)
        return io.loads(content, trusted=sorted({*strange} - {*_foreign(strange)}))
    except Exception as problem:  # of zip files, JSON, arrays and classes: anything at all
        raise CheckpointError(f"Its base cannot be read: {problem}") from None


def _foreign(names: Sequence[str]) -> list[str]:
    """Return which names are not of scikit-learn's own classes; skops trusts most of those itself.

    Its modules hold functions and classes of others too, some of which run commands.
    """
    return [name for name in names if not _is_own(name)]


def _is_own(name: str) -> bool:
    module, _, last = name.rpartition(".")
    if not module.startswith("sklearn.") or "test" in module:
        return False
    try:
        found = getattr(importlib.import_module(module), last)
    except (ImportError, AttributeError):
        return False
    return isinstance(found, type) and f"{found.__module__}.{found.__qualname__}" == name
