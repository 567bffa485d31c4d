# SPDX-License-Identifier: Apache-2.0
"""What will stand at a site: made from the original and the replacement, and refused where it would not fit."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from turbo_hydra.engine.around import surrounded
from turbo_hydra.engine.dispatch import dispatcher
from turbo_hydra.engine.hits import Hits
from turbo_hydra.engine.kinds import beside_calling, function_of, in_kind_of
from turbo_hydra.engine.signature import accepted_by, difference, same_parameters, seen_by_caller

if TYPE_CHECKING:
    from turbo_hydra.engine.members import PreparedMember

_MOST_NAMED = 5


def build(member: PreparedMember, original_raw: Any, *, count: bool) -> Any:
    """Make the raw object that will stand at the member's site; failures become its checks.

    Parameters
    ----------
    member : PreparedMember
        What is declared, with the replacement loaded; its `hits` are made anew.
    original_raw : object
        What the site holds below the member.
    count : bool
        Whether calls are counted.

    Returns
    -------
    object or None
        None if a check failed.
    """
    original = function_of(original_raw)
    if member.member.kind == "wrap":
        try:
            made = member.replacement(original, member.options)
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            member.fail(
                "replacement.factory", f"the factory '{member.member.replacement}' raised {cause}", actual=cause
            )
            return None
    else:
        made = function_of(member.replacement)
    if isinstance(original, type):
        return made if _fits_class(member, original, made) else None
    if not callable(made):
        what = "factory returned" if member.member.kind == "wrap" else "replacement is"
        member.fail("replacement.kind", f"'{member.member.replacement}': the {what} {made!r}, which cannot be called")
        return None
    return in_kind_of(original_raw, _chosen(member, original, made, count)) if _fits(member, original, made) else None


def _chosen(member: PreparedMember, original: Any, made: Any, count: bool) -> Any:
    """What is called at the site: the replacement itself, or what chooses and counts."""
    condition = member.condition if member.member.runtime_condition else None
    offered = beside_calling(original)
    if offered and condition is None and isinstance(made, type(original)):
        member.hits = None  # it stands there itself: a function that counts would lack the rest
        return made
    hits = member.hits = Hits() if count else None
    beside = member.shadow(original, made) if member.shadow is not None and hits is not None else None
    if hits is not None and not member.member.observer:
        beside = surrounded(member.label, beside or made) or beside
    about = member.group.about
    chosen = dispatcher(
        original,
        made,
        hits=hits,
        condition=condition,
        label=member.label,
        eager=beside,
        may_compile=about is None or about.compile,
    )
    lost = [name for name in offered if inspect.getattr_static(chosen, name, chosen) is chosen]
    if lost:
        kind = type(original).__qualname__
        message = (
            f"'{member.member.target}' is a {kind}, which offers more than being called; what takes its place lacks "
            f"{_enumerated(lost)} (a {kind} would stand there itself)"
        )
        member.warn("target.attributes", message, expected=", ".join(lost), actual=type(chosen).__qualname__)
    return chosen


def _fits(member: PreparedMember, original: Any, made: Any) -> bool:
    if member.condition is None and same_parameters(original, made):
        return True
    expected, actual = seen_by_caller(original), accepted_by(made)
    problem = difference(expected, actual) if expected and actual else None
    if problem is None and member.condition is not None and expected is not None:
        accepted = accepted_by(member.condition)
        problem = difference(expected, accepted) if accepted else None
        if problem is not None:
            member.fail("condition.signature", f"the condition cannot be called like the target: {problem}")
            return False
    if problem is not None:
        member.fail(
            "signature",
            f"the replacement '{member.member.replacement}' cannot be called like the target: {problem}",
            expected=str(expected),
            actual=str(actual),
        )
    return problem is None


def _fits_class(member: PreparedMember, original: type, made: Any) -> bool:
    if member.member.runtime_condition is not None:
        member.fail("condition.class", f"'{member.member.target}' is a class: a runtime_condition chooses among calls")
        return False
    if not (isinstance(made, type) and issubclass(made, original)):
        member.fail("target.kind", f"a class is replaced by a subclass of it only; found {made!r}")
        return False
    live: list[type] = type.__subclasses__(original)
    # What stands beside the replacement knows of it: another replacement, or a helper.
    children = [item for item in live if item.__module__ != made.__module__ and not issubclass(item, made)]
    if children:
        names = ", ".join(f"{item.__module__}.{item.__qualname__}" for item in children)
        member.fail(
            "target.subclasses", f"class '{member.member.target}' has live subclasses that would keep it: {names}"
        )
    return not children


def _enumerated(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:_MOST_NAMED]) + more
