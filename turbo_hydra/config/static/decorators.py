# SPDX-License-Identifier: Apache-2.0
"""Which layers a definition's decorators put around it, where their own text says so."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from turbo_hydra.config.static.objects import Names
from turbo_hydra.config.static.things import Defined, Module
from turbo_hydra.engine.definitions import Definition

# They return what they are given, or give it another kind without a layer of their own.
_PLAIN = frozenset(
    {
        "abc.abstractmethod",
        "abc.abstractproperty",
        "builtins.classmethod",
        "builtins.property",
        "builtins.staticmethod",
        "dataclasses.dataclass",
        "enum.unique",
        "functools.cached_property",
        "functools.total_ordering",
        "torch.jit._overload",
        "torch.jit._overload_method",
        "torch.jit.export",
        "torch.jit.ignore",
        "torch.jit.interface",
        "torch.jit.unused",
        "typing.final",
        "typing.no_type_check",
        "typing.overload",
        "typing.override",
        "typing.runtime_checkable",
        "typing_extensions.final",
        "typing_extensions.overload",
        "typing_extensions.override",
    }
)
_CONTEXT = "torch.utils._contextlib:context_decorator.<locals>.decorate_context"
# What they put around a function is made by code that other code calls, so their text alone does not show it.
_KNOWN = {
    "functools.lru_cache": "functools:_lru_cache_wrapper",
    "functools.cache": "functools:_lru_cache_wrapper",
    "contextlib.contextmanager": "contextlib:contextmanager.<locals>.helper",
    "contextlib.asynccontextmanager": "contextlib:asynccontextmanager.<locals>.helper",
    "torch.no_grad": _CONTEXT,
    "torch.enable_grad": _CONTEXT,
    "torch.inference_mode": _CONTEXT,
    "torch.autograd.no_grad": _CONTEXT,
    "torch.autograd.grad_mode.no_grad": _CONTEXT,
    "torch.autograd.grad_mode.enable_grad": _CONTEXT,
    "torch.autograd.grad_mode.inference_mode": _CONTEXT,
}


def chain(names: Names, module: Module, node: Definition) -> tuple[str, ...] | None:
    """The layers of a definition from outside inwards; None where a decorator's effect is not in the text."""
    layers: list[str] = []
    for decorator in node.decorator_list:
        found = _layers(names, module, decorator)
        if found is None:
            return None
        layers += found
    return tuple(layers)


def _layers(names: Names, module: Module, decorator: ast.expr) -> list[str] | None:
    called = isinstance(decorator, ast.Call)
    expression = decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(expression, ast.Attribute) and expression.attr in ("setter", "getter", "deleter"):
        return []
    dotted = names.dotted(module, expression)
    if dotted in _PLAIN:
        return []
    if dotted in _KNOWN:
        return [_KNOWN[dotted]]
    thing = names.expression(module, expression, module.scope)
    if not isinstance(thing, Defined) or isinstance(thing.node, ast.ClassDef) or thing.node.decorator_list:
        return None
    home = f"{thing.module.name}.{thing.qualname}"
    if home in _PLAIN:
        return []
    if home in _KNOWN:
        return [_KNOWN[home]]
    if called:
        return _of_factory(names, thing)
    return _of_decorator(names, thing.module, thing.node, thing.qualname)


def _of_factory(names: Names, thing: Defined) -> list[str] | None:
    """What `@factory(...)` puts on: the factory returns a decorator that it defines."""
    returned = list(_returns(thing.node.body, None))
    inner = {item.name: item for item in _nested(thing.node)}
    chosen = {item.id for item in returned if isinstance(item, ast.Name) and item.id in inner}
    if len(chosen) != 1 or len(returned) != 1:
        return None
    node = inner[chosen.pop()]
    if node.decorator_list:
        return None
    return _of_decorator(names, thing.module, node, f"{thing.qualname}.<locals>.{node.name}")


def _of_decorator(names: Names, module: Module, node: Definition, qualname: str) -> list[str] | None:
    """What `@decorator` puts on: nothing if it returns its argument, else the function that it defines by wraps()."""
    if isinstance(node, ast.ClassDef):
        return None
    arguments = [*node.args.posonlyargs, *node.args.args]
    if not arguments:
        return None
    given = arguments[0].arg
    returned = list(_returns(node.body, given))
    if not returned or not all(isinstance(item, ast.Name) for item in returned):
        return None
    ids = {item.id for item in returned if isinstance(item, ast.Name)}
    if ids == {given}:
        return []
    inner = {item.name: item for item in _nested(node)}
    if len(ids) != 1 or not ids <= set(inner):
        return None
    wrapper = inner[ids.pop()]
    if not _wraps(names, module, node, wrapper, given):
        return None
    return [f"{module.name}:{qualname}.<locals>.{wrapper.name}"]


def _wraps(names: Names, module: Module, node: Definition, wrapper: Definition, given: str) -> bool:
    """Whether `wrapper` says by functools that it wraps `given`: as its only decorator, or by a call beside it."""
    if len(wrapper.decorator_list) == 1:
        return _is_wraps(names, module, wrapper.decorator_list[0], "functools.wraps", given, 0)
    if wrapper.decorator_list:
        return False
    return any(
        isinstance(item, ast.Expr)
        and _is_wraps(names, module, item.value, "functools.update_wrapper", given, 1)
        and isinstance(item.value, ast.Call)
        and isinstance(item.value.args[0], ast.Name)
        and item.value.args[0].id == wrapper.name
        for item in node.body
    )


def _is_wraps(names: Names, module: Module, item: ast.expr, dotted: str, given: str, position: int) -> bool:
    if not isinstance(item, ast.Call) or len(item.args) <= position or names.dotted(module, item.func) != dotted:
        return False
    argument = item.args[position]
    return isinstance(argument, ast.Name) and argument.id == given


def _nested(node: Definition) -> Iterator[Definition]:
    """The functions that a function's body defines, those under its conditions too."""
    stack: list[ast.AST] = list(node.body)
    while stack:
        item = stack.pop(0)
        if isinstance(item, Definition):
            yield item
        else:
            stack += list(ast.iter_child_nodes(item))


def _returns(body: list[ast.stmt], given: str | None) -> Iterator[ast.expr]:
    """What the body returns, nested functions left out, and what is only reached without an argument `given`."""
    for statement in body:
        if isinstance(statement, Definition):
            continue
        if isinstance(statement, ast.Return):
            yield statement.value or ast.Constant(None)
        elif isinstance(statement, ast.If):
            truth = _is_given(statement.test, given)
            if truth is not False:
                yield from _returns(statement.body, given)
            if truth is not True:
                yield from _returns(statement.orelse, given)
            if truth is True and statement.body and isinstance(statement.body[-1], ast.Return):
                return
        else:
            for name in ("body", "orelse", "finalbody"):
                yield from _returns(getattr(statement, name, []), given)


def _is_given(test: ast.expr, given: str | None) -> bool | None:
    """The value of `given is None` and its like: a decorator without a call always has its argument."""
    if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Name) or test.left.id != given:
        return None
    right = test.comparators[0]
    if len(test.ops) != 1 or not (isinstance(right, ast.Constant) and right.value is None):
        return None
    if isinstance(test.ops[0], ast.Is):
        return False
    return True if isinstance(test.ops[0], ast.IsNot) else None
