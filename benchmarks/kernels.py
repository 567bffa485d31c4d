# SPDX-License-Identifier: Apache-2.0
"""Kernels against eager PyTorch, torch.compile and Liger-Kernel, on one device in one run.

    python -m benchmarks.kernels [--only WORD ...] [--append FILE --commit SHA] [--once]

Times are the device's (see `benchmarks/device_time.py`). A row's `roofline` is the time in which a copy moves the
row's compulsory bytes, each input and each output once, over the time taken; or, where a row's products of matrices
take longer, the time of a large product with as many operations. Both rates are measured in the same run.
`--once` calls everything once and measures nothing: it fills the caches of compiled code.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks import matrix_cases
from benchmarks.device_time import Time, copy_bandwidth, device_time, host_time, matrix_rate
from benchmarks.kernel_cases import BF16, CASES, Case, pi05_sizes, stem

Row = dict[str, Any]


@dataclass(frozen=True)
class Rates:
    """What the device can do: bytes that a copy moves, and operations of a large product, in a second."""

    copy: float
    matrix: float


def both_ways(function: Callable[..., Any], leaves: list[torch.Tensor]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A forward, and a forward with its backward."""
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    given = function(*leaves)
    shapes = given if isinstance(given, tuple) else (given,)
    grads = [torch.randn_like(item).contiguous() for item in shapes]

    def forward() -> Any:
        return function(*leaves)

    def backward() -> Any:
        outputs = function(*leaves)
        return torch.autograd.grad(outputs if isinstance(outputs, tuple) else (outputs,), wanted, grads)

    return forward, backward


def sides(case: Case) -> dict[str, Callable[..., Any]]:
    """Functions to measure, by name."""
    found: dict[str, Callable[..., Any]] = {"kernel": case.kernel, "eager": case.eager, **case.others}
    if case.compiled:
        torch._dynamo.reset()
        found["compile"] = torch.compile(case.eager, dynamic=False)
    if case.liger is not None:
        try:
            found["liger"] = case.liger()
        except ImportError as error:
            sys.stderr.write(f"Liger-Kernel is not measured: {error}\n")
    return found


def row(case: Case, what: str, side: str, taken: Time, count: int, rates: Rates, work: int = 0) -> Row:
    """A row of the results; times in milliseconds."""
    floor = max(count / rates.copy, work / rates.matrix)
    return {
        "stem": case.stem, "shape": case.shape, "what": what, "side": side, "bytes": count,
        "median_ms": round(taken.median, 4), "low_ms": round(taken.low, 4), "high_ms": round(taken.high, 4),
        "roofline": round(floor / (taken.median * 1e-3), 3),
    }  # fmt: skip


def measure(case: Case, rates: Rates, once: bool) -> list[Row]:
    """All sides of a case, forward and with its backward."""
    rows = []
    for side, function in sides(case).items():
        leaves = case.inputs()
        try:
            forward, backward = both_ways(function, leaves)
            if once:
                backward()
                continue
            first = device_time(forward)
            rows.append(row(case, "forward", side, first, case.forward_bytes, rates, case.forward_work))
            total, work = case.forward_bytes + case.backward_bytes, case.forward_work + case.backward_work
            rows.append(row(case, "forward+backward", side, device_time(backward), total, rates, work))
        except Exception as error:  # one side that fails must not take the others' results along
            sys.stderr.write(f"{case.name}, {side}: {type(error).__name__}: {str(error)[:300]}\n")
    return rows


