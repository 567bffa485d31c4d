# SPDX-License-Identifier: Apache-2.0
"""What a name can stand for in a text: a module, a definition, or nothing that the text tells."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from turbo_hydra.config.static.scopes import Scope
from turbo_hydra.config.static.trees import SourceFile
from turbo_hydra.engine.definitions import Definition, Found, SourceIndex


@dataclass(frozen=True)
class Unseen:
    """What the text does not tell, and why."""

    reason: str


@dataclass(frozen=True)
class Native(Unseen):
    """A name in a module that is there and has no Python source."""

    file: SourceFile


@dataclass(frozen=True)
class Instance(Unseen):
    """An object that calling a class makes: what it holds is not in the text, what its class defines is."""

    cls: Defined


@dataclass(frozen=True)
class Absent:
    """A name that is not there."""

    reason: str


class Module:
    """A module's text, parsed once."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.problem = ""
        self.index: SourceIndex | None = None
        if file.text is None:
            self.problem = file.problem or f"{file.file} has no Python source"
            return
        try:
            self.index = SourceIndex(file.text)
        except (SyntaxError, ValueError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
            message = error.msg if isinstance(error, SyntaxError) else str(error)
            self.problem = f"{file.file} cannot be parsed by this Python: {message}{line}"

    @property
    def name(self) -> str:
        """The dotted name."""
        return self.file.module

    @cached_property
    def scope(self) -> Scope:
        """What the module binds."""
        return Scope(self.index.tree.body if self.index else ())

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.name if self.file.is_package else self.name.rpartition(".")[0]


@dataclass(frozen=True)
class Defined:
    """A definition in a module; several for the accessors of a property."""

    module: Module
    qualname: str
    parts: tuple[Found, ...]

    @property
    def found(self) -> Found:
        """The definition, the first of several."""
        return self.parts[0]

    @property
    def node(self) -> Definition:
        """Its syntax tree."""
        return self.parts[0].node

    @cached_property
    def scope(self) -> Scope:
        """What a class body binds."""
        return Scope(self.node.body, f"{self.qualname}.")


Thing: TypeAlias = Module | Defined | Unseen | Absent
Place: TypeAlias = Defined | Unseen | Absent
