"""``spen bench``: figures that mean what they say, on a small model."""

import copy
import json
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import spen
from spen.energies.form import Block, nonlinearity
from spen_paper.bench import measurements, model, run, timing
from spen_paper.bench.measurements import compare_energies, compare_rules, f1_of
from spen_paper.bench.model import (
    LOOSER,
    PAPERS_RULE,
    TimedModel,
    autograd_loop,
    matched_stopping,
    words_and_tags,
)
from spen_paper.bench.run import (
    MEANINGS,
    NEED_A_KERNEL,
    measure,
    tables_of,
    tell_what_is_missing,
    write,
)
from spen_paper.bench.timing import Effort, Timings, exponent, interleave
from spen_paper.cli import bench

CPU = torch.device("cpu")
SMALL = Effort(
    rounds=2,
    seconds=0.5,
    labels=(16, 32, 64),
    label_rows=4,
    burst=64,
    largest_table=32,
    rows=(1, 40, 100),
    chunk=64,
    single_rows=3,
)


@pytest.fixture(scope="module")
def data():
    return words_and_tags(n_train=120, n_test=30, n_features=40, n_labels=10)


@pytest.fixture(scope="module")
def subject(data):
    made = spen.SPENClassifier(
        energy=spen.LabelEnergy.unsized(measurements=3, nonlinearity="relu"),
        inference=spen.Descent(PAPERS_RULE, spen.Stopping(60, 1e-3, 1e-4)),
        objective="hinge",
        hidden=(8,),
        dropout=0.0,
        epochs=4,
        decoding="threshold",
        random_state=0,
        folds=1,
        remember_rows=True,
    )
    kept, _ = spen.hold_out(data.train, 0.2, seed=0)
    names = {"label_names": data.label_names, "feature_names": data.feature_names}
    return TimedModel.of(made.fit(kept.X, kept.Y, **names), data, "a small model")


@pytest.fixture
def without_numba(monkeypatch):
    words = "numba is not installed; pip install 'spen[fast]' brings it"
    monkeypatch.setattr("spen.kernels.cpu.trouble_with_numba", lambda: words)


# Times and ratios ---------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_exponents_of_made_up_times(power):
    sizes = [128 << k for k in range(9)]
    noise = np.random.default_rng(0).uniform(0.95, 1.05, 9)
    times = [3e-6 * n**power * wobble for n, wobble in zip(sizes, noise, strict=True)]
    assert exponent(sizes, times) == pytest.approx(power, abs=0.03)


def test_a_ratio_is_taken_within_rounds():
    """A machine that slows down half way through changes times, but no ratio."""
    timings = Timings({"slow": [2.0, 2.0, 20.0, 20.0], "quick": [1.0, 1.0, 10.0, 10.0]})
    assert timings.ratio("slow", "quick") == 2
    assert timings.milliseconds("quick") == 5500


def test_calls_take_turns_and_end_in_time(monkeypatch):
    monkeypatch.setattr(timing, "QUICK", np.inf)  # a busy machine makes no call slow
    order = []
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    timings = interleave(calls, CPU, rounds=3, seconds=9.0)
    # Once to compile; then each round runs a quick call once untimed, and once timed.
    assert "".join(order) == "ab" + 3 * "aabb"
    assert {len(times) for times in timings.seconds.values()} == {3}
    slow = interleave({"sleep": lambda: time.sleep(0.03)}, CPU, rounds=50, seconds=0.1)
    assert 3 <= len(slow.seconds["sleep"]) < 10
    assert slow.milliseconds("sleep") >= 30


def test_a_million_rows_say_how_they_are_known():
    assert measurements.million([1_000_000], [8.0], 1 << 20)["how"] == "measured at once"
    chunked = measurements.million([10, 1_000_000], [1.0, 9000.0], 65_536)
    assert chunked == {"milliseconds": 9000.0, "how": "measured in chunks of 65,536 rows"}


def test_rows_that_take_too_long_are_extrapolated(subject, monkeypatch):
    """A clock on which a row takes a second: 100 rows would take longer than 50 seconds."""
    solved = []

    def call(subject, descent, n, chunk):
        solved.append(n)
        return lambda: None

    monkeypatch.setattr(measurements, "row_call", call)
    monkeypatch.setattr(measurements, "timed", lambda run, device: float(solved[-1]))
    found = measurements.measure_rows(subject, replace(SMALL, longest=50.0))
    assert found["rows"] == [1, 40]
    assert found["million"]["milliseconds"] == 1e9
    assert "extrapolated from 40 rows" in found["million"]["how"]


