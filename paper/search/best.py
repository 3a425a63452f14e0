"""The search behind the MLP and the best SPEN of Table 1: training rows alone are looked at.

    SPEN_DATA=FOLDER python paper/search/best.py run --out FOLDER [--device cuda]
    python paper/search/best.py merge FOLDER       the logs of all workers become best.jsonl
    python paper/search/best.py winner             what the log says
    python paper/search/best.py settings           writes it into table1.toml

space.toml has the space, the rule and the order of the steps; it was written before the search was
run. ``run`` tries what the log in its folder does not have yet. Several processes share the work:
each is told ``--worker K --workers N``, takes the next point that nobody has taken, and writes a
log of its own; a step begins when all have ended the one before. ``--seconds`` limits the time in
which points of a step are begun.

best.jsonl is the log, and before.jsonl what was found for the settings that Table 1 had before:
it does not hold all that was tried then, and its best points were not all taken.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

import spen
from spen.batch.arrays import densified
from spen.batch.splits import Split
from spen.estimators.decoding import decode
from spen.estimators.judging import folds_by, judge
from spen.estimators.plan import Plan
from spen.estimators.predictor import solve
from spen.estimators.runs import MEMBER_SEEDS, Fit, mean_run
from spen.estimators.scaling import Scaling
from spen.metrics import example_f1
from spen_paper.fits import plan_of
from spen_paper.settings import (
    classifier,
    read_energy,
    read_inference,
    read_objective,
    read_stage,
)

HERE = Path(__file__).parent
LOG = HERE / "best.jsonl"
SETTINGS = HERE.parent / "src/spen_paper/settings/table1.toml"
SPACE: dict[str, Any] = tomllib.loads((HERE / "space.toml").read_text())
DATASETS = tuple(SPACE["row_loss"])
STEPS = ("network", "members", "average", "energy")
"""``members`` trains what is averaged; the log has nothing of it."""

LINEAR = "linear"
PATIENCE = 120
"""Seconds to wait for the other workers at most, after the time of a step is up."""

Point = dict[str, Any]
Line = dict[str, Any]


def network_points() -> list[Point]:
    """Return the networks to try, in their order, no two alike."""
    return _drawn(SPACE["network"], ("units", "dropout", "input_dropout", "weight_decay", "epochs"))


def energy_points() -> list[Point]:
    """Return the energies to try, in their order; a kind has no settings that it does not read."""
    names = ("kind", "measurements", "dropout", "f1", "weight_decay", "lr", "global_lr", "epochs")
    unread = {"surprise": (), "label": ("dropout",), "conditional": ("dropout",)}
    unread["none"] = ("measurements", "dropout", "global_lr")
    return _drawn(SPACE["energy"], names, unread)


def _drawn(
    space: dict[str, Any], names: Sequence[str], unread: dict[str, tuple[str, ...]] | None = None
) -> list[Point]:
    draws, points = random.Random(SPACE["seed"]), []
    while len(points) < space["points"]:
        point = {name: draws.choice(space[name]) for name in names}
        if unread:
            point = {k: v for k, v in point.items() if k not in unread[point["kind"]]}
        if point not in points:
            points.append(point)
    return points


def average_points() -> list[Point]:
    """Return the averages to try."""
    space = SPACE["average"]
    return [dict(zip(space, each, strict=True)) for each in itertools.product(*space.values())]


# What the log says -------------------------------------------------------------------------------


def figure(line: Line) -> float:
    """Return a line's figure, by which points are compared."""
    return (line["held_out"]["threshold"] + line["held_out"]["expected_f1"]) / 2


def best(lines: Sequence[Line], dataset: str, step: str, **over: Point) -> Line:
    """Return the line of the winner of a step, over what won before."""
    points = {"network": network_points, "average": average_points, "energy": energy_points}
    order = [json.dumps(point) for point in points[step]()]
    mine = [
        line
        for line in lines
        if (line["dataset"], line["step"]) == (dataset, step)
        and all(line[name] == point for name, point in over.items())
        and line["point"].get("kind") != "none"
    ]
    if not mine:
        raise spen.InputError(f"The log has no {step} of {dataset} over {over}. Run the search.")
    return min(mine, key=lambda line: (-figure(line), order.index(json.dumps(line["point"]))))


def winners(lines: Sequence[Line], dataset: str) -> dict[str, Point]:
    """Return the winner of each step."""
    over: dict[str, Point] = {}
    for step in ("network", "average", "energy"):
        over[step] = best(lines, dataset, step, **over)["point"]
    return over


