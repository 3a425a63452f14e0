"""Classifiers with networks of one's own, on inputs of any kind."""

import numpy as np
import pytest
import torch
from passed_inputs import IDS, IMAGES, KINDS, TABLE, WORDS, N, Words, Y, some
from sklearn.base import clone
from torch import nn

import spen

QUICK = {"epochs": 2, "batch_size": 16, "random_state": 0, "folds": 1, "device": "cpu"}
FITTED = {}


def named(kind):
    """Return the function, known to model files, that makes the network of a kind of inputs."""
    network = KINDS[kind][0]
    return spen.register(f"network of {kind}")(lambda: network())


def fitted(kind):
    """Return a classifier of a kind of inputs, fitted once."""
    if kind not in FITTED:
        clf = spen.SPENClassifier(features=named(kind), **QUICK)
        FITTED[kind] = clf.fit(KINDS[kind][1], Y)
    return FITTED[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_takes_rows_takes_inputs_of_any_kind(kind):
    clf, X = fitted(kind), KINDS[kind][1]
    soft = clf.predict_proba(X)
    alone = np.concatenate([clf.predict_proba(some(X, slice(k, k + 1))) for k in range(N)])
    assert np.allclose(soft, alone, atol=1e-5)
    assert clf.predict(X).shape == Y.shape
    assert 0 <= clf.score(X, Y) <= 1
    known = np.full(Y.shape, np.nan)
    known[:, 1] = 1
    assert (clf.predict(X, known)[:, 1] == 1).all()
    assert clf.energy(X, Y).shape == (N,)
    assert (clf.energy(X, clf.predict(X, polish=True)) <= clf.energy(X, Y) + 1e-5).all()
    assert len(clf.next_question(some(X, slice(0, 3)), k=1)) == 3
    assert clf.diagnose(X, Y).steps.shape == (N,)
    assert len(clf.label_issues(X, Y, unseen=True, top=4)) == 4
    assert not hasattr(clf, "n_features_in_")


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_file_keeps_networks_and_what_rows_are_like(kind, tmp_path):
    clf, X = fitted(kind), KINDS[kind][1]
    clf.save(tmp_path / "model.spen")
    again = spen.load(tmp_path / "model.spen")
    assert again.inputs_ == clf.inputs_
    assert again.inputs_.n_features == 6
    assert np.array_equal(again.predict_proba(X), clf.predict_proba(X))


def test_a_page_is_written_and_what_takes_a_matrix_alone_says_so(tmp_path):
    clf = fitted("named ids")
    X = KINDS["named ids"][1]
    page = clf.report(tmp_path / "page.html", X, Y).read_text()
    assert "a dict of" in page
    with pytest.raises(spen.InputError, match="export is for models of matrices"):
        clf.export(tmp_path / "model.onnx")
    clf.save(tmp_path / "model.spen")
    np.savetxt(tmp_path / "rows.csv", TABLE, delimiter=",", header="a,b", comments="")
    from spen.cli.predict import predict

    with pytest.raises(spen.InputError, match="takes a dict of 'input_ids': lists of ids"):
        predict(tmp_path / "model.spen", str(tmp_path / "rows.csv"))


def test_it_is_compared_with_its_network_alone_and_with_nothing_that_takes_a_matrix():
    clf = clone(fitted("ids"))
    found = clf.compare(IDS, Y, against=["network"], held_out=0.3)
    assert [entry.name for entry in found.entries] == ["SPENClassifier", "network"]
    with pytest.raises(spen.InputError, match="take a matrix, and X holds lists of ids"):
        clf.compare(IDS, Y)


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("images", IMAGES[:, :, 2:], r"numbers \(n, 3, 8, 8\), as in the fit; received .*6, 8\)"),
        ("images", TABLE, r"numbers \(n, 3, 8, 8\), as in the fit; received shape \(40, 2\)"),
        ("ids", IMAGES, "X must be lists of ids, as in the fit"),
        ("ids", TABLE, r"X must be lists of ids, as in the fit; received shape \(40, 2\)"),
        ("ids", ["words", "words"], "X must be lists of ids, as in the fit; received a list"),
        ("ids", [[1, WORDS + 5]], f"Words does not know some of the ids, .* 1 to {WORDS + 5}"),
        ("named ids", {"ids": IDS}, "a dict of 'input_ids': lists of ids, as in the fit"),
        ("image and table", {"image": IMAGES, "table": TABLE[:3]}, "'table' has 3"),
    ],
)
def test_rows_that_are_not_like_those_of_the_fit_are_refused(kind, given, said):
    with pytest.raises(spen.InputError, match=said):
        fitted(kind).predict(given)


def test_a_refused_fit_leaves_a_classifier_as_it_was():
    clf = clone(fitted("ids")).fit(IDS, Y)
    before = clf.predict_proba(IDS)
    with pytest.raises(spen.InputError, match="Row 1 of X is an empty list"):
        clf.fit([[1], []] * 20, Y)
    assert np.array_equal(before, clf.predict_proba(IDS))


