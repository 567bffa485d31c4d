# SPDX-License-Identifier: Apache-2.0
"""turbo-opt as a process: what it prints and its exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turbo_hydra.kernels import STEMS, without_device

if TYPE_CHECKING:
    from tests.cli.conftest import Run

HEADER = "schema_version: turbo_hydra/optimization-config/v1\nkind: OptimizationConfig\n"


@pytest.fixture
def conf(project_root: Path) -> Path:
    """Return the folder of the configs that ship."""
    return project_root / "conf" / "optimization"


@pytest.fixture
def example(project_root: Path) -> str:
    """Return the embedded model's folder."""
    return str(project_root / "examples" / "tiny_vla")


def test_list_tells_of_every_group_and_imports_no_torch(opt: Run) -> None:
    done = opt("list", PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0
    for said in (
        "tiny_vla.checkpoint_off",
        "numerics: bitwise",
        "wrap tiny_vla.layers.checkpointed",
        "option keep_above",
    ):
        assert said in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert not imported & {"torch", "numpy", "hydra", "omegaconf"}


def test_list_ends_with_the_kernels_that_this_machine_can_use(opt: Run) -> None:
    said = opt("list").stdout.splitlines()[-1]
    reason = without_device()
    expected = f"can be used: {', '.join(STEMS)}" if reason is None else f"none of {len(STEMS)} can be used: {reason}"
    assert said == f"kernels  {expected}"


def test_list_is_json_for_a_machine(opt: Run) -> None:
    groups = json.loads(opt("list", "--json", "--catalog", "turbo_hydra.catalogs.torch").stdout)
    assert groups[0]["id"] == "torch.fused_adamw"
    assert all(group["id"].startswith("torch.") for group in groups)
    assert groups[0]["members"][0]["target"] == "torch.optim.AdamW.__init__"


def test_a_catalog_that_cannot_be_imported_is_one_sentence(opt: Run) -> None:
    done = opt("list", "--catalog", "no_such_catalog")
    assert done.returncode == 1
    assert "catalog 'no_such_catalog' cannot be imported: ModuleNotFoundError" in done.stderr
    assert "Traceback" not in done.stderr


def test_validate_needs_no_repository(opt: Run, conf: Path) -> None:
    for name in ("tiny_vla", "common"):
        done = opt("validate", str(conf / f"{name}.yaml"))
        assert done.returncode == 0, done.stderr
        assert "valid" in done.stdout


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (None, 2, "cannot be read: it does not exist"),
        (HEADER + "strictt: true\n", 1, "f.yaml:3: unknown key 'strictt'; did you mean 'strict'?"),
        (HEADER + "strict: true\nstrict: true\n", 1, "f.yaml:4: 'strict' is written twice, first on line 3"),
        (HEADER + "catalogs: [none_such]\n", 1, "catalog 'none_such' cannot be imported"),
        (
            HEADER + "catalogs: [turbo_hydra.catalogs.torch]\ngroups: {torch: {fused_adam: on}}\n",
            1,
            "'torch.fused_adamw'",
        ),
        (HEADER + "extends: nowhere\n", 2, "f.yaml:3: 'nowhere' is neither the file"),
        (HEADER + "evidence: none.json\n", 2, "none.json cannot be read"),
    ],
)
def test_validate_says_what_is_wrong(opt: Run, tmp_path: Path, text: str | None, status: int, said: str) -> None:
    if text is not None:
        (tmp_path / "f.yaml").write_text(text, encoding="utf-8")
    done = opt("validate", "f.yaml")
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_shipped_evidence_fits_what_is_here_read_from_files(opt: Run, conf: Path, example: str) -> None:
    done = opt(
        "check", str(conf / "tiny_vla.yaml"), "--repo", example, "--static", "--json", PYTHONPROFILEIMPORTTIME="1"
    )
    assert "| torch\n" not in done.stderr
    result = json.loads(done.stdout)
    assert [item for item in result["targets"] if item["status"] != "match"] == []
    assert not [note for note in result["notes"] if note.startswith("replacement.changed")]
    assert (done.returncode, result["matches"]) == (0, True)


