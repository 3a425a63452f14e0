"""Makes torch usable in forked processes, such as joblib's multiprocessing workers."""

from __future__ import annotations

import os

import torch


def _one_thread() -> None:
    # GNU OpenMP's threads do not survive a fork, and a child that waits for them waits for ever.
    torch.set_num_threads(1)


os.register_at_fork(after_in_child=_one_thread)
