# SPDX-License-Identifier: Apache-2.0
"""`turbo_hydra.apply()`, sentence by sentence of its reference."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING

import pytest

import turbo_hydra

if TYPE_CHECKING:
    from tests.api.conftest import Project

SUMMARY = {"applied": 2, "skipped": 1, "blocked": 0, "failed": 0, "rolled_back": 0, "not_started": 0}


def test_the_parameters_are_keywords_with_the_documented_defaults() -> None:
    expected = {
        "optimization_config_path": None,
        "model": None,
        "log_report": False,
        "registry": None,
        "catalog": None,
        "force_groups": (),
        "disable_groups": (),
    }
    parameters = inspect.signature(turbo_hydra.apply).parameters
    assert {name: item.default for name, item in parameters.items()} == expected
    assert {item.kind for item in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    checked = inspect.signature(turbo_hydra.check).parameters
    del expected["log_report"]
    assert {name: item.default for name, item in checked.items()} == expected
    assert {item.kind for item in checked.values()} == {inspect.Parameter.KEYWORD_ONLY}


def test_apply_loads_checks_installs_and_returns_its_report(project: Project) -> None:
    found = project.run(
        """
        report = turbo_hydra.apply(optimization_config_path="mine.yaml")
        loaded = "toy.lib" in sys.modules
        from toy.lib import f, g, h
        show(
            summary=report.summary,
            results=[f(1), g(1), h(1)],
            type=type(report).__name__,
            run_id=report.run_id,
            config=report.optimization_config["metadata"]["id"],
            path=report.optimization_config_path,
            runtime=report.runtime_config_path,
            prepared=type(report.prepared_execution).__name__,
            execution=[
                [item["group"], item["status"], [member["hits"] for member in item["members"]]]
                for item in report.execution
            ],
            dict=sorted(report.to_dict()),
            plain=json.loads(json.dumps(report.to_dict())) == report.to_dict(),
        )
        """
    )
    assert found["summary"] == SUMMARY
    assert found["results"] == [["ours", 1], ["ours", 1], ["original", 1]]
    assert found["type"] == "OptimizationReport"
    assert found["run_id"]
    assert (found["config"], found["path"]) == ("mine", str(project.folder / "mine.yaml"))
    assert found["runtime"] is None
    assert found["prepared"] == "PreparedExecution"
    once = {"replacement": 1, "original": 0, "traced": 0, "reasons": {}}
    assert found["execution"] == [["toy.f", "applied", [once]], ["toy.g", "applied", [once]], ["toy.h", "skipped", []]]
    assert found["dict"] == sorted(
        [
            "schema_version",
            "run_id",
            "summary",
            "optimization_config",
            "optimization_config_path",
            "runtime_config_path",
            "prepared_execution",
            "execution",
        ]
    )
    assert found["plain"]


def test_an_absolute_path_and_a_path_object_are_taken(project: Project) -> None:
    found = project.run(
        """
        from pathlib import Path
        report = turbo_hydra.apply(optimization_config_path=Path("mine.yaml").absolute())
        show(path=report.optimization_config_path)
        """
    )
    assert found["path"] == str(project.folder / "mine.yaml")


# The order of the choice.

CHOICES = """
    report = turbo_hydra.apply({arguments}catalog=catalog)
    show(id=report.optimization_config["metadata"]["id"])
