"""Batch prediction by Ray Data: rows stream through workers that hold one model each."""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from spen.errors import InputError, check_whole, choose, did_you_mean, one_of, require

if TYPE_CHECKING:
    from spen.estimators.base import LabelClassifier

__all__ = ["predict"]

LABELS, PROBABILITIES = "labels", "probabilities"
"""The columns of what is predicted."""

READERS = {".parquet": "read_parquet", ".csv": "read_csv", ".json": "read_json"}
READERS |= {".jsonl": "read_json"}
"""The function of Ray Data that reads files with such an ending."""


def predict(
    dataset: Any,
    model: Any,
    *,
    write: Literal["names", "probabilities"] = "names",
    keep: Sequence[str] = (),
    known: Mapping[Any, float] | None = None,
    batch_size: int = 4096,
    workers: int | None = None,
) -> Any:
    """Return a dataset of Ray with the labels of each row of another one.

    Nothing is predicted before the result is read or written, and never more than some blocks are
    in memory at a time. Each worker holds one model. If one dies, its block is predicted anew: no
    row is lost, and none comes twice.

    Args:
        dataset: a ``ray.data.Dataset``. Its columns have the names of the features, or it has one
            column of lists or arrays of all features. Other columns are ignored.
        model: a fitted classifier, or the path of its file.
        write: "names": the column "labels", the list of the names of a row's labels.
            "probabilities": the column "probabilities" too, a list with one for each label.
        keep: columns of the dataset that the result has too, such as a row's number.
        known: labels that are known of all rows, as ``predict`` takes them.
        batch_size: rows that are predicted together.
        workers: the most workers; None: as many as there are cores.

    >>> import ray, spen
    >>> _ = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    >>> data = spen.exclusive_blocks(n_train=100, n_test=20)
    >>> clf = spen.SPENClassifier(hidden=(), epochs=2, random_state=0)
    >>> clf = clf.fit(data.train.X, data.train.Y, label_names=data.label_names)
    >>> rows = ray.data.from_numpy(data.test.X)
    >>> found = spen.ray.predict(rows, clf, known={"block0.2": 1}, workers=1).take_all()
    >>> wanted = clf.predict_labels(data.test.X, known={"block0.2": 1})
    >>> [row["labels"] for row in found] == wanted
    True
    >>> ray.shutdown()
    """
    require("ray", "ray")
    from ray.data import ActorPoolStrategy, Dataset  # pyright: ignore[reportMissingImports]

    from spen.estimators.base import LabelClassifier
    from spen.estimators.model_file import load_classifier
    from spen.estimators.targets import align_known

    if not isinstance(dataset, Dataset):
        kind = type(dataset).__name__
        raise InputError(
            f"dataset must be a ray.data.Dataset, such as ray.data.read_parquet(...); received a "
            f"{kind}."
        )
    one_of(write, ("names", "probabilities"), "write")
    check_whole(batch_size, "batch_size")
    if workers is not None:
        check_whole(workers, "workers")
    keep = tuple(keep)
    if taken := {LABELS, PROBABILITIES} & {*keep}:
        raise InputError(f"keep names {taken.pop()!r}, which is a column of the result. Rename it.")
    if isinstance(model, LabelClassifier):
        classifier, content = model, _content(model)
    else:
        # The file may be nowhere but here, so workers get what it holds.
        classifier, content = load_classifier(model), Path(model).read_bytes()
    columns = dataset.columns() or []
    for name in keep:
        if name not in columns:
            raise InputError(f"keep names {name!r}. {did_you_mean(name, columns)}")
    if known is not None:
        align_known(known := dict(known), classifier.label_names_, 1)
    return dataset.map_batches(
        Worker,
        fn_constructor_args=(content, write, keep, known),
        batch_size=batch_size,
        batch_format="numpy",
        compute=ActorPoolStrategy(min_size=1, max_size=workers or os.cpu_count() or 1),
    )


class Worker:
    """Predicts batches of rows with the model that it holds."""

    def __init__(
        self,
        content: bytes,
        write: str,
        keep: tuple[str, ...],
        known: dict[Any, float] | None,
    ) -> None:
        import torch

        from spen.estimators.model_file import load_classifier

        # Workers are the threads.
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.spen"
            path.write_bytes(content)
            self.classifier = load_classifier(path)
        self.write, self.keep, self.known = write, keep, known
        self.names = np.array([str(name) for name in self.classifier.label_names_], object)

    def __call__(self, batch: dict[str, np.ndarray]) -> Any:
        import pyarrow as pa  # pyright: ignore[reportMissingImports]

        rows = _rows(batch, self.classifier, self.keep)
        soft, labels = self.classifier.predict_both(rows, known=self.known)
        columns = {name: pa.array(batch[name].tolist()) for name in self.keep}
        ends = np.cumsum([0, *(labels != 0).sum(1)]).astype(np.int32)
        chosen = pa.array(self.names[labels.nonzero()[1]], pa.string())
        columns[LABELS] = pa.ListArray.from_arrays(ends, chosen)
        if self.write == "probabilities":
            flat = pa.array(np.ascontiguousarray(soft).ravel())
            columns[PROBABILITIES] = pa.FixedSizeListArray.from_arrays(flat, soft.shape[1])
        return pa.table(columns)


