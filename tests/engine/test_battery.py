# SPDX-License-Identifier: Apache-2.0
"""Every kind of target in every order: what becomes of it stands in the table below, cell by cell."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra.engine.apply import Engine
from turbo_hydra.engine.kinds import function_of, in_kind_of
from turbo_hydra.engine.targets import ABSENT, Site, resolve

if TYPE_CHECKING:
    from tests.engine.conftest import Lab


@dataclass(frozen=True)
class Kind:
    """A kind of target: the module that holds it, what takes its place, and how it is reached and called."""

    lib: str
    target: str
    call: Callable[[Any], Any]
    new: str
    replacement: str = "new.f"
    needs: str = ""


def collect(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


CLASS = "class C:\n    {}\n"
FUNCTION = "def f(x): return 'ours'\n"
METHOD = "def f(self): return 'ours'\n"
KINDS = {
    "function": Kind("def f(x): return 'original'\n", "lib.f", lambda lib: lib.f(1), FUNCTION),
    "method": Kind(CLASS.format("def m(self): return 'original'"), "lib.C.m", lambda lib: lib.C().m(), METHOD),
    "inherited method": Kind(
        CLASS.format("def m(self): return 'original'") + "class D(C): pass\n",
        "lib.D.m",
        lambda lib: lib.D().m(),
        METHOD,
    ),
    "staticmethod": Kind(
        CLASS.format("@staticmethod\n    def s(x): return 'original'"),
        "lib.C.s",
        lambda lib: lib.C.s(1) if lib.C.s(1) == lib.C().s(1) else None,
        FUNCTION,
    ),
    "classmethod": Kind(
        CLASS.format("@classmethod\n    def c(cls): return 'original'") + "class D(C): pass\n",
        "lib.C.c",
        lambda lib: lib.C.c() if lib.C.c() == lib.D().c() else None,
        "def f(cls): return 'ours'\n",
    ),
    "property": Kind(
        CLASS.format("@property\n    def p(self): return 'original'"), "lib.C.p", lambda lib: lib.C().p, METHOD
    ),
    "cached_property": Kind(
        "import functools\n" + CLASS.format("@functools.cached_property\n    def k(self): return 'original'"),
        "lib.C.k",
        lambda lib: lib.C().k,
        METHOD,
    ),
    "lru_cache": Kind(
        "import functools\n@functools.lru_cache(maxsize=None)\ndef f(x): return 'original'\n",
        "lib.f",
        lambda lib: (lib.f(1), lib.f.cache_clear(), lib.f.cache_info())[0],
        FUNCTION,
    ),
    "partial": Kind(
        "import functools\ndef g(x, y): return 'original'\nf = functools.partial(g, 1)\n",
        "lib.f",
        lambda lib: lib.f(1),
        "def f(y): return 'ours'\n",
    ),
    "nested class": Kind(
        CLASS.format("class D:\n        def m(self): return 'original'"), "lib.C.D.m", lambda lib: lib.C.D().m(), METHOD
    ),
    "class": Kind(
        CLASS.format("def m(self): return 'original'"),
        "lib.C",
        lambda lib: lib.C().m(),
        "from . import lib\nclass C(lib.C):\n    def m(self): return 'ours'\n",
        "new.C",
    ),
    "name-mangled method": Kind(
        CLASS.format("def __m(self): return 'original'\n    def m(self): return self.__m()"),
        "lib.C._C__m",
        lambda lib: lib.C().m(),
        METHOD,
    ),
    "async function": Kind(
        "async def f(x): return 'original'\n",
        "lib.f",
        lambda lib: collect(lib.f(1)),
        "async def f(x): return 'ours'\n",
    ),
    "generator function": Kind(
        "def f(x): yield 'original'\n", "lib.f", lambda lib: next(lib.f(1)), "def f(x): yield 'ours'\n"
    ),
    "async generator function": Kind(
        "async def f(x): yield 'original'\n",
        "lib.f",
        lambda lib: collect(lib.f(1).__anext__()),
        "async def f(x): yield 'ours'\n",
    ),
    "overloaded function": Kind(
        "from typing import overload\n@overload\ndef f(x: int) -> int: ...\n@overload\ndef f(x: str) -> str: ...\n"
        "def f(x): return 'original'\n",
        "lib.f",
        lambda lib: lib.f(1),
        FUNCTION,
    ),
    "dataclass method": Kind(
        "from dataclasses import dataclass\n@dataclass(frozen=True)\n"
        + CLASS.format("x: int = 1\n    def m(self): return 'original'"),
        "lib.C.m",
        lambda lib: lib.C().m(),
        METHOD,
    ),
    "method of slots": Kind(
        CLASS.format("__slots__ = ('x',)\n    def m(self): return 'original'"),
        "lib.C.m",
        lambda lib: lib.C().m(),
        METHOD,
    ),
    "method of an enum": Kind(
        "from enum import Enum\nclass C(Enum):\n    A = 1\n    def m(self): return 'original'\n",
        "lib.C.m",
        lambda lib: lib.C.A.m(),
        METHOD,
    ),
    "method of a metaclass": Kind(
        "class Meta(type):\n    def m(cls): return 'original'\nclass C(metaclass=Meta): pass\n",
        "lib.Meta.m",
        lambda lib: lib.C.m(),
        "def f(cls): return 'ours'\n",
    ),
    "mapping entry": Kind(
        "def g(x): return 'original'\nTABLE = {'f': g}\n", "lib.TABLE.f", lambda lib: lib.TABLE["f"](1), FUNCTION
    ),
    "registry entry": Kind(
        """
        class Registry:
            def __init__(self):
                self._module_dict = {}
            def register(self, cls):
                self._module_dict[cls.__name__] = cls
                return cls
            def build(self, name):
                return self._module_dict[name]()
        MODELS = Registry()
        @MODELS.register
        class Net:
            def m(self): return 'original'
        """,
        "lib.MODELS._module_dict.Net",
        lambda lib: lib.MODELS.build("Net").m(),
        "from . import lib\nclass Net(lib.Net):\n    def m(self): return 'ours'\n",
        "new.Net",
    ),
    "name of a lazy module": Kind(
        """
        import importlib
        def __getattr__(name):
            if name != "f":
                raise AttributeError(name)
            return importlib.import_module(".impl", __package__).f
        """,
        "lib.f",
        lambda lib: lib.f(1),
        FUNCTION,
    ),
    "function in a namespace package": Kind(
        "def f(x): return 'original'\n", "space.lib.f", lambda lib: lib.f(1), FUNCTION
    ),
    "function behind a decorator": Kind(
        "import functools\ndef twice(g):\n    @functools.wraps(g)\n    def layer(*args):\n        return g(*args)\n"
        "    return layer\n@twice\ndef f(x): return 'original'\n",
        "lib.f",
        lambda lib: lib.f(1),
        FUNCTION,
    ),
    "Module.forward": Kind(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x): return 'original'\n",
        "lib.Net.forward",
        lambda lib: lib.Net()(1),
        "def f(self, x): return 'ours'\n",
        needs="torch",
    ),
    "autograd.Function.forward": Kind(
        "import torch\nclass F(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, x): return torch.zeros(1)\n",
        "lib.F.forward",
        lambda lib: "ours" if float(lib.F.apply(sys.modules["torch"].ones(1))) else "original",
        "import torch\ndef f(ctx, x): return torch.ones(1)\n",
        needs="torch",
    ),
    # Refused, each for its reason.
    "exec'd function": Kind("exec('def f(x): return \"original\"')\n", "lib.f", lambda lib: lib.f(1), FUNCTION),
    "lambda": Kind("f = lambda x: 'original'\n", "lib.f", lambda lib: lib.f(1), FUNCTION),
    "method made by dataclass": Kind(
        "from dataclasses import dataclass\n@dataclass\n" + CLASS.format("x: int = 1"),
        "lib.C.__repr__",
        lambda lib: "original" if repr(lib.C()) == "C(x=1)" else repr(lib.C()),
        METHOD,
    ),
    "builtin function": Kind(
        "f = len\n", "lib.f", lambda lib: "original" if lib.f([]) == 0 else "ours", "def f(obj, /): return 'ours'\n"
    ),
    "C slot": Kind(
        CLASS.format("pass"),
        "lib.C.__repr__",
        lambda lib: "original" if "object at" in repr(lib.C()) else "ours",
        METHOD,
    ),
    "slot of __slots__": Kind(CLASS.format("__slots__ = ('x',)"), "lib.C.x", lambda lib: "original", METHOD),
    "method of an immutable type": Kind(
        "L = list\n", "/builtins.list.copy", lambda lib: "original" if lib.L([1]).copy() == [1] else "ours", METHOD
    ),
    "metaclass attribute by its class": Kind(
        "class Meta(type):\n    def m(cls): return 'original'\nclass C(metaclass=Meta): pass\n",
        "lib.C.m",
        lambda lib: lib.C.m(),
        "def f(cls): return 'ours'\n",
    ),
    "value": Kind("f = 3\n", "lib.f", lambda lib: "original" if lib.f == 3 else "ours", FUNCTION),
    "module": Kind("import json as f\n", "lib.f", lambda lib: "original" if lib.f.loads("1") else None, FUNCTION),
    "read-only mapping": Kind(
        "import types\ndef g(x): return 'original'\nTABLE = types.MappingProxyType({'f': g})\n",
        "lib.TABLE.f",
        lambda lib: lib.TABLE["f"](1),
        FUNCTION,
    ),
}

ORDERS = (
    "before import",
    "after import",
    "forced without evidence",
    "twice",
    "undo",
    "undo twice",
    "applied again after undo",
    "foreign wrapper below",
    "foreign wrapper on top",
    "failure at member 0",
    "failure at member 1",
    "failure at member 2",
    "interrupt at member 0",
    "interrupt at member 1",
    "interrupt at member 2",
)
HANDLED = (
    "applied",
    "applied",
    "applied",
    "blocked: evidence.foreign_wrapper",
    "restored",
    "restored",
    "restored",
    "blocked: evidence.foreign_wrapper",
    "blocked, then restored",
    "rolled_back",
    "rolled_back",
    "rolled_back",
    "interrupted",
    "interrupted",
    "interrupted",
)
# A class that takes another's place is no layer around it: it is other code.
BY_CLASS = tuple(item.replace("foreign_wrapper", "changed") for item in HANDLED)


def refused(code: str, forced: str = "") -> tuple[str, ...]:
    """A row of a target that is refused; `forced` says what force makes of it."""
    blocked = f"blocked: {code}"
    return (blocked, blocked, forced or blocked, *([blocked] * (len(ORDERS) - 3)))


ROWS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(KINDS, HANDLED),
    "class": BY_CLASS,
    # The stranger's class is in the registry alone, so that ours is no subclass of what is there.
    "registry entry": (
        *BY_CLASS[: ORDERS.index("foreign wrapper below")],
        "blocked: evidence.changed, target.kind",
        *BY_CLASS[ORDERS.index("foreign wrapper below") + 1 :],
    ),
    "exec'd function": refused("evidence.unreadable", forced="applied"),
    "lambda": refused("evidence.unreadable", forced="applied"),
    "method made by dataclass": refused("evidence.unreadable", forced="applied"),
    "builtin function": refused("evidence.unreadable", forced="applied"),
    "C slot": refused("target.kind"),
    "slot of __slots__": refused("target.kind"),
    "method of an immutable type": refused("target.immutable"),
    "metaclass attribute by its class": refused("target.kind"),
    "value": refused("target.kind"),
    "module": refused("target.kind"),
    "read-only mapping": refused("target.immutable"),
}
TABLE = [
    pytest.param(kind, order, outcome, id=f"{kind}, {order}")
    for kind, row in ROWS.items()
    for order, outcome in zip(ORDERS, row, strict=True)
]

# Sites before and after the target's, in a module that does as it is told when it is written.
GUARD = """
    import sys, types
    RAISE = {}
    class Guard(types.ModuleType):
        def __setattr__(self, name, value):
            if name in RAISE:
                raise RAISE[name]
            super().__setattr__(name, value)
    sys.modules[__name__].__class__ = Guard
    def a(x): return 'original'
    def b(x): return 'original'
