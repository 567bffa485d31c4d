# SPDX-License-Identifier: Apache-2.0
"""Which config is taken, in the order that the API's reference gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from turbo_hydra.config import OptimizationConfigCatalog, choose
from turbo_hydra.config.choose import VARIABLE
from turbo_hydra.engine.errors import OptimizationConfigError, OptimizationConfigNotFoundError

HEADER = "schema_version: turbo_hydra/optimization-config/v1\nkind: OptimizationConfig\n"


@pytest.fixture
def catalog(tmp_path: Path) -> OptimizationConfigCatalog:
    folder = tmp_path / "configs"
    folder.mkdir()
    for name in ("bev_former", "common"):
        (folder / f"{name}.yaml").write_text(HEADER, encoding="utf-8")
    return OptimizationConfigCatalog([folder])


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    """A working folder with the default file and two others."""
    folder = tmp_path / "work"
    default = folder / "turbo_hydra_configs" / "default" / "optimization.yaml"
    default.parent.mkdir(parents=True)
    for path in (default, folder / "mine.yaml", folder / "variable.yaml"):
        path.write_text(HEADER, encoding="utf-8")
    return folder


def test_the_explicit_path_wins_over_all_else(catalog: OptimizationConfigCatalog, cwd: Path) -> None:
    found = choose("mine.yaml", "bev_former", {VARIABLE: "variable.yaml"}, cwd, catalog)
    assert found == cwd / "mine.yaml"
    assert found.is_absolute()


def test_the_explicit_path_may_be_a_path_object(catalog: OptimizationConfigCatalog, cwd: Path) -> None:
    assert choose(cwd / "mine.yaml", None, {}, Path("/"), catalog) == cwd / "mine.yaml"


@pytest.mark.parametrize("name", ["bev_former", "BEV_Former", "bev-former", "BEV-FORMER"])
def test_the_model_comes_next_without_case_and_with_dashes(
    catalog: OptimizationConfigCatalog, cwd: Path, name: str
) -> None:
    assert choose(None, name, {VARIABLE: "variable.yaml"}, cwd, catalog).name == "bev_former.yaml"


def test_then_the_environment_variable(catalog: OptimizationConfigCatalog, cwd: Path) -> None:
    assert choose(None, None, {VARIABLE: "variable.yaml"}, cwd, catalog) == cwd / "variable.yaml"


def test_then_the_default_file_of_the_working_folder(catalog: OptimizationConfigCatalog, cwd: Path) -> None:
    expected = cwd / "turbo_hydra_configs" / "default" / "optimization.yaml"
    assert choose(None, None, {}, cwd, catalog) == expected
    assert choose(None, None, {VARIABLE: ""}, cwd, catalog) == expected


def test_last_the_common_config(catalog: OptimizationConfigCatalog, tmp_path: Path) -> None:
    assert choose(None, None, {}, tmp_path, catalog) == tmp_path / "configs" / "common.yaml"


def test_the_common_config_ships_with_the_package(tmp_path: Path) -> None:
    found = choose(None, None, {}, tmp_path, OptimizationConfigCatalog())
    assert found.parts[-3:] == ("conf", "optimization", "common.yaml")


@pytest.mark.parametrize("path", ["none.yaml", "."])
def test_an_explicit_path_that_is_no_file_is_not_replaced_by_the_next_choice(
    catalog: OptimizationConfigCatalog, cwd: Path, path: str
) -> None:
    with pytest.raises(OptimizationConfigNotFoundError, match="optimization_config_path names"):
        choose(path, "bev_former", {}, cwd, catalog)


def test_an_unknown_model_is_not_found_and_gets_a_suggestion(catalog: OptimizationConfigCatalog, cwd: Path) -> None:
    with pytest.raises(OptimizationConfigNotFoundError, match="model 'bev-forme'; did you mean 'bev_former'"):
        choose(None, "bev-forme", {}, cwd, catalog)


def test_a_variable_that_names_no_file_is_not_found_and_named(catalog: OptimizationConfigCatalog, cwd: Path) -> None:
    with pytest.raises(OptimizationConfigNotFoundError, match="variable TURBO_HYDRA_OPTIMIZATION_CONFIG names"):
        choose(None, None, {VARIABLE: "none.yaml"}, cwd, catalog)


def test_common_is_no_model(catalog: OptimizationConfigCatalog, cwd: Path) -> None:
    with pytest.raises(OptimizationConfigNotFoundError):
        choose(None, "common", {}, cwd, catalog)


@pytest.mark.parametrize("path", ["", 3, b"x"])
def test_what_is_no_path_is_refused(catalog: OptimizationConfigCatalog, cwd: Path, path: object) -> None:
    with pytest.raises(OptimizationConfigError, match="must be the path of a file"):
        choose(path, None, {}, cwd, catalog)  # type: ignore[arg-type]
