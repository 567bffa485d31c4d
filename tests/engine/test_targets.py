# SPDX-License-Identifier: Apache-2.0
"""From a path to the site: every kind of target, and what is refused with its reason."""

from __future__ import annotations

import collections
import functools
import sys
import types
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra.engine.kinds import function_of, in_kind_of, kind_of
from turbo_hydra.engine.targets import ABSENT, ResolutionError, Site, own_namespace, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.engine.conftest import Lab

LIB = """
    import functools
    import types
    from enum import Enum

    def f(x):
        return x

    async def coroutine(x):
        return x

    def generator(x):
        yield x

    @functools.lru_cache(maxsize=4)
    def cached(x):
        return x

    partial = functools.partial(f, 1)
    TABLE = {"f": f, "dotted.key": f, 3: f}
    FROZEN = types.MappingProxyType(TABLE)
    VALUE = 3

    class Caller:
        def m(self):
            return self

        def __call__(self, x):
            return x

    caller = Caller()

    class Lazy:
        '''Fails where anybody looks.'''
        def __getattr__(self, name):
            raise RuntimeError(name)

        @property
        def p(self):
            raise RuntimeError("p")

    lazy = Lazy()
    caller.held = caller

    class Holding:
        kernel = staticmethod(caller)
        made = classmethod(caller)

    class Meta(type):
        def meta_method(cls):
            return cls

    class Base(metaclass=Meta):
        def m(self):
            return 1

        @staticmethod
        def s(x):
            return x

        @classmethod
        def c(cls):
            return cls

        @property
        def p(self):
            return 1

        @functools.cached_property
        def k(self):
            return 1

        def __hidden(self):
            return 1

        class Inner:
            def m(self):
                return 2

    class Child(Base):
        pass

    class Slotted:
        __slots__ = ("x",)

        def m(self):
            return 1

    class Colour(Enum):
        RED = 1

        def m(self):
            return 1
"""

KINDS = {
    "f": "function",
    "coroutine": "function",
    "generator": "function",
    "cached": "lru_cache",
    "partial": "partial",
    "caller": "callable",
    "Base": "class",
    "Base.m": "method",
    "Base.s": "staticmethod",
    "Base.c": "classmethod",
    "Base.p": "property",
    "Base.k": "cached_property",
    "Base._Base__hidden": "method",
    "Base.Inner": "class",
    "Base.Inner.m": "method",
    "Meta.meta_method": "method",
    "Slotted.m": "method",
    "Colour.m": "method",
    "TABLE.f": "function",
}


@pytest.mark.parametrize("name", KINDS)
def test_the_raw_descriptor_is_found_and_its_kind_named(lab: Lab, name: str) -> None:
    lab.write("lib", LIB)
    site = resolve(lab.path(f"lib.{name}"))
    owner: Any = lab.load("lib")
    for part in name.split(".")[:-1]:
        owner = vars(owner)[part]
    held = owner if isinstance(owner, dict) else vars(owner)
    assert site.owner is owner
    assert site.name == name.rpartition(".")[2]
    assert site.raw is held[site.name]
    assert site.own
    assert site.kind == KINDS[name]


@pytest.mark.parametrize("name", ["m", "s", "c", "p", "k"])
def test_an_inherited_target_is_the_base_s_raw_descriptor_and_not_the_child_s_own(lab: Lab, name: str) -> None:
    lab.write("lib", LIB)
    site = resolve(lab.path(f"lib.Child.{name}"))
    module = lab.load("lib")
    assert site.owner is module.Child
    assert site.raw is vars(module.Base)[name]
    assert not site.own
    assert site.read() is ABSENT


