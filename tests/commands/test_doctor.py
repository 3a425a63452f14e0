"""``spen doctor``: what it says of a sound machine, and of a broken one."""

import json
from importlib.metadata import PackageNotFoundError, version

import pytest

import spen
from spen.cli import doctor as module
from spen.cli.doctor import doctor
from spen.kernels import cpu


def said(capsys) -> dict:
    doctor(json=True)
    return json.loads(capsys.readouterr().out)


def test_a_sound_machine(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SPEN_DATA", str(tmp_path))
    found = said(capsys)
    assert found["spen"] == {"version": spen.__version__}
    assert found["packages"]["torch"] == version("torch")
    assert "pytest" not in found["packages"]
    assert found["data"][str(tmp_path)] == "no data set of spen data list"
    assert not any("FAILS" in str(facts) or "WRONG" in str(facts) for facts in found.values())


def test_it_fits_on_a_screen(capsys):
    doctor()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"spen {spen.__version__}"
    assert len(lines) < 60


def test_the_kernel_is_tried(capsys):
    pytest.importorskip("numba")
    assert said(capsys)["kernels"]["cpu"].startswith("runs, and agrees with single steps")


def test_a_kernel_that_is_wrong_is_seen(capsys, monkeypatch):
    pytest.importorskip("numba")
    right = cpu.minimise

    def off(*arguments):
        found = right(*arguments)
        return found._replace(energy=found.energy + 0.01)

    monkeypatch.setattr(cpu, "minimise", off)
    assert said(capsys)["kernels"]["cpu"].startswith("WRONG: its energies are off by 1.0e-02")


def test_a_kernel_that_cannot_be_compiled_is_seen(capsys, monkeypatch):
    pytest.importorskip("numba")

    def broken(*arguments):
        raise TypeError("no such instruction")

    monkeypatch.setattr(cpu, "minimise", broken)
    assert said(capsys)["kernels"]["cpu"] == "FAILS: TypeError: no such instruction"


def test_without_numba(capsys, monkeypatch):
    monkeypatch.setattr(cpu, "trouble_with_numba", lambda: "numba is not installed; get it")
    words = said(capsys)["kernels"]["cpu"]
    assert words == "single steps, since numba is not installed; get it"


def test_a_missing_package_names_its_extra(capsys, monkeypatch):
    def without(package):
        if package in ("skops", "numpy"):
            raise PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(module, "version", without)
    found = said(capsys)["packages"]
    assert found["skops"] == "not installed: pip install 'spen[bases]'"
    assert found["numpy"] == "not installed: spen needs it"


def test_one_broken_part_hides_no_other(capsys, monkeypatch):
    def broken():
        raise OSError("the disk is gone")

    monkeypatch.setattr("spen.data.catalog.data_folders", broken)
    found = said(capsys)
    assert found["data"] == {"FAILS": "OSError: the disk is gone"}
    assert found["limits"]["table"] == "8 GiB"
