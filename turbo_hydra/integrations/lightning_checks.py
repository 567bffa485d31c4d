# SPDX-License-Identifier: Apache-2.0
"""Whether the groups can reach the model that a Trainer holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turbo_hydra.engine.apply import Engine

# Packages that come before any model; what they hold is rebound, and they are told of in the report.
_FRAMEWORKS = frozenset({"torch", "lightning", "pytorch_lightning", "lightning_fabric", "torchmetrics", "__main__"})
_MOST_NAMED = 3


def imported_before(engine: Engine, model: Any) -> list[str]:
    """A sentence if modules that the model's classes live in were imported before the engine ran."""
    homes = {type(part).__module__ for _, part in parts(model)}
    early = sorted(home for home in homes & engine.plan.loaded if home.partition(".")[0] not in _FRAMEWORKS)
    if not early:
        return []
    return [
        f"{_named(early)} of the model {'was' if len(early) == 1 else 'were'} imported before turbo_hydra.apply(), so "
        "what they took from other modules may be the originals; call it above their import, or start the script with "
        "turbo-train"
    ]


def own_attributes(engine: Engine, model: Any) -> list[str]:
    """A sentence for each applied group whose target an instance in the model hides by an attribute of its own.

    `forward` bound to an instance, by a library that wraps it or by hand, is found before that of the class.
    """
    sites = [
        (outcome.prepared.group.id, member.site)
        for outcome in engine.outcomes.values()
        if outcome.status == "applied"
        for member in outcome.prepared.members
        if member.site is not None and isinstance(member.site.owner, type) and not member.member.observer
    ]
    hidden: dict[tuple[str, str], list[str]] = {}
    for path, part in parts(model):
        for group, site in sites:
            if isinstance(part, site.owner) and site.name in vars(part):
                hidden.setdefault((group, site.name), []).append(f"'{path}' ({type(part).__qualname__})")
    return [
        f"group '{group}' does not reach {_named(places)} of the model, since {name} is an attribute of the instance; "
        "let it be bound after turbo_hydra.apply() to what the class has then, or leave the group out"
        for (group, name), places in hidden.items()
    ]


def parts(model: Any) -> Iterator[tuple[str, Any]]:
    """All modules of the model with their paths, those behind `torch.compile` included; the model itself is ''."""
    yield from model.named_modules()


def _named(items: Iterable[str]) -> str:
    known = list(items)
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    return ", ".join(known[:_MOST_NAMED]) + more
