"""Costs of training: memory on wide data, a set of Bookmarks' shape, an epoch end to end.

    python paper/scripts/costs.py memory [--rows 100000] [--features 200000] [--entries 50]
    python paper/scripts/costs.py bookmarks [--rows 87856] [--method spen-paper]
    python paper/scripts/costs.py labels [--epochs 1] [--dataset debian-depends]
    python paper/scripts/costs.py epochs [--dataset bibtex] [--steps 10] [--widths 150,500,1000]
    python paper/scripts/costs.py widths [--size 983]
    python paper/scripts/costs.py shortlist [--size 1000] [--measurements 256] [--device cuda]
    python paper/scripts/costs.py processes [--dataset bibtex] [--rows 2000] [--width 500]
    python paper/scripts/costs.py fits --beside FOLDER [--dataset yeast] [--repeats 2]

With `--out FOLDER` (all but fits) what is measured is kept in FOLDER/records.jsonl, and where it is
there already it is printed again; `paper/records/costs` has what the texts show.

memory: the peak of a fit and a prediction on wide sparse rows, that of the whole process, the data
included. bookmarks: one epoch a stage of a method of Table 1, and a prediction, on generated rows
of that set's shape; peak memory with the rows included, CPU seconds where others compute too.
labels: the peak of a fit with default settings but for its epochs, and of predictions with nothing
and with half of the labels known, on a set of many labels. epochs: what an epoch of end-to-end
training takes, in epochs of the label-wise MLP, on one thread; epochs take turns in one process,
and medians are compared. widths: what a row's inference takes by how many measurements the energy
of a default fit makes. shortlist: what a row's inference takes over a shortlist of up to a
million labels, in parts, and over all labels. processes: how many rows a second two processes of
one thread each train on, and one of them alone, in turns of one run; of both ratios of times that
of medians and of the quickest epochs, and that of CPU time, for machines that are not quiet.
"""

from __future__ import annotations

import json
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
from spen.cli.show import text_table
from spen.estimators.plan import Shape
from spen.estimators.predictor import solve
from spen.estimators.recipe import make_plan
from spen.training import loop
from spen.training.processes import ALONE, our_processes
from spen_paper import sets
from spen_paper.__main__ import main
from spen_paper.records import kept
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


def peak() -> float:
    """Return how much memory this process has held at most, in GiB."""
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30, 3)


class Clock:
    """What parts of a measurement took: seconds, CPU seconds and the peak memory after each."""

    def __init__(self) -> None:
        self.taken: dict[str, Any] = {"the rows alone": {"gib": peak()}}

    def __call__(self, part: str, call: Callable[[], Any]) -> Any:
        """Call, and return its result."""
        began, cpu = time.perf_counter(), time.process_time()
        result = call()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        self.taken[part] = {"seconds": round(seconds, 1), "cpu": round(cpu, 1), "gib": peak()}
        return result


def told(record: dict[str, Any]) -> None:
    """Print the machine of a record, and what its parts took."""
    machine, found = record["machine"], record["found"]
    print(f"{found['title']}; {machine['threads']} threads, load {machine['load']}")
    rows = [
        [part, f"{took.get('seconds', 0):.1f}", f"{took.get('cpu', 0):.1f}", f"{took['gib']:.2f}"]
        for part, took in found["taken"].items()
    ]
    print(text_table(["", "seconds", "of CPU time", "peak memory, GiB"], rows))
    if "f1" in found:
        print(f"F1: {found['f1']:.1f}")


def memory(
    *,
    rows: int = 100_000,
    features: int = 200_000,
    entries: int = 50,
    labels: int = 50,
    out: Path | None = None,
) -> None:
    """Fit and predict wide sparse rows."""

    def measure() -> dict[str, Any]:
        X, Y = wide_rows(rows, features, entries, labels)
        clock = Clock()
        made = spen.SPENClassifier(random_state=0, verbose=1)
        fitted = clock("fit", lambda: made.fit(X, Y))
        found = clock("predict", lambda: fitted.predict(X, sparse=True))
        title = f"{rows:,} rows, {features:,} features, {X.nnz / X.shape[0]:.0f} a row"
        # Of the training rows.
        return {"title": title, "taken": clock.taken, "f1": 100 * spen.example_f1(Y, found)}

    settings = {"rows": rows, "features": features, "entries": entries, "labels": labels}
    told(kept(out, "memory", settings, measure))


