# SPDX-License-Identifier: Apache-2.0
"""turbo-opt init: what it writes, and what it refuses. That the project works is tested with the how-to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turbo_hydra.cli.project import EXAMPLE, EXAMPLE_NAME

if TYPE_CHECKING:
    from tests.cli.conftest import Run


def test_the_project_is_the_example_under_the_name_with_its_config_generated(opt: Run, tmp_path: Path) -> None:
    done = opt("init", "quick")
    assert done.returncode == 0, done.stderr
    project = tmp_path / "quick"
    files = {file.relative_to(project).as_posix() for file in project.rglob("*") if file.is_file()}
    shipped = {
        file.relative_to(EXAMPLE).as_posix().replace(EXAMPLE_NAME, "quick")
        for file in EXAMPLE.rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }
    conf = "src/quick/conf/optimization"
    assert files - shipped == {f"{conf}/quick.yaml", f"{conf}/quick.evidence.json"}
    assert shipped <= files
    texts = [(project / file).read_text(encoding="utf-8") for file in files]
    assert not [text for text in texts if EXAMPLE_NAME in text or "SPDX" in text or str(tmp_path) in text]
    evidence = json.loads((project / conf / "quick.evidence.json").read_text(encoding="utf-8"))
    assert evidence["provenance"]["repository"] == "pkg://quick/sample"
    assert set(evidence["targets"]) == {"sample_model.layers.RMSNorm.forward", "sample_model.layers.causal_mask"}
    shown = opt("validate", str(project / conf / "quick.yaml"), "--json", PYTHONPATH=str(project / "src"))
    assert json.loads(shown.stdout) == {"valid": True, "groups": {"quick.rms_norm": True, "quick.cached_mask": True}}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Quick", "is that of its package: a-z, 0-9 and _, found 'Quick'"),
        ("2fast", "found '2fast'"),
        ("import", "found 'import'"),
        ("torch", "'torch' is the name of another package"),
        ("json", "'json' is the name of another package"),
    ],
)
def test_a_name_that_cannot_be_a_package_is_refused(opt: Run, tmp_path: Path, name: str, said: str) -> None:
    done = opt("init", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_content_is_left_alone(opt: Run, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.txt").write_text("mine", encoding="utf-8")
    done = opt("init", "quick", "--folder", "here")
    assert done.returncode == 2
    assert "here is there and not empty; name another with --folder" in done.stderr
    assert [file.name for file in (tmp_path / "here").iterdir()] == ["mine.txt"]
