# SPDX-License-Identifier: Apache-2.0
"""The order in which groups are applied."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra.engine.order import execution_order

Graph = tuple[list[str], dict[str, tuple[str, ...]]]


@st.composite
def _graphs(draw: st.DrawFn, *, cycles: bool = True) -> Graph:
    ids = [f"a.{number}" for number in range(draw(st.integers(0, 8)))]
    depends = {}
    for index, id in enumerate(ids):
        others = [*ids, "a.unknown"] if cycles else ids[:index]
        depends[id] = tuple(draw(st.lists(st.sampled_from(others), max_size=3))) if others else ()
    return draw(st.permutations(ids)), depends


@given(_graphs())
def test_each_id_comes_once_and_after_what_it_depends_on(graph: Graph) -> None:
    ids, depends = graph
    done, cyclic = execution_order(ids, depends)
    assert sorted(done + cyclic) == sorted(ids)
    for position, id in enumerate(done):
        for needed in depends[id]:
            assert needed not in ids or done.index(needed) < position


@given(_graphs(cycles=False))
def test_without_a_cycle_everything_is_ordered(graph: Graph) -> None:
    assert execution_order(*graph)[1] == []


@given(_graphs())
def test_what_is_left_lies_on_a_cycle_or_depends_on_one(graph: Graph) -> None:
    ids, depends = graph
    _, cyclic = execution_order(ids, depends)
    assert all(set(depends[id]) & set(cyclic) for id in cyclic)


@given(_graphs())
def test_where_the_given_order_is_possible_it_is_kept(graph: Graph) -> None:
    ids, depends = graph
    done, _ = execution_order(ids, depends)
    assert execution_order(done, depends)[0] == done


@pytest.mark.parametrize(
    ("ids", "depends", "done", "cyclic"),
    [
        ("abc", {}, "abc", ""),
        ("abc", {"a": ("c",)}, "bca", ""),
        ("abc", {"a": ("b",), "b": ("c",)}, "cba", ""),
        ("abcd", {"b": ("d",), "c": ("d",)}, "adbc", ""),
        ("abc", {"a": ("b",), "b": ("a",)}, "c", "ab"),
        ("abc", {"a": ("b",), "b": ("a",), "c": ("a",)}, "", "abc"),
        ("a", {"a": ("x",)}, "a", ""),
        ("", {}, "", ""),
    ],
)
def test_small_graphs(ids: str, depends: dict[str, tuple[str, ...]], done: str, cyclic: str) -> None:
    assert execution_order(ids, depends) == (list(done), list(cyclic))
