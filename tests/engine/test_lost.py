# SPDX-License-Identifier: Apache-2.0
"""Another program changes the same objects: before us, and after."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra.engine.kinds import function_of
from turbo_hydra.engine.lost import described, why_lost
from turbo_hydra.engine.targets import ABSENT, resolve
from turbo_hydra.engine.transaction import Write

if TYPE_CHECKING:
    from tests.engine.conftest import Lab


@pytest.fixture
def two(make_lab: Callable[[], Lab]) -> tuple[Lab, Lab]:
    """A library with groups on it, and another program's package."""
    lab, other = make_lab(), make_lab()
    lab.write("lib", "class Norm:\n    def run(self, x):\n        return x * 2\n\n\ndef f(x):\n    return x * 2\n")
    lab.write("new", "def run(self, x):\n    return x * 10\n\n\ndef f(x):\n    return x * 10\n")
    other.write(
        "theirs",
        "class Base:\n    def run(self, x):\n        return x * 3\n\n\nclass Norm(Base):\n    pass\n\n\n"
        "def f(x):\n    return x * 3\n",
    )
    lab.group("method", lab.replace("lib.Norm.run", "new.run"))
    lab.group("function", lab.replace("lib.f", "new.f"))
    lab.record()
    return lab, other


def entry(lab: Lab, name: str) -> dict[str, Any]:
    return next(item for item in lab.engines[-1].report.execution if item["group"] == f"lab.{name}")


def test_a_class_that_another_program_has_put_there_blocks_with_its_name_file_and_line(two: tuple[Lab, Lab]) -> None:
    lab, other = two
    lab.load("lib").Norm = other.load("theirs").Norm
    lab.apply()
    assert (lab.status("method"), lab.codes("method")) == ("blocked", ["target.foreign_owner"])
    file = other.folder / other.package / "theirs.py"
    assert lab.message("method") == (
        f"'{lab.path('lib.Norm.run')}' leads to class '{other.path('theirs.Norm')}' ({file}:6), "
        "which another program has put there"
    )
    assert lab.get("lib.Norm")().run(1) == 3


@pytest.mark.parametrize("number", [0, 1, 2])
def test_whichever_of_a_group_s_changes_is_lost_is_told_and_no_name_that_only_follows_them(
    two: tuple[Lab, Lab], number: int
) -> None:
    lab, other = two
    lab.write("user", "from .lib import f\n")
    lab.group("whole", lab.replace("lib.Norm.run", "new.run"), lab.replace("lib.f", "new.f"))
    user, theirs = lab.load("user"), other.load("theirs")
    lab.apply(disable=("method", "function"))
    assert user.f(1) == 10
    user.f = theirs.f
    assert (entry(lab, "whole")["status"], entry(lab, "whole")["error"]) == ("applied", ""), "their name is theirs"
    if number < 2:
        owner, name = ((lab.get("lib.Norm"), "run"), (lab.load("lib"), "f"))[number]
        setattr(owner, name, theirs.f)
        assert entry(lab, "whole")["status"] == "failed"
        path = lab.path(("lib.Norm.run", "lib.f")[number])
        assert entry(lab, "whole")["error"].startswith(f"'{path}' was written, and ")


@pytest.mark.parametrize("late", [False, True])
def test_what_another_program_has_put_there_is_found_by_late_groups_too(
    make_lab: Callable[[], Lab], late: bool
) -> None:
    lab, other = make_lab(), make_lab()
    lab.write("lib", "class Norm:\n    def run(self, x):\n        return x * 2\n")
    lab.write("new", "def run(self, x):\n    return x * 10\n")
    other.write("theirs", "class Base:\n    def run(self, x):\n        return x * 3\n\n\nclass Norm(Base):\n    pass\n")
    lab.group("it", lab.replace("lib.Norm.run", "new.run", late=late))
    lab.record()
    lab.load("lib").Norm = other.load("theirs").Norm
    lab.apply()
    assert (lab.status(), lab.codes()) == ("blocked", ["target.foreign_owner"])


def test_a_function_that_another_program_has_put_there_blocks_with_its_file_and_line(two: tuple[Lab, Lab]) -> None:
    lab, other = two
    lab.load("lib").f = other.load("theirs").f
    lab.apply()
    assert lab.codes("function") == ["evidence.changed"]
    assert f"{other.folder / other.package / 'theirs.py'}:10" in lab.message("function")


