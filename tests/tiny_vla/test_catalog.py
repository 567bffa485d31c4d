# SPDX-License-Identifier: Apache-2.0
"""The catalogs are declarations: cheap to import, complete, and honest about what they read."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.tiny_vla.patching import CATALOGS, groups
from turbo_hydra.config import OptimizationConfig
from turbo_hydra.engine.objects import load_object


def test_importing_the_catalogs_imports_neither_torch_nor_the_model() -> None:
    code = (
        f"import sys\nfor name in {CATALOGS}: __import__(name)\n"
        "print(sorted({'torch', 'numpy', 'tiny_vla', 'hydra', 'omegaconf', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_at_least_four_groups_of_the_model_are_on() -> None:
    on = [id for id, value in built_in().groups.items() if value and id.startswith("tiny_vla.")]
    assert len(on) >= 4


def built_in() -> OptimizationConfig:
    root = Path(__file__).resolve().parents[2]
    return OptimizationConfig.from_file(root / "conf" / "optimization" / "tiny_vla.yaml")


def test_the_config_names_exactly_the_groups_of_the_model_that_there_are() -> None:
    named = set(built_in().groups)
    assert {id for id in named if id.startswith("tiny_vla.")} == {id for id in groups() if id.startswith("tiny_vla.")}
    assert named <= set(groups())
    assert built_in().catalogs == CATALOGS


def test_the_recipe_has_the_groups_of_the_config(project_root: Path) -> None:
    recipe = yaml.safe_load((project_root / "conf" / "optimization" / "recipe" / "tiny_vla.yaml").read_text())
    flat = {f"{catalog}.{name}": on for catalog, names in recipe["groups"].items() for name, on in names.items()}
    assert flat == dict(built_in().groups)


@pytest.mark.parametrize("id", groups())
def test_a_group_says_what_it_is(id: str) -> None:
    group = groups()[id]
    about = group.about
    assert about is not None
    assert about.purpose == "optimization"
    assert len(about.why) > 80
    assert about.memory
    assert "torch" in about.validated
    for option in dataclasses.fields(group.options) if group.options else ():
        assert option.metadata["help"]
    for member in group.members:
        assert callable(load_object(member.replacement))


def test_replacements_read_no_environment_and_no_files(project_root: Path) -> None:
    for path in (project_root / "turbo_hydra" / "catalogs").rglob("*.py"):
        if path.name == "transformers_replace.py":
            continue  # what it serves are files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            assert found not in {"environ", "getenv", "open", "read_text", "exec", "eval"}, f"{path}: {found}"
            assert not isinstance(node, ast.Assert), path


GUARDS = """
import torch
from turbo_hydra.catalogs.models.tiny_vla import checkpoint_off, fused_attention, options
from turbo_hydra.catalogs.shared import ddp_state, fused_adamw
from turbo_hydra.catalogs.shared.options import DdpState, FusedOptimizer

def original(*args, **kwargs):
    return "original", args, kwargs

def expect(result, what):
    if result[0] != "original":
        raise SystemExit(f"{what}: the guard let it through")

q = torch.zeros(1, 2, 3, 4, dtype=torch.float64)
expect(fused_attention.attention(original, options.FusedAttention())(q, q, q, None, 1.0), "attention")
keep = options.CheckpointOff(keep_above=1)
expect(checkpoint_off.checkpointed(original, keep)(torch.nn.Identity(), torch.zeros(2, 3)), "checkpoint")
seen = []
def constructor(self, module=None, *args, **kwargs):
    seen.append(kwargs)
given = {"static_graph": False, "gradient_as_bucket_view": False, "broadcast_buffers": True,
         "find_unused_parameters": True}
ddp_state.init(constructor, DdpState())(None, torch.nn.Identity(), **given)
fused_adamw.adamw(constructor, FusedOptimizer())(torch.optim.SGD([torch.zeros(1)]), [torch.zeros(1)], fused=False)
if seen[0] != given or seen[1]["fused"] is not False:
    raise SystemExit(f"a constructor's guard let it through: {seen}")
print("held", __debug__)
"""


@pytest.mark.parametrize("flags", [(), ("-O",)], ids=["plain", "optimized"])
def test_guards_hold_under_python_O(flags: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, *flags, "-c", GUARDS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.strip() == f"held {not flags}"
