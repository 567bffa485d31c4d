# SPDX-License-Identifier: Apache-2.0
"""docs/launching.md says what holds: each row that maps an option of the earlier runner is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.launch.conftest import Launching

PAGE = Path(__file__).resolve().parents[2] / "docs" / "launching.md"
SCRIPT = """
    import os
    print("NAME", os.environ.get("NAME"), "cpus", sorted(os.sched_getaffinity(0)))
"""


def rows() -> dict[str, str]:
    text = PAGE.read_text(encoding="utf-8").partition("## Options of the earlier runner")[2].partition("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    return {earlier.strip("`").split()[0]: now.strip("`") for earlier, now in cells}


def test_each_option_of_the_earlier_runner_has_its_row() -> None:
    assert set(rows()) == {"--set", "--disable-numa", "--disable-group", "--force-group", "--log-report", "CPUs"}


def run(launching: Launching, *overrides: str) -> tuple[str, str, dict[str, Any]]:
    launching.script(SCRIPT, "train.py")
    ran = launching.python(
        *("-m", "turbo_hydra.cli.train", "model=custom", "model.entry=train.py", "optimization=common"),
        *(f"hydra.run.dir={launching.output}", "measure=off", *overrides),
    )
    assert ran.status == 0, ran.err
    return ran.log(0), ran.err + ran.log(0, "stderr"), ran.report


@pytest.mark.slow
@pytest.mark.parametrize("option", rows())
def test_a_row_does_what_its_option_did(launching: Launching, option: str) -> None:
    (override,) = shlex.split(rows()[option])
    extra = {
        "--set": ["runtime.environment.set.NAME=other"],
        "--disable-numa": ["runtime.affinity.numa=exclusive"],
        "CPUs": ["runtime.ranks=2"],
    }.get(option, [])
    said, log, report = run(launching, *extra, override)
    group = {entry["group"]: entry for entry in report["execution"]}["torch.fused_adamw"]
    bound = report["ranks"][0]["bound"]
    config = report["optimization_config"]
    if option == "--set":
        assert "NAME VALUE " in said  # the last word on the command line wins
    elif option == "--disable-numa":
        assert bound["how"] == "parent"
    elif option == "--disable-group":
        assert group["status"] == "skipped"
    elif option == "--force-group":
        assert config["force"] == ["torch.fused_adamw"]
        assert group["status"] == "applied"
    elif option == "--log-report":
        assert "torch.optim.AdamW.__init__" in log
    else:
        assert "cpus [0]" in said
        assert [rank["bound"]["cpus"] for rank in report["ranks"]] == ["0", "0"]


def test_hcu_8card_is_refused_without_its_cards(launching: Launching) -> None:
    launching.script(SCRIPT, "train.py")
    ran = launching.python(
        *("-m", "turbo_hydra.cli.train", "model=custom", "model.entry=train.py", "runtime=hcu_8card"),
        *(f"hydra.run.dir={launching.output}", "optimization=common"),
    )
    assert (ran.status, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert "runtime.accelerator=hcu needs 8 HCU devices for 8 ranks" in ran.err
    assert not (launching.output / "turbo" / "ranks").exists()


def composed(launching: Launching, *overrides: str) -> Any:
    import yaml

    ran = launching.python("-m", "turbo_hydra.cli.train", "--cfg", "job", "--resolve", *overrides)
    assert ran.status == 0, ran.err
    return yaml.safe_load(ran.out)


def test_hcu_8card_composes(launching: Launching) -> None:
    runtime = composed(launching, "runtime=hcu_8card", "runtime.environment.set.NEW_NAME=x")["runtime"]
    assert (runtime["ranks"], runtime["accelerator"], runtime["affinity"]["numa"]) == (8, "hcu", "node")
    assert runtime["environment"]["set"] == {"HSA_FORCE_FINE_GRAIN_PCIE": "1", "NEW_NAME": "x"}


def test_settings_refer_to_one_another_and_unknown_ones_are_refused(launching: Launching) -> None:
    found = composed(launching, "model=custom", "runtime.environment.set.RUN='${model.name}-${runtime.ranks}'")
    assert found["runtime"]["environment"]["set"]["RUN"] == "custom-1"
    ran = launching.python("-m", "turbo_hydra.cli.train", "runtime.environment.sett.A=1")
    assert ran.status == 2
    assert "unknown setting 'runtime.environment.sett" in ran.err


def test_several_nodes_need_one_folder(launching: Launching) -> None:
    ran = launching.python(
        *("-m", "turbo_hydra.cli.train", "runtime=multi_node", "runtime.node_rank=1"),
        "runtime.rendezvous.endpoint=192.0.2.1:1",
    )
    assert (ran.status, ran.out) == (2, "")
    assert "set hydra.run.dir=FOLDER, the same on each node" in ran.err


def test_every_setting_that_the_page_names_is_one(launching: Launching) -> None:
    from turbo_hydra.cli.messages import settings

    named = set(re.findall(r"\bruntime(?:\.[a-z_]+)+", PAGE.read_text(encoding="utf-8")))
    known = set(settings())
    assert {name for name in named if name not in known and not name.startswith("runtime.slurm.options.")} == set()
