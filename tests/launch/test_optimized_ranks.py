# SPDX-License-Identifier: Apache-2.0
"""Groups in ranks, in the children that ranks start, and in the merged report."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.launch.conftest import Launching

CATALOG = """
    from turbo_hydra import group, replace

    group("demo.fast", replace("lib.slow", "fastlib.quick"))
    group("demo.step", replace("__main__.step", "fastlib.fast_step", late=True))
"""
LIBRARY = """
    def slow(number):
        return f"slow {number}"
"""
FAST = """
    def quick(number):
        return f"quick {number}"

    def fast_step(number):
        return f"fast step {number}"
"""
# No evidence was taken for these; forcing lets them pass, as a user would.
OPTIMIZATION: dict[str, Any] = {
    "schema_version": "turbo_hydra/optimization-config/v1",
    "kind": "OptimizationConfig",
    "metadata": {"id": "demo", "version": "1.0.0", "description": "for tests"},
    "catalogs": ["demo_catalog"],
    "groups": {"demo": {"fast": True, "step": True}},
    "force": ["demo.fast", "demo.step"],
}


@pytest.fixture
def demo(launching: Launching) -> Launching:
    launching.script(CATALOG, "demo_catalog.py")
    launching.script(LIBRARY, "lib.py")
    launching.script(FAST, "fastlib.py")
    return launching


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {entry["group"]: entry["status"] for entry in report["execution"]}


SCRIPT = """
    from lib import slow

    def step(number):
        return f"step {number}"

    print(slow(1), "|", step(1))

    if __name__ == "__main__":
        print(slow(2), "|", step(2))
"""


def test_groups_are_there_before_the_script_and_in_it(demo: Launching) -> None:
    ran = demo.run(demo.job(SCRIPT, optimization=OPTIMIZATION))
    assert (ran.status, ran.log(0)) == (0, "quick 1 | fast step 1\nquick 2 | fast step 2\n"), ran.err
    assert statuses(ran.report) == {"demo.fast": "applied", "demo.step": "applied"}
    assert "applied=2 skipped=0 blocked=0 failed=0 rolled_back=0 not_started=0" in ran.out.splitlines()
    assert ran.report["optimization_config"]["catalogs"] == ["demo_catalog"]
    hits = {entry["group"]: entry["members"][0]["hits"]["replacement"] for entry in ran.report["execution"]}
    assert hits == {"demo.fast": 2, "demo.step": 2}
    row = next(line for line in ran.out.splitlines() if line.startswith("demo.fast "))
    assert row.split()[:3] == ["demo.fast", "apply", "applied"]
    assert (demo.output / "turbo" / "report.md").read_text().count("demo.fast") >= 2


CHILDREN = """
    import multiprocessing, sys
    from lib import slow

    def step(number):
        return f"step {number}"

    def work(number):
        return slow(number), step(number)

    if __name__ == "__main__":
        with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
            print(pool.map(work, [1]))
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_groups_are_there_in_children(demo: Launching, method: str) -> None:
    ran = demo.rank(demo.job(CHILDREN, model={"positional": [method]}, optimization=OPTIMIZATION))
    assert (ran.status, ran.out) == (0, "[('quick 1', 'fast step 1')]\n"), ran.err


def test_children_are_left_as_they_are_when_asked(demo: Launching) -> None:
    job = demo.job(CHILDREN, model={"positional": ["spawn"]}, runtime={"children": False}, optimization=OPTIMIZATION)
    ran = demo.rank(job)
    assert (ran.status, ran.out) == (0, "[('slow 1', 'step 1')]\n"), ran.err


def test_a_program_that_the_script_starts_is_left_alone(demo: Launching) -> None:
    job = demo.job(
        """
        import subprocess, sys
        code = "import lib, sys; print(lib.slow(3), 'turbo_hydra' in sys.modules)"
        subprocess.run([sys.executable, "-c", code], check=True, env=None, cwd=".")
        """,
        model={"pythonpath": ["."]},
        optimization=OPTIMIZATION,
    )
    ran = demo.rank(job)
    assert (ran.status, ran.out) == (0, "slow 3 False\n"), ran.err


@pytest.mark.slow
def test_a_strict_run_ends_with_3_before_the_script(demo: Launching) -> None:
    strict = {**OPTIMIZATION, "strict": True, "force": []}
    ran = demo.run(demo.job("print('it ran')\n", optimization=strict))
    assert (ran.status, ran.log(0)) == (3, "")
    assert ran.report["status"] == "strict_stop"
    assert statuses(ran.report)["demo.fast"] == "blocked"
    assert "Traceback" not in ran.out + ran.err


