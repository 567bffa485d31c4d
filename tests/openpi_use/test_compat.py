# SPDX-License-Identifier: Apache-2.0
"""The groups that OpenPI needs to run, in real ranks and their spawned children."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.openpi_use import stand_in
from tests.openpi_use.conftest import Train
from turbo_hydra import CheckContext, Registry
from turbo_hydra.catalogs.models.openpi import compat_fake_data, compat_python310, transformers_replace
from turbo_hydra.catalogs.models.openpi.compat import FakeData
from turbo_hydra.compatibility import ImportContext

CATALOG = "turbo_hydra.catalogs.models.openpi.compat"
CONFIG = f"""\
schema_version: turbo_hydra/optimization-config/v1
kind: OptimizationConfig
model: {{name: openpi}}
catalogs: [{CATALOG}]
groups: {{openpi: {{transformers_replace: true, compat_python310: true, compat_fake_data: false}}}}
"""
STOCK = {name: ["stock", None] for name in stand_in.REPLACED if not name.endswith("check")}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.py")}


def run(train: Train, folder: Path, *overrides: str, succeeds: bool = True) -> dict[str, Any]:
    """What the script saw in the rank and in its child, and the run's report."""
    stand_in.site(folder / "site")
    stand_in.checkout(folder / "checkout")
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
    before = files(folder / "site"), files(folder / "checkout")
    done = train(
        *("model=openpi", "model.repo=checkout", "optimization.config=config.yaml", "measure=off", "hydra.run.dir=run"),
        *overrides,
        PYTHONPATH=f"{folder / 'site'}:{Path(__file__).resolve().parents[2]}",
        PYTHONDONTWRITEBYTECODE="1",
    )
    assert (done.returncode == 0) is succeeds, done.stderr
    assert (files(folder / "site"), files(folder / "checkout")) == before, "installed packages stay as they are"
    report = json.loads((folder / "run" / "turbo" / "report.json").read_text("utf-8"))
    told = {entry["group"]: entry for entry in report["execution"]}
    seen = folder / "checkout" / "seen.json"
    return {"report": told, "err": done.stderr, **(json.loads(seen.read_text("utf-8")) if seen.exists() else {})}


def test_openpis_files_are_served_and_fake_data_is_mended_in_the_rank_and_in_its_workers(
    train: Train, tmp_path: Path
) -> None:
    # Evidence is that of OpenPI, which the stand-in is not.
    on = ("optimization.groups.openpi.compat_fake_data=on", "optimization.force=[openpi.compat_fake_data]")
    found = run(train, tmp_path, *on, "optimization.enabled=false", "optimization.strict=true")
    expected = {
        **{name: ["openpi", "of transformers"] for name in stand_in.REPLACED},
        "shapes": {"base_0_rgb": [3, 4, 6], "right_wrist_0_rgb": [3, 4, 6]},
        "masks": {"base_0_rgb": True, "right_wrist_0_rgb": True},
        "prompt": 200,
        "state": [0.0, 0.0],
        "width": 64,
        "utc": True,
        "list": True,
    }
    assert found["rank"] == expected
    assert found["child"] == expected
    assert {id: entry["status"] for id, entry in found["report"].items()} == {
        "openpi.transformers_replace": "applied",
        "openpi.compat_python310": "applied",
        "openpi.compat_fake_data": "applied",
    }
    members = found["report"]["openpi.compat_fake_data"]["members"]
    counted = [(member["hits"], member.get("hits_in_children")) for member in members]
    assert [(hits["replacement"], (of_child or {}).get("replacement")) for hits, of_child in counted] == [
        (2, 1),
        (2, 1),
    ], "one in the rank, one in its child"


def test_without_the_groups_everything_is_as_it_is_installed(train: Train, tmp_path: Path) -> None:
    found = run(train, tmp_path, "optimization.disable=[openpi.*]")
    expected = {
        **STOCK,
        "models/siglip/check": "ModuleNotFoundError",
        "shapes": {"base_0_rgb": [4, 6, 3], "right_wrist_0_rgb": [4, 6, 3]},
        "masks": {"base_0_rgb": False, "right_wrist_0_rgb": False},
        "prompt": 0,
        "state": [0.0, 0.0],
        "width": 2048,
        "utc": False,
        "list": False,
    }
    assert found["rank"] == found["child"] == expected


def test_fake_data_needs_openpis_files(train: Train, tmp_path: Path) -> None:
    on = ("optimization.groups.openpi.compat_fake_data=on", "optimization.force=[openpi.compat_fake_data]")
    found = run(train, tmp_path, *on, "optimization.disable=[openpi.transformers_replace]")
    assert found["rank"]["shapes"]["base_0_rgb"] == [4, 6, 3]
    (reason,) = found["report"]["openpi.compat_fake_data"]["reasons"]
    assert reason == "dependency_disabled"


def context(repository: Path | None, version: str | None = stand_in.VERSION) -> CheckContext:
    versions = {} if version is None else {"transformers": version}
    return CheckContext("openpi.transformers_replace", None, frozenset(), {"versions": versions}, repository)


