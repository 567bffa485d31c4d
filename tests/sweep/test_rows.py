# SPDX-License-Identifier: Apache-2.0
"""The rows of each strategy, and what is compared with what."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra.sweep.rows import Design, Toggle, design
from turbo_hydra.sweep.settings import AblationError

ABC = (Toggle("x.a"), Toggle("x.b"), Toggle("x.c"))
# c needs b.
CHAIN = (Toggle("x.a"), Toggle("x.b"), Toggle("x.c", ("x.b",)))


def on(made: Design) -> dict[str, tuple[str, ...]]:
    return {row.name: tuple(id.partition(".")[2] for id in row.on) for row in made.rows}


def test_leave_one_out() -> None:
    made = design("leave_one_out", ABC)
    assert on(made) == {
        "all": ("a", "b", "c"),
        "all (again)": ("a", "b", "c"),
        "none": (),
        "without x.a": ("b", "c"),
        "without x.b": ("a", "c"),
        "without x.c": ("a", "b"),
    }
    assert made.baseline == "all"
    # The baseline is what both of its runs are on average.
    assert made.contrasts[0].weights == {"without x.a": 1.0, "all": -0.5, "all (again)": -0.5}
    assert made.contrasts[0].pairs == (("all", "without x.a"),)


def test_one_at_a_time() -> None:
    made = design("one_at_a_time", ABC)
    assert on(made) == {
        "none": (),
        "none (again)": (),
        "only x.a": ("a",),
        "only x.b": ("b",),
        "only x.c": ("c",),
    }
    assert made.baseline == "none"
    assert made.contrasts[0].weights == {"none": 0.5, "none (again)": 0.5, "only x.a": -1.0}


def test_cumulative_in_the_given_order() -> None:
    made = design("cumulative", (ABC[2], ABC[0], ABC[1]))
    assert list(on(made).values()) == [(), (), ("c",), ("c", "a"), ("c", "a", "b")]
    assert [contrast.weights for contrast in made.contrasts[:2]] == [
        {"none": 0.5, "none (again)": 0.5, "+ x.c": -1.0},
        {"+ x.c": 1.0, "+ x.a": -1.0},
    ]


def test_pairs() -> None:
    made = design("pairs", ABC)
    assert len(made.rows) == 1 + 1 + 3 + 3
    both = next(contrast for contrast in made.contrasts if contrast.name == "x.a and x.b")
    assert both.kind == "interaction"
    assert both.weights == {
        **{"only x.a": 1.0, "only x.b": 1.0, "only x.a and x.b": -1.0},
        **{"none": -0.5, "none (again)": -0.5},
    }


def test_factorial_has_every_combination() -> None:
    made = design("factorial", ABC)
    assert {row.on for row in made.rows} == {
        tuple(toggle.id for place, toggle in enumerate(ABC) if mask >> place & 1) for mask in range(8)
    }
    a = next(contrast for contrast in made.contrasts if contrast.name == "x.a")
    assert sum(a.weights.values()) == pytest.approx(0)
    assert len(a.pairs) == 4


def test_a_list_is_exactly_those_rows_and_the_first_once_more() -> None:
    made = design("list", ABC, [["x.a"], ["x.a", "x.b"], []])
    assert list(on(made).values()) == [("a",), ("a",), ("a", "b"), ()]
    assert made.baseline == "x.a"
    added, removed, _ = made.contrasts
    assert (added.groups, added.weights) == (("x.b",), {"x.a": 0.5, "x.a (again)": 0.5, "x.a, x.b": -1.0})
    # What a row lacks is judged by what it lacks.
    assert (removed.name, removed.groups, removed.weights) == (
        "x.a",
        ("x.a",),
        {"none": 1.0, "x.a": -0.5, "x.a (again)": -0.5},
    )


@pytest.mark.parametrize(
    ("rows", "said"),
    [([[]], "two rows"), ([[], ["x.z"]], "x.z"), ([[], ["x.c"]], "lacks 'x.b'"), ([[], ["x.a"], ["x.a"]], "twice")],
)
def test_lists_that_cannot_be(rows: list[list[str]], said: str) -> None:
    with pytest.raises(AblationError, match=said):
        design("list", CHAIN, rows)


def test_dependencies_are_respected_and_said() -> None:
    made = design("leave_one_out", CHAIN)
    assert on(made)["without x.b"] == ("a",)
    assert "x.c" in made.row("without x.b").note
    assert next(contrast for contrast in made.contrasts if contrast.name == "x.b").groups == ("x.b", "x.c")
    alone = design("one_at_a_time", CHAIN)
    assert on(alone)["only x.c"] == ("b", "c")
    assert "x.b" in alone.row("only x.c").note
    # What c is worth is told against the row of what it needs.
    assert alone.contrasts[2].weights == {"only x.b": 1.0, "only x.c": -1.0}
    assert all("x.b" in row.on for row in design("factorial", CHAIN).rows if "x.c" in row.on)


def test_what_is_needed_comes_first_whatever_the_order() -> None:
    made = design("cumulative", (CHAIN[2], CHAIN[1], CHAIN[0]))
    assert [toggle.id for toggle in made.toggles] == ["x.b", "x.c", "x.a"]


def test_nothing_to_switch() -> None:
    with pytest.raises(AblationError, match="no group to switch"):
        design("leave_one_out", ())


TOGGLES = st.integers(1, 5).flatmap(
    lambda count: st.tuples(
        *(
            st.tuples(st.just(place), st.sets(st.integers(0, place - 1), max_size=2) if place else st.just(set[int]()))
            for place in range(count)
        )
    )
)


def _closed(items: tuple[tuple[int, set[int]], ...]) -> tuple[Toggle, ...]:
    needs: dict[int, set[int]] = {}
    for place, direct in items:
        needs[place] = direct.union(*(needs[other] for other in direct))
    return tuple(Toggle(f"x.g{place}", tuple(f"x.g{other}" for other in sorted(needs[place]))) for place in needs)


@given(TOGGLES, st.sampled_from(["leave_one_out", "one_at_a_time", "cumulative", "pairs", "factorial"]))
def test_every_design_is_sound(items: tuple[tuple[int, set[int]], ...], strategy: str) -> None:
    toggles = _closed(items)
    made = design(strategy, toggles)
    needs = {toggle.id: set(toggle.depends_on) for toggle in toggles}
    names = [row.name for row in made.rows]
    assert len(set(names)) == len(names)
    assert sum(row.again for row in made.rows) == 1
    for row in made.rows:
        assert all(needs[id] <= set(row.on) for id in row.on), "a group is on without what it needs"
    judged = [contrast for contrast in made.contrasts if contrast.kind == "group"]
    assert [contrast.name for contrast in judged] == [toggle.id for toggle in made.toggles]
    # A gain g of each group, whatever else is on, comes back from the weights as the gain of the groups judged.
    logs = {toggle.id: 0.01 * (place + 1) for place, toggle in enumerate(made.toggles)}
    times = {row.name: -math.fsum(logs[id] for id in row.on) for row in made.rows}
    for contrast in made.contrasts:
        gain = math.fsum(weight * times[name] for name, weight in contrast.weights.items())
        expected = 0.0 if contrast.kind != "group" else math.fsum(logs[id] for id in contrast.groups)
        assert gain == pytest.approx(expected, abs=1e-9)
