# SPDX-License-Identifier: Apache-2.0
"""The optimization config: which groups are on, with which options, and what they were validated against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from turbo_hydra.config.evidence_file import Evidence
from turbo_hydra.config.fields import Field, did_you_mean
from turbo_hydra.config.parts import (
    Compatibility,
    Metadata,
    check_header,
    nested,
    read_catalogs,
    read_compatibility,
    read_groups,
    read_metadata,
    read_model,
    read_options,
)
from turbo_hydra.config.yaml_reader import Document
from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.engine.selection import Selection

if TYPE_CHECKING:
    from turbo_hydra.config.catalog import OptimizationConfigCatalog

SCHEMA_VERSION = "turbo_hydra/optimization-config/v1"
KIND = "OptimizationConfig"
KEYS = (
    "schema_version",
    "kind",
    "metadata",
    "extends",
    "model",
    "catalogs",
    "evidence",
    "compatibility",
    "groups",
    "options",
    "enabled",
    "only",
    "disable",
    "force",
    "strict",
    "shadow",
    "count_calls",
    "log_report",
)
COUNT_CALLS = ("auto", "off")


@dataclass(frozen=True)
class OptimizationConfig:
    """An optimization config, checked and resolved.

    Parameters
    ----------
    metadata : Metadata
        Id, version and description.
    model : str or None
        Name of the model that it is for; None for the groups that serve every script.
    catalogs : tuple of str
        Modules that declare the groups.
    evidence : tuple of Path
        The evidence files, absolute.
    compatibility : Compatibility
        Commits and versions that were validated.
    groups : dict
        Group id to whether it is on; a group that is not named is off.
    options : dict
        Group id to the options that differ from their defaults.
    enabled : bool
        False leaves out all groups whose purpose is optimization.
    only : tuple of str or None
        Globs of group ids; None for all.
    disable : tuple of str
        Globs of group ids; they win over `groups` and `only`.
    force : tuple of str
        Globs of group ids whose evidence-like checks do not block.
    strict : bool
        Whether an enabled group that is not applied ends the run.
    shadow_calls : int
        For how many calls of each member the original runs as well (`shadow.calls`).
    count_calls : {"auto", "off"}
        Whether calls are counted.
    log_report : bool
        Whether rank 0 logs the whole report.
    path : Path or None
        The file that it was read from, absolute.

    Examples
    --------
    >>> config = OptimizationConfig.from_mapping({
    ...     "schema_version": "turbo_hydra/optimization-config/v1",
    ...     "kind": "OptimizationConfig",
    ...     "catalogs": ["turbo_hydra.catalogs.torch"],
    ...     "groups": {"torch": {"fused_adamw": "off"}},
    ... })
    >>> config.groups
    {'torch.fused_adamw': False}
    """

    metadata: Metadata = field(default_factory=Metadata)
    model: str | None = None
    catalogs: tuple[str, ...] = ()
    evidence: tuple[Path, ...] = ()
    compatibility: Compatibility = field(default_factory=Compatibility)
    groups: Mapping[str, bool] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    enabled: bool = True
    only: tuple[str, ...] | None = None
    disable: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    strict: bool = False
    shadow_calls: int = 0
    count_calls: Literal["auto", "off"] = "auto"
    log_report: bool = False
    path: Path | None = None

    @classmethod
    def from_file(cls, path: str | Path, catalog: OptimizationConfigCatalog | None = None) -> OptimizationConfig:
        """Read a YAML file; `catalog` resolves what it extends.

        Raises
        ------
        OptimizationConfigNotFoundError
            If the file or one that it extends is missing or unreadable.
        OptimizationConfigError
            If the content is wrong; the message names file, line and key.
        """
        from turbo_hydra.config.catalog import OptimizationConfigCatalog

        return (catalog or OptimizationConfigCatalog()).load(path)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], source: str | Path | None = None) -> OptimizationConfig:
        """Check plain data.

        Parameters
        ----------
        data : mapping
            The content of a file in which nothing is extended any more.
        source : Path, optional
            The file that the data stands for: it becomes `path`, and a relative evidence file lies beside it.

        Raises
        ------
        OptimizationConfigError
            If the content is wrong.
        """
        path = Path(source).absolute() if source is not None else None
        return cls.from_document(Document(dict(data), str(path or "optimization config")), path)

    @classmethod
    def from_document(cls, document: Document, path: Path | None) -> OptimizationConfig:
        """Check a document that was read from `path`; see `from_mapping`."""
        root = Field.root(document)
        if "defaults" in document.data:
            raise OptimizationConfigError(
                f"{root['defaults'].place}: a Hydra defaults list is read by turbo-train only; choose this file as "
                "optimization=NAME there, or write `extends: [NAME]` instead of it"
            )
        root.mapping(KEYS)
        check_header(root, SCHEMA_VERSION, KIND)
        if document.data.get("extends"):
            raise OptimizationConfigError(f"{root['extends'].place}: 'extends' needs a file: load it by its path")
        shadow = root["shadow"]
        shadow.mapping(("calls",))
        return cls(
            metadata=read_metadata(root["metadata"]),
            model=read_model(root["model"]),
            catalogs=read_catalogs(root["catalogs"]),
            evidence=tuple(_beside(path, name, root) for name in root["evidence"].strings(one_is_enough=True)),
            compatibility=read_compatibility(root["compatibility"]),
            groups=read_groups(root["groups"]),
            options=read_options(root["options"]),
            enabled=root["enabled"].boolean(True),
            only=None if root["only"].value is None else root["only"].strings(),
            disable=root["disable"].strings(),
            force=root["force"].strings(),
            strict=root["strict"].boolean(False),
            shadow_calls=shadow["calls"].integer(0),
            count_calls=_count_calls(root["count_calls"]),
            log_report=root["log_report"].boolean(False),
            path=path,
        )

    def to_dict(self) -> dict[str, Any]:
        """The config as plain JSON data in the shape of a file; `from_mapping` reads it back."""
        evidence = [str(item) for item in self.evidence]
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "metadata": {
                "id": self.metadata.id,
                "version": self.metadata.version,
                "description": self.metadata.description,
            },
            "model": {"name": self.model},
            "catalogs": list(self.catalogs),
            "evidence": evidence[0] if len(evidence) == 1 else (evidence or None),
            "compatibility": {
                "commits": list(self.compatibility.commits),
                "dependencies": dict(self.compatibility.dependencies),
                "backends": list(self.compatibility.backends),
                "allow_dirty": self.compatibility.allow_dirty,
            },
            "groups": nested(self.groups),
            "options": nested({id: dict(values) for id, values in self.options.items()}),
            "enabled": self.enabled,
            "only": None if self.only is None else list(self.only),
            "disable": list(self.disable),
            "force": list(self.force),
            "strict": self.strict,
            "shadow": {"calls": self.shadow_calls},
            "count_calls": self.count_calls,
            "log_report": self.log_report,
        }

    def selection(
        self,
        repository: Path | None = None,
        force: Sequence[str] = (),
        disable: Sequence[str] = (),
        accelerator: str = "auto",
    ) -> Selection:
        """What the engine is asked to do; reads the evidence files.

        Parameters
        ----------
        repository : Path, optional
            The model's repository.
        force, disable : sequence of str
            Ids of groups, beside those that the config names. A forced group must be on.
        accelerator : str
            `runtime.accelerator`, where a launcher knows it.

        Raises
        ------
        OptimizationConfigError
            If an argument is a bare string, names a group in both, forces one that is unknown or off, or an evidence
            file is wrong.
        """
        force, disable = id_sequence("force_groups", force), id_sequence("disable_groups", disable)
        for id in force:
            if id in disable:
                raise OptimizationConfigError(f"group '{id}' is both in force_groups and in disable_groups; choose one")
            if id not in self.groups:
                raise OptimizationConfigError(
                    f"force_groups names '{id}', which the config does not{did_you_mean(id, self.groups)}"
                )
            if not self.groups[id]:
                raise OptimizationConfigError(
                    f"force_groups names '{id}', which is off; only a group that is on is forced"
                )
        evidence = Evidence.union(Evidence.read(path) for path in self.evidence)
        return Selection(
            groups=dict(self.groups),
            options={id: dict(values) for id, values in self.options.items()},
            evidence=evidence.targets,
            replacements=evidence.replacements,
            commits=self.compatibility.commits,
            dependencies=dict(self.compatibility.dependencies),
            backends=self.compatibility.backends,
            accelerator=accelerator,
            allow_dirty=self.compatibility.allow_dirty,
            enabled=self.enabled,
            only=self.only,
            disable=(*self.disable, *disable),
            force=(*self.force, *force),
            strict=self.strict,
            shadow_calls=self.shadow_calls,
            count_calls=self.count_calls,
            repository=repository,
        )


def id_sequence(name: str, value: Iterable[str]) -> tuple[str, ...]:
    """`value` as a tuple; a bare string is refused, since it is a sequence of letters.

    Raises
    ------
    OptimizationConfigError
        If it is no sequence of strings.
    """
    if isinstance(value, str):
        raise OptimizationConfigError(
            f"{name} takes a sequence of group ids, found the string {value!r}: write ({value!r},)"
        )
    items = tuple(value)
    for item in items:
        if not isinstance(item, str):
            raise OptimizationConfigError(f"{name} takes a sequence of group ids, found {item!r} in it")
    return items


def _count_calls(item: Field) -> Literal["auto", "off"]:
    # YAML reads an unquoted off as false, and means the same.
    if item.value is False:
        return "off"
    return "off" if item.string("auto", COUNT_CALLS) == "off" else "auto"


def _beside(path: Path | None, name: str, root: Field) -> Path:
    file = Path(name)
    if file.is_absolute():
        return file
    if path is None:
        root["evidence"].refuse("an absolute path, since no file says beside what it lies")
    return path.parent / file
