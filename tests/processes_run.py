"""What processes do together in the tests: torchrun starts this file, and one process imports it.

Usage: processes_run.py {together, dying} FOLDER
"""

import contextlib
import os
import pickle
import signal
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

import spen
from spen.batch.ragged import Ragged
from spen.batch.splits import Split, hold_out
from spen.sequences import ArrayNetwork
from spen.training import checkpoint as checkpoints
from spen.training import loop, processes
from spen.training.processes import our_processes
from spen.training.sequences import SequenceRows
from spen.training.together import train_together

torch.set_num_threads(1)

STEPS = 50
ROWS = spen.exclusive_blocks(n_train=50, n_test=10).train
rng = np.random.default_rng(0)
MISSING = Split(ROWS.X, np.where(rng.random(ROWS.Y.shape) < 0.3, np.nan, ROWS.Y), rng.random(50))
# Without momentum or kinks, so that training does not make much of how numbers are rounded.
FIVE = spen.Descent(spen.MirrorDescent(lr=1.0, momentum=0.0), spen.Stopping(5))
OBJECTIVES = {
    "cross entropy": spen.CrossEntropy(),
    "squared": spen.SquaredError(),
    "hinge": spen.Hinge(),
    "unrolled": spen.UnrolledLikelihood(entropy=1.0, start="local", f1=0.5),
    "end to end": spen.EndToEnd("log", "all", 1.0, "local"),
    "likelihood": spen.Likelihood(),
    "n best": spen.NBestLikelihood(),
}
RANDOM = {
    "hidden": spen.HiddenCrossEntropy(),
    "revealed": spen.UnrolledLikelihood(1.0, "local", reveal=0.5),
}


def model_of(dropout=0.0):
    energy = spen.LocalEnergy(8, 16) + spen.LabelEnergy(16, 4, nonlinearity="softplus")
    return spen.SPEN(spen.MLP(64, 8, dropout=dropout), energy, spen.UnitBox(16), seed=0)


