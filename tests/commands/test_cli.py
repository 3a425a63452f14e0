"""The command line, as a person calls it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SPEN = Path(sys.executable).parent / "spen"


def call(*arguments, cwd=None) -> subprocess.CompletedProcess:
    return subprocess.run([SPEN, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)


def test_help_does_not_wait_for_torch():
    program = "import sys, spen.cli.app; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
    shown = call("--help")
    assert shown.returncode == 0
    assert "demo" in shown.stdout
    assert "reproduce" in shown.stdout
    assert "--seeds" in call("reproduce", "table3", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demmo"], 'Did you mean "demo"'),
        (["predict", "m.spen"], "predict needs FILE: see spen predict --help"),
        (["reproduce", "table3", "--seed", "1"], "--seeds"),
        (["reproduce", "table3", "--seeds", "x"], "--seeds"),
        (["reproduce", "table3", "--seeds", "0"], "seeds must be 1 or more"),
        (["reproduce", "table3", "--method", "linaer"], "Did you mean 'linear'"),
        (["reproduce", "table3", "--n-train", "0"], "--n-train must be"),
        (["reproduce", "structure", "--seeds", "0"], "seeds must be 1 or more"),
        (["reproduce", "table2", "--method", "exct"], "Did you mean 'exact'"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_2(arguments, words, tmp_path):
    done = call(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir()), "nothing was written"


def test_reproduce_table3_writes_records_and_does_not_repeat_itself(tmp_path):
    options = ["--seeds", 2, "--method", "linear", "--n-train", 150, "--out", tmp_path / "out"]
    first = call("reproduce", "table3", *options)
    assert first.returncode == 0, first.stderr
    assert "±" in first.stdout
    assert "counts 1" in first.stdout, "the rule for empty rows stands beside the number"
    path = tmp_path / "out" / "records.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["seed"] for record in records] == [0, 1]
    for record in records:
        assert record["experiment"] == "table3"
        assert record["method"] == "linear"
        assert record["dataset"] == "synthetic"
        assert record["n_train"] == 150
        assert record["decoding"] == "threshold"
        assert 0 < record["metrics"]["f1"] < 100
        for name in ("fold", "seconds", "settings", "versions"):
            assert name in record
    before = path.read_bytes()
    again = call("reproduce", "table3", *options)
    assert again.stdout == first.stdout
    assert path.read_bytes() == before


def test_experiments_run_without_the_command_line_package(tmp_path):
    """``python -m`` works where cyclopts is not installed."""
    blocked = tmp_path / "cyclopts.py"
    blocked.write_text("raise ImportError('not here')")
    command = [sys.executable, "-m", "spen_paper", "table3", "--seeds", "1"]
    command += ["--method", "oracle", "--n-train", "100", "--out", str(tmp_path / "out")]
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"PYTHONPATH": os.pathsep.join(paths), "PATH": "/usr/bin"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "told the blocks" in done.stdout
    wrong = subprocess.run([*command, "--method", "x"], capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "Unknown method 'x'" in wrong.stderr


@pytest.mark.parametrize("command", [["reproduce", "table1", "--seeds", "3"], ["bench"]])
def test_without_the_paper_its_commands_say_what_to_install(command):
    program = (
        "import importlib.metadata, sys\n"
        "importlib.metadata.entry_points = lambda **_: ()\n"
        "from spen.cli import main\n"
        "main(sys.argv[1:])"
    )
    done = subprocess.run([sys.executable, "-c", program, *command], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"spen {command[0]} is in another package: pip install spen-paper" in done.stderr


WAYS = [[SPEN], [sys.executable, "-m", "spen"]]


def _listen_to_ctrl_c():
    """A shell lets what it runs in the background ignore it, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("way", WAYS, ids=["script", "module"])
@pytest.mark.parametrize("module", ["cyclopts", "numpy"])
def test_ctrl_c_during_imports_is_one_line(tmp_path, way, module):
    pressed = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"
    (tmp_path / f"{module}.py").write_text(pressed)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [*way, "data", "show", "yeast"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        preexec_fn=_listen_to_ctrl_c,
    )
    assert (done.returncode, done.stderr) == (130, "spen: stopped\n")


def test_ctrl_c_during_work_is_one_line():
    program = (
        "import os, signal, time\n"
        "from spen.data import catalog\n"
        "catalog.find = lambda name: (os.kill(os.getpid(), signal.SIGINT), time.sleep(60))\n"
        "from spen.cli import main\n"
        "main(['data', 'list'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        preexec_fn=_listen_to_ctrl_c,
    )
    assert (done.returncode, done.stderr) == (130, "spen: stopped\n")