"""


class Bench:
    """One kind of target, set up in a laboratory."""

    def __init__(self, lab: Lab, kind: Kind) -> None:
        self.lab, self.kind = lab, kind
        self.module = "space.lib" if kind.target.startswith("space.") else "lib"
        lab.write(self.module, dedent(kind.lib))
        lab.write("impl", "def f(x): return 'original'\n")
        lab.write("new", kind.new)
        lab.write("guard", GUARD)
        lab.write("guard_new", FUNCTION)
        lab.group(
            "it",
            lab.replace("guard.a", "guard_new.f"),
            lab.replace(kind.target, kind.replacement),
            lab.replace("guard.b", "guard_new.f"),
        )
        lab.record()

    @property
    def lib(self) -> Any:
        return self.lab.load(self.module)

    def call(self) -> Any:
        return self.kind.call(self.lib)

    def snapshot(self) -> dict[int, dict[str, Any]]:
        """What all modules, classes, instances and mappings of the laboratory hold."""
        for name in (self.module, "impl", "new", "guard", "guard_new"):
            self.lab.load(name)
        found: dict[int, dict[str, Any]] = {}
        prefix = self.lab.package
        waiting: list[Any] = [module for name, module in sys.modules.items() if name.split(".")[0] == prefix]
        while waiting:
            item = waiting.pop()
            home = item.__name__ if isinstance(item, types.ModuleType) else getattr(item, "__module__", None)
            if id(item) in found or not (isinstance(item, dict) or str(home).split(".")[0] == prefix):
                continue
            held = item if isinstance(item, dict) else getattr(item, "__dict__", {})
            found[id(item)] = {str(key): value for key, value in held.items() if key != "__builtins__"}
            waiting += found[id(item)].values()
        return found

    def blocked(self) -> str:
        """The outcome of a group that is blocked, after a look at its sites."""
        assert self.lab.status() == "blocked"
        assert self.call() == "original"
        assert self.lab.load("guard").a(1) == self.lab.load("guard").b(1) == "original"
        return f"blocked: {self.codes()}"

    def codes(self) -> str:
        """Codes of the target's own failed checks."""
        assert self.lab.planned is not None
        checks = self.lab.planned.groups["lab.it"].members[1].checks
        return ", ".join(check.code for check in checks if check.status == "fail")

    def applied(self) -> str:
        """The outcome of a group that ought to be applied."""
        if self.lab.status() != "applied":
            return self.blocked()
        assert self.call() == "ours"
        assert self.lab.load("guard").a(1) == self.lab.load("guard").b(1) == "ours"
        member = self.lab.member(index=1)
        assert member["hits"] is None or member["hits"]["replacement"] >= 1
        return "applied"

    def wrapped(self) -> tuple[Any, Any]:
        """The target's site, and what a stranger would put there around what it holds."""
        site = resolve(self.lab.path(self.kind.target), "global")
        inner = function_of(site.raw)
        if isinstance(inner, type):
            return site, type("Foreign", (inner,), {"__module__": __name__, "__qualname__": "Foreign"})

        @functools.wraps(inner)
        def foreign(*args: Any, **kwargs: Any) -> Any:
            return inner(*args, **kwargs)

        return site, in_kind_of(site.raw, foreign)


