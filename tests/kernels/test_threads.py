"""The kernel in threads, in forked processes, and where nothing can be written."""

from __future__ import annotations

import importlib.util
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from spen.energies.form import NONLINEARITIES, Block, Form
from spen.kernels import cpu
from spen.kernels.cpu import compile_kernel, source_digest
from spen.kernels.interface import Fused, Limits, StepRule
from spen.kernels.threads import _pools

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


def _in_child(wanted: Fused) -> bool:
    torch.set_num_threads(2)
    return equal(solve(), wanted)


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_process_may_call_after_its_parent_has(threads: Callable[[int], None]) -> None:
    threads(2)
    wanted = solve()
    assert _pools
    with multiprocessing.get_context("fork").Pool(2) as workers:
        results = workers.map_async(_in_child, [wanted] * 4)
        assert results.get() == [True] * 4
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
        cpu.run_together(work, 2)


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
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "fused-cpu", done.stderr
