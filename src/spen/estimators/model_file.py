"""A classifier as one file: safetensors with a JSON header, no pickle."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import spen
from spen import model
from spen.batch.inputs import SORTS, InputKind
from spen.batch.splits import RowDigests
from spen.described import (
    checked_rebuilding,
    from_json,
    module_from_json,
    module_to_json,
    shapes_only,
    to_json,
    typed,
    weights_of,
    with_weights,
)
from spen.domains import Simplex, UnitBox
from spen.errors import CheckpointError, InputError, SpenError, choose, one_of
from spen.estimators import tagger_file
from spen.estimators.base import LabelClassifier
from spen.estimators.bases import base_from_json, base_to_json, bases_from_json, bases_to_json
from spen.estimators.calibration import Calibration
from spen.estimators.decoding import DECODINGS
from spen.estimators.fit import Fitted
from spen.estimators.plan import Choice, Plan, Prediction
from spen.estimators.scaling import Scaling
from spen.estimators.tables import TableEncoder
from spen.estimators.tagger import Tagger
from spen.estimators.targets import Targets
from spen.files import DAMAGE, check_finite, read_tensors, under, write_tensors
from spen.kernels.threads import ends_with_python
from spen.metrics import METRICS
from spen.model import SPEN, usable_device
from spen.training.checkpoint import History, history_from_json

KIND = "classifier"
SMALLEST = 5e-324
"""The least number above zero."""

LARGEST = 3e38
"""About the largest number that float32 has."""

NOT_KEPT = ("prediction", "base", "bases", "tried", "raw", "rivals")
NOT_KEPT += ("energies", "energy_rates", "energy_members")
"""Parts of a plan that stand in a file in another form, or that a classifier's plan never has."""


def save(classifier: LabelClassifier, path: Path | str) -> None:
    """Write a fitted classifier to one file, atomically."""
    encoder = classifier.encoder_
    table, weights = (None, {}) if encoder is None else encoder.state()
    settings = classifier.get_params(deep=False)
    if not isinstance(settings["random_state"], int | None):
        # A generator has done its work; a number would pretend that the fit can be repeated.
        settings["random_state"] = None
    features = classifier.plan_.chosen.features
    if isinstance(features, nn.Module):
        # It stands beside the settings, with its weights.
        settings["features"] = None
    settings["device"] = str(settings["device"])
    has_base = "base" in settings
    base = base_to_json(settings.pop("base", None))
    header = {
        "kind": KIND,
        "class": _class_name(type(classifier)),
        "settings": {name: to_json(value, name) for name, value in settings.items()},
        "plan": _plan_to_json(classifier.plan_),
        "label_names": to_json(classifier.label_names_, "label_names_"),
        "exclusive": isinstance(classifier.model_.domain, Simplex),
        "labels_framed": classifier.labels_framed_,
        "label_type": np.dtype(classifier.label_type_).str,
        "n_features": 0 if classifier.inputs_ else classifier.n_features_in_,
        "inputs": _inputs_to_json(classifier.inputs_),
        "feature_names": to_json(classifier.feature_names_, "feature_names_"),
        "fitted_on_named_columns": hasattr(classifier, "feature_names_in_"),
        "held_out_score": classifier.held_out_score_,
        "history": _history_to_json(classifier.history_),
        "refit_history": _history_to_json(classifier.refit_history_),
        "notes": classifier.notes_,
        "encoder": table,
    }
    tensors = {f"model/{name}": t for name, t in weights_of(classifier.model_).items()}
    if isinstance(features, nn.Module):
        header["features"] = module_to_json(features, "features")
        tensors |= {f"features/{name}": t for name, t in weights_of(features).items()}
    if has_base:
        header["settings"]["base"] = base
    if bases := classifier.plan_.bases:
        scores: Any = classifier.model_.features
        header["plan"]["bases"] = bases_to_json(bases, scores.networks[-len(bases) :])
        classifier.notes_ |= _base_notes(bases, scores, tensors)
    predictor = classifier.predictor_
    scaling, calibration = predictor.scaling, predictor.calibration
    arrays = {
        "scale": scaling.scale,
        "shift": scaling.shift,
        "length": scaling.length,
        "calibration_scale": calibration.scale,
        "calibration_shift": calibration.shift,
        "calibration_half_scale": calibration.half and calibration.half.scale,
        "calibration_half_shift": calibration.half and calibration.half.shift,
    } | {f"tuned/{name}": value for name, value in predictor.tuned.items()}
    arrays |= {f"encoder/{name}": value for name, value in weights.items()}
    for name, array in arrays.items():
        if array is not None:
            tensors[name] = torch.from_numpy(np.asarray(array, dtype=np.float64).copy())
    if classifier.training_rows_ is not None:
        tensors["seen"] = torch.from_numpy(classifier.training_rows_.values.copy())
    check_finite(tensors)
    with checked_rebuilding():
        plan, domain = _plan_from_json(header["plan"], features), classifier.model_.domain
        like = classifier.inputs_ or classifier.n_features_in_
        build = partial(plan.build, like, domain, seed=0)
        shapes_only(build, _weights(plan, tensors))
    write_tensors(path, tensors, header)


