"""What SPENClassifier does by itself, and that whoever says otherwise is taken at their word."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

import spen
from spen.estimators import recipe
from spen.estimators.calibration import Calibration
from spen.estimators.fit import choose_energy, fit
from spen.estimators.judging import Verdict, best_verdict, losses_when_known
from spen.estimators.plan import LINEAR, Base, Choice, Shape
from spen.estimators.predictor import solve
from spen.estimators.recipe import make_plan
from spen.estimators.runs import Fit, HeldOut

WIDE = Shape(rows=500, features=2000, labels=20, sparse=True, exclusive=False)
APART = {"cross_fit": True, "linear_member": True, "folds": 3}
TOGETHER = {"cross_fit": False, "linear_member": False}


def plan_of(shape=WIDE, **settings):
    return make_plan(spen.SPENClassifier(**settings).get_params(), shape)


def test_wide_sparse_inputs_get_a_logistic_regression_and_a_cross_fitted_energy():
    assert plan_of() == plan_of(**APART)
    assert plan_of(folds=4) == plan_of(**APART | {"folds": 4})
    assert plan_of(linear_member=False) == plan_of(**APART | {"linear_member": False})
    assert plan_of(members=2) == plan_of(members=2, **APART)


@pytest.mark.parametrize("other", [{"features": 500}, {"rows": 30_000}, {"features": 200_000}])
def test_on_other_data_the_energy_is_cross_fitted_to_networks_alone(other):
    shape = replace(WIDE, **other)
    assert plan_of(shape) == plan_of(shape, **APART | {"linear_member": False})


def test_beside_it_dense_rows_try_an_energy_over_scores_that_are_linear_in_x():
    shape = replace(WIDE, sparse=False, rows=2000)
    plan = plan_of(shape)
    assert replace(plan, rivals=()) == plan_of(shape, **APART | {"linear_member": False})
    (rival,) = plan.rivals
    assert rival.chosen.hidden == ()
    assert not rival.cross_fit


@pytest.mark.parametrize("other", [{"exclusive": True}, {"rows": 80}])
def test_for_classes_and_very_few_rows_the_energy_is_trained_with_its_features(other):
    shape = replace(WIDE, **other)
    assert plan_of(shape) == plan_of(shape, **TOGETHER)


def test_energies_of_the_user_are_not_chosen():
    assert plan_of(energy="label", cross_fit=True).energies == ()


@pytest.mark.parametrize(
    "own",
    [
        {"energy": "label"},
        {"energy": "conditional"},
        {"energy": "pairwise"},
        {"energy": "local"},
        {"energy": spen.LabelEnergy.unsized(measurements=3)},
        {"objective": "f1"},
        {"objective": "hinge"},
        {"objective": spen.UnrolledLikelihood(entropy=1.0)},
        {"inference": spen.Descent(stopping=spen.Stopping(max_steps=3))},
        {"stages": [spen.Stage("all", spen.CrossEntropy())]},
        {"hidden": ()},
        {"missing": 0.2},
        {"missing": "auto"},
        {"folds": 1},
        {"held_out": 0.3},
        {"refit": False},
        {"cross_fit": False},
    ],
    ids=str,
)
def test_who_says_how_to_train_is_taken_at_their_word(own):
    assert plan_of(**own) == plan_of(**TOGETHER | own)


def test_cross_fitting_that_is_asked_for_adds_nothing_else():
    assert plan_of(cross_fit=True) == plan_of(**APART | {"linear_member": False})


def test_switches_are_true_false_or_auto():
    for name in ("cross_fit", "linear_member"):
        with pytest.raises(spen.InputError, match=f"{name} must be True, False or 'auto'"):
            plan_of(**{name: "yes"})
    with pytest.raises(spen.InputError, match="Add cross_fit=True"):
        plan_of(linear_member=True, cross_fit=False)


@pytest.fixture(scope="module")
def words() -> spen.Split:
    """A thousand features, mostly zero, of which two give each label away."""
    random = np.random.default_rng(0)
    Y = (random.random((120, 5)) < 0.3).astype(int)
    Y[:, 1] = Y[:, 0]
    X = random.random((120, 1000)) < 0.01
    X[:, :10] |= (np.repeat(Y, 2, axis=1) == 1) & (random.random((120, 10)) < 0.7)
    return spen.Split(sparse.csr_matrix(X.astype(float)), Y)


def test_the_whole_public_face_works_with_an_energy_trained_apart(words, tmp_path):
    quick = {"hidden": (8,), "dropout": 0.1, "epochs": 8, "random_state": 0}
    clf = spen.SPENClassifier(**quick).fit(words.X, words.Y)
    said = spen.SPENClassifier(**quick, **APART).fit(words.X, words.Y)
    soft = clf.predict_proba(words.X)
    np.testing.assert_array_equal(soft, said.predict_proba(words.X))
    assert ((soft > 0) & (soft < 1)).all()
    assert spen.example_f1(words.Y, clf.predict(words.X)) > 0.8
    assert (clf.energy(words.X, words.Y) < clf.energy(words.X, 1 - words.Y)).mean() > 0.9
    assert clf.structure().measurements.shape[1] == 5
    # Two labels that are always alike are what the energy pulls together most.
    first, second, value = clf.structure().pairs(1)[0]
    assert {first, second} == {0, 1}
    assert value < 0
    known = np.full(words.Y.shape, np.nan)
    known[:, 0] = 1
    given = clf.predict_proba(words.X, known=known)
    assert (given[:, 0] == 1).all()
    odds, odds_given = (p[:, 1] / (1 - p[:, 1]) for p in (soft, given))
    assert np.median(odds_given / odds) > 1.4
    clf.save(tmp_path / "model.spen")
    again = spen.load(tmp_path / "model.spen")
    np.testing.assert_array_equal(again.predict_proba(words.X), soft)
    assert again.get_params()["cross_fit"] == "auto"


def test_trials_are_not_trained_again(words, monkeypatch):
    """What the first fold told of the winner is kept, and the linear model of a fold is one."""
    made = []
    original = Fit._run

    def spy(self, plan, kept, held):
        made.append((plan.trial.name == LINEAR, len(kept)))
        return original(self, plan, kept, held)

    monkeypatch.setattr(Fit, "_run", spy)
    # Side by side with others a run differs in its last bits.
    monkeypatch.setattr("spen.estimators.runs.MOST_TOGETHER", 0)
    plan = plan_of(epochs=2)
    plan = replace(plan, choices=(Choice((4,)), Choice((6,))), trial_folds=1, energies=())

    def run(plan):
        made.clear()
        return fit(plan, words, spen.UnitBox(5), seed=0)

    fitted = run(plan)
    networks, linears = ([n for linear, n in made if linear is kind] for kind in (False, True))
    assert networks == [80, 80, 80, 80, 120]
    assert linears == [80, 80, 80, 120]
    alone = run(fitted.plan)
    assert len(made) == 8
    for mine, theirs in zip(fitted.model.parameters(), alone.model.parameters(), strict=True):
        assert mine.equal(theirs)
    assert fitted.tuned == alone.tuned
    assert fitted.score == alone.score


@pytest.mark.parametrize("raw", [False, True])
def test_local_energies_begin_at_the_labels_frequencies_unless_all_is_raw(words, raw):
    plan = plan_of(energy="local", hidden=(), epochs=1)
    stages = tuple(replace(stage, lr=1e-9) for stage in plan.stages)
    plan = replace(plan, stages=stages, members=1, linear_member=False, raw=raw)
    model, _ = Fit(words, spen.UnitBox(5), seed=0).run(plan)
    shares = np.clip(words.Y.mean(0), 0.002, 0.998)
    begun = np.zeros(5) if raw else np.log(1 / shares - 1)
    found = model.energy.bias.detach().numpy()
    np.testing.assert_allclose(found, begun, atol=1e-5)
    assert abs(begun).max() > 0.1 or raw


class AsTheyAre(Base):
    """The rows themselves are the features."""

    def fit(self, rows, seed=0):
        return spen.Identity(rows.X.shape[1]), rows


def test_rows_keep_their_weights_behind_a_base(words):
    """Then the base adds nothing, and the energy is that of training on the rows alone."""
    plan = replace(plan_of(energy="local", hidden=(), epochs=2), linear_member=False, members=1)
    behind = replace(plan, base=AsTheyAre())
    work = Fit(words, spen.UnitBox(5), seed=0)
    heavy = replace(words, weight=np.linspace(0, 2, len(words), dtype=np.float32))
    model, _ = replace(work, rows=heavy).run(behind)
    alone, _ = work.run_energy(plan, heavy)
    unweighed, _ = work.run_energy(plan, words)
    assert model.energy.weight.equal(alone.energy.weight)
    assert not model.energy.weight.equal(unweighed.energy.weight)


def verdict_of(loss: float, right: int, wrong: int = 0) -> Verdict:
    """A hundred rows: the first ``right`` ones score 1, the last ``wrong`` ones −1."""
    scores = np.repeat([1.0, 0.0, -1.0], [right, 100 - right - wrong, wrong])
    calibration = Calibration(1.0, np.zeros(1), False)
    return Verdict(calibration, "half", {}, np.full(100, loss), scores, float(scores.mean()))


@pytest.mark.parametrize(
    ("others", "best"),
    [
        # A mean gain of 0.02, with a standard error of 0.042.
        ([verdict_of(0.5, 10, 8)], 0),
        # 0.09 ± 0.045, and 0.08 ± 0.049 with a lower score.
        ([verdict_of(0.5, 15, 6), verdict_of(0.5, 16, 8)], 1),
        # The last is better than the one before it by less than its error, but both are clearly
        # better than the one of least loss.
        ([verdict_of(0.5, 30), verdict_of(0.6, 34, 3)], 2),
    ],
    ids=["noise", "clear", "clearer"],
)
def test_the_least_log_loss_decides_unless_scores_speak_clearly(others, best):
    verdicts = [verdict_of(0.4, 0), *others]
    assert best_verdict(verdicts, raw=False) == best
    first, *rest = verdicts
    assert best_verdict([*rest, first], raw=False) == (best - 1) % len(verdicts), "in any order"


def test_raw_scores_are_compared_as_they_are_and_the_last_of_equal_ones_is_taken():
    verdicts = [verdict_of(0.4, 50), verdict_of(0.5, 51), verdict_of(0.6, 52, 1)]
    assert best_verdict(verdicts, raw=True) == 2
    assert best_verdict(verdicts[:2], raw=True) == 1
    assert best_verdict(verdicts[::-1], raw=True) == 1


@pytest.mark.parametrize("labels", ["dense", "sparse", "missing"])
def test_hidden_labels_are_judged_one_row_like_another(labels):
    """The oracle goes row by row, label by label."""
    random = np.random.default_rng(1)
    scores = random.normal(size=(30, 6)).astype(np.float32)
    truth = (random.random((30, 6)) < 0.4).astype(np.float32)
    if labels == "missing":
        truth[random.random(truth.shape) < 0.2] = np.nan
    energy = spen.ScoreEnergy(6) + spen.SurpriseEnergy(6, measurements=4)
    with torch.no_grad():
        energy.terms[1].readout.fill_(0.8)
    model = spen.SPEN(spen.Identity(6), energy, spen.UnitBox(6))
    plan = plan_of(cross_fit=True)
    given = sparse.csr_matrix(truth) if labels == "sparse" else truth
    found = losses_when_known(model, plan.prediction, spen.Split(scores, given), 3)
    told = np.random.default_rng(3).random(truth.shape, dtype=np.float32)
    expected = np.zeros(30)
    for row in range(30):
        for share in (0.0, 0.25, 0.5):
            known = np.where(told[row] < share, truth[row], np.nan)[None]
            y = solve(model, plan.prediction, scores[row : row + 1], known).y[0].numpy()
            losses = [
                -np.log(y[k] if truth[row, k] else 1 - y[k])
                for k in range(6)
                if told[row, k] >= share and not np.isnan(truth[row, k])
            ]
            expected[row] += (np.mean(losses) if losses else 0.0) / 3
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_a_wide_energy_is_taken_where_it_is_clearly_better(monkeypatch):
    """Twelve labels of which each decides the next but one: a narrow energy cannot tell them."""
    random = np.random.default_rng(0)
    Y = np.repeat(random.random((400, 6)) < 0.5, 2, axis=1).astype(np.float32)
    scores = spen.Split(0.3 * random.normal(size=Y.shape).astype(np.float32), Y)
    plan = plan_of(replace(WIDE, rows=400, labels=12), cross_fit=True, epochs=25)
    narrow, wide = (
        spen.ScoreEnergy.unsized() + spen.SurpriseEnergy.unsized(measurements=width)
        for width in (1, 40)
    )
    folds = [(np.arange(200), np.arange(200, 400))]
    held = HeldOut(None, None, None, 1, np.arange(400), None, scores, None)
    work = Fit(scores, spen.UnitBox(12), 0)
    chosen, run = choose_energy(work, replace(plan, energies=(narrow, wide)), folds, held)
    assert chosen.energy == wide
    assert run[0].energy.terms[1].measurements.shape == (40, 12)
    # With as many measurements once more nothing is gained, and the narrow one is kept.
    chosen, run = choose_energy(work, replace(plan, energies=(wide, wide)), folds, held)
    assert chosen.energy == wide
    monkeypatch.setattr("spen.estimators.fit.CLEARLY", 1e9)
    assert (
        choose_energy(work, replace(plan, energies=(narrow, wide)), folds, held)[0].energy == narrow
    )


def test_energies_of_many_labels_are_averaged(monkeypatch, tmp_path):
    """One energy in the end, whose value is the mean of the members', each of a seed of its own."""
    random = np.random.default_rng(0)
    Y = np.repeat(random.random((120, 6)) < 0.5, 2, axis=1).astype(np.float32)
    scores = spen.Split(random.normal(size=Y.shape).astype(np.float32), Y)
    plan = plan_of(replace(WIDE, rows=120, labels=12), cross_fit=True, epochs=3)
    plan = replace(plan, energies=plan.energies[:1], energy_members=3)
    folds = [(np.arange(60), np.arange(60, 120))]
    held = HeldOut(None, None, None, 1, np.arange(120), None, scores, None)
    work = Fit(scores, spen.UnitBox(12), 5)
    chosen, (model, _) = choose_energy(work, plan, folds, held)
    assert chosen.energy_members == 3
    # The fold's energy has learned from what the fold keeps, and from nothing else.
    kept = scores.rows(folds[0][0])
    [others] = work.run_energies(chosen, kept, [np.arange(60)], first=1)
    runs = [work.run_energy(chosen, kept), *others]
    context = model.context(scores.X[60:])
    y = torch.rand(60, 12, generator=torch.Generator().manual_seed(0))
    values = [each.energy.bind(context).value(y) for each, _ in runs]
    assert not any(torch.allclose(one, other) for one, other in itertools.combinations(values, 2))
    torch.testing.assert_close(model.energy.bind(context).value(y), sum(values) / 3)
    # In the plan of the trained model, and so in its file, it is one wide energy.
    ended = chosen.with_mean_energy()
    assert (ended.measurements, ended.energy_members) == (3 * chosen.measurements, 1)
    assert (
        ended.energy.size(12, spen.UnitBox(12)).state_dict().keys()
        == model.energy.state_dict().keys()
    )
    many = plan_of(replace(WIDE, rows=3000, labels=recipe.MANY_LABELS), cross_fit=True)
    fewer = plan_of(replace(WIDE, rows=3000, labels=recipe.MANY_LABELS - 1), cross_fit=True)
    assert (many.energy_members, fewer.energy_members) == (recipe.ENERGY_MEMBERS, 1)
    monkeypatch.setattr(recipe, "MANY_LABELS", 6)
    settings = {"hidden": (), "epochs": 2, "random_state": 0, "cross_fit": True}
    clf = spen.SPENClassifier(**settings).fit(scores.X, Y[:, ::2])
    assert clf.plan_.measurements == len(clf.model_.energy.terms[1].bias)
    assert clf.plan_.measurements in (4 * 64, 4 * 256)
    clf.save(path := tmp_path / "many.spen")
    np.testing.assert_array_equal(
        spen.load(path).predict_proba(scores.X), clf.predict_proba(scores.X)
    )


