# SPDX-License-Identifier: Apache-2.0
"""Changes that several groups declare, and groups all of whose changes another one makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turbo_hydra.engine.members import PreparedMember


def covered(members: Sequence[PreparedMember]) -> dict[str, str]:
    """Groups all of whose changes another group makes too, each with the group that covers it.

    Of two groups that declare the same, the later is covered; a group whose changes are a part of another's is covered
    wherever it stands, and so is one beside a group whose class of options derives from its own: a model's group that
    is made from a general one. A group that is named as covering is not covered itself.

    Parameters
    ----------
    members : sequence of PreparedMember
        Members of the groups that would be applied, in their order.
    """
    groups: dict[str, list[PreparedMember]] = {}
    for prepared in members:
        if not prepared.member.observer:
            groups.setdefault(prepared.group.id, []).append(prepared)
    changing: dict[tuple[Any, ...], dict[str, None]] = {}
    for id, changes in groups.items():
        for place in (place for prepared in changes for place in _places(prepared)):
            changing.setdefault(place, {})[id] = None
    found: dict[str, str] = {}
    for id in reversed(groups):
        # Whoever makes all of its changes makes the first of them, and there are few of those.
        for other in next((changing[place] for place in _places(groups[id][0])), {}):
            if other != id and other not in found and _made_by(groups[id], groups[other]):
                found[id] = other
                break
    for id in found:
        while found[id] in found:
            found[id] = found[found[id]]
    return found


def _made_by(part: Sequence[PreparedMember], whole: Sequence[PreparedMember]) -> bool:
    return all(any(_covers(other, item) and _places(item) <= _places(other) for other in whole) for item in part)


def _covers(whole: PreparedMember, part: PreparedMember) -> bool:
    if identical(whole, part):
        return True
    own, general = type(whole.options), type(part.options)
    return (
        _same_declaration(whole, part) and own is not general and part.options is not None and issubclass(own, general)
    )


def _places(prepared: PreparedMember) -> frozenset[tuple[Any, ...]]:
    """What a member changes: paths while its target has yet to come into being, then sites."""
    if prepared.pending:
        return frozenset(("path", path) for path in prepared.member.paths)
    return frozenset(site.key for site in prepared.sites)


def identical(first: PreparedMember, second: PreparedMember) -> bool:
    """Whether two groups declare the same change."""
    return _same_declaration(first, second) and repr(first.options) == repr(second.options)


def _same_declaration(first: PreparedMember, second: PreparedMember) -> bool:
    return (
        first.group.id != second.group.id
        and first.member.kind == second.member.kind
        and first.member.replacement == second.member.replacement
        and first.member.runtime_condition == second.member.runtime_condition
    )