def test_a_function_that_another_program_exchanges_afterwards_is_lost(two: tuple[Lab, Lab]) -> None:
    lab, other = two
    lab.apply()
    assert (entry(lab, "function")["status"], entry(lab, "function")["error"]) == ("applied", "")
    lab.load("lib").f = other.load("theirs").f
    assert entry(lab, "function")["status"] == "failed"
    assert entry(lab, "function")["error"] == (
        f"'{lab.path('lib.f')}' was written, and '{other.path('theirs')}.f' "
        f"({other.folder / other.package / 'theirs.py'}:10) has been put in its place since"
    )
    assert lab.engines[-1].report.summary["failed"] == 1
    assert entry(lab, "method")["status"] == "applied"


def test_a_class_that_another_program_exchanges_afterwards_takes_its_methods_along(two: tuple[Lab, Lab]) -> None:
    lab, other = two
    lab.apply()
    lab.load("lib").Norm = other.load("theirs").Norm
    assert entry(lab, "method")["status"] == "failed"
    assert entry(lab, "method")["error"] == (
        f"'{lab.path('lib.Norm.run')}' was written, and class '{other.path('theirs.Norm')}' "
        f"({other.folder / other.package / 'theirs.py'}:6) has been put in its owner's place since"
    )


def test_a_name_that_is_removed_is_lost(two: tuple[Lab, Lab]) -> None:
    lab, _ = two
    lab.apply()
    del lab.load("lib").f
    assert entry(lab, "function")["error"] == f"'{lab.path('lib.f')}' was written, and has been removed since"


def test_a_wrapper_that_somebody_puts_around_ours_loses_nothing(two: tuple[Lab, Lab]) -> None:
    lab, _ = two
    lab.apply()
    module = lab.load("lib")
    ours = module.f

    @functools.wraps(ours)
    def around(x: int) -> int:
        return int(ours(x)) + 1

    module.f = around
    assert module.f(1) == 11
    assert entry(lab, "function")["status"] == "applied"


@pytest.mark.parametrize("kind", [staticmethod, classmethod, property, functools.cached_property])
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_wrapper_around_ours_of_any_kind_loses_nothing(lab: Lab, kind: Any, wrapped: bool) -> None:
    lab.write(
        "lib",
        "import functools\nclass C:\n"
        f"    @{'functools.' * (kind is functools.cached_property)}{kind.__name__}\n"
        "    def m(*self):\n        return 'original'\n",
    )
    lab.write("new", "def m(*self):\n    return 'ours'\n")
    lab.group("it", lab.replace("lib.C.m", "new.m"))
    lab.apply()
    owner = lab.load("lib").C
    assert (lab.status(), entry(lab, "it")["status"]) == ("applied", "applied")
    ours = function_of(vars(owner)["m"])

    def around(*self: Any) -> Any:
        return ours(*self)

    owner.m = kind(around if wrapped else lambda *self: None)
    if kind is functools.cached_property:
        owner.m.__set_name__(owner, "m")
    found = owner().m
    assert (found() if callable(found) else found) == ("ours" if wrapped else None)
    assert entry(lab, "it")["status"] == ("applied" if wrapped else "failed")


def test_groups_that_lie_on_one_another_are_not_lost(make_lab: Callable[[], Lab]) -> None:
    lab = make_lab()
    lab.write("lib", "def f(x):\n    return x\n")
    factory = "def {}(original, options):\n    def f(x):\n        return original(x) {}\n    return f\n\n\n"
    lab.write("new", factory.format("plus", "+ 1") + factory.format("times", "* 2"))
    lab.group("below", lab.wrap("lib.f", "new.plus", stack=True))
    lab.group("above", lab.wrap("lib.f", "new.times", stack=True))
    lab.record()
    lab.apply()
    assert [entry(lab, name)["status"] for name in ("below", "above")] == ["applied", "applied"]


def test_what_was_taken_back_is_not_lost(two: tuple[Lab, Lab]) -> None:
    lab, _ = two
    engine = lab.apply()
    engine.undo()
    assert (entry(lab, "function")["status"], entry(lab, "function")["error"]) == ("rolled_back", "")


# Sites and what has become of them, without an apply.

MODULE = """
    import functools

    def f(x):
        return x

    def other(x):
        return x

    nameless = functools.partial(f, 1)

    class Norm:
        def run(self):
            return 1

        class Inner:
            def run(self):
                return 1

    class Changed:
        def run(self):
            return 2

    class Child(Norm):
        pass

    class Holding:
        inner = staticmethod(Norm)

    TABLE = {"f": f}
    norm = Norm()
    norm.f = f
"""


@pytest.fixture
def lib(lab: Lab) -> Any:
    lab.write("lib", MODULE)
    return lab.load("lib")


def ours(x: int) -> int:
    return x


