"""The tutorial and the how-tos that are notebooks run from the first cell to the last.

Making the site runs all examples; here are those that people begin with, with what they promise.
"""

import importlib.util
import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="session")
def notebooks():
    for package in ("nbclient", "ipykernel"):
        pytest.importorskip(package, reason="the extra docs is not installed")
    spec = importlib.util.spec_from_file_location("notebooks", DOCS / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outputs(notebook) -> str:
    """Return all that was said, and check that nothing warned."""
    found = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert not [output.text for output in found if output.get("name") == "stderr"]
    return "".join(output.get("text", "") for output in found)


def pictures(notebook) -> int:
    found = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return sum("image/png" in output.get("data", {}) for output in found)


def test_the_tutorial_from_a_table_to_a_page(notebooks, tmp_path):
    said = outputs(notebooks.run(notebooks.read(notebooks.EXAMPLES / "tutorial.py"), tmp_path))
    assert "Wrote photos.spen" in said
    assert re.search(r"columns of text +│ caption ", said)
    assert float(re.search(r"example_f1 +\S+ +([\d.]+)", said)[1]) > 60
    assert (tmp_path / "photos.html").stat().st_size > 100_000
    assert "about the others" in said
    nothing, boat = (
        re.search(rf"{known} known: .*?sea (\d+)%", said) for known in ("nothing", "1}")
    )
    assert int(boat[1]) > int(nothing[1])


def test_known_labels_and_asking(notebooks, tmp_path):
    done = notebooks.run(notebooks.read(notebooks.EXAMPLES / "known_labels.py"), tmp_path)
    found = re.findall(r"(\S[\w ]+): ([\d.]+) wrong before, ([\d.]+) after", outputs(done))
    after = {name: float(last) for name, _, last in found}
    assert after["next_question"] < after["at random"] < float(found[0][1])
    assert pictures(done) == 1


def test_wrong_labels_are_found(notebooks, tmp_path):
    done = notebooks.run(notebooks.read(notebooks.EXAMPLES / "wrong_labels.py"), tmp_path)
    right, by_chance = re.search(
        r"there are (\d+) wrong; by chance ([\d.]+)", outputs(done)
    ).groups()
    assert int(right) > 10 * float(by_chance)
    assert pictures(done) == 1


def test_an_energy_of_ones_own(notebooks, tmp_path):
    done = notebooks.run(notebooks.read(notebooks.EXAMPLES / "own_energy.py"), tmp_path)
    said = outputs(done)
    right = {
        name: float(share) for name, share in re.findall(r"(\w[\w ]+): F1 .* right ([\d.]+)%", said)
    }
    assert right["your rule"] > right["a learned energy"] > right["no energy"]
    assert "one number per row" in said
    assert pictures(done) == 1


def test_an_example_that_fails_or_warns_stops_the_site(notebooks, tmp_path):
    from nbclient.exceptions import CellExecutionError

    script = tmp_path / "bad.py"
    script.write_text('"""Bad\n\nIt fails."""\n\n# %%\n1 / 0\n')
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        notebooks.make(script)
    script.write_text('"""Bad\n\nIt fails."""\n\n# %%\n# !ls nowhere\n# !ls\n')
    with pytest.raises(CellExecutionError, match="this command failed"):
        notebooks.make(script)
    script.write_text('"""Bad\n\nIt warns."""\n\n# %%\nimport warnings\n\nwarnings.warn("odd")\n')
    with pytest.raises(RuntimeError, match=r"bad\.py warns: .*odd"):
        notebooks.make(script)


def test_a_script_becomes_the_notebook_that_jupyter_shows(notebooks, tmp_path):
    import nbformat

    script = tmp_path / "small.py"
    script.write_text(
        '"""Small.\n\nAbout it."""\n\n# %% [markdown]\n# ## A\n# text\n\n# %%\n# !ls\n'
    )
    notebook = notebooks.read(script)
    nbformat.validate(json.loads(nbformat.writes(notebook)))
    kinds = [(cell.cell_type, cell.source) for cell in notebook.cells]
    assert kinds == [
        ("markdown", "# Small\n\nAbout it."),
        ("markdown", "## A\ntext"),
        ("code", "!ls"),
    ]
