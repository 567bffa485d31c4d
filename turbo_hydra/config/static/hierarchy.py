# SPDX-License-Identifier: Apache-2.0
"""The order in which Python looks an attribute up in a class and its bases."""

from __future__ import annotations

from turbo_hydra.config.static.things import Defined, Place, Unseen


def merged(rows: list[list[Place]]) -> list[Place]:
    """Python's C3 merge; a hierarchy that Python would refuse ends with what cannot be seen.

    Parameters
    ----------
    rows : list of list
        The resolution order of each base, then the bases themselves.
    """
    found: list[Place] = []
    rows = [row for row in rows if row]
    while rows:
        for row in rows:
            head = row[0]
            if not any(_same(head, item) for other in rows for item in other[1:]):
                break
        else:
            return [*found, Unseen("its bases have no consistent order")]
        found.append(head)
        rows = [rest for row in rows if (rest := row[1:] if _same(row[0], head) else row)]
    return found


def _same(one: Place, other: Place) -> bool:
    if isinstance(one, Defined) and isinstance(other, Defined):
        return one.node is other.node
    return one is other
