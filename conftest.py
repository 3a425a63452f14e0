"""Lets tests and documentation find real data sets beside the checkout."""

import importlib.util
import os
from pathlib import Path

# Kernels cannot be imported without the package that compiles them.
_KERNELS = {"numba": "src/spen/kernels/lane*.py", "triton": "src/spen/kernels/cuda_*.py"}
collect_ignore_glob = [
    path for package, path in _KERNELS.items() if importlib.util.find_spec(package) is None
]

# Real data sets beside the checkout, where there are some. A folder that is named already wins.
_BESIDE = Path(__file__).resolve().parent.parent / "shared" / "data"
if "SPEN_DATA" not in os.environ and _BESIDE.is_dir():
    os.environ["SPEN_DATA"] = str(_BESIDE)
