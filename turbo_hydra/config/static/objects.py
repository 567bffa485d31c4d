# SPDX-License-Identifier: Apache-2.0
"""From a dotted path to the definition behind it, by following the text as Python would run it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Sequence

from turbo_hydra.config.static.hierarchy import merged
from turbo_hydra.config.static.scopes import Binding, Scope, is_decorated_as
from turbo_hydra.config.static.things import Absent, Defined, Instance, Module, Native, Place, Thing, Unseen
from turbo_hydra.config.static.trees import SourceFile, SourceTree
from turbo_hydra.engine.definitions import Definition, Found, first_line

_MAX_STEPS = 64


class Names:
    """Follows names through the modules of some source trees.

    Parameters
    ----------
    trees : sequence of SourceTree
        Searched in order; the first that has a top-level package has all of it.
    parsed : dict, optional
        Modules by their files, for readers of several states of one tree to share.
    aliases : dict, optional
        Names that are added to modules which lack them, each with the path of its object.
    """

    def __init__(
        self,
        trees: Sequence[SourceTree],
        parsed: dict[SourceFile, Module] | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self._parsed = {} if parsed is None else parsed
        self._aliases = aliases or {}
        self._trees = trees
        self._modules: dict[str, Module | None] = {}
        self._depth = 0

    def module(self, name: str) -> Module | None:
        """The module of that name, None where no tree has it."""
        if name not in self._modules:
            self._modules[name] = None
            top = name.partition(".")[0]
            for tree in self._trees:
                file = tree.find(name)
                if file is not None and (file.text is not None or name != top or not self._better(tree, name)):
                    self._modules[name] = self._module_of(file)
                    break
                if file is None and tree.find(top) is not None and tree.find(top).text is not None:  # type: ignore[union-attr]
                    break
        return self._modules[name]

    def _module_of(self, file: SourceFile) -> Module:
        if file not in self._parsed:
            self._parsed[file] = Module(file)
        return self._parsed[file]

    def _better(self, tree: SourceTree, name: str) -> bool:
        """Whether a later tree has a real package where `tree` has only a folder of that name."""
        later = self._trees[list(self._trees).index(tree) + 1 :]
        return any(found is not None and found.text is not None for found in (item.find(name) for item in later))

    def resolve(self, path: str) -> Thing:
        """What a dotted path leads to: the longest prefix that is a module, then names."""
        parts = path.split(".")
        count = 0
        while count < len(parts) and self.module(".".join(parts[: count + 1])) is not None:
            count += 1
        first: Thing | None = None
        for length in range(count, 0, -1):
            thing: Thing = self.module(".".join(parts[:length])) or Absent(f"there is no module '{path}'")
            for part in parts[length:]:
                thing = self.attribute(thing, part)
            if not isinstance(thing, Absent):
                return thing
            first = first or thing
        return first or Absent(f"there is no module '{parts[0]}'")

    def attribute(self, thing: Thing, name: str) -> Thing:
        """What `thing.name` is."""
        self._depth += 1
        try:
            if self._depth > _MAX_STEPS:
                return Unseen(f"'{name}' is imported in a circle")
            if isinstance(thing, Module):
                return self.in_module(thing, name)
            if isinstance(thing, Defined):
                if isinstance(thing.node, ast.ClassDef):
                    return self.member(thing, name)
                return Unseen(f"'{name}' is an attribute of a function, which code sets")
            return thing
        finally:
            self._depth -= 1

    def in_module(self, module: Module, name: str) -> Thing:
        """What a module's global name is."""
        if module.index is None:
            below = self.module(f"{module.name}.{name}") if module.file.is_package else None
            return below or (
                Native(module.problem, module.file) if module.file.text is None else Unseen(module.problem)
            )
        bindings = module.scope.get(name)
        if bindings:
            return self._bound(module, bindings, name, module.scope)
        for star in reversed(module.scope.stars):
            source = self.module(self.absolute(module, star.module or ""))
            thing = self.attribute(source, name) if source is not None and not name.startswith("_") else None
            if thing is not None and not isinstance(thing, Absent):
                return thing
        below = self.module(f"{module.name}.{name}") if module.file.is_package else None
        if below is not None:
            return below
        alias = self._aliases.get(f"{module.name}.{name}")
        if alias is not None:
            return self.resolve(alias)
        if module.scope.get("__getattr__"):
            return Unseen(f"{module.file.file} makes '{name}' on demand (it has a __getattr__)")
        return Absent(f"{module.file.file} does not define '{name}'")

    def member(self, cls: Defined, name: str) -> Thing:
        """What a class's attribute is: its own, or that of the first base in resolution order that has it."""
        override = cls.module.scope.attributes.get((cls.qualname, name))
        if override is not None:
            return Unseen(f"{cls.module.file.file}:{override} assigns '{cls.qualname}.{name}' after the class body")
        for place in self.resolution_order(cls):
            if isinstance(place, (Unseen, Absent)):
                return Unseen(f"'{name}' is inherited, and {place.reason}")
            bindings = place.scope.get(name)
            if bindings:
                return self._bound(place.module, bindings, name, place.scope)
            if is_decorated_as(place.node, "dataclass", "total_ordering", "attrs", "define") and name.startswith("__"):
                return Unseen(f"'{name}' may be made by a decorator of class {place.qualname}")
        return Absent(f"class {cls.qualname} has no '{name}'")

    def resolution_order(self, cls: Defined) -> list[Place]:
        """The classes that an attribute is looked up in, as in `__mro__`; what cannot be seen stands for itself."""
        return _linear(self, cls, ())

    def base(self, cls: Defined, expression: ast.expr) -> Defined | Unseen | Absent | None:
        """The class that a base names; None for those that bring no attribute of their own."""
        if isinstance(expression, ast.Subscript):
            expression = expression.value
        dotted = self.dotted(cls.module, expression)
        if dotted in ("builtins.object", "typing.Generic", "typing.Protocol", "abc.ABC", "typing_extensions.Protocol"):
            return None
        text = ast.unparse(expression)
        thing = self.expression(cls.module, expression, cls.module.scope)
        if isinstance(thing, Defined) and isinstance(thing.node, ast.ClassDef):
            return thing
        reason = thing.reason if isinstance(thing, (Unseen, Absent)) else "it is no class statement"
        return Unseen(f"base '{text}' of class {cls.qualname} cannot be seen: {reason}")

    def expression(self, module: Module, expression: ast.expr, scope: Scope) -> Thing:
        """What a name or a dotted name means in a module, inside `scope`."""
        if isinstance(expression, ast.Name):
            bindings = scope.get(expression.id) if scope is not module.scope else []
            if bindings:
                return self._bound(module, bindings, expression.id, scope)
            thing = self.in_module(module, expression.id)
            if isinstance(thing, Absent) and hasattr(builtins, expression.id):
                return Unseen(f"'{expression.id}' is built in")
            return thing
        if isinstance(expression, ast.Attribute):
            return self.attribute(self.expression(module, expression.value, scope), expression.attr)
        return Unseen(f"it is made by an expression: {_short(expression)}")

    def dotted(self, module: Module, expression: ast.expr) -> str | None:
        """The full dotted name that an expression spells, through the module's imports; None where it spells none."""
        if isinstance(expression, ast.Attribute):
            inner = self.dotted(module, expression.value)
            return None if inner is None else f"{inner}.{expression.attr}"
        if not isinstance(expression, ast.Name):
            return None
        bindings = module.scope.get(expression.id)
        if not bindings:
            return f"builtins.{expression.id}" if hasattr(builtins, expression.id) else None
        binding = bindings[-1]
        if binding.module is None:
            return f"{module.name}.{expression.id}"
        base = self.absolute(module, binding.module)
        return base if binding.attribute is None else f"{base}.{binding.attribute}"

    def _bound(self, module: Module, bindings: list[Binding], name: str, scope: Scope) -> Thing:
        if len(bindings) > 1 and is_decorated_as(bindings[0].node, "property", "cached_property", "getter"):
            return self._property(module, bindings, name, scope)
        if len(bindings) > 1:
            lines = ", ".join(str(binding.line) for binding in bindings)
            return Unseen(
                f"{module.file.file} binds '{scope.prefix}{name}' on lines {lines}; which one runs is not in the text"
            )
        return self._one(module, bindings[0], name, scope)

    def _one(self, module: Module, binding: Binding, name: str, scope: Scope) -> Thing:
        node = binding.node
        if isinstance(node, Definition):
            found = module.index.at(first_line(node), node.name) if module.index else None
            if found is None:
                return Unseen(f"{module.file.file}:{binding.line} cannot be read again")
            return Defined(module, scope.prefix + node.name, (found,))
        if binding.module is not None:
            return self._imported(module, binding)
        if isinstance(node, ast.Delete):
            return Absent(f"{module.file.file}:{binding.line} deletes '{name}'")
        if isinstance(node, (ast.Name, ast.Attribute)) and not (isinstance(node, ast.Name) and node.id == name):
            return self.expression(module, node, scope)
        if isinstance(node, ast.expr):
            reason = f"{module.file.file}:{binding.line} makes '{name}' by an expression: {_short(node)}"
            made = self.expression(module, node.func, scope) if isinstance(node, ast.Call) else None
            if isinstance(made, Defined) and isinstance(made.node, ast.ClassDef):
                return Instance(reason, made)
            return Unseen(reason)
        return Unseen(f"{module.file.file}:{binding.line} binds '{name}'")

    def _property(self, module: Module, bindings: list[Binding], name: str, scope: Scope) -> Thing:
        accessors: dict[str, Found] = {}
        for binding in bindings:
            node = binding.node
            found = module.index.at(binding.line, name) if module.index and isinstance(node, Definition) else None
            if found is None or binding.conditional:
                return Unseen(
                    f"{module.file.file}:{binding.line} makes a part of property '{name}' that cannot be told"
                )
            kind = next((item for item in ("setter", "deleter") if is_decorated_as(found.node, item)), "getter")
            accessors[kind] = found
        parts = tuple(accessors[kind] for kind in ("getter", "setter", "deleter") if kind in accessors)
        return Defined(module, scope.prefix + name, parts)

    def _imported(self, module: Module, binding: Binding) -> Thing:
        name = self.absolute(module, binding.module or "")
        if not name:
            return Unseen(f"{module.file.file}:{binding.line} imports from above its top package")
        source = self.module(name)
        if source is None:
            return Unseen(f"{module.file.file}:{binding.line} imports '{name}', which is not there")
        if binding.attribute is None:
            return source
        if source is module:
            # `from . import x` inside the package itself: a submodule.
            return self.module(f"{name}.{binding.attribute}") or Absent(
                f"there is no module '{name}.{binding.attribute}'"
            )
        return self.attribute(source, binding.attribute)

    def absolute(self, module: Module, name: str) -> str:
        """The full name of a module that is imported by a name with leading dots; empty above the top package."""
        level = len(name) - len(name.lstrip("."))
        if level == 0:
            return name
        parts = module.package.split(".")
        if level - 1 >= len(parts):
            return ""
        base = ".".join(parts[: len(parts) - level + 1])
        rest = name[level:]
        return f"{base}.{rest}" if rest else base


def _short(node: ast.expr) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else text[:57] + "..."


def _linear(names: Names, cls: Defined, below: tuple[Definition, ...]) -> list[Place]:
    if cls.node in below:
        return [Unseen(f"class {cls.qualname} is its own base")]
    if not isinstance(cls.node, ast.ClassDef):
        return []
    bases = [base for item in cls.node.bases if (base := names.base(cls, item)) is not None]
    rows: list[list[Place]] = [
        _linear(names, base, (*below, cls.node)) if isinstance(base, Defined) else [base] for base in bases
    ]
    return [cls, *merged([*rows, list(bases)])]
