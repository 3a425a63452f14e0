"""Training: stages, early stopping, seeds, and a run that is killed."""

import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from killed_run import build
from safetensors.torch import load_file
from scipy.sparse import csr_matrix

import spen
from spen.batch.splits import Split, hold_out
from spen.training.checkpoint import Epoch, describe

SCRIPT = Path(__file__).parent / "killed_run.py"


@pytest.fixture(scope="module")
def rows() -> Split:
    return spen.exclusive_blocks(200, 1).train


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_killed_in_the_middle_resumes_to_the_same_bits(tmp_path):
    """SIGKILL, more than once, at no chosen moment; every time the run goes on."""
    whole = tmp_path / "whole.safetensors"
    subprocess.run([sys.executable, SCRIPT, tmp_path / "whole.ckpt", whole], check=True)

    checkpoint, result = tmp_path / "killed.ckpt", tmp_path / "killed.safetensors"
    seen = []
    for _ in range(2):
        process = subprocess.Popen([sys.executable, SCRIPT, checkpoint, result, "0.2"])
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        written = 0
        while written < 3 and process.poll() is None:
            time.sleep(0.01)
            now = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
            if now != before:
                before, written = now, written + 1
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        seen.append(written)
    assert seen == [3, 3]
    assert not result.exists(), "the run must not have ended before it was killed"
    subprocess.run([sys.executable, SCRIPT, checkpoint, result], check=True)
    assert equal(load_file(whole), load_file(result))
    assert not list(tmp_path.glob(".*")), "no temporary files are left"


def test_saving_takes_a_twentieth_of_the_time_at_most(rows, tmp_path, monkeypatch):
    """Here each save takes as long as an epoch; the first one and the end are there anyway."""
    from spen.files import write_tensors

    now, saved = 0, []

    def write_slowly(path, tensors, header):
        nonlocal now
        now += 1
        saved.append((header["stage"], header["epoch"]))
        write_tensors(path, tensors, header)

    def pass_time(epoch):
        nonlocal now
        now += 1

    monkeypatch.setattr("spen.training.checkpoint.write_tensors", write_slowly)
    monkeypatch.setattr("spen.training.checkpoint.time", SimpleNamespace(monotonic=lambda: now))
    model, stages = build()
    stages = [replace(stage, epochs=50, patience=None) for stage in stages[:2]]
    spen.train(model, stages, rows, checkpoint=tmp_path / "run.ckpt", callbacks=[pass_time])
    assert saved == [(0, 1), (0, 21), (0, 41), (1, 0), (1, 21), (1, 41), (2, 0)]


class Interrupted(spen.CrossEntropy):
    """Cross-entropy during which someone stops the run."""

    now = True

    def loss(self, model, inference, context, generator=None):
        if Interrupted.now:
            raise KeyboardInterrupt
        return super().loss(model, inference, context, generator)


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_a_run_stopped_between_two_stages_resumes_to_the_same_bits(
    rows, tmp_path, monkeypatch, optimiser
):
    """What the optimiser of one stage remembers is not for the next one's."""
    settings = {"epochs": 2, "lr": 1e-2, "optimiser": optimiser}
    stages = [
        spen.Stage("one", spen.CrossEntropy(), parts=("features", "local"), **settings),
        spen.Stage("two", Interrupted(), parts=("features", "local"), **settings),
    ]

    def run():
        model, _ = build()
        spen.train(model, stages, rows, checkpoint=tmp_path / "run.ckpt", resume=True)
        return weights_of(model)

    with pytest.raises(KeyboardInterrupt):
        run()
    monkeypatch.setattr(Interrupted, "now", False)
    resumed = run()
    (tmp_path / "run.ckpt").unlink()
    assert equal(resumed, run())


