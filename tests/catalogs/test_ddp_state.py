# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel is told only what the caller left at its default."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from turbo_hydra.catalogs.shared import ddp_state
from turbo_hydra.catalogs.shared.options import DdpState

ROOT = Path(__file__).resolve().parents[2]
LINEAR = torch.nn.Linear(2, 2)
# torch 2.13 renamed it, and warns of the old name.
BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in inspect.signature(DDP).parameters else "broadcast_buffers"
ALL = {
    "gradient_as_bucket_view": True,
    BUFFERS: False,
    "static_graph": True,
    "find_unused_parameters": False,
}


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in ALL.items() if name not in names}


@pytest.mark.parametrize(
    ("args", "kwargs", "options", "expected"),
    [
        ((), {}, DdpState(), ALL),
        (([0],), {}, DdpState(), ALL),
        ((), {"find_unused_parameters": True}, DdpState(), {**ALL, "find_unused_parameters": True}),
        ((), {"static_graph": False}, DdpState(), {**ALL, "static_graph": False}),
        (([0], 0, 0, True), {}, DdpState(), without(BUFFERS)),
        (
            (),
            {"forward_sync_buffers": True},
            DdpState(),
            {**without(BUFFERS), "forward_sync_buffers": True},
        ),
        ((), {"broadcast_buffers": True}, DdpState(), {**without(BUFFERS), "broadcast_buffers": True}),
        ((), {}, DdpState(static_graph=False), without("static_graph", "find_unused_parameters")),
        ((), {}, DdpState(bucket_view=False), without("gradient_as_bucket_view")),
        ((), {}, DdpState(broadcast_buffers=True), without(BUFFERS)),
        ((), {"static_graph": False}, DdpState(override=("static_graph",)), ALL),
        ((), {"find_unused_parameters": True}, DdpState(override=("find_unused_parameters",)), ALL),
        ((), {}, DdpState(static_graph=False, bucket_view=False, broadcast_buffers=True), {}),
    ],
)
def test_what_the_constructor_gets(
    args: tuple[Any, ...], kwargs: dict[str, Any], options: DdpState, expected: dict[str, Any]
) -> None:
    seen: list[Any] = []

    def original(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.extend((args, kwargs))

    original.__signature__ = inspect.signature(DDP.__init__)  # type: ignore[attr-defined]
    ddp_state.init(original, options)(None, LINEAR, *args, **kwargs)
    assert seen == [(LINEAR, *args), expected]


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (torch.nn.Sequential(torch.nn.BatchNorm1d(2)), without(BUFFERS)),
        (torch.nn.Sequential(torch.nn.BatchNorm1d(2, track_running_stats=False)), ALL),
        (torch.nn.LayerNorm(2), ALL),
    ],
    ids=["running statistics", "batch norm without", "layer norm"],
)
def test_running_statistics_stay_those_of_rank_0(module: torch.nn.Module, expected: dict[str, Any]) -> None:
    seen: list[Any] = []

    def original(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.append(kwargs)

    original.__signature__ = inspect.signature(DDP.__init__)  # type: ignore[attr-defined]
    ddp_state.init(original, DdpState())(None, module)
    assert seen == [expected]


def test_a_flag_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match="names bucket_view; it can name static_graph, find_unused_parameters"):
        ddp_state.init(DDP.__init__, DdpState(override=("bucket_view",)))


RANK = """
import json, os, sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from turbo_hydra.catalogs.shared import ddp_state
from turbo_hydra.catalogs.shared.options import DdpState

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    def forward(self, x):
        return self.used(x)

dist.init_process_group("gloo")
found = []
for ours in (False, True):
    if ours:
        DDP.__init__ = ddp_state.init(DDP.__init__, DdpState())
    torch.manual_seed(0)
    net = Net()
    wrapped = DDP(net, find_unused_parameters=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(4):
        optimizer.zero_grad()
        wrapped(torch.randn(5, 3)).square().mean().backward()
        optimizer.step()
    found.append([value.flatten().tolist() for value in net.state_dict().values()])
gathered = [None, None]
dist.all_gather_object(gathered, found[1])
if dist.get_rank() == 0:
    print(json.dumps({"plain": found[0], "ours": found[1], "equal": gathered[0] == gathered[1],
                      "static": wrapped.static_graph, "view": wrapped.gradient_as_bucket_view}))
dist.barrier()
# Past gloo's destructors, which now and then end a rank by `terminate called without an active exception`.
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.slow
def test_two_ranks_with_unused_parameters_train_alike(tmp_path: Path) -> None:
    program = tmp_path / "rank.py"
    program.write_text(RANK)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["static"], found["view"], found["equal"]) == (True, True, True)
    for mine, expected in zip(found["ours"], found["plain"], strict=True):
        assert mine == pytest.approx(expected, abs=1e-6)
