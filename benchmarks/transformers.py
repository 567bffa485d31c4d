# SPDX-License-Identifier: Apache-2.0
"""What a training step of Gemma takes: plain, compiled, with Liger-Kernel, with the groups of the catalog.

    python benchmarks/transformers.py [--size full] [--rounds 1] [--steps 12] [--profile GLOB] [--json FILE]
        [--seconds 200] [--budget SECONDS] [ROW...]

A ROW is `plain`, `liger` or `ours`, with `+compile` where the model is compiled; `ours=GLOB,GLOB` takes only those
groups of the config. Each is a process of its own that makes the same model from the same seed, sees the same tokens
and takes the same optimizer; the losses are in the output. The groups come in by `turbo_hydra.apply()`, as in any
script. The full model is Gemma 2B in bfloat16, batch 8, length 1024; `small` and `tiny` ones are for a CPU, whose clock
is CPU time, since others may use it too.

The file of results is written after each row. A row that fails, or is not done after `--seconds`, says so and costs the
others nothing; with `--budget` all rows together end within that time, and the last ones say that they were not run.

This file is named as the library is: a row's process is started with `-P`, so that it does not import itself.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib
import importlib.metadata
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from turbo_hydra.launch.files import write_json

# What takes long comes last.
ROWS = ("plain", "liger", "ours", "plain+compile", "ours=*_loss+compile", "liger+compile", "ours+compile")
# Gemma 2B's own sizes; a model whose vocabulary is what is large about it; one that a CPU steps in no time.
SIZES: dict[str, dict[str, Any]] = {
    "full": {
        "config": {
            "vocab_size": 256000,
            "hidden_size": 2048,
            "intermediate_size": 16384,
            "num_hidden_layers": 18,
            "num_attention_heads": 8,
            "num_key_value_heads": 1,
            "head_dim": 256,
        },
        "batch": 8,
        "length": 1024,
    },
    "small": {
        "config": {
            "vocab_size": 64000,
            "hidden_size": 128,
            "intermediate_size": 512,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 32,
        },
        "batch": 4,
        "length": 256,
    },
    "tiny": {
        "config": {
            "vocab_size": 512,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 16,
        },
        "batch": 2,
        "length": 32,
    },
}
# Steps that compile and allocate.
WARMUP = 4


def measure(row: str, size: str, steps: int, profile: bool, config: Path, answer: Path) -> None:
    """One row, in this process; `answer` is written before the trace too, should that fail."""
    name, _, compiled = row.partition("+")
    report = None
    if name.startswith("ours"):
        import turbo_hydra

        report = turbo_hydra.apply(optimization_config_path=config)
    import torch

    if name == "liger":
        importlib.import_module("liger_kernel.transformers").apply_liger_kernel_to_gemma()
    sizes = SIZES[size]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    library: Any = importlib.import_module("transformers")
    with device:
        model = library.GemmaForCausalLM(library.GemmaConfig(**sizes["config"])).train()
    torch.set_default_dtype(torch.float32)
    if compiled:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    draw = torch.Generator().manual_seed(1)
    shape = (WARMUP + steps + 1, sizes["batch"], sizes["length"])
    tokens = torch.randint(0, sizes["config"]["vocab_size"], shape, generator=draw).to(device)

    def step(batch: Any) -> Any:
        loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    losses, wall, cpu = [], [], []
    began = time.perf_counter()
    for number in range(WARMUP + steps):
        if number == WARMUP and device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        _settle(device)
        start, start_cpu = time.perf_counter(), time.process_time()
        losses.append(step(tokens[number]))
        _settle(device)
        wall.append((time.perf_counter() - start) * 1e3)
        cpu.append((time.process_time() - start_cpu) * 1e3)
    found: dict[str, Any] = {
        "ms": [round(item, 3) for item in wall[WARMUP:]],
        "cpu_ms": [round(item, 3) for item in cpu[WARMUP:]],
        "warmup_s": round(sum(wall[:WARMUP]) / 1e3, 1),
        "seconds": round(time.perf_counter() - began, 1),
        "peak_bytes": _peak(device),
        "losses": [float(item) for item in losses],
        "parameters": sum(item.numel() for item in model.parameters()),
        "clock": "ms" if device.type == "cuda" else "cpu_ms",
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine(),
    }
    if report is not None:
        applied = [entry for entry in report.execution if entry["status"] == "applied"]
        found["groups"] = {entry["group"]: entry["members"][0]["hits"] for entry in applied}
        blocked = [entry for entry in report.execution if entry["status"] in ("blocked", "failed", "rolled_back")]
        found["not_applied"] = {entry["group"]: entry["error"] or entry["reasons"] for entry in blocked}
    write_json(answer, found)
    if profile:
        write_json(answer, {**found, "kernels": _profiled(lambda: step(tokens[-1]), device)})


def _settle(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()


def _peak(device: Any) -> int:
    """Bytes at the peak: of the device's allocations in the steady steps, or of the whole process."""
    import resource

    import torch

    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _profiled(step: Any, device: Any, count: int = 40) -> list[list[Any]]:
    """What took longest in one step: name, calls, milliseconds."""
    import torch

    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as trace:
        step()
        _settle(device)
    on = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    events = sorted(trace.key_averages(), key=lambda event: -getattr(event, on))[:count]
    return [[event.key[:150], event.count, round(getattr(event, on) / 1e3, 3)] for event in events]


