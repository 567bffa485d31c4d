# SPDX-License-Identifier: Apache-2.0
"""Which layers a definition's decorators put around it, where their own text says so."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from turbo_hydra.config.static.calls import GIVEN, arguments, assigned, returns
from turbo_hydra.config.static.objects import Names
from turbo_hydra.config.static.things import Defined, Instance, Module
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
# The like, where it depends on the version: the first whose function is there.
_ONE_OF = {
    f"{home}.{name}": tuple(
        f"{module}:{name}.<locals>.{inner}" for module in ("torch.amp.autocast_mode", "torch.cuda.amp.autocast_mode")
    )
    for name, inner in (("custom_fwd", "decorate_fwd"), ("custom_bwd", "decorate_bwd"))
    for home in ("torch.amp", "torch.amp.autocast_mode", "torch.cuda.amp", "torch.cuda.amp.autocast_mode")
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
    expression = decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(expression, ast.Attribute) and expression.attr in ("setter", "getter", "deleter"):
        return []
    dotted = names.dotted(module, expression)
    if dotted in _PLAIN:
        return []
    if dotted in _KNOWN:
        return [_KNOWN[dotted]]
    if dotted in _ONE_OF:
        return _first_there(names, _ONE_OF[dotted])
    thing = names.expression(module, expression, module.scope)
    bound = 0
    if isinstance(expression, ast.Attribute) and not isinstance(thing, Defined):
        # A method of an object of the module, such as a registry.
        owner = names.expression(module, expression.value, module.scope)
        if isinstance(owner, Instance):
            thing, bound = names.member(owner.cls, expression.attr), 1
    if not isinstance(thing, Defined) or isinstance(thing.node, ast.ClassDef) or thing.node.decorator_list:
        return None
    home = f"{thing.module.name}.{thing.qualname}"
    if home in _PLAIN:
        return []
    if home in _KNOWN:
        return [_KNOWN[home]]
    if isinstance(decorator, ast.Call):
        return _of_factory(names, thing, arguments(thing.node, decorator, bound))
    return _of_decorator(names, thing.module, thing.node, thing.qualname, bound)


def _first_there(names: Names, layers: Sequence[str]) -> list[str] | None:
    for layer in layers:
        if isinstance(names.resolve(layer.replace(":", ".").partition(".<locals>")[0]), Defined):
            return [layer]
    return None


def _of_factory(names: Names, thing: Defined, known: Mapping[str, object]) -> list[str] | None:
    """What `@factory(...)` puts on: the factory returns a decorator that it defines."""
    returned = list(returns(thing.node.body, known))
    inner = {item.name: item for item in _nested(thing.node)}
    chosen = {item.id for item in returned if isinstance(item, ast.Name) and item.id in inner}
    if len(chosen) != 1 or len(returned) != 1:
        return None
    node = inner[chosen.pop()]
    if node.decorator_list:
        return None
    return _of_decorator(names, thing.module, node, f"{thing.qualname}.<locals>.{node.name}")


def _of_decorator(names: Names, module: Module, node: Definition, qualname: str, bound: int = 0) -> list[str] | None:
    """What `@decorator` puts on: nothing if it returns its argument, else the function that it defines by wraps()."""
    if isinstance(node, ast.ClassDef):
        return None
    parameters = [*node.args.posonlyargs, *node.args.args][bound:]
    if not parameters or parameters[0].arg in assigned(node):
        return None
    given = parameters[0].arg
    returned = list(returns(node.body, {given: GIVEN}))
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