def derived(dataset: str, chosen: dict[str, Point]) -> dict[str, dict[str, Any]]:
    """Return the tables of Table 1's settings that winners come to."""
    network, average, energy = (chosen[step] for step in ("network", "average", "energy"))
    averaged = {name: value for name, value in average.items() if value is not False}
    single = {"like": "mlp", "classifier": "SPENClassifier", "cross_fit": True}
    return {
        "mlp": network_settings(network),
        "mlp-best": {"like": "mlp"} | averaged,
        "spen-single": single | energy_settings(dataset, energy),
        "spen-best": {"like": "spen-single"} | averaged,
    }


def network_settings(point: Point) -> dict[str, Any]:
    """Return a network's settings, as a classifier takes them."""
    rest = {name: value for name, value in point.items() if name != "units"}
    batch = SPACE["network"]["batch_size"]
    network = {"classifier": "MLPClassifier", "hidden": [point["units"]] * 2}
    return network | rest | {"batch_size": batch, "folds": SPACE["folds"]}


def energy_settings(dataset: str, point: Point) -> dict[str, Any]:
    """Return an energy's settings, as settings files have them."""
    kinds = {"none": "NoEnergy", "label": "LabelEnergy", "surprise": "SurpriseEnergy"}
    kinds["conditional"] = "ConditionalScoreEnergy"
    term: dict[str, Any] = {"name": kinds[point["kind"]]}
    if point["kind"] != "none":
        term |= {"measurements": point["measurements"], "nonlinearity": "softplus"}
    if point["kind"] == "label":
        term["initial"] = "neutral"
    if point["kind"] == "surprise":
        term["dropout"] = point["dropout"]
    weight = float(SPACE["row_loss"][dataset] * point["f1"])
    objective = {"name": "unrolled", "entropy": 1.0, "start": "local", "f1": weight}
    stage = {"name": "energy", "objective": objective, "parts": ["local", "global"]}
    stage |= {"epochs": point["epochs"], "batch_size": SPACE["energy"]["batch_size"]}
    stage |= {"optimiser": "adamw", "lr": point["lr"], "weight_decay": point["weight_decay"]}
    if "global_lr" in point:
        stage["global_lr"] = point["global_lr"]
    stage |= {"schedule": "cosine", "keep": "last"}
    steps = {"max_steps": SPACE["energy"]["steps"]}
    inference = {"rule": {"lr": 1.0, "momentum": 0.0}, "stopping": steps}
    return {"energy": [term], "objective": objective, "inference": inference, "stages": [stage]}