def test_energies_that_are_not_averaged_keep_their_measurements(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    Y = (X @ np.ones((3, 4)) + np.arange(4) > 1).astype(np.float32)
    two = spen.LabelEnergy.unsized(measurements=3) + spen.SurpriseEnergy.unsized(measurements=5)
    settings = {"hidden": (), "epochs": 2, "cross_fit": True, "random_state": 0}
    clf = spen.SPENClassifier(two, **settings).fit(X, Y)
    made = [each.settings["measurements"] for each in clf.plan_.energy.terms[1:]]
    assert made == [3, 5]
    clf.save(path := tmp_path / "two.spen")
    np.testing.assert_array_equal(spen.load(path).predict_proba(X), clf.predict_proba(X))


def test_thousands_of_labels_get_wider_networks_and_stronger_decay():
    shape = replace(WIDE, rows=recipe.VERY_MANY_ROWS + 1, features=50_000, labels=recipe.THOUSANDS)
    fewer, fewer_rows = replace(shape, labels=1999), replace(shape, rows=recipe.VERY_MANY_ROWS)
    wide, plain, small = (plan_of(each, cross_fit=True) for each in (shape, fewer, fewer_rows))
    assert wide.chosen.hidden == (1024, 1024)
    assert plain.chosen.hidden == small.chosen.hidden == (400, 512)
    assert wide.trial.epochs == pytest.approx(recipe.LONG * plain.trial.epochs, abs=1)
    assert [each.stages[0].weight_decay for each in (wide, plain, small)] == [0.1, 0.01, 0.01]
    assert [each.trial.weight_decay for each in (wide, plain, small)] == [0.01, 0.01, 0.01]
    # Classes are many before there is anything to learn of them together.
    assert plan_of(replace(shape, exclusive=True)).chosen.hidden == (400, 512)
    asked = plan_of(shape, cross_fit=True, weight_decay=0.0)
    assert asked.stages[0].weight_decay == 0.0


def test_probabilities_are_calibrated_by_how_much_is_known():
    """Rows of which half is known are calibrated by such rows, and others in proportion."""
    random = np.random.default_rng(0)
    Y = np.repeat(random.random((600, 4)) < 0.4, 2, axis=1).astype(np.float32)
    X = Y @ random.normal(size=(8, 5)) + 2 * random.normal(size=(600, 5))
    clf = spen.SPENClassifier(hidden=(16,), dropout=0.2, epochs=10, random_state=0).fit(X, Y)
    half = clf.predictor_.calibration.half
    assert half is not None
    known = np.where(random.random(Y.shape) < 0.5, Y, np.nan)
    soft = clf.predict_proba(X, known=known)
    raw = clf.predictor_.solve(clf.predictor_.scale(X), known).y.numpy().clip(1e-6, 1 - 1e-6)
    share = np.minimum(1, 2 * (~np.isnan(known)).mean(1, keepdims=True))
    none = clf.predictor_.calibration
    scale = none.scale + share * (half.scale - none.scale)
    shift = none.shift + share * (half.shift - none.shift)
    odds = scale * np.log(raw / (1 - raw)) + shift
    hidden = np.isnan(known) & (np.abs(odds) < 9)
    np.testing.assert_allclose(soft[hidden], (1 / (1 + np.exp(-odds)))[hidden], rtol=1e-3)
