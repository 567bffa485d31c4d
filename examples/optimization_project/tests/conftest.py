# SPDX-License-Identifier: Apache-2.0
"""The sample model is on the path, as when its script runs."""

import importlib.util
import sys
from pathlib import Path

spec = importlib.util.find_spec("my_optimizations")
if spec is None or spec.origin is None:
    raise ModuleNotFoundError("install the project first: pip install -e .")
sys.path.insert(0, str(Path(spec.origin).parent / "sample"))