HOMES = {
    "sub.lib.f": "sub.lib",
    "sub.lib.TABLE.f": "sub.lib",
    "sub.lib.TABLE.deep.f": "sub.lib",
    "sub.lib.holder.f": "sub.lib",
    "sub.lib.C.m": "sub.lib",
    "sub.lib.Child.m": "sub.lib",
    "sub.C.m": "sub.lib",
    "sub.Own.m": "sub",
    "sub.TABLE.f": "sub",
    "TABLE.f": "",
    "lib.f": "sub.lib",
    "boxed.f": "boxed",
}


@pytest.mark.parametrize("path", HOMES)
def test_the_home_of_a_site_is_the_module_that_its_owner_lives_in(lab: Lab, path: str) -> None:
    lab.write("__init__", "from .sub import lib\nfrom .sub.lib import TABLE\n")
    lab.write("sub/", "from .lib import TABLE, C\nclass Own(C): pass\n")
    lab.write(
        "sub.lib",
        """
        def f(x): return x
        TABLE = {"f": f, "deep": {"f": f}}
        class C:
            def m(self): return 1
        class Child(C): pass
        holder = C()
        holder.f = f
        """,
    )
    lab.write(
        "boxed",
        """
        import sys
        class Box: pass
        def f(x): return x
        box = sys.modules[__name__] = Box()
        box.f = f
        """,
    )
    assert resolve(lab.path(path)).home == lab.path(HOMES[path]).rstrip(".")


