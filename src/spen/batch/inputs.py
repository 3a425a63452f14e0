"""Inputs of any kind: images, token ids, rows of different lengths, dicts of such.

They pass through to the feature network as they are. Whole numbers stay whole, and only floats
take the type that the model computes with.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from spen.errors import InputError

MASKS = ("attention_mask", "mask")
"""Names under which a module may ask for the mask of rows that were filled up."""

CPU = torch.device("cpu")

LARGEST_ON_DEVICE = 2**31
"""Bytes of inputs that are copied to a GPU once; of more, each batch is copied there."""

LARGEST_PASSED_BATCH = 2**15
"""Entries of inputs that a network of others is given at a time where nobody says otherwise: 256
texts of 128 tokens. What it makes of an entry may be a thousand numbers."""


@dataclass(frozen=True)
class Ragged:
    """Rows of whole numbers, such as the token ids of texts, which may differ in length.

    Attributes:
        ids: (entries,) row by row.
        offsets: (n + 1,) where each row begins.
    """

    ids: Tensor
    offsets: Tensor

    @property
    def lengths(self) -> Tensor:
        """How many entries each row has, (n,)."""
        return self.offsets.diff()

    def select(self, rows: Tensor) -> Ragged:
        """Return some rows."""
        lengths = self.lengths[rows]
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        steps = torch.arange(int(offsets[-1])) - offsets[:-1].repeat_interleave(lengths)
        return Ragged(self.ids[steps + self.offsets[rows].repeat_interleave(lengths)], offsets)

    def padded(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows filled up with 0 to the longest of them, (n, T), and where they are not."""
        lengths = self.lengths[rows, None]
        place = torch.arange(int(lengths.max()))
        mask = place < lengths
        entries = (self.offsets[rows, None] + place).clamp_max_(len(self.ids) - 1)
        return self.ids[entries].masked_fill_(~mask, 0), mask


@dataclass(frozen=True)
class InputBatch:
    """A batch of inputs that are more than one tensor.

    Attributes:
        fields: a tensor (n, …) for each name; "" is the name of inputs without one.
        mask: (n, T) False where rows were filled up; None where none can be.
    """

    fields: dict[str, Tensor]
    mask: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        """(rows, entries of a row)."""
        tensors = self.fields.values()
        rows = next(iter(tensors)).shape[0]
        return torch.Size((rows, sum(tensor[:1].numel() for tensor in tensors)))

    def call(self, module: nn.Module, *more: Any, named: bool = True, strict: bool = False) -> Any:
        """Call a module with these inputs.

        Fields come as keywords if ``forward`` has parameters of their names, otherwise as one
        dict. The mask comes as ``attention_mask`` (of 1 and 0) or ``mask`` (of True and False),
        if ``forward`` has such a parameter and no field has that name.

        Args:
            module: to be called.
            more: further arguments.
            named: False gives the fields as one dict in any case.
            strict: whether a ``forward`` that takes any name is to take those that it lists alone.
        """
        takes, any_name = _parameters(type(module).forward)
        keywords: dict[str, Any] = {}
        if self.mask is not None:
            name = next((name for name in MASKS if name in takes and name not in self.fields), None)
            if name is not None:
                keywords[name] = self.mask.long() if name == MASKS[0] else self.mask
        if "" in self.fields:
            return module(self.fields[""], *more, **keywords)
        foreign = [name for name in self.fields if name not in takes]
        if named and ((any_name and not strict) or not foreign):
            return module(*more, **self.fields, **keywords)
        if strict or (named and len(foreign) < len(self.fields)):
            raise InputError(
                f"X holds {_list(foreign)}, and {type(module).__name__}.forward takes "
                f"{_list(takes)}. Leave out what it does not take."
            )
        return module(self.fields, *more, **keywords)


