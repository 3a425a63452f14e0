"""Encoders of transformers under an energy: made in the test from configurations, no download."""

import doctest
import sys

import numpy as np
import pytest
import torch
from passed_inputs import IDS, N, Y, some

import spen
from spen import encoders

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

CONFIGS = {
    "bert": {
        "model_type": "bert",
        "vocab_size": 100,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    },
    "distilbert": {
        "model_type": "distilbert",
        "vocab_size": 100,
        "dim": 16,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 32,
    },
}
ONES = [[1] * len(row) for row in IDS]
INPUTS = {
    "lists": IDS,
    "as a tokenizer gives them": transformers.BatchEncoding(
        {"input_ids": IDS, "attention_mask": ONES}
    ),
}
QUICK = {"epochs": 3, "batch_size": 8, "random_state": 0, "folds": 1, "device": "cpu"}


def rows(X, index):
    return X[index] if isinstance(X, list) else some(dict(X), index)


@pytest.mark.parametrize("pool", ["mean", "first"])
@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("inputs", INPUTS)
def test_an_encoder_trains_under_an_energy_and_padding_does_not_show(kind, inputs, pool, tmp_path):
    encoder, X = spen.Transformer(CONFIGS[kind], pool), INPUTS[inputs]
    drawn = torch.get_rng_state()
    settings = {"features_lr": 1e-3, "warmup": 0.1}
    clf = spen.SPENClassifier(features=encoder, **settings, **QUICK).fit(X, Y)
    assert torch.equal(drawn, torch.get_rng_state())
    losses = [epoch.loss for epoch in clf.history_.epochs]
    assert losses[-1] < losses[0]
    trained = clf.model_.features.state_dict()
    moved = [not torch.equal(weight, trained[n]) for n, weight in encoder.state_dict().items()]
    assert sum(moved) > 0.9 * len(moved)
    soft = clf.predict_proba(X)
    alone = np.concatenate([clf.predict_proba(rows(X, slice(k, k + 1))) for k in range(N)])
    assert np.allclose(soft, alone, atol=1e-5)
    clf.save(tmp_path / "model.spen")
    assert np.array_equal(spen.load(tmp_path / "model.spen").predict_proba(X), soft)


def test_lists_and_what_a_tokenizer_gives_are_the_same():
    model = spen.SPEN(
        spen.Transformer(CONFIGS["bert"]), spen.LocalEnergy(16, 3), spen.UnitBox(3), seed=0
    )
    one, other = (model.solve(X).y for X in INPUTS.values())
    assert torch.equal(one, other)


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_mean_is_that_of_the_encoder_over_the_tokens_alone(kind):
    encoder = spen.Transformer(CONFIGS[kind], seed=3).eval()
    model = spen.SPEN(encoder, spen.LocalEnergy(16, 3), spen.UnitBox(3))
    context, _ = next(model.contexts(IDS))
    for row, ids in enumerate(IDS):
        with torch.no_grad():
            wanted = encoder.encoder(torch.tensor([ids])).last_hidden_state[0].mean(0)
        assert torch.allclose(context.features[row], wanted, atol=1e-5)


@pytest.mark.parametrize("kind", CONFIGS)
def test_weights_come_from_a_folder(kind, tmp_path):
    encoder = spen.Transformer(CONFIGS[kind], seed=1)
    encoder.encoder.to(torch.bfloat16).save_pretrained(tmp_path / "encoder")
    drawn = torch.get_rng_state()
    found = spen.Transformer.from_pretrained(tmp_path / "encoder", "first")
    assert torch.equal(drawn, torch.get_rng_state())
    assert found.pool == "first"
    weights = encoder.float().state_dict()
    assert all(torch.equal(weights[name], each) for name, each in found.state_dict().items())
    model = spen.SPEN(found, spen.LocalEnergy(16, 3), spen.UnitBox(3), seed=0)
    model.save(tmp_path / "model.spen")
    assert torch.equal(spen.load(tmp_path / "model.spen").solve(IDS).y, model.solve(IDS).y)


def test_a_model_of_transformers_goes_through_a_module_of_ones_own():
    class First(torch.nn.Module):
        def __init__(self):
            super().__init__()
            config = transformers.DistilBertConfig(**CONFIGS["distilbert"])
            self.encoder = transformers.DistilBertModel(config)

        def forward(self, input_ids, attention_mask):
            found = self.encoder(input_ids=input_ids, attention_mask=attention_mask)
            return found.last_hidden_state[:, 0]

    clf = spen.SPENClassifier(features=First, **QUICK).fit({"input_ids": IDS}, Y)
    assert clf.predict({"input_ids": IDS[:2]}).shape == (2, 3)


def test_images_go_through_an_encoder_of_images():
    config = {
        "model_type": "vit",
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "image_size": 8,
        "patch_size": 4,
    }
    images = np.random.default_rng(0).normal(size=(N, 3, 8, 8))
    clf = spen.SPENClassifier(features=spen.Transformer(config), **QUICK)
    assert clf.fit({"pixel_values": images}, Y).predict({"pixel_values": images}).shape == Y.shape


def test_bfloat16_is_near_and_the_energy_stays_exact():
    settings = {"features": spen.Transformer(CONFIGS["bert"]), "features_lr": 1e-3, **QUICK}
    exact = spen.SPENClassifier(**settings).fit(IDS, Y)
    near = spen.SPENClassifier(**settings, features_dtype="bfloat16").fit(IDS, Y)
    assert np.abs(near.predict_proba(IDS) - exact.predict_proba(IDS)).max() < 0.05
    context, _ = next(near.model_.contexts(IDS))
    assert context.features.dtype == torch.float32


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: spen.Transformer({"vocab_size": 3}), "a dict with a model_type"),
        (lambda: spen.Transformer({"model_type": "no-such"}), "makes no encoder of config"),
        (lambda: spen.Transformer(CONFIGS["bert"], "last"), "Unknown pool 'last'"),
        (
            lambda: spen.SPEN(
                spen.Transformer(CONFIGS["bert"]), spen.LocalEnergy(16, 3), spen.UnitBox(3)
            ).solve([[3, 500]]),
            "Transformer does not know some of the ids, which go from 3 to 500",
        ),
        (
            lambda: spen.SPEN(
                spen.Transformer(CONFIGS["bert"]), spen.LocalEnergy(16, 3), spen.UnitBox(3)
            ).solve({"input_ids": IDS, "words": ONES}),
            r"X holds 'words', and BertModel\.forward takes 'input_ids'",
        ),
    ],
)
def test_what_is_wrong_is_said(make, said):
    with pytest.raises(spen.InputError, match=said):
        make()


def test_the_example_of_the_reference_runs():
    source = encoders.Transformer.__doc__.replace("# doctest: +SKIP", "")
    example = doctest.DocTestParser().get_doctest(source, vars(encoders), "Transformer", None, 0)
    assert doctest.DocTestRunner().run(example).failed == 0


def test_a_model_file_says_which_package_it_lacks(monkeypatch, tmp_path):
    clf = spen.SPENClassifier(features=spen.Transformer(CONFIGS["bert"]), **QUICK).fit(IDS, Y)
    clf.save(tmp_path / "model.spen")
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(spen.SpenError, match=r"spen\[encoders\]"):
        spen.load(tmp_path / "model.spen")
