"""Model files and checkpoints that are damaged, and outputs with two writers at once."""

from __future__ import annotations

import copy
import math
import os
import random
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from apart import Figure, figures_apart

import spen
from spen.errors import CheckpointError
from spen.files import read_tensors, write_atomically, write_tensors

LABELS, FEATURES = 3, 4
FEW = spen.Descent(stopping=spen.Stopping(3))


def figures(scale: float) -> Iterator[Figure]:
    """Yield the figures of this part of the long tests."""
    return figures_apart(scale, "files")


def figures_here(scale: float) -> Iterator[Figure]:
    """Yield them, computed in this process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield from _damaged(folder, scale)
        yield from _forged(folder, scale)
        yield from _written_at_once(folder, scale)


# Damage ---------------------------------------------------------------------------------


def rows(count: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Return a few rows of features, and labels that depend on them."""
    X = np.random.default_rng(0).normal(size=(count, FEATURES))
    return X, (X[:, :LABELS] > 0).astype(int)


def fitted(seed: int) -> spen.SPENClassifier:
    """Return a classifier as small as they come."""
    settings = {"hidden": (2,), "epochs": 2, "refit": False, "dropout": 0.1}
    energy = spen.LocalEnergy.unsized() + spen.LabelEnergy.unsized(measurements=2)
    return spen.SPENClassifier(energy=energy, random_state=seed, **settings).fit(*rows())


class Model:
    """A model file, and what may become of a damaged one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "model.spen"
        self._again = folder / "again.spen"
        fitted(0).save(self.path)
        self.content = self.path.read_bytes()

    def is_as_it_was(self) -> bool:
        """Say whether the file holds the same model; it may raise CheckpointError instead."""
        spen.load(self.path).save(self._again)
        return self._again.read_bytes() == self.content

    def use(self) -> None:
        """Do what people do with a model; it may raise CheckpointError instead."""
        X, Y = rows()
        classifier = spen.load(self.path)
        classifier.predict_labels(X)
        classifier.decision_function(X)
        classifier.energy(X, Y)
        classifier.save(self._again)
        spen.load(self._again)


class Bare(Model):
    """The file of a model without a classifier, and what may become of a damaged one."""

    def __init__(self, folder: Path) -> None:
        self.path, self._again = folder / "bare.spen", folder / "again.spen"
        energy = spen.LocalEnergy(2, LABELS) + spen.LabelEnergy(LABELS, measurements=2)
        spen.SPEN(spen.MLP(FEATURES, 2), energy, spen.UnitBox(LABELS), seed=0).save(self.path)
        self.content = self.path.read_bytes()

    def use(self) -> None:
        X, Y = rows()
        model = spen.load(self.path)
        model.predict(X)
        model.energy_of(X, Y)
        model.save(self._again)
        spen.load(self._again)


class Checkpoint:
    """A checkpoint in the middle of a run, and what may become of a damaged one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "run.ckpt"
        self.expected = self._train(interrupted=False)
        self.path.unlink()
        self._train(interrupted=True)
        self.content = self.path.read_bytes()

    def _train(self, *, interrupted: bool) -> list[bytes]:
        energy = spen.LocalEnergy(FEATURES, LABELS) + spen.LabelEnergy(LABELS, 2)
        model = spen.SPEN(spen.Identity(FEATURES), energy, spen.UnitBox(LABELS), seed=0)
        stage = spen.Stage("a", spen.UnrolledLikelihood(), FEW, epochs=2, batch_size=20)

        def stop(epoch: object) -> None:
            if interrupted:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            spen.train(
                model, [stage], rows(), rows(), callbacks=[stop], checkpoint=self.path, resume=True
            )
        return [tensor.numpy().tobytes() for tensor in model.state_dict().values()]

    def is_as_it_was(self) -> bool:
        """Say whether the run goes on as if nothing had been; it may raise CheckpointError."""
        return self._train(interrupted=False) == self.expected

    def use(self) -> None:
        """Go on from it; it may raise CheckpointError instead."""
        self._train(interrupted=False)


def _damaged(folder: Path, scale: float) -> Iterator[Figure]:
    draws = random.Random(0)
    found: dict[str, Counter[str]] = {}
    for file in (Model(folder), Bare(folder), Checkpoint(folder)):
        size = len(file.content)
        for what, contents in {
            "flipped bits": (
                _flipped(file.content, *divmod(draws.randrange(8 * size), 8))
                for _ in range(round(5000 * scale))
            ),
            "every byte cut, zeroed and flipped": (
                content
                for place in draws.sample(range(size), round(size * scale))
                for content in (
                    file.content[:place],
                    file.content[:place] + b"\0" + file.content[place + 1 :],
                    _flipped(file.content, place, draws.randrange(8)),
                )
            ),
        }.items():
            found.setdefault(what, Counter()).update(_outcomes(file, contents))
        file.path.unlink()
    for what, outcomes in found.items():
        bad = {k: n for k, n in outcomes.items() if k not in ("refused", "equal")}
        counted = f"{bad or 0} of {outcomes.total():,}"
        yield f"{what}: silent changes and raw errors", "0", counted, not bad


