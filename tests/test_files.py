"""Writes that are whole or not there, by one writer or two, and locks that end with a process."""

import fcntl
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from apart import figures_apart
from torture import files

import spen
from spen.files import locked, open_atomically, write_atomically


def test_the_long_tests_in_short():
    """Damage to every kind of file, two writers at once, kills, and disks that are full."""
    figures = list(figures_apart(0.01, "files", "kills"))
    assert len(figures) == 18
    assert not [figure for figure in figures if not figure[-1]]


def test_a_name_that_is_known_beforehand_leads_nowhere(tmp_path):
    """A link that waits where a partial file might be made is not followed."""
    other = tmp_path / "somebody else's"
    other.write_bytes(b"theirs")
    (tmp_path / ".out.csv.partial").symlink_to(other)
    write_atomically(tmp_path / "out.csv", b"ours")
    assert other.read_bytes() == b"theirs"
    assert (tmp_path / "out.csv").read_bytes() == b"ours"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o777])
def test_a_file_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "private.spen"
    path.write_bytes(b"old")
    path.chmod(mode)
    with open_atomically(path) as file:
        (partial,) = tmp_path.glob(".*")
        assert stat.S_IMODE(partial.stat().st_mode) == mode
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_mode_that_the_user_wants(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "new.csv", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.csv").stat().st_mode) == 0o640


def test_what_a_killed_writer_left_goes_with_the_next_write_but_no_live_ones_does(tmp_path):
    path = tmp_path / "[odd] name.csv"
    dead, alive = (tmp_path / f".{path.name}.{letter * 16}.partial" for letter in "0a")
    others = [tmp_path / f".other.csv.{'0' * 16}.partial", tmp_path / f".{path.name}.mine.partial"]
    for each in (dead, alive, *others):
        each.write_bytes(b"half")
    with alive.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write_atomically(path, b"whole")
        assert not dead.exists()
        assert alive.exists()
    write_atomically(path, b"whole")
    assert set(tmp_path.iterdir()) == {path, *others}


def test_the_last_of_two_writers_wins_whole(tmp_path):
    path = tmp_path / "out.csv"
    with open_atomically(path) as first, open_atomically(path) as second:
        first.write(b"first, and longer")
        second.write(b"second")
        second.flush()
    assert path.read_bytes() == b"first, and longer"
    assert list(tmp_path.iterdir()) == [path]


def test_long_names_pipes_and_devices_can_be_written(tmp_path):
    long = tmp_path / ("ä" * 125 + ".csv")
    write_atomically(long, b"x")
    assert long.read_bytes() == b"x"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, b"through")
    reader.join()
    assert received == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    write_atomically("/dev/null", b"gone")
    assert not Path("/dev/null").is_file()


def test_a_lock_is_held_by_one_and_ends_with_the_block(tmp_path):
    path = tmp_path / "new folder" / "run.ckpt"
    seen = []

    def another_thread():
        try:
            with locked(path):
                seen.append("held")
        except spen.CheckpointError as problem:
            seen.append(str(problem))

    with locked(path):
        thread = threading.Thread(target=another_thread)
        thread.start()
        thread.join()
    with locked(path), locked(tmp_path):
        pass
    (said,) = seen
    assert f"run.ckpt is in use: process {os.getpid()} holds it. Wait until" in said
    assert not list(path.parent.iterdir())
    with pytest.raises(BlockingIOError, match="of the block"), locked(path):
        raise BlockingIOError("of the block")


HOLDER = """
import fcntl, os, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print(os.getpid(), file=lock, end="", flush=True)
print("held", flush=True)
time.sleep(600)
"""


def test_a_checkpoint_has_one_run_and_a_killed_one_lets_go(tmp_path):
    path = tmp_path / "run.ckpt"
    command = [sys.executable, "-c", HOLDER, tmp_path / ".run.ckpt.lock"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        try:
            with pytest.raises(spen.CheckpointError, match=f"process {holder.pid} holds it"):
                spen.train(*_run(), checkpoint=path)
        finally:
            holder.kill()
        assert not path.exists()
    spen.train(*_run(), checkpoint=path)
    assert list(tmp_path.iterdir()) == [path]


def _run():
    model = spen.SPEN(spen.Identity(4), spen.LocalEnergy(4, 3), spen.UnitBox(3), seed=0)
    return model, [spen.Stage("a", spen.CrossEntropy(), parts=("local",), epochs=1)], files.rows()