class Foreign:
    """The text of a stranger's class; the class itself is made for each target."""


def run_before_import(bench: Bench) -> str:
    assert bench.lab.path(bench.module) not in sys.modules
    bench.lab.apply()
    return bench.applied()


def run_after_import(bench: Bench) -> str:
    lib = bench.lib
    bench.lab.write("user", f"from .{bench.module} import {bench.kind.target.split('.')[-1]} as held\n")
    if len(bench.kind.target.split(".")) == 2 and hasattr(lib, bench.kind.target.split(".")[1]):
        bench.lab.load("user")
    bench.lab.apply()
    outcome = bench.applied()
    if outcome == "applied":
        assert bench.lab.checks()["import.timing"].status == "warning"
        user = sys.modules.get(bench.lab.path("user"))
        assert user is None or user.held is getattr(lib, bench.kind.target.split(".")[1]), (
            "the name bound before follows"
        )
    return outcome


def run_forced(bench: Bench) -> str:
    bench.lab.apply(force=("it",), evidence={})
    outcome = bench.applied()
    if outcome == "applied":
        assert bench.lab.member(index=1)["evidence"] == "forced"
    return outcome


def run_twice(bench: Bench) -> str:
    bench.lab.apply()
    if bench.lab.status() != "applied":
        return bench.blocked()
    before = bench.snapshot()
    bench.lab.apply()
    assert bench.lab.status() == "blocked"
    assert bench.snapshot() == before
    return f"blocked: {bench.codes()}"


