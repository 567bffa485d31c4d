# SPDX-License-Identifier: Apache-2.0
"""Who else holds an original: found by identity, under any name, in one pass that wakes nothing."""

from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra.engine import early, holders, instances
from turbo_hydra.engine.targets import Site

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


def test_each_holder_says_what_holds_the_original_and_how(lab: Lab) -> None:
    lab.write(
        "user",
        """
        import functools

        def f(x):
            return x

        class Client:
            def __init__(self):
                self.f = f
            def own(self):
                return 1

        class Meta(type):
            pass

        class Made(metaclass=Meta):
            attribute = f
            static, bound = staticmethod(f), classmethod(f)

            class Inner:
                attribute = f

        Alias = Made.Inner
        Foreign = type("Foreign", (), {"attribute": f, "__module__": "elsewhere"})
        TABLE = {"key": f, 3: functools.partial(f), "none": None, "partial": functools.partial(len)}
        LIST = [None, staticmethod(f), functools.partial(f, 1)]
        NESTED = {"deep": [f]}
        method = Client().own
        partial = functools.partial(functools.partial(f, 1), 2)
        unrelated = functools.partial(len)

        def defaults(a, b=None, c=f, *, d=1, e=f):
            return c(a)

        def outer(inner, other):
            empty = 0

            def closed(x):
                return inner(x), other, empty

            del empty
            return closed

        closed, around = outer(f, 1), outer(1, f)

        class Pointing:
            pass

        class Pointed:
            attribute = f

        Pointing.to = Pointed
        """,
    )
    module = lab.load("user")
    function, own = module.f, module.Client.own
    wanted = {id(item): item for item in (function, own)}
    found = [item for item in holders.find(wanted) if item.module == module.__name__]
    expected = [
        ("module", module, "f", "f"),
        ("class", module.Client, "own", "Client.own"),
        ("class", module.Made, "attribute", "Made.attribute"),
        ("class", module.Made, "static", "Made.static"),
        ("class", module.Made, "bound", "Made.bound"),
        ("class", module.Made.Inner, "attribute", "Made.Inner.attribute"),
        ("mapping", module.TABLE, "key", "TABLE['key']"),
        ("mapping", module.TABLE, "3", "TABLE[3]"),
        ("sequence", module.LIST, "1", "LIST[1]"),
        ("sequence", module.LIST, "2", "LIST[2]"),
        ("method", module, "method", "method"),
        ("partial", module, "partial", "partial"),
        ("default", module.defaults, "1", "defaults(default 1)"),
        ("default", module.defaults, "e", "defaults(e=)"),
        ("closure", module.closed, "inner", "closed(closure of inner)"),
        ("closure", module.around, "other", "around(closure of other)"),
        ("class", module.Pointed, "attribute", "Pointed.attribute"),
    ]
    assert [(item.kind, id(item.owner), item.name, item.place) for item in found] == [
        (kind, id(owner), name, f"{module.__name__}.{place}") for kind, owner, name, place in expected
    ]
    originals = {"Client.own": own, "method": own}
    assert all(
        item.original is originals.get(place, function) for item, (*_, place) in zip(found, expected, strict=True)
    )


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
    assert [lab.member(name)["rebound"] for name in ("a", "b")] == [[lab.path("user.h")], []]
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


# Instances that were made before and have the name themselves.


def own_attributes(*owners: type, name: str = "m") -> list[list[str]]:
    """The classes of the instances that hold `name` themselves, by owner."""
    sites = [Site(f"lib.{owner.__name__}.{name}", owner, name, None, True, "method") for owner in owners]
    found = instances.hiding(sites)
    assert set(found) <= {site.key for site in sites}
    return [[type(item).__qualname__ for item in found.get(site.key, [])] for site in sites]


class Base:
    pass


class Child(Base):
    pass


class Unrelated:
    pass


class Slotted(Base):
    __slots__ = ()


