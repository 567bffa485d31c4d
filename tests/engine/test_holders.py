# SPDX-License-Identifier: Apache-2.0
"""Who else holds an original: found by identity, under any name, in one pass that wakes nothing."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra.engine import holders

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.engine.conftest import Lab

NEW = "def f(x, y=0):\n    return 'ours'\n"


@pytest.fixture
def held(lab: Lab) -> Lab:
    """A laboratory with `lib.f`, and a group that replaces it."""
    lab.write("lib", "def f(x, y=0):\n    return 'original'\n")
    lab.write("new", NEW)
    lab.group("it", lab.replace("lib.f", "new.f"))
    lab.record()
    return lab


def places(lab: Lab) -> tuple[list[str], list[str]]:
    """What was rebound, and what is listed as stale; without the package's name."""
    entry = lab.member()
    prefix = lab.package + "."
    return tuple([item.replace(prefix, "") for item in entry[key]] for key in ("rebound", "stale_holders"))  # type: ignore[return-value]


def test_a_name_bound_before_under_another_name_is_rebound(held: Lab) -> None:
    held.write("user", "from .lib import f as g\n")
    user = held.load("user")
    held.apply()
    assert user.g(1) == "ours"
    assert places(held) == (["user.g"], [])
    held.engines[-1].undo()
    assert user.g(1) == "original"


def test_rebinding_can_be_declined(lab: Lab) -> None:
    lab.write("lib", "def f(x, y=0):\n    return 'original'\n")
    lab.write("new", NEW)
    lab.write("user", "from .lib import f as g\n")
    lab.group("it", lab.replace("lib.f", "new.f", rebind=False))
    user = lab.load("user")
    lab.apply()
    assert user.g(1) == "original"
    assert places(lab) == ([], ["user.g"])


def test_a_re_export_is_rebound_wherever_the_target_is_named(held: Lab) -> None:
    held.write("pkg/", "from .impl import h\nfrom . import impl\n")
    held.write("pkg.impl", "def h(x):\n    return 'original'\n")
    held.write("new2", "def h(x):\n    return 'ours'\n")
    held.group("other", held.replace("pkg.impl.h", "new2.h"))
    package = held.load("pkg")
    held.apply()
    assert package.h(1) == package.impl.h(1) == "ours"


def test_holders_that_cannot_be_rebound_are_named_with_their_place(held: Lab) -> None:
    held.write(
        "user",
        """
        import functools
        from collections import OrderedDict, defaultdict
        from . import lib

        TABLE = {"f": lib.f}
        ORDERED = OrderedDict(key=lib.f)
        DEFAULT = defaultdict(list, {3: lib.f})
        LIST = [None, lib.f]
        TUPLE = (lib.f,)
        SET = {lib.f}
        partial = functools.partial(lib.f, 1)
        partials = [functools.partial(functools.partial(lib.f, 1), 2)]

        def closing(function):
            def inside(x):
                return function(x)
            return inside

        closed = closing(lib.f)

        def positional(x, cb=lib.f):
            return cb(x)

        def keyword(*, cb=lib.f):
            return cb(1)

        class C:
            attribute = lib.f
            static = staticmethod(lib.f)
            table = {"f": lib.f}

            def m(self, cb=lib.f):
                return cb(1)

            class Inner:
                attribute = lib.f
        """,
    )
    held.load("user")
    held.apply()
    rebound, stale = places(held)
    assert rebound == []
    assert sorted(stale) == sorted(
        [
            "user.TABLE['f']",
            "user.ORDERED['key']",
            "user.DEFAULT[3]",
            "user.LIST[1]",
            "user.TUPLE[0]",
            "user.SET[0]",
            "user.partial",
            "user.partials[0]",
            "user.closed(closure of function)",
            "user.positional(default 0)",
            "user.keyword(cb=)",
            "user.C.attribute",
            "user.C.static",
            "user.C.table['f']",
            "user.C.m(default 0)",
            "user.C.Inner.attribute",
        ]
    )


def test_a_method_bound_at_the_top_of_a_module_is_named(lab: Lab) -> None:
    lab.write(
        "lib", "class Client:\n    def chat(self):\n        return 'original'\nclient = Client()\nchat = client.chat\n"
    )
    lab.write("new", "def chat(self):\n    return 'ours'\n")
    lab.group("it", lab.replace("lib.Client.chat", "new.chat"))
    lib = lab.load("lib")
    lab.apply()
    assert lib.client.chat() == "ours"
    assert places(lab)[1] == ["lib.chat"]


