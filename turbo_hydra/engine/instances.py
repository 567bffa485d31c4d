# SPDX-License-Identifier: Apache-2.0
"""Instances that hold a target's name themselves, so that what their class has is not found."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from typing import Any

from turbo_hydra.engine.targets import Site

# The code of the checks that say so.
OWN_ATTRIBUTE = "instances.own_attribute"


def hiding(sites: Iterable[Site]) -> dict[tuple[int, str], list[object]]:
    """The instances that hide what stands at `sites`, by the site's key; one pass over all objects of the process."""
    # By the identity of a class: a metaclass may define what its classes are equal to, or that they have no hash.
    wanted: dict[int, set[tuple[int, str]]] = {}
    for site in sites:
        if isinstance(site.owner, type):
            wanted.setdefault(id(site.owner), set()).add(site.key)
    found: dict[tuple[int, str], list[object]] = {}
    if not wanted:
        return found
    by_kind: dict[int, list[tuple[int, str]]] = {}
    for instance in gc.get_objects():
        kind = type(instance)
        keys = by_kind.get(id(kind))
        if keys is None:
            keys = by_kind[id(kind)] = [key for cls in type.mro(kind) for key in wanted.get(id(cls), ())]
        for key in keys:
            if key[1] in own(instance):
                found.setdefault(key, []).append(instance)
    return found


def own(instance: object) -> Mapping[str, Any]:
    """What an instance itself holds; looking runs no `__getattribute__` or `__getattr__` of its class."""
    try:
        found: Mapping[str, Any] = object.__getattribute__(instance, "__dict__")
    except AttributeError:  # of a class with slots
        return {}
    return found
