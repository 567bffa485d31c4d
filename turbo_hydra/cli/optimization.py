# SPDX-License-Identifier: Apache-2.0
"""The optimization config of a job, out of what Hydra composed: found, completed and checked before anything runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.conf import HydraConf
from omegaconf import OmegaConf

from turbo_hydra.cli.sources import Sources, options, recipes
from turbo_hydra.config import OptimizationConfig, check_names, load_catalogs, unmatched
from turbo_hydra.config.fields import did_you_mean
from turbo_hydra.config.hydra_schema import schema
from turbo_hydra.config.recipe import KIND as RECIPE
from turbo_hydra.config.recipe import Recipe
from turbo_hydra.config.schema import KIND, SCHEMA_VERSION
from turbo_hydra.config.yaml_reader import Document, read_yaml
from turbo_hydra.engine.errors import OptimizationConfigError

log = logging.getLogger(__name__)

GROUP = "optimization"
RECIPES = "optimization/recipe"


def resolve(composed: Mapping[str, Any], hydra: HydraConf, cwd: Path, tell: bool = True) -> OptimizationConfig:
    """The checked optimization config of a job.

    Parameters
    ----------
    composed : mapping
        The node `optimization`, resolved to plain data.
    hydra : HydraConf
        The job's `hydra` node: where the files are, and what was typed.
    cwd : Path
        Where the user stood.
    tell : bool
        Whether settings that change nothing are logged.

    Raises
    ------
    OptimizationConfigError
        If a name is unknown, a value wrong, or a file missing.
    """
    sources = Sources.of(hydra)
    data = {key: value for key, value in composed.items() if key != "config"}
    if composed.get("config") is not None:
        config = _from_file(str(composed["config"]), hydra, cwd)
    else:
        config = _from_choice(data, sources, hydra, tell)
    registry = load_catalogs(config)
    check_names(config, registry, source=GROUP)
    for sentence in unmatched(config, registry) if tell else ():
        log.warning("optimization: %s", sentence)
    return config


def _from_choice(data: dict[str, Any], sources: Sources, hydra: HydraConf, tell: bool) -> OptimizationConfig:
    choice = sources.choices.get(GROUP)
    file = sources.chosen(GROUP)
    if isinstance(choice, str) and file is None:
        if choice != sources.choices.get("model"):
            raise OptimizationConfigError(
                f"there is no optimization config '{choice}'{did_you_mean(choice, options(GROUP))}"
            )
        if tell:
            log.warning(
                "model '%s' has no optimization config, so no group is on; choose one by optimization=common "
                "or optimization.config=FILE",
                choice,
            )
    data = _with_recipes(data, sources, hydra)
    # What is relative in a generated file lies beside that file; after composition only the choice tells where.
    evidence = [_evidence(str(name), str(choice), sources) for name in _listed(data.get("evidence"))]
    data["evidence"] = [str(path) for path in evidence]
    generated = _generated_from(evidence) or file
    return OptimizationConfig.from_document(Document(data, GROUP), generated)


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) else list(value or ())


def _evidence(name: str, choice: str, sources: Sources) -> Path:
    if Path(name).is_absolute():
        return Path(name)
    found = sources.beside(GROUP, choice, name)
    if found is None:
        where = ", ".join(str(folder / GROUP) for folder in sources.folders)
        raise OptimizationConfigError(f"the evidence file '{name}' of optimization={choice} is in none of {where}")
    return found


def _generated_from(evidence: list[Path]) -> Path | None:
    for path in reversed(evidence):
        file = path.with_name(path.name.removesuffix(".evidence.json") + ".yaml")
        if file.is_file():
            return file
    return None


def _with_recipes(data: dict[str, Any], sources: Sources, hydra: HydraConf) -> dict[str, Any]:
    """Undo what composing recipes over a config replaced: the header, and lists that should have added up."""
    if data["kind"] != RECIPE:
        return data
    names = recipes(hydra)
    catalogs: list[str] = []
    evidence: list[str] = []
    for item in _listed(data["evidence"]):
        path = _evidence(str(item), str(sources.choices[GROUP]), sources)
        evidence.append(str(path))
        generated = _generated_from([path])
        catalogs += [] if generated is None else read_yaml(generated).data.get("catalogs") or []
    for name in names:
        file = sources.file(RECIPES, name)
        if file is None:
            continue
        catalogs += Recipe.from_file(file).catalogs
        # What was generated from a recipe lies one folder higher, under its name.
        beside = file.parent.parent / f"{file.stem}.evidence.json"
        evidence += [str(beside)] if beside.is_file() else []
    return {
        **data,
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "catalogs": list(dict.fromkeys((*catalogs, *data["catalogs"]))),
        "evidence": list(dict.fromkeys(evidence)),
    }


def _from_file(name: str, hydra: HydraConf, cwd: Path) -> OptimizationConfig:
    """A generated file from anywhere, with what was said beside it: on the command line or in an experiment."""
    path = cwd / Path(name).expanduser()
    config = OptimizationConfig.from_file(path)
    typed = [_key(item) for item in hydra.overrides.task]
    if GROUP in typed:
        raise OptimizationConfigError(
            f"'{GROUP}=...' and '{GROUP}.config={name}' both choose an optimization config; drop one of them"
        )
    others = [item for item in hydra.overrides.task if _key(item) != GROUP]
    # Composed once more without the model's own config: what is left was said by somebody.
    bare = compose(hydra.job.config_name, overrides=[*others, f"~{GROUP}"])[GROUP]
    said = OmegaConf.to_container(bare, resolve=True)
    default = OmegaConf.to_container(schema()[GROUP], resolve=True)
    if not isinstance(said, dict) or not isinstance(default, dict):
        raise OptimizationConfigError(f"'{GROUP}' must be a mapping")
    data = config.to_dict()
    for key, value in ((str(key), value) for key, value in said.items()):
        told = value != default[key] or any(item.split(".")[:2] == [GROUP, key] for item in typed)
        if key != "config" and told:
            data[key] = _over(data[key], value)
    return OptimizationConfig.from_document(Document(data, GROUP), config.path)


def _over(base: Any, value: Any) -> Any:
    if isinstance(base, dict) and isinstance(value, dict):
        return {**base, **{key: _over(base.get(key), item) for key, item in value.items()}}
    return value


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")