def test_rows_are_solved_in_chunks(subject, monkeypatch):
    sizes = []
    descent = subject.descent("default", "general")
    whole = type(descent).solve

    def solve(self, problem, *rest):
        sizes.append(problem.rows_like.shape[0])
        return whole(self, problem, *rest)

    monkeypatch.setattr(type(descent), "solve", solve)
    run = measurements.row_call(subject, descent, 100, 64)
    sizes.clear()
    run()
    assert sizes == [50, 50]


# Answers ------------------------------------------------------------------------------


def drawn_form(tau: float) -> spen.Form:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    entropy = torch.full((20,), tau) if tau else None
    return spen.Form(
        linear=2 * draw(20, 7),
        blocks=(Block(draw(3, 7), draw(3), draw(3), nonlinearity("relu")),),
        tau=entropy,
        domain=spen.UnitBox(7) if tau else None,
    )


@pytest.mark.parametrize("rule", [PAPERS_RULE, spen.MirrorBundle()], ids=["paper", "default"])
@pytest.mark.parametrize("tau", [0.0, 0.5])
def test_the_autograd_loop_gives_the_librarys_answers(rule, tau):
    form, domain, stopping = drawn_form(tau), spen.UnitBox(7), spen.Stopping(80, 1e-4, 1e-4)
    wanted = spen.Descent(rule, stopping, backend="general").solve(form, domain)
    found = autograd_loop(form, domain, rule, stopping, domain.uniform(form.rows_like))
    assert torch.equal(found.steps, wanted.steps)
    torch.testing.assert_close(found.energy, wanted.energy)
    torch.testing.assert_close(found.y, wanted.y, atol=1e-4, rtol=0)
    assert wanted.steps.unique().numel() > 3, "rows end by themselves"


def test_every_path_gives_the_same_answers(subject):
    for rule in ("default", "paper"):
        general = subject.solve(subject.descent(rule, "general"))
        whole = subject.predict(subject.descent(rule, "general"))
        by_loop = subject.loop(subject.descent(rule))
        torch.testing.assert_close(whole.energy, general.energy)
        torch.testing.assert_close(by_loop.energy, general.energy, rtol=1e-4, atol=1e-4)


def test_the_forward_pass_is_the_label_wise_model(subject):
    model, classifier = subject.model, subject.classifier
    scaled = classifier.predictor_.scale(subject.timed.X).toarray()
    scores = model.local_scores(model.context(scaled))
    torch.testing.assert_close(subject.forward(), torch.sigmoid(-scores))


def test_the_default_classifier_differs_in_its_rule_alone(subject):
    changed = subject.default_classifier.plan_.prediction
    kept = subject.classifier.plan_.prediction
    assert kept.inference.rule == PAPERS_RULE
    assert changed.inference.rule == spen.Descent().rule != PAPERS_RULE
    assert changed.inference.stopping == subject.matched_stopping
    assert changed.objective == kept.objective


def test_the_matched_tolerance_is_the_loosest_that_is_as_good():
    """Energies that rise with the tolerance: at 3e-3 the default rule is as good as the paper's."""

    def solve(descent):
        tolerance = descent.stopping.objective_rtol
        energy = torch.tensor([3e-3 if descent.rule == PAPERS_RULE else tolerance])
        return spen.Solution(energy[:, None], energy, energy, energy)

    stopping = spen.Stopping(70, 1e-3, 1e-5)
    found = matched_stopping(solve, stopping)
    assert found == replace(stopping, objective_rtol=2e-3)
    assert tuple(sorted(LOOSER, reverse=True)) == LOOSER
    assert matched_stopping(solve, replace(stopping, objective_rtol=1.0)).objective_rtol == 1.0


def test_the_default_rule_ends_no_higher_than_the_papers(subject):
    rules = compare_rules(subject)
    assert rules["default"]["energy"] <= rules["paper"]["energy"]
    assert rules["default"]["tolerance"] >= rules["default_same_tolerance"]["tolerance"]
    assert rules["paper"]["rule"] == str(PAPERS_RULE)
    batch = model.batch_of(subject.classifier, subject.judged)
    steps = subject.predict(subject.descent("paper", "general"), batch).steps.double().mean()
    assert rules["paper"]["steps"] == pytest.approx(float(steps), rel=0.05)
    assert rules["steps_paper_over_default"] == pytest.approx(
        rules["paper"]["steps"] / rules["default"]["steps"]
    )