def test_one_seed_gives_bit_equal_runs_and_leaves_the_global_state_alone(rows):
    torch.manual_seed(123)
    np.random.seed(123)  # noqa: NPY002
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    results = []
    for seed in (1, 1, 2):
        model, stages = build()
        spen.train(model, stages, rows, rows, seed=seed)
        results.append(weights_of(model))
        torch.rand(1)  # a user's own draws must not matter
        torch.set_rng_state(torch_state)
    assert equal(results[0], results[1])
    assert not equal(results[0], results[2])
    assert torch.equal(torch.get_rng_state(), torch_state)
    after = np.random.get_state()  # noqa: NPY002
    assert all(np.array_equal(a, b) for a, b in zip(numpy_state, after, strict=True))


def test_a_stage_changes_only_what_it_names(rows):
    model, stages = build()
    before = weights_of(model)
    spen.train(model, [stages[0]], rows)
    after_local = weights_of(model)
    changed = {name for name in before if not torch.equal(before[name], after_local[name])}
    assert changed == {n for n in before if n.startswith(("features.", "energy.terms.0."))}
    spen.train(model, [stages[1]], rows)
    after_global = weights_of(model)
    changed = {name for name in before if not torch.equal(after_local[name], after_global[name])}
    assert changed == {n for n in before if n.startswith("energy.terms.1.") and "layers" not in n}
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
def test_the_loss_falls_for_every_objective(rows, optimiser):
    lr = 0.1 if optimiser == "sgd" else 1e-2
    inference = spen.Descent(spen.MirrorDescent(0.3, 0.5), spen.Stopping(8))
    for objective in (
        spen.CrossEntropy(),
        spen.Hinge(),
        spen.Hinge("squared", start="local"),
        spen.SquaredError(),
        spen.UnrolledLikelihood(entropy=1.0),
    ):
        energy = spen.LocalEnergy(64, 16) + spen.LabelEnergy(16, 4, "softplus")
        model = spen.SPEN(spen.Identity(64), energy, spen.UnitBox(16), seed=0)
        stage = spen.Stage("all", objective, inference, epochs=8, lr=lr, optimiser=optimiser)
        losses = [epoch.loss for epoch in spen.train(model, [stage], rows).epochs]
        assert losses[-1] < 0.9 * losses[0]


def test_the_best_epoch_is_kept_and_patience_ends_a_stage(rows):
    kept, held = hold_out(rows, 0.2, 0)
    scores = iter([0.1, 0.5, 0.3, 0.4, 0.2, 0.9])
    model, stages = build()
    snapshots = []
    stage = replace(stages[0], epochs=6, patience=3)
    history = spen.train(
        model,
        [stage],
        kept,
        held,
        score=lambda truth, soft: next(scores),
        callbacks=[lambda epoch: snapshots.append(weights_of(model))],
    )
    assert [epoch.score for epoch in history.epochs] == [0.1, 0.5, 0.3, 0.4, 0.2]
    assert history.best_epoch("local") == 2
    assert equal(weights_of(model), snapshots[1])


def test_callbacks_see_every_epoch(rows):
    seen: list[Epoch] = []
    model, stages = build()
    history = spen.train(model, stages[:2], rows, callbacks=[seen.append])
    assert seen == history.epochs
    assert [(epoch.stage, epoch.epoch) for epoch in seen] == [
        (name, k) for name in ("local", "global") for k in range(1, 5)
    ]


def test_weights_of_rows_count(rows):
    """A row of weight zero might as well not be there."""
    poisoned = rows.Y.copy()
    poisoned[100:] = 1 - poisoned[100:]
    weight = np.r_[np.ones(100), np.zeros(100)]
    losses = []
    for targets in (rows.Y, poisoned):
        model, stages = build()
        stage = replace(stages[0], epochs=1)
        history = spen.train(model, [stage], Split(rows.X, targets, weight))
        losses.append(history.epochs[0].loss)
    assert losses[0] == losses[1]


def test_missing_labels_train(rows):
    hidden = rows.Y.copy()
    hidden[::2, 3] = np.nan
    for objective in (spen.CrossEntropy(), spen.Hinge()):
        model, stages = build()
        stage = replace(stages[2], objective=objective, epochs=2, patience=None)
        history = spen.train(model, [stage], (rows.X, hidden))
        assert np.isfinite(history.epochs[-1].loss)


