"""The examples, as a new user runs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spen.data.catalog import find

EXAMPLES = Path(__file__).parents[1] / "examples"


def call(*command, cwd) -> str:
    command = [sys.executable, *map(str, command)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(find("yeast") is None, reason="the Yeast data are not on this machine")
def test_yeast_from_file_to_picture_and_on_the_command_line(tmp_path):
    """With default settings, so this is also where they meet real data."""
    said = call(EXAMPLES / "yeast.py", cwd=tmp_path)
    scores = {line.split(":")[0]: line for line in said.splitlines()}
    assert float(scores["F1 of test rows"].split()[4]) > 65
    before, after = (float(scores["F1 of the other labels"].split()[i]) for i in (5, 7))
    assert after > before + 5
    assert "Class12 and Class13: -" in said
    assert (tmp_path / "yeast-structure.png").stat().st_size > 10_000
    spen = ("-m", "spen")
    record = json.loads(call(*spen, "evaluate", "yeast.spen", "yeast", "--json", cwd=tmp_path))
    assert record["part"] == "test"
    assert record["rows"] == 917
    assert f"{100 * record['metrics']['example_f1']:.1f}" in scores["F1 of test rows"]
    test_file = find("yeast") / "yeast-test.arff"
    labels = call(
        *spen, "predict", "yeast.spen", test_file, "--out", "-", cwd=tmp_path
    ).splitlines()
    assert len(labels) == 918
    assert labels[1].split(";")[0].startswith("Class")
