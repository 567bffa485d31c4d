# SPDX-License-Identifier: Apache-2.0
"""Live evidence: targets are imported in a child process, so that what they print or break stays there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turbo_hydra.config.static.trees import Installed
from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.engine.evidence import EvidenceRecord, LiveEvidence, LiveReader


def live_records(
    targets: Sequence[str], root: Path, roots: Sequence[Path]
) -> tuple[dict[str, EvidenceRecord], dict[str, str]]:
    """The evidence of targets as they are when imported, and the reasons for those that have none.

    Parameters
    ----------
    targets : sequence of str
        Dotted paths.
    root : Path
        The model's repository.
    roots : sequence of Path
        What goes before the installed packages on the import path.

    Raises
    ------
    OptimizationConfigError
        If the child process ends without an answer.
    """
    package = Path(__file__).absolute().parent.parent.parent
    path = os.pathsep.join([*map(str, roots), *filter(None, [os.environ.get("PYTHONPATH")]), str(package)])
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        request = json.dumps({"targets": list(targets), "root": str(root), "answer": str(answer)})
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=request,
            env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
        if not answer.is_file():
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise OptimizationConfigError(
                f"importing the targets ended with status {done.returncode}: {said}; --static imports nothing"
            )
        found: Mapping[str, Mapping[str, Any]] = json.loads(answer.read_text(encoding="utf-8"))
    records = {target: EvidenceRecord.from_dict(item) for target, item in found["records"].items()}
    return records, dict(found["reasons"])


def main() -> None:
    """Answer one request on stdin."""
    request = json.load(sys.stdin)
    records: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    installed, reader = Installed(), LiveReader()
    for target in request["targets"]:
        found = _read(target, reader)
        if isinstance(found, str):
            reasons[target] = found
        else:
            records[target] = _record(target, found, Path(request["root"]), installed).to_dict()
    Path(request["answer"]).write_text(json.dumps({"records": records, "reasons": reasons}), encoding="utf-8")


def _read(target: str, reader: LiveReader) -> LiveEvidence | str:
    from turbo_hydra.engine.targets import resolve

    try:
        site = resolve(target, scope="global")
    except Exception as error:
        # Whatever a module raises while it is imported.
        return f"{type(error).__name__}: {error}".splitlines()[0]
    home = site.owner.__name__ if isinstance(site.owner, types.ModuleType) else getattr(site.owner, "__module__", "")
    found = reader.read(site.raw, site.name, str(home))
    return found.reason if found.source is None and found.artifact is None else found


def _record(target: str, found: LiveEvidence, root: Path, installed: Installed) -> EvidenceRecord:
    if found.artifact is not None:
        top = target.partition(".")[0]
        return EvidenceRecord(*installed.distribution(top), None, None, found.chain, top, found.artifact)
    file = Path(found.place.file if found.place else "").resolve()
    relative = file.relative_to(root.resolve()) if file.is_relative_to(root.resolve()) else None
    # A virtual environment may lie inside the repository.
    if relative is not None and not {"site-packages", "dist-packages"}.intersection(relative.parts):
        name, dist, version = relative.as_posix(), None, None
    else:
        name, dist, version = _below_import_path(file, installed)
    return EvidenceRecord(dist, version, found.source, found.ast, found.chain, name)


def _below_import_path(file: Path, installed: Installed) -> tuple[str, str | None, str | None]:
    for entry in sorted((Path(item).resolve() for item in sys.path if item), key=lambda item: -len(item.parts)):
        if file.is_relative_to(entry):
            name = file.relative_to(entry).as_posix()
            return (name, *installed.distribution(name.partition("/")[0].removesuffix(".py")))
    return file.name, None, None


if __name__ == "__main__":
    main()
