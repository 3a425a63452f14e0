"""Label names as a page shows them: without what they all begin with."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

SEPARATORS = "_.:/- "


def common_beginning(names: Sequence[str]) -> str:
    """Return what all names begin with, up to a separator, if the rest still says something.

    >>> common_beginning(["TAG_web", "TAG_wiki"]), common_beginning(["label 1", "label 2"])
    ('TAG_', '')
    """
    if len(names) < 2:
        return ""
    first, last = min(names), max(names)
    # What the first and the last in order share, all between them share too.
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    shared = "".join(sign for sign, _ in same)
    cut = max(shared.rfind(sign) for sign in SEPARATORS) + 1
    rests = [name[cut:] for name in names]
    telling = sum(any(sign.isalpha() for sign in rest) for rest in rests)
    return shared[:cut] if all(rests) and 2 * telling >= len(rests) else ""


def shown_names(names: Sequence[object]) -> list[str]:
    """Return the names as text, less their common beginning.

    >>> shown_names(["TAG_web", "TAG_wiki"])
    ['web', 'wiki']
    """
    plain = [str(name) for name in names]
    cut = len(common_beginning(plain))
    return [name[cut:] for name in plain]
