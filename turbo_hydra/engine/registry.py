# SPDX-License-Identifier: Apache-2.0
"""Where declared groups are kept."""

from __future__ import annotations

import importlib
from typing import Any

from turbo_hydra.engine.declarations import About, Group, Member, declare
from turbo_hydra.engine.errors import DeclarationError, OptimizationConfigError


class Registry:
    """Groups by id, in order of declaration.

    `turbo_hydra.group` declares into the process's default registry while a catalog is being imported; `load` copies
    what a catalog declared from there. A test or an extension makes its own registry and hands it to `apply()`.
    """

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    @property
    def groups(self) -> dict[str, Group]:
        """A copy of the mapping from id to group."""
        return dict(self._groups)

    def get(self, id: str) -> Group | None:
        """The group of that id, or None."""
        return self._groups.get(id)

    def add(self, group: Group) -> Group:
        """Register `group`; the same definition again changes nothing.

        Raises
        ------
        DeclarationError
            If another definition is known under the id.
        """
        known = self._groups.setdefault(group.id, group)
        if known != group:
            raise DeclarationError(
                f"{group.place}: group '{group.id}' is declared with another definition at {known.place}; "
                "rename one of them"
            )
        return known

    def group(
        self,
        id: str,
        *members: Member,
        depends_on: tuple[str, ...] = (),
        compatibility_check: str | None = None,
        options: type[Any] | None = None,
        about: About | None = None,
    ) -> Group:
        """Declare a group and register it here.

        Parameters
        ----------
        id : str
            `catalog.group`, each `[a-z0-9_]+`.
        *members : Member
            What `replace`, `wrap` or the functions of `turbo_hydra.compatibility` return.
        depends_on : tuple[str, ...]
            Ids of groups that must be applied for this one to be.
        compatibility_check : str, optional
            Path of a function `(context) -> CompatibilityResult`.
        options : type, optional
            A dataclass with a default for each field.
        about : About, optional
            Purpose, cost and reach of the group.

        Raises
        ------
        DeclarationError
            If the declaration cannot be meant; the message names its file and line.
        """
        return self.add(
            declare(
                id,
                *members,
                depends_on=depends_on,
                compatibility_check=compatibility_check,
                options=options,
                about=about,
            )
        )

    def load(self, catalog: str) -> tuple[Group, ...]:
        """Import the module `catalog` and register the groups that it declares.

        Raises
        ------
        OptimizationConfigError
            If the module cannot be imported, or declares no group.
        """
        try:
            importlib.import_module(catalog)
        except DeclarationError:
            raise
        except (Exception, SystemExit) as error:
            said = " ".join(str(error).split())
            raise OptimizationConfigError(
                f"catalog '{catalog}' cannot be imported: {type(error).__name__}: {said}"
            ) from error
        prefix = catalog + "."
        found = tuple(
            item
            for item in default_registry._groups.values()
            if item.catalog == catalog or item.catalog.startswith(prefix)
        )
        if not found:
            raise OptimizationConfigError(f"catalog '{catalog}' declares no group; name a module that calls group()")
        for item in found:
            self.add(item)
        return found


default_registry = Registry()


def group(
    id: str,
    *members: Member,
    depends_on: tuple[str, ...] = (),
    compatibility_check: str | None = None,
    options: type[Any] | None = None,
    about: About | None = None,
) -> Group:
    """Declare a group in the catalog that calls; see `Registry.group`."""
    return default_registry.group(
        id, *members, depends_on=depends_on, compatibility_check=compatibility_check, options=options, about=about
    )
