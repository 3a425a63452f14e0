"""Several threads at once, the end of Python among them: in short what ``make torture`` does for
long."""

import pytest
import torch
from torture.threads import eight_at_once, exits, soak

from spen.kernels.threads import SMALL, threads_for


def test_eight_threads_fit_predict_load_and_save(tmp_path):
    what, _, found, reached = eight_at_once(tmp_path, rounds=1)
    assert reached, (what, found)


def test_python_may_end_while_daemon_threads_are_at_work():
    what, _, found, reached = exits(3)
    assert reached, (what, found)


def test_memory_does_not_grow(tmp_path):
    what, _, found, reached = soak(tmp_path, seconds=0.0)
    assert reached, (what, found)


@pytest.mark.parametrize(("work", "threads"), [(SMALL - 1, 1), (SMALL, 2)])
def test_small_work_stays_in_its_thread_and_a_setting_is_given_back(work, threads):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with threads_for(work):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
