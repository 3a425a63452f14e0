"""On a machine with a GPU: a classifier trained there loads and predicts on the CPU."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

import spen


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_what_was_trained_on_a_gpu_loads_on_the_cpu():
    data = spen.exclusive_blocks(300, 50)
    inputs = {"dense": data.train.X, "sparse": sparse.csr_matrix(data.train.X > 1.2, dtype=float)}
    for name, X in inputs.items():
        for settings in ({}, {"objective": "hinge"}, {"energy": "conditional"}):
            clf = spen.SPENClassifier(
                hidden=(16,), dropout=0.2, epochs=3, device="cuda", **settings
            )
            clf.fit(X, data.train.Y)
            assert clf.model_.reference.is_cuda
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.spen"
                clf.save(path)
                loaded, back = spen.load(path), spen.load(path, device="cuda")
            assert not loaded.model_.reference.is_cuda
            assert np.allclose(loaded.predict_proba(X), clf.predict_proba(X), atol=1e-3), name
            assert np.array_equal(back.predict_proba(X), clf.predict_proba(X))
            assert clf.energy(X, data.train.Y).shape == (300,)
            assert 0 <= clf.diagnose(X, data.train.Y).converged <= 1
            known = np.full(data.train.Y.shape, np.nan)
            known[:, 0] = 1
            assert (clf.predict_proba(X, known=known)[:, 0] == 1).all()