@pytest.mark.slow
def test_the_shipped_evidence_fits_what_is_here_when_imported(opt: Run, conf: Path, example: str) -> None:
    done = opt("check", str(conf / "tiny_vla.yaml"), "--repo", example)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "matches: " in done.stdout


def test_generating_the_shipped_configs_again_gives_their_bytes(
    opt: Run, conf: Path, example: str, tmp_path: Path
) -> None:
    for name in ("tiny_vla", "common"):
        for file in (f"{name}.yaml", f"{name}.evidence.json"):
            (tmp_path / file).write_bytes((conf / file).read_bytes())
        recipe = str(conf / "recipe" / f"{name}.yaml")
        done = opt("generate", "--recipe", recipe, "--repo", example, "--output", f"{name}.yaml", "--static", "--force")
        assert done.returncode == 0, done.stderr
        for file in (f"{name}.yaml", f"{name}.evidence.json"):
            assert (tmp_path / file).read_bytes() == (conf / file).read_bytes(), file


def test_changing_a_token_of_a_target_is_told_with_its_place(
    opt: Run, conf: Path, example: str, tmp_path: Path
) -> None:
    import shutil

    repo = tmp_path / "copy"
    shutil.copytree(example, repo, ignore=shutil.ignore_patterns("data", "__pycache__"))
    path = repo / "tiny_vla" / "rotary.py"
    text = path.read_text("utf-8")
    assert "cos" in text
    path.write_text(text.replace(".cos(", ".sin("), encoding="utf-8")
    done = opt("check", str(conf / "tiny_vla.yaml"), "--repo", str(repo), "--static")
    assert done.returncode == 1
    assert "tiny_vla/rotary.py:" in done.stdout
    assert "does not match: " in done.stdout
    assert "1 changed" in done.stdout


