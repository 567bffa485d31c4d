# SPDX-License-Identifier: Apache-2.0
"""The accelerators that a process may use, and where they are plugged in; read from files, no driver is woken."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CUDA, HIP, ROCR = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Device:
    """An accelerator: its place on the PCI bus and its unique name (None if they cannot be told), and its model."""

    address: str | None
    uuid: str | None = None
    model: str = "unknown"


def devices(environment: Mapping[str, str], root: Path = Path("/")) -> tuple[str | None, list[Device]]:
    """Return the kind of the accelerators (`cuda`, `hip`, or None) and those that are visible, in the ranks' order.

    Parameters
    ----------
    environment : mapping
        Its variables hide devices or put them into another order, by number or by unique name.
    root : Path
        Where `proc` and `sys` are.
    """
    found = _nvidia(root)
    if found:
        kind = "cuda"
    else:
        kind, found = "hip", _kfd(root)
    if not found:
        return None, []
    for name in reversed(lists(environment, kind)):
        found = _select(found, environment[name])
    return kind, found


def lists(environment: Mapping[str, str], kind: str | None = None) -> list[str]:
    """Return the variables that are set and hide devices of a kind (None: of any).

    The first counts last: it chooses among what the others leave. HIP reads CUDA's variable where its own is not set.
    """
    if kind == "cuda":
        read = [CUDA]
    elif kind == "hip":
        read = [HIP if HIP in environment else CUDA, ROCR]
    else:
        read = [HIP, CUDA, ROCR]
    return [name for name in read if name in environment]


def models(found: Sequence[Device]) -> list[str]:
    """Return the models of devices."""
    return [device.model for device in found]


def numa_node(device: Device, root: Path = Path("/")) -> int | None:
    """Return the NUMA node that a device is next to; None where the machine does not say."""
    if device.address is None:
        return None
    try:
        node = int((root / "sys/bus/pci/devices" / device.address / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return None if node < 0 else node


def _nvidia(root: Path) -> list[Device]:
    found = []
    for folder in sorted((root / "proc/driver/nvidia/gpus").glob("*")):
        text = _read(folder / "information")
        uuid = re.search(r"^GPU UUID:\s*(\S+)", text, re.MULTILINE)
        model = re.search(r"^Model:\s*(.+?)\s*$", text, re.MULTILINE)
        found.append(Device(folder.name.lower(), uuid[1] if uuid else None, model[1] if model else "unknown"))
    return found


def _kfd(root: Path) -> list[Device]:
    found = []
    for folder in sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("*"), key=_number):
        lines = [line.split() for line in _read(folder / "properties").splitlines()]
        values = {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdigit()}
        if not values.get("simd_count"):  # a CPU
            continue
        location = values.get("location_id", 0)
        address = f"{values.get('domain', 0):04x}:{location >> 8:02x}:{location >> 3 & 31:02x}.{location & 7}"
        unique = values.get("unique_id")
        model = f"gfx {values.get('gfx_target_version', 0)}"
        found.append(Device(address, f"GPU-{unique:016x}" if unique else None, model))
    return found


def _number(folder: Path) -> int:
    return int(folder.name) if folder.name.isdigit() else -1


def _select(found: Sequence[Device], listed: str | None) -> list[Device]:
    """Apply a list of devices as the drivers do: it ends at the first entry that names none."""
    if listed is None:
        return list(found)
    chosen: list[Device] = []
    for entry in listed.split(","):
        device = _entry(found, entry.strip())
        if device is None or device in chosen:
            break
        chosen.append(device)
    return chosen


def _entry(found: Sequence[Device], entry: str) -> Device | None:
    if entry.isdigit():
        return found[int(entry)] if int(entry) < len(found) else None
    if entry.startswith("MIG-"):
        # A part of a card: no file says which card.
        return Device(None, entry)
    if not entry.startswith("GPU-"):
        return None
    # The start of a name is enough where it fits one device only.
    named = [device for device in found if (device.uuid or "").lower().startswith(entry.lower())]
    return named[0] if len(named) == 1 else None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
