# SPDX-License-Identifier: Apache-2.0
"""A module is looked for without importing its packages."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from turbo_hydra.launch.job import JobError
from turbo_hydra.launch.paths import Script, check_module


def script(folder: Path, module: str) -> Script:
    return Script(None, None, module, folder, (str(folder),))


@pytest.mark.parametrize("inits", [("a", "a/b"), ("a",), ("a/b",), ()])
def test_packages_may_do_without_init(tmp_path: Path, inits: tuple[str, ...]) -> None:
    name = f"packages_{len(inits)}{''.join(inits).count('b')}"
    (tmp_path / name / "b").mkdir(parents=True)
    (tmp_path / name / "b" / "train.py").write_text("raise RuntimeError('imported')")
    for init in inits:
        (tmp_path / init.replace("a", name, 1) / "__init__.py").write_text("raise RuntimeError('imported')")
    check_module(script(tmp_path, f"{name}.b.train"))
    assert name not in sys.modules
    for missing in ("c", "b.test"):
        with pytest.raises(JobError, match=re.escape(f"there is no module '{name}.{missing}'")):
            check_module(script(tmp_path, f"{name}.{missing}"))
