"""What the model is: sizes, settings, scores with their rule, versions."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from spen.energies.base import Energy, energy_terms
from spen.energies.label import LabelEnergy
from spen.energies.unsized import UnsizedEnergy
from spen.estimators.base import LabelClassifier
from spen.estimators.plan import Prediction
from spen.features import MLP, Identity
from spen.inference.descent import Descent
from spen.metrics import score_all
from spen.objectives.likelihood import CrossEntropy
from spen.objectives.unrolled import UnrolledLikelihood
from spen.report.subject import Subject
from spen.stacking import LabelScores

DECODINGS = {
    "threshold": "one threshold for all labels",
    "label_thresholds": "a threshold for each label",
    "expected_f1": "the labels of largest expected F1",
}
VERSIONS = ("spen", "torch", "numpy", "python")
SCORE_NAMES = {
    "example_f1": "F1, averaged over rows",
    "micro_f1": "F1 of all decisions",
    "macro_f1": "F1, averaged over labels",
    "hamming_error": "Hamming error",
    "subset_accuracy": "rows with every label right",
    "precision_at_1": "precision at 1",
    "precision_at_3": "precision at 3",
    "precision_at_5": "precision at 5",
    "calibration_error": "calibration error",
}


def model_facts(classifier: LabelClassifier) -> dict[str, Any]:
    """Return what a model file tells about its model.

    The result has ``facts`` and ``settings``, both lists of [name, text].
    """
    model, plan = classifier.model_, classifier.plan_
    facts: list[tuple[str, str]] = [
        ("labels" if _sets(classifier) else "classes", f"{model.domain.size:,}"),
        ("features", f"{classifier.n_features_in_:,}"),
        ("parameters", f"{sum(p.numel() for p in model.parameters()):,}"),
        ("feature network", _network(model.features)),
        ("energy", " + ".join(_energy(term) for term in energy_terms(model.energy))),
        ("objective", _in_words(plan.prediction.objective)),
        ("inference", _inference(plan.prediction)),
    ]
    if _sets(classifier):
        facts.append(("decoding", f"{DECODINGS[plan.decoding]}{_tuned(classifier)}"))
    if plan.cross_fit:
        facts.append(("training", f"the energy is cross-fitted over {plan.folds} folds"))
    score = "F1" if _sets(classifier) else "accuracy"
    facts.append((f"{score} of held-out training rows", f"{100 * classifier.held_out_score_:.2f}"))
    notes = classifier.notes_
    facts += [(name, note) for name, note in notes.items() if name not in ("command", *VERSIONS)]
    made = ", ".join(f"{name} {notes[name]}" for name in VERSIONS if name in notes)
    facts.append(("trained with", made))
    settings = [
        (name, _in_words(value)) for name, value in classifier.get_params(deep=False).items()
    ]
    return {
        "kind": type(classifier).__name__,
        "command": notes.get("command"),
        "facts": [list(fact) for fact in facts],
        "settings": [list(setting) for setting in settings],
    }


def score_facts(subject: Subject) -> list[dict[str, Any]]:
    """Return every score on the judged rows with its rule; in percent, None where undefined."""
    if not subject.takes_sets:
        right = (subject.truth.argmax(1) == subject.predicted.argmax(1)).mean()
        rule = "share of rows whose class is right"
        return [{"name": "accuracy", "value": round(100 * float(right), 2), "rule": rule}]
    scores = score_all(subject.truth, subject.predicted, subject.probabilities)
    return [
        {
            "name": SCORE_NAMES.get(name, name),
            "value": round(100 * score.value, 2) if score.value == score.value else None,
            "rule": score.rule,
        }
        for name, score in scores.items()
    ]


def _sets(classifier: LabelClassifier) -> bool:
    return not classifier._exclusive


def _tuned(classifier: LabelClassifier) -> str:
    tuned = classifier.tuned_
    if classifier.plan_.decoding != "threshold" or tuned is None:
        return ""
    return f", {float(tuned):.2f}"


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
