"""Parts that others write, in files: by name, with arguments as JSON and weights as tensors."""

import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

import spen
from spen.described import from_json, to_json
from spen.files import read_tensors, write_tensors

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6)).astype(np.float32)
Y = (X[:, :3] + RNG.normal(size=(40, 3)) > 0).astype(int)
QUICK = {"epochs": 2, "batch_size": 16, "random_state": 0, "folds": 1, "device": "cpu"}
FEW = spen.Descent(stopping=spen.Stopping(3))


@spen.register("test-net")
def net(n_inputs, width=5):
    return nn.Sequential(nn.Linear(n_inputs, width), nn.BatchNorm1d(width), nn.ReLU())


@spen.register("test-encoder")
class Encoder(nn.Module):
    """It computes a table that its state does not have, and draws its weights from torch."""

    def __init__(self, n_inputs, width, scales=(1.0, 2.0)):
        super().__init__()
        self.layer = nn.Linear(n_inputs, width)
        self.register_buffer("scales", torch.tensor(scales).mean(), persistent=False)

    def forward(self, inputs):
        return torch.tanh(self.layer(inputs)) * self.scales


@spen.register("test-size")
class SizePenalty(spen.Energy):
    def __init__(self, n_labels, wanted):
        super().__init__()
        self.n_labels, self.wanted = n_labels, wanted
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, features, y):
        return self.weight * (y.sum(1) - self.wanted) ** 2


@spen.register("test-features")
class OwnFeatures(spen.Features):
    def __init__(self, n_inputs, width):
        super().__init__()
        self.n_inputs, self.n_features = n_inputs, width
        self.layer = nn.Linear(n_inputs, width)

    def forward(self, inputs, generator=None):
        return self.layer(inputs)


@spen.register("test-loss")
@dataclass(frozen=True)
class Loss(spen.CrossEntropy):
    scale: float = 1.0

    def loss(self, model, inference, context, generator=None):
        return self.scale * super().loss(model, inference, context, generator)


@spen.register("test-rule")
class Rule(spen.MirrorDescent):
    def __init__(self, half_lr):
        super().__init__(lr=2 * half_lr, momentum=0.0)


def model_of(features, width=5, **settings):
    energy = spen.LocalEnergy(width, 3) + SizePenalty(3, wanted=2) + spen.LabelEnergy(3, 2)
    return spen.SPEN(features, energy, spen.UnitBox(3), seed=0, **settings)


def again(model, path):
    model.save(path)
    return spen.load(path)


FEATURES = {
    "function": lambda: net(6),
    "function and width": lambda: net(6, width=5),
    "class": lambda: Encoder(6, 5, scales=[1.0, 3.0]),
    "features": lambda: OwnFeatures(6, width=5),
    "ours": lambda: spen.MLP(6, 7, 5, dropout=0.2),
}


@pytest.mark.parametrize("make", FEATURES.values(), ids=FEATURES)
def test_a_model_of_any_parts_comes_back_with_its_weights(make, tmp_path):
    model = model_of(make())
    stage = spen.Stage("all", spen.CrossEntropy(), FEW, parts=("features", "local"), epochs=2)
    spen.train(model, [stage], (X, Y), seed=0)
    drawn = torch.get_rng_state()
    loaded = again(model, tmp_path / "model.spen")
    assert torch.equal(drawn, torch.get_rng_state())
    assert torch.equal(loaded.solve(X).y, model.solve(X).y)
    assert torch.equal(loaded.energy_of(X, Y), model.energy_of(X, Y))
    ours, theirs = loaded.state_dict(), model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not any(module.training for module in loaded.modules())
    # It can be trained further, and saved again.
    spen.train(loaded, [stage], (X, Y), seed=0)
    again(loaded, tmp_path / "second.spen")


ENERGIES = [
    spen.LabelEnergy(3, 2, "softplus", hidden=(4,), initial="counting"),
    spen.ConditionalEnergy(6, 3, 2),
    spen.ConvexEnergy(6, 3, 2, hidden=[2]),
    spen.PairwiseEnergy(3, rank=2),
    spen.ConditionalPairwiseEnergy(6, 3, terms=2),
    spen.StepRates(3, steps=4),
    spen.Entropy(spen.UnitBox(3), 0.5),
]


