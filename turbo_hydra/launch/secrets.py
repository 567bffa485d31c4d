# SPDX-License-Identifier: Apache-2.0
"""Values that are never written: those of environment variables named like a token, a key, a secret or a password."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HIDDEN = "***"

# A word of the name ends so: HF_TOKEN, WANDB_API_KEY, OPENAI_APIKEY; not TOKENIZERS_PARALLELISM or KEYBOARD.
_NAME = re.compile(r"(TOKEN|KEY|SECRET|PASSWORD|PASSWD)S?(_|$)", re.IGNORECASE)
# An override that sets such a variable, as Hydra records it.
_OVERRIDE = re.compile(r"(?P<start>(?:^|\.)(?:environment\.set|env_set)\.(?P<name>\w+)\s*=).*", re.DOTALL)
_WHOLE = re.compile(r"(?:^|\.)(?:environment\.set|environment|env_set)\s*=\s*\{", re.DOTALL)
_PAIR = re.compile(r"(?P<name>\w+)\s*:\s*(?P<value>'[^']*'|\"[^\"]*\"|[^,{}]*)")


def is_secret(name: str) -> bool:
    """Tell whether the value of the variable `name` may not be written."""
    return _NAME.search(name) is not None


def hide_override(text: str) -> str:
    """Hide the value in an override that sets a secret variable; other texts come back unchanged."""
    found = _OVERRIDE.search(text)
    if found is not None:
        return f"{text[: found.start()]}{found['start']}{HIDDEN}" if is_secret(found["name"]) else text
    if _WHOLE.search(text):
        return _PAIR.sub(lambda pair: f"{pair['name']}:{HIDDEN}" if is_secret(pair["name"]) else pair[0], text)
    return text


def hide(data: Any, variables: bool = False) -> Any:
    """Return a copy of plain data in which the values of secret variables are hidden.

    Parameters
    ----------
    data : Any
        Mappings, lists and values.
    variables : bool
        Whether `data` is itself a mapping of environment variables.
    """
    if isinstance(data, Mapping):
        return {
            key: HIDDEN
            if variables and is_secret(str(key)) and value is not None
            else hide(value, variables=(key == "set" and _holds_sets(data)) or key == "env_set")
            for key, value in data.items()
        }
    if isinstance(data, list):
        return [hide(item) for item in data]
    return hide_override(data) if isinstance(data, str) else data


def _holds_sets(data: Mapping[Any, Any]) -> bool:
    return set(data) <= {"set", "unset"} and isinstance(data["set"], Mapping)


def hide_in_folder(folder: Path) -> None:
    """Rewrite the YAML files that Hydra left in `folder` where they hold the value of a secret variable."""
    import yaml

    for path in sorted(folder.glob("*.yaml")):
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError):
            continue
        hidden = hide(data)
        if hidden != data:
            path.write_text(yaml.safe_dump(hidden, sort_keys=False, allow_unicode=True), encoding="utf-8")