class Sum(nn.Module):
    """Takes rows of one length, of floats or of ids."""

    def __init__(self):
        super().__init__()
        self.layer = nn.LazyLinear(6)

    def forward(self, inputs):
        return self.layer(inputs.flatten(1))


@pytest.mark.parametrize(
    ("settings", "X", "said"),
    [
        ({"features": None}, {"a": IDS}, "pass features=, a module that takes them"),
        ({"features": None}, IDS, "Lists of ids.*pass features="),
        ({"encoder": spen.TableEncoder()}, {"a": IDS}, "and no encoder"),
        ({"features": nn.Linear(4, 2)}, np.ones((N, 4), int), r"cannot take whole .*astype\(float"),
        ({"features": lambda n_inputs: Words()}, IDS, "wants n_inputs.*Let it take nothing"),
        ({"features": spen.MLP(4, 2)}, IDS, "MLP takes rows of 4 numbers, not lists of ids"),
        ({"linear_member": True, "cross_fit": True}, IDS, "base and linear_member take a matrix"),
        ({"base": "extra_trees"}, IDS, "base and linear_member take a matrix"),
        ({"features_dtype": "float16"}, IDS, "Unknown features_dtype 'float16'"),
        ({"features": None, "features_dtype": "bfloat16"}, TABLE, "features_dtype is for"),
        ({"warmup": 1.0}, IDS, "warmup must be"),
    ],
)
def test_what_cannot_be_fitted_is_said(settings, X, said):
    settings = {"features": Words(), **QUICK, "folds": "auto"} | settings
    with pytest.raises(spen.InputError, match=said):
        spen.SPENClassifier(**settings).fit(X, Y)


