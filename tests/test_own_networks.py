"""Feature networks that others write: modes, seeds, freezing, and what is wrong with them."""

import numpy as np
import pytest
import torch
from torch import nn

import spen
from spen.features import evaluating

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
    with pytest.raises(spen.InputError, match="nn.Module"):
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