"""
VARIABLE = "TURBO_HYDRA_OPTIMIZATION_CONFIG"


@pytest.mark.parametrize(
    ("arguments", "variable", "default", "expected"),
    [
        ("optimization_config_path='mine.yaml', model='toy_model', ", True, True, "mine"),
        ("model='toy_model', ", True, True, "model"),
        ("", True, True, "variable"),
        ("", False, True, "default"),
        ("", False, False, "common"),
    ],
)
def test_the_first_that_is_said_is_taken(
    project: Project, arguments: str, variable: bool, default: bool, expected: str
) -> None:
    project.config("elsewhere/variable.yaml", id="variable")
    if default:
        project.config("turbo_hydra_configs/default/optimization.yaml", id="default")
    environment = {VARIABLE: "elsewhere/variable.yaml"} if variable else {}
    assert project.run(CHOICES.format(arguments=arguments), **environment)["id"] == expected


@pytest.mark.parametrize("name", ["toy_model", "TOY_MODEL", "toy-model", "Toy-Model"])
def test_a_model_s_name_is_read_without_case_and_a_dash_as_an_underscore(project: Project, name: str) -> None:
    assert project.run(CHOICES.format(arguments=f"model={name!r}, "))["id"] == "model"


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ("optimization_config_path='none.yaml'", "OptimizationConfigNotFoundError", "none.yaml"),
        ("model='toy_modell', catalog=catalog", "OptimizationConfigNotFoundError", "toy_model"),
        ("optimization_config_path='wrong.yaml'", "OptimizationConfigError", "wrong.yaml"),
        ("optimization_config_path='mine.yaml', force_groups='toy.f'", "OptimizationConfigError", "('toy.f',)"),
        ("optimization_config_path='mine.yaml', disable_groups='toy.f'", "OptimizationConfigError", "('toy.f',)"),
        (
            "optimization_config_path='mine.yaml', force_groups=['toy.f'], disable_groups=['toy.f']",
            "OptimizationConfigError",
            "both in force_groups and in disable_groups",
        ),
        ("optimization_config_path='mine.yaml', force_groups=['toy.h']", "OptimizationConfigError", "which is off"),
        ("optimization_config_path='mine.yaml', force_groups=['toy.ff']", "OptimizationConfigError", "toy.f"),
        ("optimization_config_path='mine.yaml', disable_groups=['toy.ff']", "OptimizationConfigError", "toy.f"),
        ("optimization_config_path='mine.yaml', force_groups=[3]", "OptimizationConfigError", "found 3"),
        ("model=3", "OptimizationConfigError", "found 3"),
        ("optimization_config_path=3", "OptimizationConfigError", "found 3"),
    ],
)
def test_a_call_that_fails_before_any_import_says_why_and_may_be_repeated(
    project: Project, arguments: str, error: str, said: str
) -> None:
    project.write("wrong.yaml", "kind: Something\n")
    found = project.run(
        f"""
        first = caught(lambda: turbo_hydra.apply({arguments}))
        again = caught(lambda: turbo_hydra.apply({arguments}))
        imported = [name for name in ("toy", "toy_catalog", "toy_fast", "torch") if name in sys.modules]
        report = turbo_hydra.apply(optimization_config_path="mine.yaml")
        show(first=first, again=again, imported=imported, summary=report.summary)
        """
    )
    assert found["first"] == found["again"]
    assert found["first"][0] == error
    assert said in found["first"][1]
    assert "\n" not in found["first"][1]
    assert found["imported"] == []
    assert found["summary"] == SUMMARY


def test_the_environment_variable_must_name_a_file(project: Project) -> None:
    found = project.run(
        "show(error=caught(lambda: turbo_hydra.apply(catalog=catalog)))",
        **{VARIABLE: "nowhere.yaml"},
    )
    assert found["error"][0] == "OptimizationConfigNotFoundError"
    assert VARIABLE in found["error"][1]


def test_both_errors_of_a_config_are_errors_of_this_package() -> None:
    assert issubclass(turbo_hydra.OptimizationConfigNotFoundError, turbo_hydra.OptimizationConfigError)
    assert issubclass(turbo_hydra.OptimizationConfigError, turbo_hydra.TurboHydraError)
    assert issubclass(turbo_hydra.OptimizationRollbackError, turbo_hydra.TurboHydraError)


# Once a process.


def test_a_second_call_is_refused_and_names_the_first(project: Project) -> None:
    found = project.run(
        """
        first = lambda: turbo_hydra.apply(optimization_config_path="mine.yaml")
        first()
        second = caught(lambda: turbo_hydra.apply(optimization_config_path="mine.yaml"))
        third = caught(lambda: turbo_hydra.apply(optimization_config_path="none.yaml"))
        from toy.lib import f
        show(second=second, third=third, f=f(1))
        """
    )
    script = project.folder / "script.py"
    assert found["second"][0] == found["third"][0] == "AlreadyAppliedError"
    assert f"had its attempt at {script}:{project.line('first')}" in found["second"][1]
    assert f"at {script}:{project.line('second')}" in found["second"][1]
    assert found["f"] == ["ours", 1]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("groups: {toy: {ff: true}}\n", "OptimizationConfigError"),
        ("groups: {toy: {f: true}}\noptions: {toy: {f: {size: 1}}}\n", "OptimizationConfigError"),
        ("groups: {toy: {f: true, bad: true}}\nstrict: true\n", "StrictStop"),
    ],
)
def test_an_attempt_that_failed_after_an_import_is_used_up(project: Project, text: str, error: str) -> None:
    bad = "\ngroup('toy.bad', replace('toy.lib.nothing', 'toy_fast.f'))\n"
    project.write("toy_catalog.py", (project.folder / "toy_catalog.py").read_text() + bad)
    project.config("failing.yaml", text)
    found = project.run(
        """
        first = caught(lambda: turbo_hydra.apply(optimization_config_path="failing.yaml"))
        second = caught(lambda: turbo_hydra.apply(optimization_config_path="mine.yaml"))
        show(first=first, second=second)
        """
    )
    assert found["first"][0] == error
    assert found["second"][0] == "AlreadyAppliedError"


def test_a_strict_stop_carries_the_report(project: Project) -> None:
    project.write("toy/lib.py", (project.folder / "toy/lib.py").read_text().replace("'original', x", "x, 'other'", 1))
    project.config("strict.yaml", "groups: {toy: {f: true, g: true, h: false}}\n" + "strict: true\n")
    found = project.run(
        """
        try:
            turbo_hydra.apply(optimization_config_path="strict.yaml")
        except turbo_hydra.StrictStop as error:
            show(summary=error.report.summary, text=str(error))
        """
    )
    assert (found["summary"]["blocked"], found["summary"]["applied"]) == (2, 0)
    assert "toy.f" in found["text"]


def test_a_group_that_is_blocked_raises_nothing(project: Project) -> None:
    project.write("toy/lib.py", (project.folder / "toy/lib.py").read_text().replace("'original', x", "x, 'other'", 1))
    found = project.run(
        """
        report = turbo_hydra.apply(optimization_config_path="mine.yaml")
        show(summary=report.summary)
        """
    )
    assert found["summary"] == {**SUMMARY, "applied": 0, "blocked": 2}


def test_a_group_that_failed_and_was_rolled_back_lets_others_go_on(project: Project) -> None:
    sealed = """
