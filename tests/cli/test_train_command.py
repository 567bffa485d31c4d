# SPDX-License-Identifier: Apache-2.0
"""turbo-train as a process: what it prints, what it refuses, and that it never imports torch."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Run

SCRIPT = """\
import json, os, pathlib, sys
pathlib.Path("seen.json").write_text(json.dumps({"argv": sys.argv, "cwd": os.getcwd()}))
sys.exit(int(os.environ.get("SCRIPT_STATUS", 0)))
"""


UNKNOWN = "unknown group 'tiny_vla.rope_onc'"


def job(folder: Path, kind: str = "outputs") -> dict[str, Any]:
    (path,) = (folder / kind).glob("*/*/turbo/job.json")
    return dict(json.loads(path.read_text("utf-8")))


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    """Make a training script that needs no torch, and the overrides that name it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").write_text(SCRIPT, encoding="utf-8")
    return ["model=custom", "model.repo=mine", "model.entry=train.py", "measure=off"]


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (["--cfg", "job"], {}, "repo: pkg://turbo_hydra/examples/tiny_vla"),
        (["--help"], {}, "optimization.groups.CATALOG.GROUP=off"),
        (["-sc", "query=bash"], {"COMP_LINE": "turbo-train runtime=cu", "COMP_POINT": "22"}, "runtime=cuda_8gpu"),
        (["-sc", "install=bash"], {}, "hydra_bash_completion"),
        (["--cfg", "hydra", "-p", "hydra.launcher"], {}, "TorchrunLauncher"),
        (["--cfg", "job", "optimization.groups.tiny_vla.nope=off"], {}, "nope: 'off'"),
    ],
)
def test_looking_at_settings_runs_nothing_and_imports_no_torch(
    train: Run, tmp_path: Path, arguments: list[str], variables: dict[str, str], said: str
) -> None:
    done = train(*arguments, PYTHONPROFILEIMPORTTIME="1", **variables)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "turbo_hydra.config.hydra_schema" in imported
    assert not imported & {"torch", "numpy", "lightning", "turbo_hydra.launch.agent"}
    assert not list(tmp_path.iterdir())


def test_help_names_every_config_group(train: Run, project_root: Path) -> None:
    text = train("--help").stdout
    models = ", ".join(sorted(path.stem for path in (project_root / "conf" / "model").glob("*.yaml")))
    assert "tiny_vla" in models
    for group in (f"model: {models}", "runtime: cpu_2rank, cuda_1gpu", "measure: default, off"):
        assert group in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["optimization.groups.tiny_vla.rope_onc=false"], f"{UNKNOWN} in 'groups'; did you mean 'tiny_vla.rope_once'?"),
        (["optimization.options.tiny_vla.rope_once.x=1"], "'options.tiny_vla.rope_once.x'; the group has no options"),
        (["optimization.disable=[tiny_vla.rope_onc]"], f"{UNKNOWN} in 'disable'; did you mean"),
        (["optimization.force=[rope_once]"], "unknown group 'rope_once' in 'force'"),
        (["optimization=tiny_vla/all_of"], "optimization config 'tiny_vla/all_of'; did you mean 'tiny_vla/all_off'?"),
        (["model=tiny"], "there is no model=tiny; did you mean 'tiny_vla'?"),
        (["runtim=local"], "unknown setting 'runtim'; did you mean 'runtime'?"),
        (["optimization.config=none.yaml"], "none.yaml cannot be read: it does not exist"),
        (["optimization=common", "optimization.config=none.yaml"], "none.yaml cannot be read"),
        (["x=["], "no viable alternative"),
        (["--config-dir", "none", "model=custom"], "not found"),
        (["--resolve"], "--resolve flag can only be used"),
        (["model=custom"], "set either 'model.entry'"),
        (["model=openpi"], "'model.repo' is not set: give model.repo=..., or set the environment variable OPENPI_REPO"),
        (["-m", "optimization.groups.tiny_vla.rope_onc=true,false"], "did you mean 'tiny_vla.rope_once'?"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_sentence_and_status_2(train: Run, tmp_path: Path, arguments: list[str], said: str) -> None:
    done = train(*arguments)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("ranks"))


def test_unknown_flags_are_wrong_use_too(train: Run) -> None:
    assert train("--no-such-flag").returncode == 2


def test_starting_it_by_torchrun_is_refused(train: Run, tmp_path: Path) -> None:
    done = train(TORCHELASTIC_RUN_ID="none", RANK="0")
    assert done.returncode == 2
    assert "torchrun started turbo-train" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_users_own_request_for_tracebacks_is_kept(train: Run) -> None:
    done = train("modl=x", HYDRA_FULL_ERROR="1")
    assert "Traceback" in done.stderr


