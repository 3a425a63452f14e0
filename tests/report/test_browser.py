"""The page in a real browser: it works, it is legible, it fits, and nothing leaves it."""

import json

import browser
import numpy as np
import pytest
import torch
from pages import TURNING, are_isolated, fitted

import spen
from spen.report.page import gather, write_page
from spen.report.subject import Judged, Subject

NAMES = ["sun", "sea", "<b>wind</b>", 'a "long" name that goes on and on and on', "rain", "snow"]


@pytest.fixture(scope="module")
def window():
    window = browser.start()
    yield window
    window.quit()


@pytest.fixture(scope="module")
def subject():
    # The default of predictions is a few unrolled steps; this one descends until it converges.
    classifier, rows = fitted(
        NAMES, objective=spen.Hinge(entropy=1.0), inference=spen.Descent(), decoding="threshold"
    )
    return Subject(classifier, Judged.of(rows, "the test rows"))


@pytest.fixture(scope="module")
def facts(subject):
    return gather("a page", subject.classifier, subject.judged)


@pytest.fixture(scope="module")
def page(facts, tmp_path_factory):
    return write_page(facts, tmp_path_factory.mktemp("page") / "page.html").as_uri()


@pytest.fixture
def opened(window, page):
    browser.resize(window, 1280)
    browser.colour_scheme(window, dark=False)
    window.get_log("browser")
    window.get(page)
    return window


def shown(window) -> dict[str, float]:
    """Return ȳ of each label as the page has it now."""
    return window.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('.bars li')].map(line =>"
        " [line.dataset.label, Number(line.querySelector('.value').dataset.y)]))"
    )


def press(window, css: str) -> None:
    window.execute_script("document.querySelector(arguments[0]).click()", css)


