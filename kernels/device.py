# SPDX-License-Identifier: Apache-2.0
"""What differs between the devices: how wide a warp is, how many fit, how much shared memory a program has.

Everything else that differs, Triton spells: kernels use its own operations only (`exp`, `exp2`, `log`, `sqrt`,
`rsqrt`), which become `ex2.approx` and the like on NVIDIA, `v_exp_f32` and the like on AMD and HCU. No kernel names a
function of `libdevice`, which each vendor calls and rounds otherwise (`__nv_tanhf`, `__ocml_tanh_f32`): tanh is
written by `exp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from .language import INTERPRETED


@dataclass(frozen=True)
class DeviceKind:
    """A kind of device, as far as launch configurations depend on it.

    Parameters
    ----------
    name : str
        `sm_90`, `gfx936`; `interpreter` on a CPU.
    vendor : str
        `nvidia`, `amd` (HCU too) or `none`.
    lanes : int
        Threads of a warp (NVIDIA) or wave (AMD, HCU).
    shared_memory : int
        Bytes that one program may have.
    measured : bool
        Whether kernels were tuned on such a device. Where not, configurations are derived.
    """

    name: str
    vendor: str
    lanes: int
    shared_memory: int
    measured: bool = False

    def warps(self, threads: int) -> int:
        """Warps or waves that hold `threads` threads; at most 1,024 threads make a program everywhere."""
        return max(1, min(threads, 1024) // self.lanes)


INTERPRETER = DeviceKind("interpreter", "none", 32, 1 << 20)
# Measured: tuned and tested on one. The AMD and HCU entries are derived from the vendors' figures, not measured: waves
# of 64, 64 KiB of local memory. HCUs are gfx906, gfx926, gfx928 and gfx936.
KINDS = {
    kind.name: kind
    for kind in (
        DeviceKind("sm_80", "nvidia", 32, 163 << 10),
        DeviceKind("sm_89", "nvidia", 32, 99 << 10),
        DeviceKind("sm_90", "nvidia", 32, 227 << 10, measured=True),
        DeviceKind("sm_100", "nvidia", 32, 227 << 10),
        DeviceKind("gfx906", "amd", 64, 64 << 10),
        DeviceKind("gfx926", "amd", 64, 64 << 10),
        DeviceKind("gfx928", "amd", 64, 64 << 10),
        DeviceKind("gfx936", "amd", 64, 64 << 10),
        DeviceKind("gfx942", "amd", 64, 64 << 10),
        DeviceKind("gfx950", "amd", 64, 160 << 10),
    )
}


def device_kind(device: torch.device) -> DeviceKind:
    """Kind of a tensor's device; one that is not in the table gets the smallest figures of its vendor."""
    if INTERPRETED or device.type != "cuda":
        return INTERPRETER
    return _kind(torch.cuda.current_device() if device.index is None else device.index)


@cache
def _kind(index: int) -> DeviceKind:
    if torch.version.hip is not None:
        name = str(torch.cuda.get_device_properties(index).gcnArchName).partition(":")[0]
        # gfx10 and later have waves of 32.
        lanes = 64 if name.startswith("gfx9") else 32
        return KINDS.get(name, DeviceKind(name, "amd", lanes, 64 << 10))
    major, minor = torch.cuda.get_device_capability(index)
    name = f"sm_{major}{minor}"
    return KINDS.get(name, DeviceKind(name, "nvidia", 32, 48 << 10))


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors or compute units: how many programs run side by side at least."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count