@functools.lru_cache(maxsize=256)
def _parameters(forward: Callable[..., Any]) -> tuple[tuple[str, ...], bool]:
    """Return the names that may be given as keywords, and whether any name may."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())[1:]
    except (TypeError, ValueError):
        return (), False
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return tuple(names), any(p.kind is p.VAR_KEYWORD for p in parameters)


@dataclass(frozen=True)
class InputRows:
    """Rows of inputs of any kind, checked once; batches are cut out of them.

    Attributes:
        fields: rows (n, …) for each name; "" is the name of inputs without one.
        device: where batches are wanted.

    >>> rows = read_inputs([[7, 8, 9], [5]])
    >>> batch = rows[torch.tensor([1, 0])]
    >>> batch.fields[""], batch.mask.sum(1)
    (tensor([[5, 0, 0],
            [7, 8, 9]]), tensor([1, 3]))
    """

    fields: Mapping[str, Tensor | Ragged]
    device: torch.device = CPU

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def shape(self) -> torch.Size:
        """(rows, entries of a row); of rows that differ, of the longest."""
        width = sum(
            int(f.lengths.max()) if isinstance(f, Ragged) else f[:1].numel()
            for f in self.fields.values()
        )
        first = next(iter(self.fields.values()))
        rows = len(first.offsets) - 1 if isinstance(first, Ragged) else first.shape[0]
        return torch.Size((rows, width))

    @property
    def order_device(self) -> torch.device:
        """Where row numbers must be, so that nothing waits for them."""
        tensors = [field for field in self.fields.values() if isinstance(field, Tensor)]
        there = len(tensors) == len(self.fields) and all(t.device == self.device for t in tensors)
        return self.device if there else CPU

    def __getitem__(self, rows: Any) -> Any:
        """Return a batch of the rows whose numbers a tensor holds: a tensor, where inputs are one.

        By an array or a slice, return such rows as this.
        """
        if not isinstance(rows, Tensor):
            return self.select(rows)
        rows = rows.to(self.order_device)
        fields, mask = {}, None
        for name, field in self.fields.items():
            if isinstance(field, Ragged):
                found, mask = field.padded(rows)
            else:
                found = field[rows]
            fields[name] = found.to(self.device, non_blocking=True)
        if mask is None and "" in fields:
            return fields[""]
        return InputBatch(fields, None if mask is None else mask.to(self.device, non_blocking=True))

    def span(self, first: int, last: int, copies: int) -> Any:
        """Return the rows from ``first`` up to ``last``, and then copies of the last of them."""
        rows = torch.arange(first, last + copies, device=self.order_device)
        return self[rows.clamp_max_(last - 1)]

    def select(self, index: Any) -> InputRows:
        """Return some rows, by their numbers, True and False, or a slice."""
        rows = torch.arange(len(self))[
            index if isinstance(index, slice) else torch.as_tensor(index)
        ]
        fields = {
            name: field.select(rows) if isinstance(field, Ragged) else field[rows]
            for name, field in self.fields.items()
        }
        return replace(self, fields=fields)

    def joined(self, others: InputRows) -> InputRows:
        """Return these rows and then others of the same kind."""
        fields: dict[str, Tensor | Ragged] = {}
        for name, field in self.fields.items():
            other: Any = others.fields[name]
            if isinstance(field, Ragged):
                offsets = torch.cat([field.offsets, field.offsets[-1] + other.offsets[1:]])
                fields[name] = Ragged(torch.cat([field.ids, other.ids]), offsets)
            else:
                fields[name] = torch.cat([field, other])
        return replace(self, fields=fields)

    def to(self, dtype: torch.dtype, device: torch.device | None) -> InputRows:
        """Return rows whose floats are of a type, for batches on a device."""
        device = CPU if device is None else device
        tensors = [field for field in self.fields.values() if isinstance(field, Tensor)]
        small = sum(tensor.nbytes for tensor in tensors) <= LARGEST_ON_DEVICE
        where = device if small else None

        def moved(field: Tensor | Ragged) -> Tensor | Ragged:
            if isinstance(field, Ragged):
                return field
            return field.to(where, dtype if field.is_floating_point() else None)

        return InputRows({name: moved(field) for name, field in self.fields.items()}, device)

    def parts(self) -> tuple[Tensor, ...]:
        """Return the tensors that make up the rows, names among them."""
        parts: list[Tensor] = []
        for name, field in self.fields.items():
            parts.append(torch.tensor(list(name.encode()), dtype=torch.uint8))
            parts += [field.ids, field.offsets] if isinstance(field, Ragged) else [field]
        return tuple(parts)

    @property
    def is_matrix(self) -> bool:
        """Whether they are rows of one length, and nothing beside."""
        field = self.fields.get("")
        if isinstance(field, Ragged):
            return bool((field.lengths == field.lengths[0]).all())
        return field is not None and field.ndim == 2

    @property
    def kind(self) -> InputKind:
        """What these rows are like."""
        return InputKind({name: _kind(field) for name, field in self.fields.items()})


@dataclass(frozen=True)
class InputKind:
    """What rows of inputs are like, which all rows of one model must be.

    Attributes:
        fields: of each name, what its numbers are ("ids" of rows that may differ in length;
            "whole", "pixels", "flags", "floats"), and the shape of a row, None for "ids".
        n_features: the width of F(x) for such rows, where a trial has found it.
    """

    fields: Mapping[str, tuple[str, tuple[int, ...] | None]]
    n_features: int | None = None

    def conform(self, rows: InputRows, name: str = "X") -> InputRows:
        """Return rows as this kind has them, or say how they differ from it."""
        if set(rows.fields) != set(self.fields):
            raise InputError(
                f"{name} must be {self.in_words()}, as in the fit; received {rows.kind.in_words()}."
            )
        fields = {}
        for key, (sort, shape) in self.fields.items():
            field, called = rows.fields[key], f"{name}[{key!r}]" if key else name
            if sort == "ids" and isinstance(field, Tensor) and _is_ids(field):
                field = _even(field)
            kind = _kind(field)
            if kind != (sort, shape):
                wanted, found = (InputKind({"": k}).in_words() for k in ((sort, shape), kind))
                hint = _TO_LISTS if {sort, kind[0]} <= {"ids", "whole"} else ""
                raise InputError(
                    f"{called} must be {wanted}, as in the fit; received {found}.{hint}"
                )
            fields[key] = field
        return replace(rows, fields=fields)

    def in_words(self) -> str:
        """Return what rows are, in words."""
        words = []
        for name, (sort, shape) in self.fields.items():
            each = SORTS[sort] if shape is None else f"{SORTS[sort]} (n{_sizes(shape)})"
            words.append(f"{name!r}: {each}" if name else each)
        return words[0] if "" in self.fields else f"a dict of {', '.join(words)}"


_TO_LISTS = " Fit and predict with lists of ids, one list a row, which may differ in length."

SORTS = {
    "ids": "lists of ids",
    "whole": "whole numbers",
    "pixels": "bytes",
    "flags": "True and False",
    "floats": "numbers",
}


def _sizes(shape: Sequence[int]) -> str:
    return "".join(f", {size}" for size in shape)


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _kind(field: Tensor | Ragged) -> tuple[str, tuple[int, ...] | None]:
    if isinstance(field, Ragged):
        return "ids", None
    if field.is_floating_point():
        return "floats", tuple(field.shape[1:])
    sort = {torch.bool: "flags", torch.uint8: "pixels"}.get(field.dtype, "whole")
    return sort, tuple(field.shape[1:])


def _is_ids(field: Tensor) -> bool:
    return field.ndim == 2 and field.dtype == torch.int64 and field.shape[1] > 0


def _even(field: Tensor) -> Ragged:
    """Return rows of one length as rows that may differ."""
    rows, length = field.shape
    return Ragged(field.flatten().cpu(), torch.arange(rows + 1) * length)


# Reading what people pass ----------------------------------------------------------------------


def read_inputs(value: Any, name: str = "X") -> InputRows | None:
    """Return inputs that are no matrix of floats, no table and no text; None where they are.

    Args:
        value: arrays or tensors (n, …) of three dimensions or more, or of whole numbers; lists of
            lists of ids; or a dict of such, in which there may be columns (n,) and matrices too.
        name: what errors call it.

    >>> read_inputs(np.zeros((2, 3, 8, 8))).kind.in_words()
    'numbers (n, 3, 8, 8)'
    >>> read_inputs({"input_ids": [[7, 8], [5]], "length": [2, 1]}).kind.in_words()
    "a dict of 'input_ids': lists of ids, 'length': whole numbers (n)"
    """
    if isinstance(value, InputRows):
        return value
    if sparse.issparse(value) or hasattr(value, "columns"):
        return None
    if isinstance(value, Mapping):
        return _read_fields(value, name)
    field = _read_ragged(value, name)
    if field is None:
        dimensions, kind = _looks(value)
        if dimensions < 3 and not (dimensions == 2 and kind in "biu"):
            return None
        field = _read_array(value, name)
    rows = InputRows({"": field})
    _check_rows(rows, name)
    return rows


def is_nested(value: Any) -> bool:
    """Return whether an entry of a dict has more than one number a row: no column of a table."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if isinstance(value, list | tuple) or kind == "O":
        first = next(iter(value), None)
        return isinstance(first, list | tuple) or getattr(first, "ndim", 0) > 0
    return getattr(value, "ndim", 0) > 1