def restored(bench: Bench, again: Callable[[Engine], None]) -> str:
    bench.call()
    before = bench.snapshot()
    made = bench.lab.apply()
    if bench.lab.status() != "applied":
        assert bench.snapshot() == before
        return bench.blocked()
    assert bench.call() == "ours"
    assert made.undo() == []
    again(made)
    after = bench.snapshot()
    for key, held in before.items():
        assert after[key] == held
        assert list(after[key]) == list(held), "in the same order too"
    assert bench.call() == "original"
    return "restored"


def run_undo(bench: Bench) -> str:
    return restored(bench, lambda made: None)


def run_undo_twice(bench: Bench) -> str:
    def again(made: Engine) -> None:
        assert made.undo() == []

    return restored(bench, again)


def run_applied_again(bench: Bench) -> str:
    def again(made: Engine) -> None:
        second = bench.lab.apply()
        assert bench.lab.status() == "applied"
        assert bench.call() == "ours"
        assert second.undo() == []

    return restored(bench, again)


def run_foreign_below(bench: Bench) -> str:
    bench.lab.load(bench.module)
    try:
        site, foreign = bench.wrapped()
        site.write(foreign)
    except Exception:
        foreign = None  # where nobody can put anything, there is no stranger
    before = bench.snapshot()
    bench.lab.apply()
    assert bench.lab.status() == "blocked"
    assert bench.snapshot() == before
    if foreign is not None:
        assert site.read() is foreign
        site.write(site.raw if site.own else ABSENT)
    return f"blocked: {bench.codes()}"


