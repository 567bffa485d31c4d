# SPDX-License-Identifier: Apache-2.0
"""How many samples, tokens and operations one step holds, as the model's configuration says."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

_log = logging.getLogger(__name__)


def tokens_per_step(model: Mapping[str, Any], argv: Sequence[str], samples: int | None) -> int | None:
    """Resolve `model.batch.tokens`: tokens a sample, times the samples; None if the configuration does not say."""
    batch = model.get("batch")
    if not isinstance(batch, Mapping) or batch.get("tokens") is None:
        return None
    each = samples_per_step({**model, "batch": batch["tokens"]}, argv)
    return None if samples is None or each is None else samples * each


def operations_per_step(model: Mapping[str, Any], samples: int | None) -> float | None:
    """Resolve `model.batch.operations`: floating-point operations of a sample, forward and backward, times the samples.

    A multiplication with its addition counts as two. What is computed again in the backward pass does not count: it is
    not work of the model. None if the configuration does not say.
    """
    batch = model.get("batch")
    each = batch.get("operations") if isinstance(batch, Mapping) else None
    if each is None:
        return None
    if isinstance(each, bool) or not isinstance(each, (int, float)) or each <= 0:
        _log.warning("model.batch.operations is %r, which is no number of operations; utilisation is left out", each)
        return None
    return None if samples is None else samples * float(each)


def samples_per_step(model: Mapping[str, Any], argv: Sequence[str]) -> int | None:
    """Resolve `model.batch`, or `model.batch.samples` where it also says the tokens of a sample.

    Parameters
    ----------
    model : mapping
        The `model` group: `batch` is a number, or the name of the script's argument that holds it.
    argv : sequence of str
        The script's arguments; what stands there (also from `model.extra`) goes before `model.args`.

    Returns
    -------
    int or None
        None if the configuration does not say, or names an argument that was not given, with a warning.
    """
    batch = model.get("batch")
    if isinstance(batch, Mapping):
        batch = batch.get("samples")
    if batch is None:
        return None
    if not isinstance(batch, str):
        return _whole(batch, f"model.batch is {batch!r}")
    if batch.isdigit():
        return int(batch)
    name = batch.lstrip("-")
    found = _argument(name, argv)
    if found is None:
        args = model.get("args") or {}
        found = next((value for key, value in args.items() if _same(str(key), name)), None)
    if found is None:
        _log.warning(
            "model.batch names the argument '%s', which the run does not give; samples/s is left out: "
            "set model.args.%s, or model.batch to a number",
            name,
            name,
        )
        return None
    return _whole(found, f"the argument '{name}' that model.batch names is {found!r}")


def _same(one: str, other: str) -> bool:
    return one.lstrip("-").replace("-", "_") == other.replace("-", "_")


def _argument(name: str, argv: Sequence[str]) -> str | None:
    found = None
    for index, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if (equals or flag.startswith("-")) and _same(flag, name):
            if equals:
                found = value
            elif index + 1 < len(argv):
                found = argv[index + 1]
    return found


def _whole(value: object, what: str) -> int | None:
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number > 0:
        return number
    _log.warning("%s, which is no number of samples; samples/s is left out", what)
    return None
