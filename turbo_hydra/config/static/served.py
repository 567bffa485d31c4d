# SPDX-License-Identifier: Apache-2.0
"""What import groups put in the place of modules, for reading: the same text that an import would run.

The functions that make such texts belong to catalogs, and are called; of the code that is read nothing is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_hydra.config.static.trees import SourceFile, SourceTree
from turbo_hydra.engine.declarations import Group, Member
from turbo_hydra.engine.import_members import ImportContext
from turbo_hydra.engine.imports import made_file
from turbo_hydra.engine.objects import load_object
from turbo_hydra.engine.options import make_options


@dataclass(frozen=True)
class Serving:
    """A member of an import group that is on, with its group's options."""

    group: Group
    member: Member
    options: Any


def servings(groups: Sequence[Group], options: Mapping[str, Mapping[str, Any]]) -> tuple[Serving, ...]:
    """The members of the import groups among `groups`, in order.

    Raises
    ------
    OptimizationConfigError
        If an option is unknown or has the wrong type.
    """
    return tuple(
        Serving(group, member, make_options(group, options.get(group.id, {})))
        for group in groups
        if group.is_import_group
        for member in group.members
    )


class Served:
    """A source tree of the modules that import groups serve, in front of the trees that they are made from.

    Parameters
    ----------
    trees : sequence of SourceTree
        Where the originals are.
    serving : sequence of Serving
        What is served; of two for one module the last counts, as at an import.
    repository : Path
        What the functions that make texts are told the model's repository is.
    """

    def __init__(self, trees: Sequence[SourceTree], serving: Sequence[Serving], repository: Path) -> None:
        self._trees = trees
        self._repository = repository
        self._rules = {
            item.member.target: item for item in serving if item.member.kind in ("replace_import", "optional_import")
        }
        self._found: dict[str, SourceFile | None] = {}

    def find(self, module: str) -> SourceFile | None:
        """The module as it is served, None where none of that name is."""
        if module not in self._rules:
            return None
        if module not in self._found:
            self._found[module] = self._made(self._rules[module])
        return self._found[module]

    def _made(self, rule: Serving) -> SourceFile | None:
        name, member = rule.member.target, rule.member
        original = self._original(name)
        if member.kind == "optional_import":
            why = f"group '{rule.group.id}' serves a stand-in for '{name}', which is absent"
            return SourceFile(name, name, None, True, problem=why) if original is None else None
        if not member.source:
            return self._original(member.replacement)
        file = made_file(rule.group.id, name)
        package = original is not None and original.is_package
        dist, version = (original.dist, original.version) if original is not None else (None, None)
        text, why = None, ""
        try:
            context = ImportContext(name, rule.options, self._repository)
            text = load_object(member.replacement)(None if original is None else original.text, context)
        except Exception as error:
            why = f"group '{rule.group.id}' cannot serve '{name}': {type(error).__name__}: {error}"
        return SourceFile(name, file, text, package, dist, version, why)

    def _original(self, module: str) -> SourceFile | None:
        return next((found for tree in self._trees if (found := tree.find(module)) is not None), None)


def aliases(serving: Sequence[Serving]) -> dict[str, str]:
    """What `import_alias` members add: the path of the new name to that of its object."""
    return {item.member.target: item.member.replacement for item in serving if item.member.kind == "import_alias"}