def test_a_config_that_cannot_be_read_ends_with_2_and_a_sentence(demo: Launching) -> None:
    wrong = {**OPTIMIZATION, "groups": {"demo": {"fats": True}}}
    ran = demo.rank(demo.job("print('it ran')\n", optimization=wrong))
    assert (ran.status, ran.out) == (2, "")
    assert "did you mean" in ran.err
    assert "Traceback" not in ran.err


def test_a_strict_rank_ends_with_3_and_says_why(demo: Launching) -> None:
    strict = {**OPTIMIZATION, "strict": True, "force": []}
    ran = demo.rank(demo.job("print('it ran')\n", optimization=strict))
    assert (ran.status, ran.out) == (3, "")
    assert "demo.fast" in ran.err.splitlines()[-1]
    assert "Traceback" not in ran.err


def test_a_killed_rank_leaves_its_report(demo: Launching) -> None:
    ran = demo.rank(demo.job("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", optimization=OPTIMIZATION))
    report = (demo.output / "turbo" / "ranks" / "0" / "report.json").read_text()
    assert ran.status == -9
    assert '"status": "running"' in report
    assert '"demo.fast"' in report


def test_a_fork_of_the_script_does_not_speak_for_the_rank(demo: Launching) -> None:
    job = demo.job(
        """
        import os, sys
        if os.fork() == 0:
            sys.exit(5)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        """,
        optimization=OPTIMIZATION,
    )
    ran = demo.rank(job)
    assert (ran.status, ran.out) == (0, "5\n")
    report = json.loads((demo.output / "turbo" / "ranks" / "0" / "report.json").read_text())
    assert (report["status"], report["exit_status"]) == ("succeeded", 0)


@pytest.mark.slow
def test_two_ranks_agree(demo: Launching) -> None:
    ran = demo.run(demo.job(SCRIPT, ranks=2, optimization=OPTIMIZATION))
    assert (ran.status, ran.log(0)) == (0, ran.log(1))
    assert ran.report["disagreements"] == []
    assert [rank["status"] for rank in ran.report["ranks"]] == ["succeeded", "succeeded"]
    assert ran.report["execution"][0]["members"][0]["hits"]["replacement"] == 4


@pytest.mark.slow
def test_a_rank_that_finds_another_copy_of_a_module_is_named(demo: Launching) -> None:
    demo.script(LIBRARY, "copy/lib.py")
    # Read by Python as every process starts: only rank 1 looks into the other folder first.
    demo.script(
        """
        import os, sys
        if os.environ.get("RANK") == "1":
            sys.meta_path.insert(0, __import__("other_copy").Finder())
        """,
        "start/sitecustomize.py",
    )
    demo.script(
        """
        import importlib.machinery, os
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "lib":
                    return importlib.machinery.PathFinder.find_spec(name, [os.environ["OTHER_COPY"]])
        """,
        "start/other_copy.py",
    )
    job = demo.job(SCRIPT, ranks=2, optimization=OPTIMIZATION)
    ran = demo.run(job, PYTHONPATH=path(demo), OTHER_COPY=str(demo.folder / "copy"))
    assert ran.status == 0
    fields = {item["field"]: item["values"] for item in ran.report["disagreements"]}
    assert fields["modules.lib"] == {"0": str(demo.folder / "lib.py"), "1": str(demo.folder / "copy" / "lib.py")}
    assert "ranks disagree on modules.lib: rank 0: " in ran.out


@pytest.mark.slow
def test_a_group_that_one_rank_alone_lacks_ends_a_strict_run_though_the_other_waits_for_it(demo: Launching) -> None:
    demo.script(
        """
        from turbo_hydra import group, replace

        group("local.fast", replace("lib.slow", "fastlib.quick"), compatibility_check="card.of_this_rank")
        """,
        "local_catalog.py",
    )
    demo.script(
        """
        import os
        from turbo_hydra import CompatibilityResult

        def of_this_rank(context):
            return CompatibilityResult(os.environ["RANK"] == "0", "its card is another one")
        """,
        "card.py",
    )
    script = """
        import torch

        torch.distributed.init_process_group("gloo")
        torch.distributed.barrier()
        print("all are here")
        """
    alone = {"catalogs": ["local_catalog"], "groups": {"local": {"fast": True}}, "force": ["local.fast"]}
    ran = demo.run(demo.job(script, ranks=2, optimization={**OPTIMIZATION, **alone, "strict": True}))
    assert (ran.status, ran.log(0)) == (3, "")
    fields = {item["field"]: item["values"] for item in ran.report["disagreements"]}
    assert fields["execution.local.fast.decision"] == {"0": "apply", "1": "block"}


def path(demo: Launching) -> str:
    return os.pathsep.join([str(demo.folder / "start"), *filter(None, [os.environ.get("PYTHONPATH")])])
