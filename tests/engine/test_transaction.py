# SPDX-License-Identifier: Apache-2.0
"""Writes that are taken back exactly, whatever happened in between."""

from __future__ import annotations

import functools
import types
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra.engine.targets import ABSENT, Site
from turbo_hydra.engine.transaction import SiteChangedError, Transaction, covered, take_back


def site(owner: Any, name: str) -> Site:
    held = owner if isinstance(owner, dict) else vars(owner)
    own = name in held
    return Site(f"owner.{name}", owner, name, held.get(name, None), own, "function")


def module(**values: Any) -> types.ModuleType:
    made = types.ModuleType("made")
    vars(made).update(values)
    return made


def test_a_write_holds_and_is_taken_back() -> None:
    owner = module(f=len)
    made = Transaction()
    made.write(site(owner, "f"), sum)
    assert vars(owner)["f"] is sum
    assert made.rollback() == []
    assert vars(owner)["f"] is len
    assert made.writes == []
    assert made.rollback() == []


def test_what_was_absent_is_absent_again() -> None:
    class Base:
        def m(self) -> int:
            return 1

    class Child(Base):
        pass

    made = Transaction()
    made.write(Site("Child.m", Child, "m", vars(Base)["m"], False, "method"), len)
    assert "m" in vars(Child)
    made.rollback()
    assert "m" not in vars(Child)


def test_a_site_that_changed_since_it_was_prepared_is_not_written() -> None:
    owner = module(f=len)
    prepared = site(owner, "f")
    vars(owner)["f"] = sum
    made = Transaction()
    with pytest.raises(SiteChangedError, match=r"'owner\.f' has changed since it was checked"):
        made.write(prepared, max)
    assert vars(owner)["f"] is sum
    assert made.writes == []


def test_a_name_that_came_into_being_since_is_not_overwritten() -> None:
    class Base:
        pass

    prepared = Site("Base.m", Base, "m", len, False, "method")
    Base.m = sum  # type: ignore[attr-defined]
    with pytest.raises(SiteChangedError):
        Transaction().write(prepared, max)
    assert Base.m is sum  # type: ignore[attr-defined]


class Translating(dict[str, Any]):
    """Stores something else than it is given."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value if value is len else (value,))


def test_an_owner_that_stores_something_else_is_put_back() -> None:
    owner = Translating()
    dict.__setitem__(owner, "f", len)
    made = Transaction()
    with pytest.raises(SiteChangedError, match="does not hold what was written"):
        made.write(Site("owner.f", owner, "f", len, True, "function"), sum)
    assert made.rollback() == []
    assert owner["f"] is len


class Sticky(types.ModuleType):
    """Accepts one write and no more."""

    def __setattr__(self, name: str, value: Any) -> None:
        if "written" in vars(self):
            raise RuntimeError("sealed")
        vars(self)["written"] = True
        vars(self)[name] = value


def test_what_cannot_be_put_back_is_told_and_the_rest_is_put_back() -> None:
    first, sticky, last = module(f=len), Sticky("sticky"), module(f=len)
    vars(sticky)["f"] = len
    made = Transaction()
    for owner in (first, sticky, last):
        made.write(site(owner, "f"), sum)
    (problem,) = made.rollback()
    assert problem == "'owner.f' could not be put back: RuntimeError: sealed"
    assert [vars(item)["f"] for item in (first, last)] == [len, len]
    assert vars(sticky)["f"] is sum


def test_a_site_written_twice_in_one_transaction_is_put_back_through_both() -> None:
    owner = module(f=len)
    made = Transaction()
    made.write(site(owner, "f"), sum)
    made.write(site(owner, "f"), max)
    assert vars(owner)["f"] is max
    assert made.rollback() == []
    assert vars(owner)["f"] is len


def test_the_write_that_somebody_else_covered_is_found() -> None:
    first, second = module(f=len), module(f=len)
    made = Transaction()
    made.write(site(first, "f"), sum)
    made.write(site(second, "f"), sum)
    assert covered({"a.x": made}) == {}
    vars(second)["f"] = max
    assert covered({"a.x": made}) == {"a.x": made.writes[1]}


def test_what_lies_below_something_that_stays_stays_too() -> None:
    owner = module(f=len, g=len, h=len, i=len)
    made = {id: Transaction() for id in ("a.x", "b.x", "c.x", "d.x")}
    for id, name in (("a.x", "f"), ("b.x", "f"), ("b.x", "g"), ("c.x", "g"), ("c.x", "h"), ("d.x", "i")):
        made[id].write(site(owner, name), lambda: None)
    vars(owner)["h"] = max
    found = covered(made)
    # c is covered by somebody else at h; b lies below c at g, a below b at f.
    assert {id: write.site.name for id, write in found.items()} == {"c.x": "h", "b.x": "g", "a.x": "f"}
    assert take_back({"d.x": made["d.x"]}) == {"d.x": {}}
    assert vars(owner)["i"] is len


def test_groups_that_belong_together_stay_together() -> None:
    owner = module(f=len, g=len, h=len, i=len, j=len)
    made = {f"{name}.x": Transaction() for name in "abcde"}
    for id, name in (("a.x", "f"), ("b.x", "g"), ("c.x", "h"), ("d.x", "h"), ("e.x", "i")):
        made[id].write(site(owner, name), lambda: None)
    pairs = [("a.x", "b.x"), ("d.x", "b.x")]
    assert covered(made, pairs) == {}
    for taken, stay in (("f", "abcd"), ("g", "abcd"), ("h", "abcd"), ("i", "e")):
        ours = vars(owner)[taken]
        vars(owner)[taken] = max
        found = covered(made, pairs)
        assert "".join(sorted(id[0] for id in found)) == stay, "c lies below d, which stays with b, as a does"
        assert {write.site.name for write in found.values()} <= {taken, "h"}
        vars(owner)[taken] = ours


def test_groups_that_wrote_in_turn_are_taken_back_in_turn() -> None:
    owner = module(f=len, g=len)
    made = {"a.x": Transaction(), "b.x": Transaction(), "c.x": Transaction()}
    for id, name in (("a.x", "f"), ("b.x", "f"), ("b.x", "g"), ("a.x", "g"), ("a.x", "f")):
        made[id].write(site(owner, name), lambda: None)
    assert covered(made) == {}
    assert take_back(made) == {"a.x": {}, "b.x": {}}
    assert (vars(owner)["f"], vars(owner)["g"]) == (len, len)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["f", "g", "h"])), max_size=12))
def test_any_sequence_of_writes_is_taken_back_to_where_it_began(writes: list[tuple[int, str]]) -> None:
    class Owner:
        f = len

    owners: list[Any] = [module(f=len, g=max), Owner, {"f": len, "h": max}]
    before = [dict(item if isinstance(item, dict) else vars(item)) for item in owners]
    made = Transaction()
    for index, name in writes:
        made.write(site(owners[index], name), lambda: None)
    assert covered({"a.x": made}) == {}
    assert made.rollback() == []
    after = [dict(item if isinstance(item, dict) else vars(item)) for item in owners]
    assert after == before


def test_absent_deletes_only_what_is_there() -> None:
    owner = module()
    site(owner, "f").write(len)
    site(owner, "f").write(ABSENT)
    assert "f" not in vars(owner)


class Late(types.ModuleType):
    """Stores what it is given, and then raises."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if value is not len:
            raise KeyboardInterrupt


