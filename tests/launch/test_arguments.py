# SPDX-License-Identifier: Apache-2.0
"""What a script's argparse makes of the settings under `model`."""

from __future__ import annotations

import argparse
import re
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra.launch.arguments import render
from turbo_hydra.launch.job import JobError

NAMES = st.text(string.ascii_lowercase, min_size=2, max_size=6).map(lambda text: f"{text}.{text[0]}")
# argparse itself takes a word that begins with a dash for an option, unless it follows an equals sign.
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20).filter(
    lambda text: not text.startswith("-")
)
NUMBERS = st.integers() | st.floats(allow_nan=False)
VALUES = st.none() | st.booleans() | WORDS | NUMBERS | st.lists(WORDS | NUMBERS, min_size=1, max_size=3)


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.lists(WORDS, max_size=3))
def test_argparse_reads_back_what_was_set(options: dict[str, Any], positional: list[str]) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("words", nargs="*")
    expected: dict[str, Any] = {"words": positional}
    for name, value in options.items():
        if value is None or isinstance(value, bool):
            parser.add_argument(f"--{name}", action="store_true")
            expected[name] = value is True
        else:
            kind = _reader(value)
            parser.add_argument(f"--{name}", action="append", type=kind)
            expected[name] = value if isinstance(value, list) else [value]
    read = vars(parser.parse_args(render({"positional": positional, "args": options, "arg_style": "equals"})))
    assert {name: read[name] for name in expected} == expected


def _reader(value: Any) -> Any:
    examples = value if isinstance(value, list) else [value]

    def read(text: str) -> Any:
        # Each text must be that of one of the values; two values of one text (1 and "1") are one to a script.
        return next((example for example in examples if str(example) == text), None)

    return read


@pytest.mark.parametrize(
    ("model", "rendered"),
    [
        ({}, []),
        ({"args": {"a.b": "v"}}, ["--a.b", "v"]),
        ({"args": {"a.b": "v"}, "arg_style": "equals"}, ["--a.b=v"]),
        ({"args": {"flag": True, "off": False, "none": None}}, ["--flag"]),
        ({"args": {"tag": ["x", "y"]}}, ["--tag", "x", "--tag", "y"]),
        ({"args": {"tag": ["x", "y"]}, "arg_style": "equals"}, ["--tag=x", "--tag=y"]),
        (
            {"args": {"on": True, "off": False, "none": None, "n": 1.5, "s": "x y"}, "arg_style": "values"},
            ["--on=true", "--off=false", "--n=1.5", "--s=x y"],
        ),
        ({"args": {"size": [56, 56]}, "arg_style": "values"}, ["--size=[56, 56]"]),
        ({"args": {"a": {"b": [True, "x", None]}}, "arg_style": "values"}, ['--a.b=[true, "x", null]']),
        ({"args": {"a": {"b": 1, "c": {"d": True}}}}, ["--a.b", "1", "--a.c.d"]),
        ({"args": {"lr": 1e-5, "n": -3}}, ["--lr", "1e-05", "--n", "-3"]),
        ({"args": {"-v": True, "-j": 4}}, ["-v", "-j", "4"]),
        ({"args": {"empty": ""}}, ["--empty", ""]),
        ({"extra": ["--", "e"], "positional": ["c.py", 3], "args": {"x": 1}}, ["c.py", "3", "--x", "1", "--", "e"]),
        ({"args": None, "positional": None, "extra": None}, []),
    ],
)  # fmt: skip
def test_rendering(model: dict[str, Any], rendered: list[str]) -> None:
    assert render(model) == rendered


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"args": {"a": [[1]]}}, "'model.args.a'"),
        ({"args": {"a": [{"b": 1}]}}, "'model.args.a'"),
        ({"args": {"a": [True]}}, "'model.args.a'"),
        ({"args": {"a": {"b": object()}}}, "'model.args.a.b'"),
        ({"args": {"a": {"b": [object()]}}, "arg_style": "values"}, "'model.args.a.b' must be plain data"),
        ({"args": "--lr 3"}, "'model.args'"),
        ({"positional": "cfg.py"}, "'model.positional' must be a list"),
        ({"extra": [None]}, "'model.extra'"),
        ({"arg_style": "colon"}, "'model.arg_style' must be one of space, equals, values, found 'colon'"),
    ],
)
def test_what_has_no_rendering_is_refused_with_its_key(model: dict[str, Any], words: str) -> None:
    with pytest.raises(JobError, match=re.escape(words)):
        render(model)
