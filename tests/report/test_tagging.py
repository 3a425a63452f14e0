"""The page of a tagger in a real browser: it answers as the model does, is legible, and fits."""

import itertools
import math
import re

import browser
import numpy as np
import pytest
from pages import TURNING, are_isolated
from tagged_sentences import WORDS, fitted, judged, tangled

import spen
from spen.report.page import gather_tagger, write_page


@pytest.fixture(scope="module")
def chain():
    return tangled("chain")


@pytest.fixture(scope="module")
def wider():
    return tangled("chain+convolution")


@pytest.fixture(scope="module")
def window():
    window = browser.start()
    yield window
    window.quit()


@pytest.fixture(scope="module")
def pages(chain, wider, tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("pages"), {}
    for name, tagger in (("chain", chain), ("wider", wider)):
        facts = gather_tagger("a page", tagger, judged(tagger))
        found[name] = write_page(facts, folder / f"{name}.html").as_uri(), facts["sentences"]
    return found


@pytest.fixture
def opened(window, pages):
    browser.resize(window, 1280)
    browser.colour_scheme(window, dark=False)

    def open_page(name):
        window.get_log("browser")
        window.get(pages[name][0])
        return pages[name][1]["examples"]

    return open_page


def shown(window):
    """Return the tag of each position, and its probability, as the page has them now."""
    return window.execute_script(
        "return [...document.querySelectorAll('.player .token')]"
        ".map(e => [e.dataset.tag, e.dataset.p === '' ? null : Number(e.dataset.p)])"
    )


def press(window, css):
    window.execute_script("document.querySelector(arguments[0]).click()", css)


def look(window, sentence, position):
    window.execute_script(
        "const s = document.querySelector('.player select'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('change'))", sentence,
    )  # fmt: skip
    press(window, f".player [data-position='{position}']")


def said_by(tagger, words, known=None):
    known = None if known is None else [known]
    tags = tagger.predict([words], known)[0]
    marginals = tagger.predict_marginals([words], known)[0]
    return tags, marginals


def test_it_loads_and_shows_what_python_predicts(window, opened, chain):
    examples = opened("chain")
    assert window.get_log("browser") == []
    for k, example in enumerate(examples):
        look(window, k, 0)
        tags, marginals = said_by(chain, WORDS[example["number"]])
        names = chain.classes_.tolist()
        values = [marginals[t, names.index(tag)] for t, tag in enumerate(tags)]
        found = shown(window)
        assert [tag for tag, _ in found] == tags
        assert [p for _, p in found] == pytest.approx(values, abs=1e-5)
        energy = window.execute_script("return document.querySelector('.side').textContent")
        energy = float(re.search(r"tagging: (\S+)", energy)[1].replace("−", "-"))
        assert energy == pytest.approx(
            chain.energy([WORDS[example["number"]]], [tags])[0], abs=2e-3
        )


def test_the_steps_go_from_each_position_alone_to_the_marginals(window, opened, chain):
    examples = opened("chain")
    k = max(range(len(examples)), key=lambda k: len(examples[k]["tokens"]))
    look(window, k, 0)
    slider = "const s = document.querySelector('.player input[type=range]'); "
    assert window.execute_script(slider + "return s.max") == str(len(examples[k]["tokens"]) - 1)
    end = shown(window)
    window.execute_script(slider + "s.value = 0; s.dispatchEvent(new Event('input'))")
    assert shown(window) != end
    assert window.execute_script("return document.querySelector('.step').textContent") == (
        f"step 0 of {len(examples[k]['tokens']) - 1}"
    )
    for _ in examples[k]["tokens"]:
        press(window, "[aria-label='Next step']")
    assert shown(window) == end
    press(window, "[aria-label='Play the steps']")
    assert window.execute_script(slider + "return s.value") == "0"


def test_tags_that_are_set_get_the_exact_answer_of_the_model(window, opened, chain):
    examples, names = opened("chain"), chain.classes_.tolist()
    for k, example in enumerate(examples):
        words = WORDS[example["number"]]
        if len(words) < 3:
            continue
        known = [None] * len(words)
        # One tag after the other, neither what is predicted nor what was set before.
        for t in (1, 2):
            tags, _ = said_by(chain, words, known)
            options = [tag for tag in names if tag != tags[t]]
            for tag in options:
                trial = [*known[:t], tag, *known[t + 1 :]]
                try:
                    tags, marginals = said_by(chain, words, trial)
                except spen.InputError:
                    continue
                known = trial
                break
            if t == 1:
                look(window, k, t)
            press(window, f".player [data-position='{t}']")
            press(window, ".bars .more") if len(names) > 8 else None
            press(window, f"[data-set='{t}={names.index(known[t])}']")
            found = shown(window)
            assert [tag for tag, _ in found] == tags
            values = [marginals[place, names.index(tag)] for place, tag in enumerate(tags)]
            assert [p for _, p in found] == pytest.approx(values, abs=1e-5)
        free, held = (chain_logs(chain, words, each) for each in ([None] * len(words), known))
        said = window.execute_script("return document.querySelector('.side').textContent")
        share = re.search(r"its probability was ([\d.e−-]+)(\s%)?", said)
        share = float(share[1].replace("−", "-")) / (100 if share[2] else 1)
        assert share == pytest.approx(math.exp(held - free), rel=0.02, abs=1e-4)
        press(window, "[aria-label='Free all tags that were set']")
        assert [tag for tag, _ in shown(window)] == said_by(chain, words)[0]


def chain_logs(tagger, words, known):
    """log Z by brute force."""
    names, barred = tagger.classes_.tolist(), set(tagger.forbidden_)
    every = [
        list(tags)
        for tags in itertools.product(names, repeat=len(words))
        if not barred & set(itertools.pairwise([None, *tags, None]))
        and all(a in (None, b) for a, b in zip(known, tags, strict=True))
    ]
    energies = tagger.energy([words] * len(every), every)
    return float(np.logaddexp.reduce(-energies))


def test_tags_that_are_ruled_out_cannot_be_set(window, opened, chain):
    opened("chain")
    look(window, 0, 0)
    names = chain.classes_.tolist()
    disabled = (
        "return [...document.querySelectorAll('.bars button[disabled]')].map(e => e.dataset.set)"
    )
    assert window.execute_script(disabled) == [f"0={names.index('I-NP')}"], "nothing begins so"
    press(window, f"[data-set='0={names.index('O')}']")
    press(window, ".player [data-position='1']")
    assert window.execute_script(disabled) == [f"1={names.index('I-NP')}"], "nor after O"


def test_answers_of_other_energies_were_computed_beforehand(window, opened, wider):
    examples, names = opened("wider"), wider.classes_.tolist()
    assert window.get_log("browser") == []
    words = window.execute_script("return document.querySelector('#sentences').innerText")
    assert "was computed beforehand: a page infers chains, and this energy is LocalEnergy" in words
    pressed = 0
    for k, example in enumerate(examples):
        sentence = WORDS[example["number"]]
        look(window, k, 0)
        tags, marginals = said_by(wider, sentence)
        found = shown(window)
        assert [tag for tag, _ in found] == tags
        values = [marginals[t, names.index(tag)] for t, tag in enumerate(tags)]
        assert [p for _, p in found] == pytest.approx(values, abs=1e-5)
        for setting in list(example["answers"])[::3]:
            t, tag = map(int, setting.split("="))
            press(window, f".player [data-position='{t}']")
            press(window, f"[data-set='{setting}']")
            known = [names[tag] if place == t else None for place in range(len(sentence))]
            tags, marginals = said_by(wider, sentence, known)
            found = shown(window)
            assert [tag for tag, _ in found] == tags
            for place, (tag_there, p) in enumerate(found):
                if p is not None:
                    expected = marginals[place, names.index(tag_there)]
                    assert p == pytest.approx(expected, abs=1e-4)
            pressed += 1
            alone = window.execute_script("return document.querySelectorAll('.token.held').length")
            assert alone == 1, "one at a time"
    assert pressed > 10
    assert window.get_log("browser") == []


def test_the_steps_of_a_descent_are_those_of_python(window, opened, wider):
    examples = opened("wider")
    look(window, 0, 0)
    slider = "const s = document.querySelector('.player input[type=range]'); "
    assert window.execute_script(slider + "return s.max") == "5"
    end = shown(window)
    window.execute_script(slider + "s.value = 0; s.dispatchEvent(new Event('input'))")
    assert shown(window) != end
    assert examples[0]["trace"]["steps"] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["chain", "wider"])
