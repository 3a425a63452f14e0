"""``spen export``: a model as a file that other programs run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from spen.cli.files import out_or_default, rows_to_predict
from spen.cli.show import say, show_json


def export(
    model: Path,
    *,
    to: Literal["onnx", "torch"] = "onnx",
    out: Path | None = None,
    data: str | None = None,
    format: str | None = None,
    json: bool = False,
) -> None:
    """Write a model as a file that other programs run: from a row to probabilities and labels.

    What is written is compared with `spen predict` first, row by row.

    Args:
        model: A model file that `spen fit` wrote.
        to: "onnx", for onnxruntime and whatever else reads it, or "torch", a program of
            torch.export.
        out: Where to write. By default MODEL.onnx (.pt2 for torch) in the current folder, if there
            is no such file yet.
        data: Rows to compare by: a file, or a name from `spen data list`. By default some are
            drawn.
        format: The file's format, where it cannot be recognised.
        json: Print one JSON object instead of text.
    """
    from spen.estimators.export import FORMATS
    from spen.estimators.model_file import load_classifier as load

    out = out_or_default(out, str(model), FORMATS[to])
    classifier = load(model)
    rows = None
    if data is not None:
        # Enough to compare by, however long the file is.
        rows = next(iter(rows_to_predict(classifier, data, format))).X
    exported = classifier.export(out, rows, to=to)
    if json:
        record = {"rows": exported.rows, "apart": exported.apart, "different": exported.different}
        show_json({"out": str(out), "to": to, "bytes": exported.bytes} | record)
    else:
        say(str(exported))
