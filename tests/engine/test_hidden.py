# SPDX-License-Identifier: Apache-2.0
"""Another program gives instances a method of their own: what is applied is not reached, and the report says why."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.engine.conftest import Lab


@pytest.fixture
def two(make_lab: Callable[[], Lab]) -> tuple[Lab, Lab]:
    """A library with groups on two of its classes, and another program's package."""
    lab, other = make_lab(), make_lab()
    lab.write(
        "lib",
        "class Norm:\n    def run(self, x):\n        return x * 2\n\n\n"
        "class Small(Norm):\n    pass\n\n\n"
        "class Gate:\n    def run(self, x):\n        return x + 2\n",
    )
    lab.write("new", "def run(self, x):\n    return x * 10\n\n\ndef gate(self, x):\n    return x + 10\n")
    other.write("theirs", "\n\ndef run(self, x):\n    return x * 3\n")
    lab.group("norm", lab.replace("lib.Norm.run", "new.run"))
    lab.group("gate", lab.replace("lib.Gate.run", "new.gate"))
    lab.record()
    return lab, other


def bound(instance: Any, function: Any) -> Any:
    instance.run = types.MethodType(function, instance)
    return instance


def told(lab: Lab) -> list[tuple[str, str, str]]:
    """Group, message and count of each warning about instances."""
    checks = lab.engines[-1].report.to_dict()["prepared_execution"]["checks"]
    return [
        (check["group"], check["message"], check["actual"])
        for check in checks
        if check["code"] == "instances.own_attribute"
    ]


def test_instances_that_hide_what_was_applied_are_told_with_file_and_line(two: tuple[Lab, Lab]) -> None:
    lab, other = two
    lab.apply()
    norms = [bound(lab.get(f"lib.{name}")(), other.load("theirs").run) for name in ("Norm", "Small")]
    assert told(lab) == [], "nothing has been called"
    assert [norm.run(1) for norm in norms] == [3, 3]
    assert lab.get("lib.Gate")().run(1) == 11
    file = other.folder / other.package / "theirs.py"
    message = f"instances have got a 'run' of their own since apply(): '{other.path('theirs')}.run' ({file}:3)"
    assert told(lab) == [("lab.norm", message, "2 instances")]
    assert told(lab) == [("lab.norm", message, "2 instances")], "once"
    assert message in lab.engines[-1].report.to_markdown()
    assert lab.status("norm") == "applied"


def test_what_is_called_or_made_before_is_not_told_as_hidden_since(two: tuple[Lab, Lab]) -> None:
    lab, other = two
    before = bound(lab.get("lib.Norm")(), other.load("theirs").run)
    lab.apply()
    assert lab.get("lib.Gate")().run(1) == 11
    (one,) = told(lab)
    assert one[1].startswith("instances made before apply() keep a 'run' of their own")
    del before


def test_an_instance_that_calls_what_is_applied_hides_nothing(two: tuple[Lab, Lab]) -> None:
    lab, _ = two
    lab.apply()
    norm = lab.get("lib.Norm")()
    bound(norm, lab.get("lib.Norm").run)
    assert norm.run(1) == 10
    assert lab.get("lib.Gate").__name__ == "Gate"
    assert told(lab) == []


def test_neither_other_members_nor_instances_that_hide_nothing_are_in_the_way(two: tuple[Lab, Lab]) -> None:
    lab, other = two
    lab.write(
        "more",
        "class Slim:\n    __slots__ = ('size',)\n\n    def run(self, x):\n        return x * 2\n\n\n"
        "class Slot(Slim):\n    __slots__ = ()\n\n\ndef run(x):\n    return x\n\n\nclass Table:\n    pass\n",
    )
    lab.write("faster", "from . import more\n\n\nclass Table(more.Table):\n    pass\n\n\ndef run(x):\n    return -x\n")
    lab.group("slim", lab.replace("more.Slim.run", "new.run"))
    lab.group("function", lab.replace("more.run", "faster.run"))
    lab.group("table", lab.replace("more.Table", "faster.Table"))  # no call of a class is counted
    lab.record()
    lab.apply()
    quiet = [lab.get("lib.Norm")(), lab.get("more.Slim")(), lab.get("more.Slot")(), lab.get("more.Table")()]
    hiding = bound(lab.get("lib.Small")(), other.load("theirs").run)
    assert lab.get("lib.Gate")().run(1) == 11
    assert [(group, count) for group, _, count in told(lab)] == [("lab.norm", "1 instances")]
    statuses = {name: lab.status(name) for name in ("slim", "function", "table")}
    assert set(statuses.values()) == {"applied"}, lab.engines[-1].report.to_markdown()
    del quiet, hiding


def test_a_member_that_nothing_hides_is_looked_for_a_few_times_only(
    two: tuple[Lab, Lab], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, _ = two
    lab.apply()
    assert lab.get("lib.Gate")().run(1) == 11
    passes: list[int] = []

    def none_found(sites: Iterable[object]) -> dict[int, list[Any]]:
        passes.append(len(list(sites)))
        return {}

    monkeypatch.setattr("turbo_hydra.engine.hidden.hiding", none_found)
    for _ in range(10):
        assert told(lab) == []
    assert passes == [1, 1, 1]


def test_what_an_object_that_is_called_is_made_from_is_told(two: tuple[Lab, Lab]) -> None:
    lab, other = two
    other.write("objects", "class Made:\n    def __call__(self, x):\n        return x * 3\n")
    lab.write("functions", "def f(x):\n    return x * 2\n")
    lab.write("faster", "def f(x):\n    return x * 10\n")
    lab.group("function", lab.replace("functions.f", "faster.f"))
    lab.record()
    lab.load("functions").f = other.load("objects").Made()
    lab.apply()
    assert lab.status("function") == "blocked"
    (check,) = [
        check
        for check in lab.engines[-1].report.to_dict()["prepared_execution"]["checks"]
        if check["code"] == "evidence.unreadable"
    ]
    assert check["place"] == f"{other.folder / other.package / 'objects.py'}:1"
