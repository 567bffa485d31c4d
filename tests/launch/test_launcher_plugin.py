# SPDX-License-Identifier: Apache-2.0
"""`hydra/launcher=torchrun` in an application of somebody else's: its task runs in ranks, optimized."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.launch.conftest import Launching, Ran

# No guard, a config of its own class, a resolver that only this script knows, and a file that a job changes.
APPLICATION = """
    import json, os, pathlib, sys
    from dataclasses import dataclass
    import hydra
    from hydra.core.config_store import ConfigStore
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("twice", lambda value: 2 * value)

    @dataclass
    class Settings:
        a: int = 1
        b: str = "x"
        double: int = 0

    ConfigStore.instance().store(name="settings", node=Settings)

    @hydra.main(version_base="1.3", config_path="conf", config_name="config")
    def main(cfg):
        from tiny_model import fused  # imported when the groups are there
        hydra_config = HydraConfig.get()
        out = pathlib.Path(hydra_config.runtime.output_dir)
        found = {
            "a": cfg.a, "b": cfg.b, "double": cfg.double, "num": hydra_config.job.num, "id": hydra_config.job.id,
            "type": OmegaConf.get_type(cfg).__name__, "world": os.environ["WORLD_SIZE"], "fused": fused,
            "devices": os.environ.get("CUDA_VISIBLE_DEVICES"), "argv": len(sys.argv), "cwd": os.getcwd(),
        }
        (out / f"found{os.environ['RANK']}.json").write_text(json.dumps(found))
        pathlib.Path("conf/config.yaml").write_text("defaults: [settings, _self_]\\nb: edited\\n")
        while cfg.a > 100 and not os.path.exists("go"):
            import time; time.sleep(0.02)
        if cfg.a == 2:
            raise ValueError("a is two")
        return cfg.a

    main()
"""
MODEL = """
    import torch
    fused = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))]).defaults["fused"]
