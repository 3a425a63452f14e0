"""The bugs that are planted by hand still have their places, and the drawn ones can be applied.

``python tests/mutations planted`` plants them.
"""

from __future__ import annotations

import ast

import pytest
from mutations.drawn import ROOT, TESTS, changes_of, draw, judges_of
from mutations.planted import PLANTED, Planted


@pytest.mark.parametrize("bug", PLANTED, ids=[str(number) for number in range(len(PLANTED))])
def test_a_planted_bug_has_its_place_and_its_test(bug: Planted) -> None:
    source = (ROOT / bug.path).read_text()
    assert source.count(bug.old) == 1
    ast.parse(source.replace(bug.old, bug.new))
    path, _, name = bug.test.partition("::")
    assert (ROOT / path).exists()
    assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text() if name else True


def test_there_are_twenty_of_them() -> None:
    assert len({bug[:3] for bug in PLANTED}) == len(PLANTED) >= 20


def test_drawn_changes_can_be_compiled_and_differ() -> None:
    for change in draw(60, seed=1):
        source = (ROOT / change.path).read_bytes()
        changed = change.apply(source)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source)), str(change)
        assert all((ROOT / path).exists() for path in judges_of(change))
    assert draw(5, seed=2) == draw(5, seed=2) != draw(5, seed=3)


def test_every_kind_of_file_can_be_changed() -> None:
    for pattern in TESTS:
        paths = list(ROOT.glob(pattern))
        assert any(changes_of(path) for path in paths), pattern
