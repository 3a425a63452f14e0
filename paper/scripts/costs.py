"""Costs of training: memory on wide data, a set of Bookmarks' shape, an epoch end to end.

    python paper/scripts/costs.py memory [--rows 100000] [--features 200000] [--entries 50]
    python paper/scripts/costs.py bookmarks [--rows 87856] [--method spen-paper]
    python paper/scripts/costs.py labels [--epochs 1] [--dataset debian-depends]
    python paper/scripts/costs.py epochs [--dataset bibtex] [--steps 10] [--width 500]
    python paper/scripts/costs.py shortlist [--size 1000] [--measurements 256] [--device cuda]
    python paper/scripts/costs.py processes [--dataset bibtex] [--rows 2000] [--width 500]
    python paper/scripts/costs.py fits --beside FOLDER [--dataset yeast] [--repeats 2]

memory: the peak of a fit and a prediction on wide sparse rows, that of the whole process, the data
included. bookmarks: one epoch a stage of a method of Table 1, and a prediction, on generated rows
of that set's shape; peak memory with the rows included, CPU seconds where others compute too.
labels: the peak of a fit with default settings but for its epochs, and of predictions with nothing
and with half of the labels known, on a set of many labels. epochs: what an epoch of end-to-end
training takes, in epochs of the label-wise MLP, on one thread; epochs take turns in one process,
and medians are compared. shortlist: what a row's inference takes over a shortlist of up to a
million labels, in parts, and over all labels. processes: how many rows a second two processes of
one thread each train on, and one of them alone, in turns of one run; of both ratios of times that
of medians and of the quickest epochs, and that of CPU time, for machines that are not quiet.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

import spen
from spen.batch.arrays import densified
from spen.training import loop
from spen.training.processes import ALONE, our_processes
from spen_paper import sets
from spen_paper.__main__ import main
from spen_paper.settings import classifier, settings_of
from spen_paper.studies.known import CHUNK, Revealing

BOOKMARKS, BOOKMARKS_TEST = 87_856, 27_856
FEATURES, LABELS = 2150, 208
DENSITY, CARDINALITY = 0.059, 2.03


def wide_rows(rows: int, features: int, entries: int, labels: int, seed: int = 0):
    """Draw sparse rows whose labels depend on which features are there."""
    rng = np.random.default_rng(seed)
    # Frequent and rare features, as words are.
    columns = (features * rng.random((rows, entries)) ** 3).astype(np.int32)
    columns.sort(axis=1)
    offsets = np.arange(0, rows * entries + 1, entries)
    values = rng.random(rows * entries).astype(np.float32) + 0.5
    X = sparse.csr_matrix((values, columns.ravel(), offsets), shape=(rows, features))
    X.sum_duplicates()
    topics = rng.integers(0, labels, features)
    votes = sparse.csr_matrix(
        (np.ones(features, np.float32), (np.arange(features), topics)), shape=(features, labels)
    )
    scores = (X @ votes).toarray()
    Y = scores >= np.partition(scores, -3, axis=1)[:, -3:-2]
    return X, sparse.csr_matrix(Y.astype(np.int8))


def rows_like_bookmarks(rows: int, seed: int = 0) -> tuple[sparse.csr_matrix, Any]:
    """Draw X (rows, 2150) of 0 and 1 and Y (rows, 208), as sparse matrices.

    A label has a few words that speak for it, and its score is what those that are there say,
    with noise. In each row the label with the highest score is on, and so are all others whose
    score is among the highest of all rows.
    """
    rng = np.random.default_rng(seed)
    # Frequent and rare words; the probabilities average to the density.
    chance = rng.permutation((1 + np.arange(FEATURES)) ** -0.5)
    chance = np.minimum(chance * DENSITY / chance.mean(), 0.9)
    parts = [
        sparse.csr_matrix(rng.random((min(4096, rows - at), FEATURES)) < chance, dtype=np.float32)
        for at in range(0, rows, 4096)
    ]
    X = sparse.csr_matrix(sparse.vstack(parts, format="csr"))
    weights = rng.exponential(1.0, (FEATURES, LABELS)) * (rng.random((FEATURES, LABELS)) < 0.01)
    scores = X @ weights.astype(np.float32)
    scores = (scores - scores.mean(0)) / scores.std(0)
    # Some labels are frequent and most are rare.
    scores *= rng.uniform(0.7, 1.3, LABELS).astype(np.float32)
    scores += 0.2 * rng.standard_normal(scores.shape, dtype=np.float32)
    first = np.arange(LABELS) == scores.argmax(1)[:, None]
    limit = np.quantile(scores[~first], 1 - (CARDINALITY - 1) / (LABELS - 1))
    return X, sparse.csr_matrix((first | (scores > limit)).astype(np.int8))


def peak() -> str:
    """Say how much memory this process has held at most."""
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return f"peak memory {held / 2**30:.2f} GiB"


def clocked(words: str, call: Callable[[], Any]) -> Any:
    """Call, print the seconds that it took and the peak memory after it, and return its result."""
    began, cpu = time.perf_counter(), time.process_time()
    result = call()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(f"{words}: {seconds:.1f} s ({cpu:.1f} s of CPU time), {peak()}")
    return result


def memory(
    *, rows: int = 100_000, features: int = 200_000, entries: int = 50, labels: int = 50
) -> None:
    """Fit and predict wide sparse rows."""
    X, Y = wide_rows(rows, features, entries, labels)
    print(f"{rows:,} rows, {features:,} features, {X.nnz / X.shape[0]:.0f} a row")
    print(f"the rows alone: {peak()}")
    made = spen.SPENClassifier(random_state=0, verbose=1)
    fitted = clocked("fit", lambda: made.fit(X, Y))
    found = clocked("predict", lambda: fitted.predict(X, sparse=True))
    print(f"F1 of the training rows: {100 * spen.example_f1(Y, found):.1f}")


def bookmarks(*, rows: int = BOOKMARKS, method: str = "spen-paper") -> None:
    """Fit a method of Table 1 with one epoch a stage, and predict."""
    X, Y = rows_like_bookmarks(rows)
    cut = rows - round(rows * BOOKMARKS_TEST / BOOKMARKS)
    print(
        f"{method}: {cut:,} training rows, density {X.nnz / np.prod(X.shape):.2f}, "
        f"{Y.nnz / rows:.2f} labels a row; threads: {torch.get_num_threads()}"
    )
    print(f"the rows alone: {peak()}")
    table = settings_of("bookmarks")[method]
    made = classifier(table, seed=0, device="cpu", where=method)
    given = made.get_params()
    if given["stages"] != "auto":
        made.set_params(stages=tuple(replace(stage, epochs=1) for stage in given["stages"]))
    if given["epochs"] != "auto" or given["stages"] == "auto":
        made.set_params(epochs=1)
    clocked("fit", lambda: made.fit(X[:cut], Y[:cut]))
    # Without cross-fitting the first history is that of a run on fewer rows.
    histories = [made.history_] if made.plan_.cross_fit else []
    histories += [made.refit_history_] if made.refit_history_ else []
    epochs = {epoch.stage: epoch.seconds for history in histories for epoch in history.epochs}
    print("seconds of an epoch:", ", ".join(f"{name} {s:.1f}" for name, s in epochs.items()))
    labels = clocked("predict", lambda: made.predict(X[cut:], sparse=True))
    print(f"test F1: {100 * spen.example_f1(Y[cut:], labels):.2f}")


def labels(*, dataset: str = "debian-depends", epochs: int = 1) -> None:
    """Fit the defaults, for so many epochs of the networks, and predict, on many labels."""
    data = sets.load(dataset)
    (rows, features), count = data.train.X.shape, data.train.Y.shape[1]
    print(f"{data.name}: {rows:,} rows, {features:,} features, {count:,} labels")
    print(f"the rows alone: {peak()}")
    made = spen.SPENClassifier(epochs=epochs, random_state=0, device="cpu")
    clocked("fit", lambda: made.fit(data.train.X, data.train.Y))
    test = data.test.rows(np.arange(min(len(data.test), CHUNK)))
    clocked(f"predict {len(test):,} rows", lambda: made.predict_labels(test.X))
    half = Revealing(share=0.5).known(densified(test.Y), [0])
    clocked("predict, half known", lambda: made.predict(test.X, known=half, sparse=True))


def epochs(*, dataset: str = "bibtex", steps: int = 10, width: int = 500, repeats: int = 5) -> None:
    """Train single epochs of the MLP and end to end, in turns."""
    torch.set_num_threads(1)
    data = spen.load_dataset(dataset)
    inputs, labels = data.train.X.shape[1], data.train.Y.shape[1]
    energy = spen.LocalEnergy(width, labels) + spen.LabelEnergy(labels, 16, "softplus")
    network = spen.MLP(inputs, width, width, dropout=0.5)
    model = spen.SPEN(network, energy, spen.UnitBox(labels), seed=0)
    rule, stopping = spen.MirrorDescent(lr=0.5, momentum=0.0), spen.Stopping(steps)

    def stage(name: str, objective: spen.Objective, backward: spen.Unrolled) -> spen.Stage:
        inference = spen.Descent(rule, stopping, backward)
        return spen.Stage(name, objective, inference, epochs=1, optimiser="adamw", lr=1e-3)

    kinds = {
        "MLP": (spen.CrossEntropy(), spen.Unrolled()),
        "last": (spen.EndToEnd("log", "last"), spen.Unrolled()),
        "all": (spen.EndToEnd("log", "all"), spen.Unrolled()),
        "checkpointed": (spen.EndToEnd("log", "last"), spen.Unrolled(checkpoint=True)),
    }
    turns = range(repeats)
    stages = [stage(f"{name} {k}", *kind) for k in turns for name, kind in kinds.items()]
    history = spen.train(model, stages, data.train, seed=0)
    medians = {
        name: statistics.median(e.seconds for e in history.epochs if e.stage.startswith(f"{name} "))
        for name in kinds
    }
    print(f"{dataset}, {width} units, {steps} steps, one thread")
    for name, median in medians.items():
        print(f"{name:>14}  {median:6.2f} s  {median / medians['MLP']:5.2f} MLP epochs")


WIDTH, STEPS, BATCH = 64, 5, 16


@torch.no_grad()
def shortlist(
    *, size: int = 1000, measurements: int = 256, device: str = "cpu", repeats: int = 5
) -> None:
    """Minimise an energy of random weights over ever more labels, with a shortlist and without."""
    torch.set_num_threads(1)
    rule, stopping = spen.MirrorDescent(lr=0.5, momentum=0.0), spen.Stopping(STEPS, 0.0, 0.0)
    kinds = {"shortlist": size, "all labels": None}
    descents = {
        name: spen.Descent(rule, stopping, shortlist=given, backend="general")
        for name, given in kinds.items()
    }
    print(
        f"{measurements} measurements, {STEPS} steps, {BATCH} rows at a time, one thread, {device}"
    )
    print("ms a row    scores  with a shortlist  with all labels")
    for count in (1_000, 10_000, 100_000, 1_000_000):
        energy = spen.LocalEnergy(WIDTH, count) + spen.LabelEnergy(count, measurements, "softplus")
        energy = (energy + spen.Entropy(spen.UnitBox(count), 1.0)).to(device)
        context = spen.Context(torch.randn(BATCH, WIDTH, device=device))
        problem, box = energy.bind(context), spen.UnitBox(count)
        calls: dict[str, Callable[[], Any]] = {"scores": partial(energy.bind, context)}
        calls |= {
            name: partial(descent.solve, problem, box)
            for name, descent in descents.items()
            # What takes no list is not worth waiting for beyond.
            if name == "shortlist" or count <= 100_000
        }
        taken = {
            name: [milliseconds(call, device) for _ in range(repeats)]
            for name, call in calls.items()
        }
        medians = {name: f"{statistics.median(each) / BATCH:.3f}" for name, each in taken.items()}
        columns = (medians.get(name, "") for name in ("scores", *kinds))
        print("{:>9,}  {:>7}  {:>16}  {:>15}".format(count, *columns), f"  {peak()}", flush=True)


def milliseconds(call: Callable[[], Any], device: str) -> float:
    """Return what one call takes: of a CPU, which others may share, its own time."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    began = clock()
    call()
    if device != "cpu":
        torch.cuda.synchronize()
    return 1000 * (clock() - began)


