"""Settings and modules as plain data, and back: what files hold of them, which is no code."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, partial, reduce
from importlib.metadata import EntryPoint, entry_points
from operator import add
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from spen.batch.arrays import object_array
from spen.errors import CheckpointError, InputError, SpenError, choose
from spen.files import DAMAGE, check_finite, digest

T = TypeVar("T")


def to_json(value: Any, where: str = "settings", *, brief: bool = False) -> Any:
    """Describe a setting as plain data: for a file that rebuilds it, or in brief.

    Args:
        value: plain values, arrays, lists, dicts, descriptions of energies, dataclasses, objects
            that remember what they were made of, and registered functions. What cannot be rebuilt
            is refused, by name; in brief anything is described.
        where: the value is, for errors.
        brief: for records and comparisons. Classes come with what is not as they have it anyway,
            so that a setting which is added later, with a default that changes nothing, changes no
            description.

    >>> import spen
    >>> to_json(spen.Hinge(margin=2.0), "objective")["class"]
    'Hinge'
    >>> to_json(spen.Descent(stopping=spen.Stopping(max_steps=20)), brief=True)
    {'class': 'Descent', 'stopping': {'class': 'Stopping', 'max_steps': 20}}
    """
    import spen

    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | int | float | bool | None):
        return value
    plain = partial(to_json, where=where, brief=brief)
    if isinstance(value, list | tuple):
        items = [plain(item) for item in value]
        return items if brief or isinstance(value, list) else {"tuple": items}
    if isinstance(value, dict):
        if brief:
            return {str(name): plain(item) for name, item in value.items()}
        return {"dict": [[plain(name), plain(item)] for name, item in value.items()]}
    if isinstance(value, np.ndarray):
        items = plain(value.tolist())
        return items if brief else {"array": items, "dtype": value.dtype.str}
    if isinstance(value, spen.UnsizedEnergy) and not brief:
        return {
            "energy": [
                {"class": _name(term.kind, where), "settings": plain(term.settings)}
                for term in value.terms
            ]
        }
    made = None if brief or isinstance(value, type) else getattr(value, MADE_OF, None)
    if made is not None:
        return _making_to_json(value, made, where)
    if is_dataclass(value) and not isinstance(value, type):
        kept = [f for f in fields(value) if f.init]
        settings = {f.name: plain(getattr(value, f.name)) for f in kept}
        if not brief:
            return {"class": _name(type(value), where), "settings": settings}
        own = {f.name: settings[f.name] for f in kept if settings[f.name] != _default(f)}
        return {"class": type(value).__name__} | own
    if brief:
        return _in_words(value)
    if hasattr(value, "__qualname__") and callable(value):
        return {"maker": _name(value, where)}
    kind = f"{where} holds a {type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, nn.Module):
        raise InputError(
            f"{kind}, and a file does not know how that was made. Let a function with a name make "
            "it, and pass that function; the weights are kept in the file.\n"
            "    @spen.register('my-net')\n    def my_net(n_inputs): ...\n    features=my_net"
        )
    raise InputError(
        f"{kind}, which a file cannot hold: it could not be rebuilt without running code from the "
        "file. Use a name, one of spen's own classes, or a class of your own that "
        "@spen.register('a-name') stands above."
    )


def _making_to_json(value: Any, made_of: Any, where: str) -> dict[str, Any]:
    """Describe an object by the class or the function that made it, and what it was given."""
    maker, args, settings = made_of
    name = maker or _name(type(value), where)
    parameters = [*inspect.signature(_class(name, where)).parameters]
    last = len(parameters) - 1

    def given(argument: str, item: Any) -> Any:
        return to_json(item, f"{where}: the argument {argument!r} of {name}")

    return {
        "class": name,
        "args": [given(parameters[min(k, last)], item) for k, item in enumerate(args)],
        "settings": {argument: given(argument, item) for argument, item in settings.items()},
    }


def _default(field: Field[Any]) -> Any:
    """Return what a field is by default, in brief."""
    if field.default is not MISSING:
        return to_json(field.default, brief=True)
    if field.default_factory is not MISSING:
        return to_json(field.default_factory(), brief=True)
    return MISSING


def _in_words(thing: Any) -> Any:
    """Describe what is no plain data, in brief: classes and functions by name."""
    if isinstance(thing, Tensor):
        return thing.tolist()
    if hasattr(thing, "__qualname__"):
        return thing.__name__ if isinstance(thing, type) else thing.__qualname__
    if isinstance(thing, nn.Module):
        own = {k: v for k, v in sorted(vars(thing).items()) if k[0] != "_" and k != "training"}
        weights = [*thing.parameters(recurse=False), *thing.buffers(recurse=False)]
        own |= {"weights": digest(weights), "learns": [w.requires_grad for w in weights]}
        own["parts"] = dict(thing.named_children())
        return {"class": type(thing).__qualname__} | to_json(own, brief=True)
    if not hasattr(thing, "__dict__"):
        return repr(thing)
    return {"class": type(thing).__name__} | to_json(dict(sorted(vars(thing).items())), brief=True)


def from_json(value: Any, where: str, *, modules: bool = False) -> Any:
    """Rebuild what ``to_json`` described.

    Args:
        value: what it returned.
        where: the value is, for errors.
        modules: whether there may be modules, which would allocate their weights.
    """
    again = partial(from_json, where=where, modules=modules)
    if isinstance(value, list):
        return [again(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(again(item) for item in value["tuple"])
    if "array" in value:
        return _array(again(value["array"]), np.dtype(value["dtype"]))
    if "dict" in value:
        return {again(k): again(v) for k, v in value["dict"]}
    if "maker" in value:
        return _class(value["maker"], where)
    if "energy" in value:
        # One by one, so that too many are refused when there is one too many.
        terms = (
            _class(term["class"], where).unsized(**again(term["settings"]))
            for term in value["energy"]
        )
        return reduce(add, terms)
    name, kind = value["class"], _class(value["class"], where)
    is_module = not isinstance(kind, type) or issubclass(kind, nn.Module)
    known = is_module or name in _REGISTERED or hasattr(kind, "__dataclass_fields__")
    if not known or (is_module and not modules):
        raise TypeError(f"{name} in {where}")
    settings = {key: again(item) for key, item in value["settings"].items()}
    return kind(*again(value.get("args", [])), **settings)


def _array(items: list[Any], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "O":
        return object_array(items)
    if dtype.kind not in "biufUS":
        raise TypeError(f"an array of {dtype}")
    array = np.array(items, dtype=dtype.kind if dtype.kind in "US" else dtype)
    # A few bytes must not ask for entries of megabytes.
    return array.astype(dtype) if dtype.itemsize <= max(array.itemsize, 256) else array


_hints = cache(get_type_hints)


def typed(record: T) -> T:
    """Return a dataclass whose fields are what its annotations say, or raise TypeError.

    >>> from spen.estimators.plan import Choice
    >>> typed(Choice(hidden=(8, "x")))
    Traceback (most recent call last):
    ...
    TypeError: Choice has hidden=(8, 'x')
    """
    for name, hint in _hints(type(record)).items():
        value = getattr(record, name)
        parts = get_args(hint)
        if get_origin(hint) is Literal:
            good = value in parts
        elif get_origin(hint) is tuple:
            good = isinstance(value, tuple) and all(isinstance(item, parts[0]) for item in value)
        else:
            good = isinstance(value, hint | int if hint in (float, float | None) else hint)
        if not good:
            raise TypeError(f"{type(record).__name__} has {name}={value!r}")
    return record


# Classes that a file may name: the public ones of spen, and those that are registered. ----------

MADE_OF = "_made_of"
"""The attribute in which an object remembers what it was made of: the name of the function that
made it, or None for its class; the arguments by position; those by name."""

ENTRY_POINTS = "spen.classes"
"""The group of entry points in which packages provide classes: name → class or function."""

_REGISTERED: dict[str, Any] = {}


def register(name: str) -> Callable[[T], T]:
    """Let files hold your own parts: objects of a class, or what a function makes.

    A file keeps the name, the arguments as JSON and the weights; no code. Whoever loads it must
    have registered the same name, by importing the module that does so. Or a package says it in
    its entry points, in the group "spen.classes".

    Args:
        name: in files, for as long as they are to be read.

    >>> import spen, torch
    >>> from spen.described import to_json
    >>> @spen.register("two-layers")
    ... def two_layers(n_inputs, width=8):
    ...     return torch.nn.Sequential(torch.nn.Linear(n_inputs, width), torch.nn.ReLU())
    >>> to_json(two_layers(3))
    {'class': 'two-layers', 'args': [3], 'settings': {}}
    """
    import spen

    if not isinstance(name, str) or not name:
        raise InputError(
            f"register takes a name, as in @spen.register('my-net'); received {name!r}."
        )

    def enter(maker: T) -> T:
        if not isinstance(maker, type) and not hasattr(maker, "__qualname__"):
            raise InputError(
                f"register({name!r}) stands above a class or a function, not {maker!r}."
            )
        known = _REGISTERED.get(name)
        if name in dir(spen) or (known is not None and _place(known) != _place(maker)):
            other = f"spen's own {name}" if known is None else _place(known)
            raise InputError(f"{name!r} is the name of {other} already. Register another name.")
        kept: Any = maker
        if not isinstance(maker, type):
            kept = _keep_arguments_of_calls(maker, name)
        elif "__dataclass_fields__" not in vars(maker):
            keep_arguments(maker)
        _REGISTERED[name] = kept
        return kept

    return enter


def _place(maker: Any) -> str:
    return f"{maker.__module__}.{maker.__qualname__}"


def keep_arguments(kind: type) -> None:
    """Let objects of a class remember what they were made of."""
    make: Any = kind.__init__
    if hasattr(make, MADE_OF):
        return

    @functools.wraps(make)
    def init(self: Any, *args: Any, **settings: Any) -> None:
        # The first is that of the object's own class; those of its bases come from there.
        vars(self).setdefault(MADE_OF, (None, args, settings))
        make(self, *args, **settings)

    setattr(init, MADE_OF, True)
    kind.__init__ = init


def _keep_arguments_of_calls(maker: Any, name: str) -> Any:
    @functools.wraps(maker)
    def make(*args: Any, **settings: Any) -> Any:
        made = maker(*args, **settings)
        if hasattr(made, "__dict__"):
            vars(made)[MADE_OF] = (name, args, settings)
        return made

    return make


def _name(maker: Any, where: str) -> str:
    """Return the name of a class or a function in files."""
    import spen

    if isinstance(maker, type) and getattr(spen, maker.__name__, None) is maker:
        return maker.__name__
    place = _place(maker)
    for name, known in _REGISTERED.items():
        if known is maker:
            return name
    for name, point in _provided().items():
        if point.value.replace(":", ".") == place:
            return name
    raise InputError(
        f"{where} holds a {place}, which is not spen's own, so a file could not rebuild it. Put "
        "@spen.register('a-name') above it, before it is used, and import it before spen.load."
    )


def _class(name: Any, where: str) -> Any:
    """Return the class or the function that a file names; it cannot name any other code."""
    import spen

    kind = None
    if isinstance(name, str) and name in dir(spen):
        kind = getattr(spen, name) if isinstance(getattr(spen, name), type) else None
    elif isinstance(name, str):
        if name not in _REGISTERED and name in (provided := _provided()):
            found = provided[name].load()
            if name not in _REGISTERED:  # its module may have done so
                register(name)(found)
        kind = _REGISTERED.get(name)
    if kind is None:
        raise CheckpointError(
            f"It names {name!r} in {where}, which is neither a class of this version of spen nor "
            f"registered. Import the module that has @spen.register({name!r}) first, or install "
            f"the package that provides it, by an entry point in the group {ENTRY_POINTS!r}."
        )
    return kind


def _provided() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


# Modules in files -------------------------------------------------------------------------------


def module_to_json(module: nn.Module, where: str) -> dict[str, Any]:
    """Describe a module so that ``module_from_json`` can make it again of its ``weights_of``."""
    floats = [p.dtype for p in module.parameters() if p.is_floating_point()]
    described = {
        "made": to_json(module, where),
        "dtype": str(floats[0] if floats else torch.float32).removeprefix("torch."),
        "frozen": [name for name, p in module.named_parameters() if not p.requires_grad],
    }
    with checked_rebuilding():
        shapes_only(partial(_build, described, where), weights_of(module))
    return described


def module_from_json(
    described: dict[str, Any], weights: dict[str, Tensor], where: str
) -> nn.Module:
    """Make a module that was described, with a file's weights."""
    module = with_weights(partial(_build, described, where), weights)
    for name in described["frozen"]:
        module.get_parameter(name).requires_grad_(False)
    return module