class Closed:
    __slots__ = ("m",)


class Guarded(Base):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"woken: {name}")


class Unhashable(type):
    def __eq__(cls, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Odd(metaclass=Unhashable):
    pass


def test_instances_that_have_the_name_themselves_are_found_by_class_and_by_name() -> None:
    plain, base, child, unrelated, other = Base(), Base(), Child(), Unrelated(), Base()
    base.m = child.m = unrelated.m = other.n = len  # type: ignore[attr-defined]
    assert [sorted(item) for item in own_attributes(Base, Child, Unrelated)] == [
        ["Base", "Child"],
        ["Child"],
        ["Unrelated"],
    ]
    assert own_attributes(Base, name="n") == [["Base"]]
    assert own_attributes(Base, name="absent") == [[]]
    assert vars(plain) == {}


def test_an_instance_is_told_once_however_many_members_name_its_site() -> None:
    instance = Unrelated()
    instance.m = len  # type: ignore[attr-defined]
    assert own_attributes(Unrelated, Unrelated, Unrelated) == [["Unrelated"]] * 3


def test_instances_are_looked_at_without_their_doing_and_whatever_their_class_is() -> None:
    guarded, slotted, closed, odd = Guarded(), Slotted(), Closed(), Odd()
    object.__setattr__(guarded, "m", len)
    slotted.m = closed.m = odd.m = len  # type: ignore[attr-defined]
    assert sorted(own_attributes(Base)[0]) == ["Guarded", "Slotted"]
    assert own_attributes(Closed, Odd) == [[], ["Odd"]], "what a slot holds cannot be told from the class's own"


def test_a_function_of_a_module_is_held_by_no_instance() -> None:
    module = types.ModuleType("made")
    assert instances.hiding([Site("made.f", module, "f", None, True, "function")]) == {}
    assert instances.hiding([]) == {}


@pytest.fixture
def networks(lab: Lab) -> Lab:
    lab.write(
        "lib",
        "class Net:\n    def forward(self):\n        return 0\n    def other(self):\n        return 0\n\n"
        "def made(count):\n    nets = [Net() for _ in range(count)]\n    for net in nets:\n"
        "        net.forward = net.forward\n    return nets\n",
    )
    lab.write(
        "new",
        "def forward(self):\n    return 1\n\ndef watch(original, options):\n"
        "    def watched(self):\n        return original(self)\n    return watched\n",
    )
    return lab


@pytest.mark.parametrize("count", [0, 1, 5, 6, 23])
def test_of_many_instances_five_are_named_and_all_are_counted(networks: Lab, count: int) -> None:
    networks.group("it", networks.replace("lib.Net.forward", "new.forward"))
    networks.group("other", networks.replace("lib.Net.other", "new.forward"))
    networks.record()
    nets = networks.load("lib").made(count)
    networks.apply()
    check = networks.checks().get("instances.own_attribute")
    assert "instances.own_attribute" not in networks.checks("other")
    assert (check is not None) is (count > 0)
    if check is not None:
        assert (check.status, check.expected, check.actual) == ("warning", "", f"{count} instances")
        said = "instances made before apply() keep a 'forward' of their own: "
        more = f" and {count - 5} more" if count > 5 else ""
        assert (check.message.startswith(said), check.message.endswith(more)) == (True, True)
        named = check.message.removeprefix(said).removesuffix(more).split(", ")
        assert len(named) == len(set(named)) == min(count, 5)
        assert set(named) <= {f"{networks.path('lib.Net')} at {id(net):#x}" for net in nets}
    assert networks.status() == "applied"


def test_what_an_observer_watches_may_be_held_by_an_instance(networks: Lab) -> None:
    networks.group("it", networks.wrap("lib.Net.forward", "new.watch", observer=True))
    nets = networks.load("lib").made(1)
    networks.apply(groups={})
    assert networks.status() == "applied"
    assert "instances.own_attribute" not in networks.checks()
    assert nets[0].forward() == 0


# Code that was compiled before; the compiler's own list stands in for it here, test_compile.py has the compiler's.


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> dict[types.CodeType, int]:
    """How often each code was compiled, as far as a compiler would know."""
    known: dict[types.CodeType, int] = {}
    frames = types.ModuleType("torch._C._dynamo.eval_frame")
    vars(frames)["_debug_get_cache_entry_list"] = lambda code: [None] * known.get(code, 0)
    monkeypatch.setitem(sys.modules, frames.__name__, frames)
    return known


@pytest.mark.parametrize("count", [0, 1, 2])
def test_compilations_are_those_of_the_innermost_definition(
    compilations: dict[types.CodeType, int], count: int
) -> None:
    def m(x: int) -> int:
        return x

    @functools.wraps(m)
    def around(x: int) -> int:
        return m(x)

    compilations[m.__code__] = count
    wrapping: Any = classmethod
    for raw in (m, around, staticmethod(m), wrapping(around)):
        assert early.compiled_frames(Site("lib.C.m", Base, "m", raw, True, "method")) == count
    other: Any
    for other in (len, Base, functools.partial(len)):
        assert early.compiled_frames(Site("lib.C.m", Base, "m", other, True, "method")) == 0


@pytest.mark.parametrize("without", ["the compiler", "the list"])
def test_without_a_compiler_nothing_was_compiled(
    compilations: dict[types.CodeType, int], monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    def m(x: int) -> int:
        return x

    compilations[m.__code__] = 1
    name = "torch._C._dynamo.eval_frame"
    if without == "the list":
        monkeypatch.delattr(sys.modules[name], "_debug_get_cache_entry_list")
    else:
        monkeypatch.delitem(sys.modules, name)
    assert early.compiled_frames(Site("lib.C.m", Base, "m", m, True, "method")) == 0


@pytest.mark.parametrize("before", [True, False])
def test_what_was_compiled_before_is_told_with_its_count(
    held: Lab, compilations: dict[types.CodeType, int], before: bool
) -> None:
    held.write("other", "def g(x, y=0):\n    return 'original'\n")
    held.group("plain", held.replace("other.g", "new.f"))
    held.group("watching", held.wrap("lib.f", "watches.watch", observer=True))
    held.write("watches", "def watch(original, options):\n    return lambda x, y=0: original(x, y)\n")
    held.record()
    if before:
        compilations[held.load("lib").f.__code__] = 3
        held.load("other")
    held.apply(groups={"lab.it": True, "lab.plain": True})
    check = held.checks().get("compiled.before")
    assert (check is not None) is before
    if check is not None:
        assert (check.status, check.actual) == ("warning", "3 compilations")
        assert f"'{held.path('lib.f')}' was compiled before apply()" in check.message
    assert not {"compiled.before"} & {*held.checks("plain"), *held.checks("watching")}


# Following an original to what stands at its site.


def test_a_second_look_lists_what_is_stale_once(held: Lab) -> None:
    held.write("later", "from .lib import f as again\ndef g(x, y=0):\n    return 'original'\n")
    held.write("user", "from .lib import f\nTABLE = [f]\n")
    held.group("late", held.replace("later.g", "new.f", late=True))
    held.record()
    user = held.load("user")
    held.apply()
    assert places(held) == (["user.f"], ["user.TABLE[0]"])
    later = held.load("later")
    assert (held.status("late"), later.again(1), later.g(1), user.f(1)) == ("applied", "ours", "ours", "ours")
    assert places(held) == (["user.f"], ["user.TABLE[0]"])
    assert held.engines[-1].undo() == []
    assert user.f is user.TABLE[0] is held.load("lib").f


def test_a_wrapper_that_stands_at_the_site_itself_is_no_holder(lab: Lab) -> None:
    lab.write(
        "lib",
        "def f(x):\n    return 'original'\nclass C:\n    @staticmethod\n    def s(x):\n        return 'original'\n",
    )
    lab.write(
        "new", "def closing(original, options):\n    def wrapped(x):\n        return original(x)\n    return wrapped\n"
    )
    lab.group("it", lab.wrap("lib.f", "new.closing"))
    lab.group("other", lab.wrap("lib.C.s", "new.closing"))
    lib = lab.load("lib")
    lab.apply(count_calls="off")
    assert [lab.status(name) for name in ("it", "other")] == ["applied", "applied"]
    assert lib.f.__closure__[0].cell_contents(1) == lib.C.s(1) == "original"
    assert [lab.member(name)["stale_holders"] for name in ("it", "other")] == [[], []]


@pytest.mark.parametrize("what", ["removed", "restored"])
def test_what_somebody_else_has_taken_from_its_site_is_followed_no_more(held: Lab, what: str) -> None:
    held.write("later", "from . import user\nkept = user.TABLE[0]\ndef g(x, y=0):\n    return 'original'\n")
    held.write("user", "from .lib import f\nTABLE = [f]\n")
    held.group("late", held.replace("later.g", "new.f", late=True))
    held.record()
    original = held.load("user").f
    held.apply()
    if what == "removed":
        del held.load("lib").f
    else:
        held.load("lib").f = original
    later = held.load("later")
    assert (later.g(1), later.kept) == ("ours", original)
    assert held.status("late") == "applied"
    assert places(held)[0] == ["user.f"]
    assert vars(held.load("lib")).get("f") is (None if what == "removed" else original)


def test_only_what_is_applied_is_followed(held: Lab) -> None:
    held.write("user", "from .lib import f\nfrom .blocked import g\nfrom .off import h\n")
    for name, function in (("blocked", "g"), ("off", "h")):
        held.write(name, f"def {function}(x, y=0):\n    return 'original'\n")
    held.group("blocked", held.replace("blocked.g", "new.f"), held.replace("blocked.absent", "new.f"))
    held.group("off", held.replace("off.h", "new.f"))
    user = held.load("user")
    held.apply(disable=("off",))
    assert (user.f(1), user.g(1), user.h(1)) == ("ours", "original", "original")


@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_group_that_was_rolled_back_is_not_followed(held: Lab, rolled_back: bool) -> None:
    text = "class Sealed(dict):\n    def __setitem__(self, name, value):\n        raise RuntimeError('sealed')\n"
    held.write(
        "sealed", text + "def g(x, y=0):\n    return 'original'\nTABLE = Sealed(g=g)\ndef h(x, y=0):\n    return 0\n"
    )
    held.write("user", "from .sealed import h\n")
    second = [held.replace("sealed.TABLE.g", "new.f")] if rolled_back else []
    held.group("other", held.replace("sealed.h", "new.f"), *second)
    user = held.load("user")
    held.apply()
    assert held.status("other") == ("rolled_back" if rolled_back else "applied")
    assert user.h(1) == (0 if rolled_back else "ours")


def test_the_function_of_a_static_method_is_followed_wherever_it_is_held(lab: Lab) -> None:
    lab.write(
        "lib",
        "def s(x):\n    return 'original'\nclass C:\n    s = staticmethod(s)\nraw = vars(C)['s']\n"
        "class Other:\n    raw = raw\n",
    )
    lab.write("new", "def s(x):\n    return 'ours'\n")
    lab.write("user", "from .lib import s\n")
    lab.group("it", lab.replace("lib.C.s", "new.s"))
    lib, user = lab.load("lib"), lab.load("user")
    lab.apply()
    assert (lib.C.s(1), user.s(1), lib.s(1), lib.Other.raw(1)) == ("ours", "ours", "ours", "original")
    rebound, stale = places(lab)
    assert sorted(rebound) == ["lib.raw", "lib.s", "user.s"]
    assert stale == ["lib.Other.raw"]
    lab.engines[-1].undo()
    assert user.s(1) == lib.s(1) == lib.C.s(1) == "original"


@pytest.mark.parametrize("kind", ["staticmethod", "classmethod", "property", "functools.cached_property"])
def test_a_name_for_a_descriptor_is_followed_by_a_descriptor_of_its_kind(lab: Lab, kind: str) -> None:
    lab.write(
        "lib",
        f"import functools\nclass C:\n    @{kind}\n    def m(*self):\n        return 'original'\nraw = vars(C)['m']\n"
        f"function = getattr(raw, 'fget', None) or getattr(raw, 'func', None) or raw.__func__\n",
    )
    lab.write("new", "def m(*self):\n    return 'ours'\n")
    lab.group("it", lab.replace("lib.C.m", "new.m"))
    lib = lab.load("lib")
    before = dict(vars(lib))
    lab.apply()
    assert type(lib.raw) is type(before["raw"])
    assert lib.raw is vars(lib.C)["m"] is not before["raw"]
    assert (lib.function(lib.C()), type(lib.function)) == ("ours", types.FunctionType)
    assert sorted(places(lab)[0]) == ["lib.function", "lib.raw"]
    lab.engines[-1].undo()
    assert (lib.raw, lib.function, vars(lib.C)["m"]) == (before["raw"], before["function"], before["raw"])


@pytest.mark.parametrize(
    ("module", "kept"), [("new", True), ("new.sub", True), ("new.sub2", False), ("newer", False), ("ne", False)]
)
def test_only_the_replacement_s_own_modules_keep_the_original(lab: Lab, module: str, kept: bool) -> None:
    lab.write("lib", "def f(x):\n    return 'original'\n")
    lab.write("new/", "")
    lab.write("new.sub", "def f(x):\n    return 'ours'\n")
    for name in ("new/", "new.sub", "new.sub2", "newer", "ne"):
        dots = "." * (1 + name.count("."))
        text = f"from {'..' if name.startswith('new/') else dots}lib import f as kept\n"
        lab.write(name, text + ("def f(x):\n    return 'ours'\n" if name == "new.sub" else ""))
    lab.group("it", lab.replace("lib.f", "new.sub.f"))
    holder = lab.load(module)
    lab.apply()
    assert (lab.status(), holder.kept(1)) == ("applied", "original" if kept else "ours")


def test_what_a_covered_group_would_change_is_followed_for_the_one_that_covers_it(held: Lab) -> None:
    held.write("lib", "def f(x, y=0):\n    return 'original'\ndef g(x, y=0):\n    return 1\n")
    held.write("user", "from .lib import f\nTABLE = [f]\n")
    held.group("whole", held.replace("lib.f", "new.f"), held.replace("lib.g", "new.f"))
    held.record()
    user = held.load("user")
    held.apply()
    assert (held.status(), held.status("whole"), user.f(1)) == ("skipped", "applied", "ours")
    told = [[len(held.member(name)[key]) for key in ("rebound", "stale_holders")] for name in ("it", "whole")]
    assert told == [[0, 0], [1, 1]]


def test_a_change_that_two_groups_share_is_followed_once(held: Lab) -> None:
    held.write(
        "lib", "def f(x, y=0):\n    return 'original'\ndef g(x, y=0):\n    return 1\ndef h(x, y=0):\n    return 1\n"
    )
    held.write("user", "from .lib import f\nTABLE = [f]\n")
    for name, other in (("one", "lib.g"), ("two", "lib.h")):
        held.group(name, held.replace("lib.f", "new.f"), held.replace(other, "new.f"))
    held.record()
    user = held.load("user")
    held.apply(disable=("it",))
    assert user.f(1) == "ours"
    assert [held.member(name)["shared_with"] for name in ("one", "two")] == [None, "lab.one"]
    told = [[len(held.member(name)[key]) for key in ("rebound", "stale_holders")] for name in ("one", "two")]
    assert told == [[1, 1], [0, 0]]