class Sealed(type(sys)):
    def __setattr__(self, name, value):
        if name == "f":
            raise RuntimeError("sealed")
        super().__setattr__(name, value)
sys.modules[__name__].__class__ = Sealed
"""
    lib = project.folder / "toy/lib.py"
    project.write("toy/lib.py", "import sys\n" + lib.read_text() + sealed)
    project.config("all.yaml", "groups: {toy: {f: true, h: true}}\n")
    found = project.run(
        """
        report = turbo_hydra.apply(optimization_config_path="all.yaml")
        show(status={item["group"]: item["status"] for item in report.execution})
        """
    )
    assert found["status"] == {"toy.f": "rolled_back", "toy.h": "applied", "toy.g": "skipped"}


def test_a_rollback_that_fails_raises_an_error_with_the_report(project: Project) -> None:
    sealing = """
class Sealing(type(sys)):
    def __setattr__(self, name, value):
        if "sealed" in vars(self):
            raise RuntimeError("sealed")
        vars(self)["sealed"] = True
        super().__setattr__(name, (value,))
sys.modules[__name__].__class__ = Sealing
"""
    lib = project.folder / "toy/lib.py"
    project.write("toy/lib.py", "import sys\n" + lib.read_text() + sealing)
    project.config("all.yaml", "groups: {toy: {f: true, h: true}}\n")
    found = project.run(
        """
        try:
            turbo_hydra.apply(optimization_config_path="all.yaml")
        except turbo_hydra.OptimizationRollbackError as error:
            report = error.report
        second = caught(lambda: turbo_hydra.apply(optimization_config_path="mine.yaml"))
        show(status={item["group"]: item["status"] for item in report.execution}, second=second[0])
        """
    )
    assert found["status"] == {"toy.f": "failed", "toy.g": "skipped", "toy.h": "not_started"}
    assert found["second"] == "AlreadyAppliedError"


# Groups for one call.


def test_disabling_a_group_skips_what_depends_on_it(project: Project) -> None:
    found = project.run(
        """
        report = turbo_hydra.apply(optimization_config_path="mine.yaml", disable_groups=["toy.f"])
        show(reasons={item["group"]: item["reasons"] for item in report.execution}, summary=report.summary)
        """
    )
    assert found["reasons"]["toy.f"] == ["disabled_by_user"]
    assert found["reasons"]["toy.g"] == ["dependency_disabled"]
    assert found["summary"] == {**SUMMARY, "applied": 0, "skipped": 3}


def test_forcing_lets_a_changed_original_pass_and_no_structural_failure(project: Project) -> None:
    lib = (project.folder / "toy/lib.py").read_text()
    project.write("toy/lib.py", lib.replace("'original', x", "x, 'other'", 1).replace("def g(x)", "def g(x, y)"))
    found = project.run(
        """
        report = turbo_hydra.apply(optimization_config_path="mine.yaml", force_groups=("toy.f", "toy.g"))
        show(reasons={item["group"]: [item["status"], item["reasons"]] for item in report.execution})
        """
    )
    assert found["reasons"]["toy.f"] == ["applied", ["forced:evidence.changed"]]
    assert found["reasons"]["toy.g"][0] == "blocked"
    assert "signature" in found["reasons"]["toy.g"][1]


# registry= and catalog=.


def test_a_registry_is_used_in_place_of_the_catalogs(project: Project) -> None:
    found = project.run(
        """
        from turbo_hydra import Registry, replace
        registry = Registry()
        registry.group("toy.f", replace("toy.lib.f", "toy_fast.h"))
        registry.group("toy.g", replace("toy.lib.g", "toy_fast.g"))
        registry.group("toy.h", replace("toy.lib.h", "toy_fast.h"))
        report = turbo_hydra.apply(optimization_config_path="mine.yaml", registry=registry)
        show(
            summary=report.summary,
            replacement=report.execution[0]["members"][0]["replacement"],
            catalog="toy_catalog" in sys.modules,
        )
        """
    )
    assert found["summary"] == SUMMARY
    assert found["replacement"] == "toy_fast.h"
    assert not found["catalog"]


def test_a_catalog_resolves_what_a_config_extends(project: Project) -> None:
    project.write(
        "child.yaml",
        (
            "schema_version: turbo_hydra/optimization-config/v1\nkind: OptimizationConfig\n"
            "metadata: {id: child}\nextends: [toy_model]\ngroups: {toy: {g: false}}\n"
        ),
    )
    found = project.run(
        """
        report = turbo_hydra.apply(optimization_config_path="child.yaml", catalog=catalog)
        show(summary=report.summary, id=report.optimization_config["metadata"]["id"])
        """
    )
    assert found["id"] == "child"
    assert found["summary"] == {**SUMMARY, "applied": 1, "skipped": 2}


# Logging.

LOGGING = """
    logging.basicConfig(level=logging.INFO, format="%(name)s|%(message)s", stream=sys.stderr)
    turbo_hydra.apply(optimization_config_path="mine.yaml", log_report={log_report})
    show()
