# SPDX-License-Identifier: Apache-2.0
"""Members that change imports: what it takes for code to run where it would not.

They form groups of their own, take effect before any other target is resolved, and ordinary groups may depend on them.
"""

from __future__ import annotations

from turbo_hydra.engine.declarations import Member, Place, caller, check_path, is_path
from turbo_hydra.engine.errors import DeclarationError
from turbo_hydra.engine.import_members import ImportContext

__all__ = ["ImportContext", "before_import", "import_alias", "optional_import", "registry_override", "replace_import"]


def replace_import(target: str, replacement: str | None = None, *, source: str | None = None) -> Member:
    """Declare what is served when the module `target` is imported.

    Parameters
    ----------
    target : str
        The module.
    replacement : str, optional
        Dotted name of the module that stands in its place.
    source : str, optional
        Path of a function `(text, context) -> text`: it gets the original's source (None where the module is absent)
        and an `ImportContext`, and returns the text that runs under the target's name.

    Raises
    ------
    DeclarationError
        If not exactly one of `replacement` and `source` is given, or a path is malformed.
    """
    place, _ = caller()
    _check_module("target", target, place)
    if (replacement is None) == (source is None):
        raise DeclarationError(f"{place}: replace_import of '{target}' takes either a replacement module or source=")
    if source is not None:
        check_path(f"source of '{target}'", source, place)
        return Member("replace_import", target, source, source=True, place=place)
    _check_module(f"the replacement of '{target}'", replacement, place)
    return Member("replace_import", target, str(replacement), place=place)


def import_alias(module: str, source: str, alias: str) -> Member:
    """Declare that `module` has the name `alias` for the object at `source`, where it has no such name itself.

    Parameters
    ----------
    module : str
        The module that gets the name.
    source : str
        Path of the object.
    alias : str
        The name.

    Raises
    ------
    DeclarationError
        If a path is malformed.
    """
    place, _ = caller()
    _check_module("module", module, place)
    check_path("source", source, place)
    if not alias.isidentifier():
        raise DeclarationError(f"{place}: alias must be a name, found {alias!r}")
    return Member("import_alias", f"{module}.{alias}", source, place=place)


def optional_import(module: str, names: tuple[str, ...] = (), *, needs: tuple[str, ...] = ()) -> Member:
    """Declare a stand-in for `module` where it is absent.

    Parameters
    ----------
    module : str
        The module.
    names : tuple[str, ...]
        What it has: calling one raises an ImportError. Any other name is an AttributeError.
    needs : tuple[str, ...]
        Modules without which `module` counts as absent: they are imported to see whether they can be. For a package
        that is there in part, such as `tkinter` on a Python without Tk.

    Raises
    ------
    DeclarationError
        If a module or a name is malformed.
    """
    place, _ = caller()
    _check_module("module", module, place)
    names, needs = _names(module, names, place), _modules(module, needs, place)
    return Member("optional_import", module, "", names=names, needs=needs, place=place)


def registry_override(module: str, registry: str, names: tuple[str, ...]) -> Member:
    """Declare that importing `module` registers `names` anew in `registry`, over the entries that are there.

    Parameters
    ----------
    module : str
        The module whose import registers them.
    registry : str
        Path of a mapping, or of an object that keeps its entries in `_module_dict`.
    names : tuple[str, ...]
        The entries.

    Raises
    ------
    DeclarationError
        If a path or name is malformed, or no name is given.
    """
    place, _ = caller()
    _check_module("module", module, place)
    check_path("registry", registry, place)
    if not names:
        raise DeclarationError(f"{place}: registry_override of '{registry}' names no entry")
    return Member("registry_override", registry, module, names=tuple(names), place=place)


def before_import(module: str, function: str) -> Member:
    """Declare a function that runs once, before `module` is executed.

    Parameters
    ----------
    module : str
        The module.
    function : str
        Path of a function `(context) -> None`, given an `ImportContext`.

    Raises
    ------
    DeclarationError
        If a path is malformed.
    """
    place, _ = caller()
    _check_module("module", module, place)
    check_path("function", function, place)
    return Member("before_import", module, function, place=place)


def _check_module(what: str, module: object, place: Place) -> None:
    if not is_path(module):
        raise DeclarationError(f"{place}: {what} must be the dotted name of a module, found {module!r}")


def _names(module: str, names: object, place: Place) -> tuple[str, ...]:
    if (
        isinstance(names, str)
        or not isinstance(names, (tuple, list))
        or not all(isinstance(name, str) and name.isidentifier() for name in names)
    ):
        raise DeclarationError(
            f"{place}: names of optional_import '{module}' must be a tuple of names, found {names!r}"
        )
    return tuple(names)


def _modules(module: str, needs: object, place: Place) -> tuple[str, ...]:
    if isinstance(needs, str) or not isinstance(needs, (tuple, list)) or not all(is_path(item) for item in needs):
        raise DeclarationError(
            f"{place}: needs of optional_import '{module}' must be a tuple of modules, found {needs!r}"
        )
    return tuple(needs)
