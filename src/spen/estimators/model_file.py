"""A classifier as one file: safetensors with a JSON header, no pickle."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import spen
from spen.batch.splits import RowDigests
from spen.domains import Simplex, UnitBox
from spen.errors import CheckpointError, InputError, SpenError, choose
from spen.estimators.base import LabelClassifier
from spen.estimators.calibration import Calibration
from spen.estimators.fit import Fitted
from spen.estimators.plan import Choice, Plan, Prediction
from spen.estimators.scaling import Scaling
from spen.estimators.targets import Targets
from spen.files import from_json, read_tensors, to_json, write_tensors
from spen.model import usable_device
from spen.training.checkpoint import Epoch, History, under

KIND = "classifier"
# What a header that does not fit may lead to; none of it is the caller's mistake.
_DAMAGE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError)
_DAMAGE += (SyntaxError, MemoryError)
NOT_KEPT = ("prediction", "base", "tried", "criterion", "raw", "rivals")
"""Parts of a plan that stand in a file in another form, or that a classifier's plan never has."""

FORMAT = 2
"""Counts up when files change so that older versions cannot read them."""


def save(classifier: LabelClassifier, path: Path | str) -> None:
    """Write a fitted classifier to one file, atomically."""
    settings = classifier.get_params(deep=False)
    if not isinstance(settings["random_state"], int | None):
        # A generator has done its work; a number would pretend that the fit can be repeated.
        settings["random_state"] = None
    header = {
        "kind": KIND,
        "format": FORMAT,
        "class": _class_name(type(classifier)),
        "spen": spen.__version__,
        "settings": {name: to_json(value, name) for name, value in settings.items()},
        "plan": _plan_to_json(classifier.plan_),
        "label_names": to_json(classifier.label_names_, "label_names_"),
        "exclusive": isinstance(classifier.model_.domain, Simplex),
        "label_type": np.dtype(classifier.label_type_).str,
        "n_features": classifier.n_features_in_,
        "feature_names": to_json(classifier.feature_names_, "feature_names_"),
        "fitted_on_named_columns": hasattr(classifier, "feature_names_in_"),
        "held_out_score": classifier.held_out_score_,
        "history": _history_to_json(classifier.history_),
        "refit_history": _history_to_json(classifier.refit_history_),
        "notes": classifier.notes_,
    }
    tensors = {f"model/{name}": t for name, t in classifier.model_.state_dict().items()}
    predictor = classifier.predictor_
    scaling, calibration = predictor.scaling, predictor.calibration
    arrays = {
        "scale": scaling.scale,
        "shift": scaling.shift,
        "length": scaling.length,
        "calibration_scale": calibration.scale,
        "calibration_shift": calibration.shift,
    } | {f"tuned/{name}": value for name, value in predictor.tuned.items()}
    for name, array in arrays.items():
        if array is not None:
            tensors[name] = torch.from_numpy(np.asarray(array, dtype=np.float64).copy())
    tensors["seen"] = torch.from_numpy(classifier.training_rows_.values.copy())
    write_tensors(path, tensors, header)


def load(path: Path | str, device: str = "cpu") -> LabelClassifier:
    """Read what ``save`` of a classifier wrote.

    Args:
        path: of the file.
        device: where predictions are made, wherever the model was trained.
    """
    path = Path(path)
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder. Name a model file.")
    tensors, header = read_tensors(path)
    if not isinstance(header, dict) or header.get("kind") != KIND:
        raise CheckpointError(
            f"{path} is a file of spen's, but not of a classifier. Name a file that "
            "SPENClassifier.save or `spen fit` wrote."
        )
    if not isinstance(header.get("format"), int) or header["format"] != FORMAT:
        raise CheckpointError(
            f"{path} was written by spen {header.get('spen')}, in another form than spen "
            f"{spen.__version__} reads. Use that version, or fit the model again with this one."
        )
    try:
        return _rebuild(tensors, header, device)
    except SpenError:
        raise
    except _DAMAGE as problem:
        raise CheckpointError(
            f"{path} is damaged: what its header says and what it holds do not fit ({problem!r})."
        ) from None


def _rebuild(tensors: dict[str, Tensor], header: dict[str, Any], device: str) -> LabelClassifier:
    settings: dict[str, Any] = {
        name: from_json(value, name) for name, value in header["settings"].items()
    }
    settings["device"] = device
    classifier = choose(header["class"], classes(), "class")(**settings)
    names = from_json(header["label_names"], "label_names")
    size = len(names)
    domain = Simplex(size) if header["exclusive"] else UnitBox(size)
    plan = _plan_from_json(header["plan"])
    weights = under("model/", tensors)
    averaged = plan.cross_fit or plan.is_averaged
    layers = "features.networks.0.weights." if averaged else "features.weights."
    widths = tuple(t.shape[1] for k, t in weights.items() if k.startswith(layers))
    if widths != plan.chosen.hidden:
        raise CheckpointError(f"The model's layers have widths {widths}, not {plan.chosen.hidden}.")
    model = plan.build(header["n_features"], domain, seed=0)
    model.load_state_dict(weights)

    def array(name: str) -> Any:
        """Return an array, a single number as such, and None for what is not there."""
        if name not in tensors:
            return None
        values = tensors[name].numpy()
        return values if values.ndim else values.item()

    fitted = Fitted(
        model=model.to(usable_device(device)),
        plan=plan,
        calibration=Calibration(
            tensors["calibration_scale"].item(),
            tensors["calibration_shift"].numpy(),
            header["exclusive"],
        ),
        tuned={name: array(f"tuned/{name}") for name in under("tuned/", tensors)},
        score=header["held_out_score"],
        history=_history_from_json(header["history"]) or History(),
        refit_history=_history_from_json(header["refit_history"]),
    )
    targets = Targets(None, names, header["exclusive"], np.dtype(header["label_type"]))
    scaling = Scaling(array("shift"), tensors["scale"].numpy(), array("length"))
    if (scaling.shift is None) == (scaling.length is None):
        raise CheckpointError("The file holds no rule for scaling features, or two.")
    classifier.take(fitted, scaling, targets, RowDigests(tensors["seen"].numpy()))
    # Files from before there were notes are read all the same.
    notes = header.get("notes", {"spen": header["spen"]})
    classifier.notes_ = {str(name): str(text) for name, text in notes.items()}
    classifier.n_features_in_ = header["n_features"]
    classifier.feature_names_ = from_json(header["feature_names"], "feature_names")
    if header["fitted_on_named_columns"]:
        classifier.feature_names_in_ = np.array(classifier.feature_names_, dtype=object)
    return classifier


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
    described["choices"] = [asdict(choice) for choice in plan.choices]
    described |= {"objective": prediction.objective, "inference": prediction.inference}
    return {name: to_json(value, name) for name, value in described.items()}


def _plan_from_json(described: dict[str, Any]) -> Plan:
    plain = {name: from_json(value, name) for name, value in described.items()}
    plain["choices"] = tuple(Choice(**choice) for choice in plain["choices"])
    prediction = Prediction(plain.pop("objective"), plain.pop("inference"))
    return Plan(prediction=prediction, **plain)


def _history_to_json(history: History | None) -> list[dict[str, Any]] | None:
    return None if history is None else [asdict(epoch) for epoch in history.epochs]


def _history_from_json(epochs: list[dict[str, Any]] | None) -> History | None:
    return None if epochs is None else History([Epoch(**epoch) for epoch in epochs])
