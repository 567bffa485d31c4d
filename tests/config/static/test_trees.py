# SPDX-License-Identifier: Apache-2.0
"""Where modules are found: in repositories, among installed packages, in wheels."""

from __future__ import annotations

import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from turbo_hydra.config.static import Installed, Repository, StaticReader, Wheel
from turbo_hydra.config.static.trees import public_version
from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.engine.evidence import LiveReader
from turbo_hydra.engine.targets import resolve


def make_wheel(folder: Path, **files: str) -> Path:
    path = folder / "demo-1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "demo-1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: Demo\nVersion: 1.2+local\n\nText\n"
        )
        for name, text in files.items():
            archive.writestr(name.replace("__", "/", 1) + ".py", text)
    return path


def test_a_wheel_is_read_without_installing_it(tmp_path: Path) -> None:
    wheel = Wheel(make_wheel(tmp_path, demo____init__="from .inner import f\n", demo__inner="def f():\n    return 1\n"))
    seen = StaticReader([wheel]).read("demo.f")
    assert seen.record is not None
    assert (seen.record.dist, seen.record.version, seen.record.file) == ("Demo", "1.2", "demo/inner.py")


@pytest.mark.parametrize("content", [b"", b"no zip"])
def test_what_is_no_wheel_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.whl"
    path.write_bytes(content)
    with pytest.raises(OptimizationConfigError, match="is not a readable wheel"):
        Wheel(path)


def test_a_zip_without_metadata_is_no_wheel(tmp_path: Path) -> None:
    path = tmp_path / "x.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.py", "")
    with pytest.raises(OptimizationConfigError, match="it has no METADATA"):
        Wheel(path)


def test_an_installed_package_has_its_distribution_and_version() -> None:
    seen = StaticReader([Installed()]).read("yaml.safe_load")
    site = resolve("yaml.safe_load")
    live = LiveReader().read(site.raw, site.name)
    assert seen.record is not None
    assert (seen.record.source, seen.record.ast, seen.record.chain) == (live.source, live.ast, live.chain)
    assert (seen.record.dist, seen.record.version) == ("PyYAML", version("PyYAML"))
    assert seen.record.file == "yaml/__init__.py"


@pytest.mark.parametrize("name", ["get_version_string", "CParser"])
def test_functions_and_classes_of_an_extension_have_the_evidence_of_its_distribution(name: str) -> None:
    record = StaticReader([Installed()]).read(f"yaml._yaml.{name}").record
    if record is None:
        pytest.skip("PyYAML was built without its extension")
    live = LiveReader().read(resolve(f"yaml._yaml.{name}").raw, name, "yaml._yaml")
    assert record.artifact == live.artifact is not None
    assert (record.source, record.ast, record.dist) == (None, None, "PyYAML")


def test_the_repository_wins_over_what_is_installed(tmp_path: Path) -> None:
    (tmp_path / "yaml").mkdir()
    (tmp_path / "yaml" / "__init__.py").write_text("def safe_load(): pass\n", encoding="utf-8")
    reader = StaticReader([Repository(tmp_path, (tmp_path,)), Installed()])
    seen = reader.read("yaml.safe_load")
    assert seen.record is not None
    assert seen.record.dist is None
    assert reader.read("yaml.loader.Loader").missing


def test_a_folder_of_the_same_name_hides_no_package(tmp_path: Path) -> None:
    (tmp_path / "yaml" / "data").mkdir(parents=True)
    seen = StaticReader([Repository(tmp_path, (tmp_path,)), Installed()]).read("yaml.safe_load")
    assert seen.record is not None
    assert seen.record.dist == "PyYAML"


def test_earlier_import_roots_win(tmp_path: Path) -> None:
    for folder, text in (("src", "def f(): return 'src'\n"), (".", "def f(): return 'root'\n")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "one.py").write_text(text, encoding="utf-8")
    seen = StaticReader([Repository(tmp_path, (tmp_path / "src", tmp_path))]).read("one.f")
    assert "'src'" in seen.text
    assert seen.place == "src/one.py:1"


def test_a_coding_line_is_respected(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes("# -*- coding: latin-1 -*-\ndef f():\n    return 'é'\n".encode("latin-1"))
    seen = StaticReader([Repository(tmp_path, (tmp_path,))]).read("latin.f")
    assert "é" in seen.text


@pytest.mark.parametrize(("given", "public"), [("2.13.0+cpu", "2.13.0"), ("1.0", "1.0"), ("weird!", "weird!")])
def test_builds_of_one_version_are_one_version(given: str, public: str) -> None:
    assert public_version(given) == public