def test_energies_are_compared_with_room_for_rounding():
    ours, theirs = torch.tensor([-1.0, -1.0, -1.0, 5.0]), torch.tensor([-2.0, -1.00005, 0.0, 6.0])
    assert compare_energies(ours, theirs) == {"lower": 0.5, "equal": 0.25, "higher": 0.25}


def test_no_row_has_a_say_in_its_own_threshold():
    """Even rows want a low threshold and odd ones a high one, so each half misleads the other."""
    truth = np.array([[1, 0], [1, 0]] * 10)
    soft = torch.tensor([[0.3, 0.1], [0.9, 0.5]] * 10)
    steps = torch.ones(20, dtype=torch.int64)
    f1 = f1_of(truth, spen.Solution(soft, torch.zeros(20), steps, steps))
    # Even rows get a threshold from (.5, .9), so no label; odd ones one from (.1, .3), so both.
    assert f1 == pytest.approx(100 * (0 + 2 / 3) / 2)


# The subject --------------------------------------------------------------------------


def test_generated_rows_have_bibtexs_shape_and_structure():
    data = words_and_tags(n_train=1500, n_test=10)
    X, Y = data.train.X, data.train.Y.toarray().astype(float)
    assert set(np.unique(X.data)) == {1.0}
    assert 40 < X.sum() / 1500 < 90
    assert 1.5 < Y.sum() / 1500 < 4
    together = np.corrcoef(Y[:, [0, 19, 38, 1]].T)
    assert min(together[0, 1], together[0, 2]) > 0.15, "labels of a group go together"
    assert together[0, 3] < 0
    again = words_and_tags(n_train=1500, n_test=10)
    assert (again.train.X != X).nnz == 0


def test_rows_that_judge_were_not_seen_in_training(subject, data):
    classifier = subject.classifier
    assert not classifier.seen_in_training(subject.judged.X).any()
    assert classifier.seen_in_training(subject.learned.X).all()
    assert len(subject.judged) + len(subject.learned) == len(data.train)
    assert subject.timed.X.shape == data.test.X.shape
    forgets = copy.copy(classifier)
    forgets.training_rows_ = None
    assert TimedModel.of(forgets, data, "").judged.X.shape == data.test.X.shape


def test_classes_are_refused():
    X = np.random.default_rng(0).normal(size=(40, 3))
    made = spen.SPENClassifier(hidden=(4,), dropout=0.0, epochs=1, random_state=0)
    made.fit(X, (X[:, 0] > 0).astype(int))
    split = spen.Split(X, np.zeros((40, 2)))
    with pytest.raises(spen.InputError, match="one class a row"):
        TimedModel.of(made, spen.Dataset("d", split, None, ("a", "b", "c"), ("0", "1")), "")


def test_the_papers_model_is_trained_once_and_kept(data, tmp_path, monkeypatch, capsys):
    table = model.settings_of("bibtex")["spen-paper"] | {"hidden": [8, 8]}
    monkeypatch.setattr(model, "settings_of", lambda name: {"spen-paper": table})
    first = model.subject_on(data, tmp_path, CPU, shorter=40)
    assert "kept in" in capsys.readouterr().err
    assert [stage.epochs for stage in first.classifier.plan_.stages] == [1, 1, 1]
    assert first.classifier.plan_.prediction.inference.rule == PAPERS_RULE
    again = model.subject_on(data, tmp_path, CPU, shorter=40)
    assert capsys.readouterr().err == ""
    assert torch.equal(again.forward(), first.forward())
    other = words_and_tags(n_train=120, n_test=30, n_features=40, n_labels=10, seed=1)
    model.subject_on(other, tmp_path, CPU, shorter=40)
    assert "Training" in capsys.readouterr().err, "other rows, another model"


def test_without_bibtex_rows_are_generated(monkeypatch, tmp_path, capsys):
    made = []
    monkeypatch.setattr(model, "find", lambda name: None)
    monkeypatch.setattr(model, "subject_on", lambda *given, **more: made.append((given, more)))
    model.paper_subject(tmp_path, CPU)
    ((generated, *_), more) = made[0]
    assert generated.train.X.shape == (4880, 1836)
    assert generated.train.Y.shape == (4880, 159)
    assert more["shorter"] > 1
    assert "spen data fetch bibtex" in capsys.readouterr().err


