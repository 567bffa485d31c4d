# SPDX-License-Identifier: Apache-2.0
"""Whether this machine can run the kernels, in one sentence where it cannot; imports neither torch nor triton."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from packaging.version import Version

# The oldest of each that has what the kernels use.
OLDEST = {"torch": "2.6", "triton": "3.2"}

STEMS = (
    "adamw",
    "ada_rms_norm",
    "clip_norm",
    "geglu",
    "gelu_tanh_bias",
    "linear_cross_entropy",
    "msda",
    "prefix_attention",
    "rms_norm",
    "rope",
    "softmax",
    "swiglu",
)


def unusable(*, device: bool = True) -> str | None:
    """Why no kernel can run here, None where they can.

    Parameters
    ----------
    device : bool
        Whether an accelerator must be there as well. Looking for one imports torch.

    Returns
    -------
    str or None
        One sentence: what was expected, what was found. A group that calls kernels is blocked with it.
    """
    for name, oldest in OLDEST.items():
        found = _installed(name)
        if found is None:
            return f"kernels need {name} {oldest} or newer, and {name} is not installed"
        if Version(found) < Version(oldest):
            return f"kernels need {name} {oldest} or newer, found {found}"
    if device:
        from .language import INTERPRETED

        if not INTERPRETED:
            import torch

            if not torch.cuda.is_available():
                return "kernels need an NVIDIA, AMD or HCU device, and torch sees none"
    return None


def without_device() -> str | None:
    """Why this machine seems to have no device for kernels, None where it has one: by its files, without torch."""
    files = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd", "/dev/mkfd")
    if any(Path(file).exists() for file in files):
        return None
    return f"no NVIDIA, AMD or HCU device is there ({', '.join(files)})"


def _installed(name: str) -> str | None:
    """Version of a module that can be imported; a vendor's build may go by another distribution's name."""
    if find_spec(name) is None:
        return None
    try:
        return version(name)
    except PackageNotFoundError:
        from importlib import import_module

        return str(getattr(import_module(name), "__version__", "0"))
