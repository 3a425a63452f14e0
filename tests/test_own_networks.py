"""Feature networks that others write: modes, seeds, freezing, and what is wrong with them."""

import threading

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from torch import nn

import spen
from spen.features import evaluating
from spen.training.checkpoint import Run

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6)).astype(np.float32)
Y = (X[:, :3] + RNG.normal(size=(40, 3)) > 0).astype(np.float32)


def network():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))


class OwnFeatures(spen.Features):
    n_inputs, n_features = 6, 8

    def __init__(self):
        super().__init__()
        self.layers = network()

    def forward(self, inputs, generator=None):
        return self.layers(inputs)


def model_of(features=network, seed=0):
    energy = spen.LocalEnergy(8, 3) + spen.LabelEnergy(3, measurements=2)
    return spen.SPEN(features, energy, spen.UnitBox(3), seed=seed)


def stage_of(**settings):
    inference = spen.Descent(stopping=spen.Stopping(3))
    settings = {"epochs": 3, "batch_size": 10} | settings
    return spen.Stage("all", spen.CrossEntropy(), inference, **settings)


def weights_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("features", [OwnFeatures, network, lambda: network()])
@pytest.mark.parametrize("left_in_training", [False, True])
def test_predictions_are_repeatable_and_rows_stand_alone(features, left_in_training):
    model = model_of(features() if features is OwnFeatures else features)
    spen.train(model, [stage_of(parts=("features", "local"))], (X, Y), seed=1)
    if left_in_training:
        model.train()
    once = model.solve(X).y
    assert torch.equal(once, model.solve(X).y)
    alone = torch.cat([model.solve(X[i : i + 1]).y for i in range(5)])
    assert torch.allclose(once[:5], alone, atol=1e-5)
    assert torch.allclose(model.energy_of(X, Y), model.energy_of(X, Y))
    assert all(module.training == left_in_training for module in model.modules())


@pytest.mark.parametrize("features", [OwnFeatures, lambda: network])
def test_a_seed_decides_the_weights_and_the_training(features):
    state = torch.get_rng_state()
    runs = []
    for _ in range(2):
        torch.rand(3)  # what others draw changes nothing
        model = model_of(features())
        spen.train(model, [stage_of(parts=("features", "local"))], (X, Y), seed=1)
        runs.append(weights_of(model))
    assert equal(*runs)
    other = model_of(features(), seed=1)
    assert not equal(weights_of(model_of(features())), weights_of(other))
    torch.set_rng_state(state)
    before = torch.get_rng_state()
    spen.train(other, [stage_of(parts=("features", "local"))], (X, Y), seed=1)
    assert torch.equal(before, torch.get_rng_state())


def test_a_module_keeps_the_weights_that_it_came_with():
    module = network()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    model_of(module)
    assert equal(before, module.state_dict())


def test_a_stage_trains_what_it_names_and_leaves_the_rest_alone():
    model = model_of()
    before = weights_of(model)
    spen.train(model, [stage_of(parts=("local",))], (X, Y))
    after = weights_of(model)
    # Not even the running means of a normalisation.
    frozen = [name for name in before if name.startswith("features")]
    assert frozen
    assert all(torch.equal(before[name], after[name]) for name in frozen)
    spen.train(model, [stage_of(parts=("features", "local"))], (X, Y))
    assert not torch.equal(
        after["features.module.1.running_mean"], model.features.module[1].running_mean
    )
    assert not any(module.training for module in model.modules())


def test_modes_are_restored_where_training_fails():
    model = model_of()
    model.features.train()
    modes = [module.training for module in model.modules()]
    with pytest.raises(spen.InputError, match="diverged"):
        spen.train(model, [stage_of(lr=1e30, parts=("features", "local"), optimiser="sgd")], (X, Y))
    assert modes == [module.training for module in model.modules()]


def test_frozen_modules_stay_in_evaluation_mode():
    module = network()
    module[1].requires_grad_(False)
    means = module[1].running_mean.clone()
    model = model_of(module)
    spen.train(model, [stage_of(parts=("features", "local"))], (X, Y))
    assert torch.equal(means, module[1].running_mean)


def test_the_rate_of_features_is_their_own():
    slow, fast = model_of(seed=3), model_of(seed=3)
    before = weights_of(slow)
    for model, rate in ((slow, 1e-8), (fast, 1e-1)):
        spen.train(model, [stage_of(parts=("features", "local"), features_lr=rate)], (X, Y))
    weight = "features.module.0.weight"
    assert torch.allclose(before[weight], weights_of(slow)[weight], atol=1e-6)
    assert not torch.allclose(before[weight], weights_of(fast)[weight], atol=1e-3)