def _build(described: dict[str, Any], where: str) -> nn.Module:
    kinds = {name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "float64")}
    made = from_json(described["made"], where, modules=True)
    return made.to(choose(described["dtype"], kinds, "dtype"))


@contextmanager
def checked_rebuilding() -> Iterator[None]:
    """Say of what fails inside that a file with it could not be loaded, so that none is written."""
    try:
        yield
    except (CheckpointError, *DAMAGE) as problem:
        said = str(problem) if isinstance(problem, SpenError) else f"{problem!r}."
        raise InputError(
            f"A file with this model could not be loaded again: {said} What is registered must "
            "make the same part of the same arguments, and also on torch's device 'meta', where "
            "tensors have shapes and no numbers: compute sizes without tensors."
        ) from problem


class _ShapesOnly(TorchFunctionMode):
    """Builds models on the device "meta", which has shapes and no numbers, so none are drawn."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **{k: v for k, v in (kwargs or {}).items() if k != "generator"})


M = TypeVar("M", bound=nn.Module)


def shapes_only(build: Callable[[], M], weights: dict[str, Tensor]) -> M:
    """Build a model without numbers, and compare what weights it wants with those there are."""
    with torch.device("meta"), _ShapesOnly():
        model = build()
    wanted, found = (
        {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in each.items()}
        for each in (model.state_dict(), weights)
    )
    for name in wanted | found:
        if wanted.get(name) != found.get(name):
            raise CheckpointError(
                f"The settings want {name} to be {wanted.get(name)}, and it is {found.get(name)}."
            )
    return model


def with_weights(build: Callable[[], M], weights: dict[str, Tensor]) -> M:
    """Return a model with a file's weights, if they are those that it wants.

    A header may name any sizes, so nothing is allocated before they are compared.
    """
    model = shapes_only(build, weights)
    model.load_state_dict(weights, assign=True)
    known = all(
        type(part).__module__.split(".")[0] in ("spen", "torch") for part in model.modules()
    )
    if known and not any(buffer.is_meta for buffer in model.buffers()):
        return model
    # Modules of others may have more than their weights, such as tables that they compute.
    with torch.random.fork_rng([]):
        model = build()
    model.load_state_dict(weights)
    return model


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """Return all that a file is to keep of a module's state."""
    state = module.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise InputError(f"The state of the model has {name}, which is no tensor: {value!r}.")
    check_finite(state)
    return state