def test_it_loads_without_an_error_and_nothing_leaves_it(opened, page):
    assert opened.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    asked = [
        m["params"]["request"]["url"]
        for m in messages
        if m["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in asked if not url.startswith(("data:", "file:"))] == []
    assert {url for url in asked if url.startswith("file:")} <= {page}
    assert opened.execute_script("return document.querySelectorAll('.bars li').length") == 6


def test_the_stepper_moves_from_the_start_to_the_answer(opened, subject, facts):
    example = facts["examples"]["examples"][0]
    row = example["row"] - 1
    names = subject.label_names
    end = dict(zip(names, subject.solution.y[row].tolist(), strict=True))
    assert shown(opened) == pytest.approx(end, abs=2e-3)
    energy = opened.execute_script("return document.querySelector('.side svg text').textContent")
    assert float(energy.split()[1]) == pytest.approx(subject.solution.energy[row].item(), abs=2e-3)

    slider = "const s = document.querySelector('.player input[type=range]'); "
    opened.execute_script(slider + "s.value = 0; s.dispatchEvent(new Event('input'))")
    assert shown(opened) == dict.fromkeys(names, 0.5), "the start is one half everywhere"
    press(opened, "[aria-label='Next step']")
    one = shown(opened)
    assert one != dict.fromkeys(names, 0.5)
    trace = subject.solve_traced(np.array([row])).trace
    assert one == pytest.approx(dict(zip(names, trace.y[1, 0].tolist(), strict=True)), abs=1e-4)
    assert opened.execute_script(slider + "return s.value") == "1"
    press(opened, "[aria-label='Previous step']")
    assert shown(opened) == dict.fromkeys(names, 0.5)


@pytest.mark.parametrize("label", [0, 2, 3])
def test_a_label_that_is_set_moves_the_others_as_python_says(opened, subject, facts, label):
    example = facts["examples"]["examples"][1]
    opened.execute_script(
        "const s = document.querySelector('.player select'); s.value = 1;"
        "s.dispatchEvent(new Event('change'))"
    )
    before = shown(opened)
    # The other way than inference has it, so that the others have something to answer.
    value = int(before[NAMES[label]] < 0.5)
    press(opened, f"[data-set='{label}={value}']")
    known = np.full((1, 6), np.nan)
    known[0, label] = value
    rows = subject.scaled[[example["row"] - 1]]
    expected = subject.predictor.solve(rows, known).y[0].tolist()
    after = shown(opened)
    assert after == pytest.approx(dict(zip(subject.label_names, expected, strict=True)), abs=2e-3)
    others = [name for k, name in enumerate(subject.label_names) if k != label]
    assert max(abs(after[name] - before[name]) for name in others) > 0.02
    pressed = f"return document.querySelector(`[data-set='{label}={value}']`).ariaPressed"
    assert opened.execute_script(pressed) == "true"
    assert opened.execute_script("return document.querySelectorAll('.answers li').length") > 0
    press(opened, "[aria-label='Free all labels that were set']")
    assert shown(opened) == before


def test_two_labels_may_be_set(opened, subject, facts):
    press(opened, "[data-set='0=1']")
    press(opened, "[data-set='5=0']")
    example = facts["examples"]["examples"][0]
    known = torch.full((1, 6), torch.nan)
    known[0, 0], known[0, 5] = 1, 0
    rows = subject.scaled[[example["row"] - 1]]
    expected = subject.predictor.solve(rows, known.numpy()).y[0].tolist()
    assert shown(opened) == pytest.approx(dict(zip(NAMES, expected, strict=True)), abs=2e-3)


def test_a_button_proposes_the_label_that_python_would_ask_about(opened, subject, facts):
    row = facts["examples"]["examples"][0]["row"] - 1
    X, known = subject.judged.rows.X[[row]], {}
    for _ in range(3):
        press(opened, "[aria-label='Propose the label whose answer tells most']")
        [[best, *_]] = subject.classifier.next_question(X, known)
        words = opened.execute_script("return document.querySelector('.advice').textContent")
        assert words.startswith(f"Set {NAMES[best.index]} next: ")
        assert float(words.split("take ")[1].split()[0]) == pytest.approx(best.gain, abs=1e-3)
        assert f" {100 * best.probability:.0f} % likely" in words
        focus = opened.execute_script("return document.activeElement.dataset.set")
        assert focus == f"{best.index}=0", "one key answers"
        marked = "return [...document.querySelectorAll('.proposed')].map(e => e.dataset.label)"
        assert opened.execute_script(marked) == [NAMES[best.index]]
        press(opened, f"[data-set='{best.index}=1']")
        known[best.label] = 1
        assert opened.execute_script(marked) == []
        assert opened.execute_script("return document.querySelector('.advice').textContent") == ""
    for label in range(6):
        if NAMES[label] not in known:
            press(opened, f"[data-set='{label}=0']")
    disabled = "return document.querySelector('[aria-label^=Propose]').disabled"
    assert opened.execute_script(disabled), "nothing is left to ask"


def test_the_keyboard_reaches_everything(opened):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    seen = set()
    for _ in range(60):
        ActionChains(opened).send_keys(Keys.TAB).perform()
        focus = (
            "const e = document.activeElement; return e.dataset.set || e.ariaLabel || e.textContent"
        )
        seen.add(opened.execute_script(focus))
    assert {"Row", "Next step", "Step of inference", "Play the steps", "0=1", "5=0"} <= seen
    assert any(words and words.startswith("rows with it") for words in seen)
    opened.execute_script("document.querySelector('[data-set=\"1=1\"]').focus()")
    ActionChains(opened).send_keys(Keys.ENTER).perform()
    assert shown(opened)["sea"] == 1


def test_sorting_sorts(opened):
    def column(k):
        return opened.execute_script(
            "return [...document.querySelectorAll('#label-scores tbody tr')]"
            ".map(row => row.cells[arguments[0]].textContent)", k,
        )  # fmt: skip

    press(opened, "#label-scores th:nth-child(6) button")
    falling = [float(words) for words in column(5)]
    assert falling == sorted(falling, reverse=True)
    press(opened, "#label-scores th:nth-child(6) button")
    assert [float(words) for words in column(5)] == sorted(falling)
    state = "return document.querySelector('#label-scores th:nth-child(6)').ariaSort"
    assert opened.execute_script(state) == "ascending"
    press(opened, "#label-scores th:nth-child(1) button")
    assert len(set(column(0))) == 6
    words = [name for name in column(0) if name.isalpha()]
    assert words == sorted(words)
    assert opened.execute_script(state) is None


@pytest.mark.parametrize("dark", [False, True])
def test_all_text_is_legible(opened, page, dark):
    """Every text has the contrast of 4.5 that the WCAG ask for."""
    browser.colour_scheme(opened, dark)
    opened.get(page)
    background = opened.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (background != "rgb(255, 255, 255)") == dark
    assert opened.execute_script(browser.CONTRAST) == {}


@pytest.mark.parametrize("width", [400, 320, 768])
def test_a_narrow_window_does_not_scroll_sideways(opened, page, width):
    browser.resize(opened, width)
    opened.get(page)
    sizes = "return [document.documentElement.scrollWidth, window.innerWidth]"
    scrolled, inner = opened.execute_script(sizes)
    assert inner == width
    assert scrolled <= width


@pytest.fixture(scope="module")
def page_of_many(tmp_path_factory):
    names = [f"a label of some length {k}" for k in range(40)]
    classifier, rows = fitted(names, labels=40)
    facts = gather("a page", classifier, Judged.of(rows, "rows"))
    return write_page(facts, tmp_path_factory.mktemp("many") / "page.html").as_uri()


LINES = "[...document.querySelectorAll('#label-scores tbody tr')]"


def test_no_label_is_hidden_without_a_word(window, page_of_many):
    browser.resize(window, 1280)
    window.get(page_of_many)
    seen = f"return {LINES}.filter(e => e.getClientRects().length).length"
    boxes = "[...document.querySelectorAll('.scroll')].filter(e => e.clientHeight)"
    hidden = f"return {boxes}.some(e => e.scrollHeight > e.clientHeight + 1)"
    assert window.execute_script(f"return {LINES}.length") == 40
    assert window.execute_script(seen) == 25
    assert not window.execute_script(hidden)
    told = "return document.querySelector('#scores .more')?.textContent"
    assert window.execute_script(told) == "Show all 40: 15 more"
    press(window, "#label-scores th:nth-child(1) button")
    assert window.execute_script(seen) == 25, "the first ones of whatever order"
    press(window, "#scores .more")
    assert window.execute_script(seen) == 40
    assert not window.execute_script(hidden)
    assert window.execute_script(told) is None
    rest = window.execute_script("return document.querySelector('.bars .rest').textContent")
    shown = window.execute_script("return document.querySelectorAll('[data-label]').length")
    assert rest.startswith(f"and {40 - shown} ")


@pytest.mark.parametrize("which", ["page", "page_of_many"])
def test_a_phone_has_room_for_fingers_and_pictures(window, request, which):
    browser.resize(window, 390)
    window.get(request.getfixturevalue(which))
    window.execute_script("document.querySelectorAll('details').forEach(e => e.open = true)")
    small = window.execute_script(
        "const all = 'button, select, input, summary, nav a';"
        "return [...document.querySelectorAll(all)].map(e => [e, e.getBoundingClientRect()])"
        ".filter(([e, box]) => box.width && (box.height < 39.5 ||"
        " (e.tagName === 'BUTTON' && box.width < 39.5))).map(([e]) => e.outerHTML)"
    )
    assert small == []
    assert window.execute_script("return document.documentElement.scrollWidth") <= 390
    cut = window.execute_script(
        "return [...document.querySelectorAll('svg, nav')].filter(e => {"
        " const box = e.getBoundingClientRect();"
        " return box.right > 390 || e.scrollWidth > e.clientWidth + 1; }).map(e => e.ariaLabel)"
    )
    assert cut == [], "pictures and links fit, without scrolling"
    letters = window.execute_script(
        "return Math.min(...[...document.querySelectorAll('svg text')]"
        ".filter(e => e.getClientRects().length && !e.matches('.tiny'))"
        ".map(e => 12 * Math.abs(e.ownerSVGElement.getScreenCTM().a)))"
    )
    assert letters >= 10, "names are legible"


def test_names_are_text(opened):
    assert opened.execute_script("return document.querySelectorAll('.bars b, table b').length") == 0
    assert "<b>wind</b>" in opened.execute_script("return document.body.innerText")


def test_a_page_whose_answers_were_computed_beforehand(window, tmp_path):
    deep = spen.LabelEnergy.unsized(measurements=3, hidden=(2,), nonlinearity="softplus")
    classifier, rows = fitted(NAMES, energy=deep)
    facts = gather("a page", classifier, Judged.of(rows, "rows"))
    window.get_log("browser")
    window.get(write_page(facts, tmp_path / "page.html").as_uri())
    example = facts["examples"]["examples"][0]
    names = facts["examples"]["names"]
    shown_names = [names[k] for k in example["shown"]]
    assert shown(window) == pytest.approx(dict(zip(shown_names, example["end"], strict=True)))
    press(window, "[data-set='1=1']")
    answer = example["answers"]["1=1"]["y"]
    assert shown(window) == pytest.approx(dict(zip(shown_names, answer, strict=True)))
    assert window.execute_script("return document.querySelector('[aria-label^=Propose]')") is None
    assert window.get_log("browser") == []


def places_of(window, css: str) -> list[list[float]]:
    """Return where each letter of an element's text is drawn, from left to right."""
    return window.execute_script(
        "const e = document.querySelector(arguments[0]), range = document.createRange();"
        "const walk = document.createTreeWalker(e, NodeFilter.SHOW_TEXT), found = [];"
        "while (walk.nextNode()) for (let k = 0; k < walk.currentNode.length; k++) {"
        "  range.setStart(walk.currentNode, k); range.setEnd(walk.currentNode, k + 1);"
        "  const box = range.getBoundingClientRect();"
        "  if (box.width) found.push([walk.currentNode.data[k], box.left]); }"
        "return found",
        css,
    )


def test_a_name_does_not_turn_the_text_beside_it(window, tmp_path):
    turned = ["\u202esun", "sea\u2069\u202e", "\u05e9\u05dc\u05d5\u05dd", "wind", "rain", "snow"]
    classifier, rows = fitted(turned)
    facts = gather("a page", classifier, Judged.of(rows, "rows"))
    window.get(write_page(facts, tmp_path / "page.html").as_uri())
    assert window.execute_script("return document.querySelectorAll('.bars li').length") == 6
    for label in range(3):
        press(window, "[aria-label='Free all labels that were set']")
        press(window, f"[data-set='{label}=1']")
        held = "[...document.querySelectorAll('.side p')].find(p => p.innerText.includes('Set by'))"
        window.execute_script(f"{held}.id = 'held'")
        letters = places_of(window, "#held")
        last = [left for letter, left in letters if letter in "=1"]
        assert last == sorted(last), "from left to right"
        assert letters[-1][1] == max(left for _, left in letters), "the value stands last"


def test_names_turn_the_direction_of_nothing_else(window, tmp_path):
    """In what the script makes as well; see the test of the page without it."""
    classifier, rows = fitted(TURNING)
    path = write_page(gather("a page", classifier, Judged.of(rows, "rows")), tmp_path / "page.html")
    window.get(path.as_uri())
    press(window, "[data-set='0=1']")
    shown = window.execute_script(
        "const all = [...document.querySelectorAll('body *:not(script)')];"
        "const own = (e) => [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data);"
        "return all.flatMap(e => [...own(e), ...[...e.attributes].map(a => a.value)])"
    )
    assert sum("\u05d0" in text for text in shown) > 30
    assert are_isolated(shown)
