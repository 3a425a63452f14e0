"""Label names as a page shows them: without what they all begin with."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

SEPARATORS = "_.:/- "


def common_beginning(names: Sequence[str]) -> str:
    """Return what all names begin with, up to a separator; "" where that is nothing.

    >>> common_beginning(["TAG_web", "TAG_wiki"]), common_beginning(["Class1", "Class2"])
    ('TAG_', '')
    """
    if len(names) < 2:
        return ""
    first, last = min(names), max(names)
    # What the first and the last in order share, all between them share too.
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    shared = "".join(sign for sign, _ in same)
    cut = max(shared.rfind(sign) for sign in SEPARATORS) + 1
    # A name that is nothing else would have none left.
    return "" if any(len(name) == cut for name in names) else shared[:cut]


def shown_names(names: Sequence[object]) -> list[str]:
    """Return the names as text, less their common beginning.

    >>> shown_names(["TAG_web", "TAG_wiki"])
    ['web', 'wiki']
    """
    plain = [str(name) for name in names]
    cut = len(common_beginning(plain))
    return [name[cut:] for name in plain]