def test_a_checkpoint_of_an_older_version_goes_on(tmp_path):
    """Written by spen 0.1.0 after 7 of 12 epochs; the weights at the end stand beside it.

    Another machine rounds otherwise, so they are not compared bit by bit.
    """
    folder = Path(__file__).parent / "files"
    path = tmp_path / "run.ckpt"
    shutil.copy(folder / "format-3.ckpt", path)
    model, stages = build()
    kept, held = hold_out(spen.exclusive_blocks(200, 1).train, 0.2, seed=0)
    done = []
    settings = {"seed": 5, "checkpoint": path, "resume": True, "callbacks": [done.append]}
    history = spen.train(model, stages, kept, held, **settings)
    assert len(history.epochs) == 7 + len(done)
    expected = np.load(folder / "format-3-weights.npz")
    for name, weights in model.state_dict().items():
        np.testing.assert_allclose(weights, expected[name], atol=1e-4)


def test_checkpoints_of_other_runs_and_broken_ones_are_refused(rows, tmp_path):
    path = tmp_path / "run.ckpt"
    model, stages = build()
    short = [replace(stages[0], epochs=2)]
    spen.train(model, short, rows, checkpoint=path)
    content = path.read_bytes()

    with pytest.raises(spen.CheckpointError, match="Pass resume=True"):
        spen.train(build()[0], short, rows, checkpoint=path)
    cases = {
        "stages": {"stages": [replace(stages[0], epochs=3)]},
        "seed": {"seed": 7},
        "training rows": {"train": (rows.X + 1, rows.Y)},
        "held-out rows": {"valid": rows},
    }
    for words, change in cases.items():
        fresh = build()[0]
        before = weights_of(fresh)
        call = {"stages": short, "train": rows, "checkpoint": path, "resume": True} | change
        with pytest.raises(spen.CheckpointError, match=f"differs in {words}"):
            spen.train(fresh, **call)
        assert equal(weights_of(fresh), before), "nothing was half-loaded"
    other = spen.SPEN(spen.Identity(64), spen.LocalEnergy(64, 16), spen.UnitBox(16), seed=0)
    with pytest.raises(spen.CheckpointError, match="differs in initial weights, model"):
        spen.train(other, short, rows, checkpoint=path, resume=True)

    for cut in (0, 5, 200, len(content) - 10):
        path.write_bytes(content[:cut])
        fresh = build()[0]
        before = weights_of(fresh)
        with pytest.raises(spen.CheckpointError, match="cut short") as caught:
            spen.train(fresh, short, rows, checkpoint=path, resume=True)
        assert isinstance(caught.value, ValueError)
        assert equal(weights_of(fresh), before)
        assert path.read_bytes() == content[:cut], "the file is left as it was"
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(spen.CheckpointError, match="not one that spen wrote"):
        spen.train(build()[0], short, rows, checkpoint=path, resume=True)


def test_a_finished_run_resumes_to_its_end_without_training(rows, tmp_path):
    path = tmp_path / "run.ckpt"
    model, stages = build()
    history = spen.train(model, stages, rows, rows, checkpoint=path)
    again, _ = build()
    epochs = []
    resumed = spen.train(
        again, stages, rows, rows, checkpoint=path, resume=True, callbacks=[epochs.append]
    )
    assert not epochs
    assert resumed.epochs == history.epochs
    assert equal(weights_of(model), weights_of(again))


