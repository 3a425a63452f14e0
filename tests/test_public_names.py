"""What is public stays: names, signatures and commands are those of a checked-in list."""

import public_names
import pytest

import spen


def test_public_names_and_signatures_are_those_that_were_promised():
    promised = public_names.LIST.read_text(encoding="utf-8").splitlines()
    found = list(public_names.lines())
    gone, new = sorted({*promised} - {*found}), sorted({*found} - {*promised})
    assert not gone, f"promised, and gone or changed (see docs/promise.md): {gone}; new: {new}"
    assert not new, f"not in the list yet: {new}. Run python tests/public_names.py"
    assert found == promised


def test_the_list_is_of_what_is_there():
    lines = public_names.LIST.read_text(encoding="utf-8").splitlines()
    assert len(lines) == len({*lines})
    assert any(line.startswith("SPENClassifier.fit(self, X, y=None, ") for line in lines)
    assert any(line.startswith("metrics.example_f1(truth, predicted") for line in lines)
    assert any(line.startswith("spen predict(") for line in lines)
    assert not any(" at 0x" in line for line in lines)


def test_an_old_name_works_for_a_version_and_warns(monkeypatch):
    monkeypatch.setitem(spen._RENAMED, "Perceptron", ("MLP", "0.3"))
    with pytest.warns(
        FutureWarning, match=r"spen.Perceptron is now spen.MLP, and goes in spen 0.3"
    ):
        assert spen.Perceptron is spen.MLP
    assert "Perceptron" not in dir(spen)
