#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same without turbo-train: python fit_alone.py, or under torchrun. Two lines come before the model's import."""

import sys
from pathlib import Path

import turbo_hydra

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tiny_vla"))
turbo_hydra.apply(model="tiny_vla")

from fit import main  # noqa: E402  below apply(), which must see the model first

if __name__ == "__main__":
    main()