@ends_with_python
def load(path: Path | str, device: str | torch.device = "cpu") -> Any:
    """Read what ``save`` of a classifier, a tagger or a ``SPEN`` wrote, and return the same kind.

    Args:
        path: of the file.
        device: where predictions are made, wherever the model was trained.

    >>> import tempfile, spen
    >>> data = spen.exclusive_blocks(n_train=60, n_test=20)
    >>> clf = spen.SPENClassifier(hidden=(), epochs=2, random_state=0)
    >>> clf = clf.fit(data.train.X, data.train.Y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clf.save(f"{folder}/model.spen")
    ...     again = load(f"{folder}/model.spen")
    >>> bool((again.predict(data.test.X) == clf.predict(data.test.X)).all())
    True
    """
    # First, because this would be the caller's mistake; all others are the file's.
    usable_device(device)
    tensors, header = read_tensors(path)
    kind = header.get("kind")
    if kind not in (KIND, model.KIND, tagger_file.KIND):
        raise CheckpointError(
            f"{path} is a file of spen's, but not of a classifier, a tagger or a model. Name a "
            "file that SPENClassifier.save, SPENTagger.save, SPEN.save or `spen fit` wrote."
        )
    try:
        check_finite(tensors)
        if kind == model.KIND:
            _check_numbers(header["model"])
            return SPEN.of_file(tensors, header).to(usable_device(device))
        if kind == tagger_file.KIND:
            _check_numbers({name: header[name] for name in ("settings", "model", "history")})
            return tagger_file.rebuild(tensors, header, device)
        return _rebuild(tensors, header, device)
    except (SpenError, MemoryError, *DAMAGE) as problem:
        said = f"What its header says and what it holds do not fit ({problem!r})."
        said = problem if isinstance(problem, SpenError) else said
        raise CheckpointError(f"{path} cannot be used. {said}") from None


def load_classifier(path: Path | str, device: str | torch.device = "cpu") -> LabelClassifier:
    """Read a classifier; what else spen writes is refused."""
    loaded = load_to_predict(path, device)
    if isinstance(loaded, Tagger):
        raise CheckpointError(
            f"{path} holds a {type(loaded).__name__}, which tags sequences; this is for "
            "classifiers of rows. Name a file that SPENClassifier.save wrote."
        )
    return loaded


def load_to_predict(
    path: Path | str, device: str | torch.device = "cpu"
) -> LabelClassifier | Tagger:
    """Read a classifier or a tagger; a bare model is refused."""
    loaded = load(path, device)
    if not isinstance(loaded, LabelClassifier | Tagger):
        raise CheckpointError(
            f"{path} holds a bare {type(loaded).__name__}, not a classifier, which would say how "
            "rows are scaled and what labels are called. Name a file that SPENClassifier.save or "
            "`spen fit` wrote."
        )
    return loaded