def test_the_target_itself_its_aliases_and_the_replacement_s_module_are_no_holders(lab: Lab) -> None:
    lab.write("lib", "def f(x):\n    return 'original'\ng = f\n")
    lab.write("new", "from .lib import f as original\ndef f(x):\n    return original(x)\n")
    lab.group("it", lab.replace("lib.f", "new.f", aliases=("lib.g",)))
    lab.apply()
    lib = lab.load("lib")
    assert lib.f(1) == lib.g(1) == "original"
    assert lab.hits() == (2, 0)
    assert places(lab) == ([], [])


def test_a_declared_alias_keeps_its_own_kind_of_place(lab: Lab) -> None:
    lab.write("lib", "def f(x):\n    return 'original'\nTABLE = {'f': f}\nclass C:\n    s = staticmethod(f)\n")
    lab.write("new", "def f(x):\n    return 'ours'\n")
    lab.group("it", lab.replace("lib.f", "new.f", aliases=("lib.TABLE.f", "lib.C.s")))
    lib = lab.load("lib")
    before = (dict(vars(lib)), dict(vars(lib.C)), dict(lib.TABLE))
    lab.apply()
    assert lib.TABLE["f"](1) == lib.C.s(1) == lib.C().s(1) == "ours"
    lab.engines[-1].undo()
    assert (dict(vars(lib)), dict(vars(lib.C)), dict(lib.TABLE)) == before


def test_an_alias_that_holds_something_else_blocks(lab: Lab) -> None:
    lab.write("lib", "def f(x):\n    return 1\ndef g(x):\n    return 2\n")
    lab.write("new", "def f(x):\n    return 3\n")
    lab.group("it", lab.replace("lib.f", "new.f", aliases=("lib.g",)))
    lab.apply(force=("it",))
    assert (lab.status(), lab.codes()) == ("blocked", ["alias.identical"])
    assert "does not hold the object" in lab.message()


def test_an_alias_that_does_not_exist_blocks(lab: Lab) -> None:
    lab.write("lib", "def f(x):\n    return 1\n")
    lab.write("new", "def f(x):\n    return 3\n")
    lab.group("it", lab.replace("lib.f", "new.f", aliases=("lib.nothing",)))
    lab.apply(force=("it",))
    assert (lab.status(), lab.codes()) == ("blocked", ["target.missing"])
    assert lab.load("lib").f(1) == 1


def test_a_target_imported_before_is_a_warning_with_its_timing(held: Lab) -> None:
    held.load("lib")
    held.apply()
    check = held.checks()["import.timing"]
    assert check.status == "warning"
    assert held.status() == "applied"
    fresh = held.checks()
    assert "import.timing" in fresh


def test_a_target_not_imported_before_has_no_such_warning(held: Lab) -> None:
    held.apply()
    assert "import.timing" not in held.checks()


LAZY = """
    import sys, types
    COUNT = []
    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            COUNT.append(name)
            raise RuntimeError("woken: " + name)
        def __dir__(self):
            COUNT.append("dir")
            return ["f"]
    sys.modules[__name__].__class__ = Lazy

    class Proxy:
        @property
        def __class__(self):
            COUNT.append("class")
            raise RuntimeError("woken")
        def __getattr__(self, name):
            COUNT.append(name)
            raise RuntimeError("woken: " + name)
        def __eq__(self, other):
            COUNT.append("eq")
            raise RuntimeError("woken")
        def __hash__(self):
            return 1
    proxy = Proxy()
    table = {"p": proxy, "l": [proxy]}
"""


def test_lazy_modules_and_proxies_are_never_woken(held: Lab) -> None:
    held.write("lazy", LAZY)
    held.write("pep562", "COUNT = []\ndef __getattr__(name):\n    COUNT.append(name)\n    raise RuntimeError(name)\n")
    lazy, pep562 = held.load("lazy"), held.load("pep562")
    counts = vars(lazy)["COUNT"], pep562.COUNT
    for count in counts:
        count.clear()  # the import system itself looks at modules
    held.apply()
    held.engines[-1].undo()
    assert counts == ([], [])


