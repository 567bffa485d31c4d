# SPDX-License-Identifier: Apache-2.0
"""What is asked of the engine: defaults, and what the settings mean together."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from turbo_hydra.engine.selection import Selection, matches


def test_by_default_nothing_is_on_nothing_is_lifted_and_calls_are_counted() -> None:
    expected: dict[str, Any] = {
        "groups": {},
        "options": {},
        "evidence": {},
        "replacements": {},
        "commits": (),
        "dependencies": {},
        "backends": (),
        "accelerator": "auto",
        "allow_dirty": False,
        "enabled": True,
        "only": None,
        "disable": (),
        "force": (),
        "strict": False,
        "shadow_calls": 0,
        "count_calls": "auto",
        "repository": None,
    }
    made = Selection()
    assert {item.name: getattr(made, item.name) for item in dataclasses.fields(made)} == expected
    assert made.counts
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.strict = True  # type: ignore[misc]


@pytest.mark.parametrize(
    ("settings", "counts"),
    [({}, True), ({"count_calls": "off"}, False), ({"count_calls": "off", "shadow_calls": 1}, True)],
)
def test_shadow_mode_counts_what_it_compares(settings: dict[str, Any], counts: bool) -> None:
    assert Selection(**settings).counts is counts


@pytest.mark.parametrize(
    ("only", "disable", "disabled"),
    [
        (None, (), False),
        (None, ("a.*",), True),
        (None, ("b.*",), False),
        (("a.*",), (), False),
        (("b.*",), (), True),
        ((), (), True),
        (("a.x", "b.*"), ("*.x",), True),
    ],
)
def test_disable_wins_over_only(only: tuple[str, ...] | None, disable: tuple[str, ...], disabled: bool) -> None:
    assert Selection(only=only, disable=disable).is_disabled("a.x") is disabled


def test_globs_are_matched_whole_and_in_their_case() -> None:
    assert matches("a.x", ("b.*", "a.?"))
    assert not matches("a.xy", ("a.x", "A.*", "a.?"))
    assert Selection(force=("a.*",)).is_forced("a.x")
    assert not Selection(force=("b.*",)).is_forced("a.x")
