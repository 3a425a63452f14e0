"""Processes that torchrun starts train the model that one process trains."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import processes_run as runs
import pytest
import torch

import spen
from spen.training.processes import Processes

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
SCRIPT = str(Path(runs.__file__))


def torchrun(*arguments):
    command = [*TORCHRUN, *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def alone(checkpoint=None, callbacks=()):
    return runs.described(*runs.long_run(checkpoint, callbacks))


@pytest.fixture(scope="module")
def whole():
    return alone()


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What each of two processes saw, what they said, and the folder of their files."""
    folder = tmp_path_factory.mktemp("together")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs.checkpoints, "SAVED_TIMES", 0)
        with pytest.raises(KeyboardInterrupt):
            alone(folder / "of-one.ckpt", [runs.stop_at("0", 2)])
    ended = torchrun(SCRIPT, "together", folder)
    assert ended.returncode == 0, ended.stderr
    parts = [folder / f"seen-by-{rank}.pickle" for rank in range(2)]
    return [pickle.loads(part.read_bytes()) for part in parts], ended.stderr, folder


def assert_close(first, second, atol):
    weights, epochs = first
    for name, tensor in second[0].items():
        torch.testing.assert_close(tensor, weights[name], rtol=0, atol=atol, msg=name)
    assert [stage for stage, _, _ in epochs] == [stage for stage, _, _ in second[1]]
    for here, there in zip(epochs, second[1], strict=True):
        np.testing.assert_allclose(
            np.array(here[1:], float), np.array(there[1:], float), rtol=0, atol=atol
        )


def test_losses_of_50_steps_are_those_of_one_process_for_every_objective(seen):
    first, second = (part["losses"] for part in seen[0])
    for name in runs.OBJECTIVES:
        sums = np.array(first[name]) + np.array(second[name])
        # Each has its share of the rows of every step.
        assert min(first[name]) < 0.9 * sums.min(), name
        np.testing.assert_allclose(
            sums / 5, np.array(runs.losses_of(name)) / 5, rtol=0, atol=1e-5, err_msg=name
        )
        assert len(sums) == runs.STEPS


def test_stages_early_stopping_and_lbfgs_are_those_of_one_process(seen, whole):
    """In double precision, so that rounding does not grow."""
    assert_close(whole, seen[0][0]["run"], atol=1e-9)
    epochs = [stage for stage, _, _ in whole[1]]
    assert [epochs.count(stage) for stage in "0123"] == [5, 5, 5, 6]


def test_a_checkpoint_goes_on_with_another_number_of_processes(seen, whole):
    parts, _, folder = seen
    assert_close(whole, parts[0]["gone on"], atol=1e-9)
    assert_close(whole, alone(folder / "of-two.ckpt"), atol=1e-9)
    fitted = runs.fitted(folder / "fit")
    np.testing.assert_allclose(fitted[0], parts[0]["fit"][0], rtol=0, atol=1e-5)


def test_rows_that_come_part_by_part_are_trained_on_as_by_one_process(seen):
    parts, _, folder = seen
    whole = runs.streamed()
    for found in (parts[0]["streamed"], parts[1]["streamed"], runs.streamed(folder / "streamed")):
        for one, other in zip(whole[:3], found[:3], strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
        assert whole[3] == found[3]


def test_models_side_by_side_are_those_of_one_process(seen):
    (weights, losses), (found, others) = runs.side_by_side(), seen[0][0]["side by side"]
    np.testing.assert_allclose(losses, others, rtol=0, atol=1e-5)
    for one, other in zip(weights, found, strict=True):
        for name in one:
            torch.testing.assert_close(one[name], other[name], rtol=0, atol=1e-4)


def test_processes_end_with_the_same_bits_whatever_is_drawn(seen):
    first, second = seen[0]
    for found, other in zip(first["random"].values(), second["random"].values(), strict=True):
        assert_close(found, other, atol=0)
        assert found[1][-1][1] < found[1][0][1]
    for name in ("run", "normed", "tagger"):
        assert_close(first[name], second[name], atol=0)
    np.testing.assert_array_equal(first["fit"][0], second["fit"][0])
    assert first["fit"][1:] == second["fit"][1:]


def test_rows_that_differ_are_refused_by_all(seen):
    first, second = (part["other rows"] for part in seen[0])
    assert "Those of process 1 differ" in first
    assert second.endswith("This one differs in training rows.")


def test_processes_let_go_of_each_other_before_python_ends(seen):
    """A thread that frees a tensor later than that aborts its process."""
    assert not [name for part in seen[0] for name in part["threads"] if "gloo" in name]


def test_the_first_process_alone_shows_progress(seen):
    assert seen[1].count(": done\n") == 1


def test_a_process_that_dies_ends_the_other_and_loses_no_checkpoint(tmp_path, whole):
    # torchrun ends the other one as soon as it looks; before that, this says why it ends.
    ended = torchrun("--monitor-interval", 5, SCRIPT, "dying", tmp_path)
    assert ended.returncode != 0
    assert "Process 0 of 2 has lost another one" in ended.stderr
    assert "exitcode  : -9" in ended.stderr
    left = []
    assert_close(whole, alone(tmp_path / "run.ckpt", [left.append]), atol=1e-9)
    assert 0 < len(left) < len(whole[1]) - 5


def test_spen_fit_by_torchrun_writes_the_model_of_one_process(tmp_path):
    rows = spen.exclusive_blocks(60, 1).train
    names = [f"x{k}" for k in range(64)] + [f"y{k}" for k in range(16)]
    lines = [names, *np.hstack([rows.X, rows.Y]).tolist()]
    (tmp_path / "rows.csv").write_text("\n".join(",".join(map(str, line)) for line in lines))
    ended = torchrun(
        *("-m", "spen", "fit", tmp_path / "rows.csv", "--labels", "-16", "--hidden", "6"),
        *("--epochs", "4", "--dropout", "0", "--objective", "end_to_end", "--no-cross-fit"),
        *("--device", "cpu", "--out", tmp_path / "two.spen", "--json"),
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("held_out_score") == 1
    settings = {"hidden": (6,), "epochs": 4, "dropout": 0.0, "objective": "end_to_end"}
    one = spen.SPENClassifier(**settings, cross_fit=False, device="cpu", random_state=0)
    one.fit(rows.X, rows.Y)
    two = spen.load(tmp_path / "two.spen")
    np.testing.assert_allclose(
        two.predict_proba(rows.X), one.predict_proba(rows.X), rtol=0, atol=1e-5
    )
    assert two.predict_proba(rows.X).std() > 0.01


@pytest.mark.parametrize(("n", "turn", "count"), [(10, 1, 3), (2, 1, 5), (21, 3, 2), (0, 1, 2)])
def test_parts_are_all_of_it_once(n, turn, count):
    parts = [range(n)[Processes(rank, count).part(n, turn)] for rank in range(count)]
    assert [k for part in parts for k in part] == list(range(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= turn
    assert len(parts[0]) == max(map(len, parts))
    assert all(len(part) % turn == 0 for part in parts)
