# SPDX-License-Identifier: Apache-2.0
"""The project as other people get it: a copied tree, a wheel, an sdist, and environments with nothing else of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
# Nothing is looked up outside: builds use the setuptools that is installed, installs bring no dependencies.
OFFLINE = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation")


def call(command: list[str], cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command that must succeed, and return what it wrote on standard output."""
    ran = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{command}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@dataclass(frozen=True)
class Installed:
    """One way of having the project: an interpreter, and the variables it needs."""

    python: Path
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Return the variables of a process that knows the project in this way only."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
        return {**kept, "OMP_NUM_THREADS": "1", "HYDRA_FULL_ERROR": "0", **self.variables}

    def code(self, source: str, cwd: Path) -> str:
        """Run a piece of Python."""
        return call([str(self.python), "-c", source], cwd, self.environment())

    def packages(self) -> Path:
        """Return the folder that packages are installed into."""
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        return Path(self.code(code, self.python.parent).strip())

    def train(self, *overrides: str, cwd: Path) -> str:
        """Run turbo-train: the console script where there is one, its function where there is only a path."""
        script = self.python.with_name("turbo-train")
        source = "import sys; from turbo_hydra.cli.train import main; sys.exit(main())"
        start = [str(script)] if script.exists() else [str(self.python), "-c", source]
        return call([*start, *overrides], cwd, self.environment())


def build_wheel(source: Path, folder: Path) -> Path:
    """Build a wheel of a tree or an archive into a folder."""
    call([*PIP, "wheel", *OFFLINE, "--wheel-dir", str(folder), str(source)], folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def source(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what git tracks or would track, links as links: a build leaves files beside the sources."""
    target = tmp_path_factory.mktemp("source")
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in call(listing, project_root).split("\0"):
        path = project_root / name
        if not name or not (path.is_symlink() or path.is_file()):
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target / name, follow_symlinks=False)
    return target


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from the tree."""
    return build_wheel(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an sdist from the tree."""
    folder = tmp_path_factory.mktemp("sdist")
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    call([sys.executable, "-c", code, str(folder)], source)
    (archive,) = folder.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="session")
def wheel_of_sdist(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from the sdist."""
    return build_wheel(sdist, tmp_path_factory.mktemp("wheel_of_sdist"))


@pytest.fixture(scope="session")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder of links to all that is installed here but this project."""
    folder = tmp_path_factory.mktemp("dependencies")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if (
            "turbo_hydra" not in path.name
            and path.suffix != ".pth"
            and path.name not in {"__pycache__", "hydra_plugins"}
        ):
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="session")
def environment(dependencies: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Installed]:
    """Return what makes a virtual environment with the dependencies, and installs into it offline what it is told."""

    def make(name: str, *what: str) -> Installed:
        folder = tmp_path_factory.mktemp(name)
        call([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder)
        made = Installed(folder / "bin" / "python")
        Path(made.packages(), "dependencies.pth").write_text(f"{dependencies}\n", encoding="utf-8")
        if what:
            call([*PIP, "--python", str(made.python), "install", *OFFLINE, *what], folder)
        return made

    return make


@pytest.fixture(scope="session")
def from_wheel(wheel: Path, environment: Callable[..., Installed]) -> Installed:
    """Install the wheel."""
    return environment("from_wheel", str(wheel))


@pytest.fixture(scope="session")
def from_sdist(sdist: Path, environment: Callable[..., Installed]) -> Installed:
    """Install the sdist."""
    return environment("from_sdist", str(sdist))


@pytest.fixture(scope="session")
def editable(source: Path, environment: Callable[..., Installed]) -> Installed:
    """Install the tree so that edits count."""
    return environment("editable", "--editable", str(source))


@pytest.fixture(scope="session")
def on_path(source: Path, environment: Callable[..., Installed]) -> Installed:
    """Install nothing: the tree is on the path."""
    return replace(environment("on_path"), variables={"PYTHONPATH": str(source)})