def predict_files(
    model: Path,
    files: str,
    out: Path,
    *,
    write: Literal["names", "probabilities"] = "names",
    keep: Sequence[str] = (),
    known: Mapping[Any, float] | None = None,
    workers: int | None = None,
) -> int:
    """Predict the rows of files, in their order, and write a folder of Parquet files.

    The folder takes its place when all of it is written.

    Args:
        model: a model file.
        files: a file, a folder, or a pattern such as ``rows/*.parquet``, of Parquet, CSV or JSON
            lines.
        out: the folder to write, which must not be there yet.
        write: as ``predict`` takes it.
        keep: as ``predict`` takes it.
        known: as ``predict`` takes it.
        workers: the most workers; None: as many as there are cores.

    Returns:
        How many rows there were.
    """
    require("ray", "ray")
    import ray.exceptions  # pyright: ignore[reportMissingImports]
    from ray.data import DataContext  # pyright: ignore[reportMissingImports]

    if out.exists():
        raise InputError(f"{out} is already there. Name another folder, or remove it.")
    if not ray.is_initialized():
        ray.init(include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    context = DataContext.get_current()
    context.execution_options.preserve_order = True
    if hasattr(context, "use_datasource_v2"):
        # Ray's newer way to read Parquet (2.60) mixes up files all the same.
        context.use_datasource_v2 = False
    paths, ending = _paths(files)
    dataset = getattr(ray.data, READERS[ending])(paths)
    settings: dict[str, Any] = {"write": write, "keep": keep, "known": known, "workers": workers}
    predicted = predict(dataset, model, **settings)
    # Workers may have begun in another folder than this one.
    out = out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.{secrets.token_hex(8)}.partial")
    try:
        predicted.write_parquet(str(partial))
        rows = ray.data.read_parquet(str(partial)).count()
        partial.rename(out)
    except ray.exceptions.RayError as problem:
        # What a worker says of its rows is meant for whoever gave them. Ray keeps it as text alone.
        if said := re.search(r"^spen\.errors\.\w+: (.+?)(?:\n\n|\Z)", str(problem), re.M | re.S):
            raise InputError(said[1].strip()) from None
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return rows


def _paths(files: str) -> tuple[list[str], str]:
    """Return the files that a name, a folder or a pattern stands for, and their ending."""
    if Path(files).is_dir():
        found = [path for path in Path(files).iterdir() if path.suffix in READERS]
    elif Path(files).is_file():
        found = [Path(files)]
    else:
        pattern = Path(files)
        found = list(Path(pattern.anchor or ".").glob(str(pattern.relative_to(pattern.anchor))))
    if not found:
        raise InputError(f"There is no file {files}. Name a file, a folder, or 'rows/*.parquet'.")
    endings = sorted({path.suffix for path in found})
    if len(endings) > 1:
        raise InputError(f"{files} has files of several kinds: {', '.join(endings)}. Name one.")
    choose(endings[0], READERS, "ending of files for Ray")
    return sorted(str(path.resolve()) for path in found), endings[0]


def _content(classifier: LabelClassifier) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.spen"
        classifier.save(path)
        return path.read_bytes()


def _rows(
    batch: dict[str, np.ndarray], classifier: LabelClassifier, keep: tuple[str, ...] = ()
) -> Any:
    """Return the rows of a batch as the classifier takes them."""
    from spen.estimators.base import width_of_matrix

    if classifier.encoder_ is not None:
        return batch
    width, names = width_of_matrix(classifier, "spen.ray.predict"), classifier.feature_names_
    columns = {name: _numbers(values) for name, values in batch.items() if name not in keep}
    if names is not None and {*map(str, names)} <= columns.keys():
        return np.column_stack([columns[str(name)] for name in names])
    matrices = [each for each in columns.values() if each.ndim == 2 and each.shape[1] == width]
    if len(matrices) == 1:
        # Ray's arrays are read-only, which compiled code refuses.
        return matrices[0].copy()
    if names is not None:
        absent = next(str(name) for name in names if str(name) not in columns)
        hint = did_you_mean(absent, columns)
        raise InputError(f"The dataset lacks the feature {absent!r}. {hint}")
    if len(columns) != width or any(each.ndim != 1 for each in columns.values()):
        raise InputError(
            f"The dataset has {len(columns)} columns of features, but the model was fitted on "
            f"{width}, which have no names. Give it these columns alone (and those that are kept), "
            f"or one column of lists of {width} numbers."
        )
    return np.column_stack(list(columns.values()))


def _numbers(values: np.ndarray) -> np.ndarray:
    """Return a column of lists of one length as a matrix, any other one as it is."""
    lists = values.dtype == object and len(values) and isinstance(values[0], list | np.ndarray)
    if not lists or len({len(each) for each in values}) > 1:
        return values
    return np.stack([np.asarray(each) for each in values])