@pytest.mark.parametrize("energy", ENERGIES, ids=lambda energy: type(energy).__name__)
def test_every_energy_of_ours_comes_back(energy, tmp_path):
    whole = spen.LocalEnergy(6, 3) + energy
    model = spen.SPEN(spen.Identity(6), whole, spen.UnitBox(3), seed=0)
    loaded = again(model, tmp_path / "model.spen")
    assert torch.equal(loaded.energy_of(X, Y), model.energy_of(X, Y))


def test_doubles_frozen_weights_and_stacked_scores_come_back(tmp_path):
    module = net(6)
    module[0].requires_grad_(False)
    model = model_of(module).double()
    loaded = again(model, tmp_path / "model.spen")
    assert loaded.reference.dtype == torch.float64
    assert [p.requires_grad for p in loaded.parameters()] == [
        p.requires_grad for p in model.parameters()
    ]
    clf = spen.SPENClassifier(features=net, cross_fit=True, members=2, **QUICK | {"folds": 2})
    model = clf.fit(X, Y).model_
    assert torch.equal(again(model, tmp_path / "scores.spen").solve(X).y, model.solve(X).y)


OWN_PARTS = {
    "function": {"features": net},
    "module": {"features": Encoder(6, 5)},
    "averaged": {"features": net, "cross_fit": True, "members": 2, "folds": 2},
    "energy": {"energy": SizePenalty.unsized(wanted=2), "hidden": (4,)},
    "objective": {"energy": "local", "stages": [spen.Stage("own", Loss(scale=2.0), epochs=2)]},
    "rule": {"inference": spen.Descent(Rule(0.4), spen.Stopping(3)), "hidden": (4,)},
}


@pytest.mark.parametrize("settings", OWN_PARTS.values(), ids=OWN_PARTS)
def test_a_classifier_of_own_parts_comes_back(settings, tmp_path):
    quick = {k: v for k, v in QUICK.items() if "stages" not in settings or k != "batch_size"}
    if "stages" in settings:
        quick.pop("epochs")
    clf = spen.SPENClassifier(**quick | settings).fit(X, Y)
    loaded = again(clf, tmp_path / "model.spen")
    assert np.array_equal(loaded.predict_proba(X), clf.predict_proba(X))
    assert np.array_equal(loaded.fit(X, Y).predict_proba(X), clf.predict_proba(X))


def test_what_cannot_be_rebuilt_is_said_before_a_file_is_written(tmp_path):
    path = tmp_path / "model.spen"
    module = nn.Sequential(nn.Linear(6, 5))
    clf = spen.SPENClassifier(features=module, **QUICK).fit(X, Y)
    lines = r"(?s)features holds a .*Sequential.*@spen\.register\('my-net'\).*features=my_net"
    with pytest.raises(spen.InputError, match=lines):
        clf.save(path)
    with pytest.raises(spen.InputError, match=r"@spen\.register"):
        model_of(module).save(path)
    with pytest.raises(spen.InputError, match=r"lambda.*@spen\.register"):
        spen.SPENClassifier(features=lambda: nn.Linear(6, 2), **QUICK).fit(X, Y).save(path)

    class Unknown(SizePenalty):
        pass

    model = spen.SPEN(spen.Identity(6), Unknown(3, 2), spen.UnitBox(3))
    with pytest.raises(spen.InputError, match=r"Unknown.*@spen\.register"):
        model.save(path)
    model = spen.SPEN(spen.Identity(6), SizePenalty(3, wanted=torch.tensor(2.0)), spen.UnitBox(3))
    with pytest.raises(spen.InputError, match=r"argument 'wanted' of test-size holds a torch"):
        model.save(path)
    assert not path.exists()


def test_a_maker_that_needs_numbers_is_refused_when_it_is_saved(tmp_path):
    @spen.register("test-needy")
    def needy(n_inputs):
        return nn.Linear(n_inputs, int(torch.ones(5).sum()))

    with pytest.raises(spen.InputError, match=r"could not be loaded again.*meta"):
        model_of(needy(6)).save(tmp_path / "model.spen")


