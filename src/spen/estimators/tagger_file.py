"""A tagger as one file: safetensors with a JSON header, no pickle."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import spen
from spen.described import from_json, module_from_json, module_to_json, to_json, weights_of
from spen.domains import Simplex
from spen.energies.chain import OUTSIDE
from spen.errors import CheckpointError, InputError, choose, one_of
from spen.estimators.sentences import ENCODERS, ArrayEncoder
from spen.estimators.tag_predictor import TagPredictor
from spen.estimators.tag_rules import TagRules
from spen.estimators.tagger import METRICS, Tagger
from spen.files import check_finite, under, write_tensors
from spen.inference.base import Inference
from spen.model import SPEN, usable_device
from spen.objectives.base import Objective
from spen.training.checkpoint import History, history_from_json

KIND = "tagger"
"""What the header of a file calls one that holds a tagger."""


def taggers() -> dict[str, type[Tagger]]:
    """Return the taggers that a file may hold, by name."""
    return {kind.__name__: kind for kind in (spen.SPENTagger, *spen.baselines.TAGGERS)}


def save(tagger: Tagger, path: Path | str) -> None:
    """Write a fitted tagger to one file, atomically."""
    kind = type(tagger)
    if taggers().get(kind.__name__) is not kind:
        raise InputError(
            f"{kind.__module__}.{kind.__qualname__} is a class that is not spen's own, so a model "
            "file could not rebuild it. Save its model_ (SPEN.save), or keep it with pickle at "
            "your own risk."
        )
    settings = tagger.get_params(deep=False)
    if not isinstance(settings["random_state"], int | None):
        # A generator has done its work; a number would pretend that the fit can be repeated.
        settings["random_state"] = None
    settings["device"] = str(settings["device"])
    features, predictor = settings["features"], tagger.predictor_
    if isinstance(features, nn.Module):
        # It stands beside the settings, with its weights.
        settings["features"] = None
    encoder = predictor.encoder
    header: dict[str, Any] = {
        "kind": KIND,
        "class": kind.__name__,
        "settings": {name: to_json(value, name) for name, value in settings.items()},
        "sentences": encoder.kind,
        "encoder": {
            each.name: to_json(getattr(encoder, each.name), "encoder_")
            for each in fields(encoder)
            if not each.name.startswith("_")
        },
        "tags": list(predictor.rules.names),
        "forbidden": [list(pair) for pair in predictor.rules.forbidden],
        "objective": to_json(predictor.objective, "objective"),
        "inference": to_json(predictor.inference, "inference"),
        "metric": tagger.metric_,
        "held_out_score": tagger.held_out_score_,
        "history": [asdict(epoch) for epoch in tagger.history_.epochs],
        "notes": tagger.notes_,
        "model": module_to_json(tagger.model_, "model"),
    }
    tensors = {f"model/{name}": t for name, t in weights_of(tagger.model_).items()}
    if isinstance(features, nn.Module):
        header["features"] = module_to_json(features, "features")
        tensors |= {f"features/{name}": t for name, t in weights_of(features).items()}
    check_finite(tensors)
    write_tensors(path, tensors, header)


def rebuild(
    tensors: dict[str, Tensor], header: dict[str, Any], device: str | torch.device
) -> Tagger:
    """Return the tagger that a file holds; whatever does not fit raises."""
    settings = {name: from_json(value, name) for name, value in header["settings"].items()}
    settings["device"] = device
    if "features" in header:
        weights = under("features/", tensors)
        settings["features"] = module_from_json(header["features"], weights, "features")
    tagger = choose(header["class"], taggers(), "class")(**settings)
    names = tuple(header["tags"])
    kinds = {type(name) for name in names}
    if len(set(names)) != len(names) or len(kinds) != 1 or not kinds <= {str, int, bool}:
        raise CheckpointError("Its tags are no such names as there must be.")
    described = {name: from_json(value, name) for name, value in header["encoder"].items()}
    model = SPEN.of_file(tensors, header)
    if model.domain != Simplex(len(names), positions=None):
        raise CheckpointError(f"Its model is not one of {len(names)} tags at each position.")
    forbidden = tuple((int(i), int(j)) for i, j in header["forbidden"])
    if any(not OUTSIDE <= each < len(names) for pair in forbidden for each in pair):
        raise CheckpointError("It forbids transitions of tags that it does not have.")
    objective = from_json(header["objective"], "objective")
    inference = from_json(header["inference"], "inference")
    if not isinstance(objective, Objective) or not isinstance(inference, Inference):
        raise CheckpointError("It does not say how its energy is minimised.")
    predictor = TagPredictor(
        model.to(usable_device(device)),
        _encoder(header["sentences"], described),
        TagRules(names, forbidden),
        objective,
        inference,
    )
    tagger.take(predictor)
    one_of(header["metric"], METRICS, "metric")
    tagger.metric_ = header["metric"]
    score = header["held_out_score"]
    tagger.held_out_score_ = None if score is None else float(score)
    tagger.history_ = History(history_from_json(header["history"]).epochs)
    tagger.notes_ = {str(name): str(text) for name, text in header["notes"].items()}
    return tagger


def _encoder(kind: str, described: dict[str, Any]) -> Any:
    """Return what makes numbers of sentences, if all of it is what it must be."""
    encoder = choose(kind, ENCODERS, "kind of sentences")(**described)
    if isinstance(encoder, ArrayEncoder):
        both = encoder.shift, encoder.scale
        sound = all(each is None for each in both) or all(
            isinstance(each, np.ndarray)
            and each.shape == (encoder.width,)
            and each.dtype == np.float32
            and bool(np.isfinite(each).all())
            for each in both
        )
    else:
        lists = [value for value in described.values() if value]
        flat = [each for value in lists for each in value]
        # The tables of words and marks are tuples of such.
        flat = [entry for each in flat for entry in (each if isinstance(each, tuple) else [each])]
        sound = all(isinstance(value, tuple) for value in lists)
        sound = sound and all(isinstance(each, str) for each in flat)
    if not sound or encoder.kind != kind:
        raise CheckpointError("What makes numbers of its sentences is not what it must be.")
    return encoder