def _rebuild(
    tensors: dict[str, Tensor], header: dict[str, Any], device: str | torch.device
) -> LabelClassifier:
    # Files from before there were tables have no encoder.
    table = header.get("encoder")
    _check_numbers([table, *(header[name] for name in ("plan", "history", "refit_history"))])
    settings: dict[str, Any] = {
        name: base_from_json(value) if name == "base" else from_json(value, name)
        for name, value in header["settings"].items()
    }
    settings["device"] = device
    if "features" in header:
        weights = under("features/", tensors)
        settings["features"] = module_from_json(header["features"], weights, "features")
    classifier = choose(header["class"], classes(), "class")(**settings)
    names, width = from_json(header["label_names"], "label_names"), header["n_features"]
    size, exclusive = len(set(names.tolist())), bool(header["exclusive"])
    if size != len(names):
        raise CheckpointError("Two of its labels have the same name.")
    dtype, framed = np.dtype(header["label_type"]), bool(header.get("labels_framed", False))
    if not exclusive and dtype.kind not in "biuf":
        raise CheckpointError(f"Its labels would be of the type {dtype}.")
    plan = _plan_from_json(header["plan"], settings.get("features"))

    def array(name: str, *shape: int, least: float = -np.inf) -> Any:
        """Return an array of this shape, a single number as such."""
        values = tensors[name].numpy()
        if values.shape != shape or values.dtype != np.float64 or not (values >= least).all():
            raise CheckpointError(f"Its {name} is no such array as there must be.")
        return values if shape else values.item()

    sizes = {"label_thresholds": (size,), "row_threshold": (2,)}
    tuned = {
        name: array(f"tuned/{name}", *sizes.get(name, ()), least=0)
        for name in DECODINGS
        if f"tuned/{name}" in tensors
    }
    if not exclusive and plan.decoding not in tuned:
        raise CheckpointError(f"It lacks what the decoding {plan.decoding!r} takes.")
    scaling = Scaling(
        array("shift", width) if "shift" in tensors else None,
        array("scale", width, least=SMALLEST),
        array("length", least=SMALLEST) if "length" in tensors else None,
    )
    inputs = _inputs_from_json(header.get("inputs"))
    if inputs is None and (scaling.shift is None) == (scaling.length is None):
        raise CheckpointError("It holds no rule for scaling features, or two.")

    def calibration(name: str) -> Calibration:
        """Return the calibration whose numbers have this name."""
        scale, shift = array(f"{name}_scale", least=SMALLEST), array(f"{name}_shift", size)
        return Calibration(scale, shift, exclusive)

    # Files from before known labels had one of their own have but the first.
    half = calibration("calibration_half") if "calibration_half_scale" in tensors else None
    # By now the width is that of what is there.
    domain = Simplex(size) if exclusive else UnitBox(size)
    build = partial(plan.build, inputs or width, domain, seed=0)
    refit_history = header["refit_history"]
    fitted = Fitted(
        model=with_weights(build, _weights(plan, tensors)).to(usable_device(device)),
        plan=plan,
        calibration=replace(calibration("calibration"), half=half),
        tuned=tuned,
        score=float(header["held_out_score"]),
        history=history_from_json(header["history"] or []),
        refit_history=None if refit_history is None else history_from_json(refit_history),
    )
    seen = None
    if "seen" in tensors:
        digests = tensors["seen"].numpy()
        if digests.ndim != 1 or digests.dtype != np.int64:
            raise CheckpointError("Its digests of rows are no such array as there must be.")
        seen = RowDigests(digests)
    classifier.take(fitted, scaling, Targets(None, names, exclusive, dtype, framed), seen)
    # Files from before there were notes are read all the same.
    notes = header.get("notes", {"spen": header["spen"]})
    classifier.notes_ = {str(name): str(text) for name, text in notes.items()}
    classifier.inputs_ = inputs
    if inputs is None:
        classifier.n_features_in_ = width
    classifier.feature_names_ = from_json(header["feature_names"], "feature_names")
    if classifier.feature_names_ is not None and len(tuple(classifier.feature_names_)) != width:
        raise CheckpointError(f"It does not name each of its {width} features.")
    if header["fitted_on_named_columns"]:
        classifier.feature_names_in_ = np.array(classifier.feature_names_, dtype=object)
    classifier.encoder_ = None
    if table is not None:
        arrays = {name: tensor.numpy() for name, tensor in under("encoder/", tensors).items()}
        classifier.encoder_ = TableEncoder.restored(table, arrays)
        if len(classifier.encoder_.feature_names) != width:
            raise CheckpointError(f"Its encoder does not make {width} features.")
    return classifier


