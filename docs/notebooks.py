"""Examples that the site runs: each becomes a page with what it prints and draws, and a notebook.

An example is a script of ``examples/`` in cells, as Jupyter (with jupytext), VS Code and PyCharm
open it. It begins with a docstring, its title and what it is about; ``# %% [markdown]`` begins a
cell of text, in comments, and ``# %%`` one of code. ``# !spen fit`` in a cell is a command.
"""

from __future__ import annotations

import ast
import base64
import logging
import os
import re
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
EXAMPLES = DOCS.parent / "examples"
PAGES = DOCS / "gallery"
TEXT = "# %% [markdown]"
_MARK = re.compile(r"^# %%.*\n", re.M)
_COMMAND = re.compile(r"^!(.+)$", re.M)
# A command that fails says so, and Jupyter goes on: here it must not.
_UNLESS_IT_FAILS = r"\g<0>\nassert not _exit_code, 'this command failed'"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)?[\w-]+\.(?:md|py)[^)]*\)")


def scripts() -> list[Path]:
    """Return the examples that have cells of text."""
    return [path for path in sorted(EXAMPLES.glob("*.py")) if f"\n{TEXT}\n" in path.read_text()]


def docstring(source: str) -> str:
    """Return what a script begins with: a title, and below it what it is about."""
    return ast.get_docstring(ast.parse(source)) or ""


def read(script: Path) -> Any:
    """Return a script as a notebook that has not been run."""
    from nbformat import v4

    source = script.read_text(encoding="utf-8")
    title, _, about = docstring(source).partition("\n")
    cells = [v4.new_markdown_cell(f"# {title.rstrip('.')}\n{about}".rstrip())]
    marks = [*_MARK.finditer(source)]
    ends = [mark.start() for mark in marks[1:]] + [len(source)]
    for mark, end in zip(marks, ends, strict=True):
        body = source[mark.end() : end].strip()
        if mark[0].strip() == TEXT:
            cells.append(v4.new_markdown_cell(re.sub("^# ?", "", body, flags=re.M)))
        else:
            cells.append(v4.new_code_cell(re.sub("^# !", "!", body, flags=re.M)))
    for number, cell in enumerate(cells):
        cell["id"] = f"{script.stem}-{number}"
    python = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": python})


def run(notebook: Any, folder: Path) -> Any:
    """Run a notebook in a folder, one thread, and return it with its outputs."""
    from nbclient import NotebookClient
    from traitlets.config import Config

    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, os.environ.get("PATH", "")])
    logging.getLogger("traitlets").setLevel(logging.WARNING)
    # Lines as wide as a page, and pictures where cells end.
    alone = {"PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "80", "NO_COLOR": "1"}
    alone |= {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    where = {"metadata": {"path": str(folder)}}
    with tempfile.TemporaryDirectory() as sockets:
        # By files in a folder of one's own: no ports, which others on the machine could reach.
        talk = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
        shown = [cell.source for cell in notebook.cells]
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.source = _COMMAND.sub(_UNLESS_IT_FAILS, cell.source)
        client = NotebookClient(notebook, timeout=300, resources=where, config=talk)
        client.execute(env=os.environ | alone)
    for cell, source in zip(notebook.cells, shown, strict=True):
        cell.source = source
    return notebook


def page(notebook: Any, name: str) -> str:
    """Write the pictures of a notebook that was run, and return its page."""
    parts, pictures = [], 0
    for number, cell in enumerate(notebook.cells):
        parts.append(cell.source)
        if number == 0:
            files = {"Notebook": f"{name}.ipynb", "Script": f"../../examples/{name}.py"}
            parts.append(" · ".join(f"{{download}}`{what} <{at}>`" for what, at in files.items()))
        if cell.cell_type != "code":
            continue
        is_command = cell.source.startswith("!")
        shown = re.sub("^!", "", cell.source, flags=re.M)
        parts[-1] = f"```{'sh' if is_command else 'python'}\n{shown}\n```"
        said = ""
        for output in cell.outputs:
            data = output.get("data", {})
            if output.get("name") == "stderr":
                raise RuntimeError(f"examples/{name}.py warns: {output.text}")
            said += output.get("text", "")
            if "image/png" in data:
                pictures += 1
                file = PAGES / f"{name}-{pictures}.png"
                file.write_bytes(base64.b64decode(data["image/png"]))
                what = re.match("# (.+)", cell.source)
                parts.append(f"![{what[1] if what else name}]({file.name})")
        if words := _plain(said):
            parts.append(f"```text\n{words}\n```")
    return "\n\n".join(parts) + "\n"


def _plain(words: str) -> str:
    """Return what a terminal shows in the end: lines written over are gone, and so are colours."""
    lines = _ESCAPES.sub("", words).replace("\r\n", "\n").split("\n")
    return "\n".join(line.split("\r")[-1].rstrip() for line in lines).strip("\n")


def make(script: Path) -> None:
    """Run an example, and write its page, its pictures and its notebook."""
    import nbformat

    notebook = read(script)
    kept = nbformat.from_dict(notebook)
    for cell in kept.cells:
        if cell.cell_type == "markdown":
            cell.source = _LINK.sub(r"\1", cell.source)
    with tempfile.TemporaryDirectory() as folder:
        words = page(run(read(script), Path(folder)), script.stem)
    nbformat.write(kept, PAGES / f"{script.stem}.ipynb")
    (PAGES / f"{script.stem}.md").write_text(words, encoding="utf-8")


def contents(found: list[Path]) -> str:
    """Return the page of the gallery: the first picture of each example, its title and a sentence.

    Examples that the site's first page names have their place in its contents already.
    """
    named = (DOCS / "index.md").read_text(encoding="utf-8")
    others = [script.stem for script in found if f"\ngallery/{script.stem}\n" not in named]
    lines = [
        "# Examples",
        "",
        "Each was run when this site was built.",
        "",
        "::::{container} cards",
    ]
    for script in found:
        if not (PAGES / f"{script.stem}-1.png").exists():
            continue
        title, _, about = docstring(script.read_text(encoding="utf-8")).partition("\n")
        sentence = re.match(r"[^.]*\.", " ".join(about.split()))
        lines += [":::{container} card", f"![{title}]({script.stem}-1.png)"]
        lines += ["", f"[{title}]({script.stem}.md)", "", sentence[0] if sentence else "", ":::"]
    lines += ["::::", "", "```{toctree}", ":hidden:", "", *others, "```"]
    return "\n".join(lines) + "\n"


def build(app: Any = None) -> None:
    """Run the examples that changed, or that stand on a library that did, side by side."""
    PAGES.mkdir(exist_ok=True)
    library = max(path.stat().st_mtime for path in (DOCS.parent / "src").rglob("*.py"))
    since = max(library, Path(__file__).stat().st_mtime)
    old = [
        script
        for script in scripts()
        if not (made := PAGES / f"{script.stem}.md").exists()
        or made.stat().st_mtime < max(since, script.stat().st_mtime)
    ]
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as workers:
        for each in [workers.submit(make, script) for script in old]:
            each.result()
    words = contents(scripts())
    index = PAGES / "index.md"
    if not index.exists() or index.read_text(encoding="utf-8") != words:
        index.write_text(words, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Let Sphinx make the pages of the examples before it looks for pages."""
    app.connect("builder-inited", build, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
