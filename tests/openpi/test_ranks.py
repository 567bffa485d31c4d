# SPDX-License-Identifier: Apache-2.0
"""Two ranks: unused parameters are handled, regions stay one graph below DDP, and training is the plain training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.openpi.test_groups import GROUPS

ROOT = Path(__file__).resolve().parents[2]

RANK = """
import os, sys, torch
import torch.distributed as dist
sys.path.insert(0, {root!r})
from torch.nn.parallel import DistributedDataParallel as DDP
from tests.openpi.small import applied, batch, model, repository
dist.init_process_group("gloo")
rank, graphs, inside = dist.get_rank(), [], []
compile = torch.compile

def backend(graph, inputs):
    from torch._dynamo.backends.debugging import aot_eager
    graphs.append(graph)
    inside.append(torch._dynamo.config.optimize_ddp)
    return aot_eager(graph, inputs)

torch.compile = lambda function, options, dynamic: compile(function, backend=backend)
with repository(), applied({ids!r}):
    pi0 = model()
    # As upstream's script; buckets so small that Dynamo would split its graphs at them.
    wrapped = DDP(pi0, find_unused_parameters=True, gradient_as_bucket_view=True, static_graph=False,
                  bucket_cap_mb=0.01)
    optimizer = torch.optim.AdamW(pi0.parameters(), lr=1e-3)
    losses = []
    for number in range(4):
        torch.manual_seed(10 * rank + number % 2)
        loss = wrapped(*batch(2, prompts=(3 + rank, 5), cameras=(True, rank == 0, True), seed=rank)).mean()
        loss.backward()
        unused = [name for name, parameter in pi0.named_parameters() if parameter.grad is None]
        torch.nn.utils.clip_grad_norm_(pi0.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss))
    flat = torch.cat([parameter.detach().flatten() for parameter in pi0.parameters()])
    theirs = flat.clone()
    dist.broadcast(theirs, src=0)
    torch.save({{"losses": losses, "unused": unused, "parameters": flat, "alike": torch.equal(flat, theirs),
                "graphs": len(graphs), "inside": inside, "after": torch._dynamo.config.optimize_ddp,
                "static": wrapped.static_graph}}, sys.argv[1] + str(rank))
dist.barrier()
# Past gloo's destructors, which now and then end a rank by `terminate called without an active exception`.
sys.stdout.flush()
os._exit(0)
"""


def train(tmp_path: Path, name: str, ids: dict[str, Any]) -> list[dict[str, Any]]:
    program = tmp_path / f"{name}.py"
    program.write_text(RANK.format(root=str(ROOT), ids=ids))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program)]
    done = subprocess.run(
        [*command, str(tmp_path / name)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [torch.load(tmp_path / f"{name}{rank}") for rank in range(2)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_ranks_train_as_plain_ranks_do(tmp_path: Path) -> None:
    compiled = {**GROUPS, "openpi.pi0_compile": {}}
    plain, eager, graphs = (
        train(tmp_path, name, dict(ids)) for name, ids in (("plain", {}), ("eager", GROUPS), ("graphs", compiled))
    )
    assert [rank["static"] for rank in plain + eager] == [False, False, True, True]
    for ranks in (eager, graphs):
        for mine, reference in zip(ranks, plain, strict=True):
            assert mine["alike"]
            assert mine["losses"] == pytest.approx(reference["losses"], rel=1e-4)
            # Adam makes full steps of rounding where a gradient is zero but for it.
            assert (mine["parameters"] - reference["parameters"]).abs().median() < 1e-6
    # The expert's head, and of the last layer's prefix half what comes after attention: DDP got them as unused, and
    # left them without a gradient, as upstream's search does.
    names = "lm_head", "language_model.layers.1", "language_model.norm"
    assert eager[0]["unused"] == plain[0]["unused"] == graphs[0]["unused"]
    assert all(any(part in name for name in plain[0]["unused"]) for part in names)
    for rank in graphs:
        assert set(rank["inside"]) == {False}
        assert rank["after"] is not False
        assert rank["graphs"] == 2
