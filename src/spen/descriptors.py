"""One name for two things of a class."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any


class SettingAndMethod:
    """A method whose name is also a constructor argument: ``energy`` is both by nature.

    Setting the attribute stores the argument, as scikit-learn wants it; reading it gives the
    method. ``get_params`` returns the argument.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self._method if instance is None else MethodType(self._method, instance)

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self._name] = value
