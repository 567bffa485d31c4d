# SPDX-License-Identifier: Apache-2.0
"""What came before apply() and keeps the original: instances with an attribute of their own, compiled frames.

Looked for only where a target's module was imported before the attempt; otherwise the script has made none.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any

from turbo_hydra.engine.evidence import unwrapped
from turbo_hydra.engine.instances import OWN_ATTRIBUTE, hiding
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
        if member.site is not None and not member.member.observer and member.site.home in loaded
    ]
    own = hiding(site for _, site in found)
    for member, site in found:
        instances, frames = own.get(site.key, []), compiled_frames(site)
        if instances:
            more = f" and {len(instances) - _MAX_NAMED} more" if len(instances) > _MAX_NAMED else ""
            named = ", ".join(map(_named, instances[:_MAX_NAMED])) + more
            message = f"instances made before apply() keep a '{site.name}' of their own: {named}"
            member.warn(OWN_ATTRIBUTE, message, actual=f"{len(instances)} instances")
        if frames:
            message = f"'{member.member.target}' was compiled before apply(); compiled code keeps the original"
            member.warn("compiled.before", message, actual=f"{frames} compilations")


def _named(instance: object) -> str:
    kind = type(instance)
    return f"{kind.__module__}.{kind.__qualname__} at {id(instance):#x}"


def compiled_frames(site: Site) -> int:
    """How many compilations of the original Dynamo holds; 0 where no compiler is loaded."""
    frames: Any = sys.modules.get("torch._C._dynamo.eval_frame")
    entries = getattr(frames, "_debug_get_cache_entry_list", None)
    if entries is None:
        return 0
    inner, _ = unwrapped(site.raw, site.name)
    return len(entries(inner.__code__)) if isinstance(inner, types.FunctionType) else 0