def test_a_line_search_takes_networks_that_draw_nothing():
    quiet = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
    stage = spen.Stage("all", spen.CrossEntropy(), parts=("features", "local"), optimiser="lbfgs")
    spen.train(model_of(quiet), [stage], (X, Y))
    with pytest.raises(spen.InputError, match="random"):
        spen.train(model_of(network()), [stage], (X, Y))


def test_resuming_a_network_with_dropout_ends_with_the_same_bits(tmp_path):
    whole = model_of()
    stages = [stage_of(parts=("features", "local"), epochs=4)]
    spen.train(whole, stages, (X, Y), seed=2)

    def stop(epoch):
        if epoch.epoch == 2:
            raise KeyboardInterrupt

    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        spen.train(model_of(), stages, (X, Y), seed=2, checkpoint=path, callbacks=[stop])
    again = model_of()
    spen.train(again, stages, (X, Y), seed=2, checkpoint=path, resume=True)
    assert equal(weights_of(whole), weights_of(again))


class Wrong(nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, inputs):
        return self.answer(inputs)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda x: (x, x), "must return a tensor"),
        (lambda x: x[:, None], "Pool or flatten"),
        (lambda x: x.sum(0, keepdim=True), "Pool or flatten"),
        (lambda x: x[:, :2], "2 features where 8"),
        (lambda x: x.long(), "must return floats"),
    ],
)
def test_what_a_module_lacks_is_said(answer, said):
    with pytest.raises(spen.InputError, match=said):
        model_of(Wrong(answer)).solve(X)


def test_what_is_no_network_is_refused():
    with pytest.raises(spen.InputError, match=r"nn\.Module"):
        model_of("mlp")


def test_a_model_is_called_like_a_module_and_predicts_labels():
    model = model_of()
    assert torch.equal(model(X), model.solve(X).y)
    known = np.full(Y.shape, np.nan)
    known[:, 0] = 1
    labels = model.predict(X, known)
    assert set(labels.unique().tolist()) <= {0.0, 1.0}
    assert (labels[:, 0] == 1).all()


def test_modes_come_back():
    module = network().train()
    with evaluating(module):
        assert not module[3].training
    assert module[3].training


# In a classifier ------------------------------------------------------------------------

QUICK = {"epochs": 2, "batch_size": 16, "random_state": 0, "folds": 1, "device": "cpu"}


def make(n_inputs):
    return nn.Sequential(nn.Linear(n_inputs, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))


def fitted(features, **settings):
    return spen.SPENClassifier(features=features, **QUICK | settings).fit(X, Y)


def test_a_classifier_copies_a_module_and_starts_at_its_weights():
    module = network()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    drawn = torch.get_rng_state()
    clf = fitted(module, features_lr=1e-9)
    assert torch.equal(drawn, torch.get_rng_state())
    assert equal(before, module.state_dict())
    assert torch.allclose(clf.model_.features.module[0].weight, before["0.weight"], atol=1e-6)
    assert clf.model_.features.n_features == 8
    assert np.array_equal(clf.predict_proba(X), fitted(module, features_lr=1e-9).predict_proba(X))
    assert not torch.allclose(fitted(module).model_.features.module[0].weight, before["0.weight"])


def test_features_of_ours_keep_their_weights_too():
    ours = spen.MLP(6, 8)
    with torch.no_grad():
        ours.weights[0].fill_(0.25)
    clf = fitted(ours, features_lr=1e-9)
    assert torch.allclose(clf.model_.features.weights[0], torch.tensor(0.25), atol=1e-6)


@pytest.mark.parametrize("features", [make, network, lambda n: spen.MLP(n, 8, dropout=0.1)])
def test_a_function_is_called_under_the_seed_of_the_run(features):
    first, second = fitted(features), fitted(features)
    assert equal(first.model_.state_dict(), second.model_.state_dict())
    other = fitted(features, random_state=1)
    assert not equal(first.model_.state_dict(), other.model_.state_dict())


def test_members_of_an_average_differ_and_all_of_it_is_of_the_network():
    clf = fitted(make, cross_fit=True, members=2, linear_member=True, folds=2)
    networks = clf.model_.features.networks
    assert [type(network).__name__ for network in networks] == ["Network", "Network", "Identity"]
    assert not torch.equal(networks[0].module[0].weight, networks[1].module[0].weight)
    assert clf.predict(X).shape == Y.shape


def test_frozen_weights_of_a_classifier_stay_as_they_are():
    module = network().requires_grad_(False)
    clf = fitted(module)
    assert equal(module.state_dict(), clf.model_.features.module.state_dict())


