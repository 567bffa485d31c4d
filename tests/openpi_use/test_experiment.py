# SPDX-License-Identifier: Apache-2.0
"""`experiment=ablate_openpi`: what it runs, and the page that it writes to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.openpi_use.conftest import Train
from turbo_hydra.launch.arguments import render
from turbo_hydra.sweep import page

ROOT = Path(__file__).resolve().parents[2]
SMALL = ROOT / "tests" / "openpi" / "repository"
FULL_SIZE = ["--model.paligemma_variant", "gemma_2b", "--model.action_expert_variant", "gemma_300m"]


@pytest.mark.parametrize("reduced", [False, True])
def test_it_composes_at_full_size_and_for_a_cpu(train: Train, tmp_path: Path, reduced: bool) -> None:
    less = ["model.args.model=null", "model.args.batch_size=1", "optimization.options.openpi.pi0_compile.mode=none"]
    command = ("experiment=ablate_openpi", *(less if reduced else ()), "hydra.mode=RUN", "--cfg", "job", "--resolve")
    shown = train(*command, OPENPI_REPO=str(tmp_path))
    assert shown.returncode == 0, shown.stderr
    composed = yaml.safe_load(shown.stdout)
    rendered = render(composed["model"])
    assert rendered[0] == "debug_pi05"
    assert (rendered[1:5] == FULL_SIZE) is not reduced
    assert not [word for word in rendered if word.startswith(("--log_interval", "--save_interval"))]
    # Each run ends before OpenPI would write a checkpoint.
    assert composed["ablation"]["steps"] < composed["model"]["args"]["num_train_steps"]
    assert composed["optimization"]["groups"]["openpi"]["compat_fake_data"] is True
    assert composed["optimization"]["options"]["openpi"]["compat_fake_data"] == {"masks": "libero"}


def test_the_page_that_it_names_has_the_marks_for_its_tables() -> None:
    named = yaml.safe_load((ROOT / "conf" / "experiment" / "ablate_openpi.yaml").read_text("utf-8"))["ablation"]["page"]
    text = (ROOT / named).read_text(encoding="utf-8")
    assert text.count(page.BEGIN) == text.count(page.END) == 1
    assert text.index(page.BEGIN) < text.index(page.END)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_sweeps_the_groups_and_writes_their_tables_into_the_page(train: Train, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(f"before\n{page.BEGIN}\n{page.END}\nafter\n", encoding="utf-8")
    done = train(
        *("experiment=ablate_openpi", f"model.repo={SMALL}", "model.pythonpath=[.]", "runtime.accelerator=cpu"),
        # Evidence is that of OpenPI, which the small model is not; what it compiles is tested elsewhere.
        *("optimization.force=[openpi.*]", "optimization.groups.openpi.pi0_compile=off"),
        *("ablation.groups=[openpi.prefix_trim,openpi.rope_cache]", "ablation.strategy=one_at_a_time"),
        "model.args.pytorch_training_precision=float32",
        *("ablation.steps=4", "ablation.repeats=1", "ablation.page=page.md", "hydra.sweep.dir=sweep"),
        seconds=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"the tables are in {tmp_path / 'page.md'}" in done.stdout
    data = json.loads((tmp_path / "sweep" / "ablation.json").read_text("utf-8"))
    rows = {row["name"]: row for row in data["rows"]}
    for id in ("openpi.prefix_trim", "openpi.rope_cache"):
        (row,) = [row for row in rows.values() if row["on"] == [id]]
        assert row["failed"] is None
        assert row["hits"][id]["calls"] > 0
        assert row["hits"]["openpi.compat_fake_data"]["status"] == "applied"
        assert row["loss"]["largest"] < 1e-4
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| openpi.rope_cache |" in text