def test_divergence_is_an_error_that_names_the_stage(rows):
    model, stages = build()
    wild = replace(stages[0], lr=1e30, optimiser="sgd", clip=None)
    with pytest.raises(spen.InputError, match=r"diverged in stage 'local'.*Lower its lr"):
        spen.train(model, [wild], rows)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lr": 0.0}, "lr"),
        ({"epochs": 0}, "epochs"),
        ({"epochs": 2.5}, "epochs"),
        ({"batch_size": -1}, "batch_size"),
        ({"batch_size": 10.5}, "batch_size"),
        ({"clip": -1.0}, "clip"),
        ({"momentum": 1.5}, "momentum"),
        ({"patience": 0}, "patience"),
        ({"objective": spen.CrossEntropy}, "must be an Objective"),
        ({"inference": "mirror"}, "must be an Inference"),
        ({"optimiser": "adm"}, "Did you mean 'adam'"),
        ({"schedule": "cosin"}, "Did you mean 'cosine'"),
        ({"parts": ("gobal",)}, "Did you mean 'global'"),
    ],
)
def test_bad_stages(change, words):
    with pytest.raises(spen.InputError, match=words):
        spen.Stage(**({"name": "x", "objective": spen.CrossEntropy()} | change))


def test_a_stage_without_anything_to_train_is_refused(rows):
    model = spen.SPEN(spen.Identity(64), spen.LocalEnergy(64, 16), spen.UnitBox(16), seed=0)
    stage = spen.Stage("global", spen.CrossEntropy(), parts=("global",))
    with pytest.raises(spen.InputError, match="no parameters"):
        spen.train(model, [stage], rows)
    with pytest.raises(spen.InputError, match="stages is empty"):
        spen.train(model, [], rows)
    local = spen.Stage("a", spen.CrossEntropy(), parts=("local",))
    with pytest.raises(spen.InputError, match="names of their own"):
        spen.train(model, [local, local], rows)
    with pytest.raises(spen.InputError, match="pass valid"):
        spen.train(model, [replace(local, patience=2)], rows)


def test_descriptions_tell_settings_apart():
    assert describe(spen.Hinge()) == describe(spen.Hinge())
    assert describe(spen.Hinge()) != describe(spen.Hinge(margin=2.0))
    assert describe(spen.Descent()) != describe(spen.Descent(spen.ProjectedGradient()))


@pytest.mark.parametrize(
    ("default", "other"),
    [
        (spen.Stopping(), spen.Stopping(objective_rtol=0.0)),
        (spen.MirrorDescent(), spen.MirrorDescent(momentum=0.0)),
        (spen.Stage("", spen.CrossEntropy()), spen.Stage("", spen.CrossEntropy(), parts=())),
    ],
    ids=["stopping", "rule", "stage"],
)
def test_descriptions_name_a_zero_where_that_is_not_the_default(default, other):
    """They tell a checkpoint's run from another."""
    assert describe(default) != describe(other)


class Recorder(spen.CrossEntropy):
    """Cross-entropy that notes the rate and the features that each batch saw."""

    def __init__(self):
        object.__setattr__(self, "seen", [])

    def loss(self, model, inference, context, generator=None):
        self.seen.append(context.features.detach().clone())
        return super().loss(model, inference, context, generator)


def test_a_cosine_schedule_falls_to_zero():
    from spen.training.loop import share_of_rate

    stage = spen.Stage("a", spen.CrossEntropy(), epochs=4, schedule="cosine")
    assert [share_of_rate(stage, done, 0) for done in (0, 2, 4)] == pytest.approx([1.0, 0.5, 0.0])
    assert share_of_rate(replace(stage, schedule="constant"), 3.0, 0) == 1.0


def test_global_energies_may_have_a_rate_of_their_own(rows):
    model, stages = build()
    before = weights_of(model)
    stage = replace(stages[1], parts=("local", "global"), lr=1e-12, global_lr=0.1, epochs=1)
    spen.train(model, [stage], rows)
    moved = {name: (before[name] - after).abs().max() for name, after in weights_of(model).items()}
    assert moved["energy.terms.0.weight"] < 1e-6
    assert moved["energy.terms.1.measurements"] > 1e-3


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
def test_weight_decay_shrinks_weights_but_not_biases(rows, optimiser):
    norms = {}
    for decay in (0.0, 0.5):
        model = spen.SPEN(spen.Identity(64), spen.LocalEnergy(64, 16), spen.UnitBox(16), seed=0)
        stage = spen.Stage(
            "a", spen.CrossEntropy(), epochs=20, lr=0.05, optimiser=optimiser, weight_decay=decay
        )
        spen.train(model, [stage], rows)
        norms[decay] = (model.energy.weight.norm().item(), model.energy.bias.norm().item())
    assert norms[0.5][0] < 0.8 * norms[0.0][0]
    assert norms[0.5][1] > 0.5 * norms[0.0][1]


