# SPDX-License-Identifier: Apache-2.0
"""Another function in the decorators of a function that is there."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from turbo_hydra.engine.evidence import unwrapped


def redecorated(original: Callable[..., Any], make: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    """`make(definition)` inside the decorators that `original` has around its definition.

    A replacement of a decorated method stands where the decorated one stood: what the decorator does before and after
    (casts, warnings of old argument names, modes of autograd) would be gone with it. Here each decorator's own wrapper
    is copied, holding the new function in place of the old one. Another group's dispatcher is not looked through.

    Parameters
    ----------
    original : callable
        What a wrap's factory is given.
    make : callable
        Makes the replacement from the undecorated definition, to which its guards fall back.

    Returns
    -------
    callable
        What `make` returns where nothing is around the definition.

    Raises
    ------
    ValueError
        If a decorator does not hold what it decorates in its closure.
    """
    inner, wrappers = unwrapped(original, getattr(original, "__name__", ""))
    chain = [*wrappers, inner]
    for index, layer in enumerate(chain):
        if _is_dispatcher(layer):
            chain = chain[: index + 1]
            break
    made = make(chain[-1])
    for held, layer in zip(reversed(chain[1:]), reversed(chain[:-1]), strict=True):
        made = _holding(layer, held, made)
    return made


def _is_dispatcher(value: object) -> bool:
    return isinstance(value, types.FunctionType) and value.__code__.co_filename.startswith("<turbo_hydra ")


def _holding(layer: object, held: object, new: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of the function `layer`, whose closure holds `new` where the layer's holds `held`."""
    cells = layer.__closure__ or () if isinstance(layer, types.FunctionType) else ()
    holding = [cell for cell in cells if _content(cell) is held]
    if not isinstance(layer, types.FunctionType) or not holding:
        name = getattr(layer, "__qualname__", type(layer).__qualname__)
        raise ValueError(
            f"the decorator '{name}' does not hold what it decorates in its closure: it cannot be put on anew"
        )
    closure = tuple(types.CellType(new) if cell in holding else cell for cell in cells)
    copy = types.FunctionType(layer.__code__, layer.__globals__, layer.__name__, layer.__defaults__, closure)
    copy.__kwdefaults__ = layer.__kwdefaults__
    copy.__dict__.update(vars(layer))
    for name in ("__module__", "__qualname__", "__doc__"):
        setattr(copy, name, getattr(layer, name))
    copy.__wrapped__ = new  # type: ignore[attr-defined]
    return copy


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None
