"""Lets tests and documentation find real data sets beside the checkout."""

import os
from pathlib import Path

# Real data sets beside the checkout, where there are some. A folder that is named already wins.
_BESIDE = Path(__file__).resolve().parent.parent / "shared" / "data"
if "SPEN_DATA" not in os.environ and _BESIDE.is_dir():
    os.environ["SPEN_DATA"] = str(_BESIDE)
