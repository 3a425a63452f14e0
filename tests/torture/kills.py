"""SIGKILL at random moments, and disks that fill up at each write: nothing is lost or broken."""

from __future__ import annotations

import json
import math
import os
import random
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from apart import Figure, figures_apart
from safetensors.torch import save
from torture.files import FEATURES, FEW, LABELS, fitted, rows

import spen
from spen.files import read_tensors, write_atomically

KILLS = {"train": 40, "fit": 50, "save": 40, "predict --out": 25, "report": 20, "reproduce": 25}


def figures(scale: float) -> Iterator[Figure]:
    """Yield the figures of this part of the long tests."""
    return figures_apart(scale, "kills")


def figures_here(scale: float) -> Iterator[Figure]:
    """Yield them, computed in this process."""
    with tempfile.TemporaryDirectory() as name:
        works = _works(Path(name))
        for work in works:
            kills = max(1, round(KILLS[work.name] * scale))
            problems = kill_often(work, kills, random.Random(0))
            yield (
                f"{kills} kills of {work.name}",
                "0 lost or broken",
                _first(problems),
                not problems,
            )
        for work in works:
            sizes = (0, 3000) if scale < 1 else (0, *(3**k for k in range(13)))
            problems = fill_disk(work, sizes)
            what = f"disk full in {work.name}"
            yield what, "a sentence, and the old file", _first(problems), not problems


def _first(problems: list[str]) -> str:
    return f"{len(problems)}, such as {problems[0]}" if problems else "0"