def test_whole_numbers_are_ids_for_modules_and_numbers_for_networks_with_a_width():
    class Kinds(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.seen = nn.Embedding(9, 6), []

        def forward(self, ids):
            self.seen.append(ids.dtype)
            return self.words(ids).mean(1)

    X = np.random.default_rng(0).integers(0, 9, (N, 4))
    ids = spen.SPENClassifier(features=Kinds(), **QUICK).fit(X.astype(np.int16), Y)
    assert set(ids.model_.features.module.seen) == {torch.int64}
    assert np.array_equal(ids.predict_proba(X), ids.predict_proba(torch.as_tensor(X)))
    for network in (spen.MLP(4, 6), lambda n_inputs: spen.MLP(n_inputs, 6)):
        numbers = spen.SPENClassifier(features=network, **QUICK).fit(X, Y)
        assert numbers.inputs_ is None
        assert np.array_equal(numbers.predict_proba(X), numbers.predict_proba(X.astype(float)))


def test_lazy_modules_meet_a_real_row():
    clf = spen.SPENClassifier(features=Sum, **QUICK).fit(IMAGES, Y)
    assert clf.model_.features.module.layer.in_features == 3 * 8 * 8


def test_tables_and_matrices_are_what_they_were():
    clf = spen.SPENClassifier(features=Sum, **QUICK)
    table = {"a": TABLE[:, 0].tolist(), "b": ["x", "y"] * (N // 2)}
    assert clf.fit(table, Y).encoder_ is not None
    assert clf.fit(TABLE, Y).inputs_ is None
    assert clf.n_features_in_ == 2
    assert clf.fit(IMAGES, Y).inputs_.fields[""] == ("floats", (3, 8, 8))
    assert not hasattr(clf, "n_features_in_")


def test_weights_seen_rows_eval_sets_and_warm_starts():
    clf = spen.SPENClassifier(features=Words(), remember_rows=True, **QUICK)
    clf.fit(IDS[:30], Y[:30], sample_weight=[1.0] * 15 + [0.0] * 15)
    assert clf.seen_in_training(IDS)[:15].all()
    assert not clf.seen_in_training([[29, 28, 27, 26, 25]]).any()
    warm = spen.SPENClassifier(features=Words(), warm_start=True, **QUICK)
    warm.fit(IDS[:30], Y[:30], eval_set=(IDS[30:], Y[30:]))
    before = warm.predict_proba(IDS)
    warm.fit(IDS[:30], Y[:30], eval_set=(np.array([[3, 4], [5, 6]]), Y[:2]))
    assert not np.array_equal(before, warm.predict_proba(IDS))
    with pytest.raises(spen.InputError, match="eval_set must be lists of ids"):
        warm.fit(IDS[:30], Y[:30], eval_set=(IMAGES, Y))
    with pytest.raises(spen.InputError, match="goes on from the model as it is"):
        warm.fit(TABLE, Y, eval_set=(TABLE, Y))


def test_members_are_averaged_and_a_fit_resumes(tmp_path):
    settings = QUICK | {"features": Words(), "cross_fit": True, "members": 2, "folds": 2}
    whole = spen.SPENClassifier(**settings).fit(IDS, Y, checkpoint=tmp_path / "fit")
    again = spen.SPENClassifier(**settings)
    again.fit(IDS, Y, checkpoint=tmp_path / "fit", resume=True)
    assert np.array_equal(whole.predict_proba(IDS), again.predict_proba(IDS))
    assert whole.inputs_.n_features == 6
    other = IDS[1:] + IDS[:1]
    with pytest.raises(spen.CheckpointError, match="differs in"):
        again.fit(other, Y, checkpoint=tmp_path / "fit", resume=True)


# bfloat16 and warm-up ---------------------------------------------------------------------------


class Types(Words):
    """Keeps the type in which its layer computes."""

    def forward(self, ids, mask):
        self.seen = self.layer(self.words(ids)).dtype
        return super().forward(ids, mask)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_features_are_computed_in_bfloat16_where_that_is_asked_for_and_energies_never(dtype):
    clf = spen.SPENClassifier(features=Types(), features_dtype=dtype, **QUICK).fit(IDS, Y)
    network = clf.model_.features
    assert network.module.seen == (torch.float32 if dtype is None else torch.bfloat16)
    assert {weight.dtype for weight in clf.model_.parameters()} == {torch.float32}
    context, _ = next(clf.model_.contexts(IDS))
    assert context.features.dtype == torch.float32
    assert clf.plan_.chosen.features_dtype == dtype
    model = spen.SPEN(
        spen.Network(Types(), dtype=dtype), spen.LocalEnergy(6, 3), spen.UnitBox(3), seed=0
    )
    stage = spen.Stage("all", spen.CrossEntropy(), epochs=1, parts=("features", "local"))
    spen.train(model, [stage], (IDS, Y))
    assert model.features.module.seen == network.module.seen


def test_a_file_keeps_the_type_that_features_are_computed_in(tmp_path):
    clf = spen.SPENClassifier(features=named("ids"), features_dtype="bfloat16", **QUICK)
    clf.fit(IDS, Y).save(tmp_path / "model.spen")
    again = spen.load(tmp_path / "model.spen")
    assert again.model_.features.compute_dtype == "bfloat16"
    assert np.array_equal(again.predict_proba(IDS), clf.predict_proba(IDS))
    exact = clone(clf).set_params(features_dtype=None).fit(IDS, Y)
    assert np.abs(exact.predict_proba(IDS) - clf.predict_proba(IDS)).max() < 0.02


def test_rates_rise_and_fall_as_a_stage_says(monkeypatch):
    rates = []

    class Kept(torch.optim.SGD):
        def step(self, closure=None):
            rates.append([group["lr"] for group in self.param_groups])
            return super().step(closure)

    monkeypatch.setitem(spen.training.optimisers.OPTIMISERS, "sgd", Kept)
    settings = {"optimiser": "sgd", "epochs": 2, "batch_size": 10, "lr": 1.0, "features_lr": 0.5}
    for schedule, wanted in {
        "constant": [0.25, 0.5, 0.75, 1, 1, 1, 1, 1],
        "linear": [0.25, 0.5, 0.75, 1, 1, 0.75, 0.5, 0.25],
        "cosine": [0.25, 0.5, 0.75, 1, 1, *(0.5 + 0.5 * np.cos(np.pi * np.array([1, 2, 3]) / 4))],
    }.items():
        rates.clear()
        model = spen.SPEN(spen.MLP(2, 6), spen.LocalEnergy(6, 3), spen.UnitBox(3), seed=0)
        stage = spen.Stage(
            "all", spen.CrossEntropy(), parts=("features", "local"),
            schedule=schedule, warmup=0.5, **settings,
        )  # fmt: skip
        spen.train(model, [stage], (TABLE, Y))
        slow, fast = np.sort(np.unique(rates, axis=1), axis=1).T
        assert np.allclose(fast, wanted)
        assert np.allclose(slow, 0.5 * np.array(wanted))


def test_a_classifier_hands_warm_up_to_its_stages():
    shape = {"epochs": 2, "batch_size": 16}
    clf = spen.SPENClassifier(features=Words(), warmup=0.25, random_state=0, **shape).fit(IDS, Y)
    assert {stage.warmup for stage in clf.plan_.stages} == {0.25}
    stages = [spen.Stage("a", spen.CrossEntropy())]
    with pytest.raises(spen.InputError, match="stages say what warmup would say"):
        spen.SPENClassifier(features=Words(), warmup=0.1, stages=stages).fit(IDS, Y)
    with pytest.raises(spen.InputError, match=r"lbfgs.*warmup=0\.1"):
        spen.Stage("a", spen.CrossEntropy(), optimiser="lbfgs", warmup=0.1)