def run_foreign_on_top(bench: Bench) -> str:
    bench.lab.load(bench.module)
    made = bench.lab.apply()
    if bench.lab.status() != "applied":
        return bench.blocked()
    site, foreign = bench.wrapped()
    ours = site.raw
    site.write(foreign)
    before = bench.snapshot()
    (left,) = made.undo()
    assert bench.lab.status() == "blocked"
    assert bench.lab.path(bench.kind.target) in left
    assert bench.snapshot() == before
    site.write(ours)
    assert made.undo() == []
    assert bench.call() == "original"
    return "blocked, then restored"


def failing(bench: Bench, member: int, error: BaseException | None) -> str:
    """Apply, and let the write of one member fail: by its owner's doing, or since its site has changed meanwhile."""
    bench.lab.load(bench.module)
    made = bench.lab.engine()
    if bench.lab.decision() == "block":
        made.apply()
        return bench.blocked()
    guard = bench.lab.load("guard")
    before = bench.snapshot()
    site = resolve(bench.lab.path(bench.kind.target), "global")
    if member != 1:
        guard.RAISE["ab"[member // 2]] = error or RuntimeError("refused")
    elif error is None:
        site.write(strange := bench.wrapped()[1])
    else:
        prepared = made.plan.groups["lab.it"].members[1]
        assert prepared.site is not None
        prepared.site = interrupting(prepared.site)
    try:
        made.apply()
        outcome = bench.lab.status()
    except KeyboardInterrupt:
        outcome = "interrupted"
        assert bench.lab.status() == "rolled_back"
    guard.RAISE.clear()
    if member == 1 and error is None:
        assert site.read() is strange
        site.write(site.raw if site.own else ABSENT)
        # Nothing but the first member was written, and that was taken back.
        outcome = {"blocked": "rolled_back"}.get(outcome, outcome)
    after = bench.snapshot()
    assert {key: after[key] for key in before} == before
    assert bench.call() == "original"
    return outcome


def interrupting(site: Site) -> Site:
    """The same site, at whose first write an interrupt comes: the value is stored, the writer does not learn of it."""
    comes = [KeyboardInterrupt()]

    class Interrupting(Site):
        def write(self, value: object) -> None:
            super().write(value)
            if comes:
                raise comes.pop()

    return Interrupting(**vars(site))


RUNNERS: dict[str, Callable[[Bench], str]] = {
    "before import": run_before_import,
    "after import": run_after_import,
    "forced without evidence": run_forced,
    "twice": run_twice,
    "undo": run_undo,
    "undo twice": run_undo_twice,
    "applied again after undo": run_applied_again,
    "foreign wrapper below": run_foreign_below,
    "foreign wrapper on top": run_foreign_on_top,
    **{f"failure at member {member}": functools.partial(failing, member=member, error=None) for member in range(3)},
    **{
        f"interrupt at member {member}": functools.partial(failing, member=member, error=KeyboardInterrupt())
        for member in range(3)
    },
}


@pytest.mark.parametrize(("kind", "order", "outcome"), TABLE)
def test_battery(lab: Lab, kind: str, order: str, outcome: str) -> None:
    needs = KINDS[kind].needs
    if needs and importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    assert RUNNERS[order](Bench(lab, KINDS[kind])) == outcome
