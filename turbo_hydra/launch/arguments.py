# SPDX-License-Identifier: Apache-2.0
"""The command line of a model's script, from the settings under `model`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from turbo_hydra.launch.job import JobError

STYLES = ("space", "equals", "values")


def render(model: Mapping[str, Any]) -> list[str]:
    """Return the arguments: positional ones, then options in the order of the settings, then `extra`.

    Parameters
    ----------
    model : mapping
        `positional` (list), `args` (option names to values), `arg_style` (`space` for `--a b`, `equals` for `--a=b`,
        `values` for `--a=b` where true, false and lists are values as well: `--a=true --b=[1, 2]`) and `extra` (list,
        passed as it is).

    Raises
    ------
    JobError
        If a value has no rendering, or `arg_style` is unknown.

    Examples
    --------
    >>> render({"positional": ["pi0"], "args": {"batch.size": 16, "resume": True, "wandb": None, "tag": ["a", "b"]}})
    ['pi0', '--batch.size', '16', '--resume', '--tag', 'a', '--tag', 'b']
    """
    style = model.get("arg_style") or "space"
    if style not in STYLES:
        raise JobError(f"'model.arg_style' must be one of {', '.join(STYLES)}, found {style!r}")
    options = model.get("args") or {}
    if not isinstance(options, Mapping):
        raise JobError(f"'model.args' must map names of options to values, found {options!r}")
    return [
        *_listed(model, "positional"),
        *(text for name, value in options.items() for text in _option(str(name), value, style)),
        *_listed(model, "extra"),
    ]


def _listed(model: Mapping[str, Any], key: str) -> list[str]:
    values = model.get(key) or []
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise JobError(f"'model.{key}' must be a list, found {values!r}")
    return [_text(f"model.{key}", value) for value in values]


def _option(name: str, value: Any, style: str) -> list[str]:
    place = f"model.args.{name}"
    if isinstance(value, Mapping):
        # `model.args.a.b=1` on Hydra's command line makes a mapping of mappings.
        return [text for key, inner in value.items() for text in _option(f"{name}.{key}", inner, style)]
    flag = name if name.startswith("-") else f"--{name}"
    if value is None:
        return []
    if style == "values":
        return [f"{flag}={_literal(place, value)}"]
    if value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, Sequence) and not isinstance(value, str):
        if any(isinstance(item, (Mapping, list, tuple, bool)) or item is None for item in value):
            raise JobError(f"'{place}' repeats its option for each value of a plain list, found {value!r}")
        return [text for item in value for text in _option(name, item, style)]
    text = _text(place, value)
    return [f"{flag}={text}"] if style == "equals" else [flag, text]


def _literal(place: str, value: Any) -> str:
    """The value as command lines that read YAML or JSON take it."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value)
    except TypeError:
        raise JobError(f"'{place}' must be plain data, found {value!r}") from None


def _text(place: str, value: Any) -> str:
    if isinstance(value, bool) or value is None or not isinstance(value, (str, int, float)):
        raise JobError(f"'{place}' must be a text or a number, found {value!r}")
    return str(value)
