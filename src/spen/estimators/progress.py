"""How far a fit is: a bar on a terminal or in a notebook, lines in pipes and logs, or nothing."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from typing import Any

from spen.estimators.plan import LINEAR, Choice, Plan
from spen.training.checkpoint import Epoch


class Progress:
    """What a fit tells of its work. This one keeps it to itself, and so costs nothing."""

    def begin(self, words: str) -> None:
        """Say what is done next; it is shown when something is trained for it."""

    def fold(self, number: int, count: int) -> None:
        """Say for which of the held-out shares that is done, counted from 1."""

    def training(self, networks: int = 1) -> Sequence[Callable[[Epoch], None]]:
        """Say that networks now train, side by side; return the callbacks for ``train``."""
        return ()

    def tried(self, words: str, score: float) -> None:
        """Say how good something is on held-out rows."""

    def left(self, epochs: int) -> None:
        """Say how many epochs are still to come, once that is known."""

    def tell(self, words: str) -> None:
        """Say what was found, where there is a line for it."""


SILENT = Progress()


class Lines(Progress):
    """A line on stderr for whatever begins, and for each score.

    Attributes:
        total: epochs of networks that the fit is expected to take.
        done: those that are over.
        best: the best score of held-out rows so far, or None.
    """

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total = title, total
        self.done, self.best = 0, None
        self._began = time.perf_counter()
        self._words = self._fold = self._shown = ""

    def begin(self, words: str) -> None:
        self._words, self._fold = words, ""

    def fold(self, number: int, count: int) -> None:
        self._fold = f", fold {number} of {count}" if count > 1 else ""

    def training(self, networks: int = 1) -> Sequence[Callable[[Epoch], None]]:
        words = f"{self._words}{self._fold}"
        if networks > 1:
            words += f": {networks} networks side by side"
        if words != self._shown:
            self._shown = words
            self.show(words)
        return (partial(self.advance, networks=networks),)

    def advance(self, epoch: Epoch, networks: int = 1) -> None:
        """Count an epoch of networks that train side by side."""
        # Iterations of linear models are many and short.
        if epoch.stage != LINEAR:
            self.done += networks

    def tried(self, words: str, score: float) -> None:
        best = self.best is None or score > self.best
        self.best = score if best else self.best
        self.tell(f"{words}: held-out score {100 * score:.1f}{', the best so far' * best}")

    def left(self, epochs: int) -> None:
        self.total = self.done + epochs

    def end(self) -> None:
        """Say that all is done."""
        self.tell("done")

    def show(self, words: str) -> None:
        """Show what goes on from now."""
        self.tell(words)

    def tell(self, words: str) -> None:
        """Print a line at once, even where output is collected."""
        seconds = time.perf_counter() - self._began
        print(f"{self.title}, {seconds:.1f} s: {words}", file=sys.stderr, flush=True)  # noqa: T201


class Bar(Lines):
    """A bar that rich draws, with what goes on and the best score so far."""

    def __init__(self, title: str, total: int, bars: Any) -> None:
        super().__init__(title, total)
        self._bars = bars
        self._task = bars.add_task(title, total=total, note="")

    def advance(self, epoch: Epoch, networks: int = 1) -> None:
        super().advance(epoch, networks)
        best = "" if self.best is None else f", best held-out score {100 * self.best:.1f}"
        note = f"{epoch.stage} {epoch.epoch}/{epoch.epochs}, loss {epoch.loss:.3f}{best}"
        self._bars.update(self._task, completed=self.done, total=self.total, note=note)

    def show(self, words: str) -> None:
        self._bars.update(self._task, description=f"{self.title}: {words}")

    def end(self) -> None:
        best = "" if self.best is None else f"held-out score {100 * self.best:.1f}"
        # A stage that ended early, or a run that was there already, took fewer epochs.
        self._bars.update(self._task, completed=self.total, total=self.total, note=best)
        self.show("done")

    def tell(self, words: str) -> None:
        """Leave it to the note."""


@contextmanager
def showing(title: str | None, total: int) -> Iterator[Progress]:
    """Show how far work of ``total`` epochs is.

    Args:
        title: of the work; None shows nothing.
        total: the epochs of all its networks.
    """
    # There is no stderr under pythonw.
    if title is None or sys.stderr is None:
        yield SILENT
        return
    console = _console()
    if console is None:
        lines = Lines(title, total)
        yield lines
        lines.end()
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    # Not as markup: words may hold brackets.
    texts = [
        TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[note]")
    ]
    columns = (texts[0], BarColumn(), TaskProgressColumn(), texts[1], TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        bar = Bar(title, total, bars)
        yield bar
        bar.end()


def _console() -> Any:
    """Return rich's console where it can draw in one place: in a terminal or a notebook."""
    if not (sys.stderr.isatty() or "IPython" in sys.modules) or not _installed("rich"):
        return None
    from rich.console import Console

    console = Console(stderr=True)
    able = _installed("ipywidgets") if console.is_jupyter else console.is_interactive
    return console if able else None


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def in_words(choice: Choice, among: Sequence[Choice]) -> str:
    """Return in what a choice differs from the others.

    >>> in_words(Choice((8,), 0.5), [Choice((8,), 0.5), Choice((), 0.0)])
    'hidden 8, dropout 0.5'
    """
    differ = [
        field.name
        for field in fields(choice)
        if len({getattr(other, field.name, None) for other in among}) > 1
    ]
    words = []
    for name in differ:
        value = getattr(choice, name)
        if isinstance(value, tuple):
            value = " × ".join(map(str, value)) or "none"
        words.append(f"{name} {value}")
    return ", ".join(words)


def epochs_of(plan: Plan, folds: int) -> int:
    """Return how many epochs the networks of a fit take in all, if no stage or trial ends early."""
    trial = plan.members * sum(stage.epochs for stage in plan.trial_plan().stages)
    whole = sum(stage.epochs for stage in plan.stages)
    tried = min(plan.trial_folds, folds) if len(plan.choices) > 1 else 0
    trials = len(plan.choices) * tried * trial
    if plan.cross_fit:
        energies = max(0, len(plan.energies) + len(plan.energy_rates) - 1)
        # One fold may be enough to judge by; then the last fit says so.
        energies += plan.energy_members * (folds + 1)
        return trials + (folds - tried + 1) * trial + energies * whole
    if plan.is_label_wise:
        return trials + (folds - tried + plan.refit) * trial
    rivals = sum(stage.epochs for rival in plan.rivals for stage in rival.stages)
    return trials + (folds + plan.refit) * (whole + rivals)
