# SPDX-License-Identifier: Apache-2.0
"""Static and live evidence of torch's own objects: re-exports, decorators, inherited methods, extensions."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from turbo_hydra.config.static import Installed, StaticReader
from turbo_hydra.engine.evidence import LiveReader
from turbo_hydra.engine.targets import resolve

pytest.importorskip("torch")

TARGETS = [
    "torch.optim.AdamW.__init__",
    "torch.optim.AdamW.step",
    "torch.optim.adamw.adamw",
    "torch.optim.Adam.__init__",
    "torch.optim.adam._multi_tensor_adam",
    "torch.optim.Optimizer.step",
    "torch.optim.Optimizer.zero_grad",
    "torch.nn.utils.clip_grad_norm_",
    "torch.nn.utils.get_total_norm",
    "torch.nn.utils.clip_grad._clip_grads_with_norm_",
    "torch.utils.checkpoint.checkpoint",
    "torch.nn.parallel.DistributedDataParallel.__init__",
    "torch.nn.LayerNorm",
    "torch.nn.parallel.DistributedDataParallel.forward",
    "torch.nn.Module.__call__",
    "torch.nn.Sequential.__call__",
    "torch.nn.functional.dropout",
    "torch.nn.functional.cross_entropy",
    "torch.utils.data.DataLoader.__iter__",
    "torch.utils.data.DataLoader.multiprocessing_context",
    "torch.compile",
    "torch.distributed.all_reduce",
    "torch.no_grad",
]


@pytest.fixture(scope="module")
def reader() -> StaticReader:
    return StaticReader([Installed()])


LIVE = """
import json, sys
from turbo_hydra.engine.evidence import LiveReader
from turbo_hydra.engine.targets import resolve

def evidence(target):
    site = resolve(target, scope="global")
    record = LiveReader().read(site.raw, site.name)
    return [record.source, record.ast, record.chain]

print(json.dumps({target: evidence(target) for target in sys.argv[1:]}))
"""


@pytest.fixture(scope="module")
def live() -> dict[str, list[object]]:
    """Read torch in a process of its own: in this one, an optimizer that was made or a package that was imported may
    have patched it."""
    ran = subprocess.run([sys.executable, "-c", LIVE, *TARGETS], capture_output=True, text=True, check=True)
    read: dict[str, list[object]] = json.loads(ran.stdout)
    return read


@pytest.mark.parametrize("target", TARGETS)
def test_static_and_live_evidence_are_equal(reader: StaticReader, live: dict[str, list[object]], target: str) -> None:
    record = reader.read(target).record
    assert record is not None
    assert json.loads(json.dumps([record.source, record.ast, record.chain])) == live[target]
    assert record.dist == "torch"


def test_an_extensions_entry_has_the_evidence_of_its_binaries(reader: StaticReader) -> None:
    site = resolve("torch._C._nn.gelu")
    live = LiveReader().read(site.raw, site.name, "torch._C._nn")
    record = reader.read("torch._C.wait").record
    assert record is not None
    assert record.artifact is not None
    assert (record.artifact, record.source, record.chain) == (live.artifact, None, live.chain)
    assert (record.dist, record.file) == ("torch", "torch/_C")


@pytest.mark.parametrize("target", ["torch.nn.functional.gelu"])
def test_what_has_no_python_source_is_said(reader: StaticReader, target: str) -> None:
    seen = reader.read(target)
    assert seen.record is None
    assert not seen.missing
    assert seen.reason


def test_a_name_that_torch_does_not_have_is_absent(reader: StaticReader) -> None:
    assert reader.read("torch.nn.functional.no_such_function").missing
