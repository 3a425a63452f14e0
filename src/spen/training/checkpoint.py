"""The state of a training run, and the file that lets it go on after a kill."""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from spen.described import to_json, typed
from spen.errors import CheckpointError, InputError, check_whole
from spen.files import DAMAGE, locked, read_tensors, under, write_tensors
from spen.training.optimisers import LBFGS, MEMORY
from spen.training.processes import ALONE, Gradients, Processes, our_processes

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Epoch:
    """What one epoch came to. ``score`` is None without held-out rows."""

    stage: str
    epoch: int
    epochs: int
    loss: float
    score: float | None
    best_epoch: int
    seconds: float


@dataclass
class History:
    """The epochs of a run, in order.

    Attributes:
        epochs: a record of each: stage, epoch, epochs, loss, score, best_epoch, seconds.

    >>> from spen.training.checkpoint import Epoch
    >>> first, second = Epoch("all", 1, 2, 0.7, None, 1, 0.1), Epoch("all", 2, 2, 0.5, None, 2, 0.1)
    >>> history = History([first, second])
    >>> [epoch.loss for epoch in history.stage("all")], history.best_epoch("all")
    ([0.7, 0.5], 2)
    """

    epochs: list[Epoch] = field(default_factory=list)

    def stage(self, name: str) -> list[Epoch]:
        """Return the epochs of one stage."""
        return [epoch for epoch in self.epochs if epoch.stage == name]

    def best_epoch(self, name: str) -> int:
        """Return the epoch, counted from 1, whose weights the stage kept."""
        return self.stage(name)[-1].best_epoch


def history_from_json(epochs: list[dict[str, Any]]) -> History:
    """Return the history whose epochs a file describes."""
    return History([typed(Epoch(**epoch)) for epoch in epochs])


SAVED_TIMES = 20
"""After a save a run goes on for this many times as long as it took, before it saves again."""


@dataclass(frozen=True)
class Within:
    """Where a run stands within an epoch.

    Attributes:
        began: the random state that the epoch began with.
        state: the random state now.
        batches: how many batches are done.
        loss: the sum of the losses of their rows.
    """

    began: Tensor
    state: Tensor
    batches: int = 0
    loss: float = 0.0