ODD: list[Any] = [None, True, -1, 1e308, 10**18, 10**400, math.nan, "x", [], [1], {}, {"a": 1}]
ODD += [{"tuple": []}, {"energy": []}, {"array": ["a"], "dtype": "|O"}]
ODD += [{"class": name, "settings": {}} for name in ("Descent", "MLPClassifier", "LocalEnergy")]


def _forged(folder: Path, scale: float) -> Iterator[Figure]:
    """Put odd things everywhere in headers, and odd tensors in place of others.

    Checksums fit, as a stranger's would. What is not refused must be of use.
    """
    draws, outcomes = random.Random(0), Counter()
    for file in (Model(folder), Bare(folder), Checkpoint(folder)):
        tensors, header = read_tensors(file.path)
        forged = [
            (tensors, _with(header, place, odd)) for place in _places(header) for odd in ODD
        ] + [
            (tensors | {name: odd}, header)
            for name, tensor in tensors.items()
            for odd in (tensor[None], tensor.flatten()[:1], tensor.bool(), tensor.flatten()[:0])
        ]
        for some, other in draws.sample(forged, round(len(forged) * scale)):
            write_tensors(file.path, some, other)
            try:
                file.use()
                outcomes["of use"] += 1
            except CheckpointError:
                outcomes["refused"] += 1
            except Exception as problem:
                outcomes[repr(problem)] += 1
        file.path.unlink()
    bad = {k: n for k, n in outcomes.items() if k not in ("refused", "of use")}
    found = f"{bad or 0} of {outcomes.total():,}"
    yield "forged headers and tensors: raw errors", "0", found, not bad


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each part of a header; of long lists, to the first ones."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:3])
    for key, part in items:
        yield (*place, key)
        if isinstance(part, dict | list):
            yield from _places(part, (*place, key))


def _with(value: Any, place: tuple[Any, ...], odd: Any) -> Any:
    """Return a header with something odd at a place."""
    if not place:
        return odd
    changed = copy.copy(value)
    changed[place[0]] = _with(value[place[0]], place[1:], odd)
    return changed


def _flipped(content: bytes, place: int, bit: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def _outcomes(file: Model | Checkpoint, contents: Iterator[bytes]) -> Iterator[str]:
    for content in contents:
        if content == file.content:
            continue
        file.path.write_bytes(content)
        try:
            yield "equal" if file.is_as_it_was() else "changed in silence"
        except CheckpointError:
            yield "refused"
        except Exception as problem:
            yield repr(problem)


# Two writers at once --------------------------------------------------------------------


def _written_at_once(folder: Path, scale: float) -> Iterator[Figure]:
    from spen.cli.predict import predict

    classifiers = [fitted(seed) for seed in (0, 1)]
    texts = [bytes([letter]) * size for letter, size in ((65, 300_000), (66, 200_000))]
    models, table = [folder / f"{number}.spen" for number in (0, 1)], folder / "rows.csv"
    names = [f"f{i}" for i in range(FEATURES)]
    np.savetxt(table, rows(300)[0], delimiter=",", header=",".join(names), comments="")
    for classifier, model in zip(classifiers, models, strict=True):
        classifier.feature_names_ = tuple(names)
        classifier.save(model)
    writers: dict[str, tuple[float, Callable[[int, Path], object]]] = {
        "write_atomically": (700, lambda k, path: write_atomically(path, texts[k])),
        "save": (250, lambda k, path: classifiers[k].save(path)),
        "predict --out": (
            50,
            lambda k, path: predict(models[k], table, out=path, write="probabilities"),
        ),
    }
    for name, (pairs, write) in writers.items():
        count = max(1, round(pairs * scale))
        mixed, failed, left = pair_up(write, folder / "both" / "output", count)
        found = f"{mixed} mixed, {failed} failed, {left} left behind, of {count} pairs"
        yield f"two at once, {name}", "0", found, not (mixed or failed or left)


def pair_up(write: Callable[[int, Path], object], path: Path, count: int) -> tuple[int, int, int]:
    """Let two processes write to one path at the same moment, ``count`` times.

    Returns how many files were neither the one's nor the other's, how many writes failed, and
    how many other files are left in the folder.
    """
    whole = []
    for k in (0, 1):
        write(k, path)
        whole.append(path.read_bytes())
    workers = [_start_writer(write, k, path) for k in (0, 1)]
    mixed = failed = 0
    for _ in range(count):
        for _, orders, _ in workers:
            os.write(orders, b"!")
        failed += sum(os.read(answers, 1) != b"+" for _, _, answers in workers)
        mixed += path.read_bytes() not in whole
    for _, orders, _ in workers:
        os.close(orders)
    for process, _, answers in workers:
        os.waitpid(process, 0)
        os.close(answers)
    return mixed, failed, len(list(path.parent.iterdir())) - 1


def _start_writer(write: Callable[[int, Path], object], k: int, path: Path) -> tuple[int, int, int]:
    """Return a process that writes whenever it is told to, and the pipes to and from it."""
    orders, tell = os.pipe()
    hear, answers = os.pipe()
    process = os.fork()
    if process:
        os.close(orders)
        os.close(answers)
        return process, tell, hear
    os.close(tell)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    while os.read(orders, 1):
        try:
            write(k, path)
            os.write(answers, b"+")
        except BaseException:
            traceback.print_exc()
            os.write(answers, b"-")
    os._exit(0)