def bookmarks(
    *, rows: int = BOOKMARKS, method: str = "spen-paper", out: Path | None = None
) -> None:
    """Fit a method of Table 1 with one epoch a stage, and predict."""

    def measure() -> dict[str, Any]:
        X, Y = rows_like_bookmarks(rows)
        cut = rows - round(rows * BOOKMARKS_TEST / BOOKMARKS)
        clock = Clock()
        table = settings_of("bookmarks")[method]
        made = classifier(table, seed=0, device="cpu", where=method)
        given = made.get_params()
        if given["stages"] != "auto":
            made.set_params(stages=tuple(replace(stage, epochs=1) for stage in given["stages"]))
        if given["epochs"] != "auto" or given["stages"] == "auto":
            made.set_params(epochs=1)
        clock("fit", lambda: made.fit(X[:cut], Y[:cut]))
        labels = clock(f"predict {rows - cut:,} rows", lambda: made.predict(X[cut:], sparse=True))
        title = (
            f"{method}: {cut:,} training rows, density {X.nnz / np.prod(X.shape):.2f}, "
            f"{Y.nnz / rows:.2f} labels a row"
        )
        f1 = 100 * spen.example_f1(Y[cut:], labels)
        return {"title": title, "taken": clock.taken, "f1": f1}

    told(kept(out, "bookmarks", {"rows": rows, "method": method}, measure))


def labels(*, dataset: str = "debian-depends", epochs: int = 1, out: Path | None = None) -> None:
    """Fit the defaults, for so many epochs of the networks, and predict, on many labels."""

    def measure() -> dict[str, Any]:
        data = sets.load(dataset)
        (rows, features), count = data.train.X.shape, data.train.Y.shape[1]
        clock = Clock()
        made = spen.SPENClassifier(epochs=epochs, random_state=0, device="cpu")
        clock("fit", lambda: made.fit(data.train.X, data.train.Y))
        test = data.test.rows(np.arange(min(len(data.test), CHUNK)))
        clock(f"predict {len(test):,} rows", lambda: made.predict_labels(test.X))
        half = Revealing(share=0.5).known(densified(test.Y), [0])
        clock("predict, half known", lambda: made.predict(test.X, known=half, sparse=True))
        title = f"{data.name}: {rows:,} rows, {features:,} features, {count:,} labels"
        return {"title": title, "taken": clock.taken}

    told(kept(out, "labels", {"dataset": dataset, "epochs": epochs}, measure))


ENDS = {
    "last iterate": (spen.EndToEnd("log", "last"), spen.Unrolled()),
    "all iterates": (spen.EndToEnd("log", "all"), spen.Unrolled()),
    "last, checkpointed": (spen.EndToEnd("log", "last"), spen.Unrolled(checkpoint=True)),
}
"""Ways to train end to end."""


def epochs(
    *,
    dataset: str = "bibtex",
    steps: int = 10,
    widths: str = "150,500,1000",
    repeats: int = 5,
    out: Path | None = None,
) -> None:
    """Train single epochs of the MLP and end to end, in turns."""
    rows = []
    for width in map(int, widths.split(",")):
        settings = {"dataset": dataset, "steps": steps, "width": width, "repeats": repeats}
        measure = partial(epochs_of, dataset, steps, width, repeats)
        medians = kept(out, "epochs", settings, measure)["found"]
        rows.append([f"{width:,}", *(f"{medians[name] / medians['MLP']:.1f}" for name in ENDS)])
    print(f"{dataset}, {steps} steps, one thread: an epoch, in epochs of the label-wise MLP")
    print(text_table(["units a layer", *ENDS], rows))


def epochs_of(dataset: str, steps: int, width: int, repeats: int) -> dict[str, float]:
    """Return the median seconds of an epoch of each way."""
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

    kinds = {"MLP": (spen.CrossEntropy(), spen.Unrolled()), **ENDS}
    turns = range(repeats)
    stages = [stage(f"{name} {k}", *kind) for k in turns for name, kind in kinds.items()]
    history = spen.train(model, stages, data.train, seed=0)
    taken = {
        name: [e.seconds for e in history.epochs if e.stage in {f"{name} {k}" for k in turns}]
        for name in kinds
    }
    return {name: statistics.median(each) for name, each in taken.items()}


WIDTH, STEPS, BATCH = 64, 5, 16
PARTS = ("scores", "shortlist", "all labels")


@torch.no_grad()
def widths(*, size: int = 983, repeats: int = 7, out: Path | None = None) -> None:
    """Minimise energies of random weights, of ever more measurements, as a default fit's are."""
    settings = {"size": size, "repeats": repeats}
    found = kept(out, "widths", settings, partial(widths_of, **settings))["found"]
    print(f"{size} labels, ms of CPU time a row, one thread, least of {repeats} turns:")
    for width, each in found.items():
        print(f"{width} measurements: {each:.3f}")


