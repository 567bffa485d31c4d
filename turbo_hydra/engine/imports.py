# SPDX-License-Identifier: Apache-2.0
"""The one import hook: what is served in place of a module, and what runs before and after a module is executed.

`sys.meta_path` gets a single finder, which looks only at modules that a rule names; every other import passes it in one
dictionary look-up. `builtins.__import__` is left alone.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import linecache
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

SourceFunction = Callable[[str | None], str]


@dataclass
class Rule:
    """What happens when one module is imported.

    Attributes
    ----------
    serve : str or None
        Dotted name of the module that stands in its place.
    source : callable or None
        Makes the text that runs under the module's name from the original's text (None where there is none).
    stub : tuple[str, ...] or None
        Names of a stand-in for a module that is absent.
    over : bool
        Whether the stand-in is served though the module can be found.
    before, after : list of callables
        Called with the module's name, before it is executed (once) and after it was.
    served : int
        How often a module was executed under the rule.
    error : str
        What went wrong when it was last served.
    """

    name: str
    label: str = ""
    serve: str | None = None
    source: SourceFunction | None = None
    stub: tuple[str, ...] | None = None
    over: bool = False
    before: list[Callable[[str], object]] = field(default_factory=list)
    after: list[Callable[[str], object]] = field(default_factory=list)
    served: int = 0
    error: str = ""


class Finder(MetaPathFinder):
    """Finds the modules that rules name; installs itself with the first rule and leaves with the last."""

    def __init__(self) -> None:
        self.rules: dict[str, list[Rule]] = {}
        self._searching: set[str] = set()

    def add(self, rule: Rule) -> None:
        """Let `rule` govern further imports of its module."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        self.rules.setdefault(rule.name, []).append(rule)

    def remove(self, rule: Rule) -> None:
        """Take `rule` away; a module that it served stays imported."""
        rules = self.rules[rule.name]
        rules.remove(rule)
        if not rules:
            del self.rules[rule.name]
        if not self.rules and self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module that a rule names, with a loader that follows the rules."""
        rules = self.rules.get(fullname)
        if not rules or fullname in self._searching:
            return None
        self._searching.add(fullname)
        try:
            original = original_spec(fullname, path)
        finally:
            self._searching.discard(fullname)
        return _spec(fullname, original, rules)


def original_spec(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """The spec that all finders give; None where the module is absent."""
    for other in list(sys.meta_path):
        if hasattr(other, "find_spec"):  # those of before Python 3.4 have none
            spec = other.find_spec(fullname, path)
            if spec is not None:
                return spec
    return None


def _spec(fullname: str, original: ModuleSpec | None, rules: list[Rule]) -> ModuleSpec | None:
    stubs = [rule for rule in rules if rule.stub is not None]
    made = [rule for rule in rules if rule.serve is not None or rule.source is not None]
    loader: Loader
    if made:
        loader = _ServingLoader(made[-1], original)
        spec = ModuleSpec(fullname, loader, origin=loader.file)
        if original is not None:
            spec.submodule_search_locations = original.submodule_search_locations  # a package stays one
    elif original is None or any(rule.over for rule in stubs):
        if not stubs:
            return None
        loader = _StubLoader(stubs[-1])
        spec = ModuleSpec(fullname, loader, origin=f"stand-in of {stubs[-1].label}", is_package=True)
    else:
        spec = original
        if spec.loader is None:
            return None  # a namespace package is never executed
        loader = spec.loader
    if any(rule.before or rule.after for rule in rules):
        spec.loader = _HookedLoader(loader, rules)
    return spec


class _HookedLoader(Loader):
    """Runs what rules ask for around another loader, which it gives the module back to."""

    def __init__(self, loader: Loader, rules: list[Rule]) -> None:
        self._loader = loader
        self._rules = list(rules)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        """As the other loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        """Execute the module between what runs before and after it."""
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        for rule in self._rules:
            while rule.before:
                rule.before.pop(0)(module.__name__)
        self._loader.exec_module(module)
        for rule in self._rules:
            for function in list(rule.after):
                function(module.__name__)


def made_file(group: str, module: str) -> str:
    """What stands for a file where a group's function made the text of a module."""
    return f"turbo_hydra/{group}/{module}.py"


class _ServingLoader(Loader):
    """Serves another module, or a made text, under a module's name."""

    def __init__(self, rule: Rule, original: ModuleSpec | None) -> None:
        self._rule = rule
        self._original = original
        self._text: str | None = None
        # Not in angle brackets, so that linecache shows the text in tracebacks and evidence can be read from it.
        self.file = made_file(rule.label, rule.name) if rule.source else f"turbo_hydra/{rule.serve}"

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        """Let the machinery make the module."""
        return None

    def get_source(self, fullname: str) -> str | None:
        """The text that is executed."""
        if self._rule.source is None:
            return None
        if self._text is None:
            self._text = self._rule.source(original_text(self._original))
        return self._text

    def exec_module(self, module: types.ModuleType) -> None:
        """Execute the made text, or put the other module in place."""
        try:
            if self._rule.serve is not None:
                sys.modules[module.__name__] = importlib.import_module(self._rule.serve)
            else:
                text = self.get_source(module.__name__) or ""
                module.__file__ = self.file
                linecache.cache[self.file] = (len(text), None, text.splitlines(keepends=True), self.file)
                exec(compile(text, self.file, "exec", dont_inherit=True), module.__dict__)
        except BaseException as error:
            self._rule.error = f"{type(error).__name__}: {error}"
            raise
        self._rule.served += 1


def original_text(spec: ModuleSpec | None) -> str | None:
    """The source text behind a spec; None where there is none."""
    get_source = getattr(spec.loader, "get_source", None) if spec is not None else None
    text = get_source(spec.name) if get_source is not None and spec is not None else None
    return text if isinstance(text, str) else None


class _StubLoader(Loader):
    """Makes a stand-in for an absent module: declared names raise when called, other names do not exist."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        """Let the machinery make the module."""
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        """Give the module its declared names."""
        for name in self._rule.stub or ():
            setattr(module, name, Missing(module.__name__, name))
        self._rule.served += 1


class Missing:
    """A name of a module that is not installed.

    Parameters
    ----------
    module, name : str
        For the message of the ImportError that calling it raises.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise the ImportError that the import itself did not."""
        raise ImportError(
            f"'{self._module}.{self._name}' was called, but '{self._module}' is not installed: "
            "an optional_import group stands in for it",
            name=self._module,
        )

    def __repr__(self) -> str:
        return f"<{self._module}.{self._name}, not installed>"


finder = Finder()