class Encoder(torch.nn.Module):
    """Token ids (n, T) to features (n, width), by a small transformer."""

    def __init__(self, words: int, width: int, layers: int) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
        self.words = torch.nn.Embedding(words, width)
        self.layers = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.layers(self.words(tokens)).mean(1)


def processes(
    *, dataset: str = "bibtex", rows: int = 2000, width: int = 500, repeats: int = 5
) -> None:
    """Train epochs by two processes, and by the first of them while the other one waits."""
    if "RANK" not in os.environ:
        given = {"dataset": dataset, "rows": rows, "width": width, "repeats": repeats}
        options = [text for name, value in given.items() for text in (f"--{name}", str(value))]
        torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        command = [sys.executable, *torchrun, __file__, "processes", *options]
        subprocess.run(command, check=True)
        return
    torch.set_num_threads(1)
    both = our_processes()
    data = spen.load_dataset(dataset)
    some = data.train.rows(np.arange(min(rows, len(data.train))))
    (_, inputs), labels = some.X.shape, some.Y.shape[1]
    tokens = np.random.default_rng(0).integers(2000, size=(min(rows, 320), 32))
    few = spen.Split(tokens, densified(some.Y[: len(tokens)]))

    def model(features: Any, width: int) -> spen.SPEN:
        energy = spen.LocalEnergy(width, labels) + spen.LabelEnergy(labels, 16, "softplus")
        return spen.SPEN(features, energy, spen.UnitBox(labels), seed=0)

    network = model(spen.MLP(inputs, width, width), width)
    encoder = model(Encoder(2000, 128, 4), 128)
    label_wise, end_to_end = spen.CrossEntropy(), spen.EndToEnd("log", "all")
    rule, stopping = spen.MirrorDescent(lr=0.5, momentum=0.0), spen.Stopping(10)
    kinds = (
        ("label-wise network", network, some, label_wise, 100),
        ("label-wise network", network, some, label_wise, 500),
        ("end to end, 10 steps", network, some, end_to_end, 100),
        ("end to end, 10 steps", network, some, end_to_end, 500),
        ("encoder, end to end", encoder, few, end_to_end, 32),
    )
    if both.is_first:
        load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
        print(f"{dataset}: {len(some):,} rows, {width} units; {cores} cores, load {load:.1f}")
        print("rows a second         batch  one process  two processes  ratio  quickest  CPU time")
    for name, trained, learned, objective, size in kinds:
        inference = spen.Descent(rule, stopping, spen.Unrolled())
        # What the first epoch finds, the second has at hand.
        stage = spen.Stage(name, objective, inference, epochs=2, optimiser="adamw", batch_size=size)
        epoch = partial(last_epoch, trained, stage, learned)
        alone, together = [], []
        for _ in range(repeats):
            # The other one waits, without work, to hear of the end.
            alone.append(both.said_by_first(partial(by_itself, epoch)))
            seconds, cpu = epoch()
            together.append((seconds, float(both.gathered([torch.tensor([cpu])]).max())))
        if not both.is_first:
            continue
        (one, one_cpu), (two, two_cpu) = (
            list(zip(*each, strict=True)) for each in (alone, together)
        )
        middle, busy = statistics.median, statistics.median(one_cpu) / statistics.median(two_cpu)
        print(
            f"{name:20}  {size:>5}  {len(learned) / middle(one):11,.0f}  "
            f"{len(learned) / middle(two):13,.0f}  {middle(one) / middle(two):5.2f}  "
            f"{min(one) / min(two):8.2f}  {busy:8.2f}",
            flush=True,
        )


