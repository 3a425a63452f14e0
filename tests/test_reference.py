"""Every public name stands in the reference, with formula, shapes and an example that runs."""

import ast
import builtins
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
FORMULA = re.compile(r"\S .*[=≤←∝→∩/] ?\S")
SHAPES = re.compile(r"\((?:n|rows|m|L|terms|steps|rank)(?:, [\w ]+)*,?\)")
RECORDS = {
    *("Comparison", "Context", "Dataset", "Diagnosis", "History", "LabelIssues", "Solution"),
    *("Split", "Stage", "Status", "Stopping", "Tagging", "UnsizedEnergy", "limits"),
}
"""Names that hold what others computed, or settings: they have no formula, and some no shapes."""
DEEDS = {"check_energy", "hold_out", "load", "load_dataset", "open_rows", "ray.predict"}
DEEDS |= {"register", "train"}
"""Names that do what no formula says."""
NO_ARRAYS = {"Detached", "Implicit", "Question", "Truncated", "Unrolled", "entity_f1"}
"""Names with a formula, of which nothing has a shape of its own."""
NEITHER = {"TableEncoder", "forbidden_transitions"}
"""Rules about words: sentences say them."""


def test_the_reference_lists_all_names_and_no_others():
    page = REFERENCE.read_text(encoding="utf-8")
    lists = re.findall(r"autosummary::\n +:toctree: reference\n\n(.+?)```", page, re.S)
    listed = [name for each in lists for name in each.split()]
    assert len(listed) == len({*listed})
    assert {*listed} == names()


def borrowed(source: str, thing) -> set[str]:
    """Names that an example takes from its module, and that a reader of the page cannot know."""
    nodes = list(ast.walk(ast.parse(source)))
    of_names = [node for node in nodes if isinstance(node, ast.Name)]
    used = {node.id for node in of_names if isinstance(node.ctx, ast.Load)}
    made = {node.id for node in of_names if isinstance(node.ctx, ast.Store)}
    made |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
    aliases = [node for node in nodes if isinstance(node, ast.alias)]
    made |= {(each.asname or each.name).split(".")[0] for each in aliases}
    told = {"np", "torch", "nn", "sparse", thing.__name__, *dir(builtins), *dir(spen)}
    return used - made - told


@pytest.mark.parametrize("name", sorted(names()))
def test_a_name_is_explained_and_has_an_example(name):
    thing = find(name)
    # A record such as spen.limits is explained by its class.
    explained = thing if isinstance(thing, type) or callable(thing) else type(thing)
    words = explained.__doc__ or ""
    assert re.match(r".+[.:]$", words.strip().split("\n\n")[0].replace("\n", " ")), words
    examples = doctest.DocTestParser().get_examples(words)
    assert examples, f"spen.{name} has no example"
    assert not borrowed("".join(example.source for example in examples), explained)
    # It is one that pytest collects: of a module of spen, and not inherited.
    assert explained.__module__.startswith("spen.")
    assert "__doc__" not in vars(explained) or vars(explained)["__doc__"] is words


def lacks(name: str) -> set[str]:
    thing = find(name)
    words = (thing if isinstance(thing, type) or callable(thing) else type(thing)).__doc__
    # Examples print equations and shapes as well.
    found = {"formula": FORMULA.search(words.split(">>>")[0]), "shapes": SHAPES.search(words)}
    if "Size([" in words or ".shape" in words:
        found["shapes"] = True
    return {what for what, there in found.items() if not there}


def is_error(name: str) -> bool:
    return isinstance(find(name), type) and issubclass(find(name), Exception)


def test_every_name_has_a_formula_and_shapes_where_there_are_any():
    without = {name: what for name in names() if not is_error(name) and (what := lacks(name))}
    excused = RECORDS | DEEDS | NO_ARRAYS | NEITHER
    assert {*without} <= excused, {name: without[name] for name in {*without} - excused}
    assert excused <= names()
    assert not [name for name in NO_ARRAYS if "formula" in lacks(name)]


def computing() -> list[str]:
    found = {name: find(name) for name in names()}
    classes = [name for name, each in found.items() if isinstance(each, type)]
    scores = [name for name, each in found.items() if each.__module__ == "spen.metrics"]
    return sorted([*scores, *(name for name in classes if issubclass(found[name], KINDS))])


def test_what_computes_is_never_excused():
    assert not {*computing()} & (RECORDS | DEEDS | NO_ARRAYS | NEITHER)
