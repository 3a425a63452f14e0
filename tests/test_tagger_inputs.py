"""Bad input of a tagger gets a sentence that names the sentence and the position."""

import re

import numpy as np
import pytest
from tagged_sentences import ARRAYS, CHUNKS, COLUMNS, DICTS, NUMBERS, TAGS, WORDS, fitted, nan

import spen

BAD = {
    "no list": ("word", TAGS, "X must be a list of sentences.*received 'word'"),
    "no sentences": ([], [], "X holds no sentence"),
    "a sentence as text": (["the car"], [["D"]], "Sentence 0 must be a list of tokens.*'the car'"),
    "empty": ([["a"], []], [["D"], []], "Sentence 1 is empty. Leave it out"),
    "mixed": ([["a"], [{"w": 1}]], [["D"], ["D"]], "Sentence 1 holds dicts of f.*sentence 0 words"),
    "mixed words": ([["a", 3]], [["D", "N"]], "Sentence 0, position 1 must be a word.*received 3"),
    "mixed dicts": ([[{"a": 1}, "b"]], [["D", "N"]], "Sentence 0, position 1 must be a dict"),
    "a number": (
        [["a"], [3, 4]],
        [["D"], ["D", "N"]],
        "Sentence 1, position 0 must be a word, a dict or a row of numbers.*received 3",
    ),
    "no word": ([[None, "a"]], [["D", "N"]], "Sentence 0, position 0 must be a word.*None"),
    "ragged": ([[[1, 2], [3]]], [["D", "N"]], "Sentence 0, position 1 has 1 numbers.*0 has 2"),
    "texts as rows": ([[["a", "b"]]], [["D"]], "Sentence 0 must be words, dicts, or an array"),
    "an array of no dimension": ([np.array(3)], [["D"]], "Sentence 0 must be words, dicts, or an"),
    "a set": ([{"a", "b"}], [["D", "N"]], "Sentence 0 must be a list of tokens"),
    "widths": ([np.ones((2, 3)), np.ones((1, 2))], [["D", "N"], ["D"]], "Sentence 1 has 2 numbers"),
    "nan": (
        [np.array([[1, 2], [3, nan]])],
        [[0, 1]],
        "Sentence 0, position 1 holds nan in c",
    ),
    "inf": ([np.array([[np.inf, 2]])], [[0]], "Sentence 0, position 0 holds inf in column 0"),
    "a feature": (
        [[{"a": None}] * 2],
        [["D", "N"]],
        "Sentence 0, position 0: the feature 'a' must be text",
    ),
    "a column": (
        [[{"0": "a", "1": "b"}, {"0": "a"}]],
        [["D", "N"]],
        "Sentence 0, position 1 must have text in the columns 0, 1",
    ),
    "too few": (WORDS, TAGS[1:], "X holds 12 sentences and y the tags of 11"),
    "lengths": (
        [["a", "b"]],
        [["D"]],
        "Sentence 0 has 2 positions and 1 tags in y: position 1",
    ),
    "tags as text": ([["a", "b"]], ["DN"], "Sentence 0 must have a list of tags in y"),
    "a list as a tag": ([["a"]], [[["D"]]], r"Sentence 0, position 0 has the tag \['D'\] in y"),
    "a share as a tag": ([["a", "b"]], [[1, 1.5]], "Sentence 0, position 1 has the tag 1.5 in y"),
    "no tag": ([["a"]], [[None]], "y holds no tag at all"),
    "one tag": ([["a"]], [["D"]], "y holds one tag alone, 'D'"),
    "kinds of tags": (
        [["a", "b"]],
        [["D", 3]],
        "first one is 'D', and sentence 0, position 1 has 3",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told_by_sentence_and_position(case):
    X, y, words = BAD[case]
    tagger = spen.SPENTagger(epochs=1)
    with pytest.raises(spen.InputError, match=words):
        tagger.fit(X, y)
    assert not hasattr(tagger, "model_")


CALLS = {
    "predict": lambda tagger, X, known: tagger.predict(X, known=known),
    "predict_marginals": lambda tagger, X, known: tagger.predict_marginals(X, known=known),
    "predict_n_best": lambda tagger, X, known: tagger.predict_n_best(X, 2, known=known),
    "energy": lambda tagger, X, y: tagger.energy(X, y),
    "score": lambda tagger, X, y: tagger.score(X, y),
}
"""What takes sentences, and tags that are known or judged."""

UNFIT = {
    "of another kind": (ARRAYS, "X holds arrays of numbers, and the model was trained on words"),
    "empty": ([["a"], []], "Sentence 1 is empty. Leave it out"),
    "no word": ([["a"], ["b", None]], "Sentence 1, position 1 must be a word, as those before it"),
    "text": (["the car"], "Sentence 0 must be a list of tokens"),
    "none": ([], "X holds no sentence"),
}


@pytest.fixture(scope="module", params=["chain", "local", "chain+convolution"])
def chunker(request):
    return fitted(request.param, y=CHUNKS)


def calls_of(tagger):
    """Every call that a model answers: the n best are those of chains."""
    return [
        call for name, call in CALLS.items() if tagger.predictor_.is_chain or "n_best" not in name
    ]


@pytest.mark.parametrize("case", UNFIT)
def test_sentences_that_are_none_are_told_by_every_method(chunker, case):
    X, words = UNFIT[case]
    for call in calls_of(chunker):
        with pytest.raises(spen.InputError, match=words):
            call(chunker, X, [["O"] * len(each) for each in X])


def test_tags_that_do_not_fit_are_told_by_every_method(chunker):
    X = [["a"], ["the", "car"]]
    for name, call in CALLS.items():
        if call not in calls_of(chunker):
            continue
        where = "y" if name in ("energy", "score") else "known"
        for tags, words in [
            ([["O"], ["O"]], f"Sentence 1 has 2 positions and 1 tags in {where}: position 1 has"),
            ([["O"], ["O", "O", "O"]], f"Sentence 1 has 2 positions and 3 tags in {where}: po"),
            ([["O"]], f"X holds 2 sentences and {where} the tags of 1"),
            ([["O"], "OO"], f"Sentence 1 must have a list of tags in {where}; received 'OO'"),
            ([["O"], ["O", ["O"]]], rf"Sentence 1, position 1 has the tag \['O'\] in {where}"),
            ("OO", f"{where} must be a list of tags for each sentence; received 'OO'"),
        ]:
            with pytest.raises(spen.InputError, match=words):
                call(chunker, X, tags)


def test_tags_that_were_not_trained_are_told_by_every_method(chunker):
    X, tags = [["a"], ["the", "car"]], [["O"], ["O", "B-NQ"]]
    for name, call in CALLS.items():
        if call not in calls_of(chunker):
            continue
        where = "y" if name in ("energy", "score") else "known"
        words = f"Sentence 1, position 1 has the tag 'B-NQ' in {where}, which was not trained. "
        if name == "score":
            with pytest.warns(UserWarning, match=re.escape(words + "It counts as missed.")):
                call(chunker, X, tags)
        else:
            with pytest.raises(spen.InputError, match=words + "Did you mean 'B-NP'"):
                call(chunker, X, tags)


def test_known_tags_that_leave_no_tagging_are_told_by_every_method(chunker):
    for call in calls_of(chunker)[:-2]:
        for known, where in [
            ([[None], ["O", "I-NP"]], "Sentence 1, position 1"),
            ([["I-NP"], [None, None]], "Sentence 0, position 0"),
            ([[None], ["B-VP", "I-NP"]], "Sentence 1, position 1"),
        ]:
            words = f"{where}: the known tags and the forbidden transitions leave no tag for it"
            with pytest.raises(spen.InputError, match=words):
                call(chunker, [["a"], ["the", "car"]], known)


def test_missing_tags_are_told_where_all_are_needed():
    for tagger, words in [
        (fitted(), "Sentence 1, position 0 has no tag in y; an energy is that of a whole"),
        (fitted(y=CHUNKS), "Sentence 1, position 0 has no tag in y; an energy is that of a whole"),
    ]:
        with pytest.raises(spen.InputError, match=words):
            tagger.energy([["a"], ["b"]], [[tagger.classes_[0]], [None]])
    with pytest.raises(spen.InputError, match="Sentence 1, position 0 has no tag in y; spans need"):
        tagger.score([["a"], ["b"]], [["O"], [None]])
    with pytest.raises(spen.InputError, match="n must be a whole number of 1 or more"):
        tagger.predict_n_best(WORDS, 0)


ALONE = [(None, "A"), (None, "N"), (None, "R"), ("D", None)]
"""D begins every sentence and ends none, so one of a single position has no tagging."""

OWN = spen.LocalEnergy.unsized() + spen.ChainEnergy.unsized(
    forbidden=[(-1, 0), (-1, 2), (-1, 3), (1, -1)]
)


@pytest.mark.parametrize(
    "settings",
    [
        {"constraints": ALONE},
        {"constraints": ALONE, "energy": "local"},
        {"constraints": ALONE, "energy": "chain+convolution"},
        {"energy": OWN},
        {"energy": OWN + spen.ConvolutionEnergy.unsized()},
    ],
    ids=["chain", "local", "convolution", "own chain", "own convolution"],
)
def test_rules_that_forbid_every_tagging_are_told_by_the_sentence(settings):
    X = [words for words in WORDS if len(words) > 1]
    y = [tags for tags in TAGS if len(tags) > 1]
    tagger = fitted(X=X, y=y, **settings)
    assert set(tagger.forbidden_) == set(ALONE)
    # The shortest one is solved first, and is the third that was given.
    mixed, truth = [["a", "b"], ["the", "red", "car"], ["a"]], [["D", "N"], ["D", "N", "A"], ["D"]]
    for call in calls_of(tagger):
        if call is not CALLS["energy"]:
            with pytest.raises(spen.InputError, match="Sentence 2, position 0: the forbidden tran"):
                call(tagger, mixed, truth if call is CALLS["score"] else None)
    assert all(tags[0] == "D" != tags[-1] for tags in tagger.predict(X))
    with pytest.raises(spen.InputError, match="Sentence 0, position 0: the known tags and the for"):
        tagger.predict([["a", "b"]], known=[["A", None]])
    alone = [["the"], ["car"]], [["D"], ["D"]]
    with pytest.raises(spen.InputError, match="eval_set: Sentence 0, position 0: the forbidden"):
        tagger.fit(X, y, eval_set=alone)


def test_tags_of_training_that_rules_forbid_are_told():
    every = [(None, tag) for tag in ("A", "D", "N", "R")]
    with pytest.raises(spen.InputError, match="Sentence 0, position 0 has 'D' after nothing"):
        fitted(constraints=every)
    with pytest.raises(spen.InputError, match="forbids what training tags do: sentence 3, pos"):
        fitted(OWN)
    between = [("D", tag) for tag in ("A", "D", "R")] + [("A", "N"), ("N", "N")]
    gaps = [["D", None, "N"], ["N", None], ["N", "D", None, "A"], ["R"]] * 3
    with pytest.raises(
        spen.InputError,
        match="Sentence 0, position 2: the tags in y and the forbidden transitions leave no tag",
    ):
        fitted(constraints=between, y=gaps)


def test_a_sentence_that_is_held_out_has_its_own_number():
    """The held-out ones leave gaps among the others."""
    widths = [rows[:, :2] if i == 9 else rows for i, rows in enumerate(ARRAYS)]
    nothing = [[*s[:-1], {}] if i == 9 else s for i, s in enumerate(COLUMNS)]
    objects = [[*s[:-1], {"w": None}] if i == 9 else s for i, s in enumerate(DICTS)]
    for X, y, words in [
        (widths, NUMBERS, "Sentence 9 has 2 numbers for each position where 4"),
        (nothing, TAGS, "Sentence 9, position 1 must have text in the columns 0, 1"),
        (objects, TAGS, "Sentence 9, position 1: the feature 'w' must be text"),
    ]:
        for seed in range(3):
            with pytest.raises(spen.InputError, match=words):
                fitted(X=X, y=y, early_stopping=True, held_out=0.5, random_state=seed)


def test_numbers_may_come_with_missing_ones():
    y = [np.where(np.arange(len(each)) == 0, nan, each) for each in NUMBERS]
    tagger = fitted(X=ARRAYS, y=y)
    assert tagger.classes_.tolist() == [0, 1]
    known = [np.array([nan] * (len(each) - 1) + [1.0]) for each in NUMBERS]
    assert {tags[-1] for tags in tagger.predict(ARRAYS, known=known)} == {1}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"energy": "chains"}, "Unknown energy 'chains'. Did you mean 'chain'"),
        ({"energy": 3}, "energy must be one of local, chain, chain.convolution, or a description"),
        ({"energy": spen.ChainEnergy.unsized()}, "energy must have a LocalEnergy"),
        ({"energy": "chain+convolution", "objective": "hinge"}, "objective='hinge' is for chains"),
        ({"objective": "crf"}, "Unknown objective 'crf'"),
        ({"inference": "viterbi"}, "inference must be 'auto' or an Inference"),
        ({"epochs": 0}, "epochs must be a whole number of 1 or more; received 0"),
        ({"lr": -1}, "lr must be a number above zero"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"held_out": 0.0}, "held_out"),
        ({"early_stopping": 0}, "early_stopping must be a whole number"),
        ({"early_stopping": True, "held_out": 0.01}, "holds out a share of 0.01 of 12 sentences"),
        ({"constraints": "bio"}, "Unknown constraints 'bio'"),
    ],
)
def test_bad_settings_are_told(settings, words):
    with pytest.raises(spen.InputError, match=re.compile(words)):
        fitted(**settings)


def test_bad_companions_of_a_fit():
    tagger = spen.SPENTagger(epochs=1)
    for options, words in [
        ({"sample_weight": [1, 2]}, "sample_weight must be 12 numbers"),
        ({"sample_weight": np.zeros(12)}, "sample_weight is zero everywhere"),
        ({"eval_set": WORDS}, "eval_set must be a pair"),
        ({"eval_set": (ARRAYS, NUMBERS)}, "eval_set holds arrays of numbers, and X words"),
        (
            {"eval_set": (WORDS[:1], [["D", "A", "Q"]])},
            "eval_set: Sentence 0, position 2 has the tag 'Q' in y, which was not trained",
        ),
        ({"eval_set": ([["a"], []], [["D"], []])}, "eval_set: Sentence 1 is empty"),
        ({"eval_set": (WORDS, TAGS[1:])}, "eval_set: X holds 12 sentences and y the tags of 11"),
        ({"eval_set": ([["a"]], [["D", "N"]])}, "eval_set: Sentence 0 has 1 positions and 2 tags"),
    ]:
        with pytest.raises(spen.InputError, match=words):
            tagger.fit(WORDS, TAGS, **options)
