# SPDX-License-Identifier: Apache-2.0
"""Random catalogs, applied and undone in any order among strangers' patches: the sites hold what the reports say."""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from turbo_hydra.engine import plan
from turbo_hydra.engine.apply import Engine
from turbo_hydra.engine.declarations import replace, wrap
from turbo_hydra.engine.evidence import EvidenceRecord, LiveReader
from turbo_hydra.engine.kinds import function_of, in_kind_of
from turbo_hydra.engine.registry import Registry
from turbo_hydra.engine.selection import Selection
from turbo_hydra.engine.targets import ABSENT, resolve

LIB = """
    import functools

    class Guard(__import__("types").ModuleType):
        def __setattr__(self, name, value):
            if name in vars(self)["REFUSE"]:
                raise RuntimeError("refused")
            super().__setattr__(name, value)

    REFUSE = set()
    __import__("sys").modules[__name__].__class__ = Guard

    def f(x): return ["original"]
    def g(x): return ["original"]
    def h(x): return ["original"]
    alias = f

    class Base:
        def m(self, x): return ["original"]
        @staticmethod
        def s(x): return ["original"]
        @classmethod
        def c(cls, x): return ["original"]

    class Child(Base):
        pass

    TABLE = {"f": f, "k": lambda x: ["original"]}
"""
NEW = """
    def plain(x): return ["ours"]
    def method(self, x): return ["ours"]
    def cmethod(cls, x): return ["ours"]
    def narrow(): return ["ours"]

    def wrapping(original, options):
        def wrapped(*args):
            return ["wrapped", *original(*args)]
        return wrapped

    def broken(original, options):
        raise RuntimeError("no kernel")
"""
TARGETS = ["f", "g", "h", "alias", "Base.m", "Base.s", "Base.c", "Child.m", "Child.s", "Child.c", "TABLE.f"]
# Mostly what can be applied; f, alias and TABLE.f are one object, and a child's method is its base's.
_TARGET = st.sampled_from([*TARGETS, *TARGETS, "nothing"])
_HOW = st.sampled_from(["replace", "replace", "wrap", "wrap", "stack", "stack", "narrow", "broken"])
_UNBOUND = {"m": "method", "c": "cmethod"}


