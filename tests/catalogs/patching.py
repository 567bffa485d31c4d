# SPDX-License-Identifier: Apache-2.0
"""Putting groups of the catalog `torch` in place for one test, without the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from turbo_hydra import Registry
from turbo_hydra.engine.declarations import Group
from turbo_hydra.engine.objects import load_object

CATALOG = "turbo_hydra.catalogs.torch"


def groups() -> dict[str, Group]:
    """All groups of the catalog."""
    registry = Registry()
    registry.load(CATALOG)
    return dict(registry.groups)


@contextmanager
def applied(*ids: str, **options: object) -> Iterator[None]:
    """Apply groups, with the options of the last one, inside the block."""
    known = groups()
    with pytest.MonkeyPatch.context() as patch:
        for id in ids:
            group = known[id]
            chosen = group.options(**options if id == ids[-1] else {}) if group.options else None
            for member in group.members:
                path, _, name = member.target.rpartition(".")
                owner = load_object(path)
                original = vars(owner)[name]
                patch.setattr(owner, name, load_object(member.replacement)(original, chosen))
        yield