def optimizer(rates: Rates, once: bool) -> list[Row]:
    """Clip and AdamW over PI0.5's parameters: states of 16 and of 32 bits, each apart and one handed to the other."""
    adamw, clip_norm = stem("adamw"), stem("clip_norm")
    sizes = pi05_sizes()
    count = sum(sizes)
    shape = f"{count:,} bf16 elements in {len(sizes)} tensors"
    hyper = {"lr": 1e-5, "beta1": 0.9, "beta2": 0.95, "weight_decay": 1e-10, "eps": 1e-8}

    def new(dtype: torch.dtype = BF16, scale: float = 1e-3) -> list[torch.Tensor]:
        flat = torch.randn(math.ceil(count / 2), device="cuda").mul_(scale).to(dtype)
        # Each tensor is allocated by itself, as parameters are.
        return [flat[:size].clone() if size <= len(flat) else torch.zeros(size, device="cuda") for size in sizes]

    params, grads = new(), new()
    for param, grad in zip(params, grads, strict=True):
        param.requires_grad_().grad = grad
    rows: list[Row] = []

    def add(name: str, side: str, bytes_each: int, function: Callable[[], Any]) -> None:
        if once:
            function()
            return
        case = Case(name, shape, list, function, function, bytes_each * count)
        taken = row(case, "step", side, device_time(function, repeats=10), bytes_each * count, rates)
        rows.append({**taken, "host_ms": round(host_time(function), 2)})

    def clip_and(step: Callable[..., None]) -> None:
        step(factor=clip_norm.clip_norm(grads, 1.0)[1])

    add("clip_norm", "kernel", 2, lambda: clip_norm.clip_norm(grads, 1.0))
    add("clip_norm", "eager", 2, lambda: torch.nn.utils.get_total_norm(grads))
    for of_state, each in ((BF16, 14), (torch.float32, 22)):
        note = "" if of_state == BF16 else ", float32 state"
        moments = [[torch.zeros(size, device="cuda", dtype=of_state) for size in sizes] for _ in range(2)]

        step = partial(adamw.adamw, params, grads, *moments, 5, **hyper)
        add(f"adamw{note}", "kernel", each, step)
        add(f"adamw at random{note}", "kernel", each, partial(step, seed=7))
        if of_state == BF16:
            add("clip_norm+adamw", "kernel", each + 2, partial(clip_and, step))
        del moments, step
    torchs = torch.optim.AdamW(params, lr=1e-5, betas=(0.9, 0.95), weight_decay=1e-10, fused=True)
    torchs.step()
    add("adamw", "eager", 14, torchs.step)

    def clip_and_step() -> None:
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        torchs.step()

    add("clip_norm+adamw", "eager", 16, clip_and_step)
    return rows


def versions() -> dict[str, str]:
    """What the rows were measured with."""
    found = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for name in ("triton", "liger_kernel"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def main() -> None:
    """Measure, print a table, append rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="words of which a case's name must have one")
    parser.add_argument("--append", type=Path, help="results (JSON) that the rows are added to")
    parser.add_argument("--commit", default="unknown", help="what was measured")
    parser.add_argument("--once", action="store_true")
    arguments = parser.parse_args()
    rates = Rates(math.inf, math.inf) if arguments.once else Rates(copy_bandwidth(), matrix_rate())
    run = {
        **versions(), "commit": arguments.commit, "date": datetime.date.today().isoformat(),
        "copy_gb_s": None if arguments.once else round(rates.copy / 1e9),
        "matrix_tflop_s": None if arguments.once else round(rates.matrix / 1e12),
    }  # fmt: skip
    rows: list[Row] = []
    for cases in (*CASES, *matrix_cases.CASES):
        for case in cases():
            if not arguments.only or any(word in case.name for word in arguments.only):
                rows += measure(case, rates, arguments.once)
                torch.cuda.empty_cache()
    if not arguments.only or "optimizer" in arguments.only:
        rows += optimizer(rates, arguments.once)
    sys.stdout.write(f"{run}\n")
    for item in rows:
        sys.stdout.write(
            f"{item['stem']:28} {item['what']:17} {item['side']:8} {item['median_ms']:9.3f} ms "
            f"({item['low_ms']:.3f} to {item['high_ms']:.3f})  {item['roofline']:.2f}  {item['shape']}"
            + (f"  (host {item['host_ms']} ms)\n" if "host_ms" in item else "\n")
        )
    if arguments.append is not None:
        known = json.loads(arguments.append.read_text(encoding="utf-8")) if arguments.append.exists() else []
        known += [{**run, **item} for item in rows]
        lines = ",\n".join(json.dumps(item) for item in known)
        arguments.append.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
