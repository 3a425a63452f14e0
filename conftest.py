"""Lets tests and documentation find real data sets beside the checkout."""

import importlib.util
import os
from pathlib import Path

# Kernels cannot be imported without the package that compiles them; what launches them can. And
# some examples need what only an extra brings.
_NEEDED = {
    "numba": [
        f"src/spen/kernels/cpu/{name}.py" for name in ("lanes", "arithmetic", "steps", "descent")
    ],
    "triton": [f"src/spen/kernels/cuda/{name}.py" for name in ("arithmetic", "tiles", "streams")],
    "onnxruntime": ["docs/export.md"],
    "ray": ["src/spen/ray.py", "docs/export.md"],
    "transformers": ["docs/encoders.md"],
}
collect_ignore = [
    path
    for package, paths in _NEEDED.items()
    if importlib.util.find_spec(package) is None
    for path in paths
]

# Real data sets beside the checkout, where there are some. A folder that is named already wins.
_BESIDE = Path(__file__).resolve().parent.parent / "shared" / "data"
if "SPEN_DATA" not in os.environ and _BESIDE.is_dir():
    os.environ["SPEN_DATA"] = str(_BESIDE)
