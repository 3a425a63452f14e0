"""HTML from plain values, everything escaped."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any


def text(value: Any) -> str:
    """Return a value as text that is safe in HTML, attributes included.

    >>> text('<b> & "x"')
    '&lt;b&gt; &amp; &quot;x&quot;'
    """
    return html.escape(_shown(value), quote=True)


def script_json(value: Any) -> str:
    """Return JSON that cannot end the script element it stands in.

    >>> script_json({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    plain = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        plain = plain.replace(sign, f"\\u{ord(sign):04x}")
    # Half a surrogate pair, which a damaged file may hold, has no UTF-8.
    return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in plain)


def section(name: str, title: str, *parts: str) -> str:
    """Return a section with an address of its own."""
    return f'<section id="{text(name)}"><h2>{text(title)}</h2>\n{"".join(parts)}</section>\n'


def paragraph(words: str, kind: str = "") -> str:
    """Return a paragraph of plain words."""
    return f'<p class="{kind}">{text(words)}</p>\n' if kind else f"<p>{text(words)}</p>\n"


def figure(drawing: str, caption: str, kind: str = "") -> str:
    """Return a drawing with what to see in it."""
    return (
        f'<figure class="{kind}">{drawing}<figcaption>{text(caption)}</figcaption></figure>\n'
        if kind
        else f"<figure>{drawing}<figcaption>{text(caption)}</figcaption></figure>\n"
    )


def side_by_side(*parts: str, kind: str = "columns") -> str:
    """Return parts next to each other where the window is wide enough."""
    return f'<div class="{kind}">{"".join(parts)}</div>\n'


def details(summary: str, content: str) -> str:
    """Return something that opens on demand, without a script."""
    return f"<details><summary>{text(summary)}</summary>{content}</details>\n"


def facts_list(facts: Iterable[Sequence[Any]]) -> str:
    """Return names and values as a definition list."""
    rows = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in facts
    )
    return f'<dl class="facts">{rows}</dl>\n'


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    caption: str,
    numbers: Iterable[int] = (),
    sortable: bool = False,
    name: str = "",
) -> str:
    """Return a table that scrolls by itself where it is too wide.

    Args:
        header: of the columns.
        rows: of the table; None is shown as a dash.
        caption: what the table is, for those who hear it.
        numbers: the columns that are set flush right.
        sortable: let the page's script sort it by any column.
        name: its id.
    """
    right = set(numbers)

    def cells(values: Sequence[Any], tag: str) -> str:
        return "".join(
            f"<{tag}{_column(tag, i in right)}>{text(value)}</{tag}>"
            for i, value in enumerate(values)
        )

    kind = ' class="sortable"' if sortable else ""
    identity = f' id="{text(name)}"' if name else ""
    body = "\n".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f"<table{identity}{kind}><caption>{text(caption)}</caption>"
        f"<thead><tr>{cells(header, 'th')}</tr></thead><tbody>\n{body}\n</tbody></table></div>\n"
    )


def _column(tag: str, right: bool) -> str:
    scope = ' scope="col"' if tag == "th" else ""
    return scope + (' class="number"' if right else "")


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    words = f"{value:g}" if isinstance(value, float) else str(value)
    # A browser shows no control characters, and half a surrogate pair cannot be written.
    return "".join("\ufffd" if c in _UNSEEN or "\ud800" <= c <= "\udfff" else c for c in words)


_UNSEEN = {chr(code) for code in range(32)} - {"\t", "\n", "\r"}
