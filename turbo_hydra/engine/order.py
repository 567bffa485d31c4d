# SPDX-License-Identifier: Apache-2.0
"""The order in which groups are applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def execution_order(ids: Iterable[str], depends_on: Mapping[str, tuple[str, ...]]) -> tuple[list[str], list[str]]:
    """Order `ids` so that each follows what it depends on, otherwise as given.

    Parameters
    ----------
    ids : iterable of str
        Group ids in order of declaration.
    depends_on : mapping
        Id to the ids it depends on; those that are not among `ids` are ignored.

    Returns
    -------
    tuple[list[str], list[str]]
        The ordered ids, and the ids that lie on a cycle or depend on one, in the order given.
    """
    waiting = list(ids)
    known = set(waiting)
    done: list[str] = []
    placed: set[str] = set()
    while waiting:
        ready = next((id for id in waiting if placed.issuperset(known.intersection(depends_on.get(id, ())))), None)
        if ready is None:
            return done, waiting
        waiting.remove(ready)
        done.append(ready)
        placed.add(ready)
    return done, []
