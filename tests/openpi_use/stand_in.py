# SPDX-License-Identifier: Apache-2.0
"""Packages with the names and layouts of those that OpenPI's compatibility groups meet, each file a few lines."""

from __future__ import annotations

from pathlib import Path

VERSION = "4.53.2"
REPLACED = (
    "models/gemma/configuration_gemma",
    "models/gemma/modeling_gemma",
    "models/paligemma/modeling_paligemma",
    "models/siglip/check",
    "models/siglip/modeling_siglip",
)
PROJECTOR = """\
class PaliGemmaMultiModalProjector:
    def __init__(self, config):
        self.width = config.vision_config.projection_dim
"""
DATA_LOADER = """\
import lerobot.common.datasets.lerobot_dataset
import numpy as np

class FakeDataset:
    def __getitem__(self, index):
        return {
            "image": {name: np.full((4, 6, 3), index, np.float32) for name in ("base_0_rgb", "right_wrist_0_rgb")},
            "image_mask": {name: np.zeros((), bool) for name in ("base_0_rgb", "right_wrist_0_rgb")},
            "tokenized_prompt_mask": np.zeros(200, bool),
            "state": np.zeros(2, np.float32),
        }
"""
FEATURES = """\
class Sequence: pass
class Value: pass
_FEATURE_TYPES = {"Sequence": Sequence, "Value": Value}
"""
SCRIPT = """\
import datetime, importlib, json, multiprocessing, pathlib, types
import openpi.training.data_loader as data_loader
import datasets.features.features as features

def seen():
    told = {}
    for name in NAMES:
        try:
            module = importlib.import_module("transformers." + name.replace("/", "."))
            told[name] = [module.ORIGIN, module.HELPER]
        except ImportError as error:
            told[name] = type(error).__name__
    item = data_loader.FakeDataset()[5]
    told["shapes"] = {name: list(image.shape) for name, image in item["image"].items()}
    told["masks"] = {name: bool(mask) for name, mask in item["image_mask"].items()}
    told["prompt"] = int(item["tokenized_prompt_mask"].sum())
    told["state"] = item["state"].tolist()
    config = types.SimpleNamespace(
        vision_config=types.SimpleNamespace(projection_dim=2048), text_config=types.SimpleNamespace(hidden_size=64))
    projector = importlib.import_module("transformers.models.paligemma.modeling_paligemma")
    told["width"] = projector.PaliGemmaMultiModalProjector(config).width
    told["utc"] = getattr(datetime, "UTC", None) is datetime.timezone.utc
    told["list"] = features._FEATURE_TYPES.get("List") is features.Sequence
    return told

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        child = pool.apply(seen)
        pool.close()  # a child that is terminated loses what it has counted in its last second
        pool.join()
    pathlib.Path("seen.json").write_text(json.dumps({"rank": seen(), "child": child}))
"""


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def site(folder: Path, version: str = VERSION) -> None:
    """Fill a folder of installed packages: a stock transformers, `datasets` before 4.0 and LeRobot."""
    stock = [name for name in REPLACED if not name.endswith("check")]
    packages = {"transformers", "transformers/models", *(f"transformers/{name.rpartition('/')[0]}" for name in stock)}
    write(folder, {f"{package}/__init__.py": "" for package in packages})
    write(folder, {f"transformers/{name}.py": "ORIGIN, HELPER = 'stock', None\n" + PROJECTOR for name in stock})
    write(folder, {"transformers/helper.py": "HELPER = 'of transformers'\n"})
    write(folder, {f"transformers-{version}.dist-info/METADATA": f"Name: transformers\nVersion: {version}\n"})
    write(folder, {"datasets/__init__.py": "", "datasets/features/__init__.py": "from .features import Sequence\n"})
    write(folder, {"datasets/features/features.py": FEATURES})
    inside = ("lerobot", "lerobot/common", "lerobot/common/datasets")
    write(folder, {f"{package}/__init__.py": "" for package in inside})
    write(folder, {"lerobot/common/datasets/lerobot_dataset.py": "import datasets\n"})
    # As on Python 3.10, whatever this one is.
    write(folder, {"sitecustomize.py": "import datetime\nvars(datetime).pop('UTC', None)\n"})


def checkout(folder: Path) -> None:
    """Fill a folder like OpenPI's checkout, with its files for transformers and a script that tells what it sees."""
    package = "src/openpi"
    write(folder, {f"{package}/__init__.py": "", f"{package}/training/__init__.py": ""})
    write(folder, {f"{package}/training/data_loader.py": DATA_LOADER})
    text = "from ...helper import HELPER\nORIGIN = 'openpi'\n" + PROJECTOR
    replaced = f"{package}/models_pytorch/transformers_replace"
    write(folder, {f"{replaced}/{name}.py": text for name in REPLACED})
    write(folder, {"scripts/train_pytorch.py": SCRIPT.replace("NAMES", repr(REPLACED))})