class _Everything(types.ModuleType):
    """Claims to have every name, and to be anything."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"woken: {name}")


def test_whatever_stands_in_sys_modules_is_looked_at_without_its_doing(
    held: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = held.load("lib").f
    strange = _Everything("strange")
    types.ModuleType.__getattribute__(strange, "__dict__")["f"] = original
    monkeypatch.setitem(sys.modules, "strange_module", strange)
    monkeypatch.setitem(sys.modules, "none_module", None)
    monkeypatch.setitem(sys.modules, "object_module", object())
    found = [item.place for item in holders.find({id(original): original})]
    assert "strange_module.f" in found
    assert f"{held.package}.lib.f" in found


def test_a_module_under_two_names_is_looked_at_once(held: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    module = held.load("lib")
    monkeypatch.setitem(sys.modules, "second_name_of_lib", module)
    found = [item.place for item in holders.find({id(module.f): module.f})]
    assert len(found) == 1


def test_a_class_that_contains_itself_ends(held: Lab) -> None:
    held.write("user", "from .lib import f\nclass C:\n    g = f\nC.again = C\nC.C = C\n")
    held.load("user")
    held.apply()
    assert places(held)[1] == ["user.C.g"]


def test_equal_but_different_objects_are_no_holders(held: Lab) -> None:
    held.write(
        "user",
        "class Equal:\n    def __eq__(self, other): return True\n    __hash__ = None\nx = [Equal()]\ny = Equal()\n",
    )
    held.load("user")
    held.apply()
    assert places(held) == ([], [])


def test_nothing_to_find_looks_at_nothing() -> None:
    assert holders.find({}) == []


def test_a_holder_whose_module_refuses_the_write_is_stale_with_the_reason(held: Lab) -> None:
    held.write(
        "user",
        """
        import sys, types
        from .lib import f
        class Sealed(types.ModuleType):
            def __setattr__(self, name, value):
                raise AttributeError("sealed")
        sys.modules[__name__].__class__ = Sealed
        """,
    )
    held.load("user")
    held.apply()
    assert held.status() == "applied"
    assert places(held) == ([], ["user.f (AttributeError: sealed)"])


def test_a_holder_of_a_stacked_target_gets_all_the_wraps(lab: Lab) -> None:
    lab.write("lib", "def f(x):\n    return ['original']\ng = f\n")
    lab.write(
        "new",
        """
        def one(original, options):
            def wrapped(x):
                return ['one', *original(x)]
            return wrapped

        def two(original, options):
            def wrapped(x):
                return ['two', *original(x)]
            return wrapped
        """,
    )
    lab.group("a", lab.wrap("lib.f", "new.one", stack=True, aliases=("lib.g",)))
    lab.group("b", lab.wrap("lib.f", "new.two", stack=True, aliases=("lib.g",)))
    lab.write("user", "from .lib import f as h\n")
    user, lib = lab.load("user"), lab.load("lib")
    original = lib.f
    lab.apply()
    assert lib.f(1) == lib.g(1) == user.h(1) == ["two", "one", "original"]
    assert (lab.status("a"), lab.status("b")) == ("applied", "applied")
    lab.engines[-1].undo()
    assert lib.f is lib.g is user.h is original


def test_replacing_one_name_for_another_package_s_function_leaves_that_package_alone(
    make_lab: Callable[[], Lab],
) -> None:
    lab, foreign = make_lab(), make_lab()
    foreign.write("functional", "def softmax(x):\n    return 'original'\n")
    foreign.write("user", "from .functional import softmax\n")
    lab.write("model", f"from {foreign.package}.functional import softmax\n")
    lab.write("other", f"from {foreign.package}.functional import softmax as s\nTABLE = {{'s': s}}\n")
    lab.write("new", "def softmax(x):\n    return 'ours'\n")
    lab.group("it", lab.replace("model.softmax", "new.softmax"))
    other, user = lab.load("other"), foreign.load("user")
    lab.apply()
    assert lab.load("model").softmax(1) == "ours"
    assert foreign.load("functional").softmax(1) == user.softmax(1) == other.s(1) == "original"
    assert places(lab) == ([], ["other.s", "other.TABLE['s']"])


def test_replacing_a_name_for_a_builtin_leaves_the_builtin_alone(lab: Lab) -> None:
    lab.write("lib", "f = len\n")
    lab.write("new", "def f(obj, /):\n    return -1\n")
    lab.group("it", lab.replace("lib.f", "new.f"))
    lab.apply(force=("it",))
    assert lab.load("lib").f([]) == -1
    assert len([]) == 0