"""


@pytest.fixture
def sweep(launching: Launching) -> Launching:
    launching.script(APPLICATION, "app.py")
    launching.script(MODEL, "tiny_model.py")
    launching.script("defaults: [settings, _self_]\nb: old\ndouble: ${twice:${a}}\n", "conf/config.yaml")
    return launching


def run(sweep: Launching, *overrides: str, **variables: str) -> Ran:
    arguments = ("-m", "hydra/launcher=torchrun", f"hydra.sweep.dir={sweep.output}", *overrides)
    return sweep.python("app.py", *arguments, **variables)


def found(sweep: Launching, job: int, rank: int = 0) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((sweep.output / str(job) / f"found{rank}.json").read_text())
    return data


@pytest.mark.slow
def test_each_job_has_its_folder_and_its_ranks_and_is_composed_before_the_first_runs(sweep: Launching) -> None:
    ran = run(sweep, "a=1,3", "hydra.launcher.runtime.ranks=2", "hydra.launcher.optimization=common")
    assert ran.status == 0, ran.err
    for job, a in enumerate((1, 3)):
        for rank in (0, 1):
            told = found(sweep, job, rank)
            assert (told["a"], told["b"], told["double"]) == (a, "old", 2 * a)
            assert (told["num"], told["id"], told["type"], told["world"]) == (job, str(job), "Settings", "2")
            # The model made its optimizer after torch.optim.AdamW was replaced.
            assert told["fused"] is True
            assert (told["argv"], told["cwd"]) == (1, str(sweep.folder))
        overrides = yaml.safe_load((sweep.output / str(job) / ".hydra" / "overrides.yaml").read_text())
        assert overrides == [f"a={a}"]
        report = json.loads((sweep.output / str(job) / "turbo" / "report.json").read_text())
        assert report["summary"]["applied"] == 1
        assert len(report["ranks"]) == 2
    assert sorted(path.name for path in sweep.output.iterdir()) == ["0", "1", "multirun.yaml"]


@pytest.mark.slow
def test_a_failure_is_told_at_once_and_the_others_go_on_and_a_sweep_is_resumed(sweep: Launching) -> None:
    ran = run(sweep, "a=2,3", "hydra.launcher.optimization=null")
    said = ran.out + ran.err
    assert ran.status == 1
    assert found(sweep, 1)["fused"] is None
    assert said.index("job 0 failed: the job ended with status 1") < said.index("job 1: a=3")
    assert "1 of 2 jobs failed: job 0" in said
    assert said.count("ValueError: a is two") == 2  # the traceback, and the sentence that names the rank
    assert "job 0 failed" in (sweep.output / "0" / "app.log").read_text()
    (sweep.output / "1" / "found0.json").unlink()
    ran = run(sweep, "a=2,3", "hydra.launcher.resume=true", "b=old")
    assert "left out" not in ran.out  # its config is another one
    (sweep.output / "1" / "found0.json").unlink()
    ran = run(sweep, "a=2,3", "hydra.launcher.resume=true", "b=old", "hydra.launcher.stop_on_failure=true")
    assert "left out, since they succeeded before: job 1" in ran.out
    assert not (sweep.output / "1" / "found0.json").exists()


@pytest.mark.slow
def test_a_sweep_may_stop_at_the_first_failure(sweep: Launching) -> None:
    ran = run(sweep, "a=2,3", "hydra.launcher.stop_on_failure=true")
    assert ran.status == 1
    assert not (sweep.output / "1").exists()
    assert "1 left out" in ran.out + ran.err


@pytest.mark.slow
def test_jobs_side_by_side_have_devices_of_their_own(sweep: Launching) -> None:
    arguments = ("hydra.launcher.parallel_jobs=2", "hydra.launcher.runtime.accelerator=auto")
    ran = run(sweep, "a=1,2,3", *arguments, CUDA_VISIBLE_DEVICES="5,GPU-7")
    assert ran.status == 1
    devices = [found(sweep, job)["devices"] for job in range(3)]
    assert sorted(devices[:2]) == ["5", "GPU-7"]
    assert devices[2] in {"5", "GPU-7"}
    assert "1 of 3 jobs failed: job 1" in ran.out + ran.err


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nobody_is_left_of_jobs_side_by_side(sweep: Launching, signum: signal.Signals) -> None:
    overrides = ("-m", "hydra/launcher=torchrun", f"hydra.sweep.dir={sweep.output}", "hydra.launcher.parallel_jobs=2")
    command = subprocess.Popen(
        [sys.executable, "app.py", *overrides, "a=101,102,103"],
        cwd=sweep.folder,
        env=sweep.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    sweep.until(lambda: all((sweep.output / str(job) / "found0.json").exists() for job in (0, 1)), 120)
    command.send_signal(signum)
    assert command.wait(60) in {-signum, 128 + signum, 1}
    sweep.until(lambda: not sweep.alive(), 30)
    assert not (sweep.output / "2").exists()


def test_the_launchers_settings_are_typed(sweep: Launching) -> None:
    ran = run(sweep, "a=1", "hydra.launcher.stop_on_failure=perhaps")
    assert ran.status == 1
    assert "stop_on_failure" in ran.err
    ran = run(sweep, "a=1", "hydra.launcher.runtime.rnaks=2")
    assert ran.status == 1
    assert "'hydra.launcher.runtime': Key 'rnaks' not in 'RuntimeConf'" in ran.err


def test_an_optimization_config_that_is_not_there_is_named(sweep: Launching) -> None:
    ran = run(sweep, "a=1", "hydra.launcher.optimization=nowhere")
    assert ran.status == 1
    assert "there is no optimization config for model 'nowhere'" in ran.err


@pytest.mark.slow
def test_a_secret_in_an_override_is_not_written(sweep: Launching) -> None:
    ran = run(sweep, "a=1,3", "+hydra.job.env_set.MY_TOKEN=s3cr3t")
    assert ran.status == 0, ran.err
    assert "s3cr3t" not in ran.out
    for path in sweep.output.rglob("*"):
        assert path.is_dir() or b"s3cr3t" not in path.read_bytes(), path


TASK = """
    import os
    import hydra

    @hydra.main(version_base="1.3", config_path=None)
    def task(cfg):
        print("in a rank", os.environ["RANK"], 3 + cfg.a)
        return cfg.a
"""


@pytest.mark.slow
def test_a_task_of_an_imported_module_is_found_by_its_name(launching: Launching) -> None:
    launching.script("", "package/__init__.py")
    launching.script(TASK, "package/tasks.py")
    launching.script("from package.tasks import task\n\nif __name__ == '__main__':\n    task()\n", "app.py")
    arguments = ("app.py", "-m", "hydra/launcher=torchrun", f"hydra.sweep.dir={launching.output}", "+a=4")
    ran = launching.python(*arguments, PYTHONPATH=str(launching.folder))
    assert ran.status == 0, ran.err
    assert "in a rank 0 7" in ran.out