def test_clip_bounds_the_step(rows):
    """One step of plain SGD moves by lr times the gradient's norm, at most lr times clip."""
    moved = {}
    for clip in (None, 0.01):
        model = spen.SPEN(spen.Identity(64), spen.LocalEnergy(64, 16), spen.UnitBox(16), seed=0)
        before = weights_of(model)
        stage = spen.Stage(
            "a", spen.CrossEntropy(), epochs=1, lr=1.0, optimiser="sgd", batch_size=200, clip=clip
        )
        spen.train(model, [stage], rows)
        change = [(before[n] - t).norm() for n, t in model.state_dict().items()]
        moved[clip] = torch.stack(change).norm().item()
    assert moved[0.01] == pytest.approx(0.01, rel=1e-3)
    assert moved[None] > 1.0


def test_clamped_features_draw_no_dropout(rows):
    model, _ = build()
    expected = model.features(torch.tensor(rows.X)).detach().sort(0).values
    for parts, same in ((("local",), True), (("features", "local"), False)):
        model, _ = build()
        recorder = Recorder()
        stage = spen.Stage("a", recorder, parts=parts, epochs=1, lr=1e-9, batch_size=200)
        spen.train(model, [stage], rows)
        close = torch.allclose(recorder.seen[0].sort(0).values, expected, atol=1e-5)
        assert close is same


class Counting(spen.MLP):
    """Features that count the rows they were computed of."""

    seen = 0

    def forward(self, inputs, generator=None):
        self.seen += inputs.shape[0]
        return super().forward(inputs, generator)


@pytest.mark.parametrize("matrix", [np.asarray, csr_matrix])
def test_clamped_features_are_computed_once_and_change_nothing(rows, monkeypatch, matrix):
    """One pass over training and held-out rows; where they are too large, one per epoch."""
    kept, held = hold_out(Split(matrix(rows.X), rows.Y), 0.2, 0)
    _, stages = build()
    runs = []
    for most, passes in ((2**30, 1), (0, stages[1].epochs)):
        monkeypatch.setattr("spen.training.rows.LARGEST_KEPT", most)
        energy = spen.LocalEnergy(8, 16) + spen.LabelEnergy(16, 4)
        features = Counting(64, 8, dropout=0.3)
        model = spen.SPEN(features, energy, spen.UnitBox(16), seed=0)
        history = spen.train(model, [stages[1]], kept, held)
        assert features.seen == passes * 200
        runs.append(([(epoch.loss, epoch.score) for epoch in history.epochs], weights_of(model)))
    (once, weights), (every_time, expected) = runs
    np.testing.assert_allclose(once, every_time, rtol=1e-5)
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-4, atol=1e-5)


def test_features_are_computed_anew_for_a_stage_after_they_were_trained(rows):
    """What a stage kept must not outlive it."""
    model, _ = build()
    recorder = Recorder()
    stages = [
        spen.Stage("one", spen.CrossEntropy(), parts=("local",), epochs=1),
        spen.Stage("two", spen.CrossEntropy(), parts=("features",), epochs=1, lr=0.1),
        spen.Stage("three", recorder, parts=("local",), epochs=1, batch_size=200),
    ]
    spen.train(model, stages, rows)
    expected = model.features(torch.tensor(rows.X)).detach().sort(0).values
    torch.testing.assert_close(recorder.seen[0].sort(0).values, expected)