def test_a_script_runs_with_its_arguments_and_its_status_is_ours(train: Run, tmp_path: Path, script: list[str]) -> None:
    done = train(*script, "model.args.lr=1e-4", "model.positional=[pi0]", SCRIPT_STATUS="7")
    assert done.returncode == 7, done.stderr
    seen = json.loads((tmp_path / "mine" / "seen.json").read_text("utf-8"))
    assert seen["argv"][1:] == ["pi0", "--lr", "0.0001"]
    assert seen["cwd"] == str(tmp_path / "mine")
    assert "model 'custom' has no optimization config, so no group is on" in done.stdout + done.stderr
    written = job(tmp_path)
    assert written["cwd"] == str(tmp_path)
    assert Path(written["runtime_config_path"]).name == "local.yaml"
    assert written["optimization_config_path"] is None
    assert re.fullmatch(r"\d{8}T\d{6}-[0-9a-f]{8}", written["run_id"])


@pytest.mark.slow
def test_values_of_secrets_are_not_written(train: Run, tmp_path: Path, script: list[str]) -> None:
    train(*script, "runtime.environment.set.HF_TOKEN=abcdef123", "optimization.groups.a.b=on")
    train(*script, "runtime.environment.set.HF_TOKEN=abcdef123")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len([path for path in files if path.name == "overrides.yaml"]) == 2
    assert not [path for path in files if b"abcdef123" in path.read_bytes()]


@pytest.mark.slow
def test_a_sweep_makes_a_folder_a_job_and_fails_if_one_does(train: Run, tmp_path: Path, script: list[str]) -> None:
    status = "runtime.environment.set.SCRIPT_STATUS=0,3"
    done = train("-m", *script, status)
    assert done.returncode == 1, done.stderr
    jobs = sorted((tmp_path / "multirun").glob("*/*/[0-9]/turbo/report.json"))
    assert [json.loads(path.read_text("utf-8"))["exit_status"] for path in jobs] == [0, 3]
    ids = [json.loads(path.read_text("utf-8"))["run_id"] for path in jobs]
    assert [id[-2:] for id in ids] == ["-0", "-1"]
    assert "Traceback" not in done.stderr


def test_the_names_of_all_jobs_of_a_sweep_are_checked_before_the_first_runs(
    train: Run, tmp_path: Path, script: list[str]
) -> None:
    done = train(
        "-m", *script, "optimization=tiny_vla", "optimization.disable=[tiny_vla.rope_once],[tiny_vla.rope_onc]"
    )
    assert done.returncode == 2
    assert "no job was started" in done.stderr
    assert "did you mean 'tiny_vla.rope_once'? (job 1)" in done.stderr
    assert not list(tmp_path.glob("multirun/*/*/*/turbo"))


def settings_of(done_job: dict[str, Any]) -> dict[str, Any]:
    return {key: done_job["optimization"][key] for key in ("groups", "options", "disable", "strict", "enabled")}


@pytest.fixture
def generated(tmp_path: Path, project_root: Path) -> Path:
    """Make a config that lies somewhere else, with a setting of its own."""
    text = (project_root / "conf" / "optimization" / "common.yaml").read_text("utf-8")
    folder = tmp_path / "delivered"
    folder.mkdir()
    (folder / "theirs.yaml").write_text(text.replace("common.evidence.json", "e.json") + "strict: true\n", "utf-8")
    evidence = project_root / "conf" / "optimization" / "common.evidence.json"
    (folder / "e.json").write_bytes(evidence.read_bytes())
    return folder / "theirs.yaml"


def test_a_generated_file_from_anywhere_is_taken_as_it_is(
    train: Run, tmp_path: Path, script: list[str], generated: Path
) -> None:
    from turbo_hydra.config import OptimizationConfig

    done = train(*script, "optimization.config=delivered/theirs.yaml", "optimization.enabled=false")
    assert done.returncode in (0, 3), done.stderr
    written = job(tmp_path)
    expected = OptimizationConfig.from_file(generated).to_dict()
    assert written["optimization"] == {**expected, "enabled": False}
    assert written["optimization"]["evidence"] == str(generated.with_name("e.json"))
    assert written["optimization_config_path"] == str(generated)