def widths_of(size: int, repeats: int, rows: int = 1000) -> dict[str, float]:
    """Return the milliseconds of a row by the number of measurements."""
    torch.set_num_threads(1)
    shape, domain = Shape(20_000, 1000, size, True, False), spen.UnitBox(size)
    plan = make_plan(spen.SPENClassifier().get_params(deep=False), shape)
    one = [plan.with_energy(energy, 0.01) for energy in plan.energies]
    plans = {each.measurements: each for each in [*one, one[-1].with_mean_energy()]}
    models = {
        width: spen.SPEN(spen.Identity(size), each.energy.size(size, domain), domain, seed=0)
        for width, each in plans.items()
    }
    X = np.random.default_rng(0).normal(-4, 2, (rows, size)).astype(np.float32)
    taken: dict[int, list[float]] = {width: [] for width in models}
    for _ in range(repeats):
        for width, model in models.items():
            began = time.process_time()
            solve(model.float(), plan.prediction, X)
            taken[width].append(time.process_time() - began)
    return {str(width): 1000 * min(each) / rows for width, each in taken.items()}


def shortlist(
    *,
    size: int = 1000,
    measurements: int = 256,
    device: str = "cpu",
    repeats: int = 5,
    out: Path | None = None,
) -> None:
    """Minimise an energy of random weights over ever more labels, with a shortlist and without."""
    settings = {"size": size, "measurements": measurements, "device": device, "repeats": repeats}
    found = kept(out, "shortlist", settings, partial(shortlists, **settings), device)["found"]
    print(
        f"ms a row: {measurements} measurements, {STEPS} steps, {BATCH} rows at a time, "
        f"one thread, {device}; peak memory {found['gib']:.1f} GiB"
    )
    rows = []
    for line in found["lines"]:
        cells = (f"{line[part]:#.3g}" if part in line else "" for part in PARTS)
        rows.append([f"{line['labels']:,}", *cells])
    header = ["labels", f"their scores ({WIDTH} features)"]
    header += [f"inference with a shortlist of {size:,}", "of all labels, step by step"]
    print(text_table(header, rows))


def shortlists(size: int, measurements: int, device: str, repeats: int) -> dict[str, Any]:
    """Return the median milliseconds a row of each part, for each number of labels."""
    torch.set_num_threads(1)
    rule, stopping = spen.MirrorDescent(lr=0.5, momentum=0.0), spen.Stopping(STEPS, 0.0, 0.0)
    descents = {
        name: spen.Descent(rule, stopping, shortlist=given, backend="general")
        for name, given in zip(PARTS[1:], (size, None), strict=True)
    }
    lines = []
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
        line: dict[str, float] = {"labels": count}
        for name, call in calls.items():
            taken = [milliseconds(call, device) for _ in range(repeats)]
            line[name] = statistics.median(taken) / BATCH
        lines.append(line)
    return {"gib": peak(), "lines": lines}


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
    *,
    dataset: str = "bibtex",
    rows: int = 2000,
    width: int = 500,
    repeats: int = 5,
    out: Path | None = None,
) -> None:
    """Train epochs by two processes, and by the first of them while the other one waits."""
    if "RANK" in os.environ:
        processes_of(dataset, rows, width, repeats)
        return
    settings = {"dataset": dataset, "rows": rows, "width": width, "repeats": repeats}

    def measure() -> list[dict[str, Any]]:
        options = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
        torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        command = [sys.executable, *torchrun, __file__, "processes", *options]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    record = kept(out, "processes", settings, measure)
    machine, lines = record["machine"], []
    for found in record["found"]:
        one, two = (statistics.median(found[name]) for name in ("one", "two"))
        quickest = min(found["one"]) / min(found["two"])
        busy = statistics.median(found["one_cpu"]) / statistics.median(found["two_cpu"])
        speeds = (f"{found['rows'] / each:,.0f}" for each in (one, two))
        ratios = (f"{each:.2f}" for each in (one / two, quickest, busy))
        lines.append([found["name"], f"{found['batch']}", *speeds, *ratios])
    print(f"{dataset}: rows a second; {machine['cores']} cores, load {machine['load']} before")
    header = ["", "batch", "one process", "two", "ratio", "of the quickest epochs", "of CPU time"]
    print(text_table(header, lines))


def processes_of(dataset: str, rows: int, width: int, repeats: int) -> None:
    """Print what was found as JSON, by the first of two processes."""
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
        if both.is_first:
            (one, one_cpu), (two, two_cpu) = (
                list(zip(*each, strict=True)) for each in (alone, together)
            )
            times = {"one": one, "one_cpu": one_cpu, "two": two, "two_cpu": two_cpu}
            found = {"name": name, "batch": size, "rows": len(learned)} | times
            print(json.dumps(found), flush=True)


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
    commands = (labels, memory, bookmarks, epochs, widths, shortlist, processes, fits)
    main(commands, "costs.py", __doc__)
