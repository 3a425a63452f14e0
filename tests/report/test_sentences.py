"""The page of a tagger: its chain against brute force, its numbers, its text."""

import itertools
import json
import math
import re

import numpy as np
import pytest
from pages import node, run_solver
from tagged_sentences import CHUNKS, KINDS, NUMBERS, TAGS, WORDS, fitted, judged, tangled

import spen
from spen.report.page import gather_tagger, render
from spen.report.sentences import (
    TagSubject,
    choose_sentences,
    sentence_facts,
    transition_facts,
)
from spen.report.tag_scores import span_rows, tag_rows, tagger_scores


@pytest.fixture(scope="module")
def chain():
    return tangled("chain")


@pytest.fixture(scope="module")
def wider():
    return tangled("chain+convolution")


# The chain in the page ----------------------------------------------------------------------

INFER = """values.rows.map((row) => {
  const free = spenChain.chain(row.unary, row.pairs, row.classes, row.constant);
  const chain = spenChain.held(free, new Map(row.known));
  const found = spenChain.beliefs(chain), best = spenChain.best(chain);
  return {marginals: found ? Array.from(found.frames.at(-1)) : null,
    first: found ? Array.from(found.frames[0]) : null, frames: found ? found.frames.length : 0,
    logs: found ? found.logPartition : null, tags: best.tags, energy: best.energy};
})""".replace("row.unary", "low(row.unary)").replace("row.pairs", "low(row.pairs)")
LOW = "const low = (values) => Float64Array.from(values, (v) => (v === null ? -Infinity : v));"


def by_hand(row):
    """Go over all taggings: marginals, −log Z of energies, and the best one."""
    K, unary, known = row["classes"], np.array(row["unary"], float), dict(row["known"])
    T = len(unary) // K
    unary, pairs = unary.reshape(T, K), np.array(row["pairs"], float).reshape(-1, K, K)
    scores = {}
    for tags in itertools.product(range(K), repeat=T):
        if any(tags[t] != tag for t, tag in known.items()):
            continue
        score = sum(unary[t, k] for t, k in enumerate(tags))
        for t, (j, k) in enumerate(itertools.pairwise(tags)):
            score += pairs[min(t, len(pairs) - 1), j, k]
        scores[tags] = score
    total = sum(math.exp(score) for score in scores.values())
    if not total:
        return None, None, None, None
    marginals = np.zeros((T, K))
    for tags, score in scores.items():
        marginals[range(T), tags] += math.exp(score) / total
    best = max(scores, key=scores.get)
    return marginals, math.log(total) - row["constant"], list(best), row["constant"] - scores[best]


@pytest.mark.skipif(node() is None, reason="node is not installed")
def test_the_pages_chain_is_exact():
    rng, rows = np.random.default_rng(0), []
    for T, K, tables in itertools.product((1, 2, 5), (2, 3), ("one", "each", "forbidden")):
        pairs = rng.normal(size=(T - 1 if tables == "each" and T > 2 else 1, K, K))
        unary = rng.normal(size=(T, K)) * 2
        if tables == "forbidden":
            pairs[0, 0, 1] = unary[0, 1] = -np.inf
        known = [(int(rng.integers(T)), 0)] if rng.random() < 0.7 else []
        rows.append((unary, pairs, K, known))
    rows.append((np.zeros((3, 2)), np.array([[[0, -np.inf], [-np.inf, -np.inf]]]), 2, [(1, 1)]))
    rows = [
        {
            "unary": unary.ravel().tolist(),
            "pairs": pairs.ravel().tolist(),
            "classes": K,
            "known": known,
            "constant": 0.25,
        }
        for unary, pairs, K, known in rows
    ]
    sent = json.loads(json.dumps(rows).replace("-Infinity", "null"))
    results = run_solver(f"(() => {{ {LOW} return {INFER}; }})()", "chain.js", rows=sent)
    assert len(results) == 19
    for row, found in zip(rows, results, strict=True):
        marginals, logs, tags, energy = by_hand(row)
        if marginals is None:
            assert found["marginals"] is None
            continue
        T = len(row["unary"]) // row["classes"]
        assert found["frames"] == T
        np.testing.assert_allclose(found["marginals"], marginals.ravel(), atol=1e-9)
        assert found["logs"] == pytest.approx(logs, abs=1e-9)
        assert (found["tags"], found["energy"]) == (tags, pytest.approx(energy, abs=1e-9))
        alone = np.array(row["unary"]).reshape(T, -1)
        held = [(t, k) for t, k in row["known"]]
        for t, k in held:
            alone[t, np.arange(row["classes"]) != k] = -np.inf
        alone = np.exp(alone) / np.exp(alone).sum(1, keepdims=True)
        np.testing.assert_allclose(found["first"], alone.ravel(), atol=1e-9)


