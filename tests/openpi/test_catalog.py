# SPDX-License-Identifier: Apache-2.0
"""The catalog, its config, its presets and its page say the same."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.openpi.small import CATALOG
from turbo_hydra import Registry
from turbo_hydra.config import OptimizationConfig
from turbo_hydra.engine.declarations import Group
from turbo_hydra.engine.objects import load_object

CONF = Path(__file__).resolve().parents[2] / "conf" / "optimization"
# Off, for what they cost or because nobody asked for them.
OFF = {
    "openpi.compat_fake_data",
    "openpi.geglu",
    "openpi.siglip_gelu",
    "openpi.ada_rms_norm",
    "openpi.softmax",
    "openpi.fp32_optimizer_state",
}


def declared() -> dict[str, Group]:
    registry = Registry()
    registry.load(CATALOG)
    return dict(registry.groups)


def built_in() -> OptimizationConfig:
    return OptimizationConfig.from_file(CONF / "openpi.yaml")


def test_importing_the_catalog_imports_neither_torch_nor_the_model() -> None:
    code = (
        f"import sys\n__import__({CATALOG!r})\n"
        "print(sorted({'torch', 'numpy', 'openpi', 'transformers', 'hydra', 'yaml', 'kernels'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_config_has_every_group_and_those_that_are_off_are_known() -> None:
    assert set(built_in().groups) == set(declared())
    assert {id for id, on in built_in().groups.items() if not on} == OFF


def test_the_recipe_has_the_groups_of_the_config() -> None:
    recipe = yaml.safe_load((CONF / "recipe" / "openpi.yaml").read_text())
    flat = {f"{catalog}.{name}": on for catalog, names in recipe["groups"].items() for name, on in names.items()}
    assert flat == dict(built_in().groups)


def test_the_preset_switches_every_optimization_off_and_leaves_what_makes_it_run() -> None:
    preset = yaml.safe_load((CONF / "openpi" / "all_off.yaml").read_text())
    off = {f"openpi.{name}" for name, on in preset["groups"]["openpi"].items() if not on}
    assert off == {id for id, group in declared().items() if group.purpose == "optimization"}


def test_every_target_has_evidence() -> None:
    evidence = built_in().selection().evidence
    for group in declared().values():
        for member in group.members:
            if not group.is_import_group:
                assert member.target in evidence, member.target


@pytest.mark.parametrize("id", declared())
def test_a_group_says_what_it_is(id: str) -> None:
    group = declared()[id]
    about = group.about
    assert about is not None
    assert len(about.why) > 80
    assert about.memory
    assert about.validated
    for option in dataclasses.fields(group.options) if group.options else ():
        assert option.metadata["help"]
    for member in group.members:
        if member.replacement and not group.is_import_group:
            assert callable(load_object(member.replacement))


ROW = re.compile(r"^\| `(openpi\.\w+)` \|(.*)\|(.*)\|(.*)\|(.*)\|$", re.MULTILINE)


def test_the_page_lists_groups_options_numerics_and_what_is_on() -> None:
    page = (CONF.parents[1] / "docs" / "models" / "openpi.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^## Groups$(.*?)^#", page, re.MULTILINE | re.DOTALL)
    rows = {id: [cell.strip() for cell in cells] for id, *cells in ROW.findall(table)}
    assert set(rows) == set(declared())
    for id, (on, options, numerics, _memory) in rows.items():
        group = declared()[id]
        assert group.about is not None
        assert on == ("on" if built_in().groups[id] else "off"), id
        assert re.findall(r"`(\w+)`", options) == list(group.option_names), id
        assert numerics == group.about.numerics, id


GUARDS = """
import torch
from turbo_hydra.catalogs.models.openpi import ada_rms_norm, deferred_metrics, options, pi0_compile, tensor_batches
from turbo_hydra.catalogs.shared import eager_attention, gated_mlp, gelu_mlp, rotary_cache
from types import SimpleNamespace

def original(*args, **kwargs):
    return "original"

def expect(result, what):
    if result != "original":
        raise SystemExit(f"{what}: the guard let it through: {result}")

x = torch.zeros(2, 3, 4)
other = SimpleNamespace(act_fn=None, activation_fn=None, fc1=None, dense=None, weight=torch.zeros(4), training=False,
                        rope_type="dynamic", attention_scaling=1.0, inv_freq=x)
expect(gated_mlp.forward(original, None)(other, x), "geglu")
expect(gelu_mlp.forward(original, None)(other, x), "siglip_gelu")
expect(ada_rms_norm.forward(original, None)(other, x), "ada_rms_norm")
expect(eager_attention.attention(original, None)(other, x[None], x[None], x[None], None, 1.0), "softmax")
expect(rotary_cache.forward(original, None)(other, x, x), "rope_cache")
expect(deferred_metrics.forward(original, None)(other, None, None), "deferred_metrics")
expect(deferred_metrics.clip(original, None)([], 1.0), "deferred_metrics.clip")
expect(pi0_compile.apply_checkpoint(original, options.Pi0Compile(mode="none"))(other, original), "pi0_compile")
expect(tensor_batches.collate(original, None)([]), "tensor_batches")
print("held", __debug__)
"""


@pytest.mark.parametrize("flags", [(), ("-O",)], ids=["plain", "optimized"])
def test_guards_hold_under_python_O(flags: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, *flags, "-c", GUARDS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.strip() == f"held {not flags}"
