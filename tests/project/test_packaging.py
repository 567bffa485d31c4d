# SPDX-License-Identifier: Apache-2.0
"""Each way of having the project works from a folder that is not the project's."""

from __future__ import annotations

import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.project.conftest import Installed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WAYS = ["from_wheel", "from_sdist", "editable", "on_path"]


@pytest.fixture(params=WAYS)
def installed(request: pytest.FixtureRequest) -> Installed:
    """Return each way of having the project in turn."""
    way: Installed = request.getfixturevalue(request.param)
    return way


def names(wheel: Path) -> set[str]:
    """Return what a wheel holds, its metadata left out."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_the_wheel_holds_what_the_tree_ships(source: Path, wheel: Path) -> None:
    expected = set()
    for top in ("turbo_hydra", "hydra_plugins", "conf", "kernels", "examples"):
        inside = "" if top in {"turbo_hydra", "hydra_plugins"} else "turbo_hydra/"
        for path in (source / top).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                expected.add(inside + path.relative_to(source).as_posix())
    assert names(wheel) == expected


def test_the_wheel_puts_no_common_name_at_the_top(wheel: Path) -> None:
    assert {name.split("/")[0] for name in names(wheel)} == {"turbo_hydra", "hydra_plugins"}
    assert "hydra_plugins/__init__.py" not in names(wheel)


def test_the_sdist_builds_the_same_wheel(wheel: Path, wheel_of_sdist: Path) -> None:
    assert names(wheel_of_sdist) == names(wheel)


def test_the_sdist_has_the_licence_and_no_link(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert [member.name for member in members if member.issym() or member.islnk()] == []
    assert {"LICENSE", "README.md", "pyproject.toml"} <= {Path(member.name).name for member in members}


def test_the_code_that_runs_is_the_one_that_was_installed(installed: Installed, source: Path, tmp_path: Path) -> None:
    code = "import turbo_hydra as t, hydra_plugins.turbo_hydra as p; print(t.__file__); print(*p.__path__)"
    package, plugins = (Path(line) for line in installed.code(code, tmp_path).splitlines())
    own = installed.python.parents[1]
    assert package.is_relative_to(own if list(own.rglob("turbo_hydra/__init__.py")) else source)
    assert plugins == package.parents[1] / "hydra_plugins" / "turbo_hydra"


def test_hydra_finds_the_plugins(installed: Installed, tmp_path: Path) -> None:
    shown = installed.train("--info", "plugins", cwd=tmp_path)
    assert "TorchrunLauncher" in shown
    composed = installed.train("hydra/launcher=torchrun", "--cfg", "hydra", "--package", "hydra.launcher", cwd=tmp_path)
    assert "hydra_plugins.turbo_hydra" in composed


@pytest.mark.parametrize("way", ["wheel", "source"])
def test_the_plugins_of_other_packages_stay_visible(
    way: str, environment: Callable[..., Installed], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    what = [str(request.getfixturevalue(way))]
    installed = environment(f"beside_{way}", *(["--editable", *what] if way == "source" else what))
    foreign = installed.packages() / "hydra_plugins" / "foreign" / "__init__.py"
    foreign.parent.mkdir(parents=True)
    foreign.write_text(
        "from hydra.core.plugins import Plugins\n"
        "from hydra.plugins.search_path_plugin import SearchPathPlugin\n"
        "class ForeignPath(SearchPathPlugin):\n"
        "    def manipulate_search_path(self, search_path): pass\n",
        encoding="utf-8",
    )
    shown = installed.train("--info", "plugins", cwd=tmp_path)
    assert "ForeignPath" in shown
    assert "TorchrunLauncher" in shown


def test_the_configuration_is_found(installed: Installed, tmp_path: Path) -> None:
    composed = installed.train("runtime=cpu_2rank", "--cfg", "job", cwd=tmp_path)
    assert "name: tiny_vla" in composed
    assert "ranks: 2" in composed


def test_the_default_model_trains_with_its_groups(installed: Installed, tmp_path: Path) -> None:
    installed.train("model.args.steps=2", f"hydra.run.dir={tmp_path / 'run'}", cwd=tmp_path)
    report = json.loads((tmp_path / "run" / "turbo" / "report.json").read_text(encoding="utf-8"))
    assert report["summary"]["applied"] >= 4
    assert (report["summary"]["blocked"], report["summary"]["failed"]) == (0, 0)


def test_entry_points_name_each_plugin_class_and_each_catalog(from_wheel: Installed, tmp_path: Path) -> None:
    code = """
import json
from importlib.metadata import entry_points
from hydra.core.plugins import Plugins
from hydra.plugins.plugin import Plugin
for group in ("turbo_hydra.catalogs", "turbo_hydra.conf"):
    for entry in entry_points(group=group):
        entry.load()
ours = "hydra_plugins.turbo_hydra"
declared = {entry.value for entry in entry_points(group="hydra.plugins")}
found = {f"{plugin.__module__}:{plugin.__qualname__}" for plugin in Plugins.instance().discover(Plugin)}
print(json.dumps([sorted(name for name in names if name.startswith(ours)) for names in (declared, found)]))
"""
    declared, found = json.loads(from_wheel.code(code, tmp_path))
    assert found != []
    assert declared == found
