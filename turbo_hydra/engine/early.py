# SPDX-License-Identifier: Apache-2.0
"""What came before apply() and keeps the original: instances with an attribute of their own, compiled frames.

Looked for only where a target's module was imported before the attempt; otherwise the script has made none.
"""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

from turbo_hydra.engine.evidence import unwrapped
from turbo_hydra.engine.members import PreparedMember
from turbo_hydra.engine.targets import Site

_MAX_NAMED = 5


def look_back(members: Sequence[PreparedMember], loaded: frozenset[str]) -> None:
    """Warn of what was made from the originals of `members` before this attempt and keeps them.

    Parameters
    ----------
    members : sequence of PreparedMember
        Members of the groups that would be applied; observers are passed by.
    loaded : frozenset[str]
        Modules that were loaded before the attempt.
    """
    found = [
        (member, member.site)
        for member in members
        if member.site is not None and not member.member.observer and member.home in loaded
    ]
    own = own_attributes([site for _, site in found])
    for member, site in found:
        names, frames = own.get(site.key, []), compiled_frames(site)
        if names:
            more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
            named = ", ".join(names[:_MAX_NAMED]) + more
            message = f"instances made before apply() keep a '{site.name}' of their own: {named}"
            member.warn("instances.own_attribute", message, actual=f"{len(names)} instances")
        if frames:
            message = f"'{member.member.target}' was compiled before apply(); compiled code keeps the original"
            member.warn("compiled.before", message, actual=f"{frames} compilations")


def own_attributes(sites: Sequence[Site]) -> dict[tuple[int, str], list[str]]:
    """Instances that hold the target's name themselves, by the site's key; one pass over all objects."""
    # By the identity of a class: a metaclass may define what its classes are equal to, or that they have no hash.
    wanted: dict[int, set[tuple[int, str]]] = {}
    for site in sites:
        if isinstance(site.owner, type):
            wanted.setdefault(id(site.owner), set()).add(site.key)
    found: dict[tuple[int, str], list[str]] = {}
    if not wanted:
        return found
    interesting: dict[int, list[tuple[int, str]]] = {}
    for value in gc.get_objects():
        kind = type(value)
        keys = interesting.get(id(kind))
        if keys is None:
            keys = [key for cls in type.mro(kind) for key in wanted.get(id(cls), ())]
            interesting[id(kind)] = keys
        for key in keys:
            if key[1] in _own(value):
                found.setdefault(key, []).append(f"{kind.__module__}.{kind.__qualname__} at {id(value):#x}")
    return found


def _own(value: object) -> Mapping[str, Any]:
    """What an instance itself holds; looking runs no `__getattribute__` or `__getattr__` of its class."""
    try:
        own: Mapping[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:  # of a class with slots
        return {}
    return own


def compiled_frames(site: Site) -> int:
    """How many compilations of the original Dynamo holds; 0 where no compiler is loaded."""
    frames: Any = sys.modules.get("torch._C._dynamo.eval_frame")
    entries = getattr(frames, "_debug_get_cache_entry_list", None)
    if entries is None:
        return 0
    inner, _ = unwrapped(site.raw, site.name)
    return len(entries(inner.__code__)) if isinstance(inner, types.FunctionType) else 0
