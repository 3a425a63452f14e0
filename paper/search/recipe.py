"""The search for the `paper` settings of the SPEN on Bibtex and Delicious.

    SPEN_DATA=FOLDER python paper/search/recipe.py --dataset bibtex [--part chosen]
        [--try '{"margin": 0.5}' --split 1]

What was tried is in recipe.jsonl, one JSON line per run; this runs it again, or the part
of it that is named, or a new point. The part "chosen" is what the settings file has.

Only training rows are read: a random fifth of them is held out, once per split. The threshold
(and the calibration, where there is one) is chosen on half of these and scored on the other
half, and the other way round; the two F1 are averaged. Each run is compared with the MLP that
its first stage alone makes, under the same treatment. A line has the
settings that differ from those of the class Settings, F1 in percent at the threshold with
calibration and without, the hinge loss of the first and last epoch, and how inference went.
"readings" are other ways to predict with the same weights: τ, relative tolerance.

F1 counts 1 for a row that is empty in truth and in prediction.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import spen
from spen.batch.arrays import densified
from spen.batch.splits import Split
from spen.estimators.calibration import Calibration
from spen.estimators.decoding import apply_threshold, tune_threshold
from spen.estimators.plan import Prediction
from spen.estimators.predictor import solve
from spen.estimators.runs import start_at_frequencies
from spen.estimators.scaling import Scaling
from spen.metrics import example_f1
from spen_paper.bench.model import PAPERS_RULE
from spen_paper.tables.machines import predictor_of

RECORDS = Path(__file__).with_suffix(".jsonl")
EVERY_STAGE: dict[str, Any] = {"batch_size": 100, "schedule": "cosine", "keep": "last"}


@dataclass(frozen=True)
class Settings:
    """One point of the search: a model, its three stages, and its predictions.

    Attributes:
        width: of both layers of the feature network.
        dropout: of its units.
        input_dropout: of its inputs.
        local_optimiser, local_lr, local_l2, local_epochs, local_clip: the first stage.
        measurements, nonlinearity, initial: the label energy.
        margin: of the hinge: what a wrong label is worth.
        optimiser: of the hinge stages.
        l2: of the hinge stages.
        clip: of the gradient in the hinge stages; 0 means none.
        global_epochs, global_lr: the second stage; no epochs leave it out.
        joint_epochs, joint_lr, joint_global_lr: the third stage; no epochs leave it out.
        objective_rtol: when inference stops, in training and in prediction.
        entropy: τ of predictions.
        readings: other τ and objective_rtol to predict with.
    """

    width: int = 500
    dropout: float = 0.5
    input_dropout: float = 0.2
    local_optimiser: str = "sgd"
    local_lr: float = 0.1
    local_l2: float = 1e-4
    local_epochs: int = 40
    local_clip: float = 0.0
    measurements: int = 15
    nonlinearity: str = "hardtanh"
    initial: str = "signed"
    margin: float = 1.0
    optimiser: str = "sgd"
    l2: float = 1e-4
    clip: float = 0.0
    global_epochs: int = 5
    global_lr: float = 0.01
    joint_epochs: int = 8
    joint_lr: float = 0.003
    joint_global_lr: float = 0.003
    objective_rtol: float = 1e-5
    entropy: float = 0.0
    readings: tuple[tuple[float, float], ...] = ()

    @property
    def inference(self) -> spen.Descent:
        """The paper's mirror descent."""
        stopping = spen.Stopping(100, self.objective_rtol, iterate_atol=1e-4)
        return spen.Descent(PAPERS_RULE, stopping)

    def prediction(self) -> Prediction:
        """How a trained model predicts."""
        return Prediction(spen.Hinge(entropy=self.entropy), self.inference)

    def changes(self) -> dict[str, Any]:
        """What differs from the values above."""
        usual = asdict(Settings())
        return {k: v for k, v in asdict(self).items() if v != usual[k]}

    def local_stage(self) -> spen.Stage:
        """The label-wise model, which alone is the MLP."""
        return spen.Stage(
            "local",
            spen.CrossEntropy(),
            parts=("features", "local"),
            epochs=self.local_epochs,
            lr=self.local_lr,
            weight_decay=self.local_l2,
            optimiser=self.local_optimiser,
            clip=self.local_clip or None,
            **EVERY_STAGE,
        )

    def hinge_stages(self) -> list[spen.Stage]:
        """The global energy with the local one clamped, and then all at a small rate."""
        common: dict[str, Any] = {
            "objective": spen.Hinge(margin=self.margin, entropy=self.entropy),
            "inference": self.inference,
            "optimiser": self.optimiser,
            "weight_decay": self.l2,
            "clip": self.clip or None,
        }
        common |= EVERY_STAGE
        clamped = {"parts": ("global",), "epochs": self.global_epochs, "lr": self.global_lr}
        joint = {"epochs": self.joint_epochs, "lr": self.joint_lr}
        joint |= {"global_lr": self.joint_global_lr}
        stages = {"global": clamped, "joint": joint}
        return [spen.Stage(name, **own, **common) for name, own in stages.items() if own["epochs"]]

    def build(self, n_inputs: int, n_labels: int) -> spen.SPEN:
        """A new model of the right sizes."""
        dropout = {"dropout": self.dropout, "input_dropout": self.input_dropout}
        features = spen.MLP(n_inputs, self.width, self.width, **dropout)
        start: dict[str, Any] = {"initial": self.initial}
        labels = spen.LabelEnergy(n_labels, self.measurements, self.nonlinearity, **start)
        energy = spen.LocalEnergy(self.width, n_labels) + labels
        return spen.SPEN(features, energy, spen.UnitBox(n_labels), seed=0).float()


