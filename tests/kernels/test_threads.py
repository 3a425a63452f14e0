"""Threads, forked processes, the end of Python, and kernels where nothing can be written."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torture.threads import TINY, eight_at_once, exits, rows, soak

import spen
from spen.energies.form import NONLINEARITIES, Block, Form
from spen.kernels import cpu
from spen.kernels import threads as policy
from spen.kernels.cpu import compile_kernel, source_digest
from spen.kernels.interface import Fused, Limits, StepRule

pytest.importorskip("numba")

STEP, LIMITS = StepRule(lr=0.2, momentum=0.5), Limits(30, 1e-4, 1e-4)


def solve(rows: int = 400) -> Fused:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(6, 30, generator=generator)
    block = Block(matrix, torch.zeros(6), torch.ones(6), NONLINEARITIES["softplus"])
    form = Form(linear=torch.randn(rows, 30, generator=generator), blocks=(block,))
    return cpu.minimise(form, STEP, LIMITS, torch.full((rows, 30), 0.5), None)


def equal(a: Fused, b: Fused) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_answers_do_not_depend_on_the_number_of_threads(threads: Callable[[int], None]) -> None:
    answers = []
    for count in (1, 2, 5):
        threads(count)
        answers.append(solve())
    assert equal(answers[0], answers[1])
    assert equal(answers[0], answers[2])


def test_several_threads_may_call_at_once(threads: Callable[[int], None]) -> None:
    threads(2)
    wanted, answers = solve(), []
    callers = [
        threading.Thread(target=lambda: answers.append(solve()), daemon=True) for _ in range(6)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(answers) == 6
    assert all(equal(wanted, answer) for answer in answers)


def test_eight_threads_fit_predict_load_and_save_at_once(
    threads: Callable[[int], None], tmp_path: Path
) -> None:
    threads(2)
    *_, found, right = eight_at_once(tmp_path, rounds=1)
    assert right, found


def test_a_loop_of_all_kinds_of_calls_takes_no_more_and_more_memory(tmp_path: Path) -> None:
    *_, found, right = soak(tmp_path, seconds=0.0, least=10)
    assert right, found


def _in_child(wanted: Fused) -> bool:
    torch.set_num_threads(2)
    return equal(solve(), wanted)


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_process_may_call_after_its_parent_has(threads: Callable[[int], None]) -> None:
    threads(2)
    wanted = solve()
    assert policy._pools
    with multiprocessing.get_context("fork").Pool(2) as workers:
        assert workers.map(_in_child, [wanted] * 4) == [True] * 4
    assert equal(solve(), wanted)


def test_an_error_in_a_helper_is_raised() -> None:
    main = threading.current_thread()
    begun = threading.Event()

    def work() -> None:
        if threading.current_thread() is main:
            begun.wait()
        else:
            begun.set()
            raise OSError("from the helper")

    with pytest.raises(OSError, match="from the helper"):
        policy.run_together(work, 2)


# How many threads work gets, and how they wait ------------------------------------------


def in_new_thread(work: Callable[[], Any]) -> Any:
    """Return what work returns in a thread, whose first operation in several brings new ones."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()


def system_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_small_fit_and_a_row_stay_in_the_callers_thread(threads: Callable[[int], None]) -> None:
    threads(2)

    def work() -> list[int]:
        counts = [system_threads()]
        X, Y = rows(features=30, labels=6)
        fitted = spen.SPENClassifier(**TINY | {"hidden": (256, 256)}).fit(X, Y)
        counts.append(system_threads())
        for solve in (fitted.predict, fitted.predict_proba, lambda row: fitted.energy(row, Y[:1])):
            solve(X[:1])
        return [*counts, system_threads(), torch.get_num_threads()]

    in_new_thread(work)  # imports bring threads of their own
    counts = [in_new_thread(work) for _ in range(3)]
    # Threads of others may end or begin meanwhile; those of a fit would begin each time.
    assert any(max(fit, rows) <= before for before, fit, rows, _ in counts), counts
    assert {number for *_, number in counts} == {2}


