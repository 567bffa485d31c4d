# SPDX-License-Identifier: Apache-2.0
"""`turbo_hydra.check()`: the plan of `apply()`, with nothing installed and nothing left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.api.conftest import Project


def test_check_returns_the_plan_and_installs_nothing(project: Project) -> None:
    found = project.run(
        """
        plan = turbo_hydra.check(optimization_config_path="mine.yaml")
        from toy.lib import f
        show(
            type=type(plan).__name__,
            decisions={item["group"]: item["decision"] for item in plan.groups},
            order=plan.execution_order,
            conflicts=plan.conflicts,
            checks=sorted({check["code"] for check in plan.checks}),
            python=plan.environment["python"],
            stay=plan.imports_stay,
            f=f(1),
        )
        """
    )
    assert found["type"] == "PreparedExecution"
    assert found["decisions"] == {"toy.f": "apply", "toy.g": "apply", "toy.h": "skip"}
    assert found["order"] == ["toy.f", "toy.g"]
    assert found["conflicts"] == []
    assert {"evidence", "target.resolved"} <= set(found["checks"])
    assert not found["stay"]
    assert found["f"] == ["original", 1]


def test_check_leaves_nothing_behind_in_the_process(project: Project) -> None:
    project.write("toy/__init__.py", "import os\nos.environ['TOY_WAS_IMPORTED'] = '1'\nprint('noise on stdout')\n")
    found = project.run(
        """
        before = set(sys.modules), list(sys.path), dict(os.environ)
        turbo_hydra.check(optimization_config_path="mine.yaml")
        new = sorted(name for name in set(sys.modules) - before[0] if name.startswith("toy"))
        show(new=new, path=sys.path == before[1], environ=dict(os.environ) == before[2])
        """
    )
    assert found == {"new": [], "path": True, "environ": True}


def test_check_does_not_run_the_caller_s_script_again(project: Project) -> None:
    found = project.run(
        """
        with open("ran.txt", "a") as stream:
            stream.write("x")
        plan = turbo_hydra.check(optimization_config_path="mine.yaml")
        show(order=plan.execution_order)
        """
    )
    assert found["order"] == ["toy.f", "toy.g"]
    assert (project.folder / "ran.txt").read_text() == "x"


def test_check_and_then_apply(project: Project) -> None:
    found = project.run(
        """
        turbo_hydra.check(optimization_config_path="mine.yaml")
        plan = turbo_hydra.check(optimization_config_path="mine.yaml", disable_groups=("toy.f",))
        report = turbo_hydra.apply(optimization_config_path="mine.yaml")
        show(order=plan.execution_order, summary=report.summary)
        """
    )
    assert found["order"] == []
    assert found["summary"]["applied"] == 2


def test_the_plan_says_what_apply_would_do(project: Project) -> None:
    lib = (project.folder / "toy/lib.py").read_text()
    project.write("toy/lib.py", lib.replace("'original', x", "x, 'other'", 1))
    found = project.run(
        """
        plan = turbo_hydra.check(optimization_config_path="mine.yaml")
        forced = turbo_hydra.check(optimization_config_path="mine.yaml", force_groups=("toy.f",))
        report = turbo_hydra.apply(optimization_config_path="mine.yaml")
        def told(execution):
            return [[item["group"], item["decision"], item["reasons"]] for item in execution.groups]
        show(plan=told(plan), forced=told(forced), applied=told(report.prepared_execution))
        """
    )
    assert found["plan"] == found["applied"]
    assert found["plan"][0] == ["toy.f", "block", ["evidence.changed"]]
    assert found["forced"][0] == ["toy.f", "apply", ["forced:evidence.changed"]]


@pytest.mark.parametrize("argument", ["registry=registry", "catalog=catalog"])
def test_with_live_objects_the_plan_is_made_here_and_says_that_imports_stay(project: Project, argument: str) -> None:
    found = project.run(
        f"""
        from turbo_hydra import Registry, replace
        registry = Registry()
        for name in "fgh":
            registry.group("toy." + name, replace("toy.lib." + name, "toy_fast." + name))
        plan = turbo_hydra.check(optimization_config_path="mine.yaml", {argument})
        loaded = "toy.lib" in sys.modules
        from toy.lib import f
        before = f(1)
        report = turbo_hydra.apply(optimization_config_path="mine.yaml", {argument})
        show(stay=plan.imports_stay, loaded=loaded, f=before, summary=report.summary)
        """
    )
    assert found["stay"]
    assert found["loaded"]
    assert found["f"] == ["original", 1]
    assert found["summary"]["applied"] == 2


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("groups: {toy: {ff: true}}\n", "OptimizationConfigError", "toy.f"),
        ("groups: {toy: {f: true}}\nforce: [toy.zz]\n", "OptimizationConfigError", "toy.zz"),
    ],
)
def test_what_is_wrong_is_the_same_error_as_apply_s(project: Project, text: str, error: str, said: str) -> None:
    project.config("wrong.yaml", text)
    found = project.run(
        """
        check = caught(lambda: turbo_hydra.check(optimization_config_path="wrong.yaml"))
        apply = caught(lambda: turbo_hydra.apply(optimization_config_path="wrong.yaml"))
        show(check=check, apply=apply)
        """
    )
    assert found["check"] == found["apply"]
    assert found["check"][0] == error
    assert said in found["check"][1]


def test_a_declaration_that_cannot_be_meant_is_the_same_error_as_apply_s(project: Project) -> None:
    path = project.write(
        "toy_catalog.py", "from turbo_hydra import group, replace\ngroup('toy.f', replace('f', 'g.f'))\n"
    )
    found = project.run(
        """
        check = caught(lambda: turbo_hydra.check(optimization_config_path="mine.yaml"))
        apply = caught(lambda: turbo_hydra.apply(optimization_config_path="mine.yaml"))
        show(check=check, apply=apply)
        """
    )
    assert found["check"] == found["apply"]
    assert found["check"][0] == "DeclarationError"
    assert found["check"][1].startswith(f"{path}:2: ")


def test_arguments_are_checked_as_apply_checks_them(project: Project) -> None:
    found = project.run(
        """
        path = "mine.yaml"
        show(
            bare=caught(lambda: turbo_hydra.check(optimization_config_path=path, force_groups="toy.f")),
            off=caught(lambda: turbo_hydra.check(optimization_config_path=path, force_groups=["toy.h"])),
            missing=caught(lambda: turbo_hydra.check(optimization_config_path="none.yaml")),
        )
        """
    )
    assert [found[key][0] for key in ("bare", "off", "missing")] == [
        "OptimizationConfigError",
        "OptimizationConfigError",
        "OptimizationConfigNotFoundError",
    ]


def test_a_target_that_ends_the_process_ends_the_child_s_and_is_told(project: Project) -> None:
    project.write("toy/lib.py", "import os\nos._exit(7)\n")
    found = project.run(
        """
        show(error=caught(lambda: turbo_hydra.check(optimization_config_path="mine.yaml")))
        """
    )
    assert found["error"][0] == "TurboHydraError"
    assert "status 7" in found["error"][1]


def test_modules_beside_the_script_are_found_by_the_child(project: Project) -> None:
    project.write("beside/only_here.py", "def f(x):\n    return x\n")
    found = project.run(
        """
        sys.path.insert(0, "beside")
        from pathlib import Path
        Path("toy_catalog.py").write_text(
            "from turbo_hydra import group, replace\\ngroup('toy.f', replace('only_here.f', 'toy_fast.f'))\\n"
        )
        Path("mine.yaml").write_text(Path("mine.yaml").read_text().replace(", g: true, h: false", ""))
        plan = turbo_hydra.check(optimization_config_path="mine.yaml")
        show(codes=[check["code"] for check in plan.checks])
        """
    )
    assert found["codes"] == ["target.resolved", "evidence.missing"]