def halves(name: str, split: int) -> tuple[Split, Split]:
    """Return four fifths of the training rows to learn from and one to judge by."""
    whole = spen.load_dataset(name).train
    scaled = Split(Scaling.of(whole.X).transform(whole.X), whole.Y)
    order = np.random.default_rng(split).permutation(len(scaled))
    cut = len(order) // 5
    return scaled.rows(np.sort(order[cut:])), scaled.rows(np.sort(order[:cut]))


def crossed_f1(truth: np.ndarray, soft: np.ndarray, calibrate: bool) -> float:
    """Return F1 in percent: tuned on one half of the rows, scored on the other, both ways."""
    parts = np.arange(len(truth)) % 2 == 0
    scores = []
    for tuning in (parts, ~parts):
        values = soft
        if calibrate:
            values = Calibration.of(truth[tuning], soft[tuning], exclusive=False).apply(soft)
        threshold = tune_threshold(truth[tuning], values[tuning])[0]
        scores.append(example_f1(truth[~tuning], apply_threshold(values[~tuning], threshold)))
    return round(100 * float(np.mean(scores)), 2)


def score(model: spen.SPEN, prediction: Prediction, held: Split) -> dict[str, Any]:
    """Return F1 with calibration and without."""
    truth = densified(held.Y)
    soft = solve(model, prediction, held.X).y.numpy()
    return {
        "f1": crossed_f1(truth, soft, calibrate=False),
        "f1_calibrated": crossed_f1(truth, soft, calibrate=True),
    }


def run(settings: Settings, name: str, split: int) -> dict[str, Any]:
    """Train and score one point of the search on one split."""
    kept, held = halves(name, split)
    began = time.perf_counter()
    model = settings.build(kept.X.shape[1], kept.Y.shape[1])
    start_at_frequencies(model, kept.Y)
    spen.train(model, [settings.local_stage()], kept, seed=0)
    record: dict[str, Any] = {
        "seconds_local": round(time.perf_counter() - began, 1),
        "mlp": score(model, Prediction(spen.CrossEntropy(), spen.Descent()), held),
    }
    prediction = settings.prediction()
    for stage in settings.hinge_stages():
        began = time.perf_counter()
        history = spen.train(model, [stage], kept, seed=0)
        seconds = round(time.perf_counter() - began, 1)
        losses = [round(history.epochs[k].loss, 3) for k in (0, -1)]
        how = {"seconds": seconds, "loss": losses}
        record[stage.name] = score(model, prediction, held) | how
        for tau, rtol in settings.readings:
            other = replace(settings, entropy=tau, objective_rtol=rtol)
            readings = record.setdefault("readings", {})
            readings[f"{stage.name} {tau:g} {rtol:g}"] = score(model, other.prediction(), held)
    if not settings.hinge_stages():
        return record
    found = predictor_of(model, prediction).diagnose(held.X, densified(held.Y))
    record["steps"] = round(float(found.steps.mean()), 1)
    record["search_errors"] = round(100 * found.search_errors, 1)
    return record


def recorded(path: Path, dataset: str, part: str | None) -> list[tuple[str, int, Settings]]:
    """Return what the records say was run: the part, the split and the settings."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        (line["part"], line["split"], settings_of(line["settings"]))
        for line in lines
        if line["dataset"] == dataset and part in (None, line["part"])
    ]


def settings_of(changes: dict[str, Any]) -> Settings:
    """Return the settings with some changes, as JSON spells them."""
    readings = tuple((tau, rtol) for tau, rtol in changes.get("readings", ()))
    return replace(Settings(), **changes | {"readings": readings})


def main() -> None:
    """Run what was recorded again, or one new point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dataset", choices=("bibtex", "delicious"), required=True)
    parser.add_argument("--part", help="one part of the search, such as chosen; all by default")
    parser.add_argument("--try", dest="new", help='a new point: {"margin": 0.5}, beside Settings()')
    parser.add_argument("--split", type=int, default=0, help="on which to run the new point")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.new:
        points = [(chosen.part or "new", chosen.split, settings_of(json.loads(chosen.new)))]
    else:
        points = recorded(RECORDS, chosen.dataset, chosen.part)
    for part, split, settings in points:
        what = {"dataset": chosen.dataset, "part": part, "split": split}
        try:
            result = run(settings, chosen.dataset, split)
        except spen.InputError as problem:
            # A rate that is too large is a finding too.
            result = {"failed": str(problem)}
        print(json.dumps(what | {"settings": settings.changes()} | result), flush=True)


if __name__ == "__main__":
    main()
