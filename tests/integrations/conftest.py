# SPDX-License-Identifier: Apache-2.0
"""A policy in a package of its own, a catalog for it, and engines that are taken back after each test."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import turbo_hydra
from turbo_hydra import api
from turbo_hydra.measure import observers

pytest.importorskip("lightning.pytorch")

NET = """
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return torch.tanh(self.layer(x))
"""
FAST = """
    import torch
    CALLS = []

    def forward(self, x):
        CALLS.append(len(x))
        return torch.tanh(self.layer(x))
"""
CATALOG = """
    from turbo_hydra import group, replace

    group("{package}.block", replace("{package}.net.Block.forward", "{package}.fast.forward"))
"""
CONFIG = """\
schema_version: turbo_hydra/optimization-config/v1
kind: OptimizationConfig
metadata: {{id: model.policy}}
model: {{name: policy}}
catalogs: [turbo_hydra.catalogs.torch, {package}.catalog]
evidence: {evidence}
groups: {{torch: {{fused_adamw: true, ddp_state: false}}, {package}: {{block: true}}}}
strict: {strict}
"""
_numbers = itertools.count()
Apply = Callable[..., turbo_hydra.OptimizationReport]


@dataclass
class Policy:
    """The package."""

    folder: Path
    package: str

    def load(self, module: str) -> Any:
        """Import one of its modules."""
        return __import__(f"{self.package}.{module}", fromlist=[module])

    def config(self, *, strict: bool = False) -> Path:
        """Write an optimization config for it."""
        path = self.folder / f"{self.package}_{'strict' if strict else 'plain'}.yaml"
        evidence = Path(turbo_hydra.__file__).parent / "conf" / "optimization" / "common.evidence.json"
        path.write_text(CONFIG.format(package=self.package, evidence=evidence, strict=str(strict).lower()))
        return path


@pytest.fixture
def policy(tmp_path: Path) -> Iterator[Policy]:
    """Make the package and put it on the import path."""
    made = Policy(tmp_path / "policy", f"policy{next(_numbers)}")
    for name, text in (("__init__", ""), ("net", NET), ("fast", FAST), ("catalog", CATALOG)):
        path = made.folder / made.package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).replace("{package}", made.package))
    sys.path.insert(0, str(made.folder))
    yield made
    sys.path.remove(str(made.folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == made.package]:
        del sys.modules[name]


@pytest.fixture
def apply(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Apply]:
    """Return `turbo_hydra.apply` for the policy; what it does, and a meter that is left, are taken back."""
    for name in ("TORCHELASTIC_RUN_ID", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(api._Process, "attempt", None)
    monkeypatch.setattr(api._Process, "engine", None)

    def run(*, strict: bool = False) -> turbo_hydra.OptimizationReport:
        # Its block's evidence is nobody's business here.
        path = policy.config(strict=strict)
        return turbo_hydra.apply(optimization_config_path=path, force_groups=[f"{policy.package}.block"])

    yield run
    engine = api.current_engine()
    if engine is not None:
        assert engine.undo() == []
    meter = observers.current()
    if meter is not None:
        meter.close()
