"""A fit of a stream that is killed goes on to the same bits, whatever it was doing."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from killed_stream import SETTINGS, fit
from safetensors.torch import load_file
from test_streams import X, Y, write_csv

SCRIPT = Path(__file__).parent / "killed_stream.py"


def kill_when(moment, *arguments):
    """Start the fit, and kill it as soon as the moment has come."""
    process = subprocess.Popen([sys.executable, SCRIPT, *arguments])
    while process.poll() is None and not moment():
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_a_fit_killed_while_it_reads_and_while_it_trains_ends_with_the_same_bits(
    tmp_path, monkeypatch
):
    for (module, name), value in SETTINGS.items():
        monkeypatch.setattr(module, name, value)
    rows, run = tmp_path / "rows", tmp_path / "run"
    rows.mkdir()
    for k in range(4):
        write_csv(rows / f"{k}.csv", X[60 * k : 60 * k + 60], Y[60 * k : 60 * k + 60])
    whole, result = tmp_path / "whole.spen", tmp_path / "killed.spen"
    fit(rows, tmp_path / "other", whole)

    kill_when(lambda: any(run.glob("rows.partial/*")), rows, run, result)
    assert not (run / "rows").exists()

    states = []

    def trained(epochs):
        """Say whether the state was written so many times more."""
        for path in run.glob("*.run"):
            if path.name != "about.run" and (now := path.stat().st_mtime_ns) not in states:
                states.append(now)
        return len(states) >= epochs

    kill_when(lambda: trained(2), rows, run, result)
    read = (run / "rows" / "about.json").stat().st_mtime_ns
    assert not result.exists(), "the fit must not have ended before it was killed"
    fit(rows, run, result)
    found, wanted = load_file(result), load_file(whole)
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[name], wanted[name], equal_nan=True) for name in wanted)
    assert (run / "rows" / "about.json").stat().st_mtime_ns == read, "rows were read again"
    left = sorted(path.name for path in run.iterdir() if path.suffix != ".run")
    assert left == ["rows"]
