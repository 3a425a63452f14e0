"""Every public name stands in the reference, with formula, shapes and an example that runs."""

import ast
import doctest
import re
from pathlib import Path

import pytest
from public_names import MODULES

import spen

REFERENCE = Path(__file__).parents[1] / "docs" / "reference.md"
TWICE = {"metrics.example_f1", "metrics.hamming_error", "metrics.search_error_rate"}
"""Names of spen.metrics that are names of spen as well, and stand there."""


def names() -> set[str]:
    inner = {f"{name}.{each}" for name in MODULES for each in getattr(spen, name).__all__}
    return {*dir(spen)} - {"__version__", *MODULES} | inner - TWICE


def find(name: str):
    thing = spen
    for part in name.split("."):
        thing = getattr(thing, part)
    return thing


KINDS = (spen.Energy, spen.Objective, spen.Inference, spen.Rule, spen.Domain, spen.Features)
FORMULA = re.compile(r"\S .*[=←∝→∩/] ?\S")
SHAPES = re.compile(r"\((?:n|rows|m|L|terms|steps)(?:, [\w ]+)*,?\)")


def test_the_reference_lists_all_names_and_no_others():
    page = REFERENCE.read_text(encoding="utf-8")
    lists = re.findall(r"autosummary::\n +:toctree: reference\n\n(.+?)```", page, re.S)
    listed = [name for each in lists for name in each.split()]
    assert len(listed) == len({*listed})
    assert {*listed} == names()


@pytest.mark.parametrize("name", sorted(names()))
def test_a_name_is_explained_and_has_an_example(name):
    thing = find(name)
    # A record such as spen.limits is explained by its class.
    explained = thing if isinstance(thing, type) or callable(thing) else type(thing)
    words = explained.__doc__ or ""
    assert re.match(r".+[.:]$", words.strip().split("\n\n")[0].replace("\n", " ")), words
    examples = doctest.DocTestParser().get_examples(words)
    assert examples, f"spen.{name} has no example"
    for example in examples:
        ast.parse(example.source)
    # It is one that pytest collects: of a module of spen, and not inherited.
    assert explained.__module__.startswith("spen.")
    assert "__doc__" not in vars(explained) or vars(explained)["__doc__"] is words


def computing() -> list[str]:
    found = {name: find(name) for name in names()}
    classes = [name for name, each in found.items() if isinstance(each, type)]
    scores = [name for name, each in found.items() if each.__module__ == "spen.metrics"]
    return sorted([*scores, *(name for name in classes if issubclass(found[name], KINDS))])


@pytest.mark.parametrize("name", computing())
def test_what_computes_has_a_formula_and_shapes(name):
    words = find(name).__doc__
    assert FORMULA.search(words.split(">>>")[0]), f"spen.{name} has no formula"
    assert SHAPES.search(words) or "Size([" in words, f"spen.{name} says no shapes"
