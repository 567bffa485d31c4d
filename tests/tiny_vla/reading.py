# SPDX-License-Identifier: Apache-2.0
"""Reading what `train.py` prints."""

from __future__ import annotations

import re


def losses(text: str) -> dict[int, float]:
    """Step to loss."""
    return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+) loss (\S+)", text, re.MULTILINE)}


def errors(text: str) -> dict[str, float]:
    """Task to held-out action error."""
    return {task: float(error) for task, error in re.findall(r"^held-out action error (\S+) (\S+)", text, re.MULTILINE)}
