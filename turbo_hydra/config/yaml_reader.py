# SPDX-License-Identifier: Apache-2.0
"""YAML as the command line reads it, but strict: a key written twice is refused, and each key's line is known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from turbo_hydra.engine.errors import OptimizationConfigError, OptimizationConfigNotFoundError

_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_FLOAT = "tag:yaml.org,2002:float"


class _Loader(yaml.SafeLoader):
    """Scalars as OmegaConf reads them, so that a file means the same with and without Hydra."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_TIMESTAMP, _FLOAT)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# YAML 1.1 takes 1e-3 for a string and 1:30.5 for a number; nobody who writes a learning rate means that.
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(
        r"""^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
        |\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?
        |[-+]?\.(?:inf|Inf|INF)
        |\.(?:nan|NaN|NAN))$""",
        re.VERBOSE,
    ),
    list("-+0123456789."),
)

KeyPath = tuple[str, ...]


@dataclass(frozen=True)
class Document:
    """A mapping read from a file, with the line of each key.

    Parameters
    ----------
    data : dict
        The content, plain Python data.
    source : str
        What messages call it: the file, or where else it came from.
    lines : dict
        Path of keys to its line (1-based); empty for data that no file holds.
    """

    data: dict[str, Any]
    source: str
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def place(self, path: KeyPath) -> str:
        """`source:line` of a key, of its nearest parent that has a line, else the source alone."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return f"{self.source}:{self.lines[path[:length]]}"
        return self.source


def read_yaml(path: Path) -> Document:
    """Read the mapping in a YAML file.

    Raises
    ------
    OptimizationConfigNotFoundError
        If the file is missing or cannot be read.
    OptimizationConfigError
        If it is no YAML, holds no mapping, or writes a key twice.
    """
    return parse_yaml(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a file that a user named.

    Raises
    ------
    OptimizationConfigNotFoundError
        If the file is missing or cannot be read.
    OptimizationConfigError
        If it is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise OptimizationConfigError(f"{path} is not UTF-8 text: byte {error.start} cannot be decoded") from error
    except OSError as error:
        reason = "it does not exist" if isinstance(error, FileNotFoundError) else error.strerror
        raise OptimizationConfigNotFoundError(f"{path} cannot be read: {reason}") from error


def parse_yaml(text: str, source: str) -> Document:
    """Read the mapping in a YAML text; `source` is what messages call it.

    Raises
    ------
    OptimizationConfigError
        If it is no YAML, holds no mapping, or writes a key twice.
    """
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        lines = dict(_lines(root, (), source)) if root is not None else {}
        data = loader.construct_document(root) if root is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        raise OptimizationConfigError(f"{where}: not valid YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise OptimizationConfigError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from error
    finally:
        loader.dispose()
    if not isinstance(data, dict):
        raise OptimizationConfigError(f"{source}: expected a mapping of keys, found {_kind(data)}")
    return Document(data, source, lines)


def _lines(node: yaml.Node, path: KeyPath, source: str) -> Iterator[tuple[KeyPath, int]]:
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*path, str(index)), item.start_mark.line + 1
            yield from _lines(item, (*path, str(index)), source)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise OptimizationConfigError(f"{source}:{line}: a key must be a plain name")
        name = key.value
        if name in seen and key.tag != "tag:yaml.org,2002:merge":
            dotted = ".".join((*path, name))
            raise OptimizationConfigError(
                f"{source}:{line}: '{dotted}' is written twice, first on line {seen[name]}; keep one of them"
            )
        seen[name] = line
        yield (*path, name), line
        yield from _lines(value, (*path, name), source)


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    return "a list" if isinstance(value, list) else type(value).__name__