@pytest.mark.parametrize("dark", [False, True])
def test_all_text_is_legible(window, opened, name, dark):
    opened(name)
    browser.colour_scheme(window, dark)
    background = window.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (background != "rgb(255, 255, 255)") == dark
    press(window, ".bars button:not([disabled])")
    assert window.execute_script(browser.CONTRAST) == {}


@pytest.mark.parametrize("name", ["chain", "wider"])
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_no_window_scrolls_sideways_and_fingers_have_room(window, pages, name, width):
    browser.resize(window, width)
    window.get(pages[name][0])
    window.execute_script("document.querySelectorAll('details').forEach(e => e.open = true)")
    press(window, ".bars button:not([disabled])")
    assert window.execute_script("return document.documentElement.scrollWidth") <= width
    if width < 500:
        small = window.execute_script(
            "return [...document.querySelectorAll('button, select, input, summary, nav a')]"
            ".map(e => [e, e.getBoundingClientRect()])"
            ".filter(([e, box]) => box.width && (box.height < 39.5 ||"
            " (e.tagName === 'BUTTON' && box.width < 39.5))).map(([e]) => e.outerHTML)"
        )
        assert small == []


def test_the_keyboard_sets_a_tag(window, opened):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    opened("chain")
    window.execute_script("document.querySelector('.player [data-position=\"1\"]').focus()")
    ActionChains(window).send_keys(Keys.ENTER).perform()
    window.execute_script("document.querySelector('.bars button:not([disabled])').focus()")
    chosen = window.execute_script("return document.activeElement.dataset.set")
    ActionChains(window).send_keys(Keys.ENTER).perform()
    assert chosen.startswith("1=")
    state = "const e = document.activeElement; return [e.dataset.set, e.ariaPressed]"
    assert window.execute_script(state) == [chosen, "true"], "the focus stays"


def test_names_turn_the_direction_of_nothing_else(window, tmp_path):
    X = [[name, "a"] for name in TURNING] * 2
    y = [[TURNING[0], TURNING[2]], [TURNING[1], TURNING[0]], [TURNING[3], TURNING[4]]] * 4
    tagger = fitted("chain", X, y, epochs=1)
    path = write_page(gather_tagger("a page", tagger, judged(tagger, X, y)), tmp_path / "a.html")
    window.get(path.as_uri())
    press(window, ".bars button:not([disabled])")
    texts = window.execute_script(
        "const all = [...document.querySelectorAll('body *:not(script)')];"
        "const own = (e) => [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data);"
        "return all.flatMap(e => [...own(e), ...[...e.attributes].map(a => a.value)])"
    )
    assert sum("\u05d0" in text for text in texts) > 10
    assert are_isolated(texts)