def test_what_the_user_froze_stays_frozen(rows):
    model, stages = build()
    bias = model.energy.terms[0].bias
    bias.requires_grad_(False)
    before = bias.clone()
    spen.train(model, [stages[0]], rows)
    assert torch.equal(bias, before)
    assert not bias.requires_grad


def test_a_stage_whose_objective_does_not_reach_its_parts_is_refused(rows):
    model, _ = build()
    stage = spen.Stage("a", spen.CrossEntropy(), parts=("global",))
    with pytest.raises(spen.InputError, match="does not depend on them"):
        spen.train(model, [stage], rows)


def test_scores_must_be_finite(rows):
    model, stages = build()
    with pytest.raises(spen.InputError, match="score of the held-out rows is nan"):
        spen.train(model, stages, rows, rows, score=lambda truth, soft: float("nan"))


def test_a_missing_label_of_a_held_out_row_does_not_count(rows):
    """Neither in truth nor in prediction: a score sees zeros in both."""
    seen = []

    def score(truth, soft):
        seen.append((truth.clone(), soft.clone()))
        return 0.5

    hidden = rows.Y.copy()
    hidden[0, :3] = np.nan
    model, stages = build()
    spen.train(model, stages[:1], rows, Split(rows.X, hidden), score=score)
    truth, soft = seen[0]
    assert (truth[0, :3] == 0).all()
    assert (soft[0, :3] == 0).all()
    assert (soft[1:] > 0).all()


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_bad_weights_of_rows(rows, weight):
    model, stages = build()
    with pytest.raises(spen.InputError, match="zero or more"):
        spen.train(model, stages[:1], Split(rows.X, rows.Y, np.full(200, weight)))


def test_a_data_set_in_place_of_a_part_is_said():
    model, stages = build()
    with pytest.raises(spen.InputError, match=r"data\.train"):
        spen.train(model, stages[:1], spen.exclusive_blocks(10, 5))


class Wanting(spen.Energy):
    """An energy whose setting is an attribute and nothing else."""

    def __init__(self, wanted):
        super().__init__()
        self.n_labels, self.wanted = 16, wanted
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, features, y):
        return self.weight * (y.sum(1) - self.wanted) ** 2


def test_a_checkpoint_knows_the_domain_and_the_settings_of_energies(rows, tmp_path):
    def make(wanted, domain):
        energy = spen.LocalEnergy(64, 16) + Wanting(wanted)
        return spen.SPEN(spen.Identity(64), energy, domain, seed=0)

    stage = spen.Stage("a", spen.CrossEntropy(), parts=("local",), epochs=1)
    path = tmp_path / "run.ckpt"
    spen.train(make(1, spen.UnitBox(16)), [stage], rows, checkpoint=path)
    for other in (make(3, spen.UnitBox(16)), make(1, spen.Simplex(4, positions=4))):
        with pytest.raises(spen.CheckpointError, match="differs in model"):
            spen.train(other, [stage], rows, checkpoint=path, resume=True)


def test_a_damaged_header_leaves_the_model_alone(rows, tmp_path):
    from spen.files import read_tensors, write_tensors

    path = tmp_path / "run.ckpt"
    model, stages = build()
    short = [replace(stages[0], epochs=1)]
    spen.train(model, short, rows, checkpoint=path)
    tensors, header = read_tensors(path)
    broken_header = {k: v for k, v in header.items() if k != "epoch"}
    fewer = {k: t for k, t in tensors.items() if k != "weights/energy.terms.0.bias"}
    kind = {"kind": "training"}
    for case in ((tensors, broken_header), (fewer, header), (tensors, kind)):
        write_tensors(path, *case)
        fresh = build()[0]
        before = weights_of(fresh)
        with pytest.raises(spen.CheckpointError):
            spen.train(fresh, short, rows, checkpoint=path, resume=True)
        assert equal(weights_of(fresh), before)
    with pytest.raises(spen.CheckpointError, match="is a folder"):
        spen.train(build()[0], short, rows, checkpoint=tmp_path)
