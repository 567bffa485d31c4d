# SPDX-License-Identifier: Apache-2.0
"""turbo-opt: recipes, optimization configs, their evidence, and the reports of runs."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turbo_hydra.engine.errors import OptimizationConfigError, OptimizationConfigNotFoundError, TurboHydraError

if TYPE_CHECKING:
    from turbo_hydra.config import OptimizationConfig

NO_MATCH = 1
WRONG_USE = 2

app = typer.Typer(
    name="turbo-opt",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Optimization groups: what there is, what a config contains, whether it still fits, what a run did.\n\n"
    "Exit status: 0; 1 if something does not match; 2 for wrong use.",
)

ConfigFile = Annotated[Path, typer.Argument(metavar="FILE", help="An optimization config (YAML).")]
Repo = Annotated[
    str,
    typer.Option("--repo", metavar="DIR", help="The model's repository, or pkg://PACKAGE/FOLDER inside a package."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a machine.")]
Static = Annotated[
    bool, typer.Option("--static", help="Read files only: imports neither the model nor torch, needs no accelerator.")
]
Untracked = Annotated[
    list[str] | None,
    typer.Option("--untracked", metavar="GLOB", help="Paths in the repository that may be unknown to git; repeatable."),
]
Entry = Annotated[
    str | None,
    typer.Option(
        "--entry", metavar="SCRIPT", help="The training script, for targets in it; the model's config says it."
    ),
]
PythonPath = Annotated[
    list[str] | None,
    typer.Option("--pythonpath", metavar="DIR", help="Folders below the repository where imports start; repeatable."),
]


def main() -> int:
    """Run the command line; returns the exit status."""
    try:
        app()
    except TurboHydraError as problem:
        return _fail(str(problem), WRONG_USE)
    return 0


@app.command("list")
def list_groups(
    catalog: Annotated[
        list[str] | None,
        typer.Option(
            "--catalog", metavar="MODULE", help="Only this catalog module; repeatable. All installed otherwise."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the groups of the installed catalogs: targets, options, purpose, cost, why; and the kernels there are."""
    from turbo_hydra.cli import tables
    from turbo_hydra.config import load
    from turbo_hydra.config.installed import all_catalogs
    from turbo_hydra.engine.registry import Registry

    registry, broken = Registry(), []
    for name in catalog or all_catalogs():
        try:
            load([name], registry)
        except TurboHydraError as problem:
            broken.append(str(problem))
    groups = list(registry.groups.values())
    if as_json:
        _print_json([tables.group_data(group) for group in groups])
    else:
        tables.groups(groups)
        tables.kernels()
    for sentence in broken:
        _fail(sentence, NO_MATCH)
    if broken:
        raise typer.Exit(NO_MATCH)


@app.command()
def generate(
    recipe: Annotated[Path, typer.Option("--recipe", metavar="FILE", help="The recipe (YAML).")],
    repo: Repo,
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="The config to write; FILE's evidence.json goes beside it.")
    ],
    commit: Annotated[
        str | None, typer.Option("--commit", metavar="SHA", help="What the repository's HEAD must be; short or long.")
    ] = None,
    static: Static = False,
    wheel: Annotated[
        list[Path] | None,
        typer.Option(
            "--wheel", metavar="WHEEL", help="Also take the evidence of this version, from its wheel; repeatable."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing output; its records of other versions are kept.")
    ] = False,
    drop_versions: Annotated[
        bool, typer.Option("--drop-versions", help="With --force: forget versions that are not read now.")
    ] = False,
    untracked: Untracked = None,
    entry: Entry = None,
    pythonpath: PythonPath = None,
    as_json: Json = False,
) -> None:
    """Make an optimization config from a recipe: expand it, check that its groups fit together, take the evidence."""
    from turbo_hydra.config.generating import Request, generate

    done = generate(
        Request(
            recipe=recipe,
            repo=repo,
            output=output,
            commit=commit,
            static=static,
            wheels=wheel or (),
            force=force,
            keep_versions=not drop_versions,
            untracked=untracked or (),
            entry=entry,
            pythonpath=pythonpath or (),
        )
    )
    if as_json:
        _print_json({"output": str(output), **dataclasses.asdict(done)})
        return
    for target, reason in done.unseen.items():
        _note(f"no evidence for '{target}': {reason}")
    for target in done.layers:
        _note(f"the layers around '{target}' are not in the text; only those of its own package will fit")
    for sentence in done.absent:
        _note(f"not in the wheel: {sentence}")
    typer.echo(f"{output}: {done.groups} groups, {done.records} evidence records")


@app.command()
def validate(file: ConfigFile, as_json: Json = False) -> None:
    """Check a config's fields, names, evidence file and catalogs; needs no repository, torch or model."""
    from turbo_hydra.config import OptimizationConfigCatalog, check_names, load_catalogs

    try:
        config = OptimizationConfigCatalog().load(file)
        config.selection()
        check_names(config, load_catalogs(config))
    except OptimizationConfigNotFoundError:
        raise
    except TurboHydraError as problem:
        if as_json:
            _print_json({"valid": False, "problem": str(problem)})
            raise typer.Exit(NO_MATCH) from None
        raise typer.Exit(_fail(str(problem), NO_MATCH)) from None
    if as_json:
        _print_json({"valid": True, "groups": dict(config.groups)})
    else:
        typer.echo(f"{file}: valid, {len(config.groups)} groups")


