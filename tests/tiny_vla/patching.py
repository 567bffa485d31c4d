# SPDX-License-Identifier: Apache-2.0
"""Putting a group's replacements in place for one test, the example's modules only, without the engine."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from turbo_hydra import Registry
from turbo_hydra.engine.declarations import Group, Member
from turbo_hydra.engine.objects import load_object

CATALOGS = (
    "turbo_hydra.catalogs.torch",
    "turbo_hydra.catalogs.models.tiny_vla",
    "turbo_hydra.catalogs.calibration",
)


def groups() -> dict[str, Group]:
    """All groups of the example's optimization config."""
    registry = Registry()
    for catalog in CATALOGS:
        registry.load(catalog)
    return dict(registry.groups)


def replaced(member: Member, options: Any) -> tuple[Any, str, Any, Any]:
    """Owner and name of a member's target, the original, and what takes its place."""
    path, _, name = member.target.rpartition(".")
    owner = load_object(path)
    original = vars(owner)[name]
    return owner, name, original, load_object(member.replacement)(original, options)


@contextmanager
def applied(*ids: str, **options: Any) -> Iterator[None]:
    """Apply groups, with the options of the last one, inside the block."""
    known = groups()
    with pytest.MonkeyPatch.context() as patch:
        for id in ids:
            group = known[id]
            chosen = group.options(**options if id == ids[-1] else {}) if group.options else None
            for member in group.members:
                importlib.import_module("tiny_vla.model")
                owner, name, original, new = replaced(member, chosen)
                patch.setattr(owner, name, new)
                for module in [value for key, value in sys.modules.items() if key.startswith("tiny_vla.")]:
                    for other, value in list(vars(module).items()):
                        if value is original:
                            patch.setattr(module, other, new)
        yield
