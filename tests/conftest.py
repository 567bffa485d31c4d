# SPDX-License-Identifier: Apache-2.0
"""What every test may use: the project's root, and time limits that do not depend on how busy the machine is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# A deadline for one example measures the machine's load, not the code; pytest-timeout ends what hangs.
settings.register_profile("project", deadline=None)
settings.load_profile("project")


@pytest.fixture(scope="session")
def project_root() -> Path:
    """Return the folder that holds pyproject.toml."""
    return Path(__file__).resolve().parents[1]
