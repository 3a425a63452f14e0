"""How Sphinx builds the site from the pages of this folder and from the docstrings of spen."""

import re
import sys
from pathlib import Path

import spen

sys.path.insert(0, str(Path(__file__).parent))

project = "spen"
author = "The spen developers"
copyright = "The spen developers. BSD-3-Clause"
version = release = spen.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "notebooks",
]
suppress_warnings = ["config.cache"]

# Links among pages go to headings by the words that GitHub makes of them too.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "show-inheritance": True}
autosummary_generate = True
templates_path = ["_templates"]
napoleon_numpy_docstring = False
napoleon_use_ivar = True
nitpicky = True
# Fields say their types, of which only public names have a page.
nitpick_ignore_regex = [("py:class", r"(torch|numpy|collections|spen\.[a-z]+)\..*")]

html_theme = "furo"
html_title = f"spen {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_search_scorer = str(Path(__file__).with_name("search_scores.js"))
html_show_sphinx = False
html_copy_source = False

_CODE = re.compile(r"(``.+?``)")
_PAGE = re.compile(r"\bdocs/([\w-]+)\.md")
_TRAILING = re.compile(r"(?<=\w)_(?!\w)")
_SCRIPT = re.compile(r"\]\(\.\./examples/(\w+)\.py\)")
_FILE = re.compile(r"\[(?:docs/)?[\w-]+\.md\]\(([\w-]+\.md(?:#[\w-]+)?)\)")
_OUTSIDE = re.compile(r"\[(`?)([^\]`]+)`?\]\(\.\./(?!examples/)[^)]+\)")


def as_plain_text(app, what, name, obj, options, lines):
    """Keep signs of formulas from being read as markup: |T| is no substitution, x_ no link."""
    if what in ("attribute", "property"):
        # Or napoleon takes what stands before a colon for a type.
        lines[:0] = ["..", ""]
    in_example = False
    for number, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if in_example or re.match(r"\s*\*+\w+:", line):
            continue
        parts = _CODE.split(line)
        for k in range(0, len(parts), 2):
            escaped = re.sub(r"([|*])", r"\\\1", parts[k])
            # "L." alone would begin a list.
            escaped = re.sub(r"(?<=: )([A-Za-z])\.", r"\1\\.", escaped)
            parts[k] = _PAGE.sub(r":doc:`/\1`", _TRAILING.sub(r"\\_", escaped))
        lines[number] = "".join(parts)


def with_examples(app, docname, source):
    """Link to the pages of examples where there are some; other files are no part of the site."""
    if "/" in docname:
        return
    from notebooks import scripts

    run = {path.stem for path in scripts()}

    def page(link):
        return f"](gallery/{link[1]}.md)" if link[1] in run else link[0]

    # The page's own title says more than the name of its file.
    source[0] = _FILE.sub(r"[](\1)", source[0])
    source[0] = _OUTSIDE.sub(r"`\2`", _SCRIPT.sub(page, source[0]))


def not_ours(app, what, name, obj, skip, options):
    """Leave out what scikit-learn adds to every estimator, and what torch prints of a module."""
    return True if re.fullmatch(r"set_\w+_request|extra_repr", name) else None


def without_last_blank(app, doctree):
    """Take the blank line off that ends what an example on a page prints."""
    from docutils import nodes

    for block in doctree.findall(nodes.literal_block):
        block[:] = [nodes.Text(block.astext().rstrip("\n"))]
        block.rawsource = block.astext()


def with_pages(app, name, obj, options, bases):
    """Link to bases that have a page; the others are but named."""
    for number, base in enumerate(bases):
        is_public = getattr(spen, base.__name__, None) is base
        shown = f"spen.{base.__name__}" if is_public else f"{base.__module__}.{base.__name__}"
        bases[number] = f":class:`{shown}`" if is_public else f"``{shown}``"


def setup(app):
    """Connect what is above, before napoleon reads the docstrings."""
    app.connect("autodoc-skip-member", not_ours)
    app.connect("autodoc-process-docstring", as_plain_text, priority=100)
    app.connect("autodoc-process-bases", with_pages)
    app.connect("doctree-read", without_last_blank)
    app.connect("source-read", with_examples)
