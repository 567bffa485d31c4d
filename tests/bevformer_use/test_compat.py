# SPDX-License-Identifier: Apache-2.0
"""What BEVFormer needs to run on a CPU: in real ranks and in workers that they start afresh."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from tests.bevformer_use import stand_in
from tests.bevformer_use.conftest import Train
from turbo_hydra import Registry
from turbo_hydra.catalogs.mmcv import compat_cpu, compat_extension, compat_torch
from turbo_hydra.catalogs.mmcv.extension_names import NAMES
from turbo_hydra.catalogs.models.bevformer import compat_grid_mask, compat_spawn

CATALOGS = ("turbo_hydra.catalogs.mmcv.compat", "turbo_hydra.catalogs.models.bevformer.compat")
COMPAT = [
    *("mmcv.compat_torchvision", "mmcv.compat_extension", "mmcv.compat_compilers", "mmcv.compat_numpy"),
    *("mmcv.compat_torch", "mmcv.compat_cpu"),
    *("bevformer.compat_imports", "bevformer.compat_grid_mask", "bevformer.compat_spawn"),
]
CONFIG = f"""\
schema_version: turbo_hydra/optimization-config/v1
kind: OptimizationConfig
model: {{name: bevformer}}
catalogs: [{", ".join(CATALOGS)}]
groups:
  mmcv: {{{", ".join(f"{id[5:]}: true" for id in COMPAT if id.startswith("mmcv."))}}}
  bevformer: {{{", ".join(f"{id[10:]}: true" for id in COMPAT if id.startswith("bevformer."))}}}
"""


def run(train: Train, folder: Path, *overrides: str) -> tuple[Any, list[dict[str, Any]], dict[str, Any]]:
    """How the run ended, what each rank's script saw, and the groups of the report."""
    site = stand_in.write(folder / "site", stand_in.SITE)
    checkout = stand_in.write(folder / "checkout", stand_in.CHECKOUT)
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
    done = train(
        *("model=bevformer", "model.args.launcher=null", "optimization.config=config.yaml", "measure=off"),
        *("hydra.run.dir=run", "optimization.force=['*']", *overrides),
        site=site,
        BEVFORMER_REPO=str(checkout),
    )
    report = json.loads((folder / "run" / "turbo" / "report.json").read_text("utf-8"))
    seen = [json.loads(file.read_text("utf-8")) for file in sorted(checkout.glob("seen_*.json"))]
    return done, seen, {entry["group"]: entry for entry in report["execution"]}


def check(seen: list[dict[str, Any]], groups: dict[str, Any]) -> None:
    mean = 1 + (len(seen) - 1) / 2
    for told in seen:
        assert told["worker"] == told["rank"] == ["DetectionConfig", ["car", "bus"], True, "n/a"]
        # 2 * x where it is kept, and the mean of the ranks, whose x are 1 and 2.
        assert told["gradient"] == [2 * mean * kept for kept in told["kept"]]
        assert told["backend"] == "gloo"
    assert {id: entry["status"] for id, entry in groups.items()} == dict.fromkeys(COMPAT, "applied")


@pytest.mark.slow
def test_a_rank_and_its_worker_run_where_nothing_would(train: Train, tmp_path: Path) -> None:
    # The stand-ins are not what evidence was taken of.
    done, seen, groups = run(train, tmp_path, "optimization.enabled=false", "optimization.strict=true")
    assert done.returncode == 0, done.stderr
    assert len(seen) == 1
    check(seen, groups)
    hits = {
        member["target"].rpartition(".")[2]: member["hits"]["replacement"]
        for entry in groups.values()
        for member in entry["members"]
        if member.get("hits")
    }
    for name in ("cuda", "current_device", "_init_dist_pytorch", "_log_and_throw", "train_step", "forward"):
        assert hits[name] == 1, name


@pytest.mark.slow
def test_two_ranks_talk_through_gloo(train: Train, tmp_path: Path) -> None:
    done, seen, groups = run(train, tmp_path, "runtime=cpu_2rank", "optimization.strict=true")
    assert done.returncode == 0, done.stderr
    assert len(seen) == 2
    check(seen, groups)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "said"),
    [
        ("mmcv.compat_extension", "No module named 'mmcv._ext'"),
        ("mmcv.compat_cpu", "by zero"),
        ("bevformer.compat_imports", "No module named"),
        ("bevformer.compat_spawn", "cannot pickle 'dict_keys' object"),
    ],
)
def test_each_is_needed(train: Train, tmp_path: Path, group: str, said: str) -> None:
    done, seen, groups = run(train, tmp_path, f"optimization.disable=[{group}]")
    assert done.returncode == 1
    assert said in done.stderr
    assert not seen
    assert groups[group]["status"] == "skipped"


def test_a_misspelt_name_of_the_extension_is_refused() -> None:
    assert {"ms_deform_attn_forward", "nms", "modulated_deform_conv_forward"} <= set(NAMES)
    assert len(NAMES) == len(set(NAMES)) == 107
    assert "ms_deform_attn_foward" not in NAMES


def test_the_groups_are_compatibility_and_change_no_number() -> None:
    registry = Registry()
    for catalog in CATALOGS:
        registry.load(catalog)
    assert set(registry.groups) == set(COMPAT)
    about = [group.about for group in registry.groups.values()]
    assert {(item.purpose, item.numerics) for item in about if item is not None} == {("compatibility", "bitwise")}