def test_a_write_that_was_stored_before_it_raised_is_taken_back() -> None:
    owner = Late("late")
    vars(owner)["f"] = len
    made = Transaction()
    with pytest.raises(KeyboardInterrupt):
        made.write(site(owner, "f"), sum)
    assert vars(owner)["f"] is sum
    assert made.rollback() == []
    assert vars(owner)["f"] is len


def test_a_write_that_was_refused_needs_no_taking_back() -> None:
    owner = Sticky("sticky")
    vars(owner).update(f=len, written=True)
    made = Transaction()
    with pytest.raises(RuntimeError, match="sealed"):
        made.write(site(owner, "f"), sum)
    assert made.writes == []


def test_a_name_that_somebody_else_deleted_needs_no_deleting() -> None:
    owner = module()
    for undo in (lambda made: made.rollback(), lambda made: take_back({"a": made}).get("a")):
        made = Transaction()
        made.write(Site("owner.f", owner, "f", ABSENT, False, "function"), sum)
        del owner.f
        assert undo(made) in ([], {})
        assert "f" not in vars(owner)


def test_an_original_that_its_owner_stores_as_something_else_is_told() -> None:
    owner = Translating()
    dict.__setitem__(owner, "f", sum)
    made = Transaction()
    made.write(Site("owner.f", owner, "f", sum, True, "function"), len)
    assert made.rollback() == ["'owner.f' could not be put back: it holds something else"]
    assert owner["f"] == (sum,)


def test_groups_that_are_taken_back_name_what_they_could_not_put_back_and_are_done_with() -> None:
    owner, sticky = module(f=len), Sticky("sticky")
    vars(sticky)["f"] = len
    groups = {"a": Transaction(), "b": Transaction(), "nothing": Transaction()}
    groups["a"].write(site(owner, "f"), sum)
    groups["b"].write(site(sticky, "f"), sum)
    told = take_back(groups)
    assert told == {"a": {}, "b": {(id(sticky), "f"): "'owner.f' could not be put back: RuntimeError: sealed"}}
    assert vars(owner)["f"] is len
    vars(owner)["f"] = max
    assert take_back(groups) == {}, "what was taken back is not taken back again"
    assert vars(owner)["f"] is max


def test_a_cache_is_empty_after_a_write_over_it_and_after_it_comes_back() -> None:
    @functools.lru_cache
    def cached(x: int) -> int:
        return x

    class Owner:
        plain = cached
        static = staticmethod(cached)

    for name in ("plain", "static"):
        made = Transaction()
        cached(1)
        made.write(Site(f"Owner.{name}", Owner, name, vars(Owner)[name], True, "lru_cache"), len)
        assert cached.cache_info().currsize == 0
        cached(1)
        assert made.rollback() == []
        assert cached.cache_info().currsize == 0