@pytest.mark.slow
def test_what_is_said_beside_a_generated_file_wins(
    train: Run, tmp_path: Path, script: list[str], generated: Path
) -> None:
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(
        "# @package _global_\noptimization: {disable: ['torch.*'], groups: {torch: {fused_adamw: true}}}\n", "utf-8"
    )
    done = train(
        *("--config-dir", "conf", *script, "experiment=mine", "optimization.config=delivered/theirs.yaml"),
        *("optimization.groups.torch.fused_adamw=off", "optimization.strict=false"),
    )
    assert done.returncode == 0, done.stderr
    settings = settings_of(job(tmp_path))
    assert [id for id, on in settings.pop("groups")["torch"].items() if on] == []
    assert settings == {
        "options": {},
        "disable": ["torch.*"],
        "strict": False,
        "enabled": True,
    }


def test_two_ways_to_choose_a_config_are_refused(train: Run, script: list[str], generated: Path) -> None:
    done = train(*script, "optimization=common", f"optimization.config={generated}")
    assert done.returncode == 2
    assert "both choose an optimization config" in done.stderr


@pytest.mark.slow
def test_globs_that_match_nothing_are_warned_about(train: Run, script: list[str]) -> None:
    done = train(*script, "optimization=common", "optimization.disable=['*','tiny.*']")
    assert done.returncode == 0, done.stderr
    assert "'disable: [tiny.*]' matches no group" in done.stdout + done.stderr


@pytest.mark.slow
def test_a_users_folder_brings_a_model_with_its_optimizations(train: Run, tmp_path: Path, project_root: Path) -> None:
    conf = tmp_path / "conf"
    for folder in ("model", "optimization"):
        (conf / folder).mkdir(parents=True)
    (tmp_path / "script.py").write_text("print('mine ran')\n", encoding="utf-8")
    (conf / "model" / "mine.yaml").write_text("name: mine\nrepo: .\nentry: script.py\n", encoding="utf-8")
    built_in = project_root / "conf" / "optimization"
    text = (built_in / "common.yaml").read_text("utf-8")
    (conf / "optimization" / "mine.yaml").write_text(text.replace("common.evidence", "mine.evidence"), "utf-8")
    (conf / "optimization" / "mine.evidence.json").write_bytes((built_in / "common.evidence.json").read_bytes())
    done = train("--config-dir", "conf", "model=mine", "measure=off", "optimization.enabled=false")
    assert done.returncode == 0, done.stderr
    assert "mine ran" in done.stdout
    written = job(tmp_path)
    assert written["optimization_config_path"] == str(conf / "optimization" / "mine.yaml")
    assert written["optimization"]["evidence"] == str(conf / "optimization" / "mine.evidence.json")


def test_an_installed_package_brings_configs_by_its_entry_point(train: Run, opt: Run, tmp_path: Path) -> None:
    site = tmp_path / "site"
    for folder in ("other_pkg/conf/model", "other_pkg-1.0.dist-info"):
        (site / folder).mkdir(parents=True)
    (site / "other_pkg" / "__init__.py").touch()
    (site / "other_pkg" / "conf" / "__init__.py").touch()
    (site / "other_pkg" / "conf" / "model" / "theirs.yaml").write_text("name: theirs\nentry: t.py\n", encoding="utf-8")
    information = site / "other_pkg-1.0.dist-info"
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: other_pkg\nVersion: 1.0\n", encoding="utf-8")
    (information / "entry_points.txt").write_text("[turbo_hydra.conf]\nother = other_pkg.conf\n", encoding="utf-8")
    done = train("--cfg", "job", "-p", "model", "model=theirs", PYTHONPATH=str(site))
    assert done.returncode == 0, done.stderr
    assert "name: theirs" in done.stdout
    assert "theirs" in train("--help", PYTHONPATH=str(site)).stdout
    assert "other_pkg.conf" in opt("doctor", PYTHONPATH=str(site)).stdout


@pytest.mark.slow
def test_recipes_add_their_groups_catalogs_and_evidence(train: Run, tmp_path: Path, project_root: Path) -> None:
    done = train(
        "optimization=tiny_vla/all_off", "optimization/recipe=[common]", "model.args.steps=1", "model.extra=[--no-eval]"
    )
    assert done.returncode == 0, done.stderr
    written = job(tmp_path)["optimization"]
    assert [id for id, on in written["groups"]["tiny_vla"].items() if on] == []
    assert [id for id, on in written["groups"]["torch"].items() if on] == ["fused_adamw"]
    assert set(written["catalogs"]) == {
        "turbo_hydra.catalogs.models.tiny_vla",
        "turbo_hydra.catalogs.calibration",
        "turbo_hydra.catalogs.torch",
    }
    assert [Path(path).name for path in written["evidence"]] == ["tiny_vla.evidence.json", "common.evidence.json"]
    assert "applied=1 " in done.stdout + done.stderr or "applied=2 " in done.stdout + done.stderr