@app.command()
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the project, its package and its catalog.")],
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="Where to write it; ./NAME when not given.")
    ] = None,
) -> None:
    """Write an optimization project of your own: two groups for a sample model, their tests, and all that ships."""
    from turbo_hydra.cli.project import write_project

    where = write_project(name, folder or Path(name))
    typer.echo(f"{where}: written; pip install -e {where}, then read {where / 'README.md'}")


@app.command()
def check(
    file: ConfigFile,
    repo: Repo,
    static: Static = False,
    as_json: Json = False,
    commits: Annotated[
        str | None,
        typer.Option("--range", metavar="A..B", help="With --static: say at which commit which target changed."),
    ] = None,
    untracked: Untracked = None,
    entry: Entry = None,
    pythonpath: PythonPath = None,
) -> None:
    """Compare a config with a model's repository and the installed packages, target by target."""
    from turbo_hydra.cli import tables
    from turbo_hydra.config import OptimizationConfigCatalog
    from turbo_hydra.config.checking import check

    config = OptimizationConfigCatalog().load(file)
    if commits is not None:
        _walk(config, repo, commits, static, as_json, entry, pythonpath or [])
        return
    result = check(config, repo, static, untracked or (), entry, pythonpath or ())
    if as_json:
        _print_json(result.to_dict())
    else:
        tables.check(result)
    if not result.matches:
        raise typer.Exit(NO_MATCH)


def _walk(
    config: OptimizationConfig,
    repo: str,
    commits: str,
    static: bool,
    as_json: bool,
    entry: str | None,
    pythonpath: list[str],
) -> None:
    from turbo_hydra.cli import tables
    from turbo_hydra.config.drift import walk
    from turbo_hydra.config.places import ModelPlace

    if not static:
        raise OptimizationConfigError("--range reads files only, since old commits cannot be imported: add --static")
    drift = walk(config, ModelPlace.of(repo).folder, commits, entry, pythonpath)
    if as_json:
        _print_json(drift.to_dict())
    else:
        tables.drift(drift)
    if not drift.matches:
        raise typer.Exit(NO_MATCH)


@app.command()
def show(file: ConfigFile) -> None:
    """Print the config as it is loaded, with what it extends and its evidence, as JSON."""
    from turbo_hydra.config import OptimizationConfigCatalog
    from turbo_hydra.config.comparing import shown_text

    sys.stdout.write(shown_text(OptimizationConfigCatalog().load(file)))


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A config.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Another.")],
) -> None:
    """Print what differs between two configs as they are shown: a unified diff; status 1 if there is any."""
    from turbo_hydra.config import OptimizationConfigCatalog
    from turbo_hydra.config.comparing import difference

    catalog = OptimizationConfigCatalog()
    text = difference(catalog.load(old), catalog.load(new), old, new)
    sys.stdout.write(text)
    if text:
        raise typer.Exit(NO_MATCH)


@app.command()
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of runs or of ablations, or their JSON files.")
    ],
    as_json: Json = False,
) -> None:
    """Print the merged report of a run, or the tables of an ablation; of several, side by side."""
    from turbo_hydra.cli import sweeps, tables

    if sweeps.are_sweeps(folders):
        found = sweeps.read(folders)
        if as_json:
            _print_json(found[0][1] if len(found) == 1 else [data for _, data in found])
        else:
            for problem in sweeps.show(found):
                _note(problem)
        return
    reports = [(str(folder), _read_report(folder)) for folder in folders]
    if as_json:
        _print_json(reports[0][1] if len(reports) == 1 else [data for _, data in reports])
    elif len(reports) == 1:
        from turbo_hydra.launch.showing import show

        show(reports[0][1], str(_report_file(folders[0]).parent))
    else:
        tables.side_by_side(reports)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Print what a report of a fault needs: versions, devices, catalogs, plugins, caches. No secrets."""
    from turbo_hydra.cli.doctor import facts

    found = facts()
    if as_json:
        _print_json(found)
        return
    for section, values in found.items():
        typer.echo(f"{section}:")
        for key, value in values.items():
            typer.echo(f"  {key}: {value}")


def _report_file(folder: Path) -> Path:
    for path in (folder, folder / "turbo" / "report.json", folder / "report.json"):
        if path.is_file():
            return path
    raise OptimizationConfigNotFoundError(f"there is no report of a run in {folder} (looked for turbo/report.json)")


def _read_report(folder: Path) -> dict[str, Any]:
    path = _report_file(folder)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise OptimizationConfigError(f"{path} cannot be read: {problem}") from problem
    found = data.get("schema_version") if isinstance(data, dict) else None
    if found != "turbo_hydra/report/v1":
        raise OptimizationConfigError(f"{path} is no report of a run: its schema_version is {found!r}")
    return dict(data)


def _print_json(data: object) -> None:
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def _fail(message: str, status: int) -> int:
    sys.stderr.write(f"turbo-opt: {message}\n")
    return status


def _note(message: str) -> None:
    sys.stderr.write(f"turbo-opt: note: {message}\n")


if __name__ == "__main__":
    sys.exit(main())
