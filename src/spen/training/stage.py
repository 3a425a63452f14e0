"""A stage of training: what is trained, with which objective, how and how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from spen.errors import InputError, check_settings, one_of
from spen.inference.base import Inference
from spen.inference.descent import Descent
from spen.model import PARTS
from spen.objectives.base import Objective
from spen.training.optimisers import OPTIMISERS


@dataclass(frozen=True)
class Stage:
    """One stretch of training.

    Args:
        name: what to call it in progress bars and histories.
        objective: the loss.
        inference: the solver that the objective uses.
        parts: what is trained: any of "features", "local", "global". The rest is clamped,
            and clamped features draw no dropout.
        epochs: passes over the training rows; for lbfgs the most iterations that it makes.
        lr: the learning rate.
        global_lr: that of the global energies, where it differs from ``lr``.
        features_lr: that of the feature network, where it differs from ``lr``.
        schedule: "constant", or "cosine" or "linear" to let the rate fall to zero over the stage.
        warmup: the share of the stage's steps over which rates rise from zero, before the schedule
            begins: a network that was trained before is not upset by an energy that was not.
        optimiser: "adam", "adamw" (decoupled weight decay), "sgd", or "lbfgs": all rows at once,
            until another step would gain nothing. That is for smooth objectives without dropout
            or anything else that is random. A line search takes the place of rates, momentum
            and mini-batches, so it looks at none of them.
        momentum: for sgd.
        weight_decay: l2 regularisation, of everything but biases. For lbfgs it is a part of what
            is minimised, the mean loss of a row + ½ weight_decay |w|²: for a logistic
            regression on n rows, scikit-learn's C is 1 / (n weight_decay).
        batch_size: rows in a mini-batch.
        clip: the largest norm of the gradient; None leaves it as it is.
        patience: epochs without a better score on the held-out rows before the stage
            ends; None runs all epochs.
        keep: with held-out rows, end with the weights of the "best" epoch or of the "last".
            A schedule that falls to zero is at its best where it ends.

    >>> import spen
    >>> Stage("local", spen.CrossEntropy(), parts=("local",), optimiser="lbfgs").epochs
    10
    """

    name: str
    objective: Objective
    inference: Inference = field(default_factory=Descent)
    parts: tuple[str, ...] = PARTS
    epochs: int = 10
    lr: float = 1e-3
    global_lr: float | None = None
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    optimiser: str = "adam"
    momentum: float = 0.9
    weight_decay: float = 0.0
    batch_size: int = 100
    clip: float | None = None
    patience: int | None = None
    keep: Literal["best", "last"] = "best"
    features_lr: float | None = None
    warmup: float = 0.0

    def __post_init__(self) -> None:
        for name, kind in (("objective", Objective), ("inference", Inference)):
            if not isinstance(getattr(self, name), kind):
                raise InputError(
                    f"The {name} of stage {self.name!r} must be an {kind.__name__}; "
                    f"received {getattr(self, name)!r}."
                )
        check_settings(
            self,
            *("global_lr", "features_lr", "clip", "patience"),
            lr="positive",
            global_lr="positive",
            features_lr="positive",
            weight_decay="zero or more",
            momentum="share",
            epochs="whole",
            batch_size="whole",
            clip="positive",
            patience="whole",
            schedule=("constant", "cosine", "linear"),
            warmup="share",
            optimiser=OPTIMISERS,
            keep=("best", "last"),
        )
        for part in self.parts:
            if part not in PARTS:
                one_of(part, PARTS, "part")
        if self.optimiser == "lbfgs":
            self._check_lbfgs()

    def _check_lbfgs(self) -> None:
        """Refuse what was set but would not be looked at."""
        unused = {"global_lr": None, "features_lr": None, "clip": None, "schedule": "constant"}
        unused |= {"warmup": 0.0}
        given = [
            f"{name}={getattr(self, name)!r}"
            for name, default in unused.items()
            if getattr(self, name) != default
        ]
        if given:
            raise InputError(
                f"Stage {self.name!r} uses lbfgs, whose line search has no rate to set or bound; "
                f"received {', '.join(given)}. Leave that out."
            )


def check_stages(stages: Sequence[Stage], has_valid: bool) -> None:
    """Raise unless the stages can be run one after the other."""
    if not stages:
        raise InputError("stages is empty: give at least one Stage.")
    names = [stage.name for stage in stages]
    if len(set(names)) < len(names):
        raise InputError(f"Stages must have names of their own; received {', '.join(names)}.")
    for stage in stages:
        if stage.patience is not None and not has_valid:
            raise InputError(
                f"Stage {stage.name!r} has patience, which needs held-out rows: pass valid."
            )
