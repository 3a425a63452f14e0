"""SPENTagger and its baselines: what they promise, by brute force where that can be."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from tagged_sentences import (
    ARRAYS,
    CHUNKS,
    KINDS,
    NUMBERS,
    TAGS,
    WORDS,
    fitted,
    nan,
)
from torch import nn

import spen
from spen.batch.ragged import Ragged
from spen.estimators.sentences import DictEncoder, TokenEncoder
from spen.estimators.spans import spans, token_accuracy


@pytest.fixture(scope="module")
def tagger():
    return fitted()


@pytest.fixture(scope="module")
def wider():
    return fitted("chain+convolution")


@pytest.fixture(scope="module")
def chunker():
    return fitted(y=CHUNKS)


def taggings(tagger, sentence):
    """All taggings of a sentence that are allowed, and their energies."""
    barred = set(tagger.forbidden_)
    found = [
        list(tags)
        for tags in itertools.product(tagger.classes_.tolist(), repeat=len(sentence))
        if not barred & set(itertools.pairwise([None, *tags, None]))
    ]
    return found, tagger.energy([sentence] * len(found), found)


# Exactness ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tagger", "chunker"])
def test_a_chain_is_solved_exactly(name, request):
    tagger = request.getfixturevalue(name)
    marginals = tagger.predict_marginals(WORDS[:4])
    best = tagger.predict_n_best(WORDS[:4], n=3)
    for sentence, one, soft, several in zip(
        WORDS[:4], tagger.predict(WORDS[:4]), marginals, best, strict=True
    ):
        every, energies = taggings(tagger, sentence)
        order = energies.argsort()
        assert one == every[order[0]]
        assert [each.tags for each in several] == [every[i] for i in order[:3]]
        found = [each.energy for each in several]
        np.testing.assert_allclose(found, energies[order[:3]], rtol=1e-4, atol=1e-5)
        weight = np.exp(energies.min() - energies)
        expected = np.zeros_like(soft)
        for tags, share in zip(every, weight / weight.sum(), strict=True):
            places = [tagger.classes_.tolist().index(tag) for tag in tags]
            expected[range(len(tags)), places] += share
        np.testing.assert_allclose(soft, expected, atol=1e-5)


def test_known_tags_are_held_and_the_best_of_the_rest_is_found(tagger):
    known = [[None, "N", None], [None, nan], ["R", None, None, None], [None]]
    found = tagger.predict(WORDS[:4], known=known)
    for sentence, told, tags in zip(WORDS[:4], known, found, strict=True):
        every, energies = taggings(tagger, sentence)
        fits = [
            all(t is None or t != t or t == tag for t, tag in zip(told, one, strict=True))
            for one in every
        ]
        assert tags == every[np.where(fits, energies, np.inf).argmin()]
    soft = tagger.predict_marginals(WORDS[:1], known=known[:1])[0]
    assert soft[1].tolist() == [0, 0, 1, 0]


def test_an_energy_beyond_chains_obeys_rules_and_known_tags():
    tagger = fitted("chain+convolution", y=CHUNKS)
    barred = set(tagger.forbidden_)
    assert (None, "I-NP") in barred
    for tags in tagger.predict(WORDS[:4]):
        assert not barred & set(itertools.pairwise([None, *tags, None]))
    known = [["B-NP", "I-NP", None], [None, "O"], [None] * 4, [None]]
    found = tagger.predict(WORDS[:4], known=known)
    assert found[0][:2] == ["B-NP", "I-NP"]
    assert found[1][1] == "O"
    with pytest.raises(spen.InputError, match=r"needs an energy that is a chain; this model's is"):
        tagger.predict_n_best(WORDS, 2)


# What it learns -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("energy", ["local", "chain", "chain+convolution"])
def test_it_learns_sentences_of_each_kind(kind, energy):
    X, y = KINDS[kind], NUMBERS if kind == "arrays" else TAGS
    tagger = fitted(energy, X, y, epochs=20, lr=0.1 if kind == "features" else 0.02, dropout=0.0)
    assert tagger.score(X, y) == 1
    found = tagger.predict(X)
    assert [type(tag) for tag in found[0]] == [int if kind == "arrays" else str] * 3
    assert all(
        soft.shape == (len(x), len(tagger.classes_))
        for soft, x in zip(tagger.predict_marginals(X), X, strict=True)
    )


@pytest.mark.parametrize("kind", spen.baselines.TAGGERS)
def test_baselines_have_the_same_contract(kind, tmp_path):
    tagger = kind(epochs=20, lr=0.02, random_state=0).fit(WORDS, TAGS)
    assert tagger.score(WORDS, TAGS) == 1
    tagger.save(tmp_path / "a.spen")
    assert type(spen.load(tmp_path / "a.spen")) is kind
    assert not {"energy", "objective", "inference"} & set(tagger.get_params())
    assert tagger.energy(WORDS, TAGS).shape == (12,)


def test_a_crf_is_a_chain_by_likelihood_and_an_svm_one_by_the_hinge():
    crf = spen.baselines.CRFTagger(epochs=4, random_state=0, device="cpu").fit(WORDS, TAGS)
    np.testing.assert_array_equal(crf.energy(WORDS, TAGS), fitted().energy(WORDS, TAGS))
    svm = spen.baselines.StructuredSVMTagger(epochs=4, random_state=0, device="cpu")
    same = fitted(objective="hinge")
    np.testing.assert_array_equal(
        svm.fit(WORDS, TAGS).energy(WORDS, TAGS), same.energy(WORDS, TAGS)
    )
    assert (same.energy(WORDS, TAGS) != crf.energy(WORDS, TAGS)).any()


def test_a_margin_trains_the_chain_beside_an_energy_as_it_does_a_chain_alone():
    energy = spen.LocalEnergy.unsized() + spen.ChainEnergy.unsized()
    windows = energy + spen.ConvolutionEnergy.unsized()
    by_margin = {"objective": spen.Hinge(margin=0.5), "inference": spen.Viterbi()}
    alone = fitted(energy, **by_margin).history_.stage("chain")
    losses = [epoch.loss for epoch in alone]
    for inference in (spen.BestOf(4), spen.Descent()):
        tagger = fitted(windows, **by_margin | {"inference": inference})
        assert [epoch.loss for epoch in tagger.history_.stage("chain")] == losses
        assert tagger.history_.stage("energy")
    # Exact inference does not know this one, so the chain has its likelihood.
    logs = {"objective": spen.Hinge(delta="log"), "inference": spen.Descent()}
    assert fitted(windows, **logs).history_.stage("energy")
    # Where the loss is a likelihood, so is that of the chain.
    likely = fitted(windows, objective=spen.NBestLikelihood(4), inference=spen.BestOf(4))
    same = [epoch.loss for epoch in fitted().history_.stage("chain")]
    assert [epoch.loss for epoch in likely.history_.stage("chain")] == same


@pytest.mark.parametrize("objective", ["likelihood", "hinge"])
def test_missing_tags_teach_nothing(objective):
    """Where the tags of one class of positions are missing, those of others are learned."""
    some = [[None if tag == "A" else tag for tag in tags] for tags in TAGS]
    settings = {"epochs": 20, "lr": 0.02, "dropout": 0.0, "objective": objective}
    tagger = fitted(X=WORDS, y=some, **settings)
    assert tagger.classes_.tolist() == ["D", "N", "R"]
    assert tagger.score(WORDS, some) == 1
    none = [*some[:-1], [None]]
    assert fitted(X=WORDS, y=none, **settings).score(WORDS[:-1], some[:-1]) == 1


def test_weights_say_which_sentences_count():
    y = [*TAGS, *[["X"] * len(tags) for tags in TAGS]]
    weight = np.r_[np.ones(12), np.full(12, 1e-3)]
    tagger = spen.SPENTagger("chain", epochs=20, lr=0.02, random_state=0)
    assert tagger.fit(WORDS * 2, y, weight).score(WORDS, TAGS) == 1
    assert tagger.fit(WORDS * 2, y, weight[::-1]).score(WORDS, TAGS) == 0


def test_a_seed_decides_all_and_the_global_state_is_left_alone():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    one, two, other = (fitted("chain+convolution", random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.energy(WORDS, TAGS), two.energy(WORDS, TAGS))
    assert (one.energy(WORDS, TAGS) != other.energy(WORDS, TAGS)).any()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002


def test_early_stopping_keeps_the_best_epoch_by_held_out_sentences():
    tagger = fitted(epochs=60, lr=0.05, early_stopping=2, held_out=0.25)
    assert len(tagger.history_.epochs) < 60
    assert tagger.held_out_score_ == max(epoch.score for epoch in tagger.history_.epochs)
    assert tagger.notes_["training sentences"] == "9"
    tagger = spen.SPENTagger("chain", epochs=3, random_state=0)
    tagger.fit(WORDS, TAGS, eval_set=(WORDS[:2], TAGS[:2]))
    assert tagger.held_out_score_ == tagger.history_.epochs[-1].score
    assert tagger.notes_["training sentences"] == "12"


# Neighbours and padding ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("energy", ["chain", "chain+convolution"])
def test_neighbours_and_padding_change_no_bit(kind, energy):
    X, y = KINDS[kind], NUMBERS if kind == "arrays" else TAGS
    tagger = fitted(energy, X, y)
    longer = [*X, [X[0][0]] * 37] if kind != "arrays" else [*X, np.ones((37, 4))]
    together, more = tagger.predict_marginals(X), tagger.predict_marginals(longer)
    energies = tagger.energy(X, y)
    for i, sentence in enumerate(X):
        [alone] = tagger.predict_marginals([sentence])
        np.testing.assert_array_equal(alone, together[i])
        np.testing.assert_array_equal(alone, more[i])
        assert tagger.energy([sentence], [y[i]])[0] == energies[i]
        assert tagger.predict([sentence]) == [tagger.predict(longer)[i]]


class Plain(nn.Module):
    """It sees its neighbours, and knows of no mask."""

    def __init__(self, width=4):
        super().__init__()
        self.lstm = nn.LSTM(width, 6, batch_first=True, bidirectional=True)

    def forward(self, values):
        return self.lstm(values)[0]


class Masked(Plain):
    def forward(self, values, mask):
        assert mask.shape == values.shape[:2]
        return self.lstm(values * mask[:, :, None])[0]


def test_a_network_without_a_mask_never_sees_padding():
    tagger = fitted(X=ARRAYS, y=NUMBERS, features=Plain())
    for row, soft in zip(ARRAYS, tagger.predict_marginals(ARRAYS), strict=True):
        [alone] = tagger.predict_marginals([row])
        np.testing.assert_allclose(alone, soft, atol=1e-6)
    masked = fitted(X=ARRAYS, y=NUMBERS, features=Masked)
    assert masked.model_.features.alike is False
    assert tagger.model_.features.alike is True


def test_networks_of_ones_own():
    own = Plain()
    before = [weight.clone() for weight in own.parameters()]
    fitted(X=ARRAYS, y=NUMBERS, features=own)
    assert all(torch.equal(a, b) for a, b in zip(before, own.parameters(), strict=True))

    class Numbers(nn.Module):
        def __init__(self, encoder):
            super().__init__()
            self.table = nn.Embedding(encoder.sizes[0], 5)

        def forward(self, values):
            return self.table(values[:, :, 0])

    assert fitted(features=Numbers, epochs=20, lr=0.05).score(WORDS, TAGS) == 1
    for wrong, words in [
        (nn.Flatten(), r"Flatten must return the features of each position, \(1, 3, 'f'\)"),
        (nn.Linear(3, 2), r"Linear cannot take sequences whose values are \(1, 3, 4\)"),
        (7, "features must be an nn.Module or a function that returns one; received 7"),
    ]:
        with pytest.raises(spen.InputError, match=words):
            fitted(X=ARRAYS, y=NUMBERS, features=wrong)


# Spans and scores ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("truth", "found", "f1"),
    [
        ("B-A I-A O", "B-A I-A O", 1),
        ("B-A I-A O", "B-A O O", 0),
        ("B-A I-A B-A", "B-A I-A I-A", 0),
        ("B-A O B-B", "B-A O B-A", 1 / 2),
        ("B-A O B-B", "B-A O O", 2 / 3),
        # An I that continues nothing is no span: conlleval would count it.
        ("B-A O O", "I-A O O", 0),
        ("B-A I-A O", "B-A I-B O", 0),
        ("O O", "O O", 1),
        ("O O", "B-A O", 0),
        ("B-A E-A S-B", "B-A E-A S-B", 1),
        ("B-A E-A S-B", "B-A I-A S-B", 2 / 3),
        ("B-A L-A U-B", "B-A L-A B-B", 2 / 3),
        ("B I O B", "B I O O", 2 / 3),
    ],
)
def test_entity_f1_by_hand(truth, found, f1):
    assert spen.entity_f1([truth.split()], [found.split()]) == pytest.approx(f1)


def test_entity_f1_is_of_all_sentences_together():
    truth = [["B-A"], ["B-A", "B-B"], ["O"]]
    assert spen.entity_f1(truth, [["B-A"], ["B-A", "O"], ["B-A"]]) == pytest.approx(4 / 6)
    with pytest.raises(spen.InputError, match="Sentence 1 has 2 tags in truth and 1 here"):
        spen.entity_f1(truth, [["O"], ["O"], ["O"]])


def test_spans_do_not_go_over_types():
    assert spans(["B-A", "I-A", "I-B", "B-B", "O", "I-B"]) == [("A", 0, 2), ("B", 3, 4)]
    assert spans(["B-A", "B-A", "I-A"]) == [("A", 0, 1), ("A", 1, 3)]
    assert spans(["S-A", "I-A", "E-A"]) == [("A", 0, 1)]


def test_score_is_that_of_the_tags(tagger, chunker):
    assert (tagger.metric_, chunker.metric_) == ("accuracy", "entity_f1")
    found = tagger.predict(WORDS)
    right = sum(a == b for x, y in zip(found, TAGS, strict=True) for a, b in zip(x, y, strict=True))
    assert tagger.score(WORDS, TAGS) == pytest.approx(right / 30)
    assert token_accuracy(TAGS, TAGS, np.ones(12)) == 1
    assert chunker.score(WORDS, chunker.predict(WORDS)) == 1
    with pytest.warns(UserWarning, match="Sentence 1, position 0 has the tag 'Z' in y, which was"):
        assert tagger.score(WORDS[:2], [found[0], ["Z", found[1][1]]]) == 4 / 5


def test_tags_that_break_the_rules_of_spans_are_left_as_they_are():
    y = [["I-NP", "I-NP", "O"], *CHUNKS[1:]]
    with pytest.warns(UserWarning, match="sentence 0, position 0 has 'I-NP' after nothing"):
        tagger = fitted(y=y)
    assert (tagger.forbidden_, tagger.metric_) == ([], "accuracy")
    with pytest.raises(spen.InputError, match="Sentence 0, position 0 has 'I-NP' after nothing"):
        fitted(y=y, constraints="spans")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fitted(y=y, constraints=None).forbidden_ == []
    with pytest.raises(spen.InputError, match="'A' does not say what part of a span it is"):
        fitted(constraints="spans")


def test_rules_of_ones_own():
    tagger = fitted(constraints=[("D", "D"), ("N", "D"), (None, "R")])
    found = tagger.predict_n_best(WORDS[:2], n=1000)
    for tags, _ in itertools.chain(*found):
        assert tags[0] != "R"
        assert not {("D", "D"), ("N", "D")} & set(itertools.pairwise(tags))
    assert len(found[1]) == 16 - 4 - 2
    with pytest.raises(spen.InputError, match="position 1 has 'A' after 'D'"):
        fitted(constraints=[("D", "A")])
    with pytest.raises(spen.InputError, match=r"a list of pairs of tags.*received \('D', 'Q'\)"):
        fitted(constraints=[("D", "Q")])


# The manners of scikit-learn ----------------------------------------------------------------


def test_parameters_are_those_of_scikit_learn(tagger):
    assert clone(tagger).get_params() == tagger.get_params()
    assert clone(tagger).set_params(epochs=7, energy="local").energy.__func__ is not None
    again = clone(tagger).set_params(energy="local")
    assert again.get_params()["energy"] == "local"
    assert repr(spen.SPENTagger("local")) == "SPENTagger(energy='local')"
    with pytest.raises(NotFittedError):
        spen.SPENTagger().predict(WORDS)
    with pytest.raises(ValueError, match="Invalid parameter"):
        spen.SPENTagger().set_params(rate=1)
    before = tagger.get_params()
    tagger.predict(WORDS)
    assert tagger.get_params() == before


def test_it_goes_through_cross_validation():
    scores = cross_val_score(spen.SPENTagger("chain", epochs=15, lr=0.02), WORDS, TAGS, cv=2)
    assert scores.shape == (2,)
    assert (scores > 0.5).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_holds_the_whole_tagger(kind, tmp_path):
    X, y = KINDS[kind], NUMBERS if kind == "arrays" else CHUNKS
    tagger = fitted("chain+convolution", X, y)
    tagger.save(tmp_path / "a.spen")
    again = spen.load(tmp_path / "a.spen")
    assert type(again) is spen.SPENTagger
    assert again.get_params() == tagger.get_params()
    assert again.predict(X) == tagger.predict(X)
    for one, other in zip(again.predict_marginals(X), tagger.predict_marginals(X), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again.energy(X, y), tagger.energy(X, y))
    for name in ("metric_", "forbidden_", "held_out_score_", "notes_"):
        assert getattr(again, name) == getattr(tagger, name)
    assert again.classes_.tolist() == tagger.classes_.tolist()
    again.save(tmp_path / "b.spen")
    assert (tmp_path / "a.spen").read_bytes() == (tmp_path / "b.spen").read_bytes()


def test_a_file_refuses_what_it_cannot_rebuild(tmp_path):
    class Own(spen.SPENTagger):
        pass

    own = Own("chain", epochs=1).fit(WORDS, TAGS)
    with pytest.raises(spen.InputError, match="Own is a class that is not spen's own"):
        own.save(tmp_path / "a.spen")
    with pytest.raises(spen.InputError, match="does not know how that was made"):
        fitted(X=ARRAYS, y=NUMBERS, features=Plain()).save(tmp_path / "a.spen")
    assert not list(tmp_path.iterdir())


# Parts --------------------------------------------------------------------------------------


def test_batches_of_sequences_hold_each_once():
    ragged = Ragged.of([np.arange(n) for n in (3, 1, 4, 1, 5, 9, 2, 6)])
    generator = torch.Generator().manual_seed(0)
    for alike in (False, True):
        batches = ragged.shuffled(3, generator, alike)
        assert sorted(int(i) for batch in batches for i in batch) == list(range(8))
        assert max(map(len, batches)) <= 3
        if alike:
            assert all(len(set(ragged.lengths[batch].tolist())) == 1 for batch in batches)
    values, mask = ragged.batch(torch.tensor([4, 0]))
    assert values.tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 0, 0]]
    assert mask.sum(1).tolist() == [5, 3]
    assert ragged.batch(torch.tensor([4, 0]), fill=True).shape == (8, 8)
    assert ragged.batch(torch.tensor([4]), fill=True, alike=True).shape == (8, 5)


def test_words_become_numbers_by_what_training_had():
    encoder = TokenEncoder.of([["the", "The", "cat"], ["the", "cats", "cat"]], range(2))
    assert "cats" not in encoder.tables[0]
    rows = encoder.encode([["THE", "dog"]]).values
    assert rows[0, 0] == 2 + encoder.tables[0].index("the")
    assert rows[1, 0] == 1
    longest = "x" * 12 + "y" * 90
    assert encoder.encode([[longest]]).values.shape == rows[:1].shape


def test_features_become_pairs():
    encoder = DictEncoder.of([[{"w": "a", "n": 2.5, "yes": True, "many": ["p", "q"]}]], range(1))
    assert encoder.names == ("", "many=p", "many=q", "n", "w=a", "yes")
    pairs = encoder.encode([[{"w": "b", "n": -1}, {"many": ["q"], "new": 3}]]).values
    assert pairs.tolist() == [[[1, 1], [4, -1]], [[1, 1], [3, 1]]]