class Run:
    """Where a run stands: weights, optimiser, random state, counters, history.

    Of several processes the first one reads and writes its file.
    """

    def __init__(
        self, model: nn.Module, generator: torch.Generator, processes: Processes = ALONE
    ) -> None:
        self.model = model
        self.generator = generator
        self.processes = processes
        self.history = History()
        self.stage = 0
        self.trained: list[nn.Parameter] = []
        self.optimiser: torch.optim.Optimizer
        self._path: Path | None = None
        self._fingerprint: dict[str, str] = {}
        self._optimiser_state: dict[str, Tensor] = {}
        self._next_save = 0.0
        self._start_counting()

    def _start_counting(self) -> None:
        self.epoch = 0
        self._within: Within | None = None
        self.best_epoch = 0
        self.best_score: float | None = None
        self._best: dict[str, Tensor] = {}

    def attach(self, path: Path, resume: bool, fingerprint: dict[str, str]) -> None:
        """Use a checkpoint file: go on from it, or make sure that none is overwritten.

        Args:
            path: of the file.
            resume: whether to go on from it.
            fingerprint: what tells this run from others.
        """
        self._fingerprint = fingerprint
        found = self.processes.said_by_first(lambda: _found(path, resume))
        if found is not None:
            self._load(path, *found)
        self._path = path

    def enter(
        self, stage: int, trained: list[nn.Parameter], optimiser: torch.optim.Optimizer
    ) -> None:
        """Begin a stage that trains some parameters, or go on inside it after a resume."""
        self.stage, self.trained, self.optimiser = stage, trained, optimiser
        self.gradients = Gradients(self.processes, trained)
        names = dict(self.model.named_parameters())
        for key, tensor in self._optimiser_state.items():
            name, _, slot = key.rpartition("/")
            parameter = names[name]
            # Step counts live on the CPU, as the optimiser itself makes them. Others are copied:
            # a sum is rounded by where in memory its numbers lie, and a file's lie anywhere.
            value = tensor if slot == "step" else tensor.to(parameter.device, copy=True)
            optimiser.state[parameter][slot] = value
        for parameter, slots in optimiser.state.items():
            if not _remembers(optimiser, parameter, slots):
                raise CheckpointError(
                    f"{self._path} is damaged: what it has of the optimiser of stage {stage + 1} "
                    "does not fit. Train again without it."
                )
        self._optimiser_state = {}

    def begin_epoch(self) -> Within:
        """Begin an epoch, or go on inside it: the order of its rows is drawn after this."""
        if self._within is None:
            self._within = Within(self.generator.get_state(), self.generator.get_state())
        self.generator.set_state(self._within.began)
        return self._within

    def save_within(self, batches: int, loss: Tensor) -> None:
        """Write the whole state after so many batches of an epoch, if it is time to."""
        assert self._within is not None
        if self._path is not None and time.monotonic() >= self._next_save:
            now, began = self.generator.get_state(), self._within.began
            self._within = Within(began, now, batches, float(loss))
            self.save()

    def finish_epoch(self, stage: Any, loss: float, score: float | None, seconds: float) -> Epoch:
        """Count an epoch of a stage, and remember its weights if they are the best so far."""
        self.epoch += 1
        self._within = None
        if score is None:
            self.best_epoch = self.epoch
        elif self.best_score is None or score > self.best_score:
            self.best_epoch, self.best_score = self.epoch, score
            self._best = {name: t.detach().clone() for name, t in self._weights()}
        done = (stage.name, self.epoch, stage.epochs, loss, score, self.best_epoch, seconds)
        self.history.epochs.append(Epoch(*done))
        return self.history.epochs[-1]

    def ended(self, patience: int | None) -> bool:
        """Say whether the stage is over: it converged, or its score stood still for too long."""
        if isinstance(self.optimiser, LBFGS) and self.optimiser.ended:
            return True
        return patience is not None and self.epoch - self.best_epoch >= patience

    def leave(self, keep: str) -> None:
        """End a stage with its "best" weights, or its "last"."""
        if keep == "best":
            self._restore(self._best)
        self.stage += 1
        self._start_counting()
        self.optimiser.state.clear()
        self._next_save = 0.0
        self.save()

    def save(self) -> None:
        """Write the whole state, atomically; but not so often that it takes much of the time."""
        began = time.monotonic()
        if self._path is None or not self.processes.is_first or began < self._next_save:
            return
        names: dict[Tensor, str] = {p: name for name, p in self.model.named_parameters()}
        tensors = {f"weights/{name}": tensor for name, tensor in self._weights()}
        tensors |= {f"best/{name}": tensor for name, tensor in self._best.items()}
        tensors |= {
            f"optimiser/{names[parameter]}/{slot}": value
            for parameter, slots in self.optimiser.state.items()
            for slot, value in slots.items()
            if isinstance(value, Tensor)
        }
        tensors["generator"] = self.generator.get_state()
        within = self._within or Within(tensors["generator"], tensors["generator"])
        tensors["generator of the epoch"] = within.began
        header = {
            "kind": "training",
            "fingerprint": self._fingerprint,
            "stage": self.stage,
            "epoch": self.epoch,
            "batches": within.batches,
            "loss": within.loss,
            "best_epoch": self.best_epoch,
            "best_score": self.best_score,
            "history": [asdict(epoch) for epoch in self.history.epochs],
        }
        write_tensors(self._path, tensors, header)
        ended = time.monotonic()
        self._next_save = ended + SAVED_TIMES * (ended - began)

    def _load(self, path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
        if header.get("kind") != "training":
            raise CheckpointError(f"{path} is not the checkpoint of a training run.")
        try:
            _check_same(path, header["fingerprint"], self._fingerprint)
            # Weights come last: whatever is wrong with the file, the model is as it was.
            self._take(tensors, header)
        except CheckpointError:
            raise
        except (InputError, *DAMAGE) as problem:
            raise CheckpointError(f"{path} is damaged: {problem!r} does not fit.") from None
        self._restore(under("weights/", tensors))

    def _take(self, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
        """Take over all but the weights of a checkpoint, if it has what a run needs."""
        names = ("stage", "epoch", "best_epoch")
        for name in names:
            check_whole(header[name], name, least=0)
        self.stage, self.epoch, self.best_epoch = (header[name] for name in names)
        score = header["best_score"]
        self.best_score = None if score is None else float(score)
        self.history = history_from_json(header["history"])
        self._optimiser_state = under("optimiser/", tensors)
        self._best = under("best/", tensors)
        shapes = _shapes(self._weights())
        best = {} if score is None else shapes
        if _shapes(under("weights/", tensors).items()) != shapes:
            raise KeyError("weights")
        if _shapes(self._best.items()) != best:
            raise KeyError("best")
        parameters = dict(self.model.named_parameters())
        if not {key.rpartition("/")[0] for key in self._optimiser_state} <= parameters.keys():
            raise KeyError("optimiser")
        self.generator.set_state(tensors["generator"])
        if batches := header.get("batches", 0):
            check_whole(batches, "batches")
            states = tensors["generator of the epoch"], tensors["generator"]
            torch.Generator(self.generator.device).set_state(states[0])  # raises if it is none
            self._within = Within(*states, batches, float(header["loss"]))

    def _weights(self) -> Iterable[tuple[str, Tensor]]:
        return self.model.state_dict().items()

    @torch.no_grad()
    def _restore(self, weights: dict[str, Tensor]) -> None:
        current = dict(self._weights())
        for name, tensor in weights.items():
            current[name].copy_(tensor)


def _found(path: Path, resume: bool) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return what a checkpoint file holds, or None if there is none yet."""
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder. Name a file for the checkpoint.")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return None
    if not resume:
        raise CheckpointError(
            f"{path} exists already. Pass resume=True to go on from it, or delete it."
        )
    return read_tensors(path)


def _remembers(optimiser: torch.optim.Optimizer, parameter: Tensor, slots: dict[str, Any]) -> bool:
    """Say whether an optimiser can go on from what is there of a parameter that it trains."""
    trained = [p for group in optimiser.param_groups for p in group["params"]]
    if not any(p is parameter for p in trained):
        return False
    like, one = (parameter.shape, parameter.dtype), torch.Size([])
    if isinstance(optimiser, LBFGS):
        like = (torch.Size([sum(p.numel() for p in trained)]), parameter.dtype)
        wanted = {"gradient": like, "direction": like, "pairs": (one, torch.int64)}
        wanted |= {"ended": (one, torch.bool), "loss and value": (torch.Size([2]), torch.float64)}
        for k in range(min(int(slots.get("pairs", torch.tensor(0)).sum()), MEMORY)):
            wanted |= {f"step {k}": like, f"change {k}": like}
    elif isinstance(optimiser, torch.optim.SGD):
        wanted = {"momentum_buffer": like}
    else:
        # As the default type was when the optimiser was made.
        counted = slots.get("step", parameter).dtype
        counted = counted if counted.is_floating_point else torch.float32
        wanted = {"step": (one, counted), "exp_avg": like, "exp_avg_sq": like}
    return wanted.items() <= _shapes(slots.items()).items()


def _shapes(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Any]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors}


def alone_with_checkpoint(run: Callable[P, T]) -> Callable[P, T]:
    """Let a function hold the file that its keyword ``checkpoint`` names for as long as it runs.

    A folder of runs is held already. Of several processes the first one holds it.
    """

    @functools.wraps(run)
    def run_alone(*args: P.args, **kwargs: P.kwargs) -> T:
        path: Any = kwargs.get("checkpoint")
        if path is None or isinstance(path, RunFolder):
            return run(*args, **kwargs)
        with our_processes().entered_by_first(functools.partial(locked, path)):
            return run(*args, **kwargs)

    return run_alone


@dataclass(frozen=True)
class RunFolder:
    """A folder with the checkpoints of many runs, each known by what tells it from the others.

    Attributes:
        path: of the folder.
        seed: of what the runs belong to, as it was when that was begun.
    """

    path: Path
    seed: int

    def file(self, fingerprint: dict[str, str]) -> Path:
        """Return the file of a run."""
        told = json.dumps(fingerprint, sort_keys=True).encode()
        return self.path / f"{hashlib.sha256(told).hexdigest()[:20]}.run"

    @classmethod
    @contextmanager
    def held(
        cls, path: Path | str, resume: bool, identity: dict[str, str], seed: int
    ) -> Iterator[RunFolder]:
        """Begin in an empty folder, or go on in one; no other process can while this one does.

        Args:
            path: of the folder; it is made where it is missing.
            resume: whether to go on where something was begun.
            identity: what tells what is begun from all else.
            seed: of what is begun; what goes on keeps its own.
        """
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise CheckpointError(f"{folder} is a file. Name a folder for checkpoints.")
        folder.mkdir(parents=True, exist_ok=True)
        about = folder / "about.run"
        with locked(about):
            if about.exists() and not resume:
                raise CheckpointError(
                    f"{folder} holds checkpoints already. Pass resume=True to go on from them, or "
                    "name another folder."
                )
            if about.exists():
                seed = _go_on(about, identity)
            elif any(folder.glob("*.run")):
                raise CheckpointError(
                    f"{folder} holds runs, but {about.name}, which says what they belong to, is "
                    "missing. Name another folder."
                )
            else:
                header = {"kind": "runs", "identity": identity, "seed": seed}
                write_tensors(about, {}, header)
            yield cls(folder, seed)


def _go_on(about: Path, identity: dict[str, str]) -> int:
    """Return the seed of what was begun, if it is what goes on."""
    _, header = read_tensors(about)
    if header.get("kind") != "runs":
        raise CheckpointError(f"{about} does not say what runs belong to.")
    found, seed = header.get("identity"), header.get("seed")
    if not isinstance(found, dict) or not isinstance(seed, int):
        raise CheckpointError(f"{about} is damaged.")
    _check_same(about.parent, found, identity)
    return seed


def _check_same(path: Path, found: dict[str, str], wanted: dict[str, str]) -> None:
    differing = sorted(k for k in wanted if found.get(k) != wanted[k])
    if differing:
        raise CheckpointError(
            f"{path} belongs to another run: it differs in {', '.join(differing)}. "
            "Resume with what it was started with (a model built afresh, not one that was "
            "trained on), or name another checkpoint."
        )


def describe(thing: Any) -> str:
    """Return a text that is equal for equal settings, whatever objects hold them."""
    return json.dumps(to_json(thing, brief=True))


def describe_module(model: nn.Module) -> str:
    """Return a text of every module's class, settings and parameter shapes."""
    lines = []
    for name, module in model.named_modules():
        settings = {
            key: describe(value)
            for key, value in sorted(vars(module).items())
            if not key.startswith("_") and key != "training"
        }
        shapes = {key: tuple(value.shape) for key, value in module.named_parameters(recurse=False)}
        lines.append(f"{name}: {type(module).__qualname__} {settings} {shapes}")
    return "\n".join(lines)
