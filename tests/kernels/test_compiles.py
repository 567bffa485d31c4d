# SPDX-License-Identifier: Apache-2.0
"""Each kernel compiles for the devices that are not here, and reads and writes 16 bytes at a time where it can."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=["sm_90", "gfx942"])
def compiled(request: pytest.FixtureRequest, project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the kind of device and what triton made for it."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    environment["PYTHONPATH"] = str(project_root)
    script = Path(__file__).with_name("compiling.py")
    ran = subprocess.run(
        [sys.executable, str(script), request.param], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return request.param, json.loads(ran.stdout)


def test_every_kernel_compiles_and_fits(compiled: Any) -> None:
    from turbo_hydra.kernels.device import KINDS

    name, kernels = compiled
    stems = {item["stem"] for item in kernels}
    assert {"geglu", "swiglu", "gelu_tanh_bias", "rms_norm", "ada_rms_norm", "rope", "softmax"} <= stems
    assert {"clip_norm", "adamw"} <= stems
    for item in kernels:
        assert item["shared"] <= KINDS[name].shared_memory, item["kernel"]


def test_16_bytes_are_moved_at_a_time(compiled: Any) -> None:
    name, kernels = compiled
    load, store = (r"ld\.global\.v4", r"st\.global\.v4") if name == "sm_90" else (r"load_dwordx4", r"store_dwordx4")
    for stem in ("geglu", "gelu_tanh_bias", "rms_norm", "ada_rms_norm", "rope", "adamw"):
        texts = [item["text"] for item in kernels if item["stem"] == stem]
        assert any(re.search(load, text) and re.search(store, text) for text in texts), stem
    # 984 keys, which is no multiple of 16; 978 leaves 4 bytes at a time.
    wide = [bool(re.search(store, item["text"])) for item in kernels if item["stem"] == "softmax"]
    assert wide[:4] == [False] * 4
    assert all(wide[4:])


def test_the_target_s_logit_is_read_by_all_warps_before_any_writes_over_it(compiled: Any) -> None:
    _, kernels = compiled
    losses = [item["ir"] for item in kernels if item["stem"] == "linear_cross_entropy"]
    assert len(losses) == 2
    for text in losses:
        read = [found.end() for found in re.finditer(r"tt\.load [^\n]*!tt\.ptr<bf16>( loc|\n)", text)]
        (barrier,) = [found.start() for found in re.finditer(r"(gpu|ttg)\.barrier", text)]
        written = text.rindex("store")
        assert len(read) == 1
        assert read[0] < barrier < text.index("scf.for", barrier) < written
