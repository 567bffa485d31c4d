# SPDX-License-Identifier: Apache-2.0
"""Kinds of target, and how a replacement takes on the kind of the original."""

from __future__ import annotations

import functools
import types
from dataclasses import dataclass
from typing import Any

SLOT_TYPES = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
CACHE_TYPE = type(functools.lru_cache(lambda: None))
# Callables of these types are called and nothing else, or what else they offer is carried over.
_ONLY_CALLED = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    functools.partial,
    CACHE_TYPE,
    type,
    *SLOT_TYPES,
)
_PROTOCOLS = ("__getitem__", "__iter__", "__len__", "__contains__", "__enter__", "__get__")


@dataclass(frozen=True)
class KindOf:
    """Name of a kind; `refusal` says why such an object cannot be replaced."""

    name: str
    refusal: str = ""


def kind_of(owner: Any, raw: object) -> KindOf:
    """The kind of the raw descriptor `raw` that `owner` holds."""
    if isinstance(raw, staticmethod):
        return KindOf("staticmethod")
    if isinstance(raw, classmethod):
        return KindOf("classmethod")
    if isinstance(raw, property):
        return KindOf("property")
    if isinstance(raw, functools.cached_property):
        return KindOf("cached_property")
    if isinstance(raw, type):
        return KindOf("class")
    if isinstance(raw, CACHE_TYPE):
        return KindOf("lru_cache")
    if isinstance(raw, functools.partial):
        return KindOf("partial")
    if isinstance(raw, types.FunctionType):
        return KindOf("method" if isinstance(owner, type) else "function")
    if isinstance(raw, SLOT_TYPES) and isinstance(owner, type):
        return KindOf("slot", "it is a C slot, which has no evidence and which C code calls past any replacement")
    if isinstance(raw, types.ModuleType):
        return KindOf("module", "it is a module; declare replace_import for it")
    if callable(raw):
        return KindOf("callable")
    return KindOf("value", f"it is a {type(raw).__qualname__}, which nothing calls")


def home_of(value: Any) -> str | None:
    """Name of the top package that defines a function or class; None for what no package defines, such as a partial."""
    value = function_of(value)
    if not isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type)):
        return None
    module = value.__module__
    return module.split(".")[0] if isinstance(module, str) else None


def function_of(raw: Any) -> Any:
    """The plain callable behind a raw descriptor: what a wrapper factory is given as `original`."""
    if isinstance(raw, (staticmethod, classmethod)):
        return raw.__func__
    if isinstance(raw, property):
        return raw.fget
    if isinstance(raw, functools.cached_property):
        return raw.func
    return raw


def beside_calling(value: Any) -> list[str]:
    """What a callable object offers besides being called (the launch grid of a kernel, say), by name."""
    if isinstance(value, _ONLY_CALLED):
        return []
    names = {name for cls in type.mro(type(value)) if cls is not object for name in vars(cls)}
    names.update(getattr(value, "__dict__", ()))
    return sorted(name for name in names if not name.startswith("_") or name in _PROTOCOLS)


def in_kind_of(raw: Any, value: Any) -> Any:
    """Give the plain callable `value` the kind of the original `raw`; a value that has a kind keeps it."""
    if isinstance(value, (staticmethod, classmethod, property, functools.cached_property, type)):
        return value
    if isinstance(raw, staticmethod):
        return staticmethod(value)
    if isinstance(raw, classmethod):
        return classmethod(value)
    if isinstance(raw, property):
        return property(value, raw.fset, raw.fdel, raw.__doc__)
    if isinstance(raw, functools.cached_property):
        cached = functools.cached_property(value)
        cached.attrname = raw.attrname
        return cached
    return value
