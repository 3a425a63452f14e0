"""What a fit tells of its progress: on a terminal, in a notebook, in a pipe, and when silent."""

import io
import subprocess
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest

import spen
from spen.estimators import runs
from spen.estimators.progress import SILENT, Lines, showing
from spen.training.checkpoint import Epoch

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 3)).astype(np.float32)
Y = (X > 0).astype(int)
QUICK = {"random_state": 0, "device": "cpu", "epochs": 2}
EPOCH = Epoch("all", 1, 2, 0.5, None, 1, 0.1)


@pytest.fixture
def told(monkeypatch):
    """Return the progress objects of the fits of a test, as they were before the end."""
    seen = []

    class Watched(Lines):
        def end(self):
            seen.append((self.done, self.total))

    monkeypatch.setattr("spen.estimators.progress.Lines", Watched)
    return seen


@pytest.mark.parametrize(
    ("settings", "classes"),
    [
        ({"hidden": (4,)}, False),
        ({"hidden": (4,), "dropout": 0.1, "refit": False}, False),
        ({"hidden": (4,), "energy": "local", "folds": 2}, False),
        ({"hidden": (4,), "energy": "local", "members": 2}, False),
        ({"hidden": (4,), "energy": "local", "members": 2, "linear_member": True}, False),
        ({"hidden": (4,), "objective": "hinge", "dropout": 0.1, "epochs": 4}, False),
        ({"hidden": (4,), "cross_fit": True, "linear_member": True, "members": 2}, False),
        ({"hidden": (4,), "energy": "pairwise", "missing": "auto", "dropout": 0.1}, False),
        ({"hidden": (4,)}, True),
    ],
)
def test_the_bar_ends_where_all_epochs_are_done(told, settings, classes):
    clf = spen.SPENClassifier(**QUICK | settings, verbose=1)
    clf.fit(X, Y[:, 0] if classes else Y)
    ((done, total),) = told
    assert done == total > 0


def test_the_bar_ends_there_with_rivals_too(told, monkeypatch):
    """A rival's whole training is tried beside the network's; only one of them is refitted."""
    monkeypatch.setattr("spen.estimators.recipe.LINEAR_EPOCHS", 3)
    monkeypatch.setattr("spen.estimators.recipe._epochs", lambda shape, batch: 2)
    for most in (runs.MOST_TOGETHER, 0):
        monkeypatch.setattr(runs, "MOST_TOGETHER", most)
        spen.SPENClassifier(random_state=0, device="cpu", verbose=1).fit(X, Y)
    for done, total in told:
        assert done == total > 0


def test_a_pipe_gets_a_line_for_each_trial_and_stage(capfd):
    spen.SPENClassifier(**QUICK, hidden=(4,), verbose=1).fit(X, Y)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert all(line.startswith("fit, ") for line in lines)
    assert "trying 3 settings: 3 networks side by side" in lines[0]
    assert "dropout 0.25, input_dropout 0.0: held-out score" in lines[1]
    assert lines[1].endswith("the best so far")
    assert sum("dropout" in line for line in lines) == 3
    assert "the model: held-out score" in err
    assert lines[-1].endswith(": done")


def test_without_runs_side_by_side_each_is_told(capfd, monkeypatch):
    monkeypatch.setattr(runs, "MOST_TOGETHER", 0)
    spen.SPENClassifier(**QUICK, hidden=(4,), folds=2, verbose=1).fit(X, Y)
    told = capfd.readouterr().err
    for words in ("trying 2 of 3, dropout 0.5, input_dropout 0.2, fold 2 of 2\n",
                  "training the model, fold 1 of 2\n", "training on all rows\n"):  # fmt: skip
        assert told.count(words) == 1


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_bar(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    spen.SPENClassifier(**QUICK, hidden=(4,), verbose=1).fit(X, Y)
    shown = screen.getvalue()
    assert "━" in shown
    assert "100%" in shown
    assert "fit: done" in shown
    assert "held-out score" in shown


def test_a_notebook_gets_richs_display(monkeypatch):
    displayed = []
    package, display, widgets = (
        ModuleType(n) for n in ("IPython", "IPython.display", "ipywidgets")
    )
    display.display, widgets.__spec__ = displayed.append, ModuleSpec("ipywidgets", None)

    class Output:
        def clear_output(self, wait=False):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *problem):
            pass

    widgets.Output = Output
    for module in (package, display, widgets):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with showing("fit", 2) as progress:
        (advance,) = progress.training()
        advance(EPOCH)
    assert any(isinstance(each, Output) for each in displayed)
    assert sys.stderr.getvalue() == ""
    # Without widgets a bar cannot be drawn again in its place.
    monkeypatch.delitem(sys.modules, "ipywidgets")
    with showing("fit", 2):
        pass
    assert sys.stderr.getvalue().endswith("done\n")


def test_silence_costs_nothing(monkeypatch):
    def speak(*words, **options):
        raise AssertionError("something was told")

    for name in ("training", "begin", "tried", "show", "tell"):
        monkeypatch.setattr(Lines, name, speak)
    spen.SPENClassifier(**QUICK, hidden=(4,)).fit(X, Y)
    assert SILENT.training(3) == ()
    monkeypatch.setattr(sys, "stderr", None)
    with showing("fit", 2) as progress:
        assert progress is SILENT


def test_without_rich_there_are_lines(tmp_path):
    program = (
        "import importlib.util, sys, numpy as np\n"
        "sys.modules['rich'] = sys.modules['cyclopts'] = None\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'rich' else find(name)\n"
        "sys.stderr.isatty = lambda: True\n"
        "import spen\n"
        "X = np.random.default_rng(0).standard_normal((20, 2))\n"
        "spen.SPENClassifier(hidden=(), epochs=1, random_state=0, verbose=1).fit(X, X > 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "training the model" in done.stderr
    assert done.stderr.endswith("done\n")