A_FIT = """
import sys, time, spen
rows = spen.load_dataset(sys.argv[1]).train
began, cpu = time.perf_counter(), time.process_time()
spen.SPENClassifier(random_state=0).fit(rows.X, rows.Y)
print(time.perf_counter() - began, time.process_time() - cpu)
"""


def fits(*, beside: Path = Path(), dataset: str = "yeast", repeats: int = 2) -> None:
    """Fit by this version and by another one."""
    if not (beside / "spen").is_dir():
        raise spen.InputError(f"--beside {beside} holds no spen. Name the src of another checkout.")
    sources = {"this version": Path(spen.__file__).parents[1], "the other one": beside.resolve()}
    taken: dict[str, list[list[float]]] = {name: [] for name in sources}
    for _ in range(repeats):
        for name, source in sources.items():
            command = [sys.executable, "-W", "ignore", "-c", A_FIT, dataset]
            environment = os.environ | {"PYTHONPATH": str(source)}
            done = subprocess.run(
                command, env=environment, check=True, stdout=subprocess.PIPE, text=True
            )
            taken[name].append([float(each) for each in done.stdout.split()])
    for name, found in taken.items():
        seconds, cpu = (statistics.fmean(each) for each in zip(*found, strict=True))
        print(f"{name}: {seconds:.1f} s, {cpu:.1f} s of CPU time, mean of {repeats}")
    one, two = (statistics.fmean(found[0] for found in each) for each in taken.values())
    print(f"{dataset}: {one / two:.2f} times as long")


def last_epoch(model: spen.SPEN, stage: spen.Stage, rows: spen.Split) -> tuple[float, float]:
    """Return the seconds of the last of two epochs, and those of CPU time of this process."""
    clocks: list[float] = []
    look = [lambda _: clocks.append(time.process_time())]
    seconds = spen.train(model, [stage], rows, seed=0, callbacks=look).epochs[-1].seconds
    return seconds, clocks[1] - clocks[0]


def by_itself(train: Callable[[], Any]) -> Any:
    """Train by one process, though there are others."""
    met, loop.our_processes = loop.our_processes, lambda: ALONE
    try:
        return train()
    finally:
        loop.our_processes = met


if __name__ == "__main__":
    commands = (labels, memory, bookmarks, epochs, shortlist, processes, fits)
    main(commands, "costs.py", __doc__)