def _inputs_to_json(kind: InputKind | None) -> dict[str, Any] | None:
    if kind is None:
        return None
    fields = [[name, sort, shape and list(shape)] for name, (sort, shape) in kind.fields.items()]
    return {"fields": fields, "n_features": kind.n_features}


def _inputs_from_json(described: Any) -> InputKind | None:
    """Return what rows are like that are no matrix; files from before there were such have none."""
    if described is None:
        return None
    fields = {}
    for name, sort, shape in described["fields"]:
        one_of(sort, SORTS, "kind of input")
        whole = [isinstance(size, int) and size >= 0 for size in shape or ()]
        if (shape is None) != (sort == "ids") or not all(whole) or not isinstance(name, str):
            raise CheckpointError(f"Its inputs {name!r} cannot be of shape {shape!r}.")
        fields[name] = sort, shape and tuple(shape)
    width = described["n_features"]
    if not fields or not isinstance(width, int) or width < 1:
        raise CheckpointError(f"Its inputs cannot have {len(fields)} parts and {width!r} features.")
    return InputKind(fields, width)


def _weights(plan: Plan, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    weights = under("model/", tensors)
    if plan.members > len(weights):
        raise CheckpointError(f"It does not hold {plan.members} networks.")
    return weights


def _check_numbers(described: Any) -> None:
    """Raise unless all numbers are of a size that a model can compute with, and a page show."""
    if isinstance(described, dict | list):
        for part in described.values() if isinstance(described, dict) else described:
            _check_numbers(part)
    elif isinstance(described, int | float) and not abs(described) <= LARGEST:
        raise CheckpointError("Its header holds a number that is none or far too large.")


def classes() -> dict[str, type[LabelClassifier]]:
    """Return the classifiers that a file may hold, by name."""
    return {kind.__name__: kind for kind in (spen.SPENClassifier, *spen.baselines.ALL)}


def _class_name(kind: type) -> str:
    if kind not in classes().values():
        raise InputError(
            f"{kind.__module__}.{kind.__qualname__} is a class that is not spen's own, so a model "
            "file could not rebuild it. Save its weights yourself (model_.state_dict()), or keep "
            "it with pickle at your own risk."
        )
    return kind.__name__


def _plan_to_json(plan: Plan) -> dict[str, Any]:
    prediction = plan.prediction
    described = {f.name: getattr(plan, f.name) for f in fields(plan) if f.name not in NOT_KEPT}
    described["choices"] = [
        {f.name: getattr(choice, f.name) for f in fields(choice) if f.name != "features"}
        for choice in plan.choices
    ]
    described |= {"objective": prediction.objective, "inference": prediction.inference}
    return {name: to_json(value, name) for name, value in described.items()}


def _plan_from_json(described: dict[str, Any], features: Any) -> Plan:
    bases = bases_from_json(described.get("bases", []))
    plain = {name: from_json(each, name) for name, each in described.items() if name != "bases"}
    choices = (Choice(**choice, features=features) for choice in plain["choices"])
    plain["choices"] = tuple(map(typed, choices))
    prediction = typed(Prediction(plain.pop("objective"), plain.pop("inference")))
    plan = typed(Plan(prediction=prediction, bases=bases, **plain))
    one_of(plan.metric, METRICS, "metric")
    return plan


def _base_notes(bases: Any, features: Any, tensors: dict[str, Tensor]) -> dict[str, str]:
    """Say how much of a file each base takes."""
    notes, first = {}, len(features.networks) - len(bases)
    for k, base in enumerate(bases):
        parts = under(f"model/features.networks.{first + k}.", tensors)
        size = sum(tensor.nbytes for tensor in parts.values())
        notes[f"base {k + 1}"] = f"{type(base.estimator).__name__}, {size / 1e6:.1f} MB"
    return notes


def _history_to_json(history: History | None) -> list[dict[str, Any]] | None:
    return None if history is None else [asdict(epoch) for epoch in history.epochs]
