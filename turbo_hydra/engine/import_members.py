# SPDX-License-Identifier: Apache-2.0
"""Members of the import kinds made ready, put in force and taken back."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_hydra.engine.checks import Check
from turbo_hydra.engine.evidence import LiveReader
from turbo_hydra.engine.imports import Rule, finder
from turbo_hydra.engine.members import PreparedMember
from turbo_hydra.engine.objects import load_object
from turbo_hydra.engine.selection import Selection


@dataclass(frozen=True)
class ImportContext:
    """What the functions of import members are told.

    Parameters
    ----------
    module : str
        The module that is being imported.
    options : object or None
        An instance of the group's options.
    repository : Path or None
        The model's repository.
    """

    module: str
    options: Any
    repository: Path | None


@dataclass
class PreparedImport(PreparedMember):
    """An import member.

    Attributes
    ----------
    rule : Rule or None
        What was added to the import hook.
    note : str
        What came of it, in a few words.
    """

    rule: Rule | None = None
    note: str = ""
    _undo: list[Callable[[], None]] = field(default_factory=list)

    def prepare(self, selection: Selection, reader: LiveReader, loaded: frozenset[str]) -> None:
        """Check what can be checked without importing the target."""
        target, kind = self.member.target, self.member.kind
        if kind in ("replace_import", "before_import") and target in loaded:
            self.fail(
                "import.timing",
                f"module '{target}' was imported before apply(), so that {kind} cannot take effect; apply earlier",
                expected="not imported yet",
                actual="imported",
            )
        elif kind == "replace_import" and not self.member.source and _spec(self.member.replacement) is None:
            self.fail("replacement.import", f"there is no module '{self.member.replacement}' to serve as '{target}'")
        else:
            self.checks.append(Check("import.timing", "pass", self.group.id, target))

    def install(self, repository: Path | None) -> None:
        """Put the member in force.

        Raises
        ------
        Exception
            Whatever importing a module or loading a function raises; nothing of the member is in force then.
        """
        try:
            getattr(self, f"_install_{self.member.kind}")(repository)
        except BaseException:
            self.uninstall()
            raise

    def uninstall(self) -> None:
        """Take the member back; modules that were served stay imported."""
        while self._undo:
            self._undo.pop()()

    @property
    def error(self) -> str:
        """What went wrong when the module was served; empty if nothing did."""
        return self.rule.error if self.rule else ""

    def to_dict(self) -> dict[str, Any]:
        """The report's entry."""
        served = self.rule.served if self.rule else None
        return {**super().to_dict(), "served": served, "note": self.note}

    def _install_replace_import(self, repository: Path | None) -> None:
        rule = Rule(self.member.target, self.group.id)
        if self.member.source:
            function = load_object(self.member.replacement)
            context = ImportContext(self.member.target, self.options, repository)
            rule.source = lambda text: function(text, context)
        else:
            rule.serve = self.member.replacement
        self._add(rule)

    def _install_before_import(self, repository: Path | None) -> None:
        function = load_object(self.member.replacement)
        context = ImportContext(self.member.target, self.options, repository)
        self._add(Rule(self.member.target, self.group.id, before=[lambda _: function(context)]))

    def _install_optional_import(self, repository: Path | None) -> None:
        target = self.member.target
        missing = next((name for name in self.member.needs if not _importable(name)), None)
        present = target in sys.modules or (missing is None and _spec(target) is not None)
        if present:
            self.note = "present, no stand-in needed"
            return
        self._add(Rule(target, self.group.id, stub=self.member.names, over=missing is not None))
        self.note = f"absent{f' without {missing}' if missing else ''}, a stand-in is served"

    def _install_import_alias(self, repository: Path | None) -> None:
        module = self.member.target.rpartition(".")[0]
        if module in sys.modules:
            self._set_alias(module)
        else:
            self._add(Rule(module, self.group.id, after=[self._set_alias]))

    def _set_alias(self, module: str) -> None:
        owner, name = sys.modules[module], self.member.target.rpartition(".")[2]
        if name in vars(owner):
            self.note = "the module has the name itself"
            return
        setattr(owner, name, load_object(self.member.replacement))
        self.note = "set"
        self._undo.append(lambda: delattr(owner, name))

    def _install_registry_override(self, repository: Path | None) -> None:
        registry = load_object(self.member.target)
        entries = registry if isinstance(registry, MutableMapping) else vars(registry).get("_module_dict")
        if not isinstance(entries, MutableMapping):
            raise TypeError(f"'{self.member.target}' is no mapping and keeps no entries in _module_dict")
        missing = [name for name in self.member.names if name not in entries]
        if missing:
            raise KeyError(f"'{self.member.target}' has no entry '{missing[0]}' to override")
        before = {name: entries.pop(name) for name in self.member.names}
        self._undo.append(lambda: entries.update(before))
        if self.member.replacement in sys.modules:
            raise ImportError(f"'{self.member.replacement}' was imported before apply(), and registered nothing anew")
        importlib.import_module(self.member.replacement)
        unregistered = [name for name in self.member.names if name not in entries]
        if unregistered:
            raise KeyError(f"importing '{self.member.replacement}' did not register '{unregistered[0]}'")
        self.note = "registered anew: " + ", ".join(self.member.names)

    def _add(self, rule: Rule) -> None:
        finder.add(rule)
        self.rule = rule
        self._undo.append(lambda: finder.remove(rule))


def _spec(module: str) -> Any:
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None


def _importable(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True
