# SPDX-License-Identifier: Apache-2.0
"""Sites that somebody else has taken since they were written: what is applied is read off them, not remembered."""

from __future__ import annotations

import sys
from typing import Any

from turbo_hydra.engine.evidence import LiveReader, unwrapped
from turbo_hydra.engine.kinds import function_of
from turbo_hydra.engine.targets import ABSENT, Site, describe, own_namespace
from turbo_hydra.engine.transaction import Write


def why_lost(write: Write) -> str:
    """Why what was written is not reached any more, one sentence; empty where it is.

    A wrapper that somebody has put around it calls it, and takes nothing away. A class that was exchanged as a whole
    still holds what was written, but its name leads elsewhere.
    """
    site = write.site
    owner = _owner_now(site)
    if owner is not ABSENT and owner is not site.owner:
        return f"'{site.path}' was written, and {described(owner, site)} has been put in its owner's place since"
    value = site.read()
    if value is write.after or _leads_to(value, write.after, site.name):
        return ""
    if value is ABSENT:
        return f"'{site.path}' was written, and has been removed since"
    return f"'{site.path}' was written, and {described(value, site)} has been put in its place since"


def described(value: Any, site: Site) -> str:
    """An object in words, with the file and line of its definition."""
    if isinstance(value, type):
        words = describe(value)
    else:
        function = function_of(value)
        name = getattr(function, "__qualname__", None)
        words = f"'{getattr(function, '__module__', '<unknown>')}.{name}'" if name else repr(value)
    place = LiveReader().read(value, site.name).place
    return f"{words} ({place})" if place else words


def _leads_to(value: Any, ours: Any, name: str) -> bool:
    inner, wrappers = unwrapped(function_of(value), name)
    wanted = function_of(ours)
    return any(item is wanted for item in (*wrappers, inner))


def _owner_now(site: Site) -> Any:
    """What a site's path leads to now, up to its last part; `ABSENT` where that cannot be seen without importing."""
    parts = site.path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        owner: Any = sys.modules.get(".".join(parts[:count]))
        if owner is None:
            continue
        for part in parts[count:-1]:
            holders = type.mro(owner) if isinstance(owner, type) else (owner,)
            owner = next((space[part] for item in holders if part in (space := own_namespace(item))), ABSENT)
            owner = function_of(owner)
        return owner
    return ABSENT
