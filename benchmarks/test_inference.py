"""The measurements of ``spen bench`` under pytest-benchmark, to follow them over time.

    pytest benchmarks/test_inference.py --benchmark-autosave --benchmark-compare

The model is the one that ``spen bench`` keeps in runs/bench, trained now if it is not there.
Ratios within one run mean more than times: see docs/performance.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spen.bench.effort import Effort
from spen.bench.hinge import BACKENDS, epoch_seconds, hinge_stages, training_rows
from spen.bench.labels import label_calls
from spen.bench.paper_model import paper_subject
from spen.bench.prediction import TITLES, prediction_calls
from spen.bench.rows import row_call, single_rows
from spen.bench.subject import Subject
from spen.bench.timing import wait_for
from spen.model import usable_device

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

DEVICE = usable_device("auto")
EFFORT = Effort.of(DEVICE)


@pytest.fixture(scope="module")
def subject() -> Subject:
    """The paper's model and its rows."""
    return paper_subject(Path("runs/bench"), DEVICE)


@pytest.fixture(scope="module")
def calls(subject: Subject) -> dict[str, Callable[[], object]]:
    """What is timed of predictions, by name."""
    return prediction_calls(subject)


def timed(benchmark, call: Callable[[], object]) -> None:
    """Time a call until its device has done all of it; once before, so that it is compiled."""

    def whole() -> None:
        call()
        wait_for(DEVICE)

    whole()
    benchmark(whole)


@pytest.mark.parametrize("name", TITLES)
def test_prediction(benchmark, calls, name):
    """Predictions of the test rows, and what they are compared with."""
    if name not in calls:
        pytest.skip("there is no kernel here")
    timed(benchmark, calls[name])


@pytest.mark.parametrize("kind", ["csr", "ndarray"])
def test_single_row(benchmark, subject, kind):
    """A row that comes by itself, from X to labels."""
    (row,) = single_rows(subject, 1)[kind]
    timed(benchmark, lambda: subject.default_classifier.predict(row))


@pytest.mark.parametrize("n", EFFORT.labels)
@pytest.mark.parametrize("kind", ["fused", "general", "crf"])
def test_steps_over_labels(benchmark, subject, kind, n):
    """A fixed number of steps over more and more labels."""
    fused = subject.why_not_fused() is None
    found, _ = label_calls(replace(EFFORT, labels=(n,), burst=0), DEVICE, fused)
    if f"{kind} {n}" not in found:
        pytest.skip("there is no kernel here, or it does not fit into memory")
    timed(benchmark, found[f"{kind} {n}"])


@pytest.mark.parametrize("n", EFFORT.rows[:-1])
def test_rows(benchmark, subject, n):
    """Inference alone on more and more rows."""
    timed(benchmark, row_call(subject, subject.descent(), n, EFFORT.chunk))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stage", ["global", "all"])
def test_hinge_epoch(benchmark, subject, stage, backend):
    """A training epoch with loss-augmented inference."""
    if backend == "fused" and (reason := subject.why_not_fused()):
        pytest.skip(reason)
    (chosen,) = [one for one in hinge_stages(subject) if one.name == stage]
    arguments = (subject, chosen, training_rows(subject), backend)
    benchmark.pedantic(epoch_seconds, arguments, rounds=3, warmup_rounds=1)
