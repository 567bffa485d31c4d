# SPDX-License-Identifier: Apache-2.0
"""`experiment=ablate_openpi`: what it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.openpi_use.conftest import Train
from turbo_hydra.launch.arguments import render

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
