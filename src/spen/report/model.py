"""The model: its sizes and settings in words, and how its training went."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from spen.energies.base import Energy, UnsizedEnergy, energy_terms
from spen.energies.label import LabelEnergy
from spen.estimators.base import LabelClassifier
from spen.estimators.plan import Prediction
from spen.estimators.sentences import KINDS
from spen.estimators.tagger import Tagger
from spen.features import MLP, Identity, LabelScores
from spen.inference.descent import Descent
from spen.inference.discrete.viterbi import Viterbi
from spen.metrics import IN_WORDS
from spen.objectives.label_wise import CrossEntropy
from spen.objectives.unrolled import UnrolledLikelihood
from spen.training.checkpoint import History

DECODINGS = {
    "threshold": "one threshold for all labels",
    "label_thresholds": "a threshold for each label",
    "row_threshold": "a threshold for each row, by its largest probability",
    "expected_f1": "the labels of largest expected F1",
    "half": "the labels that are more probable than not",
    "joint": "the labelling of the lowest energy",
}
VERSIONS = ("spen", "torch", "numpy", "python")


def model_facts(classifier: LabelClassifier) -> dict[str, Any]:
    """Return what a model file tells about its model.

    The result has ``facts`` and ``settings``, both lists of [name, text].
    """
    model, plan = classifier.model_, classifier.plan_
    inputs = classifier.inputs_
    takes_sets = not classifier.predictor_.exclusive
    facts = [
        ["labels" if takes_sets else "classes", f"{model.domain.size:,}"],
        ["inputs", inputs.in_words()] if inputs else ["features", f"{classifier.n_features_in_:,}"],
        ["parameters", f"{sum(p.numel() for p in model.parameters()):,}"],
        ["feature network", _network(model.features)],
        ["energy", " + ".join(_energy(term) for term in energy_terms(model.energy))],
        ["objective", _in_words(plan.prediction.objective)],
        ["inference", _inference(plan.prediction)],
    ]
    if takes_sets:
        words = DECODINGS[plan.decoding]
        if plan.decoding == "threshold" and classifier.tuned_ is not None:
            words += f", {float(classifier.tuned_):.2f}"
        facts.append(["decoding", words])
    if plan.cross_fit:
        facts.append(["training", f"the energy is cross-fitted over {plan.folds} folds"])
    score = IN_WORDS[plan.metric] if takes_sets else "accuracy"
    facts.append([f"{score}: held-out training rows", f"{100 * classifier.held_out_score_:.2f}"])
    return _told_of(classifier, facts)


def training_facts(classifier: LabelClassifier) -> list[dict[str, Any]]:
    """Return each run's stages with their epochs' losses and held-out scores (or None)."""
    names = ("the run that tunes, on part of the rows", "the last run, on all rows")
    if classifier.plan_.cross_fit:
        names = ("the energy's training", "the label-wise model's, on all rows")
    histories = classifier.history_, classifier.refit_history_
    return [stage for pair in zip(names, histories, strict=True) for stage in _stages(*pair)]


def _stages(run: str, history: History | None) -> Iterator[dict[str, Any]]:
    history = history or History()
    for name in dict.fromkeys(epoch.stage for epoch in history.epochs):
        epochs = history.stage(name)
        scores = [round(100 * epoch.score, 2) for epoch in epochs if epoch.score is not None]
        yield {
            "run": run,
            "name": name,
            "loss": [float(f"{epoch.loss:.6g}") for epoch in epochs],
            "score": scores if len(scores) == len(epochs) else None,
            "seconds": round(sum(epoch.seconds for epoch in epochs), 2),
        }


def tagger_facts(tagger: Tagger) -> dict[str, Any]:
    """Return what a model file tells about a tagger, as ``model_facts``."""
    model, predictor = tagger.model_, tagger.predictor_
    exact = isinstance(predictor.inference, Viterbi) and predictor.is_chain
    facts = [
        ["tags", f"{predictor.n_classes:,}"],
        ["sentences", KINDS[predictor.encoder.kind]],
        ["parameters", f"{sum(p.numel() for p in model.parameters()):,}"],
        ["feature network", type(model.features).__name__],
        ["energy", " + ".join(_energy(term) for term in energy_terms(model.energy))],
        ["objective", _in_words(predictor.objective)],
        ["inference", "exact: Viterbi" if exact else _in_words(predictor.inference)],
        ["transitions that are never taken", f"{len(predictor.in_force.forbidden):,}"],
    ]
    if tagger.held_out_score_ is not None:
        held_out = f"{100 * tagger.held_out_score_:.2f}"
        facts.append(["token accuracy: held-out sentences", held_out])
    return _told_of(tagger, facts)


def tagger_training(tagger: Tagger) -> list[dict[str, Any]]:
    """Return the stages of training, as ``training_facts``."""
    return list(_stages("the training", tagger.history_))


def _told_of(estimator: LabelClassifier | Tagger, facts: list[list[str]]) -> dict[str, Any]:
    """Return the facts of an estimator, with its notes and settings."""
    settings = estimator.get_params(deep=False)
    return {
        "kind": type(estimator).__name__,
        "facts": facts + _notes(estimator.notes_),
        "settings": [[name, _in_words(value)] for name, value in settings.items()],
    }


def _notes(notes: dict[str, str]) -> list[list[str]]:
    """Return the notes of a model file, the versions in one."""
    found = [[name, note] for name, note in notes.items() if name not in ("command", *VERSIONS)]
    made = ", ".join(f"{name} {notes[name]}" for name in VERSIONS if name in notes)
    return [*found, ["trained with", made]]


def _network(features: Any) -> str:
    if isinstance(features, LabelScores):
        parts = [_network(network) for network in features.networks]
        unique = list(dict.fromkeys(parts))
        words = [f"{n} × {each}" if (n := parts.count(each)) > 1 else each for each in unique]
        return f"averaged label scores of {' and '.join(words)}" if len(parts) > 1 else parts[0]
    if isinstance(features, MLP):
        widths = [str(weight.shape[1]) for weight in features.weights]
        return f"layers of {', '.join(widths)}" if len(widths) > 1 else f"one layer of {widths[0]}"
    return "none: linear in the inputs" if isinstance(features, Identity) else _in_words(features)


def _energy(term: Energy) -> str:
    """Say what an energy is and how large, as in "LabelEnergy, 64 measurements (softplus)"."""
    words = type(term).__name__
    measurements, curve = getattr(term, "measurements", None), getattr(term, "nonlinearity", None)
    if measurements is not None:
        words += f", {len(measurements)} measurements"
    if curve is not None:
        words += f" ({curve.name})"
    if isinstance(term, LabelEnergy) and term.hidden:
        words += f", hidden layers of {', '.join(map(str, term.hidden))}"
    rank = getattr(term, "rank", None)
    return words if rank is None else f"{words}, rank {rank}"


def _inference(prediction: Prediction) -> str:
    objective, inference = prediction.objective, prediction.inference
    if isinstance(objective, CrossEntropy):
        return "none is needed: each label by itself"
    if not isinstance(inference, Descent):
        return _in_words(inference)
    often = "" if isinstance(objective, UnrolledLikelihood) else "at most "
    start = "the local model's output" if objective.start == "local" else "one half everywhere"
    words = f"{often}{inference.stopping.max_steps} steps of {_in_words(inference.rule)}"
    smooth = f", entropy weight {objective.entropy:g}" if objective.entropy else ""
    return f"{words} from {start}{smooth}"


def _in_words(value: Any) -> str:
    """Describe settings briefly: what differs from a class's defaults.

    >>> _in_words(Descent()), _in_words((8, 8))
    ('Descent()', '(8, 8)')
    """
    if isinstance(value, UnsizedEnergy):
        return repr(value)
    if is_dataclass(value) and not isinstance(value, type):
        own = [
            f"{field.name}={_in_words(getattr(value, field.name))}"
            for field in fields(value)
            if getattr(value, field.name) != _default(field)
        ]
        return f"{type(value).__name__}({', '.join(own)})"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(_in_words(item) for item in value) + ")"
    return value if isinstance(value, str) else repr(value)


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
