# SPDX-License-Identifier: Apache-2.0
"""The options of a group: an instance of its dataclass, made from what a config says."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from turbo_hydra.engine.declarations import Group
from turbo_hydra.engine.errors import OptimizationConfigError


def make_options(group: Group, values: Mapping[str, Any]) -> Any:
    """An instance of the group's options dataclass with `values` set; None where the group has no options.

    Raises
    ------
    OptimizationConfigError
        If an option is unknown or has the wrong type.
    """
    if group.options is None:
        if values:
            raise OptimizationConfigError(f"group '{group.id}' has no options; remove {sorted(values)}")
        return None
    unknown = [name for name in values if name not in group.option_names]
    if unknown:
        raise OptimizationConfigError(
            f"group '{group.id}' has no option '{unknown[0]}'; it has {', '.join(group.option_names)}"
        )
    defaults = group.options()
    hints = _hints(group.options)
    for name, value in values.items():
        default = getattr(defaults, name)
        if not (_fits(hints[name], value) if name in hints else _like(default, value)):
            raise OptimizationConfigError(
                f"option '{name}' of group '{group.id}' must be a {_words(hints.get(name, type(default)))} (its "
                f"default is {default!r}), found {value!r}"
            )
    return dataclasses.replace(defaults, **values)


def _hints(options: type[Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(options)
    except Exception:  # an annotation may name what only a type checker imports
        return {}


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value from a config is of a type; what a config cannot hold is not looked into."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if hint is None or hint is type(None):
        return value is None
    if origin in (typing.Union, types.UnionType):
        return any(_fits(item, value) for item in arguments)
    if origin is typing.Literal:
        return any(type(item) is type(value) and item == value for item in arguments)
    kind = origin or hint
    if kind in (tuple, list):
        # A config has lists only.
        inner = arguments[0] if arguments else Any
        return isinstance(value, (tuple, list)) and (len(arguments) > 2 or all(_fits(inner, item) for item in value))
    if kind is dict and arguments:
        return isinstance(value, dict) and all(_fits(arguments[1], item) for item in value.values())
    if kind in (int, float) and isinstance(value, bool):
        return False
    if kind is float:
        return isinstance(value, (int, float))
    return not isinstance(kind, type) or isinstance(value, kind)


def _like(default: Any, value: Any) -> bool:
    """Whether a value is of the type of a default; None says nothing about a type."""
    return default is None or _fits(type(default), value)


def _words(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
