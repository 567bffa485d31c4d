# SPDX-License-Identifier: Apache-2.0
"""`hydra/launcher=torchrun` in an application of somebody else's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from tests.launch.conftest import Launching, Ran

APPLICATION = """
    import json, os, pathlib
    import hydra
    from hydra.core.hydra_config import HydraConfig

    @hydra.main(version_base="1.3", config_path="conf", config_name="config")
    def main(cfg):
        out = pathlib.Path(HydraConfig.get().runtime.output_dir)
        found = {"a": cfg.a, "b": cfg.b, "num": HydraConfig.get().job.num, "id": HydraConfig.get().job.id}
        (out / "found.json").write_text(json.dumps(found))
        pathlib.Path("conf/config.yaml").write_text("a: 1\\nb: edited\\n")
        if cfg.a == 2:
            raise ValueError("a is two")

    main()
"""


@pytest.fixture
def sweep(launching: Launching) -> Launching:
    launching.script(APPLICATION, "app.py")
    launching.script("a: 1\nb: old\n", "conf/config.yaml")
    return launching


def run(sweep: Launching, *overrides: str) -> Ran:
    arguments = ("-m", "hydra/launcher=torchrun", f"hydra.sweep.dir={sweep.output}", *overrides)
    return sweep.python("app.py", *arguments)


def test_each_job_has_its_folder_and_is_composed_before_the_first_runs(sweep: Launching) -> None:
    ran = run(sweep, "a=1,3")
    assert ran.status == 0, ran.err
    found = [json.loads((sweep.output / number / "found.json").read_text()) for number in "01"]
    assert found == [
        {"a": 1, "b": "old", "num": 0, "id": "0"},
        {"a": 3, "b": "old", "num": 1, "id": "1"},
    ]
    assert yaml.safe_load((sweep.output / "1" / ".hydra" / "overrides.yaml").read_text()) == ["a=3"]


def test_a_failure_is_told_at_once_and_the_others_go_on(sweep: Launching) -> None:
    ran = run(sweep, "a=2,3")
    said = ran.out + ran.err
    assert ran.status == 1
    assert (sweep.output / "1" / "found.json").exists()
    assert said.index("job 0 failed: a is two") < said.index("job 1: a=3")
    assert "1 of 2 jobs failed: job 0" in said
    assert "a is two" in (sweep.output / "0" / "app.log").read_text()


def test_a_sweep_may_stop_at_the_first_failure(sweep: Launching) -> None:
    ran = run(sweep, "a=2,3", "hydra.launcher.stop_on_failure=true")
    assert ran.status == 1
    assert not (sweep.output / "1").exists()
    assert "1 left out" in ran.out + ran.err


def test_the_launchers_settings_are_typed(sweep: Launching) -> None:
    ran = run(sweep, "a=1", "hydra.launcher.stop_on_failure=perhaps")
    assert ran.status == 1
    assert "stop_on_failure" in ran.err


def test_a_secret_in_an_override_is_not_written(sweep: Launching) -> None:
    ran = run(sweep, "a=1,3", "+hydra.job.env_set.MY_TOKEN=s3cr3t")
    assert ran.status == 0, ran.err
    assert "s3cr3t" not in (sweep.output / "multirun.yaml").read_text()
    assert "s3cr3t" not in ran.out