# What the facts say -------------------------------------------------------------------------


@pytest.mark.parametrize("energy", ["local", "chain"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_any_kind_of_sentences(kind, energy):
    X, y = KINDS[kind], NUMBERS if kind == "arrays" else TAGS
    tagger = fitted(energy, X, y)
    facts = gather_tagger("a page", tagger, judged(tagger, X, y))
    assert facts["sentences"]["why_not"] is None
    example = facts["sentences"]["examples"][0]
    words = X[example["number"]]
    expected = {
        "words": list(words),
        "columns": [each["0"] for each in words] if kind == "columns" else None,
        "features": [each["word"] for each in words] if kind == "features" else None,
        "arrays": [str(t) for t in range(len(words))],
    }
    assert example["tokens"] == expected[kind]
    page = render(facts)
    assert page.count("<article>") == len(facts["sentences"]["examples"])
    assert f'<option value="0">{example["number"]}' not in page, "the script makes those"


def test_transitions_that_depend_on_features_are_in_the_page():
    energy = spen.LocalEnergy.unsized() + spen.ConditionalChainEnergy.unsized()
    tagger = tangled(energy)
    facts = gather_tagger("a page", tagger, judged(tagger))
    assert facts["sentences"]["pairs"] is None
    assert all(each["chain"]["pairs"] for each in facts["sentences"]["examples"])
    assert facts["transitions"]["depends"]
    assert "What the features of a position change about it is left out." in render(facts)


def test_scores_and_tables_are_those_of_the_tagger(chain):
    subject = TagSubject(chain, judged(chain))
    first, *others = tagger_scores(subject)
    assert first["name"] == "F1 of spans"
    assert first["value"] == pytest.approx(100 * chain.score(WORDS, CHUNKS))
    found = chain.predict(WORDS)
    right = [a == b for t, f in zip(CHUNKS, found, strict=True) for a, b in zip(t, f, strict=True)]
    assert others[0]["value"] == pytest.approx(100 * np.mean(right))
    rows = tag_rows(subject)
    assert rows["wrong"] == right.count(False)
    assert sum(true for _, true, *_ in rows["rows"]) == len(right)
    assert sum(count for *_, count in rows["mistakes"]) == rows["wrong"]
    kinds = span_rows(subject)
    assert [kind for kind, *_ in kinds] == ["NP", "VP"]
    assert [true for _, true, *_ in kinds] == [9, 3]


def test_sentences_that_the_energy_changes_come_first(chain):
    subject = TagSubject(chain, judged(chain))
    gains = {}
    for row, why in choose_sentences(subject):
        truth, found, alone = CHUNKS[row], subject.predicted[row], subject.alone[row]
        pairs = [sum(a == b for a, b in zip(truth, each, strict=True)) for each in (found, alone)]
        gains.setdefault(why, []).append(pairs[0] - pairs[1])
    assert min(gains.get("improved by the energy", [1])) > 0
    assert max(gains.get("led astray by the energy", [-1])) < 0
    assert gains.keys() & {"improved by the energy", "led astray by the energy"}
    assert sum(map(len, gains.values())) <= 12


def test_the_matrix_has_scores_and_crosses(chain):
    facts = transition_facts(chain, judged(chain))
    names = chain.classes_.tolist()
    assert facts["rows"] == [*names, "beginning"]
    assert facts["columns"] == [*names, "end"]
    weights = chain.model_.energy.terms[1]
    for i, before in enumerate([*names, None]):
        for j, after in enumerate([*names, None]):
            cell = facts["matrix"][i][j]
            if before is after is None:
                assert cell == ""
            elif (before, after) in chain.forbidden_:
                assert cell is None
            else:
                row = weights.start if before is None else weights.transitions[i]
                energy = weights.end[i] if after is None else row[j]
                assert cell == pytest.approx(-energy.item(), abs=0.006)
    counted = {(a, b): times for a, b, _, times in facts["strongest"]}
    assert counted["B-NP", "I-NP"] == 6
    assert counted["beginning", "O"] == 6
    assert transition_facts(fitted("local"), None) is None


def test_of_many_tags_the_matrix_shows_the_most_frequent():
    X, y = WORDS * 2, [[f"tag{(i * 3 + t) % 27:02}" for t in range(len(s))] for i, s in
                       enumerate(WORDS * 2)]  # fmt: skip
    tagger = fitted("chain", X, y, epochs=1)
    facts = transition_facts(tagger, judged(tagger, X, y))
    assert len(facts["rows"]) == 21
    assert np.shape(facts["matrix"]) == (21, 21)
    words = " ".join(render(gather_tagger("a page", tagger, judged(tagger, X, y))).split())
    assert f"Shown are 20 of {facts['tags']} tags" in words


def test_a_page_without_sentences_says_what_is_missing(chain):
    page = render(gather_tagger("a page", chain))
    assert "--data FILE" in page
    assert 'id="sentences"' not in page
    assert 'id="transitions"' in page


def test_too_many_scores_are_not_in_a_page(chain, monkeypatch):
    monkeypatch.setattr("spen.report.sentences.LARGEST", 50)
    facts = sentence_facts(TagSubject(chain, judged(chain)))
    assert facts["why_not"] == "the scores of these sentences are too many for a page"
    assert all(each["answers"] and "chain" not in each for each in facts["examples"])


def test_a_report_in_one_call(chain, tmp_path):
    page = chain.report(tmp_path / "page.html", WORDS, CHUNKS, title="<i>tags</i>")
    words = page.read_text(encoding="utf-8")
    assert "&lt;i&gt;tags&lt;/i&gt;" in words
    assert "judged by the sentences given (12)" in words
    assert "--data FILE" in chain.report(tmp_path / "page.html").read_text(encoding="utf-8")
    with pytest.raises(spen.InputError, match="X and y, or neither"):
        chain.report(tmp_path / "page.html", WORDS)
    with pytest.raises(spen.InputError, match="Sentence 1 has 2 positions and 3 tags in y"):
        chain.report(tmp_path / "page.html", WORDS, [CHUNKS[0], *CHUNKS[:-1]])


def test_missing_tags_and_tags_that_were_not_trained():
    tagger = tangled("chain", y=TAGS)
    y = [[None, *tags[1:-1], "new"] for tags in TAGS if len(tags) > 1]
    X = [words for words in WORDS if len(words) > 1]
    facts = gather_tagger("a page", tagger, judged(tagger, X, y))
    assert {each["truth"][0] for each in facts["sentences"]["examples"]} == {-1}
    assert facts["tags"]["untrained"] == 1
    assert "so are never predicted: 1." in " ".join(render(facts).split())


def test_names_and_words_are_text(tmp_path):
    X = [["<b>x</b>", "</script><img src=x>"], ["a\u2028b", "\u202e"]] * 4
    y = [["<i>", "\u05d0"], ["\u05d0", "<i>"]] * 4
    tagger = fitted("chain", X, y, epochs=1)
    page = render(gather_tagger("a page", tagger, judged(tagger, X, y)))
    assert page.count("<script") == 2
    assert "<i>" not in page
    assert "<img" not in page
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert "\u202e" not in page
