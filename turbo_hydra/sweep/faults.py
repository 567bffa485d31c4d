# SPDX-License-Identifier: Apache-2.0
"""What settles a contrast whatever the speed: rows that failed, groups that did nothing, losses that moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turbo_hydra.sweep.numerics import Numerics
from turbo_hydra.sweep.result import OUT_OF_MEMORY, Result
from turbo_hydra.sweep.rows import Contrast, Design
from turbo_hydra.sweep.verdicts import BROKEN, UNDECIDED


def fault(
    contrast: Contrast, design: Design, results: Mapping[str, Sequence[Result]], found: Numerics
) -> tuple[str, str] | None:
    """Return verdict and reason of a contrast that no number of rounds would mend.

    Parameters
    ----------
    contrast : Contrast
        Not the baseline against itself.
    design : Design
        Says what is on in each row.
    results : mapping
        Each row's results, in any order.
    found : Numerics
        What the losses of its rows say.

    Returns
    -------
    tuple of str, or None
        None where its times may be judged.
    """
    failed = _failure(contrast, design, results)
    if failed is not None:
        return failed
    for row, _ in contrast.pairs:
        unused = next((said for result in results.get(row, ()) if (said := _unused(contrast, result))), None)
        if unused:
            return BROKEN, unused
    # What two groups change together was held to their classes when each was judged.
    return (BROKEN, found.why) if found.holds is False and contrast.kind == "group" else None


def takes_memory(about: str) -> bool:
    """Whether what a group says of memory is that it takes some."""
    return not about.strip().lower().startswith(("none", "less", "no ", "same")) and bool(about.strip())


def _failure(contrast: Contrast, design: Design, results: Mapping[str, Sequence[Result]]) -> tuple[str, str] | None:
    failed = {
        name: bad[0] for name in contrast.weights if (bad := [item for item in results.get(name, ()) if not item.ok])
    }
    if not failed:
        return None
    name, result = next(iter(failed.items()))
    said = f"the row '{name}' failed: {result.reason}"
    if result.reason == OUT_OF_MEMORY:
        on = design.row(name).on
        hungry = [toggle.id for toggle in design.toggles if toggle.id in on and takes_memory(toggle.memory)]
        if hungry:
            said += f"; of the groups that are on there, these say that they take memory: {', '.join(hungry)}"
    only_with = failed.keys() <= {row for row, _ in contrast.pairs} and contrast.kind == "group"
    return (BROKEN if only_with else UNDECIDED), said


def _unused(contrast: Contrast, result: Result) -> str | None:
    if not result.ok:
        return None
    for id in contrast.groups:
        said = result.hits.get(id)
        if said is None:
            return f"{id} is in no report of its rows"
        if said["status"] != "applied":
            reasons = ", ".join(said["reasons"])
            return f"{id} was not applied: {said['status']}{f' ({reasons})' if reasons else ''}"
        if said["calls"] == 0:
            return f"{id} was applied and never called"
    return None
