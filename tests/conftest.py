# SPDX-License-Identifier: Apache-2.0
"""What every test may use: the project's root, and time limits that do not depend on how busy the machine is."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from hypothesis import settings

# A deadline for one example measures the machine's load, not the code; pytest-timeout ends what hangs.
settings.register_profile("project", deadline=None)
settings.load_profile("project")


KERNELS = Path(__file__).parent / "kernels"


def pytest_configure(config: pytest.Config) -> None:
    """Let triton interpret where kernels are tested, which it decides when the first of all tests imports it."""
    asked = [Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args]
    if any(path in (KERNELS, *KERNELS.parents) or KERNELS in path.parents for path in asked):
        importlib.import_module("tests.kernels.interpreting")


@pytest.fixture(scope="session")
def project_root() -> Path:
    """Return the folder that holds pyproject.toml."""
    return Path(__file__).resolve().parents[1]