def test_show_and_diff(opt: Run, conf: Path, tmp_path: Path) -> None:
    shown = json.loads(opt("show", str(conf / "common.yaml")).stdout)
    assert shown["groups"].keys() == {"torch"}
    assert shown["groups"]["torch"]["fused_adamw"] is True
    assert "torch.optim.AdamW.__init__" in shown["evidence"]["targets"]
    text = (conf / "common.yaml").read_text("utf-8").replace("common.evidence.json", str(conf / "common.evidence.json"))
    (tmp_path / "same.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "other.yaml").write_text(text.replace("fused_adamw: true", "fused_adamw: false"), encoding="utf-8")
    same = opt("diff", str(conf / "common.yaml"), "same.yaml")
    assert (same.returncode, same.stdout) == (0, "")
    differs = opt("diff", "same.yaml", "other.yaml")
    assert differs.returncode == 1
    assert '-      "fused_adamw": true' in differs.stdout
    assert '+      "fused_adamw": false' in differs.stdout


def test_report_reads_a_runs_report(opt: Run, tmp_path: Path) -> None:
    entry = {"group": "a.b", "decision": "apply", "status": "applied", "reasons": [], "members": []}
    report = {
        "schema_version": "turbo_hydra/report/v1",
        "run_id": "r",
        "status": "succeeded",
        "exit_status": 0,
        "summary": {"applied": 1},
        "prepared_execution": None,
        "execution": [entry],
        "ranks": [{"rank": 0, "host": "h", "pid": 1, "status": "succeeded", "exit_status": 0}],
        "disagreements": [],
        "steps": {"count": 5, "median_ms": 12.5, "samples_per_s": 80.0, "first_loss": 2.0, "last_loss": 1.0},
    }
    other = {**report, "execution": [{**entry, "status": "skipped", "reasons": ["disabled_by_user"]}]}
    for name, data in (("one", report), ("two", other)):
        (tmp_path / name / "turbo").mkdir(parents=True)
        (tmp_path / name / "turbo" / "report.json").write_text(json.dumps(data), encoding="utf-8")
    single = opt("report", "one")
    assert single.returncode == 0, single.stderr
    assert "applied=1" in single.stdout
    both = opt("report", "one", "two")
    assert both.returncode == 0, both.stderr
    assert "skipped (disabled_by_user)" in both.stdout
    assert "steps.median_ms" in both.stdout
    assert json.loads(opt("report", "one", "--json").stdout)["run_id"] == "r"


@pytest.mark.parametrize("content", [None, "{", "[]", '{"schema_version": "other"}'])
def test_what_is_no_report_is_one_sentence(opt: Run, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "report.json").write_text(content, encoding="utf-8")
    done = opt("report", ".")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_doctor_tells_versions_and_no_secrets(opt: Run) -> None:
    proxy = "https://me:abcdef123@example.org/x"
    done = opt("doctor", "--json", TORCH_SECRET_TOKEN="abcdef123", NCCL_DEBUG="INFO", TORCH_MIRROR=proxy)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["versions"]["hydra-core"].startswith("1.")
    assert facts["environment"]["NCCL_DEBUG"] == "INFO"
    assert facts["environment"]["TORCH_MIRROR"] == "https://***@example.org/x"
    assert facts["entry points"]["hydra.plugins: torchrun_launcher"]
    assert {"of runs", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"} <= set(facts["caches"])
    assert "abcdef123" not in done.stdout
    assert facts["catalogs"]["turbo_hydra.catalogs.torch"].endswith("groups")


@pytest.mark.parametrize("arguments", [["--help"], ["generate", "--help"], ["check", "--help"]])
def test_help(opt: Run, arguments: list[str]) -> None:
    done = opt(*arguments)
    assert done.returncode == 0
    assert "Usage" in done.stdout


@pytest.mark.parametrize("arguments", [["generate"], ["nothing"], ["check", "f.yaml"]])
def test_missing_and_unknown_words_are_wrong_use(opt: Run, arguments: list[str]) -> None:
    assert opt(*arguments).returncode == 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise RuntimeError('no such\\nluck')", "RuntimeError: no such luck"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("import none_such", "ModuleNotFoundError: No module named 'none_such'"),
    ],
)
def test_a_catalog_that_cannot_be_imported_is_1_in_validate_and_2_in_generate(
    opt: Run, tmp_path: Path, example: str, body: str, said: str
) -> None:
    (tmp_path / "their_catalog.py").write_text(body + "\n", encoding="utf-8")
    (tmp_path / "f.yaml").write_text(HEADER + "catalogs: [their_catalog]\n", encoding="utf-8")
    recipe = "schema_version: turbo_hydra/recipe/v1\nkind: OptimizationRecipe\ncatalogs: [their_catalog]\n"
    (tmp_path / "r.yaml").write_text(recipe, encoding="utf-8")
    validated = opt("validate", "f.yaml", PYTHONPATH=str(tmp_path))
    generated = opt("generate", "--recipe", "r.yaml", "--repo", example, "--output", "o.yaml", PYTHONPATH=str(tmp_path))
    assert (validated.returncode, generated.returncode) == (1, 2)
    for done in (validated, generated):
        (sentence,) = done.stderr.splitlines()
        assert f"catalog 'their_catalog' cannot be imported: {said}" in sentence
    assert not (tmp_path / "o.yaml").exists()


def test_what_a_catalog_prints_is_not_what_a_machine_reads(opt: Run, tmp_path: Path) -> None:
    catalog = (
        "from turbo_hydra import group, replace\nprint('noise')\ngroup('loud.one', replace('json.dumps', 'a.b'))\n"
    )
    (tmp_path / "loud.py").write_text(catalog, encoding="utf-8")
    done = opt("list", "--json", "--catalog", "loud", PYTHONPATH=str(tmp_path))
    assert json.loads(done.stdout)[0]["id"] == "loud.one"
    assert "noise" in done.stderr