def test_names_are_taken_once():
    with pytest.raises(spen.InputError, match=r"test-net.*already"):
        spen.register("test-net")(lambda n_inputs: nn.Linear(n_inputs, 2))
    with pytest.raises(spen.InputError, match="spen's own MLP already"):
        spen.register("MLP")(nn.Linear)
    with pytest.raises(spen.InputError, match="takes a name"):
        spen.register(net)
    with pytest.raises(spen.InputError, match="above a class or a function"):
        spen.register("test-nothing")(3)

    def define(width):
        @spen.register("test-again")
        def build():
            return nn.Linear(6, width)

        return build

    # As a cell of a notebook does that is run again.
    define(1)
    assert from_json(to_json(define(2)), "features")().out_features == 2


def test_an_unknown_name_is_said_with_what_to_do(tmp_path):
    path = tmp_path / "model.spen"
    model_of(net(6)).save(path)
    tensors, header = read_tensors(path)
    text = header["model"]["made"]["args"][0]["args"][0]
    assert text == {"class": "test-net", "args": [6], "settings": {}}
    text["class"] = "their-net"
    write_tensors(path, tensors, header)
    with pytest.raises(spen.CheckpointError, match=r"'their-net' in model.*register.*entry point"):
        spen.load(path)


def test_entry_points_provide_what_a_file_names(tmp_path, monkeypatch):
    (tmp_path / "provided_net.py").write_text(
        "from torch import nn\n\ndef build(n_inputs):\n    return nn.Linear(n_inputs, 5)\n"
    )
    about = tmp_path / "provided_net-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: provided-net\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[spen.classes]\nprovided = provided_net:build\n")
    path = tmp_path / "model.spen"
    model = model_of(net(6))
    model.save(path)
    tensors, header = read_tensors(path)
    header["model"]["made"]["args"][0]["args"][0]["class"] = "provided"
    keep = {"model/features.module.0.weight": "model/features.module.weight"}
    keep |= {"model/features.module.0.bias": "model/features.module.bias"}
    left_out = "model/features.module.1"
    tensors = {keep.get(k, k): t for k, t in tensors.items() if not k.startswith(left_out)}
    write_tensors(path, tensors, header)
    with pytest.raises(spen.CheckpointError, match="provided"):
        spen.load(path)
    assert "provided_net" not in sys.modules
    monkeypatch.syspath_prepend(tmp_path)
    loaded = spen.load(path)
    assert torch.equal(loaded.features.module.weight, model.features.module[0].weight)
    # And a function that only an entry point names can be named in a file.
    import provided_net

    assert to_json(provided_net.build) == {"maker": "provided"}


FORGED = [
    ("class", "os.system"),
    ("class", "load_dataset"),
    ("class", "SPENClassifier"),
    ("args", [10**18]),
    ("args", [10**7]),
    ("args", ["x"]),
    ("args", 3),
    ("settings", {"width": 10**9}),
    ("settings", {"width": {"class": "test-net", "args": [10**9], "settings": {}}}),
    ("settings", []),
]


@pytest.mark.parametrize(("key", "odd"), FORGED)
def test_a_forged_model_is_refused_before_anything_is_allocated(key, odd, tmp_path):
    path = tmp_path / "model.spen"
    model_of(net(6)).save(path)
    tensors, header = read_tensors(path)
    header["model"]["made"]["args"][0]["args"][0][key] = odd
    write_tensors(path, tensors, header)
    with pytest.raises(spen.CheckpointError, match=r"model\.spen cannot be used"):
        spen.load(path)


def test_a_model_file_is_no_classifier(tmp_path):
    from spen.cli.predict import predict

    path = tmp_path / "model.spen"
    model_of(net(6)).save(path)
    np.savetxt(tmp_path / "rows.csv", X, delimiter=",", header="a,b,c,d,e,f", comments="")
    with pytest.raises(spen.CheckpointError, match="bare SPEN, not a classifier"):
        predict(path, tmp_path / "rows.csv")
    assert isinstance(spen.load(path), spen.SPEN)
