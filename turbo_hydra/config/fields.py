# SPDX-License-Identifier: Apache-2.0
"""Checked reading of plain data: each refusal is one sentence with the place, the key, what was expected and found."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from turbo_hydra.config.yaml_reader import Document, KeyPath
from turbo_hydra.engine.errors import OptimizationConfigError

_TRUE = frozenset({"true", "on", "yes"})
_FALSE = frozenset({"false", "off", "no"})


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`; did you mean 'x'?`, or the names there are, or nothing where there are too many to list."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    if close:
        return f"; did you mean '{close[0]}'?"
    if 0 < len(names) <= 24:
        return f"; known: {', '.join(sorted(names))}"
    return ""


def as_boolean(value: object) -> bool | None:
    """`value` as a boolean: true, false, or one of the strings on, off, yes, no, true, false; None for all else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    return None


@dataclass(frozen=True)
class Field:
    """A value in a document, and where it stands.

    Methods return the value in its type, or raise `OptimizationConfigError`. A missing key is None; a method's
    `default` stands in for it.
    """

    document: Document
    path: KeyPath
    value: Any

    @classmethod
    def root(cls, document: Document) -> Field:
        """The whole document."""
        return cls(document, (), document.data)

    @property
    def name(self) -> str:
        """The dotted path of keys."""
        return ".".join(self.path) or "the file"

    @property
    def place(self) -> str:
        """File and line, as far as they are known."""
        return self.document.place(self.path)

    def refuse(self, expected: str) -> NoReturn:
        """Raise with what was expected and what was found."""
        raise OptimizationConfigError(f"{self.place}: '{self.name}' must be {expected}, found {self.value!r}")

    def __getitem__(self, key: str) -> Field:
        return Field(self.document, (*self.path, key), (self.value or {}).get(key))

    def mapping(self, known: Sequence[str] | None = None) -> dict[str, Field]:
        """The fields of a mapping, in order; keys outside `known` are refused with a suggestion."""
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            self.refuse("a mapping")
        for key in self.value:
            if not isinstance(key, str):
                Field(self.document, (*self.path, str(key)), key).refuse("a name (quote it)")
            if known is not None and key not in known:
                item = self[key]
                raise OptimizationConfigError(f"{item.place}: unknown key '{item.name}'{did_you_mean(key, known)}")
        return {key: self[key] for key in self.value}

    def string(self, default: str | None = None, choices: Sequence[str] | None = None) -> str | None:
        """A string, one of `choices` where they are given."""
        if self.value is None:
            return default
        if not isinstance(self.value, str) or not self.value:
            self.refuse("a string" + (" (quote it)" if isinstance(self.value, (int, float)) else ""))
        if choices is not None and self.value not in choices:
            self.refuse("one of " + ", ".join(choices))
        return self.value

    def text(self, default: str = "") -> str:
        """A string that may be empty; `default` where the key is missing."""
        return default if self.value in (None, "") else (self.string() or default)

    def boolean(self, default: bool) -> bool:
        """A boolean; the strings on, off, yes, no, true, false count."""
        if self.value is None:
            return default
        value = as_boolean(self.value)
        if value is None:
            self.refuse("true or false (on, off, yes, no)")
        return value

    def integer(self, default: int, least: int = 0) -> int:
        """A whole number of at least `least`."""
        if self.value is None:
            return default
        if isinstance(self.value, bool) or not isinstance(self.value, int) or self.value < least:
            self.refuse(f"a whole number, {least} or more")
        return self.value

    def strings(self, *, one_is_enough: bool = False) -> tuple[str, ...]:
        """A list of strings; a single string only where `one_is_enough`."""
        if self.value is None:
            return ()
        if one_is_enough and isinstance(self.value, str):
            return (self.value,)
        if not isinstance(self.value, (list, tuple)):
            self.refuse("a list of strings" + (f" (write [{self.value}])" if isinstance(self.value, str) else ""))
        for index, item in enumerate(self.value):
            if not isinstance(item, str) or not item:
                Field(self.document, (*self.path, str(index)), item).refuse("a string")
        return tuple(self.value)