def test_a_frozen_network_is_computed_once(monkeypatch):
    calls = []
    module = network().requires_grad_(False)
    model = model_of(module)
    module.register_forward_hook(lambda *_: calls.append(1))
    spen.train(model, [stage_of(parts=("features", "local"), epochs=4)], (X, Y))
    assert len(calls) == 1


def test_classes_and_sparse_rows():
    clf = spen.SPENClassifier(features=make, **QUICK).fit(X, Y.argmax(1))
    assert set(clf.predict(X)) <= {0, 1, 2}
    rows = sparse.random(60, 6, 0.4, format="csr", random_state=0)
    clf = spen.SPENClassifier(features=make, **QUICK).fit(rows, np.tile(Y, (2, 1))[:60])
    assert np.allclose(clf.predict_proba(rows), clf.predict_proba(rows.toarray()), atol=1e-6)
    model = model_of(network())
    assert torch.allclose(model.solve(rows).y, model.solve(rows.toarray()).y, atol=1e-6)


def test_clone_takes_networks():
    clf = spen.SPENClassifier(features=network(), **QUICK)
    other = clone(clf)
    assert other.features is not clf.features
    assert np.array_equal(other.fit(X, Y).predict_proba(X), clf.fit(X, Y).predict_proba(X))
    assert clone(spen.SPENClassifier(features=make)).features is make


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"features": network(), "hidden": (4,)}, "what hidden would say"),
        ({"features": make, "dropout": 0.1, "input_dropout": 0.1}, "dropout and input_dropout"),
        ({"features": nn.Linear(5, 2)}, "Linear cannot take rows of 6 numbers"),
        ({"features": spen.MLP(5, 2)}, "MLP takes 5 inputs, but rows have 6"),
        ({"features": "mlp"}, "nn.Module"),
        ({"features": lambda: 3}, "nn.Module"),
        ({"features": lambda rows, columns: 3}, "wants rows, columns"),
        ({"features": Wrong(lambda x: (x, x))}, "must return a tensor"),
        ({"features": make, "features_lr": -1.0}, "features_lr must be a number above zero"),
        ({"features_lr": 1e-3, "epochs": "auto", "batch_size": "auto",
          "stages": [spen.Stage("a", spen.CrossEntropy())]}, "features_lr would say"),
    ],
)  # fmt: skip
def test_what_a_classifier_cannot_use_is_said(settings, said):
    with pytest.raises(spen.InputError, match=said):
        spen.SPENClassifier(**QUICK | settings).fit(X, Y)


def test_a_model_does_not_guess_the_width_of_inputs():
    with pytest.raises(spen.InputError, match="Call it yourself"):
        model_of(make)


def test_a_fit_of_a_network_resumes_to_the_same_bits_and_knows_another(tmp_path, monkeypatch):
    module, settings = network(), {"cross_fit": True, "folds": 2}
    whole = fitted(module, **settings).model_.state_dict()
    monkeypatch.setattr("spen.training.checkpoint.SAVED_TIMES", 0)
    save, left = Run.save, 5

    def save_or_stop(run):
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        save(run)

    monkeypatch.setattr(Run, "save", save_or_stop)
    clf = spen.SPENClassifier(features=module, **QUICK | settings)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(X, Y, checkpoint=tmp_path / "fit")
    other = network()
    for changed in (other, nn.Sequential(*module, nn.Dropout(0.1))):
        another = clone(clf).set_params(features=changed)
        with pytest.raises(spen.CheckpointError, match="differs in settings"):
            another.fit(X, Y, checkpoint=tmp_path / "fit", resume=True)
    again = clone(clf).fit(X, Y, checkpoint=tmp_path / "fit", resume=True)
    assert equal(whole, again.model_.state_dict())


def test_frozen_networks_stay_frozen_side_by_side():
    X, Y = make_multilabel_classification(150, 6, n_classes=4, random_state=0)
    frozen = spen.MLP(6, 8).requires_grad_(False)
    made = spen.SPENClassifier(features=frozen, epochs=2, random_state=0, device="cpu").fit(X, Y)
    kept = made.model_.features.state_dict()
    assert all(torch.equal(weight, kept[name]) for name, weight in frozen.state_dict().items())


def test_threads_do_not_switch_each_others_mode():
    model = spen.SPEN(
        torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.5)),
        spen.LocalEnergy(8, 3),
        spen.UnitBox(3),
        seed=0,
    ).train()
    entered, left = threading.Event(), threading.Event()

    def other():
        with evaluating(model):
            entered.set()
            left.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(10)
    with evaluating(model):
        left.set()
        thread.join()
        assert not model.features.training, "the last one switches back"
    assert model.features.training
