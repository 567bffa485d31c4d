# SPDX-License-Identifier: Apache-2.0
"""Which part of the package may import which: arrows go one way, and torch stays where it is wanted."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

# What a catalog says things with; turbo_hydra only hands these on from the engine.
DECLARATIONS = {
    "About",
    "CompatibilityResult",
    "Latch",
    "compatibility",
    "fallback",
    "group",
    "redecorated",
    "replace",
    "wrap",
}
# For each part, the parts that it may import beside itself. `api` is the rest of turbo_hydra's own modules and names.
ALLOWED: dict[str, set[str]] = {
    "engine": set(),
    "declarations": {"engine"},
    "config": {"engine", "api"},
    "measure": {"engine", "declarations"},
    "api": {"engine", "config", "measure", "declarations"},
    "catalogs": {"declarations", "kernels"},
    "kernels": set(),
    "launch": {"engine", "config", "measure", "api"},
    "sweep": {"engine", "config", "measure", "launch", "api"},
    "integrations": {"engine", "config", "measure", "api"},
    "cli": {"engine", "config", "kernels", "measure", "launch", "sweep", "api", "hydra_plugins"},
    "hydra_plugins": {"engine", "config", "measure", "launch", "sweep", "api"},
}
# Modules that run where torch is there already: in the agent, in a rank, or inside the model's own training.
TORCH_PARTS = {"catalogs", "kernels", "integrations", "measure"}
TORCH_MODULES = {"turbo_hydra.launch.agent", "turbo_hydra.launch.elastic", "turbo_hydra.launch.rank"}
HYDRA = {"hydra", "omegaconf"}


def modules(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the dotted name and the file of each module that ships, examples left out: they know nothing of us."""
    for top in ("turbo_hydra", "hydra_plugins", "kernels"):
        for path in sorted((root / top).rglob("*.py")):
            relative = path.relative_to(root).with_suffix("")
            parts = list(relative.parts)
            if top == "turbo_hydra" and parts[1] in {"examples", "conf", "kernels"}:
                continue
            if top == "kernels":
                parts.insert(0, "turbo_hydra")
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def part_of(module: str) -> str:
    """Return the part that a module of ours belongs to."""
    top, _, rest = module.partition(".")
    if top == "hydra_plugins":
        return top
    first = rest.partition(".")[0]
    if first in DECLARATIONS:
        return "declarations"
    return first if first in ALLOWED else "api"


def imported(module: str, path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of all that a file imports, at its top or inside a function, but not for types only."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
        for statement in node.body
        for inner in ast.walk(statement)
    }
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
                base = f"{anchor}.{base}".rstrip(".")
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def test_arrows_between_the_parts_go_one_way(project_root: Path) -> None:
    wrong = []
    for module, path in modules(project_root):
        part = part_of(module)
        for line, name in imported(module, path):
            if name.partition(".")[0] not in {"turbo_hydra", "hydra_plugins"}:
                continue
            other = part_of(name)
            if other != part and other not in ALLOWED[part]:
                wrong.append(f"{path.relative_to(project_root)}:{line}: {part} imports {name} ({other})")
    assert not wrong, "\n".join(wrong)


def test_torch_is_imported_only_where_training_runs(project_root: Path) -> None:
    wrong = [
        f"{path.relative_to(project_root)}:{line}"
        for module, path in modules(project_root)
        if part_of(module) not in TORCH_PARTS and module not in TORCH_MODULES
        for line, name in imported(module, path)
        if name.partition(".")[0] == "torch"
    ]
    assert not wrong, "\n".join(wrong)


def test_the_engine_and_what_a_rank_imports_of_us_know_no_hydra(project_root: Path) -> None:
    wrong = [
        f"{path.relative_to(project_root)}:{line}: {name}"
        for module, path in modules(project_root)
        if part_of(module) in {"engine", "measure", "catalogs", "kernels"}
        for line, name in imported(module, path)
        if name.partition(".")[0] in HYDRA
    ]
    assert not wrong, "\n".join(wrong)


CATALOGS = sorted({found.value for found in entry_points(group="turbo_hydra.catalogs")})


@pytest.mark.parametrize("module", ["turbo_hydra", "turbo_hydra.engine", *CATALOGS])
def test_importing_declarations_imports_neither_torch_nor_hydra(module: str, tmp_path: Path) -> None:
    code = f"import {module}, sys; print(sorted({{'torch', 'hydra', 'omegaconf'}} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, "[]"), ran.stderr