@dataclass
class Work:
    """Something that writes, and may end at any moment.

    Attributes:
        name: what to call it.
        folder: where all of its files are, and nothing else.
        start: does it, from where an earlier one that was killed left it.
        broken: says what is wrong now that it may have been killed, or None.
        wrong: says what is wrong at the end, or None.
        seconds: how long it takes; found out.
    """

    name: str
    folder: Path
    start: Callable[[], object]
    broken: Callable[[], str | None]
    wrong: Callable[[], str | None]
    seconds: float = math.inf

    def prepare(self) -> None:
        """Begin with an empty folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.broken()


def kill_often(work: Work, kills: int, draws: random.Random) -> list[str]:
    """Kill some work at random moments, and let it go on; return all that went wrong."""
    problems, left = [], 20 * kills
    while kills and left:
        left -= 1
        if work.seconds == math.inf:
            work.prepare()
        began = time.perf_counter()
        later = None if work.seconds == math.inf else draws.uniform(0, work.seconds)
        code, error = run_in_child(work.start, kill_after=later)
        problems += filter(None, [error, work.broken()])
        kills -= code == -signal.SIGKILL
        if code == 0:
            work.seconds = min(work.seconds, time.perf_counter() - began)
            problems += filter(None, [work.wrong(), *_left_behind(work.folder)])
            work.prepare()
    run_in_child(work.start)
    problems += filter(None, [work.broken(), work.wrong(), *_left_behind(work.folder)])
    return problems if not kills else [*problems, f"{kills} kills came too late"]


def fill_disk(work: Work, sizes: Iterable[int]) -> list[str]:
    """Let no file of some work grow beyond each of some sizes; return all that went wrong."""
    problems = []
    for size in sizes:
        work.prepare()
        run_in_child(work.start, kill_after=0.7 * work.seconds)
        before = _names(work.folder)
        code, error = run_in_child(work.start, largest_file=size)
        problems += filter(None, [work.broken()])
        if code and (not error or str(work.folder) not in error or "stays" not in error):
            problems.append(f"an error that is no sentence: {error}")
        lost = [f"{name} lost" for name in before - _names(work.folder) if name[0] != "."]
        problems += [*lost, *(_left_behind(work.folder) - before)]
        if code:
            run_in_child(work.start)
        problems += filter(None, [work.wrong()])
    return problems


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _left_behind(folder: Path) -> set[str]:
    return {name for name in _names(folder) if name.startswith(".")}


def run_in_child(
    start: Callable[[], object],
    *,
    kill_after: float | None = None,
    largest_file: int | None = None,
) -> tuple[int, str | None]:
    """Call a function in a process of its own; return its exit code and its error, if any.

    Args:
        start: the function.
        kill_after: seconds until it gets SIGKILL.
        largest_file: bytes beyond which no file may grow.
    """
    hear, tell = os.pipe()
    process = os.fork()
    if not process:
        os.close(hear)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        try:
            if largest_file is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
            start()
            os._exit(0)
        except BaseException as problem:
            expected = largest_file is not None and isinstance(problem, OSError)
            os.write(tell, (str(problem) if expected else traceback.format_exc()).encode())
            os._exit(1)
    os.close(tell)
    deadline = None if kill_after is None else time.monotonic() + kill_after
    while not (ended := os.waitpid(process, os.WNOHANG if deadline else 0))[0]:
        if deadline is not None and time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
            deadline = None
        else:
            time.sleep(0.0005)
    with os.fdopen(hear) as pipe:
        return os.waitstatus_to_exitcode(ended[1]), pipe.read() or None


def _works(folder: Path) -> list[Work]:
    """Return all that is killed here, each in a folder of its own."""
    from spen.cli.predict import predict
    from spen.cli.report import report

    classifiers, models = [fitted(seed) for seed in (0, 1)], []
    names, table = [f"f{i}" for i in range(FEATURES)], folder / "rows.csv"
    np.savetxt(table, rows(300)[0], delimiter=",", header=",".join(names), comments="")
    for number, classifier in enumerate(classifiers):
        classifier.feature_names_ = tuple(names)
        models.append(folder / f"{number}.spen")
        classifier.save(models[-1])
    return [
        _training(folder / "train"),
        _fit(folder / "fit"),
        _one_of_two("save", folder / "save", lambda k, out: classifiers[k].save(out)),
        _one_of_two(
            "predict --out",
            folder / "predict",
            lambda k, out: predict(models[k], table, out=out, write="probabilities"),
        ),
        _one_of_two("report", folder / "report", lambda k, out: report(models[k], out=out)),
        _records(folder / "records"),
    ]


def _training(folder: Path) -> Work:
    """Return the work of a run with stages of several kinds."""

    def start(result: Path) -> None:
        energy = spen.LocalEnergy(2, LABELS) + spen.LabelEnergy(LABELS, 2)
        features = spen.MLP(FEATURES, 2, dropout=0.3)
        model = spen.SPEN(features, energy, spen.UnitBox(LABELS), seed=0)
        stages = [
            spen.Stage(optimiser, spen.UnrolledLikelihood(), FEW, epochs=4, optimiser=optimiser)
            for optimiser in ("adam", "sgd", "adamw")
        ]
        spen.train(model, stages, rows(), rows(), checkpoint=folder / "run.ckpt", resume=True)
        write_atomically(result, save(model.state_dict()))

    return _goes_on("train", folder, "*.ckpt", start)


def _fit(folder: Path) -> Work:
    """Return the work of a fit of many runs: folds, members, and a cross-fitted energy."""

    def start(result: Path) -> None:
        energy = spen.LabelEnergy.unsized(measurements=2)
        settings = {"hidden": (2,), "epochs": 1, "members": 2, "cross_fit": True, "folds": 2}
        clf = spen.SPENClassifier(energy=energy, random_state=0, **settings)
        clf.fit(*rows(), checkpoint=folder, resume=True)
        write_atomically(result, save(clf.model_.state_dict()))

    return _goes_on("fit", folder, "*.run", start)


def _goes_on(name: str, folder: Path, pattern: str, write: Callable[[Path], object]) -> Work:
    """Return the work of writing a result that is the same, however often it was killed before.

    Args:
        name: of the work.
        folder: of its files.
        pattern: of the names of its checkpoints.
        write: writes the result to a file, and goes on from the checkpoints that there are.
    """
    result = folder / "weights"

    def broken() -> str | None:
        try:
            for checkpoint in folder.glob(pattern):
                read_tensors(checkpoint)
        except spen.CheckpointError as problem:
            return str(problem)
        return None

    folder.mkdir()
    write(result)
    expected = result.read_bytes()

    def wrong() -> str | None:
        return None if result.read_bytes() == expected else "other weights"

    return Work(name, folder, lambda: write(result), broken, wrong)


def _one_of_two(name: str, folder: Path, write: Callable[[int, Path], object]) -> Work:
    """Return the work of writing one of two files in the place of the other, a few times."""
    out = folder / "output"
    folder.mkdir()
    whole = []
    for k in (0, 1):
        write(k, out)
        whole.append(out.read_bytes())

    def start() -> None:
        for k in (0, 1):
            write(k, out)

    def broken() -> str | None:
        good = not out.exists() or out.read_bytes() in whole
        return None if good else "a file that is neither of the two"

    def wrong() -> str | None:
        return None if out.read_bytes() == whole[1] else "not the file that was written last"

    return Work(name, folder, start, broken, wrong)


def _records(folder: Path) -> Work:
    """Return the work of a small table of the paper, whose records are not made twice."""
    from spen_paper.tables import table3

    table3.N_TEST = 50

    def start() -> None:
        table3.table3(seeds=3, out=folder, method="linear", n_train=60)

    def scores() -> dict[str, object]:
        lines = (folder / "records.jsonl").read_text(errors="replace").splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return {str(record["seed"]): record["metrics"] for record in found}

    folder.mkdir()
    start()
    expected, seen = scores(), {}

    def broken() -> str | None:
        nonlocal seen
        had, seen = seen, scores() if (folder / "records.jsonl").exists() else {}
        # A folder without records is a new beginning.
        lost = set(had) - set(seen) if seen else set()
        different = [seed for seed, metrics in seen.items() if metrics != expected[seed]]
        return f"{lost} lost, {different} different" if lost or different else None

    def wrong() -> str | None:
        return None if scores() == expected else "other scores"

    return Work("reproduce", folder, start, broken, wrong)