def _read_fields(given: Mapping[Any, Any], name: str) -> InputRows:
    fields: dict[str, Tensor | Ragged] = {}
    for key, value in given.items():
        if not isinstance(key, str) or not key:
            raise InputError(f"The keys of {name} must be names; received {key!r}.")
        called = f"{name}[{key!r}]"
        if sparse.issparse(value):
            raise InputError(f"{called} is a sparse matrix. Give it as an array: .toarray().")
        field = _read_ragged(value, called)
        fields[key] = _read_array(value, called) if field is None else field
    if not fields:
        raise InputError(f"{name} is an empty dict: it has no rows. Give it at least one array.")
    lengths = {key: len(InputRows({key: field})) for key, field in fields.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{key!r} has {n}" for key, n in lengths.items())
        raise InputError(f"All of {name} must have as many rows; {said}.")
    rows = InputRows(fields)
    _check_rows(rows, name)
    ragged = {key: f.lengths for key, f in fields.items() if isinstance(f, Ragged)}
    for key, theirs in ragged.items():
        first, wanted = next(iter(ragged.items()))
        differ = (theirs != wanted).nonzero()
        if len(differ):
            row = int(differ[0])
            raise InputError(
                f"Rows of {name} must be equally long in all lists of ids; row {row} has "
                f"{int(wanted[row])} entries in {first!r} and {int(theirs[row])} in {key!r}."
            )
    return rows


def _check_rows(rows: InputRows, name: str) -> None:
    if len(rows) == 0:
        raise InputError(f"{name} is empty: it has no rows. Pass at least one.")


def _looks(value: Any) -> tuple[int, str]:
    """Return how many dimensions something has, and what its entries are."""
    if isinstance(value, Tensor):
        whole = not (value.is_floating_point() or value.is_complex())
        return value.ndim, "i" if whole else "f"
    if not isinstance(value, np.ndarray):
        try:
            value = np.asarray(value)
        except ValueError:
            return 0, "O"
    return value.ndim, value.dtype.kind


def _read_array(value: Any, name: str) -> Tensor:
    """Return a tensor of floats, bytes, True and False, or else int64; or say what is wrong."""
    if isinstance(value, Tensor):
        tensor = value.detach()
        if tensor.layout != torch.strided or tensor.is_complex():
            raise InputError(f"{name} must be a dense tensor of real numbers.")
    else:
        try:
            array = np.asarray(value)
            if array.dtype.kind not in "biuf":
                raise TypeError(f"its entries are of type {array.dtype}")
        except (TypeError, ValueError) as problem:
            raise InputError(
                f"{name} must be an array of numbers, or lists of ids, one list a row; {problem}."
            ) from None
        if array.dtype.kind == "f":
            # Other byte orders and long doubles come in too.
            kind = array.dtype if array.dtype.name in ("float16", "float32") else np.float64
            array = array.astype(kind)
        elif array.dtype.kind != "b" and array.dtype != np.uint8:
            if array.size and array.dtype.kind == "u" and int(array.max()) > 2**63 - 1:
                raise InputError(f"{name} holds {array.max()}, and 2**63 - 1 is the most.")
            array = array.astype(np.int64)
        tensor = torch.from_numpy(np.array(array, order="C"))
    if tensor.ndim == 0:
        raise InputError(f"{name} must have rows; received the number {tensor.item()}.")
    if tensor.is_floating_point():
        bad = ~tensor.isfinite()
        if bad.any():
            row = int(bad.reshape(len(tensor), -1).any(1).nonzero()[0])
            raise InputError(
                f"{name} must hold finite numbers; row {row} has some that are not. Drop or fill "
                "such entries first."
            )
        return tensor
    return tensor if tensor.dtype in (torch.bool, torch.uint8) else tensor.long()


def _read_ragged(value: Any, name: str) -> Ragged | None:
    """Return lists of ids; None where something is none."""
    if not isinstance(value, list | tuple):
        plain = np.asarray(value) if type(value).__name__ == "Series" else value
        if not (isinstance(plain, np.ndarray) and plain.dtype == object and plain.ndim == 1):
            return None
        value = plain.tolist()
    nested = [isinstance(row, list | tuple) or getattr(row, "ndim", 0) == 1 for row in value]
    if not any(nested):
        return None
    if not all(nested):
        row = nested.index(False)
        raise InputError(
            f"Rows of {name} must all be lists of ids, or none; row {row} is {value[row]!r}."
        )
    try:
        parts = [np.asarray(row) for row in value]
    except ValueError:
        # Lists inside the lists, which differ in length.
        parts = [np.empty((0, 0))]
    if any(part.ndim != 1 for part in parts):
        return None
    lengths = [len(part) for part in parts]
    if any(part.dtype.kind not in "biu" for part in parts if len(part)):
        if len(set(lengths)) == 1:
            return None
        row, part = next(
            (k, p) for k, p in enumerate(parts) if len(p) and p.dtype.kind not in "biu"
        )
        raise InputError(
            f"Rows of {name} that differ in length must be lists of ids, which are whole numbers; "
            f"row {row} holds {part.tolist()[0]!r}. Turn tokens into the numbers of a vocabulary, "
            "or make the rows equally long."
        )
    if 0 in lengths:
        raise InputError(
            f"Row {lengths.index(0)} of {name} is an empty list. Give it at least one id, such as "
            "that of an unknown token."
        )
    ids = torch.from_numpy(np.concatenate(parts).astype(np.int64))
    return Ragged(ids, torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)])))
