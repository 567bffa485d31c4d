# SPDX-License-Identifier: Apache-2.0
"""Which kind of device a process uses: read from files, since to ask torch would load it and wake the driver."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from turbo_hydra.engine import visible

# As `runtime.accelerator` has them; `hcu` is whatever torch reaches through HIP.
BACKENDS = ("cpu", "cuda", "hcu")

_NAMES = {"cuda": "cuda", "hip": "hcu"}
# Where these are, there may be devices although the kernel's lists are not to be seen (a container, WSL).
_NODES = {"cuda": ("dev/nvidia[0-9]*", "dev/dxg"), "hip": ("dev/kfd",)}
_NONE_VISIBLE = ("", "-1")


@dataclass(frozen=True)
class Backend:
    """What a process uses.

    Parameters
    ----------
    name : str or None
        One of `BACKENDS`; None where the files do not tell.
    reason : str
        Why, in words.
    """

    name: str | None
    reason: str


def of_process(
    environment: Mapping[str, str], accelerator: str = "auto", torch: Path | None = None, root: Path = Path("/")
) -> Backend:
    """The kind of device that torch finds in a process: what it is built for, where such a device is visible.

    Parameters
    ----------
    environment : mapping
        The process's variables, which may hide devices.
    accelerator : str
        `runtime.accelerator`. It decides where the files do not tell: for `cuda` and `hcu` torch has been asked for
        the devices before the ranks began.
    torch : Path, optional
        The folder of the package torch, if not that which would be imported.
    root : Path
        Where `dev`, `proc` and `sys` are.
    """
    build = _build(torch or _folder())
    if build is None:
        told = Backend(None, "torch is not installed, or does not say what it is built for")
    elif build == "":
        return Backend("cpu", "torch is built for the CPU only")
    elif build not in _NAMES:
        told = Backend(None, f"torch is built for {build.upper()}")
    else:
        kind, found = visible.devices(environment, root)
        if kind == build and found:
            return Backend(_NAMES[build], f"{len(found)} visible")
        hidden = any(environment[name].strip() in _NONE_VISIBLE for name in visible.lists(environment, build))
        if hidden or kind is not None or not any(any(root.glob(node)) for node in _NODES[build]):
            return Backend("cpu", f"torch is built for {build.upper()}, and no such device is visible")
        told = Backend(None, f"whether {build.upper()} devices are visible cannot be read from /proc and /sys")
    return Backend(accelerator, f"runtime.accelerator; {told.reason}") if accelerator in BACKENDS else told


def _folder() -> Path | None:
    try:
        spec = importlib.util.find_spec("torch")
    except ValueError:  # a module without a spec has been put in its place
        return None
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


def _build(torch: Path | None) -> str | None:
    """What torch is built for: `cuda`, `hip`, `xpu`, empty for the CPU only; None where it does not say."""
    if torch is None:
        return None
    try:
        tree = ast.parse((torch / "version.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    values: dict[str, object] = {}
    for node in tree.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Constant):
            continue
        targets: list[ast.expr] = [*node.targets] if isinstance(node, ast.Assign) else [node.target]
        values.update({item.id: node.value.value for item in targets if isinstance(item, ast.Name)})
    if not {"cuda", "hip"} <= values.keys():
        return None
    return next((name for name in ("hip", "cuda", "xpu") if values.get(name)), "")
