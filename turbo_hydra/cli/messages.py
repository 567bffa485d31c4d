# SPDX-License-Identifier: Apache-2.0
"""Hydra's and OmegaConf's errors, said in one sentence that a user can act on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from omegaconf import OmegaConf

from turbo_hydra.config import model_files
from turbo_hydra.config.fields import did_you_mean

_UNKNOWN = re.compile(r"Could not override '(?P<key>[^']+)'")
_AMBIGUOUS = re.compile(r"Ambiguous value for argument '(?P<key>[^=]+)=(?P<value>.*)'\n")
_TOGGLES = re.compile(r"optimization\.(groups|options)\.(?P<catalog>\w+)=")
_KEY = re.compile(r"In '(?P<where>[^']+)': ConfigKeyError raised while composing config:\s+Key '(?P<key>[^']+)' not in")
_VARIABLE = re.compile(r"Environment variable '(?P<name>[^']+)' not found.*full_key: (?P<key>\S+)", re.DOTALL)
_MERGING = re.compile(r"Error merging override (?P<override>.*)", re.DOTALL)


def sentence(problem: BaseException) -> str:
    """What went wrong; advice of Hydra's that would hide a misspelt setting (to add it by `+`) is left out."""
    text = str(problem).strip()
    unknown = _UNKNOWN.search(text)
    if unknown:
        return f"unknown setting '{unknown['key']}'{did_you_mean(unknown['key'], settings())}"
    inside = _KEY.match(text)
    if inside:
        return _in_file(inside["where"], inside["key"])
    variable = _VARIABLE.search(text)
    if variable:
        key, name = variable["key"], variable["name"]
        return f"'{key}' is not set: give {key}=..., or set the environment variable {name}, which it is taken from"
    ambiguous = _AMBIGUOUS.match(text)
    if ambiguous:
        key, value = ambiguous["key"], ambiguous["value"]
        return f"'{key}={value}' has several values: add -m to run each, or write '{key}=[{value}]' for a list"
    merging = _MERGING.match(text)
    if merging and (toggle := _TOGGLES.match(merging["override"])):
        catalog = toggle["catalog"]
        return (
            f"'{merging['override'].strip()}' does not fit: one group is optimization.groups.{catalog}.GROUP=off, "
            f"all of them optimization.disable=[{catalog}.*]"
        )
    if merging:
        cause = str(problem.__cause__ or "").strip().splitlines()
        return f"'{merging['override'].strip()}' does not fit: {cause[0] if cause else 'the value has the wrong type'}"
    lines = [
        line.rstrip()
        for line in text.splitlines()
        if line.strip() and "full_key" not in line and "object_type" not in line
    ]
    if any("Available options" in line for line in lines):
        return _missing(lines)
    return " ".join(line.strip() for line in lines) or type(problem).__name__


def _in_file(where: str, key: str) -> str:
    """A key of a config file that the settings do not have."""
    recipe = where.startswith("optimization/recipe/")
    if key == "extends":
        form = "[NAME, _self_]" if recipe else "[NAME@_here_, _self_]"
        other = "" if recipe else "; or take the file as it is, by optimization.config=FILE"
        return f"{where}: 'extends' is the form of older files: write `defaults: {form}` at the top instead{other}"
    if recipe and key == "recipe":
        return f"{where}: a recipe's file begins with the line `# @package optimization`"
    group = where.partition("/")[0]
    known = [name.removeprefix(f"{group}.") for name in settings() if name.startswith(f"{group}.")]
    return f"{where}: unknown key '{key}'{did_you_mean(key, known)}"


def settings() -> list[str]:
    """Dotted names of all settings."""
    from turbo_hydra.config.hydra_schema import schema

    return list(_names(OmegaConf.to_container(schema()), ""))


def _names(node: object, prefix: str) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from _names(value, f"{prefix}{key}.")


def _missing(lines: list[str]) -> str:
    """An option that does not exist, with the one that was probably meant."""
    found = re.search(r"(?:In '(?P<where>[^']+)': )?Could not find '(?P<option>[^']+)'", lines[0])
    start = next(index for index, line in enumerate(lines) if "Available options" in line)
    known = []
    for line in lines[start + 1 :]:
        if not line.startswith(("\t", " ")) or "provider=" in line:
            break
        known.append(line.strip())
    if not found:
        return " ".join([lines[0], "Available:", ", ".join(known)])
    group, _, option = found["option"].rpartition("/")
    said = f"there is no {group}={option}{did_you_mean(option, known)}"
    return f"{said}{_supported(known)}" if group == "model" else said


def _supported(known: list[str]) -> str:
    """The models that there are, a line each, as in docs/models/README.md."""
    what = model_files.descriptions()
    width = max(map(len, known), default=0)
    lines = (f"  {name:{width}}  {what.get(name, '')}".rstrip() for name in known)
    return "\n".join(["\nThere are:", *lines])