# The runs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bench:
    """The training rows of a data set, their folds, and where held-out scores are kept."""

    dataset: str
    rows: Split
    device: torch.device
    folder: Path

    @classmethod
    def of(cls, dataset: str, device: str, folder: Path) -> Bench:
        train = spen.load_dataset(dataset).train
        inputs = Scaling.of(train.X).transform(train.X)
        return cls(dataset, Split(inputs, train.Y), torch.device(device), folder)

    @cached_property
    def domain(self) -> spen.UnitBox:
        return spen.UnitBox(self.rows.Y.shape[1])

    @cached_property
    def folds(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return folds_by(self.rows.Y, 1 / SPACE["folds"], SPACE["folds"], SPACE["seed"])

    @cached_property
    def truth(self) -> np.ndarray:
        return densified(self.rows.Y)

    def network_plan(self, point: Point) -> Plan:
        """Return the plan of a label-wise network."""
        table = network_settings(point)
        made = classifier(table, seed=0, device="cpu", where="the search")
        plan = plan_of(made, self.rows)
        return plan.choices[0].apply(plan)

    def member(self, network: Point, member: int | str) -> np.ndarray:
        """Return the log-odds (n, L) that one member gives to rows that it has not seen."""
        named = hashlib.sha256(json.dumps(network).encode()).hexdigest()[:12]
        path = self.folder / "scores" / f"{self.dataset}-{named}-{member}.npy"
        if not path.exists():
            scores = self._train_member(network, member)
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(".part")
            with unfinished.open("wb") as file:
                np.save(file, scores)
            unfinished.rename(path)
        return np.load(path)

    def _train_member(self, network: Point, member: int | str) -> np.ndarray:
        plan, seed = self.network_plan(network), SPACE["seed"]
        if member == LINEAR:
            *_, plan = replace(plan, linear_member=True).single_plans()
        else:
            seed += MEMBER_SEEDS * int(member)
        work = Fit(self.rows, self.domain, seed, device=self.device)
        work.train_ahead([plan], self.folds)
        scores = np.empty(self.truth.shape, np.float32)
        for kept, held in self.folds:
            model, _ = work.run(plan, kept)
            with torch.no_grad():
                parts = [
                    -model.local_scores(context)[:rows].cpu()
                    for context, rows in model.contexts(self.rows.X[held])
                ]
            scores[held] = torch.cat(parts).numpy()
        return scores

    def average(self, network: Point, point: Point) -> np.ndarray:
        """Return the log-odds (n, L) of an average, as ``LabelScores`` takes it."""
        own = [self.member(network, k) for k in range(point["members"])]
        parts = [*own, self.member(network, LINEAR)] if point["linear_member"] else own
        plan = replace(self.network_plan(network), **point)
        total = np.zeros_like(parts[0])
        for weight, part in zip(plan.member_weights(), parts, strict=True):
            total += np.float32(weight) * part
        return self.domain.clamp_dual(torch.from_numpy(total)).numpy()

    def judged(self, soft: np.ndarray) -> dict[str, float]:
        """Return the F1 of held-out rows under both decodings, and their log loss."""
        verdict = judge(self.network_plan(network_points()[0]), self.domain, self.truth, soft)
        calibrated = verdict.calibration.apply(soft)
        found = {
            name: round(
                100 * example_f1(self.truth, decode(calibrated, name, verdict.tuned[name])), 3
            )
            for name in ("threshold", "expected_f1")
        }
        return found | {"log_loss": round(float(verdict.losses.mean()), 4)}

    def energy_plan(self, point: Point) -> Plan:
        """Return the plan of an energy over scores."""
        table, where = energy_settings(self.dataset, point), "the search"
        inference = read_inference(table["inference"], where)
        objective = read_objective(table["objective"], where)
        plan = self.network_plan(network_points()[0])
        return replace(
            plan,
            energy=spen.ScoreEnergy.unsized() + read_energy(table["energy"], where),
            stages=tuple(read_stage(stage, inference, where) for stage in table["stages"]),
            prediction=replace(plan.prediction, objective=objective, inference=inference),
            cross_fit=True,
        )

    def energy(self, scores: np.ndarray, point: Point) -> np.ndarray:
        """Return the probabilities (n, L) of energies, each trained on the other folds' scores."""
        plan, rows = self.energy_plan(point), Split(scores, self.rows.Y)
        work = Fit(self.rows, self.domain, SPACE["seed"], device=self.device)
        runs = work.run_energies(plan, rows, [kept for kept, _ in self.folds])
        models = map(mean_run, runs)
        soft = np.empty(self.truth.shape, np.float32)
        for (model, _), (_, held) in zip(models, self.folds, strict=True):
            soft[held] = solve(model, plan.prediction, scores[held]).y.cpu().numpy()
        return soft


def odds_to_soft(scores: np.ndarray) -> np.ndarray:
    """Return the probabilities of log-odds."""
    return torch.sigmoid(torch.from_numpy(scores)).numpy()


# Workers -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Worker:
    """One of the processes that share a search.

    Attributes:
        folder: of the search.
        number: of this one.
        count: how many there are.
        device: where to train.
        datasets: what to search for.
        run: a name that all workers of one start have in common.
    """

    folder: Path
    number: int
    count: int
    device: str
    datasets: tuple[str, ...]
    run: str

    def work(self, seconds: Sequence[float]) -> None:
        """Go through the steps, each for so many seconds."""
        benches: dict[str, Bench] = {}
        for step, limit in zip(STEPS, seconds, strict=True):
            until = time.monotonic() + limit
            for dataset, unit in self._units(step):
                if time.monotonic() > until:
                    break
                if not self._taken(f"{step} {dataset} {json.dumps(unit)}"):
                    if dataset not in benches:
                        benches[dataset] = Bench.of(dataset, self.device, self.folder)
                    self._try(benches[dataset], step, unit)
            self._wait_for_others(step, until + PATIENCE)

    def _units(self, step: str) -> list[tuple[str, Any]]:
        """Return what is still to be tried in a step; each worker prefers one data set."""
        lines, units = read(self.folder), []
        done = {json.dumps([each[k] for k in ("dataset", "step", "over", "point")])
                for each in lines}  # fmt: skip
        for dataset in self.datasets:
            try:
                over = self._over(lines, dataset, step)
            except spen.InputError:
                # Nothing of this data set was finished in time.
                continue
            points: list[Any] = {
                "network": network_points,
                "members": lambda: [*range(1, max(SPACE["average"]["members"])), LINEAR],
                "average": average_points,
                "energy": energy_points,
            }[step]()
            units.append([
                (dataset, {"point": point, "over": over})
                for point in points
                if json.dumps([dataset, step, over, point]) not in done
            ])  # fmt: skip
        first = self.number % max(1, len(units))
        return [unit for part in units[first:] + units[:first] for unit in part]

    @staticmethod
    def _over(lines: Sequence[Line], dataset: str, step: str) -> dict[str, Point]:
        over: dict[str, Point] = {}
        if step != "network":
            over["network"] = best(lines, dataset, "network")["point"]
        if step == "energy":
            over["average"] = best(lines, dataset, "average", **over)["point"]
        return over

    def _try(self, bench: Bench, step: str, unit: Any) -> None:
        point, over = unit["point"], unit["over"]
        began = time.perf_counter()
        if step == "members":
            bench.member(over["network"], point)
            return
        if step == "network":
            soft = odds_to_soft(bench.average(point, {"members": 1, "linear_member": False}))
        elif step == "average":
            soft = odds_to_soft(bench.average(over["network"], point))
        else:
            soft = bench.energy(bench.average(over["network"], over["average"]), point)
        line = {"dataset": bench.dataset, "step": step, **over, "over": over, "point": point}
        line |= {"held_out": bench.judged(soft), "seed": SPACE["seed"]}
        line |= {"seconds": round(time.perf_counter() - began, 1), "device": self.device}
        with (self.folder / f"log-{self.number}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)

    def _taken(self, unit: str) -> bool:
        """Return whether another worker has this unit; if not, it is ours now."""
        claims = self.folder / "claims" / self.run
        claims.mkdir(parents=True, exist_ok=True)
        try:
            (claims / hashlib.sha256(unit.encode()).hexdigest()).touch(exist_ok=False)
        except FileExistsError:
            return True
        return False

    def _wait_for_others(self, step: str, until: float) -> None:
        ended = self.folder / "ended" / self.run
        ended.mkdir(parents=True, exist_ok=True)
        (ended / f"{step}-{self.number}").touch()
        while len(list(ended.glob(f"{step}-*"))) < self.count and time.monotonic() < until:
            time.sleep(0.2)


def read(folder: Path) -> list[Line]:
    """Return the lines of all workers' logs."""
    return [
        json.loads(line)
        for path in sorted(folder.glob("log-*.jsonl"))
        for line in path.read_text().splitlines()
    ]


# Files -------------------------------------------------------------------------------------------


def records() -> list[Line]:
    """Return what the log holds."""
    return [json.loads(line) for line in LOG.read_text().splitlines()] if LOG.exists() else []


def merge(folder: Path) -> None:
    """Write the logs of all workers as one, in the order of data sets, steps and points."""
    lines = []
    for line in read(folder):
        names = ("dataset", "step", *line["over"], "point", "held_out", "seed", "seconds", "device")
        lines.append({name: line[name] for name in names})
    lines.sort(key=lambda line: (line["dataset"], STEPS.index(line["step"]), -figure(line)))
    LOG.write_text("".join(json.dumps(line) + "\n" for line in lines))


def show() -> Iterator[str]:
    """Yield the points of each step, the best first, and the winners."""
    lines = records()
    for dataset in DATASETS:
        for step in ("network", "average", "energy"):
            yield f"{dataset}, {step}: mean, by threshold, by expected F1, log loss"
            for line in lines:
                if (line["dataset"], line["step"]) == (dataset, step):
                    held = line["held_out"]
                    yield (
                        f"  {figure(line):.2f}  {held['threshold']:.2f}  {held['expected_f1']:.2f}"
                        f"  {held['log_loss']:.3f}  {json.dumps(line['point'])}"
                    )
        for step, point in winners(lines, dataset).items():
            yield f"{dataset}, the winning {step}: {json.dumps(point)}"


BEGIN = "# From paper/search/best.jsonl, by `python paper/search/best.py settings`"
END = "# The end of what the search has written"


def in_toml() -> str:
    """Return the winners as tables of a settings file."""
    lines, text = records(), [BEGIN]
    for dataset in DATASETS:
        for method, table in derived(dataset, winners(lines, dataset)).items():
            text += ["", f"[{dataset}.{method}]"]
            text += [f"{name} = {_toml(value)}" for name, value in table.items()]
    return "\n".join([*text, "", END])


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def write_settings() -> None:
    """Put the winners between their marks in table1.toml."""
    text = SETTINGS.read_text()
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{SETTINGS.name} has no lines {BEGIN!r} and {END!r}.")
    SETTINGS.write_text(before + in_toml() + after)


def main() -> None:
    """Run the search, or say what it found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--dataset", nargs="+", default=DATASETS, choices=DATASETS)
    run.add_argument("--device", default="cpu")
    run.add_argument("--worker", type=int, default=0)
    run.add_argument("--workers", type=int, default=1)
    run.add_argument("--run", default=str(time.time()), help="a name that all workers share")
    run.add_argument("--seconds", type=float, nargs=len(STEPS), default=[float("inf")] * 4)
    commands.add_parser("merge").add_argument("folder", type=Path)
    commands.add_parser("winner")
    commands.add_parser("settings")
    given = parser.parse_args()
    if given.command == "run":
        datasets = tuple(given.dataset)
        place = (given.out, given.worker, given.workers, given.device, datasets, given.run)
        Worker(*place).work(given.seconds)
    elif given.command == "merge":
        merge(given.folder)
    elif given.command == "winner":
        print("\n".join(show()))
    else:
        write_settings()


if __name__ == "__main__":
    main()
