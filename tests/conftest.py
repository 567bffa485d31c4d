# SPDX-License-Identifier: Apache-2.0
"""What every test may use: the project's root, and time limits that do not depend on how busy the machine is."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings

# A deadline for one example measures the machine's load, not the code; pytest-timeout ends what hangs.
settings.register_profile("project", deadline=None)
settings.load_profile("project")


KERNELS = Path(__file__).parent / "kernels"


def pytest_configure(config: pytest.Config) -> None:
    """Let triton interpret where kernels are tested, which it decides when the first of all tests imports it.

    And let what the tests start be ended by signals: `make test &` in a script begins with SIGINT ignored, `nohup` with
    SIGHUP, and children inherit that. What is caught here is by default in them.
    """
    for signum, caught in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, lambda *_: None)):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, caught)
    asked = [Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args]
    if any(path in (KERNELS, *KERNELS.parents) or KERNELS in path.parents for path in asked):
        importlib.import_module("tests.kernels.interpreting")


@pytest.fixture(autouse=True)
def _variables_and_path_are_those_of_the_caller() -> Iterator[None]:
    """Take back what a test set, itself or by what it called: what later tests start would inherit it as the user's.

    (torch.compile names its cache folder in TORCHINDUCTOR_CACHE_DIR, which no rank's own folder then replaces.)
    """
    path = sys.path[:]
    with patch.dict(os.environ):
        yield
    sys.path[:] = path


@pytest.fixture(autouse=True)
def _kernels_are_interpreted_where_they_are_tested(
    _variables_and_path_are_those_of_the_caller: None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere a CPU has no kernels, as outside tests, whichever tests run in the same process.

    `monkeypatch` comes after the fixture above: it puts the path back as it was at its first use, which a fixture that
    has left by then may have been in.
    """
    language = sys.modules.get("turbo_hydra.kernels.language")
    if language is not None and KERNELS not in request.path.parents:
        monkeypatch.setattr(language, "INTERPRETED", False)
        monkeypatch.setattr(language, "DEVICE_TYPES", tuple(kind for kind in language.DEVICE_TYPES if kind != "cpu"))


@pytest.fixture(scope="session")
def project_root() -> Path:
    """Return the folder that holds pyproject.toml."""
    return Path(__file__).resolve().parents[1]