# The whole ----------------------------------------------------------------------------


def test_the_file_is_whole_and_holds_every_figure(subject, tmp_path, capsys):
    pytest.importorskip("numba")
    record = measure(subject, SMALL)
    paths = write(record, tmp_path / "new")
    tell_what_is_missing(record)
    assert [path.name for path in paths] == ["bench.json", "bench.png"]
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["bench.json", "bench.png"]
    read = json.loads(paths[0].read_text())
    assert read == json.loads(json.dumps(record))
    assert tuple(read["figures"]) == tuple(MEANINGS)
    assert read["missing"] == {}
    assert all(np.isfinite(value) for value in read["figures"].values())
    # The exponent of so few and small sizes is noise.
    assert all(v > 0 for key, v in read["figures"].items() if key != "step_time_exponent_in_labels")
    assert "not measured" not in capsys.readouterr().err
    machine = read["machine"]
    assert machine["cpu"]
    assert machine["threads"] == torch.get_num_threads()
    assert machine["versions"]["torch"] == torch.__version__
    ratios, times = read["prediction"]["ratios"], read["prediction"]["milliseconds"]
    assert set(times) >= {"mlp_forward", "predict_fused", "solve_general", "autograd_loop_paper"}
    assert read["figures"]["predict_over_mlp"] == ratios["predict_fused_over_mlp"]
    for one in read["agreement"].values():
        assert one["same_energy"] > 0.9
    assert read["labels"]["crf"]["labels"] == [16, 32]
    assert read["labels"]["crf"]["parameters"] == [16 + 16**2, 32 + 32**2]
    assert read["figures"]["parameters_exponent_in_labels"] == pytest.approx(1, abs=0.1)
    for title, header, lines in tables_of(record):
        assert title
        assert {len(line) for line in lines} == {len(header)}


def test_a_write_that_fails_leaves_the_old_file(subject, tmp_path):
    (tmp_path / "bench.json").write_text("old")
    with pytest.raises(ValueError, match="JSON"):
        write({"figures": {"predict_over_mlp": float("nan")}}, tmp_path)
    assert (tmp_path / "bench.json").read_text() == "old"


def test_without_numba_it_says_what_is_lost(subject, without_numba, capsys):
    record = measure(subject, SMALL)
    tell_what_is_missing(record)
    said = capsys.readouterr().err
    assert tuple(record["figures"]) == tuple(MEANINGS)
    lost = {key for key, value in record["figures"].items() if value is None}
    assert lost == set(NEED_A_KERNEL) == set(record["missing"])
    for key in lost:
        assert f"{key} was not measured: numba is not installed" in said
    assert "pip install 'spen[fast]'" in said
    assert "times as long as the MLP's forward pass" in said
    assert tables_of(record)


def test_the_command_prints_one_flat_map(subject, tmp_path, monkeypatch, capsys, without_numba):
    monkeypatch.setattr(Effort, "of", lambda device: SMALL)
    model, file = tmp_path / "m.spen", tmp_path / "rows.npz"
    subject.classifier.save(model)
    names = {"feature_names": subject.classifier.feature_names_}
    labels = subject.classifier.label_names_.astype(str)
    X, Y = subject.timed.X.toarray(), subject.timed.Y.toarray()
    np.savez(file, X=X, Y=Y, label_names=labels, **names)
    bench(model=model, data=str(file), out=tmp_path / "out", device="cpu", json=True)
    shown = capsys.readouterr()
    assert tuple(json.loads(shown.out)) == tuple(MEANINGS)
    record = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert record["subject"] == f"{model} on {file}"
    assert record["figures"] == json.loads(shown.out)
    monkeypatch.setattr(run, "measure", lambda subject: record)
    bench(model=model, data=str(file), out=tmp_path / "out", device="cpu")
    shown = capsys.readouterr()
    assert "predict_over_mlp" in shown.out
    assert "torch" in shown.out
    with pytest.raises(spen.InputError, match="is a file"):
        bench(out=model, device="cpu")
    with pytest.raises(spen.InputError, match="--data needs --model"):
        bench(data=str(file), out=tmp_path / "out", device="cpu")


def test_help_does_not_wait_for_torch():
    program = (
        "import sys; from spen.cli import main\n"
        "try: main(['bench', '--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'numpy', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "--device" in done.stdout
    assert "--json" in done.stdout
    assert done.stdout.strip().endswith("[]"), done.stderr
