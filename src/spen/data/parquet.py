"""Parquet files, by pyarrow: columns of numbers, of lists of numbers, of words, and of tags."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from spen.batch.splits import Split
from spen.data import reader
from spen.data.dataset import check_columns, check_dense
from spen.data.reader import Options, RowReader, shown
from spen.data.words import Tags
from spen.errors import InputError, require

ROWS_AT_ONCE = 4096


class ParquetReader(RowReader):
    """The rows of a Parquet file, some thousand at a time.

    Columns of numbers are features; one of lists of numbers, equally long, is as many. Where a
    column holds anything else, or where that is asked for, X is a DataFrame. Labels are columns of
    0 and 1 (nothing where one is missing), or one column of lists of tags, or of text with tags.

    Args:
        path: the file.
        options: how to read it.
    """

    format = "parquet"

    def __init__(self, path: Path, options: Options) -> None:
        require("pyarrow", "parquet")
        from pyarrow import types  # pyright: ignore[reportMissingImports]

        self.path = path
        with self._opened() as file:
            schema = file.schema_arrow
        kinds = dict(zip(schema.names, schema.types, strict=True))
        if len(kinds) < len(schema.names):
            raise InputError(f"{path} has two columns of one name.")
        lists = [n for n, kind in kinds.items() if _is_list(kind) and _is_text(kind.value_type)]
        if options.labels is None and len(lists) == 1:
            labels = set(lists)
        else:
            picked = reader.pick_labels(path, list(kinds), "column", options)
            labels = {schema.names[i] for i in picked}
        self._labels = [name for name in kinds if name in labels]
        self._columns = [name for name in kinds if name not in labels]
        if not self._columns:
            raise InputError(f"{path} has only labels and no features.")
        self._widths: dict[str, int | None] = {}
        plain = not options.words and all(self._is_numeric(name, kinds) for name in self._columns)
        self._is_table = not plain
        if self._is_table:
            require("pandas", "tables")
            self.feature_names = tuple(self._columns)
        else:
            self.feature_names = tuple(
                name if width is None else f"{name}[{i}]"
                for name, width in self._widths.items()
                for i in range(width or 1)
            )
        self._tags = None
        self.label_names = tuple(self._labels) if options.labels_required else ()
        one = kinds[self._labels[0]] if len(self._labels) == 1 else None
        tagged = one is not None and (_is_list(one) or _is_text(one) or types.is_dictionary(one))
        if options.labels_required and tagged:
            self._take_tags(options)
        check_columns(path, self.n_features, self.n_labels)

    def parts(self) -> Iterator[Split]:
        """Yield the rows, some thousand at a time."""
        for batch in self._batches(self.path, [*self._columns, *self._labels]):
            Y = self._matrix(batch) if self.label_names else None
            yield Split(self._table(batch) if self._is_table else self._numbers(batch), Y)

    def _is_numeric(self, name: str, kinds: dict[str, Any]) -> bool:
        """Say whether a column becomes features as it is, and remember how many."""
        from pyarrow import types  # pyright: ignore[reportMissingImports]

        kind, is_list = kinds[name], _is_list(kinds[name])
        inner = kind.value_type if is_list else kind
        number = types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)
        if not number:
            return False
        width = None
        if is_list:
            first = next(self._batches(self.path, [name], 1), None)
            width = 0 if first is None else len(first.column(0)[0].as_py() or ())
            if not width:
                return False
        self._widths[name] = width
        return True

    def _take_tags(self, options: Options) -> None:
        [column] = self._labels
        self.label_column = column
        if isinstance(options.like, ParquetReader):
            self._tags, self.label_names = options.like._tags, options.like.label_names
        else:
            cells, names = set(), set()
            for path in (self.path, *options.also):
                for batch in self._batches(path, self._labels):
                    for cell in batch.column(0).to_pylist():
                        if isinstance(cell, list):
                            names.update(str(tag).strip() for tag in cell)
                        else:
                            cells.add(cell)
            self._tags = Tags.of(cells)
            names |= {tag for cell in cells for tag in self._tags.read(cell)}
            self.label_names = tuple(sorted(names - {""}))
        if not self.label_names:
            raise InputError(f"{self.path} has no tag in any row of its column {shown(column)}.")
        self._places = {name: place for place, name in enumerate(self.label_names)}

    def _numbers(self, batch: Any) -> np.ndarray:
        blocks = []
        for name, width in self._widths.items():
            column = batch.column(name)
            if width is None:
                values = column.to_numpy(zero_copy_only=False)
                blocks.append(np.asarray(values, np.float64).astype(np.float32)[:, None])
                continue
            flat = column.flatten().to_numpy(zero_copy_only=False)
            lists = column.value_lengths().to_numpy(zero_copy_only=False)
            if not (lists == width).all():
                raise InputError(
                    f"The lists of column {shown(name)} of {self.path} must be equally long; some "
                    f"do not hold {width} numbers."
                )
            blocks.append(np.asarray(flat, np.float32).reshape(-1, width))
        return np.hstack(blocks)

    def _table(self, batch: Any) -> Any:
        return batch.select(self._columns).to_pandas().astype(object)

    def _matrix(self, batch: Any) -> Any:
        shape = batch.num_rows, self.n_labels
        if self._tags is not None:
            sets = []
            for cell in batch.column(self.label_column).to_pylist():
                tags = self._tags.read(cell)
                unknown = [tag for tag in tags if tag not in self._places]
                if unknown:
                    what = f"has a tag that it had not before: {shown(unknown[0])}."
                    raise InputError(f"{self.path} {what} Open it again.")
                sets.append({self._places[tag] for tag in tags})
            ends = np.cumsum([0, *map(len, sets)])
            columns = np.array([place for tags in sets for place in sorted(tags)], np.int32)
            return sparse.csr_matrix((np.ones(len(columns), np.int8), columns, ends), shape)
        values = np.column_stack(
            [
                np.asarray(batch.column(name).to_numpy(zero_copy_only=False), np.float32)
                for name in self._labels
            ]
        )
        missing = np.isnan(values)
        if not (missing | (values == 0) | (values == 1)).all():
            column = self._labels[np.argwhere(~(missing | (values == 0) | (values == 1)))[0][1]]
            raise InputError(f"Column {shown(column)} of {self.path} must hold only 0 and 1.")
        if missing.any():
            check_dense(*shape, self.path)
            return values
        return sparse.csr_matrix(values.astype(np.int8))

    def _batches(self, path: Path, columns: list[str], rows: int = ROWS_AT_ONCE) -> Iterator[Any]:
        with self._opened(path) as file:
            yield from file.iter_batches(batch_size=rows, columns=columns)

    @contextmanager
    def _opened(self, path: Path | None = None) -> Iterator[Any]:
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet as parquet  # pyright: ignore[reportMissingImports]

        path = self.path if path is None else path
        reader.open_file(path).close()
        try:
            with parquet.ParquetFile(path) as file:
                yield file
        except (pyarrow.ArrowException, OSError) as problem:
            raise InputError(f"{path} cannot be read as a Parquet file: {problem}") from None


def _is_list(kind: Any) -> bool:
    from pyarrow import types  # pyright: ignore[reportMissingImports]

    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _is_text(kind: Any) -> bool:
    from pyarrow import types  # pyright: ignore[reportMissingImports]

    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
