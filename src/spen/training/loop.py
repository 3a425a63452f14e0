"""Training: one loop over stages, read from top to bottom.

A stage says what is trained, with which objective and how long; the paper's recipe
(local, then global with local clamped, then everything at a small rate) is a list of
stages. Nothing here knows which objective it runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spen.batch.context import masked
from spen.batch.limits import limits
from spen.batch.positions import each_position
from spen.batch.splits import Split
from spen.errors import InputError, check_whole
from spen.features import evaluating
from spen.files import digest
from spen.kernels.threads import (
    OPTIMISER_ROWS,
    ends_with_python,
    stop_if_python_ends,
    threads_for,
)
from spen.metrics import best_f1
from spen.model import SPEN
from spen.objectives.base import target_of
from spen.training.checkpoint import (
    Epoch,
    History,
    Run,
    RunFolder,
    alone_with_checkpoint,
    describe,
    describe_module,
)
from spen.training.optimisers import LBFGS, OPTIMISERS
from spen.training.processes import our_processes
from spen.training.rows import TrainingRows
from spen.training.sequences import SequenceRows
from spen.training.stage import Stage, check_stages
from spen.training.streamed import StreamedRows, numbered

SUMMED_AT_ONCE = 512
"""Rows whose gradients are computed at a time when all are summed."""

Score = Callable[[Tensor, Tensor], float]
Callback = Callable[[Epoch], None]
AnyRows = TrainingRows | SequenceRows | StreamedRows


@ends_with_python
@alone_with_checkpoint
def train(
    model: SPEN,
    stages: Sequence[Stage],
    train: Split | tuple[Any, Any],
    valid: Split | tuple[Any, Any] | None = None,
    *,
    seed: int = 0,
    score: Score = best_f1,
    label_weight: Any = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Path | str | RunFolder | None = None,
    resume: bool = False,
) -> History:
    """Train a model in place, stage after stage.

    With held-out rows each stage ends with the weights of its best epoch (or its last, if it
    says so); without them, with those of its last. Processes that torchrun started train
    together, each on its part of every batch: docs/processes.md.

    Args:
        model: what to train.
        stages: what to do, in order.
        train: the training rows, X (n, d) and Y (n, L).
        valid: held-out rows, for early stopping.
        seed: decides the order of rows and all dropout masks.
        score: ``score(truth, soft prediction)`` of the held-out rows; larger is better.
            A label that is missing there counts as absent, and as not predicted.
        label_weight: (L,) the weight of each label in the loss; None means one.
        callbacks: called after each epoch, for progress.
        checkpoint: a file that holds the whole state: after the first epoch, at the end of each
            stage, and in between as often as costs at most a twentieth of the time. No other
            process may use it at the same time. Or a folder of many runs', which are resumed.
        resume: go on from the checkpoint, if it is there. The result is bit-equal, on CPU,
            to a run that was never interrupted.

    >>> from spen import CrossEntropy, Identity, LocalEnergy, SPEN, UnitBox, exclusive_blocks
    >>> rows = exclusive_blocks(n_train=100, n_test=20).train
    >>> model = SPEN(Identity(64), LocalEnergy(64, 16), UnitBox(16), seed=0)
    >>> history = train(model, [Stage("local", CrossEntropy(), epochs=3, lr=0.1)], rows, seed=0)
    >>> history.epochs[-1].loss < history.epochs[0].loss
    True
    """
    check_stages(stages, valid is not None)
    check_whole(seed, "seed", least=0)
    rows = TrainingRows.of(model, train, "train", label_weight)
    held_out = None if valid is None else TrainingRows.of(model, valid, "valid")
    return train_on(model, stages, rows, held_out, seed, score, callbacks, checkpoint, resume)


def train_on(
    model: SPEN,
    stages: Sequence[Stage],
    rows: AnyRows,
    held_out: AnyRows | None = None,
    seed: int = 0,
    score: Score = best_f1,
    callbacks: Sequence[Callback] = (),
    checkpoint: Path | str | RunFolder | None = None,
    resume: bool = False,
) -> History:
    """Train a model in place on rows that are checked, as ``train`` does."""
    generator = torch.Generator(model.reference.device).manual_seed(seed)
    processes = our_processes()
    run = Run(model, generator, processes)
    processes.take_from_first(model.state_dict().values())
    if checkpoint is not None or processes.count > 1:
        # Hashing all rows and weights takes time that other runs need not spend.
        fingerprint = _fingerprint(model, stages, rows, held_out, seed, score)
        processes.check_same(fingerprint | {"device": rows.device.type})
        if isinstance(checkpoint, RunFolder):
            checkpoint, resume = checkpoint.file(fingerprint), True
        if checkpoint is not None:
            run.attach(Path(checkpoint), resume, fingerprint)

    for index in range(run.stage, len(stages)):
        stage = stages[index]
        trained = _trained(model, stage)
        with _only_training(model, stage, trained), threads_for(_work(model, stage, rows)):
            run.enter(index, trained, _optimiser(model, stage, trained))
            learn_from, judge_by = rows, held_out
            if not _trains_features(model, stage):
                learn_from = rows.with_features(model)
                judge_by = None if held_out is None else held_out.with_features(model)
            while run.epoch < stage.epochs and not run.ended(stage.patience):
                began = time.perf_counter()
                loss = _train_epoch(model, stage, learn_from, run)
                # Buffers, such as means of batches, are those of each process's own rows.
                processes.take_from_first(model.state_dict().values())
                value = None if judge_by is None else _evaluate(model, stage, judge_by, score)
                epoch = run.finish_epoch(stage, loss, value, time.perf_counter() - began)
                run.save()
                for callback in callbacks:
                    callback(epoch)
            run.leave(stage.keep)
    return run.history


def _train_epoch(model: SPEN, stage: Stage, rows: AnyRows, run: Run) -> float:
    """Make one pass over the rows, or one iteration on all of them; return the mean loss."""
    if isinstance(run.optimiser, LBFGS):
        mean = run.optimiser.step(lambda: _sum_gradients(model, stage, rows, run))
        remedy = "Scale the inputs, or begin the stage at other weights."
    else:
        mean = _train_batches(model, stage, rows, run)
        remedy = f"Lower its lr ({stage.lr}), or set clip."
    if not math.isfinite(mean):
        raise InputError(
            f"Training diverged in stage {stage.name!r}, epoch {run.epoch + 1}: the loss is "
            f"{mean}. {remedy}"
        )
    return mean


def _train_batches(model: SPEN, stage: Stage, rows: AnyRows, run: Run) -> float:
    """Take one step per mini-batch, in random order; return the mean loss on the way."""
    within = run.begin_epoch()
    batches = rows.batches(stage.batch_size, run.generator)
    draws = run.processes.own_generator(run.generator, run.stage, run.epoch, within.batches)
    total = torch.full((), within.loss, dtype=torch.float64, device=rows.device)
    if within.batches:
        run.generator.set_state(within.state)
    for index, batch in numbered(batches, within.batches):
        share_left = share_of_rate(stage, run.epoch + index / len(batches), 1 / len(batches))
        for group in run.optimiser.param_groups:
            group["lr"] = group["full_lr"] * share_left
        run.optimiser.zero_grad()
        part, loss = batch[run.processes.part(len(batch), rows.turn)], torch.zeros_like(total)
        if len(part):
            losses = _losses(model, stage, rows, part, draws)
            # The mean over examples, so that rates do not depend on the batch size.
            (losses.sum() / len(batch)).backward()
            loss = losses.detach().sum()
        total += run.gradients.add_up(loss)
        if stage.clip is not None:
            torch.nn.utils.clip_grad_norm_(run.trained, stage.clip)
        run.optimiser.step()
        if isinstance(rows, StreamedRows):
            # An epoch over so many rows may take hours.
            run.save_within(index + 1, total)
    return float(total) / rows.count


def _sum_gradients(model: SPEN, stage: Stage, rows: AnyRows, run: Run) -> float:
    """Add the gradient of the mean loss of all rows to the parameters; return that loss."""
    total = torch.zeros((), dtype=torch.float64, device=rows.device)
    draws = run.processes.own_generator(run.generator, run.stage, run.epoch)
    before = draws.get_state()
    for batch in rows.in_order(SUMMED_AT_ONCE):
        part = batch[run.processes.part(len(batch))]
        if len(part):
            losses = _losses(model, stage, rows, part, draws)
            (losses.sum() / rows.count).backward()
            total += losses.detach().sum(dtype=torch.float64)
    run.gradients.add_up(total)
    if not torch.equal(draws.get_state(), before):
        raise InputError(
            f"Stage {stage.name!r} uses lbfgs, but its loss is random: it draws dropout masks or "
            "reveals labels. A line search needs the same loss each time. Leave dropout and "
            "reveal out, or choose another optimiser."
        )
    return float(run.processes.total(total)) / rows.count


def _losses(
    model: SPEN, stage: Stage, rows: AnyRows, batch: Any, generator: torch.Generator
) -> Tensor:
    """Return the loss of each row of a batch, times its weight."""
    stop_if_python_ends()
    masks = generator if _trains_features(model, stage) else None
    context = rows.context(model, batch, masks)
    losses = stage.objective.loss(model, stage.inference, context, generator)
    if context.weight is not None:
        losses = losses * context.weight
    if not losses.requires_grad:
        raise InputError(
            f"Stage {stage.name!r} trains {stage.parts}, but its objective "
            f"{type(stage.objective).__name__} does not depend on them."
        )
    return losses


@torch.no_grad()
def _evaluate(model: SPEN, stage: Stage, rows: AnyRows, score: Score) -> float:
    truths, softs, processes = [], [], our_processes()
    batch: Any
    with evaluating(model):
        for batch in rows.in_order(limits.rows_at_once(model.domain.size)):
            part = batch[processes.part(len(batch))]
            if not len(part):
                continue
            context = rows.context(model, part, None)
            soft = stage.objective.predict(model, stage.inference, context).y
            # A label that is missing is neither there nor predicted.
            softs.append(each_position(masked(soft, context.observed), context.mask))
            truths.append(each_position(target_of(context), context.mask))
    truth, soft = processes.gathered(truths), processes.gathered(softs)
    value = processes.said_by_first(lambda: float(score(truth, soft)))
    if not math.isfinite(value):
        raise InputError(f"The score of the held-out rows is {value}; it must be a finite number.")
    return value


def _work(model: SPEN, stage: Stage, rows: AnyRows) -> float:
    """Return how much work a step is."""
    at_once = SUMMED_AT_ONCE if stage.optimiser == "lbfgs" else stage.batch_size
    weights = sum(parameter.numel() for parameter in _trained(model, stage))
    return rows.work(model, at_once) + OPTIMISER_ROWS * weights


def share_of_rate(stage: Stage, done: float, step: float) -> float:
    """Return the share of its rate that a stage's schedule gives a step.

    Args:
        stage: with its schedule and warm-up.
        done: epochs before the step.
        step: the part of an epoch that it is.

    >>> from spen import CrossEntropy
    >>> stage = Stage("all", CrossEntropy(), epochs=2, schedule="linear", warmup=0.5)
    >>> [share_of_rate(stage, k / 4, 1 / 4) for k in range(8)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    rising = stage.warmup * stage.epochs
    if done < rising:
        return min(1.0, (done + step) / rising)
    falling = (done - rising) / (stage.epochs - rising)
    shares = {"constant": 1.0, "linear": 1 - falling}
    return shares.get(stage.schedule, 0.5 * (1 + math.cos(math.pi * falling)))


def _trained(model: SPEN, stage: Stage) -> list[torch.nn.Parameter]:
    """Return what a stage trains; what the user froze stays frozen."""
    named = dict.fromkeys(model.part(*stage.parts))
    trained = [parameter for parameter in named if parameter.requires_grad]
    if not trained:
        raise InputError(
            f"Stage {stage.name!r} trains {stage.parts}, of which this model has no parameters."
        )
    return trained


def _trains_features(model: SPEN, stage: Stage) -> bool:
    """Say whether F(x) changes in a stage; a network that the user froze is clamped too."""
    learns = [weight.requires_grad for weight in model.features.parameters()]
    return "features" in stage.parts and (any(learns) or not learns)


@contextmanager
def _only_training(
    model: SPEN, stage: Stage, trained: Sequence[torch.nn.Parameter]
) -> Iterator[None]:
    """Clamp what a stage does not train, and give it back as it was."""
    before = {parameter: parameter.requires_grad for parameter in model.parameters()}
    modes = {module: module.training for module in model.modules()}
    learns = set(trained)
    try:
        for parameter in before:
            parameter.requires_grad_(parameter in learns)
        model.eval()
        for module in model.part_modules(*stage.parts):
            _set_training(module)
        yield
    finally:
        for parameter, flag in before.items():
            parameter.requires_grad_(flag)
            parameter.grad = None
        for module, mode in modes.items():
            module.training = mode


def _set_training(module: torch.nn.Module) -> None:
    """Put a module into training mode, but for the modules inside whose weights are frozen."""
    weights = list(module.parameters())
    if weights and not any(weight.requires_grad for weight in weights):
        return
    module.training = True
    for part in module.children():
        _set_training(part)


def _optimiser(
    model: SPEN, stage: Stage, trained: Sequence[torch.nn.Parameter]
) -> torch.optim.Optimizer:
    names = {parameter: name for name, parameter in model.named_parameters()}
    rates = {"features": stage.features_lr, "global": stage.global_lr}
    own = {weight: rate for part, rate in rates.items() if rate for weight in model.part(part)}
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for parameter in trained:
        decay = 0.0 if "bias" in names[parameter] else stage.weight_decay
        groups.setdefault((own.get(parameter, stage.lr), decay), []).append(parameter)
    settings: dict[str, Any] = {} if stage.optimiser == "lbfgs" else {"lr": stage.lr}
    if stage.optimiser == "sgd":
        settings["momentum"] = stage.momentum
    elif stage.optimiser == "adamw":
        # One pass over the weights instead of ten; wide networks spend most of a step here.
        settings["fused"] = True
    return OPTIMISERS[stage.optimiser](
        [
            {"params": parameters, "weight_decay": decay, "full_lr": rate}
            for (rate, decay), parameters in groups.items()
        ],
        **settings,
    )


def _fingerprint(
    model: SPEN,
    stages: Sequence[Stage],
    rows: AnyRows,
    held_out: AnyRows | None,
    seed: int,
    score: Score,
) -> dict[str, str]:
    """Return what a checkpoint must agree with before a run goes on from it."""
    return {
        "model": describe_module(model),
        "initial weights": digest(model.state_dict().values()),
        "stages": describe(stages),
        "training rows": rows.digest(),
        "held-out rows": "none" if held_out is None else held_out.digest(),
        "seed": str(seed),
        "score": describe(score),
    }