REFUSED = {
    "nothing": ("target.missing", "module '{package}.lib' has no 'nothing'"),
    "Base.nothing": ("target.missing", "class '{package}.lib.Base' has no 'nothing'"),
    "nothing.m": ("target.missing", "'{package}.lib' has no 'nothing'"),
    "TABLE.nothing": ("target.missing", "has no 'nothing'"),
    "VALUE": ("target.kind", "it is a int, which nothing calls"),
    "VALUE.nothing": ("target.missing", "a int has no 'nothing'"),
    "VALUE.nothing.m": ("target.missing", "'{package}.lib.VALUE' has no 'nothing'"),
    "lazy.nothing": ("target.missing", "a Lazy has no 'nothing'"),
    "lazy.p": ("target.kind", "belongs to the type of a Lazy: name it by that, '{package}.lib.Lazy.p'"),
    "functools": ("target.kind", "it is a module; declare replace_import for it"),
    "FROZEN.f": ("target.immutable", "its owner is a read-only mapping"),
    "Slotted.x": ("target.kind", "it is a C slot"),
    "Base.__repr__": ("target.kind", "it is a C slot"),
    "f.__call__": ("target.foreign_owner", "changes a function for everyone"),
    "caller.m": ("target.kind", "belongs to the type of a Caller: name it by that, '{package}.lib.Caller.m'"),
    "Base.meta_method": (
        "target.kind",
        "belongs to the type of class '{package}.lib.Base': name it by that, '{package}.lib.Meta.meta_method'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_a_target_says_why(lab: Lab, name: str) -> None:
    lab.write("lib", LIB)
    code, text = REFUSED[name]
    with pytest.raises(ResolutionError) as caught:
        resolve(lab.path(f"lib.{name}"))
    assert text.format(package=lab.package) in str(caught.value)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "path", ["builtins.list.append", "builtins.str.join", "collections.deque.append", "array.array.append"]
)
def test_methods_of_immutable_types_are_refused_before_anything_is_written(path: str) -> None:
    with pytest.raises(ResolutionError, match="is an immutable type") as caught:
        resolve(path)
    assert caught.value.code == "target.immutable"


def test_a_package_that_is_not_installed_is_told(lab: Lab) -> None:
    said = (
        r"'no_such_package.f' cannot be resolved: there is no module 'no_such_package' \(is the package installed\?\)"
    )
    with pytest.raises(ResolutionError, match=said) as caught:
        resolve("no_such_package.f")
    assert caught.value.code == "target.missing"


def test_an_import_error_inside_a_module_is_raised_as_itself(lab: Lab) -> None:
    lab.write("pkg/", "")
    lab.write("pkg.broken", "import a_module_that_is_not_there\n")
    lab.write("pkg.wrong", "from .broken_name import f\n")
    lab.write("pkg.raises", "raise RuntimeError('at import')\n")
    lab.write("pkg.syntax", "def f(:\n")
    for name, error, text in (
        ("broken", ModuleNotFoundError, "a_module_that_is_not_there"),
        ("wrong", ModuleNotFoundError, "broken_name"),
        ("raises", RuntimeError, "at import"),
        ("syntax", SyntaxError, "invalid syntax"),
    ):
        with pytest.raises(error, match=text):
            resolve(lab.path(f"pkg.{name}.f"))


def test_an_import_error_inside_a_package_is_not_taken_for_a_missing_target(lab: Lab) -> None:
    lab.write("pkg/", "import a_module_that_is_not_there\n")
    lab.write("pkg.lib", "def f(): pass\n")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        resolve(lab.path("pkg.lib.f"))


def test_the_report_names_the_import_error_and_not_a_missing_target(lab: Lab) -> None:
    lab.write("lib", "import a_module_that_is_not_there\ndef f(x): pass\n")
    lab.write("new", "def f(x): pass\n")
    lab.group("it", lab.replace("lib.f", "new.f"))
    lab.plan()
    assert lab.codes() == ["target.import_error"]
    assert "ModuleNotFoundError: No module named 'a_module_that_is_not_there'" in lab.message()


def test_two_paths_to_one_object_at_one_owner_are_one_site(lab: Lab) -> None:
    lab.write("lib", LIB)
    lab.write("again", "from . import lib\nfrom .lib import Base, TABLE\n")
    for first, second in (("lib.f", "again.lib.f"), ("lib.Base.m", "again.Base.m"), ("lib.TABLE.f", "again.TABLE.f")):
        assert resolve(lab.path(first)).key == resolve(lab.path(second)).key
    assert resolve(lab.path("lib.f")).key != resolve(lab.path("lib.coroutine")).key


def test_a_target_of_another_package_needs_the_scope(make_lab: Callable[[], Lab]) -> None:
    ours, foreign = make_lab(), make_lab()
    foreign.write("nn", "class Norm:\n    def forward(self): pass\ndef f(): pass\n")
    ours.write("model", f"from {foreign.package} import nn\nfrom {foreign.package}.nn import Norm, f\n")
    for name in ("model.nn.f", "model.nn.Norm", "model.nn.Norm.forward", "model.Norm.forward"):
        with pytest.raises(ResolutionError) as caught:
            resolve(ours.path(name))
        assert caught.value.code == "target.foreign_owner"
        assert "for everyone; name it by its own path, or declare scope='global'" in str(caught.value)
        assert resolve(ours.path(name), "global").kind in ("function", "class", "method")
    # The name in the module itself is the module's own, whoever made the object.
    assert resolve(ours.path("model.f")).owner is ours.load("model")
    assert resolve(ours.path("model.Norm")).owner is ours.load("model")


def test_a_name_that_is_a_module_by_import_and_a_function_by_attribute_is_both(lab: Lab) -> None:
    lab.write("pkg/", "from .thing import thing\n")
    lab.write("pkg.thing", "def thing(x):\n    return x\n\ndef other(x):\n    return x\n")
    assert isinstance(lab.load("pkg").thing, types.FunctionType)
    assert resolve(lab.path("pkg.thing")).owner is lab.load("pkg")
    assert resolve(lab.path("pkg.thing.other")).owner is sys.modules[lab.path("pkg.thing")]
    assert resolve(lab.path("pkg.thing.thing")).owner is sys.modules[lab.path("pkg.thing")]


def test_a_class_by_attribute_that_is_a_module_by_import_still_has_its_methods(lab: Lab) -> None:
    lab.write("pkg/", "from .Thing import Thing\n")
    lab.write("pkg.Thing", "class Thing:\n    def m(self):\n        return 1\n")
    assert resolve(lab.path("pkg.Thing.m")).owner is lab.load("pkg").Thing
    lab.write("__init__", "from .Thing import Thing\n")  # the same where the package is the whole of the shorter path
    lab.write("Thing", "class Thing:\n    def m(self):\n        return 1\n")
    lab.forget()
    assert resolve(lab.path("Thing.m")).owner is lab.get("Thing.Thing")


def test_what_the_longest_module_holds_and_cannot_be_a_target_is_not_looked_for_elsewhere(lab: Lab) -> None:
    lab.write("pkg/", "from .Thing import Thing\n")
    lab.write("pkg.Thing", "class Thing:\n    def m(self):\n        return 1\nm = 3\n")
    assert callable(lab.load("pkg").Thing.m)
    with pytest.raises(ResolutionError, match="it is a int, which nothing calls"):
        resolve(lab.path("pkg.Thing.m"))


def test_a_module_deleted_from_its_package_is_found_by_import(lab: Lab) -> None:
    lab.write("pkg/", "from . import adamw\ndel adamw\n")
    lab.write("pkg.adamw", "def f(x):\n    return x\n")
    assert not hasattr(lab.load("pkg"), "adamw")
    assert resolve(lab.path("pkg.adamw.f")).owner is sys.modules[lab.path("pkg.adamw")]


def test_a_namespace_package_is_a_package(lab: Lab) -> None:
    lab.write("space.inner.lib", "def f(x):\n    return x\n")
    site = resolve(lab.path("space.inner.lib.f"))
    assert site.kind == "function"
    assert lab.load("space").__spec__.origin is None


def test_a_declared_name_of_a_lazy_module_is_loaded_and_belongs_to_it_afterwards(lab: Lab) -> None:
    lab.write(
        "pkg/",
        """
        import importlib
        LOADS = []
        def __getattr__(name):
            if name == "f":
                LOADS.append(name)
                return importlib.import_module(".impl", __name__).f
            raise AttributeError(name)
        """,
    )
    lab.write("pkg.impl", "def f(x):\n    return x\n")
    site = resolve(lab.path("pkg.f"))
    assert site.raw is lab.get("pkg.impl.f")
    assert not site.own
    assert site.read() is ABSENT
    with pytest.raises(ResolutionError, match="has no 'g'"):
        resolve(lab.path("pkg.g"))


def test_a_lazy_module_that_stores_what_it_loads_owns_it(lab: Lab) -> None:
    lab.write(
        "pkg/",
        """
        import importlib, sys, types
        class Lazy(types.ModuleType):
            def __getattr__(self, name):
                if name != "f":
                    raise AttributeError(name)
                value = importlib.import_module(".impl", self.__name__).f
                setattr(self, name, value)
                return value
        sys.modules[__name__].__class__ = Lazy
        """,
    )
    lab.write("pkg.impl", "def f(x):\n    return x\n")
    site = resolve(lab.path("pkg.f"))
    assert site.own
    assert site.read() is site.raw is lab.get("pkg.impl.f")


def test_a_module_object_of_its_own_type_in_sys_modules_is_an_owner(lab: Lab) -> None:
    lab.write(
        "lib",
        """
        import sys, types
        def f(x):
            return x
        class Replaced(types.ModuleType):
            pass
        made = Replaced(__name__)
        made.f = f
        sys.modules[__name__] = made
        """,
    )
    assert resolve(lab.path("lib.f")).raw is lab.load("lib").f


def test_an_instance_may_hold_a_target(lab: Lab) -> None:
    lab.write("lib", LIB + "\n    caller.hook = f\n")
    site = resolve(lab.path("lib.caller.hook"))
    assert site.owner is lab.load("lib").caller
    assert site.own


@pytest.mark.parametrize("name", ["kernel", "made"])
def test_a_path_leads_through_what_a_method_s_descriptor_holds(lab: Lab, name: str) -> None:
    lab.write("lib", LIB)
    site = resolve(lab.path(f"lib.Holding.{name}.held"))
    assert site.owner is site.raw is lab.load("lib").caller


@pytest.mark.parametrize("name", ["__main__", "__mp_main__"])
def test_the_script_is_its_own_in_children_that_start_afresh_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script = types.ModuleType(name)
    exec("def f(x): return x\nclass C:\n    def m(self): return 1\n", script.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", script)
    assert resolve("__main__.f").owner is script
    assert resolve("__main__.C.m").owner is script.C


# Writing.


@pytest.mark.parametrize("name", [name for name in KINDS if name != "Base"])
def test_writing_what_was_found_back_leaves_the_owner_as_it_was(lab: Lab, name: str) -> None:
    lab.write("lib", LIB)
    site = resolve(lab.path(f"lib.{name}"))
    before = dict(site.owner if isinstance(site.owner, dict) else vars(site.owner))
    mark = object()
    site.write(mark)
    assert site.read() is mark
    site.write(site.raw)
    after = dict(site.owner if isinstance(site.owner, dict) else vars(site.owner))
    assert list(after) == list(before)
    assert all(after[key] is before[key] for key in before)


def test_deleting_an_inherited_name_lets_the_base_be_seen_again(lab: Lab) -> None:
    lab.write("lib", LIB)
    site = resolve(lab.path("lib.Child.m"))
    child = lab.load("lib").Child
    site.write(lambda self: "ours")
    assert child().m() == "ours"
    site.write(ABSENT)
    assert "m" not in vars(child)
    assert child().m() == 1


def test_a_metaclass_that_translates_what_it_is_given_is_passed_by(lab: Lab) -> None:
    lab.write(
        "lib",
        """
        class Refusing(type):
            def __setattr__(cls, name, value):
                raise TypeError("sealed")
        class C(metaclass=Refusing):
            def m(self):
                return 1
        """,
    )
    site = resolve(lab.path("lib.C.m"))
    site.write(len)
    assert site.read() is len
    site.write(site.raw)
    assert site.read() is site.raw


# Kinds.


def _plain(self: object = None) -> str:
    return "plain"


@pytest.mark.parametrize("kind", [staticmethod, classmethod, property, functools.cached_property])
def test_a_plain_function_takes_the_kind_of_the_original(kind: Any) -> None:
    raw = kind(_plain)
    made = in_kind_of(raw, _plain)
    assert type(made) is kind
    assert function_of(made) is _plain
    assert in_kind_of(raw, made) is made


def test_a_property_keeps_the_accessors_that_are_not_replaced() -> None:
    raw = property(_plain, lambda self, value: None, lambda self: None, "doc")
    made = in_kind_of(raw, _plain)
    assert (made.fset, made.fdel, made.__doc__) == (raw.fset, raw.fdel, "doc")


def test_a_cached_property_keeps_the_name_under_which_it_caches() -> None:
    class C:
        @functools.cached_property
        def k(self) -> int:
            return 1

    made = in_kind_of(vars(C)["k"], _plain)
    assert made.attrname == "k"


def test_a_function_stays_a_function() -> None:
    assert in_kind_of(_plain, len) is len
    assert kind_of(object(), len).name == "callable"


def test_what_has_no_namespace_holds_nothing() -> None:
    class Slotted:
        __slots__ = ("x",)

    assert [dict(own_namespace(owner)) for owner in (3, Slotted(), object())] == [{}, {}, {}]


def test_a_mapping_of_any_kind_is_read_by_key() -> None:
    for make in (dict, collections.OrderedDict, collections.UserDict):
        mapping = make({"f": _plain})
        site = Site("m.f", mapping, "f", _plain, True, "function")
        site.write(len)
        assert site.read() is len
        site.write(ABSENT)
        assert site.read() is ABSENT
        assert "f" not in mapping