"""
COUNTS = "applied=2 skipped=1 blocked=0 failed=0 rolled_back=0 not_started=0"


@pytest.mark.parametrize(
    ("log_report", "rank", "whole"), [(True, None, True), (True, "0", True), (True, "1", False), (False, "0", False)]
)
def test_every_rank_logs_one_line_and_rank_0_the_whole_report_when_asked(
    project: Project, log_report: bool, rank: str | None, whole: bool
) -> None:
    environment = {} if rank is None else {"RANK": rank}
    done = project.process(LOGGING.format(log_report=log_report), **environment)
    line = f"turbo_hydra|rank {rank or 0}: {COUNTS}"
    assert done.stderr.count(COUNTS) == done.stderr.count(line) == 1
    found = done.stderr.partition("turbo_hydra|{")[2]
    assert bool(found) is whole
    if whole:
        assert json.loads("{" + found)["summary"] == SUMMARY


def test_a_config_may_ask_for_the_report_too(project: Project) -> None:
    project.config("mine.yaml", "groups: {toy: {f: true, g: true, h: false}}\n" + "log_report: true\n")
    done = project.process(LOGGING.format(log_report=False))
    assert "turbo_hydra|{" in done.stderr


# What importing costs.


def test_importing_the_package_imports_neither_torch_nor_hydra(project: Project) -> None:
    found = project.run(
        """
        heavy = [name for name in ("torch", "hydra", "omegaconf", "numpy") if name in sys.modules]
        turbo_hydra.apply(optimization_config_path="mine.yaml")
        show(heavy=heavy, after=[name for name in ("torch", "hydra", "omegaconf", "numpy") if name in sys.modules])
        """
    )
    assert found == {"heavy": [], "after": []}
