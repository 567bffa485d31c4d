# SPDX-License-Identifier: Apache-2.0
"""Members that are applied and never called because instances have got an attribute of the target's name since."""

from __future__ import annotations

from collections.abc import Sequence

from turbo_hydra.engine.instances import OWN_ATTRIBUTE, hiding, own
from turbo_hydra.engine.lost import described
from turbo_hydra.engine.members import PreparedMember
from turbo_hydra.engine.targets import Site


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
    silent = [(member, site) for member, called in counted if not called and (site := _of_a_class(member)) is not None]
    if not silent or not any(called for _, called in counted):
        return False
    found = hiding(site for _, site in silent)
    for member, site in silent:
        instances = found.get(site.key, [])
        if instances:
            what = described(own(instances[0]).get(site.name), site)
            message = f"instances have got a '{site.name}' of their own since apply(): {what}"
            member.warn(OWN_ATTRIBUTE, message, actual=f"{len(instances)} instances")
    return True


def _of_a_class(member: PreparedMember) -> Site | None:
    """The member's site where instances could hide it and that has not been told yet."""
    told = any(check.code == OWN_ATTRIBUTE for check in member.checks)
    return member.site if member.site is not None and isinstance(member.site.owner, type) and not told else None
