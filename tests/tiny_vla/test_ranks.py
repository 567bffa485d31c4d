# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel with the group's settings trains as it does with the script's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tiny_vla.conftest import EXAMPLE
from turbo_hydra.catalogs.models.tiny_vla import ddp_state
from turbo_hydra.catalogs.models.tiny_vla.options import DdpState

ROOT = Path(__file__).resolve().parents[2]


class Model(torch.nn.Module):
    """A model of the example, as far as the guard looks."""


Model.__module__ = "tiny_vla.model"
ALL = {
    "gradient_as_bucket_view": True,
    "broadcast_buffers": False,
    "static_graph": True,
    "find_unused_parameters": False,
}


@pytest.mark.parametrize(
    ("module", "args", "kwargs", "options", "expected"),
    [
        (Model(), (), {"find_unused_parameters": True}, DdpState(), ALL),
        (Model(), ([0],), {}, DdpState(), ALL),
        (
            Model(),
            (),
            {"find_unused_parameters": True},
            DdpState(static_graph=False, bucket_view=False, broadcast_buffers=True),
            {"gradient_as_bucket_view": False, "broadcast_buffers": True, "find_unused_parameters": True},
        ),
        (Model(), (), {"static_graph": False}, DdpState(), {"static_graph": False}),
        (Model(), ([0], 0, 0, True), {}, DdpState(), {}),
        (torch.nn.Identity(), (), {"find_unused_parameters": True}, DdpState(), {"find_unused_parameters": True}),
    ],
    ids=["example", "positions", "options", "script chose", "chose by position", "another model"],
)
def test_what_the_constructor_gets(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], options: DdpState, expected: dict[str, Any]
) -> None:
    seen: list[Any] = []

    def original(self: Any, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        seen.extend((module, args, kwargs))

    ddp_state.init(original, options)(None, module, *args, **kwargs)
    assert seen == [module, args, expected]


RANK = """
import json, os, sys, torch
import torch.distributed as dist
sys.path[:0] = {paths!r}
dist.init_process_group("gloo")
from torch.nn.parallel import DistributedDataParallel as DDP
from tests.tiny_vla.patching import applied
from tests.tiny_vla.test_model import SMALL, batch, lively
from contextlib import nullcontext
torch.manual_seed(0)
model = lively(SMALL)
ids = {ids!r}
with applied(*ids):
    wrapped = DDP(model, find_unused_parameters=True)
    torch.manual_seed(1 + dist.get_rank())
    # Adam would blow rounding up to full steps where a gradient is zero but for rounding, as a key's bias has it.
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(3):
        data = batch(SMALL)
        optimizer.zero_grad()
        wrapped(**data).mean().backward()
        optimizer.step()
if dist.get_rank() == 0:
    torch.save({{"model": model.state_dict(), "find": wrapped.find_unused_parameters, "static": wrapped.static_graph,
                "none": [n for n, p in model.named_parameters() if p.grad is None]}}, sys.argv[1])
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_ranks_train_alike(tmp_path: Path) -> None:
    saved = []
    for index, ids in enumerate(((), ("tiny_vla.checkpoint_off", "tiny_vla.last_prefix", "tiny_vla.ddp_state"))):
        program, out = tmp_path / f"rank{index}.py", tmp_path / f"{index}.pt"
        program.write_text(RANK.format(paths=[str(ROOT), str(EXAMPLE)], ids=ids))
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        done = subprocess.run(
            [*command, str(program), str(out)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        saved.append(torch.load(out))
    plain, ours = saved
    assert (plain["find"], plain["static"], ours["find"], ours["static"]) == (True, False, False, True)
    assert ours["model"].keys() == plain["model"].keys()
    for name, value in plain["model"].items():
        torch.testing.assert_close(ours["model"][name], value, atol=1e-5, rtol=1e-4)
    assert len(plain["none"]) == 5
