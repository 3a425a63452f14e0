"""Settings as JSON and back, without pickle: only spen's own classes are ever built."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from spen.energies.unsized import UnsizedEnergy, UnsizedTerm
from spen.errors import CheckpointError, InputError
from spen.inputs import object_array

_PLAIN = (str, int, float, bool, type(None))


def to_json(value: Any, where: str) -> Any:
    """Describe a setting, or refuse a class that cannot be rebuilt, naming it.

    >>> import spen
    >>> to_json(spen.Hinge(margin=2.0), "objective")["class"]
    'Hinge'
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, np.ndarray):
        return {"array": to_json(value.tolist(), where), "dtype": value.dtype.str}
    if isinstance(value, list | tuple):
        items = [to_json(item, where) for item in value]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, dict):
        return {"dict": [[to_json(k, where), to_json(v, where)] for k, v in value.items()]}
    if isinstance(value, UnsizedEnergy):
        return {
            "energy": [
                {"class": _name(term.kind, where), "settings": to_json(term.settings, where)}
                for term in value.terms
            ]
        }
    if is_dataclass(value) and not isinstance(value, type):
        settings = {f.name: to_json(getattr(value, f.name), where) for f in fields(value)}
        return {"class": _name(type(value), where), "settings": settings}
    raise InputError(
        f"{where} holds a {type(value).__module__}.{type(value).__qualname__}, which a model file "
        "cannot hold: it could not be rebuilt without running code from the file. Use a name or "
        "one of spen's own classes, or keep the classifier with pickle at your own risk."
    )


def from_json(value: Any, where: str) -> Any:
    """Rebuild what ``to_json`` described."""
    if isinstance(value, list):
        return [from_json(item, where) for item in value]
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(from_json(item, where) for item in value["tuple"])
    if "array" in value:
        items, dtype = from_json(value["array"], where), np.dtype(value["dtype"])
        return object_array(items) if dtype.kind == "O" else np.array(items, dtype=dtype)
    if "dict" in value:
        return {from_json(k, where): from_json(v, where) for k, v in value["dict"]}
    if "energy" in value:
        return UnsizedEnergy(
            tuple(
                UnsizedTerm(_class(term["class"], where), from_json(term["settings"], where))
                for term in value["energy"]
            )
        )
    settings = {key: from_json(item, where) for key, item in value["settings"].items()}
    return _class(value["class"], where)(**settings)


def _name(kind: type, where: str) -> str:
    import spen

    if getattr(spen, kind.__name__, None) is not kind:
        raise InputError(
            f"{where} holds a {kind.__module__}.{kind.__qualname__}, a class that is not spen's "
            "own, so a model file could not rebuild it. Save its weights yourself (state_dict), or "
            "keep the classifier with pickle at your own risk."
        )
    return kind.__name__


def _class(name: Any, where: str) -> Any:
    import spen

    # The public names only: a file cannot name any other code.
    kind = getattr(spen, name, None) if isinstance(name, str) and name in dir(spen) else None
    if not isinstance(kind, type):
        raise CheckpointError(
            f"The model file names a class {name!r} in {where}, which this version of spen does "
            "not have. It was written by another version, or is damaged."
        )
    return kind