@pytest.mark.parametrize(
    "dotted",
    ["f", "Norm.run", "Norm.Inner.run", "Child.run", "Holding.inner.run", "TABLE.f", "norm.f", "Child.Inner.run"],
)
@pytest.mark.parametrize("what", ["nothing", "taken", "wrapped", "exchanged for a class", "removed"])
def test_what_was_written_is_lost_where_its_name_leads_elsewhere(lib: Any, dotted: str, what: str) -> None:
    site = resolve(f"{lib.__name__}.{dotted}")
    write = Write(site, site.raw, ours)
    site.write(ours)

    @functools.wraps(ours)
    def around(x: int) -> int:
        return ours(x)

    value: Any = {"taken": lib.other, "wrapped": around, "exchanged for a class": lib.Changed, "removed": ABSENT}
    if what != "nothing":
        site.write(value[what])
    place = f"({lib.__file__}:"
    expected = {
        "taken": f"'{site.path}' was written, and '{lib.__name__}.other' {place}7) has been put in its place since",
        "exchanged for a class": f"'{site.path}' was written, and class '{lib.__name__}.Changed' {place}20) "
        "has been put in its place since",
        "removed": f"'{site.path}' was written, and has been removed since",
    }
    assert why_lost(write) == expected.get(what, "")


@pytest.mark.parametrize(
    ("dotted", "holder", "name"),
    [
        ("Norm.run", "", "Norm"),
        ("Norm.Inner.run", "", "Norm"),
        ("Norm.Inner.run", "Norm", "Inner"),
        ("Child.run", "", "Child"),
        ("Child.Inner.run", "Norm", "Inner"),
        ("Holding.inner.run", "Holding", "inner"),
        ("TABLE.f", "", "TABLE"),
        ("norm.f", "", "norm"),
    ],
)
def test_what_was_written_is_lost_with_its_owner(lib: Any, dotted: str, holder: str, name: str) -> None:
    site = resolve(f"{lib.__name__}.{dotted}")
    site.write(ours)
    write = Write(site, site.raw, ours)
    assert why_lost(write) == ""
    owner = getattr(lib, holder) if holder else lib
    replaced: Any = {"TABLE": {"f": lib.other}, "norm": lib.Changed()}.get(name, lib.Changed)
    setattr(owner, name, replaced)
    if dotted.startswith("Norm.Inner") and not holder:
        # What the path leads to cannot be seen: there is no class of that name any more, and ours is as it was.
        assert why_lost(write) == ""
    else:
        assert why_lost(write).startswith(f"'{site.path}' was written, and ")
        assert why_lost(write).endswith(" has been put in its owner's place since")


def test_an_owner_whose_module_is_gone_is_not_lost(lab: Lab, lib: Any) -> None:
    write = Write(resolve(lab.path("lib.Norm.run")), None, ours)
    write.site.write(ours)
    lab.forget()
    assert why_lost(write) == ""
    write.site.write(lib.other)
    assert why_lost(write).endswith("has been put in its place since")


@pytest.mark.parametrize("module", ["top_module_of_a_test", "__main__"])
def test_an_owner_in_a_module_without_a_package_is_followed_too(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = types.ModuleType(module)
    monkeypatch.setitem(sys.modules, module, holder)
    norm, other = (type("Norm", (), {"run": lambda self: 1, "__module__": module}) for _ in range(2))
    vars(holder)["Norm"] = norm
    site = resolve(f"{module}.Norm.run")
    site.write(ours)
    write = Write(site, site.raw, ours)
    assert why_lost(write) == ""
    vars(holder)["Norm"] = other
    assert why_lost(write).endswith("has been put in its owner's place since")


def test_a_function_that_is_called_as_its_module_is_is_not_taken_for_it(lab: Lab) -> None:
    lab.write("pkg/", "from .f import f\n")
    lab.write("pkg.f", "def f(x):\n    return x\n")
    package = lab.load("pkg")
    site = resolve(lab.path("pkg.f"))
    write = Write(site, site.raw, ours)
    site.write(ours)
    assert (site.owner, why_lost(write)) == (package, "")


def test_objects_in_words(lib: Any) -> None:
    site = resolve(f"{lib.__name__}.f")

    class Nameless:
        def __repr__(self) -> str:
            return "<nameless>"

        def __call__(self) -> None:
            pass

    assert described(lib.f, site) == f"'{lib.__name__}.f' ({lib.__file__}:4)"
    assert described(staticmethod(lib.f), site) == f"'{lib.__name__}.f' ({lib.__file__}:4)"
    assert described(len, site) == "'builtins.len'"
    assert described(Nameless(), site).startswith("<nameless>")
    homeless = types.FunctionType(lib.f.__code__, {}, "homeless")
    homeless.__module__ = None  # type: ignore[assignment]
    assert described(homeless, site).startswith("'None.")