def masked(self: Any, x: torch.Tensor) -> torch.Tensor:
    """As GridMask makes its mask."""
    return x * torch.from_numpy(np.random.rand(x.shape[-1]) > 0.5).to(x.dtype).cuda()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_mask_stays_on_the_cpu_with_the_same_draws_and_gradients(dtype: torch.dtype) -> None:
    forward = compat_grid_mask.forward(masked, None)
    x = torch.randn(3, 8, dtype=dtype, requires_grad=True)
    np.random.seed(0)
    output = forward(None, x)
    np.random.seed(0)
    mask = torch.from_numpy(np.random.rand(8) > 0.5).to(dtype)
    assert torch.equal(output, x * mask)
    output.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, mask.expand(3, 8))
    moved = torch.zeros(1)
    if not torch.cuda.is_available():
        with pytest.raises((AssertionError, RuntimeError)):
            moved.cuda()


def test_images_on_a_device_are_left_to_the_original() -> None:
    seen: list[Any] = []

    def original(self: Any, x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return x

    x = torch.empty(2, device="meta")
    assert compat_grid_mask.forward(original, None)(None, x) is x
    assert seen == [x]


def never(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("the original was called")


@pytest.mark.parametrize("there", [False, True])
def test_what_asks_for_a_gpu_is_answered_only_where_there_is_none(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: there)
    called: list[Any] = []

    def original(*args: Any, **kwargs: Any) -> Any:
        called.append((args, kwargs))
        return 7

    monkeypatch.setattr(torch.distributed, "init_process_group", lambda **kwargs: called.append(kwargs))
    module = torch.nn.Linear(1, 1)
    moved = compat_cpu.cuda(original, None)(module, 0)
    number = compat_cpu.current_device(original, None)()
    compat_cpu.init_dist(original, None)("nccl", timeout=3)
    if there:
        assert (moved, number) == (7, 7)
        assert called == [((module, 0), {}), ((), {}), (("nccl",), {"timeout": 3})]
    else:
        assert moved is module
        assert number == 0
        assert called == [{"backend": "gloo", "timeout": 3}]


@pytest.mark.parametrize(
    ("device", "message", "passes"),
    [
        ("cpu", "device_ids and output_device arguments only work with GPU modules, got device_ids [0]", True),
        ("cpu", "input module parameters locate in two places", False),
        ("cuda", "device_ids can only be None or contain a single element", False),
    ],
)
def test_ddp_refuses_all_but_the_number_of_a_gpu_for_a_model_on_a_cpu(device: str, message: str, passes: bool) -> None:
    def original(self: Any, err_type: type[Exception], err_msg: str) -> None:
        raise err_type(err_msg)

    refuse = compat_cpu.ddp_refusal(original, None)
    if passes:
        refuse(SimpleNamespace(device_type=device), ValueError, message)
    else:
        with pytest.raises(ValueError, match=message):
            refuse(SimpleNamespace(device_type=device), ValueError, message)


def test_a_model_on_a_device_gets_its_batches_as_they_are() -> None:
    step = compat_cpu.ddp_step(lambda self, *inputs, **kwargs: (inputs, kwargs), None)
    assert step(SimpleNamespace(device_ids=[0]), "x", y=1) == (("x",), {"y": 1})


def test_a_stream_is_asked_for_by_device() -> None:
    get = compat_torch.get_stream(lambda device: device, None)
    assert get(1) == torch.device("cuda", 1)
    assert get(torch.device("cpu")) == torch.device("cpu")


def test_compilers_are_known_only_of_an_extension_that_is_there() -> None:
    def absent() -> str:
        raise ImportError("'mmcv._ext' is not installed")

    assert compat_extension.version(absent, None)() == "n/a"
    assert compat_extension.version(lambda: "GCC 9.3", None)() == "GCC 9.3"
    with pytest.raises(AssertionError):
        compat_extension.version(never, None)()


def test_class_names_can_be_sent_to_another_process() -> None:
    def original(self: Any, class_range: dict[str, int]) -> None:
        self.class_names = class_range.keys()

    config = SimpleNamespace()
    compat_spawn.init(original, None)(config, {"car": 50, "bus": 30})
    assert pickle.loads(pickle.dumps(config)).class_names == ["car", "bus"]


def test_the_preset_leaves_what_it_takes_to_run() -> None:
    folder = Path(__file__).resolve().parents[2] / "conf" / "optimization"
    preset = yaml.safe_load((folder / "bevformer" / "all_off.yaml").read_text(encoding="utf-8"))["groups"]
    generated = yaml.safe_load((folder / "bevformer.yaml").read_text(encoding="utf-8"))
    registry = Registry()
    for catalog in generated["catalogs"]:
        registry.load(catalog)
    named = [f"{catalog}.{name}" for catalog, names in generated["groups"].items() for name in names]
    optimizations = {id for id in named if registry.groups[id].purpose == "optimization"}
    assert {f"{catalog}.{name}" for catalog, names in preset.items() for name in names} == optimizations
    assert not any(on for names in preset.values() for on in names.values())
