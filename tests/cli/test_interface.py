# SPDX-License-Identifier: Apache-2.0
"""The names that users write down. A change here breaks their files and scripts: it needs a reason and a note."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from typer.main import get_command

from turbo_hydra.cli.messages import settings
from turbo_hydra.cli.opt import app
from turbo_hydra.config import evidence_file, recipe, schema
from turbo_hydra.config.hydra_schema import schema as hydra_schema

CONF = Path(__file__).resolve().parents[2] / "conf"
SETTINGS = """
model model.name model.repo model.entry model.module model.cwd model.pythonpath model.positional model.args
model.arg_style model.extra model.batch
runtime runtime.ranks runtime.nodes runtime.node_rank runtime.rendezvous runtime.rendezvous.endpoint
runtime.rendezvous.id runtime.rendezvous.is_host runtime.rendezvous.timeout runtime.accelerator runtime.environment
runtime.environment.set runtime.environment.unset runtime.affinity runtime.affinity.numa runtime.affinity.cpus
runtime.affinity.numa_node runtime.affinity.memory runtime.network runtime.network.interface runtime.caches
runtime.caches.dir runtime.logs runtime.logs.redirect runtime.logs.tee runtime.restarts runtime.timeouts
runtime.timeouts.start runtime.timeouts.shutdown runtime.timeouts.hang runtime.omp_threads runtime.start_method
runtime.children runtime.slurm runtime.slurm.enabled runtime.slurm.options runtime.slurm.setup runtime.slurm.poll
optimization optimization.schema_version optimization.kind optimization.metadata optimization.metadata.id
optimization.metadata.version optimization.metadata.description optimization.model optimization.model.name
optimization.config optimization.catalogs optimization.evidence optimization.compatibility
optimization.compatibility.commits optimization.compatibility.dependencies optimization.compatibility.backends
optimization.compatibility.allow_dirty
optimization.groups optimization.options optimization.enabled optimization.only optimization.disable
optimization.force optimization.strict optimization.shadow optimization.shadow.calls optimization.count_calls
optimization.log_report
measure measure.enabled measure.interval measure.step_every measure.warmup measure.profile measure.writers
measure.peak_tflops measure.progress measure.progress_interval measure.stop_after
ablation ablation.strategy ablation.rows ablation.groups ablation.repeats ablation.looks ablation.steps
ablation.loss_steps ablation.close ablation.smallest ablation.error ablation.metric ablation.budget
ablation.parallel_jobs ablation.seed ablation.page
"""
COMMANDS = {
    "list": {"--catalog", "--json"},
    "generate": {
        *{"--recipe", "--repo", "--output", "--commit", "--static", "--wheel", "--force", "--drop-versions"},
        *{"--untracked", "--entry", "--pythonpath", "--json"},
    },
    "validate": {"FILE", "--json"},
    "init": {"NAME", "--folder"},
    "check": {"FILE", "--repo", "--static", "--json", "--range", "--untracked", "--entry", "--pythonpath"},
    "show": {"FILE"},
    "diff": {"OLD", "NEW"},
    "report": {"DIR...", "--json"},
    "doctor": {"--json"},
}


def test_settings_of_turbo_train() -> None:
    assert sorted(settings()) == sorted(SETTINGS.split())


def test_config_groups_and_options() -> None:
    found = {
        folder.relative_to(CONF).as_posix(): sorted(path.stem for path in folder.glob("*.yaml"))
        for folder in sorted(CONF.rglob("*"))
        if folder.is_dir() and folder.name != "__pycache__"
    }
    expected = {
        "ablation": ["tiny_vla"],
        "measure": ["default", "off"],
        "model": ["custom", "openpi", "tiny_vla"],
        "optimization": ["common", "tiny_vla"],
        "optimization/recipe": ["common", "tiny_vla"],
        "optimization/tiny_vla": ["all_off"],
        "runtime": ["cpu_2rank", "cuda_1gpu", "cuda_8gpu", "hcu_8card", "local"],
    }
    assert {name: set(expected[name]) - set(found.get(name, ())) for name in expected} == {n: set() for n in expected}


def test_commands_and_options_of_turbo_opt() -> None:
    commands: Any = get_command(app)
    found = {}
    for name, command in commands.commands.items():
        words = set()
        for parameter in command.params:
            words |= {parameter.metavar} if not parameter.opts[0].startswith("-") else set(parameter.opts)
        found[name] = words - {"--help"}
    assert found == COMMANDS


def test_keys_of_files() -> None:
    assert schema.SCHEMA_VERSION == "turbo_hydra/optimization-config/v1"
    assert schema.KIND == "OptimizationConfig"
    assert set(schema.KEYS) == {
        *{"schema_version", "kind", "metadata", "extends", "model", "catalogs", "evidence", "compatibility", "groups"},
        *{"options", "enabled", "only", "disable", "force", "strict", "shadow", "count_calls", "log_report"},
    }
    assert recipe.SCHEMA_VERSION == "turbo_hydra/recipe/v1"
    assert recipe.KIND == "OptimizationRecipe"
    assert set(recipe.KEYS) == {
        *{"schema_version", "kind", "metadata", "model", "catalogs", "compatibility", "groups", "options"},
    }
    assert evidence_file.SCHEMA_VERSION == "turbo_hydra/evidence/v1"
    assert set(evidence_file.KEYS) == {"schema_version", "provenance", "targets", "replacements"}
    assert set(evidence_file.RECORD_KEYS) == {"dist", "version", "source", "ast", "chain", "file", "artifact"}


def test_the_page_for_developers_lists_every_key_of_the_files() -> None:
    page = (CONF.parent / "docs" / "optimization-config.md").read_text(encoding="utf-8")
    keys = {*schema.KEYS, *recipe.KEYS, *evidence_file.KEYS, *evidence_file.RECORD_KEYS, *evidence_file.PROVENANCE_KEYS}
    assert [key for key in sorted(keys) if f"`{key}" not in page] == []


def test_the_composed_node_is_the_file_format_and_the_file_to_take() -> None:
    composed = set(OmegaConf.to_container(hydra_schema())["optimization"])  # type: ignore[call-overload, index]
    assert composed - {"config"} == set(schema.KEYS) - {"extends"}
