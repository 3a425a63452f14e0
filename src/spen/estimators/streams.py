"""A fit to more rows than memory holds: they are copied to a store once, and trained on from it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse

from spen.batch.arrays import densified
from spen.batch.inputs import InputRows
from spen.batch.splits import RowDigests, Split
from spen.batch.streams import RowStream
from spen.domains import Domain, Simplex, UnitBox
from spen.errors import InputError
from spen.estimators.encoded import EncodedStream, holds_words
from spen.estimators.fit import Fitted
from spen.estimators.judging import accuracy, half_known, inferred, judge, warn_if_undertrained
from spen.estimators.plan import Plan, Shape
from spen.estimators.progress import Progress, showing
from spen.estimators.runs import MOST_WATCHED, start_at_counts
from spen.estimators.scaling import AS_THEY_ARE, Scaling
from spen.estimators.stored import stored
from spen.estimators.tables import TableEncoder, is_table
from spen.estimators.targets import Targets, label_weights, plain_names
from spen.files import digest, versions
from spen.metrics import best_f1
from spen.model import SPEN, usable_device
from spen.training.checkpoint import Epoch, RunFolder, describe
from spen.training.loop import train_on
from spen.training.processes import our_processes
from spen.training.rows import TrainingRows
from spen.training.store import MISSING, RowStore
from spen.training.streamed import Held, StreamedRows, as_passed, scaled

if TYPE_CHECKING:
    from spen.estimators.base import LabelClassifier

MOST_HELD, MOST_HELD_BYTES = 2**22, 2**27
"""Decisions about held-out rows, and bytes of those rows: they are in memory."""

FEWEST_HELD = 500
"""Rows that are held out of enough, however many labels they have."""

MEASURED_BLOCKS = 64
"""Blocks that are measured together."""


def fit_stream(
    classifier: LabelClassifier,
    stream: RowStream,
    *,
    reads: Callable[[Any], InputRows | None],
    holds: Callable[..., Split],
    label_names: Sequence[Any] | None,
    feature_names: Sequence[str] | None,
    eval_set: Any,
    callbacks: Sequence[Callable[[Epoch], None]],
    checkpoint: Path | str | None,
    resume: bool,
    seed: int | None,
) -> None:
    """Fit a classifier to the rows of a stream.

    Args:
        classifier: with its settings.
        stream: the rows.
        reads: returns rows that are inputs of another kind than a matrix; None of a matrix.
        holds: checks ``eval_set``, and returns its rows as they are to tune by.
        label_names, feature_names, eval_set, callbacks, checkpoint, resume: as ``fit`` takes them.
        seed: decides every random draw; None draws one, which a fit that goes on keeps.
    """
    check_settings(classifier)
    processes = our_processes()
    title = "fit" if classifier.verbose and processes.is_first else None
    folder = None if checkpoint is None else Path(checkpoint)
    with showing(title, 0) as progress, ExitStack() as held_open:
        encoded = encoder = None
        parts = (part for part in stream.training_parts() if part.X.shape[0])
        first = next(parts, None)
        if first is None:
            raise InputError("There are no rows to learn from.")
        check_plan(classifier, first, reads)
        if holds_words(first, classifier):
            given = TableEncoder() if classifier.encoder is None else classifier.encoder
            progress.tell("reading rows to learn what the columns are")
            encoded = EncodedStream(stream, given)
            stream, encoder = encoded, encoded.encoder
            parts = encoded.training_parts()
            if isinstance(eval_set, tuple) and len(eval_set) == 2:
                eval_set = encoder.transform(eval_set[0]), eval_set[1]
        else:
            # What was begun goes on: some datasets can be gone through only once.
            parts = chain([first], parts)
        opened = stored(parts, stream.identity, folder, resume, reads, progress)
        store = held_open.enter_context(opened)
        progress.tell("measuring the columns")
        names = label_names, feature_names
        work = _Work.of(classifier, store, stream, *names, eval_set, holds)
        device = usable_device(classifier.device)
        drawn = processes.said_by_first(lambda: secrets.randbelow(2**31) if seed is None else seed)
        run_folder = None
        if folder is not None:
            identity = {"settings": describe(work.plan), "random_state": str(seed)}
            identity["rows, weights or device"] = f"{work.told} {device}"
            begin = partial(RunFolder.held, folder, resume, identity, drawn)
            run_folder = held_open.enter_context(processes.entered_by_first(begin))
            drawn = run_folder.seed
        fitted = _train(work, drawn, device, run_folder, progress, tuple(callbacks))
        if work.kind is None:
            classifier.n_features_in_ = work.shape.features
            classifier.inputs_ = None
        else:
            width = fitted.model.features.n_features
            classifier.inputs_ = replace(work.kind, n_features=width)
            vars(classifier).pop("n_features_in_", None)
        vars(classifier).pop("feature_names_in_", None)
        names = work.feature_names
        classifier.feature_names_ = None if names is None else tuple(names)
        seen = None
        if classifier.remember_rows:
            found = (store.digests(*span) for span in store.spans(MEASURED_BLOCKS))
            seen = RowDigests(np.unique(np.concatenate(list(found))))
        classifier.take(fitted, work.scaling, work.targets, seen)
        classifier.encoder_ = encoder
        classifier.notes_ = {"training rows": f"{work.shape.rows:,}"} | versions()


def check_settings(classifier: LabelClassifier) -> None:
    """Refuse, before anything is read, settings that need all rows at once or many runs."""
    given = vars(classifier)
    many: dict[str, tuple[Any, ...]] = {"cross_fit": ("auto", False), "members": ("auto", 1)}
    many |= {"linear_member": ("auto", False), "base": ("auto", None), "folds": ("auto", 1)}
    many |= {"warm_start": (False,)}
    for name, allowed in many.items():
        value = given.get(name, allowed[0])
        if not any(value is each or value == each for each in allowed):
            raise InputError(
                f"{name}={given[name]!r} needs all rows in memory. Rows that come part by part "
                "train one network and its energy together, once, with one share held out. Leave "
                f"{name} out, or pass the rows as arrays."
            )
    if given.get("missing") == "auto":
        raise InputError(
            "missing='auto' tries several shares, and rows that come part by part are trained on "
            "once. Set a share, such as missing=0.1, or pass the rows as arrays."
        )


def check_plan(
    classifier: LabelClassifier, first: Split, reads: Callable[[Any], InputRows | None]
) -> None:
    """Refuse settings that no plan can be made of, as far as the first rows tell."""
    exclusive = first.Y is not None and first.Y.ndim == 1
    labels = 2 if first.Y is None or exclusive else max(1, first.Y.shape[1])
    shape = Shape(10**6, first.X.shape[1], labels, sparse.issparse(first.X), exclusive, True)
    passed = not is_table(first.X) and reads(first.X) is not None
    _plan(classifier, replace(shape, passed=passed, streamed=True))


def _plan(classifier: LabelClassifier, shape: Shape) -> Plan:
    plan = replace(classifier.plan(shape), refit=False)
    if len(plan.choices) > 1 or plan.rivals or plan.cross_fit or plan.is_averaged or plan.base:
        raise InputError(
            f"A {type(classifier).__name__} with these settings trains several models, and rows "
            "that come part by part are trained on once. Pass the rows as arrays."
        )
    return plan.chosen.apply(plan)


@dataclass(frozen=True)
class _Work:
    """What there is to do: the plan, the rows to train on, and those to judge by."""

    plan: Plan
    shape: Shape
    domain: Domain
    targets: Targets
    scaling: Scaling
    kind: Any
    like: Any
    store: RowStore
    share: Held
    kept: np.ndarray
    weight: float
    label_weight: np.ndarray | None
    ones: np.ndarray
    known: np.ndarray
    held: Split
    feature_names: Sequence[str] | None

    @classmethod
    def of(
        cls,
        classifier: LabelClassifier,
        store: RowStore,
        stream: RowStream,
        label_names: Sequence[Any] | None,
        feature_names: Sequence[str] | None,
        eval_set: Any,
        holds: Callable[..., Split],
    ) -> _Work:
        about = store.about
        targets = _targets(store, label_names, stream.label_names)
        feature_names = stream.feature_names if feature_names is None else feature_names
        width = int(np.prod(about.features))
        if about.is_matrix and feature_names is not None and len(feature_names) != width:
            raise InputError(
                f"feature_names holds {len(feature_names)} names for {width} features."
            )
        if not about.is_matrix and feature_names is not None:
            raise InputError("feature_names are for the columns of a matrix. Leave them out.")
        first = store.block(*store.spans()[0])
        sample = as_passed(first.X)
        if about.is_matrix:
            scaling = Scaling.of_blocks(
                lambda: (store.block(*span).X for span in store.spans(MEASURED_BLOCKS)),
                *(about.rows, width, about.entries),
            )
        else:
            scaling = AS_THEY_ARE
        shape = Shape(about.rows, width, about.labels, scaling.sparse, targets.exclusive, True)
        shape = replace(shape, complete=not about.missing, passed=not about.is_matrix)
        shape = replace(shape, streamed=True)
        plan = _plan(classifier, shape)
        share = Held(0.0 if eval_set is not None else _share(plan.held_out, store))
        counts = _Counts.of(store, share)
        if eval_set is not None:
            like = sample if isinstance(sample, InputRows) else np.zeros((1, width))
            held = holds(eval_set, like, targets, scaling, shape)
        else:
            held = _held(store, share, scaling)
        label_weight = label_weights(classifier.label_weight, targets, counts.all_ones)
        if label_weight is not None:
            label_weight = label_weight / label_weight.max()
            label_weight = label_weight / label_weight.mean()
        return cls(
            plan=plan,
            shape=shape,
            domain=Simplex(about.labels) if targets.exclusive else UnitBox(about.labels),
            targets=targets,
            scaling=scaling,
            kind=None if about.is_matrix else sample.kind,
            like=width if about.is_matrix else sample,
            store=store,
            share=share,
            kept=counts.kept,
            weight=about.rows / counts.weight,
            label_weight=label_weight,
            ones=counts.ones,
            known=counts.known,
            held=held,
            feature_names=feature_names,
        )

    @property
    def told(self) -> str:
        """What tells the rows and their weights from others."""
        held = self.held
        parts = [each for each in (held.X, held.Y) if not sparse.issparse(each)]
        for each in (held.X, held.Y):
            parts += [each.indptr, each.indices, each.data] if sparse.issparse(each) else []
        flat = [p.parts() if isinstance(p, InputRows) else (torch.as_tensor(p),) for p in parts]
        names = describe(self.targets.names.tolist())
        weights = None if self.label_weight is None else torch.as_tensor(self.label_weight)
        tensors = [*(tensor for each in flat for tensor in each), weights]
        return f"{self.store.about.checksum} {digest(tensors)} {names}"

    def rows(self, model: SPEN) -> StreamedRows:
        """Return the rows to train a model on."""
        scaling, length = self.scaling, self.scaling.length
        numbers = (scaling.shift, scaling.scale, None if length is None else np.array(length))
        return StreamedRows(
            model,
            self.store,
            scaling.transform,
            self.share,
            self.kept,
            numbers,
            self.weight,
            self.label_weight,
        )


def _targets(store: RowStore, given: Sequence[Any] | None, own: Sequence[Any] | None) -> Targets:
    about = store.about
    nothing = sparse.csr_array((0, about.labels), dtype=np.int8)
    if (classes := about.classes) is not None:
        if given is not None:
            raise InputError("label_names is for a matrix Y; these rows have classes.")
        if len(classes) == 1:
            raise InputError(
                f"y holds one class only ({classes[0]!r}); a classifier needs at least two."
            )
        return Targets(nothing, np.sort(classes), exclusive=True, dtype=np.dtype(np.int64))
    if given is not None and len(given) != about.labels:
        raise InputError(f"label_names holds {len(given)} names for {about.labels} columns of Y.")
    names = own if given is None else given
    found = np.arange(about.labels) if names is None else plain_names(names)
    if len(set(found.tolist())) < len(found):
        raise InputError("Two columns of Y have the same name. Give each label a name of its own.")
    return Targets(nothing, found, exclusive=False, dtype=np.dtype(np.int64))


def _share(held_out: float, store: RowStore) -> float:
    """Return the share of rows that is held out: as asked for, or fewer of very many."""
    about = store.about
    by_labels = max(MOST_HELD / about.labels, FEWEST_HELD) / about.rows
    return min(held_out, by_labels, MOST_HELD_BYTES / store.bytes)


def _held(store: RowStore, share: Held, scaling: Scaling) -> Split:
    """Return the rows that are held out, scaled."""
    parts: list[Split] = []
    for span in store.spans():
        held = share.among(store.digests(*span))
        if held.any():
            part = scaled(store.block(*span).rows(held), scaling.transform)
            parts.append(Split(part.X, densified(part.Y)))
    rows = sum(map(len, parts))
    if not rows or rows == store.about.rows:
        raise InputError(
            f"Of {store.about.rows} rows {rows} would be held out, by their digests. Give more "
            "rows, or some to tune by as eval_set; or pass them as arrays, of which a share is "
            "held out in any case."
        )
    while len(parts) > 1:
        # In pairs, so that nothing is copied again and again.
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [a.joined(b) for a, b in pairs] + parts[len(parts) & ~1 :]
    telling = ~np.isnan(parts[0].Y).all(1)
    if not telling.any():
        raise InputError("No row that is held out has a known label. Give some as eval_set.")
    return parts[0] if telling.all() else parts[0].rows(telling)


@dataclass(frozen=True)
class _Counts:
    """What is counted in one go over a store.

    Attributes:
        kept: (blocks,) how many rows of each block are trained on.
        ones: (L,) how many of all those have each label.
        known: (L,) of how many this is known.
        all_ones: (L,) how many rows have each label, held out or not.
        weight: the sum of the weights of all rows.
    """

    kept: np.ndarray
    ones: np.ndarray
    known: np.ndarray
    all_ones: np.ndarray
    weight: float

    @classmethod
    def of(cls, store: RowStore, share: Held) -> _Counts:
        labels, weight = store.about.labels, 0.0
        ones, missing, every = (np.zeros(labels, np.int64) for _ in range(3))
        kept = []
        for span in store.spans(MEASURED_BLOCKS):
            trained, part = ~share.among(store.digests(*span)), store.labels(*span)
            kept.append(np.add.reduceat(trained, np.arange(0, len(trained), store.step)))
            on = part.Y.data != MISSING
            among = np.repeat(trained, np.diff(part.Y.indptr))
            every += np.bincount(part.Y.indices[on], minlength=labels)
            ones += np.bincount(part.Y.indices[on & among], minlength=labels)
            missing += np.bincount(part.Y.indices[~on & among], minlength=labels)
            weight += len(trained) if part.weight is None else float(part.weight.sum(dtype=float))
        counts = np.concatenate(kept)
        return cls(counts, ones, counts.sum() - missing, every, weight)


@torch.inference_mode(False)
@torch.enable_grad()
def _train(
    work: _Work,
    seed: int,
    device: torch.device,
    folder: RunFolder | None,
    progress: Progress,
    callbacks: tuple[Callable[[Epoch], None], ...],
) -> Fitted:
    """Train the model of a plan once, and calibrate and tune it on the held-out rows."""
    plan, domain, held = work.plan, work.domain, work.held
    progress.left(sum(stage.epochs for stage in plan.stages))
    trained = work.kept.sum()
    progress.begin(f"training on {trained:,} rows, {len(held):,} are held out")
    model = plan.build(work.like, domain, seed).to(device)
    if not plan.raw:
        start_at_counts(model, work.ones, work.known, plan.stages[0].objective)
    watched = held
    if not plan.stops_early:
        # Watched, not obeyed: cheaper than the verdict on the last epoch.
        watched = held.rows(np.arange(min(len(held), max(1, MOST_WATCHED // domain.size))))
    exclusive = isinstance(domain, Simplex)
    history = train_on(
        model,
        plan.stages,
        work.rows(model),
        TrainingRows.of(model, watched, "held out"),
        seed,
        accuracy if exclusive else best_f1,
        callbacks=(*progress.training(), *callbacks),
        checkpoint=folder,
    )
    soft = inferred(model, plan.prediction, held.X).numpy()
    joint = half = None
    if plan.wants_joint:
        joint = inferred(model, plan.prediction, held.X, joint=True).numpy()
    if len(plan.energy.terms) > 1 and not (exclusive or plan.raw):
        half = half_known(model, plan.prediction, held, seed)
    truth = densified(held.Y)
    verdict = our_processes().said_by_first(lambda: judge(plan, domain, truth, soft, joint, half))
    progress.tried("held-out rows", verdict.score)
    warn_if_undertrained(plan, domain, held.Y, verdict.score, history)
    ended = replace(plan, decoding=verdict.decoding, rivals=())
    kept = verdict.calibration, verdict.tuned, verdict.score
    return Fitted(model, ended, *kept, history, None)