@pytest.mark.parametrize(
    ("version", "missing", "said"),
    [
        ("4.53.2", None, None),
        (None, None, None),  # a package without a record of itself is not refused for that
        ("4.57.6", None, "made for version 4.53.2, found 4.57.6; install transformers==4.53.2"),
        ("4.53.2", "models/siglip/check.py", "has no models/siglip/check.py"),
    ],
)
def test_another_transformers_and_a_missing_file_are_told_in_one_sentence(
    tmp_path: Path, version: str | None, missing: str | None, said: str | None
) -> None:
    stand_in.checkout(tmp_path)
    if missing is not None:
        (tmp_path / "src/openpi/models_pytorch/transformers_replace" / missing).unlink()
    result = transformers_replace.check(context(tmp_path, version))
    assert result.compatible is (said is None)
    assert (said or "") in result.reason
    if missing is not None:
        with pytest.raises(FileNotFoundError, match=r"has no models/siglip/check\.py"):
            transformers_replace.source(None, ImportContext("transformers.models.siglip.check", None, tmp_path))


def test_without_a_repository_the_files_are_those_of_the_package_that_would_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = transformers_replace.check(context(None))
    assert "no package 'openpi' is found" in result.reason
    stand_in.checkout(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "src")
    assert transformers_replace.check(context(None)).compatible
    text = transformers_replace.source("stock", ImportContext("transformers.models.gemma.modeling_gemma", None, None))
    assert "ORIGIN = 'openpi'" in text


def test_a_feature_type_that_is_known_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, object] = {"List": list}
    module = SimpleNamespace(_FEATURE_TYPES=known, Sequence=tuple)
    monkeypatch.setitem(__import__("sys").modules, "datasets", SimpleNamespace())
    monkeypatch.setitem(__import__("sys").modules, "datasets.features", SimpleNamespace())
    monkeypatch.setitem(__import__("sys").modules, "datasets.features.features", module)
    compat_python310.list_feature(ImportContext("lerobot.common.datasets.lerobot_dataset", None, None))
    assert known == {"List": list}
    known.clear()
    compat_python310.list_feature(ImportContext("lerobot.common.datasets.lerobot_dataset", None, None))
    assert known == {"List": tuple}


@given(st.integers(0, 10**6), st.integers(1, 500))
def test_prompts_of_libero_are_between_30_and_59_percent_of_the_length(index: int, padded: int) -> None:
    length = compat_fake_data.prompt_length(index, padded)
    assert 1 <= length <= padded
    assert 0.3 * padded - 1 <= length <= max(1, 0.59 * padded)
    assert length == compat_fake_data.prompt_length(index, padded), "the same in each epoch"


def test_prompts_of_libero_take_every_length_from_60_to_118_of_200() -> None:
    assert {compat_fake_data.prompt_length(index, 200) for index in range(59)} == set(range(60, 119))


def sample(self: object, index: Any) -> dict[str, Any]:
    names = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
    return {
        "image": {name: np.arange(2 * 4 * 3, dtype=np.float32).reshape(2, 4, 3) for name in names},
        "image_mask": {name: np.zeros((), np.bool_) for name in names},
        "tokenized_prompt": np.arange(200),
        "tokenized_prompt_mask": np.zeros(200, np.bool_),
    }


def test_libero_masks_the_third_camera_and_the_end_of_the_prompt() -> None:
    item = compat_fake_data.item(sample, FakeData(masks="libero"))(None, 3)
    masks = {name: bool(mask) for name, mask in item["image_mask"].items()}
    assert masks == {"base_0_rgb": True, "left_wrist_0_rgb": True, "right_wrist_0_rgb": False}
    valid = item["tokenized_prompt_mask"]
    assert valid.dtype == np.bool_
    assert valid.tolist() == [True] * 81 + [False] * 119  # 60 + 3 * 7
    np.testing.assert_array_equal(item["image"]["base_0_rgb"][1], sample(None, 3)["image"]["base_0_rgb"][..., 1])
    np.testing.assert_array_equal(item["tokenized_prompt"], np.arange(200))


def test_images_that_are_turned_already_and_samples_without_a_prompt_stay() -> None:
    def turned(self: object, index: Any) -> dict[str, Any]:
        return {"image": {"base_0_rgb": np.zeros((3, 4, 6), np.float32)}, "image_mask": {"base_0_rgb": np.zeros(())}}

    item = compat_fake_data.item(turned, FakeData())(None, 0)
    assert item["image"]["base_0_rgb"].shape == (3, 4, 6)
    assert "tokenized_prompt_mask" not in item


def test_a_projector_of_the_published_width_is_not_changed() -> None:
    seen: list[int] = []
    init = compat_fake_data.projector(lambda self, config: seen.append(config.vision_config.projection_dim), FakeData())
    for width in (2048, 64):
        init(None, SimpleNamespace(vision_config=SimpleNamespace(projection_dim=2048), text_config=width_of(width)))
    assert seen == [2048, 64]


def width_of(width: int) -> SimpleNamespace:
    return SimpleNamespace(hidden_size=width)


def test_the_groups_are_compatibility_and_the_fake_data_say_that_they_change_training() -> None:
    registry = Registry()
    registry.load(CATALOG)
    assert {group.purpose for group in registry.groups.values()} == {"compatibility"}
    about = registry.groups["openpi.compat_fake_data"].about
    assert about is not None
    assert about.numerics == "changes training"
