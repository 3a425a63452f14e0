"""What a user said about a classifier, checked before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from spen.errors import InputError, choose
from spen.inputs import positive, share, whole
from spen.plan import DECODINGS
from spen.stage import Stage


def own_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Check the settings that have a value of the user's own, and return those."""
    own = {name: value for name, value in settings.items() if not is_auto(value)}
    if "hidden" in own:
        hidden = own["hidden"]
        if isinstance(hidden, str) or not hasattr(hidden, "__len__"):
            raise InputError(f"hidden must be 'auto' or a tuple of widths; received {hidden!r}.")
        for width in hidden:
            whole(width, "hidden")
        own["hidden"] = tuple(int(width) for width in hidden)
    for name in ("dropout", "input_dropout"):
        if name in own:
            share(own[name], name)
    if "weight_decay" in own:
        positive(own["weight_decay"], "weight_decay", zero=True)
    for name in ("epochs", "batch_size"):
        if name in own:
            whole(own[name], name)
    if "missing" in own:
        share(own["missing"], "missing")
    if "stages" in own:
        own["stages"] = _stages(own, bool(settings["cross_fit"]))
    check_decoding(settings)
    return own


def check_decoding(settings: dict[str, Any]) -> None:
    """Check the settings of held-out rows and decoding."""
    choose(settings["decoding"], dict.fromkeys(DECODINGS), "decoding")
    positive(settings["held_out"], "held_out")
    share(settings["held_out"], "held_out")


def _stages(own: dict[str, Any], cross_fit: bool) -> tuple[Stage, ...]:
    """Return the user's own stages: all of the training, or with cross_fit the energy's."""
    stages = own["stages"]
    if not isinstance(stages, Sequence) or not all(isinstance(each, Stage) for each in stages):
        raise InputError(f"stages must be 'auto' or a sequence of spen.Stage; received {stages!r}.")
    if not stages:
        raise InputError("stages is empty: give at least one Stage, or 'auto'.")
    if any(each.patience is not None for each in stages):
        raise InputError(
            "A stage of a classifier cannot have patience: held-out rows calibrate and tune, so "
            "they must not stop training too. Set its epochs, and leave patience out."
        )
    both = [name for name in ("epochs", "batch_size", "weight_decay") if name in own]
    if both and not cross_fit:
        raise InputError(
            f"stages say what {' and '.join(both)} would say. Leave one of the two out."
        )
    # For the same reason the last epoch is kept, not the one that held-out rows like best.
    return tuple(replace(each, keep="last") for each in stages)


def check_missing(settings: dict[str, Any], has_energy: bool) -> None:
    """Refuse a share of missing labels that nothing would look at."""
    if not settings["missing"]:
        return
    if not is_auto(settings["stages"]):
        raise InputError("stages say themselves what is missing, in their objectives.")
    if has_energy and settings["objective"] not in ("unrolled", "f1"):
        raise InputError(
            f"missing={settings['missing']!r} works with objective 'unrolled' or 'f1'; received "
            f"{settings['objective']!r}. An objective of your own takes it as its own setting."
        )


def check_for_classes(settings: dict[str, Any]) -> None:
    """Refuse what is for sets of labels alone."""
    neutral = {"cross_fit": False, "linear_member": False, "missing": 0.0, "members": 1}
    for name, value in neutral.items():
        if settings[name] != value:
            raise InputError(
                f"{name}={settings[name]!r} is for sets of labels; y holds classes. Leave it out."
            )


def is_auto(value: Any) -> bool:
    """Return whether a setting was left to us."""
    return isinstance(value, str) and value == "auto"
