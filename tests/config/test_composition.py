# SPDX-License-Identifier: Apache-2.0
"""What a replacement may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from turbo_hydra import Registry, wrap
from turbo_hydra.compatibility import import_alias
from turbo_hydra.config.composition import reaches
from turbo_hydra.config.static import Repository, StaticReader

CLASSES = """\
class Base:
    def __init__(self):
        pass

    def own(self):
        pass


class Derived(Base):
    def own(self):
        pass
"""
CODE = """\
from shapes.classes import Base


def faster(original, options):
    return Base
"""


@pytest.fixture
def reader(tmp_path: Path) -> StaticReader:
    """A package of two classes, and a replacement that uses one of them."""
    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes" / "__init__.py").write_text("from .classes import Base, Derived\n", encoding="utf-8")
    (tmp_path / "shapes" / "classes.py").write_text(CLASSES, encoding="utf-8")
    (tmp_path / "shapes_code.py").write_text(CODE, encoding="utf-8")
    return StaticReader([Repository(tmp_path, (tmp_path,))])


def test_the_object_of_an_alias_is_everyones(reader: StaticReader) -> None:
    registry = Registry()
    registry.group("it.alias", import_alias("shapes", "shapes.classes.Base", "Old"))
    registry.group("it.user", wrap("shapes.Derived.own", "shapes_code.faster"))
    assert reaches(list(registry.groups.values()), reader) == []
    registry.group("it.other", wrap("shapes.Base.own", "shapes.classes.Base"))
    (said,) = reaches(list(registry.groups.values()), reader)
    assert "the replacement of group 'it.user' uses 'shapes.classes.Base', that of group 'it.other'" in said