def test_a_small_fit_has_the_same_bits_on_any_number_of_cores(
    threads: Callable[[int], None],
) -> None:
    X, Y = rows(features=30, labels=6)
    weights = []
    for count in (1, 2, 3):
        threads(count)
        settings = TINY | {"hidden": (512,), "batch_size": 16}
        model = spen.SPENClassifier(**settings).fit(X, Y).model_
        weights.append(torch.cat([parameter.flatten() for parameter in model.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("openmp", [True, False])
def test_the_callers_number_of_threads_is_a_bound_and_comes_back(
    threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, openmp: bool
) -> None:
    if not openmp:
        monkeypatch.setattr(policy, "_openmp", None)
    threads(3)
    with pytest.raises(KeyError), policy.threads_for(1.0):  # noqa: PT012
        assert (torch.get_num_threads(), policy.threads_allowed()) == (1, 3)
        with policy.threads_for(1.0), policy.threads_for(1e12):
            assert torch.get_num_threads() == 1
        raise KeyError
    assert (torch.get_num_threads(), policy.threads_allowed()) == (3, 3)
    with policy.threads_for(1e12):
        assert torch.get_num_threads() == 3
    with policy.threads_for(1.0):
        threads(2)  # as a callback of theirs may
    assert torch.get_num_threads() == 2
    threads(1)
    with policy.threads_for(1e12):
        assert torch.get_num_threads() == 1


@pytest.mark.skipif(policy._openmp is None, reason="torch's OpenMP is not to be found")
def test_threads_that_begin_meanwhile_have_the_callers_number(
    threads: Callable[[int], None],
) -> None:
    threads(3)
    with policy.threads_for(1.0):
        assert in_new_thread(torch.get_num_threads) == 3


def test_where_cores_are_short_more_threads_than_cores_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GNU's OpenMP does not spin then. What the system says about waiting is made up here."""
    waited, short, looks, asked = 0.0, False, threading.Semaphore(0), []
    crowded = threading.Event()

    class OpenMP:
        free = None

        @staticmethod
        def GOMP_parallel(work: Any, data: Any, threads: int, flags: int) -> None:  # noqa: N802
            asked.append(threads)
            crowded.set()

    def seconds() -> float:
        nonlocal waited
        waited += short
        looks.release()
        return waited

    monkeypatch.setattr(policy, "LOOK_EVERY", 0.001)
    monkeypatch.setattr(policy, "seconds_without_a_core", seconds)
    monkeypatch.setattr(policy, "_openmp", OpenMP)
    crowd = policy._Crowd()
    crowd.helps = True
    with crowd.kept_away(2):
        for _ in range(10):
            looks.acquire()
        assert not asked
        short = True
        crowded.wait()
    assert 2 + asked[0] > len(os.sched_getaffinity(0))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_python_may_end_while_daemon_threads_predict() -> None:
    *_, found, right = exits(4)
    assert right, found


# Where machine code is kept -------------------------------------------------------------


def module_at(path: Path) -> ModuleType:
    path.write_text("def double(x):\n    return 2 * x\n")
    spec = importlib.util.spec_from_file_location("a_kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_machine_code_is_kept_beside_the_source(tmp_path: Path) -> None:
    kernel = compile_kernel(module_at(tmp_path / "a_kernel.py").double, 1)
    assert kernel(21) == 42
    assert list((tmp_path / "__pycache__").glob("*.nbi"))


@pytest.fixture
def read_only(tmp_path: Path) -> Path:
    """A source whose folder takes no cache. (A file in the way stops even the superuser.)"""
    (tmp_path / "__pycache__").write_text("")
    return tmp_path / "a_kernel.py"


def test_a_read_only_install_keeps_it_in_the_users_cache(
    read_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert compile_kernel(module_at(read_only).double, 1)(21) == 42
    assert list(tmp_path.rglob("*.nbi"))


def test_where_nothing_can_be_written_it_is_compiled_all_the_same(
    read_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compile_kernel(module_at(read_only).double, 1)(21) == 42
    assert not list(tmp_path.rglob("*.nbi"))


def test_a_full_disk_does_not_stop_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core import caching

    def no_space(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "save", no_space)
    assert compile_kernel(module_at(tmp_path / "a_kernel.py").double, 1)(21) == 42


def test_the_digest_follows_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    before = source_digest()
    assert before == source_digest()
    read = Path.read_bytes
    monkeypatch.setattr(
        Path, "read_bytes", lambda path: read(path) + b"#" * (path.name == "lanes.py")
    )
    assert source_digest() != before


def test_nothing_of_numba_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys, torch, spen;"
        "from spen.inference import descent, fused; from spen.kernels import cpu, cuda;"
        "form = spen.Form(linear=torch.zeros(1, 2));"
        "spen.Descent(backend='general').solve(form, spen.UnitBox(2));"
        "assert 'numba' not in sys.modules and 'triton' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_thread_that_outlives_the_main_one_predicts():
    code = """
import threading, time, torch, spen
torch.set_num_threads(2)
form, box = spen.Form(linear=torch.randn(600, 30)), spen.UnitBox(30)
def worker():
    with torch.no_grad():
        spen.Descent().solve(form, box)
        threading.main_thread().join()
        print(spen.Descent().solve(form, box).backend)
threading.Thread(target=worker).start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "fused-cpu", done.stderr