def stage_of(objective, inference=FIVE, **settings):
    """Ten steps an epoch."""
    given = {"batch_size": 5, "epochs": STEPS // 10, "lr": 1e-2} | settings
    return spen.Stage("all", objective, inference, **given)


def losses_of(name):
    """Return the sums of this process's losses, step by step."""
    seen, usual = [], loop._losses

    def losses(*arguments):
        found = usual(*arguments)
        seen.append(float(found.detach().sum()))
        return found

    loop._losses = losses
    try:
        if name in ("likelihood", "n best"):
            learn_sequences(name)
        else:
            rows = MISSING if name == "cross entropy" else ROWS
            parts = {"parts": ("features", "local")} if name in ("cross entropy", "squared") else {}
            stage = stage_of(OBJECTIVES[name], **parts)
            spen.train(model_of(), [stage], rows, seed=3)
    finally:
        loop._losses = usual
    return seen


def learn_sequences(name):
    """Train a chain on sequences of 1 to 5 positions, with three classes."""
    draws = np.random.default_rng(1)
    lengths = torch.from_numpy(draws.integers(1, 6, 50))
    count = int(lengths.sum())
    inputs = torch.from_numpy(draws.normal(size=(count, 4))).float()
    tags = torch.from_numpy(draws.integers(0, 3, count))
    rows = SequenceRows(Ragged(inputs, lengths), Ragged(tags, lengths), 3, torch.ones(50))
    features, energy = ArrayNetwork(4, 8, 4, dropout=0.0), spen.LocalEnergy(8, 3)
    domain = spen.Simplex(3, positions=None)
    model = spen.SPEN(features, energy + spen.ChainEnergy(3), domain, seed=0)
    inference = spen.Viterbi() if name == "likelihood" else spen.BestOf(4)
    loop.train_on(model, [stage_of(OBJECTIVES[name], inference)], rows, seed=3)


class Normed(nn.Module):
    """What counts means of a batch in buffers."""

    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(64), nn.Linear(64, 8)

    def forward(self, x):
        return self.out(self.norm(x))


def long_run(checkpoint=None, callbacks=()):
    """Train in four ways, one after the other, with held-out rows and a last batch of one row."""
    kept, held = hold_out(Split(ROWS.X[:47], ROWS.Y[:47]), 6 / 47, seed=0)
    parts = {"parts": ("features", "local")}
    stages = [
        stage_of(
            OBJECTIVES["cross entropy"], batch_size=20, epochs=9, patience=1, clip=0.1, **parts
        ),
        stage_of(OBJECTIVES["hinge"], batch_size=20, optimiser="sgd", parts=("global",)),
        stage_of(OBJECTIVES["cross entropy"], optimiser="lbfgs", lr=1e-3, **parts),
        stage_of(OBJECTIVES["end to end"], batch_size=40, epochs=6, schedule="cosine"),
    ]
    stages = [spen.Stage(**{**vars(stage), "name": f"{k}"}) for k, stage in enumerate(stages)]
    model = model_of().double()
    where = {} if checkpoint is None else {"checkpoint": checkpoint, "resume": True}
    history = spen.train(model, stages, kept, held, seed=5, callbacks=callbacks, **where)
    return model, history


def described(model, history):
    """Return what two runs are compared by."""
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return weights, [(each.stage, each.loss, each.score) for each in history.epochs]


def stop_at(stage, epoch):
    """Return a callback that ends a run."""

    def stop(done):
        if (done.stage, done.epoch) == (stage, epoch):
            raise KeyboardInterrupt

    return stop


def side_by_side():
    """Train three models, each with its own rows; the last batches of some are smaller."""
    kept = [np.arange(50), np.arange(0, 50, 2), np.arange(7, 18)]
    models = [model_of() for _ in kept]
    stage = stage_of(OBJECTIVES["unrolled"], batch_size=7)
    history = train_together(models, [stage], ROWS, kept, seed=2)
    return [model.state_dict() for model in models], [each.loss for each in history.epochs]


def fitted(folder):
    """Fit all that a fit may do, with a seed that is drawn, and return what came of it."""
    settings = {"hidden": (6,), "epochs": 2, "cross_fit": True, "device": "cpu", "verbose": 1}
    clf = spen.SPENClassifier(**settings).fit(ROWS.X, ROWS.Y, checkpoint=folder, resume=True)
    return clf.predict_proba(ROWS.X), clf.held_out_score_, str(clf.tuned_)


def streamed(folder=None):
    """Fit rows that come part by part, and return what came of it."""
    settings = {"hidden": (6,), "epochs": 3, "dropout": 0.0, "objective": "end_to_end"}
    clf = spen.SPENClassifier(**settings, batch_size=8, device="cpu", random_state=0)
    rows = TensorDataset(torch.from_numpy(ROWS.X), torch.from_numpy(ROWS.Y))
    clf.fit(rows, checkpoint=folder, resume=folder is not None)
    losses = [epoch.loss for epoch in clf.history_.epochs]
    return clf.predict_proba(ROWS.X), losses, clf.held_out_score_, str(clf.tuned_)


@contextlib.contextmanager
def stopped_within():
    """End a run in the midst of its second epoch."""
    save = checkpoints.Run.save_within

    def save_and_stop(run, batches, loss):
        save(run, batches, loss)
        if (run.epoch, batches) == (1, 2):
            raise KeyboardInterrupt

    checkpoints.Run.save_within = save_and_stop
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        checkpoints.Run.save_within = save


def together(folder):
    """Do all that two processes are to do, and write what each of them saw."""
    checkpoints.SAVED_TIMES = 0
    found = {"losses": {name: losses_of(name) for name in OBJECTIVES}}
    found["run"] = described(*long_run())
    found["gone on"] = described(*long_run(folder / "of-one.ckpt"))
    with contextlib.suppress(KeyboardInterrupt):
        long_run(folder / "of-two.ckpt", [stop_at("1", 3)])
    found["side by side"] = side_by_side()
    found["random"] = {}
    for name, objective in RANDOM.items():
        model = model_of(dropout=0.5)
        history = spen.train(model, [stage_of(objective)], ROWS, seed=1)
        found["random"][name] = described(model, history)
    torch.manual_seed(our_processes().rank)
    model = spen.SPEN(Normed(), spen.LocalEnergy(8, 16), spen.UnitBox(16))
    parts = {"parts": ("features", "local")}
    stage = stage_of(OBJECTIVES["cross entropy"], batch_size=10, **parts)
    history = spen.train(model, [stage], ROWS)
    found["normed"] = described(model, history)
    found["fit"] = fitted(folder / "fit")
    found["streamed"] = streamed()
    with stopped_within():
        streamed(folder / "streamed")
        raise AssertionError("nothing stopped it")
    words = [["the", "car"], ["a", "red", "car"], ["wine"]] * 4
    tags = [["D", "N"], ["D", "A", "N"], ["N"]] * 4
    tagger = spen.SPENTagger(epochs=2, early_stopping=True, held_out=0.3, device="cpu")
    found["tagger"] = described(tagger.fit(words, tags).model_, tagger.history_)
    rank = our_processes().rank
    try:
        spen.train(model_of(), [stage_of(OBJECTIVES["hinge"])], ROWS.rows(np.arange(40 + rank)))
    except spen.errors.InputError as problem:
        found["other rows"] = str(problem)
    processes._part()
    found["threads"] = [
        thread.read_text().strip() for thread in Path("/proc/self/task").glob("*/comm")
    ]
    (folder / f"seen-by-{rank}.pickle").write_bytes(pickle.dumps(found))


def dying(folder):
    """End the second process without a word, in the middle of a run."""
    checkpoints.SAVED_TIMES = 0

    def die(done):
        if our_processes().rank == 1 and (done.stage, done.epoch) == ("1", 2):
            os.kill(os.getpid(), signal.SIGKILL)

    long_run(folder / "run.ckpt", [die])


if __name__ == "__main__":
    {"together": together, "dying": dying}[sys.argv[1]](Path(sys.argv[2]))
