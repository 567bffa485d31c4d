# SPDX-License-Identifier: Apache-2.0
"""Instances that hold a target's name themselves, so that what their class has is not found."""

from __future__ import annotations

import gc
import operator
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, compress, islice, repeat
from typing import Any

from turbo_hydra.engine.targets import Site

# The code of the checks that say so.
OWN_ATTRIBUTE = "instances.own_attribute"
# Who has switched collections off.
_COLLECTING = threading.RLock()


def hiding(sites: Iterable[Site]) -> dict[tuple[int, str], list[object]]:
    """The instances that hide what stands at `sites`, by the site's key; one pass over all objects of the process."""
    # By the identity of a class: a metaclass may define what its classes are equal to, or that they have no hash.
    wanted: dict[int, set[tuple[int, str]]] = {}
    for site in sites:
        if isinstance(site.owner, type):
            wanted.setdefault(id(site.owner), set()).add(site.key)
    found: dict[tuple[int, str], list[object]] = {}
    if not wanted:
        return found
    by_kind: dict[int, list[tuple[int, str]]] = {}
    for instance in _objects():
        kind = type(instance)
        keys = by_kind.get(id(kind))
        if keys is None:
            keys = by_kind[id(kind)] = [key for cls in type.mro(kind) for key in wanted.get(id(cls), ())]
        for key in keys:
            if key[1] in own(instance):
                found.setdefault(key, []).append(instance)
    return found


def _objects() -> Iterator[object]:
    """All objects that the collector knows, but no tuples.

    A tuple that another thread is filling is among them. CPython ends that thread's work with a SystemError if anybody
    refers to it meanwhile (python/cpython#59313). So tuples are dropped before another thread has a turn: inside one
    call that runs no bytecode, and without a collection, whose finalizers would.
    """
    everything = map(gc.get_objects, (None,))  # called by what is consumed below, like all of this
    twice = chain.from_iterable(map(repeat, everything, (2,)))
    one, other = chain.from_iterable(islice(twice, 1)), chain.from_iterable(islice(twice, 1))
    wanted = map(operator.is_not, map(type, other), repeat(tuple))
    # An iterator refers to its list until it is asked for more than there is; and the list to the iterators.
    used_up = (compress(iterator, repeat(False)) for iterator in (wanted, twice))
    kept = chain(compress(one, wanted), *used_up)
    with _COLLECTING:
        collects = gc.isenabled()
        gc.disable()
        try:
            objects = list(kept)
        finally:
            if collects:
                gc.enable()
    objects.reverse()
    while objects:  # itself among them: emptied, it keeps nothing alive
        yield objects.pop()


def own(instance: object) -> Mapping[str, Any]:
    """What an instance itself holds; looking runs no `__getattribute__` or `__getattr__` of its class."""
    try:
        found: Mapping[str, Any] = object.__getattribute__(instance, "__dict__")
    except AttributeError:  # of a class with slots
        return {}
    return found