def run(row: str, args: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """One row in a process of its own; what it says where it fails, or is not done in time."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        answer, config, log = (Path(folder, name) for name in ("answer.json", "optimization.yaml", "log.txt"))
        config.write_text(_config(row), encoding="utf-8")
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "--row", str(answer), "--config", str(config)]
        command += ["--steps", str(args.steps), "--size", args.size, row]
        if args.profile and fnmatch.fnmatch(row, args.profile):
            command += ["--profile", row]
        with log.open("wb") as output:
            # A session of its own, so that what a compiler has started ends with it.
            child = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, start_new_session=True)
            try:
                status = f"status {child.wait(timeout=seconds)}"
            except subprocess.TimeoutExpired:
                status = f"not done after {seconds:.3g} s"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if answer.exists():
            found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
            return found if status == "status 0" else {**found, "afterwards": status}
        said = log.read_text(encoding="utf-8", errors="replace").strip()
        return {"error": status, "log": said[-4000:]}


def _config(row: str) -> str:
    """The catalog's config, with the groups that a row names."""
    name = row.partition("+")[0]
    only = [f"transformers.{glob}" for glob in name.partition("=")[2].split(",") if glob]
    document: dict[str, Any] = {
        "schema_version": "turbo_hydra/optimization-config/v1",
        "kind": "OptimizationConfig",
        "extends": ["transformers"],
        **({"only": only} if only else {}),
    }
    return json.dumps(document)


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """A row's rounds together: median and the middle 80 % of all steps, and what else it says."""
    from turbo_hydra.measure.statistics import median, quantile

    good = [item for item in rounds if "error" not in item]
    if not good:
        return rounds[0]
    clock = good[-1]["clock"]
    times = [step for item in good for step in item[clock]]
    return {
        **good[-1],
        "median_ms": round(median(times), 2),
        "middle_80_ms": [round(quantile(times, 0.1), 2), round(quantile(times, 0.9), 2)],
        "round_medians_ms": [round(median(item[clock]), 2) for item in good],
        "peak_gib": round(max(item["peak_bytes"] for item in good) / 2**30, 3),
        "failed_rounds": len(rounds) - len(good),
    }


def environment() -> dict[str, Any]:
    """What the numbers depend on."""
    found: dict[str, Any] = {"python": platform.python_version(), "cpus": os.cpu_count()}
    for name in ("torch", "triton", "transformers", "liger-kernel", "turbo_hydra"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def main() -> int:
    """Run the rows, and print a line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", nargs="*", default=[])
    parser.add_argument("--size", choices=list(SIZES), default="full", help="of the model and its batch")
    parser.add_argument("--steps", type=int, default=12, help="steady steps of a row")
    parser.add_argument("--rounds", type=int, default=1, help="all rows, in another order each time")
    parser.add_argument("--profile", default="", metavar="GLOB", help="rows of which one more step is traced")
    parser.add_argument("--seconds", type=float, default=200, help="after which a row is ended")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds for all rows together")
    parser.add_argument("--json", type=Path, default=None, help="written after each row")
    parser.add_argument("--row", type=Path, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--config", type=Path, default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.row is not None:
        (row,) = args.rows
        measure(row, args.size, args.steps, bool(args.profile), args.config, args.row)
        return 0
    rows = args.rows or list(ROWS)
    order, rounds = random.Random(0), defaultdict[str, list[dict[str, Any]]](list)
    end = time.monotonic() + args.budget
    result: dict[str, Any] = {
        "environment": environment(),
        "time": time.strftime("%Y-%m-%d %H:%M"),
        "sizes": SIZES[args.size],
    }
    for number in range(args.rounds):
        for row in rows if number == 0 else order.sample(rows, len(rows)):
            left = min(args.seconds, end - time.monotonic())
            rounds[row].append(run(row, args, left) if left > 0 else {"error": f"not run in {args.budget:.3g} s"})
            print(_line(row, rounds[row][-1:]), flush=True)
            result["rows"] = {name: summary(rounds[name]) for name in rows if rounds[name]}
            if args.json:
                write_json(args.json, result)
    plain = result["rows"].get("plain", {}).get("median_ms")
    for row, found in result["rows"].items():
        ratio = f"  {plain / found['median_ms']:.3f} times plain's speed" if plain and "median_ms" in found else ""
        print(_line(row, rounds[row]) + ratio)
    return int(any("error" in found for found in result["rows"].values()))


def _line(row: str, rounds: list[dict[str, Any]]) -> str:
    found = summary(rounds)
    if "error" in found:
        last = found.get("log", "").splitlines()[-1:]
        return f"{row:22} failed: {': '.join([found['error'], *last])}"
    low, high = found["middle_80_ms"]
    return f"{row:22} {found['median_ms']:9.2f} ms [{low}, {high}]  peak {found['peak_gib']:.2f} GiB"


if __name__ == "__main__":
    raise SystemExit(main())
