# SPDX-License-Identifier: Apache-2.0
"""Members that are applied and never called because instances have got an attribute of the target's name since."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

from turbo_hydra.engine.lost import described
from turbo_hydra.engine.members import PreparedMember

CODE = "instances.own_attribute"


def look(members: Sequence[PreparedMember]) -> bool:
    """Warn of members that nothing has called while others were, and of whose class instances hide the target.

    Parameters
    ----------
    members : sequence of PreparedMember
        Members of applied groups.

    Returns
    -------
    bool
        Whether all objects of the process were gone through, which takes time.
    """
    counted = [(member, any(member.hits.to_dict().values())) for member in members if member.hits is not None]
    silent = [member for member, called in counted if not called and _of_a_class(member)]
    if not silent or not any(called for _, called in counted):
        return False
    hiding = _hiding(silent)
    for member in silent:
        values = hiding.get(id(member), [])
        if values and member.site is not None:
            name = member.site.name
            message = f"instances have got a '{name}' of their own since apply(): {described(values[0], member.site)}"
            member.warn(CODE, message, actual=f"{len(values)} instances")
    return True


def _of_a_class(member: PreparedMember) -> bool:
    told = any(check.code == CODE for check in member.checks)
    return member.site is not None and isinstance(member.site.owner, type) and not told


def _hiding(members: Sequence[PreparedMember]) -> dict[int, list[Any]]:
    """What instances hold under a target's name, by the identity of the member; one pass over all objects."""
    found: dict[int, list[Any]] = {}
    # By the identity of a class: a metaclass may define what its classes are equal to.
    wanted: dict[int, list[tuple[int, str]]] = {}
    by_kind: dict[int, list[tuple[int, str]]] = {}
    for member in members:
        if member.site is not None:
            wanted.setdefault(id(member.site.owner), []).append((id(member), member.site.name))
    for instance in gc.get_objects():
        kind = type(instance)
        keys = by_kind.get(id(kind))
        if keys is None:
            keys = by_kind[id(kind)] = [key for cls in type.mro(kind) for key in wanted.get(id(cls), ())]
        if keys:
            try:
                own = object.__getattribute__(instance, "__dict__")  # runs nothing of the instance's class
            except AttributeError:  # of a class with slots
                continue
            for key, name in keys:
                if name in own:
                    found.setdefault(key, []).append(own[name])
    return found