class Attempts(RuleBasedStateMachine):
    """A package, strangers that patch it, and engines that come and go."""

    engines = Bundle("engines")
    numbers = iter(range(10**9))

    def __init__(self) -> None:
        super().__init__()
        self.package = f"machine{next(self.numbers)}"
        self.folder = tempfile.TemporaryDirectory()
        sys.path.insert(0, self.folder.name)
        folder = Path(self.folder.name, self.package)
        folder.mkdir()
        for name, text in (
            ("__init__", ""),
            ("lib", LIB),
            ("new", NEW),
            ("user", "from .lib import f as held, Base\n"),
        ):
            (folder / f"{name}.py").write_text(dedent(text), encoding="utf-8")
        self.lib: Any = __import__(f"{self.package}.lib", fromlist=["lib"])
        self.new: Any = __import__(f"{self.package}.new", fromlist=["new"])
        self.user: Any = __import__(f"{self.package}.user", fromlist=["user"])
        self.evidence: dict[str, tuple[EvidenceRecord, ...]] = {}
        for target in TARGETS:
            site = resolve(self.path(target))
            live = LiveReader().read(site.raw, site.name)
            self.evidence[site.path] = (EvidenceRecord(source=live.source, ast=live.ast, chain=live.chain),)
        self.start = self.snapshot()
        self.living: list[Engine] = []
        # What strangers put where, with what was there before; the last first.
        self.foreign: list[tuple[Any, Any, Any]] = []

    def path(self, target: str) -> str:
        return f"{self.package}.lib.{target}"

    def snapshot(self) -> list[dict[str, Any]]:
        lib = self.lib
        owners = [vars(lib), vars(lib.Base), vars(lib.Child), lib.TABLE, vars(self.user), vars(self.new)]
        return [{key: value for key, value in item.items() if key != "__builtins__"} for item in owners]

    def changes(self) -> list[str]:
        """The names that are not what they were at the start."""
        pairs = zip(self.start, self.snapshot(), strict=True)
        return [
            key
            for before, after in pairs
            for key in {**before, **after}
            if before.get(key, ABSENT) is not after.get(key, ABSENT)
        ]

    @initialize()
    def nothing_is_changed_yet(self) -> None:
        assert self.lib.f(1) == ["original"]

    # What may happen.

    @rule(
        target=engines,
        groups=st.lists(
            st.tuples(
                st.lists(st.tuples(_TARGET, _HOW), min_size=1, max_size=2, unique_by=lambda item: item[0]),
                st.sampled_from([(), (), (), (1,), (1, 2)]),
                st.sampled_from([True, True, True, True, False]),
            ),
            min_size=1,
            max_size=5,
        ),
        refuse=st.sampled_from([set(), set(), {"f"}, {"g", "h"}]),
        force=st.booleans(),
    )
    def apply(self, groups: list[Any], refuse: set[str], force: bool) -> Engine:
        registry = Registry()
        ids = [f"g.n{number}" for number in range(len(groups))]
        for number, (members, needs, _) in enumerate(groups):
            depends = tuple(f"g.n{number - back}" for back in needs if number >= back)
            registry.group(ids[number], *(self.member(*item) for item in members), depends_on=depends)
        selection = Selection(
            groups={id: on for id, (_, _, on) in zip(ids, groups, strict=True)},
            evidence=self.evidence,
            force=("*",) if force else (),
        )
        before = self.snapshot()
        made = Engine(plan.prepare(registry, selection), run_id="machine", describe={})
        assert self.snapshot() == before, "planning writes nothing"
        self.lib.REFUSE.update(refuse)
        try:
            made.apply()
        finally:
            self.lib.REFUSE.clear()
        self.living.append(made)
        for status, count in made.report.summary.items():
            if count:
                event(f"a group is {status}")
        self.check_report(made)
        if not made.report.summary["applied"]:
            assert self.snapshot() == before, "what is not applied has changed nothing"
        return made

    def member(self, target: str, how: str) -> Any:
        path, new = self.path(target), f"{self.package}.new"
        if how in ("wrap", "stack", "broken"):
            return wrap(path, f"{new}.{'broken' if how == 'broken' else 'wrapping'}", stack=how == "stack")
        plain = _UNBOUND.get(target.rpartition(".")[2], "plain") if "." in target else "plain"
        return replace(path, f"{new}.{'narrow' if how == 'narrow' else plain}")

    @rule(engine=consumes(engines))
    def undo(self, engine: Engine) -> None:
        before = self.snapshot()
        summary = engine.report.summary
        left = engine.undo()
        for outcome in engine.outcomes.values():
            assert outcome.status != "applied"
            for write in outcome.transaction.writes:
                assert outcome.status == "blocked"
                assert write.site.key, "what is left alone is still ours to take back later"
        event("something is left alone" if left else "all is taken back")
        if left:
            assert engine.report.summary["blocked"] > summary["blocked"]
        else:
            self.living.remove(engine)
        if not summary["applied"]:
            assert self.snapshot() == before

    @precondition(lambda self: len(self.foreign) < 2)
    @rule(name=st.sampled_from(TARGETS))
    def a_stranger_wraps(self, name: str) -> None:
        site = resolve(self.path(name))
        inner: Callable[..., Any] = function_of(site.raw)

        @functools.wraps(inner)
        def foreign(*args: Any) -> Any:
            return ["foreign", *inner(*args)]

        before = site.read()
        made = in_kind_of(site.raw, foreign)
        site.write(made)
        self.foreign.append((site, before, made))

    @precondition(lambda self: self.foreign)
    @rule()
    def the_last_stranger_leaves(self) -> None:
        site, before, made = self.foreign[-1]
        if site.read() is made:
            site.write(before)
            self.foreign.pop()

    # What must hold.

    def check_report(self, engine: Engine) -> None:
        report = engine.report.to_dict()
        statuses = [entry["status"] for entry in report["execution"]]
        assert sum(report["summary"].values()) == len(statuses)
        by_id = {entry["group"]: entry for entry in report["execution"]}
        for id, entry in by_id.items():
            outcome = engine.outcomes[id]
            if entry["status"] == "applied":
                covered = engine.plan.covered
                needed = [covered.get(id, id) for id in outcome.prepared.group.depends_on]
                assert all(by_id[id]["status"] == "applied" for id in needed)
                shared = [member for member in entry["members"] if member["shared_with"]]
                assert outcome.transaction.writes or len(shared) == len(entry["members"])
            else:
                assert outcome.transaction.writes == []
                assert entry["reasons"] or entry["error"]
        tops: dict[Any, Any] = {}
        for write in sorted(
            (write for outcome in engine.outcomes.values() for write in outcome.transaction.writes),
            key=lambda write: write.number,
        ):
            tops[write.site.key] = write
        for write in tops.values():
            assert write.site.read() is write.after, "the sites hold what the report says"
            assert write.before is not ABSENT or write.site.name not in self.start_of(write.site.owner)

    def start_of(self, owner: Any) -> Any:
        owners = [self.lib, self.lib.Base, self.lib.Child, self.lib.TABLE, self.user, self.new]
        index = next((number for number, item in enumerate(owners) if item is owner), None)
        return {} if index is None else self.start[index]

    @invariant()
    def every_target_can_be_called(self) -> None:
        lib = self.lib
        calls = [lib.f, lib.g, lib.h, lib.alias, lib.TABLE["f"], self.user.held]
        calls += [lib.Base().m, lib.Base.s, lib.Base().s, lib.Base.c, lib.Child().m, lib.Child.s, lib.Child.c]
        for call in calls:
            assert call(1)[-1] in ("original", "ours")

    def teardown(self) -> None:
        # Whoever came last goes first; then nothing may be left of anybody.
        try:
            for _ in range(len(self.foreign) + len(self.living) + 1):
                while self.foreign and self.foreign[-1][0].read() is self.foreign[-1][2]:
                    site, before, _ = self.foreign.pop()
                    site.write(before)
                for engine in list(reversed(self.living)):
                    if not engine.undo():
                        self.living.remove(engine)
            assert self.living == []
            assert self.foreign == []
            assert self.changes() == []
        finally:
            sys.path.remove(self.folder.name)
            for name in [name for name in sys.modules if name.split(".")[0] == self.package]:
                del sys.modules[name]
            self.folder.cleanup()


def attempts(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        # Explaining traces every line of a scan of all modules.
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    )


def test_the_sites_hold_what_the_reports_say() -> None:
    run_state_machine_as_test(Attempts, settings=attempts(15, 10))


@pytest.mark.slow
def test_the_sites_hold_what_the_reports_say_over_many_catalogs() -> None:
    # Each application looks through all loaded modules; in a process of its own they are those of this file.
    done = subprocess.run([sys.executable, __file__], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


if __name__ == "__main__":
    run_state_machine_as_test(Attempts, settings=attempts(300, 20))
