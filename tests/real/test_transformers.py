# SPDX-License-Identifier: Apache-2.0
"""The groups of the catalog `transformers` on the library itself, the oldest and the newest version that is recorded.

What a model of random weights gives with groups is compared with what it gives without, each in a process of its own:
loss and all gradients, in float32 and bfloat16, eager and compiled; on a CPU, where kernels leave the work to the
original, and in Triton's interpreter, where they do it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]
PROGRAM = Path(__file__).with_name("transformers_program.py")
FAMILIES = ("gemma", "gemma2", "gemma3", "llama", "mistral", "qwen2", "qwen3", "siglip", "paligemma")
WITH_LOSS = tuple(name for name in FAMILIES if name != "siglip")
NO_LOSS = {"disable": ["transformers.*_loss"]}
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module", params=["transformers_453", "transformers_5x"])
def python(request: pytest.FixtureRequest, environment: Callable[[str], Path]) -> Path:
    """The interpreter of a version's environment."""
    return environment(request.param)


@pytest.fixture(scope="module")
def run(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run the program in a mode; of equal runs the first is kept."""
    kept: dict[str, dict[str, Any]] = {}

    def made(mode: str, **task: Any) -> dict[str, Any]:
        key = json.dumps([mode, task], sort_keys=True)
        if key not in kept:
            answer = tmp_path_factory.mktemp("run") / "answer.json"
            interpret = {"TRITON_INTERPRET": "1"} if task.get("interpret") else {}
            done = subprocess.run(
                [str(python), str(PROGRAM), mode, json.dumps({**task, "answer": str(answer)})],
                env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONSAFEPATH": "1", **interpret},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-4000:]
            kept[key] = json.loads(answer.read_text(encoding="utf-8"))
            if mode == "train":
                kept[key]["steps"] = torch.load(answer.with_suffix(".pt"))
        return kept[key]

    return made


def members(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Status and hits of each group that is on."""
    return {
        entry["group"].partition(".")[2]: {"status": entry["status"], **(entry["members"][0]["hits"] or {})}
        for entry in report["execution"]
        if entry["members"]
    }


def bitwise(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Losses and gradients are equal bit by bit."""
    for case, values in found.items():
        assert values.keys() == expected[case].keys(), case
        for name in values.keys() - {"logits"}:
            assert torch.equal(values[name], expected[case][name]), (case, name)


def close(found: dict[str, Any], plain: dict[str, Any]) -> None:
    """In float32 losses and gradients are the library's up to the order of sums.

    In bfloat16, which each of the two rounds in places of its own, they are as near to float64 as the library's.
    """
    for case, values in found.items():
        family, dtype = case.split()
        assert values.keys() == plain[case].keys(), case
        names = sorted(values.keys() - {"logits"})
        # What is zero but for rounding, such as the gradient of a key's bias, is measured by the others' size.
        size = max(float(plain[case][name].abs().max()) for name in names)
        for name in names:
            ours, theirs = values[name], plain[case][name]
            assert ours.dtype == theirs.dtype, (case, name)
            if dtype == "float32":
                scale = max(float(theirs.abs().max()), 1e-3 * size)
                assert float((ours - theirs).abs().max()) <= 2e-5 * scale, (case, name)
            else:
                exact = plain[f"{family} exact"][name]
                errors = [float((item.double() - exact).norm()) for item in (ours, theirs)]
                # A model's loss is one float32 number: how near to the exact one the library's comes is luck.
                unit = 2e-4 if name == "loss" and family in WITH_LOSS else torch.finfo(torch.bfloat16).eps
                assert errors[0] <= 2.0 * errors[1] + 0.5 * unit * float(exact.norm()), (case, name, errors)


def plain(run: Run, **task: Any) -> dict[str, Any]:
    """What the library gives by itself, in float64 too."""
    steps: dict[str, Any] = run("train", dtypes=["float32", "bfloat16", "exact"], **task)["steps"]
    return steps


def test_on_a_cpu_groups_with_kernels_give_bitwise_what_the_library_gives(run: Run) -> None:
    found = run("train", apply=NO_LOSS)
    bitwise(found["steps"], plain(run))
    told = members(found["report"])
    for family in FAMILIES[:7]:
        for kind in ("rms_norm", "mlp", "rotary"):
            group = told[f"{family}_{kind}"]
            assert group["status"] == "applied"
            assert group["original"] > 0, (family, kind)
            assert set(group["reasons"]) == {"no kernel for tensors on cpu"}, (family, kind)
    assert told["siglip_mlp"]["original"] > 0


def test_the_loss_without_logits_is_the_library_s(run: Run) -> None:
    found = run("train", apply={})
    close(found["steps"], plain(run))
    told = members(found["report"])
    for family in WITH_LOSS:
        assert (told[f"{family}_loss"]["replacement"], told[f"{family}_loss"]["reasons"]) == (2, {}), family
        assert found["steps"][f"{family} float32"]["logits"] is False
        assert plain(run)[f"{family} float32"]["logits"] is True


def test_a_number_of_items_is_divided_by(run: Run) -> None:
    task: dict[str, Any] = {"families": ["gemma", "qwen3"], "given": {"num_items_in_batch": 7}}
    close(run("train", apply={}, **task)["steps"], plain(run, **task))
    assert not torch.isclose(plain(run, **task)["gemma float32"]["loss"], plain(run)["gemma float32"]["loss"])


def test_in_the_interpreter_kernels_train_as_the_library_does(run: Run) -> None:
    found = run("train", apply={}, interpret=True)
    close(found["steps"], plain(run))
    told = members(found["report"])
    names = [f"{family}_{kind}" for family in FAMILIES[:7] for kind in ("rms_norm", "mlp", "rotary", "loss")]
    for name in [*names, "siglip_mlp", "paligemma_loss"]:
        assert told[name]["replacement"] > 0, name
        assert told[name]["reasons"] == {}, name


PLAIN_ATTENTION = ("gemma", "llama", "mistral", "qwen2", "qwen3", "siglip")


def test_in_the_interpreter_the_eager_attention_trains_as_the_library_does(run: Run) -> None:
    groups = {f"{family}_eager_attention": True for family in PLAIN_ATTENTION}
    task: dict[str, Any] = {"families": PLAIN_ATTENTION, "attention": "eager"}
    found = run("train", apply={"groups": {"transformers": groups}}, interpret=True, **task)
    close(found["steps"], plain(run, **task))
    told = members(found["report"])
    for name in groups:
        assert (told[name]["replacement"], told[name]["reasons"]) == (4, {}), "two layers in two dtypes"


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_models_train_as_compiled_models_without_groups(run: Run, backend: str) -> None:
    task: dict[str, Any] = {"backend": backend, "families": ["gemma", "gemma2", "llama", "qwen3"]}
    if backend == "inductor":
        task["families"] = ["gemma"]
    found = run("train", apply={}, fullgraph=True, **task)
    close(found["steps"], {**plain(run), **run("train", **task)["steps"]})
    told = members(found["report"])
    for family in task["families"]:
        assert told[f"{family}_loss"]["traced"] > 0, family
        assert told[f"{family}_mlp"]["traced"] > 0, family


def test_checkpointed_layers_are_computed_again_with_their_groups(run: Run) -> None:
    task: dict[str, Any] = {"checkpointing": True, "families": ["gemma", "llama"], "dtypes": ["float32"]}
    bitwise(run("train", **task)["steps"], plain(run))
    found = run("train", apply=NO_LOSS, **task)
    bitwise(found["steps"], plain(run))
    for family in task["families"]:
        assert members(found["report"])[f"{family}_mlp"]["original"] == 4, "two layers, forward and again"


@pytest.mark.parametrize("moment", ["before", "after the package", "after the model"])
def test_groups_come_in_whenever_a_family_s_module_comes_into_being(run: Run, moment: str) -> None:
    found = run("moments", moment=moment, apply={"only": ["transformers.gemma_*", "transformers.llama_*"]})
    assert found["imported_by_apply"] == []
    before, after = members(found["before"]), members(found["after"])
    there = "applied" if moment == "after the model" else "not_started"
    for kind in ("rms_norm", "mlp", "rotary", "loss"):
        assert (before[f"gemma_{kind}"]["status"], before[f"llama_{kind}"]["status"]) == (there, "not_started")
        assert (after[f"gemma_{kind}"]["status"], after[f"llama_{kind}"]["status"]) == ("applied", "not_started")
        assert after[f"gemma_{kind}"]["replacement"] + after[f"gemma_{kind}"]["original"] > 0, kind
    assert found["is_public"]
    if moment == "after the model":
        (entry,) = [item for item in found["after"]["execution"] if item["group"] == "transformers.gemma_rotary"]
        assert found["rebound"]
        assert entry["members"][0]["rebound"] == ["user_of_it.rotate"]
        assert entry["members"][0]["stale_holders"] == ["user_of_it.table['rotate']"]


def test_models_get_the_attention_that_is_asked_for(run: Run) -> None:
    chosen = {
        "groups": {"transformers": {"attention": True}},
        "options": {"transformers": {"attention": {"implementation": "eager", "instead_of": ["sdpa"]}}},
    }
    found = run("attention", apply=chosen)
    assert {found[name] for name in ("direct", "inner", "automatic", "asked")} == {"eager"}
    assert found["parts"] == ["eager"]
    assert members(found["report"])["attention"]["replacement"] > 0
    back = {"groups": {"transformers": {"attention": True}}}
    assert run("attention", apply=back)["asked"] == "sdpa", "by default, what is eager gets torch's own"


def test_a_group_alone_changes_its_declared_sites_only_and_undo_leaves_nothing(python: Path) -> None:
    isolated = PROGRAM.parents[1] / "catalogs" / "isolated.py"
    done = subprocess.run(
        [str(python), "-P", str(isolated), "transformers"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 45
    for id, result in found.items():
        assert (result["status"], result["undeclared"], result["after_undo"]) == ("applied", [], []), id
        assert result["sites"] > 0, id


def test_the_benchmark_runs_on_a_cpu(python: Path, tmp_path: Path) -> None:
    benchmark = PROGRAM.parents[2] / "benchmarks" / "transformers.py"
    output = tmp_path / "result.json"
    command = [
        str(python),
        str(benchmark),
        "--size",
        "tiny",
        "--steps",
        "3",
        "--json",
        str(output),
        "--profile",
        "ours",
    ]
    rows = ["plain", "liger", "ours", "ours=gemma_loss"]
    done = subprocess.run([*command, *rows], capture_output=True, text=True, check=False, cwd=tmp_path)
    found = json.loads(output.read_text(encoding="utf-8"))
    assert list(found["rows"]) == rows
    assert (done.returncode, found["rows"]["liger"]["error"]) == (1, "status 1"), done.stdout + done.stderr
    assert found["rows"]["liger"]["log"].splitlines()[-1] in done.stdout, "its kernels need a GPU; the others go on"
    for row in (name for name in rows if name != "liger"):
        assert len(found["rows"][row]["ms"]) == 3
        assert found["rows"][row]["losses"] == pytest.approx(found["rows"]["plain"]["losses"], rel=1e-2)
    assert set(found["rows"]["ours=gemma_loss"]["groups"]) == {"transformers.gemma_loss"}
    assert found["rows"]["ours"]["not_applied"] == {}
    assert found["rows"]["ours"]["kernels"]


def test_a_row_of_the_benchmark_that_is_not_done_in_time_is_ended(python: Path, tmp_path: Path) -> None:
    benchmark = PROGRAM.parents[2] / "benchmarks" / "transformers.py"
    output = tmp_path / "results" / "result.json"
    command = [str(python), str(benchmark), "--size", "tiny", "--json", str(output), "--budget", "0.5"]
    done = subprocess.run([*command, "plain", "ours"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    found = json.loads(output.read_text(encoding="utf-8"))
    assert found["rows"]["plain"]["error"].startswith("not done after ")
    assert found["rows"]["ours"]["error"].startswith("not run in ")
