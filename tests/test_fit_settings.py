"""Settings that people expect of an estimator: presets, stopping, own held-out rows, going on."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_multilabel_classification

import spen
from spen.errors import UndertrainedWarning
from spen.estimators.plan import Shape
from spen.estimators.recipe import make_plan

QUICK = {"hidden": (8,), "epochs": 4, "dropout": 0.1, "random_state": 0, "device": "cpu"}
DENSE = Shape(300, 30, 6, sparse=False, exclusive=False)
SPARSE = Shape(3000, 2000, 40, sparse=True, exclusive=False)


@pytest.fixture(scope="module")
def rows():
    return make_multilabel_classification(140, 10, n_classes=4, random_state=3)


def plan_of(shape, **own):
    return make_plan(spen.SPENClassifier(**own).get_params(), shape)


def weights(clf):
    return [weight.detach().clone() for weight in clf.model_.parameters()]


def test_presets_say_how_much_is_tried():
    for shape in (DENSE, SPARSE):
        fast, default, best = (plan_of(shape, preset=p) for p in ("fast", "default", "best"))
        assert (len(fast.choices), fast.folds, fast.cross_fit) == (1, 1, False)
        assert not fast.rivals
        assert len(default.choices) == (3 if shape.sparse else 1)
        assert (default.members, len(default.bases)) == (1, 0 if shape.sparse else 1)
        assert (best.members, best.cross_fit, best.linear_member) == (3, True, shape.sparse)
    # What is set by hand stays.
    own = plan_of(DENSE, preset="best", members=2, cross_fit=True)
    assert own.members == 2
    assert plan_of(DENSE, preset="fast", dropout=0.4).chosen.dropout == 0.4
    assert plan_of(DENSE, preset="fast", cross_fit=True).folds == 3
    with pytest.raises(spen.UnknownNameError, match="Did you mean 'best'"):
        plan_of(DENSE, preset="bst")


@pytest.mark.parametrize("preset", ["fast", "best"])
def test_presets_fit_and_come_back(rows, preset, tmp_path):
    quick = QUICK | {"dropout": "auto", "epochs": 1}
    clf = spen.SPENClassifier(preset=preset, **quick).fit(*rows)
    clf.save(tmp_path / "m.spen")
    again = spen.load(tmp_path / "m.spen")
    assert again.preset == preset
    assert np.array_equal(again.predict(rows[0]), clf.predict(rows[0]))


def test_a_rate_of_ones_own():
    plan = plan_of(DENSE, lr=0.02, cross_fit=False)
    assert plan.stages[0].lr == plan.trial.lr == 0.02
    assert plan.stages[0].global_lr != 0.02
    with pytest.raises(spen.InputError, match="lr must be"):
        plan_of(DENSE, lr=-1)


def test_early_stopping_ends_stages_and_the_last_fit_makes_as_many_epochs(rows):
    settings = QUICK | {"epochs": 40, "lr": 0.1, "early_stopping": 2}
    clf = spen.SPENClassifier(**settings).fit(*rows)
    ran, last = clf.history_.epochs, clf.refit_history_.epochs
    assert len(ran) < 40
    best = clf.history_.best_epoch(ran[0].stage)
    assert len(last) == best
    assert len(ran) == best + 2
    assert plan_of(SPARSE, early_stopping=True).cross_fit is False
    with pytest.raises(spen.InputError, match="Leave one of the two out"):
        plan_of(SPARSE, early_stopping=True, cross_fit=True)
    with pytest.raises(spen.InputError, match="early_stopping must be"):
        plan_of(DENSE, early_stopping=-1)


def test_rows_to_tune_by_may_be_given(rows):
    X, Y = rows
    clf = spen.SPENClassifier(**QUICK).fit(X[:90], Y[:90], eval_set=(X[90:], Y[90:]))
    # They decide how labels are read, and nothing else.
    other = spen.SPENClassifier(**QUICK).fit(X[:90], Y[:90], eval_set=(X[90:], 1 - Y[90:]))
    for mine, theirs in zip(weights(clf), weights(other), strict=True):
        assert mine.equal(theirs)
    assert clf.held_out_score_ != other.held_out_score_
    assert clf.held_out_score_ == pytest.approx(clf.score(X[90:], Y[90:]))
    assert clf.refit_history_ is None
    lists = [[f"l{i}" for i in np.flatnonzero(row)] for row in Y]
    named = spen.SPENClassifier(**QUICK).fit(X[:90], lists[:90], eval_set=(X[90:], lists[90:]))
    assert named.held_out_score_ == pytest.approx(named.score(X[90:], lists[90:]))
    thin = sparse.csr_array(X), sparse.csr_array(Y)
    spen.SPENClassifier(**QUICK).fit(
        thin[0][:90], thin[1][:90], eval_set=(thin[0][90:], thin[1][90:])
    )
    for wrong, words in (((X[90:, :3], Y[90:]), "3 features"), (X, "must be a pair")):
        with pytest.raises(spen.InputError, match=words):
            spen.SPENClassifier(**QUICK).fit(X, Y, eval_set=wrong)
    with pytest.raises(spen.InputError, match="Leave eval_set out"):
        spen.SPENClassifier(cross_fit=True, **QUICK).fit(X, Y, eval_set=(X, Y))


def test_callbacks_see_every_epoch(rows):
    seen = []
    clf = spen.SPENClassifier(**QUICK, folds=1).fit(*rows, callbacks=[seen.append])
    assert len(seen) == len(clf.history_.epochs) or len(seen) == 2 * len(clf.history_.epochs)
    assert seen[0].epochs == 4
    assert np.isfinite(seen[0].loss)


def test_a_fit_may_go_on(rows):
    X, Y = rows
    clf = spen.SPENClassifier(warm_start=True, **QUICK).fit(X, Y)
    before = weights(clf)
    first = clf.refit_history_.epochs[0].loss
    clf.set_params(lr=1e-12).fit(X, Y)
    for mine, theirs in zip(weights(clf), before, strict=True):
        # Energies have a rate of their own.
        if mine.shape[0] != 64 and mine.ndim == 2:
            assert (mine - theirs).abs().max() < 1e-3
    clf.set_params(lr="auto").fit(X, Y)
    assert clf.refit_history_.epochs[0].loss < first
    with pytest.raises(spen.InputError, match="features and labels of the fit before"):
        clf.fit(X, Y[:, :3])
    with pytest.raises(spen.InputError, match="goes on with layers"):
        clf.set_params(hidden=(5,)).fit(X, Y)
    apart = spen.SPENClassifier(warm_start=True, cross_fit=True, **QUICK).fit(X, Y)
    with pytest.raises(spen.InputError, match="cross_fit=False in both"):
        apart.fit(X, Y)


def test_rare_labels_may_count_more(rows):
    X, Y = rows
    counts = Y.sum(0)
    balanced = spen.SPENClassifier(label_weight="balanced", **QUICK).fit(X, Y)
    said = spen.SPENClassifier(label_weight=1 / counts, **QUICK).fit(X, Y)
    plain = spen.SPENClassifier(**QUICK).fit(X, Y)
    soft = [clf.predict_proba(X) for clf in (balanced, said, plain)]
    assert np.array_equal(soft[0], soft[1])
    assert not np.array_equal(soft[0], soft[2])
    with pytest.raises(spen.UnknownNameError, match="Did you mean 'balanced'"):
        spen.SPENClassifier(label_weight="balance", **QUICK).fit(X, Y)


def test_a_model_that_has_learned_little_is_told():
    data = spen.exclusive_blocks(n_train=99, n_test=10)
    quick = {"hidden": (2,), "dropout": 0.0, "random_state": 0}
    with pytest.warns(UndertrainedWarning, match="the same for every row|still learning fast"):
        spen.SPENClassifier(epochs=1, **quick).fit(data.train.X, data.train.Y)
    X, Y = make_multilabel_classification(200, 10, n_classes=4, random_state=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spen.SPENClassifier(random_state=0, dropout=0.25).fit(X, Y)
        spen.SPENClassifier(random_state=0, device="cpu").fit(X, Y)


def test_what_is_chosen_for_a_network_is_not_claimed_of_a_rival():
    plan = plan_of(Shape(90, 6, 4, sparse=False, exclusive=False), missing="auto")
    assert not plan.rivals
    for own in ({"members": 2, "energy": "local"}, {"base": "extra_trees", "energy": "local"}):
        with pytest.raises(spen.InputError, match="Leave one of the two out"):
            plan_of(DENSE, early_stopping=True, folds=3, **own)


def test_frames_in_another_order_are_refused(rows):
    pd = pytest.importorskip("pandas")
    X, Y = (pd.DataFrame(part) for part in rows)
    mixed = Y.sample(frac=1, random_state=0)
    with pytest.raises(spen.InputError, match="same index in another order"):
        spen.SPENClassifier(**QUICK).fit(X, mixed)
    X.columns = list("abcdefghij")
    with pytest.raises(spen.InputError, match="columns of X, in the same order"):
        spen.SPENClassifier(**QUICK).fit(X, Y, eval_set=(X[X.columns[::-1]], Y))
    with pytest.raises(spen.InputError, match="Fill them in"):
        spen.SPENClassifier(**QUICK).fit(np.where(rows[0] > 3, np.nan, rows[0]), Y)
