# SPDX-License-Identifier: Apache-2.0
"""From a recipe to an optimization config with evidence. The same inputs give the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from turbo_hydra.config.composition import closure, conflicts, object_targets, reaches
from turbo_hydra.config.evidence_file import Evidence
from turbo_hydra.config.git import check_commit, origin
from turbo_hydra.config.model_files import ModelFiles
from turbo_hydra.config.names import check_names, load_catalogs
from turbo_hydra.config.parts import nested
from turbo_hydra.config.places import ModelPlace
from turbo_hydra.config.reading import Surroundings
from turbo_hydra.config.recipe import Recipe
from turbo_hydra.config.schema import KIND, SCHEMA_VERSION, OptimizationConfig
from turbo_hydra.config.taking import distributions, take, with_known_versions
from turbo_hydra.config.yaml_reader import read_text
from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.engine.objects import catalog_hash, replacement_hash
from turbo_hydra.engine.report import write_text_atomic


@dataclass(frozen=True)
class Request:
    """What to generate.

    Parameters
    ----------
    recipe : Path
        The recipe.
    repo : str or Path
        The model's repository, or `pkg://package/folder` for code that ships inside a package.
    output : Path
        The config to write; the evidence goes beside it.
    commit : str or None
        What HEAD must be; None only for code that ships inside a package.
    static : bool
        Whether evidence is read from files, without importing the model or torch.
    wheels : sequence of Path
        Further versions of distributions.
    force : bool
        Whether an existing output is replaced.
    keep_versions : bool
        Whether an output that is replaced hands on its records of versions of distributions that are not read now:
        a released version does not change, and not everyone has all its wheels at hand.
    untracked : sequence of str
        Globs of paths that may lie in the repository without being known to git.
    entry, pythonpath : str and sequence of str, optional
        The model's script and import path, below the repository; read from the model's config when not given.
    """

    recipe: Path
    repo: str | Path
    output: Path
    commit: str | None = None
    static: bool = False
    wheels: Sequence[Path] = ()
    force: bool = False
    keep_versions: bool = True
    untracked: Sequence[str] = ()
    entry: str | None = None
    pythonpath: Sequence[str] = ()


@dataclass(frozen=True)
class Generated:
    """What was written, and what could not be seen.

    Parameters
    ----------
    groups : int
        Number of groups.
    records : int
        Number of evidence records.
    unseen : dict
        Target to the reason why it has no evidence.
    layers : list of str
        Targets whose definition was read, while what their decorators put around it is not in the text.
    absent : list of str
        Targets that a wheel does not have, with the wheel.
    """

    groups: int
    records: int
    unseen: dict[str, str] = field(default_factory=dict)
    layers: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def generate(request: Request) -> Generated:
    """Check the recipe, take the evidence, and write config and evidence.

    Raises
    ------
    OptimizationConfigError
        If the recipe, the repository or the composition is wrong; nothing is written then.
    """
    # Taking evidence can take minutes: told before.
    if not request.output.parent.is_dir():
        raise OptimizationConfigError(
            f"cannot write {request.output}: there is no folder {request.output.parent}; make it"
        )
    evidence_file = request.output.with_name(f"{request.output.stem}.evidence.json")
    for path in (request.output, evidence_file):
        if path.exists() and not request.force:
            raise OptimizationConfigError(f"{path} exists; --force replaces it")
    place = ModelPlace.of(request.repo)
    recipe = Recipe.from_file(request.recipe)
    registry = load_catalogs(_as_config(recipe, recipe.groups, request.recipe))
    check_names(_as_config(recipe, recipe.groups, request.recipe), registry)
    commit, repository = _provenance(request, place)
    groups = closure(recipe.groups, registry)
    chosen = [registry.groups[id] for id in groups]
    on = [group for group in chosen if groups[group.id]]
    files = ModelFiles.of(recipe.model, place.folder, request.entry, request.pythonpath)
    surroundings = Surroundings(place.folder, files, recipe.catalogs, on, recipe.options)
    reader = surroundings.reader()
    problems = [*conflicts(on, reader, one_recipe=True), *reaches(chosen, reader)]
    if problems:
        raise OptimizationConfigError("; ".join(problems))
    taken = take(object_targets(chosen), surroundings, reader, request.static, request.wheels)
    before = Evidence.read(evidence_file) if evidence_file.exists() and request.keep_versions else Evidence()
    targets = with_known_versions(taken.records, before)
    evidence = Evidence(
        targets,
        {group.id: digest for group in chosen if (digest := replacement_hash(group)) is not None},
        {
            "repository": repository if recipe.model else None,
            "commit": commit if recipe.model else None,
            "recipe_sha256": hashlib.sha256(b"".join(file.read_bytes() for file in recipe.files)).hexdigest(),
            "catalogs": {name: catalog_hash(name, registry.groups.values()) for name in recipe.catalogs},
            "generator": _version(),
            "distributions": distributions(targets, taken.wheels, before),
        },
    )
    text = _config_text(request, recipe, groups, commit, evidence_file.name)
    try:
        write_text_atomic(evidence_file, evidence.to_text())
        write_text_atomic(request.output, text)
    except OSError as error:
        raise OptimizationConfigError(f"cannot write {request.output}: {error.strerror}") from None
    return Generated(len(groups), sum(map(len, targets.values())), taken.unseen, taken.layers, taken.absent)


def _as_config(recipe: Recipe, groups: Any, path: Path) -> OptimizationConfig:
    return OptimizationConfig(catalogs=recipe.catalogs, groups=groups, options=recipe.options, path=path)


def _provenance(request: Request, place: ModelPlace) -> tuple[str | None, str | None]:
    """Commit and origin of the model's code."""
    if place.shipped is not None:
        if request.commit is not None:
            raise OptimizationConfigError(
                f"{request.repo} ships inside a package, so no commit describes it; drop --commit"
            )
        return None, place.shipped
    if request.commit is None:
        raise OptimizationConfigError(f"--commit must name the commit that {request.repo} is at")
    return check_commit(place.folder, request.commit, tuple(request.untracked)), origin(place.folder)


def _config_text(request: Request, recipe: Recipe, groups: dict[str, bool], commit: str | None, evidence: str) -> str:
    commits = list(dict.fromkeys([*recipe.compatibility.commits, *([commit] if commit and recipe.model else [])]))
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "metadata": {key: value for key, value in vars(recipe.metadata).items() if value},
        "model": {"name": recipe.model},
        "catalogs": list(recipe.catalogs),
        "evidence": evidence,
        "compatibility": {
            "commits": commits,
            "dependencies": dict(recipe.compatibility.dependencies),
            **({"backends": list(recipe.compatibility.backends)} if recipe.compatibility.backends else {}),
            "allow_dirty": recipe.compatibility.allow_dirty,
        },
        "groups": nested(groups),
        "options": nested({id: dict(recipe.options[id]) for id in groups if id in recipe.options}),
    }
    # The licence that the recipe is under is that of what is made from it.
    first = read_text(request.recipe).splitlines()[:2]
    licence = "".join(f"{line}\n" for line in first if line.startswith("# SPDX-License-Identifier:"))
    note = f"# Generated by turbo-opt from the recipe {request.recipe.name}; edit that and generate again.\n"
    return licence + note + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)


def _version() -> str:
    from turbo_hydra import __version__

    return __version__
