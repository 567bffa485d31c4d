# SPDX-License-Identifier: Apache-2.0
"""What are the groups worth on OpenPI's own script, at full size on fake data?

    python benchmarks/openpi.py --repo CHECKOUT [--steps 8] [--json FILE] ROW... [-- overrides of turbo-train...]

Each ROW is one run of `turbo-train model=openpi` in a process of its own: `upstream:MASKS`, `all:MASKS`,
`without.GROUP:MASKS` (all but one) or `with.GROUP:MASKS` (one that is off in the config, in addition), where MASKS is
`all_valid` or `libero`, and GROUP may be several, A+B. What takes long is to start and to compile: the rows do so
beside each other, and each is stopped (SIGSTOP) after its first step, upstream's before it. When all are that far they
go on one after the other, so that each has the machine to itself while it is measured; of more rows than fit
(`--ahead`), the next starts after that.
With `--profile` a step of the row is traced, and the kernels that took longest are listed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import turbo_hydra
from turbo_hydra.measure.comparing import rank_rows

SIZE = (
    "model.positional=[debug_pi05]",
    "model.args.model.paligemma_variant=gemma_2b",
    "model.args.model.action_expert_variant=gemma_300m",
    "model.args.model.action_horizon=10",
    "model.args.batch_size=32",
    "model.args.num_train_steps=1000",
)
# What upstream's script logs when the parameters are on the device, and after its first step.
MADE, STEPPED = "Enabled gradient checkpointing for memory", "step=0 loss="
# Random parameters are made on the device, and fake samples once, see there.
START = (
    "optimization.catalogs=[turbo_hydra.catalogs.models.openpi,benchmarks.openpi_start]",
    "+optimization.groups.start={on_device: true, samples: true}",
    "optimization.force=[start.on_device,start.samples]",
)
# How a row of one group more or less begins.
SWITCHED = {"with": True, "without": False}
# The first steps compile, allocate, and log memory use.
WARMUP = 4


@dataclass
class Row:
    """One run."""

    name: str
    folder: Path
    overrides: list[str]
    process: subprocess.Popen[bytes] | None = None
    rank: int | None = None
    times: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        command = [sys.executable, "-m", "turbo_hydra.cli.train", f"hydra.run.dir={self.folder}", *self.overrides]
        self.folder.mkdir(parents=True)
        with (self.folder / "console.log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self.times["started"] = time.time()

    @property
    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    @property
    def ready(self) -> bool:
        log = self.folder / "turbo" / "ranks" / "0" / "stderr.log"
        sign = MADE if self.name.startswith("upstream") else STEPPED
        return log.exists() and sign in log.read_text(errors="replace")

    def stop(self) -> None:
        self.rank = rank_below(self.process.pid if self.process else 0)
        os.kill(self.rank, signal.SIGSTOP)
        self.times["ready"] = time.time()

    def go_on(self) -> None:
        if self.rank is not None:
            os.kill(self.rank, signal.SIGCONT)
        self.times["went on"] = time.time()


def rank_below(pid: int) -> int:
    """The process of the one rank among the descendants of `pid`."""
    waiting = [pid]
    while waiting:
        pid = waiting.pop()
        if b"turbo_hydra.launch.rank" in Path("/proc", str(pid), "cmdline").read_bytes():
            return pid
        for task in Path("/proc", str(pid), "task").iterdir():
            waiting += [int(child) for child in (task / "children").read_text().split()]
    raise SystemExit("a run has no rank")


def words_of(command: list[str]) -> tuple[list[str], list[str]]:
    """A command's own words, and what stands behind `--` for turbo-train."""
    at = command.index("--") if "--" in command else len(command)
    return command[:at], command[at + 1 :]


def switched(groups: str, on: bool) -> list[str]:
    """Settings that switch GROUP, or GROUP+GROUP."""
    return [f"optimization.groups.openpi.{group}={str(on).lower()}" for group in groups.split("+")]


def fake_data(masks: str) -> list[str]:
    """Settings of OpenPI's fake data with these masks."""
    return [
        "optimization.groups.openpi.compat_fake_data=true",
        f"optimization.options.openpi.compat_fake_data.masks={masks}",
    ]


def settings_of(repo: Path, checkpoints: Path, *chosen: str) -> list[str]:
    """Settings of OpenPI's script at full size on one card, and what a row has besides."""
    return [
        "model=openpi",
        f"model.repo={repo.resolve()}",
        *SIZE,
        *START,
        "measure.progress=off",
        f"model.args.checkpoint_base_dir={checkpoints.resolve()}",
        "runtime=cuda_1gpu",
        "+runtime.environment.set.JAX_PLATFORMS=cpu",
        *chosen,
    ]


def overrides_of(spec: str) -> list[str]:
    """Settings of a row; NAME:MASKS@BUDGET sets the memory budget of the joint forward."""
    name, _, masks = spec.partition(":")
    masks, _, budget = masks.partition("@")
    chosen = fake_data(masks or "all_valid")
    if budget:
        chosen.append(f"optimization.options.openpi.pi0_compile.memory_budget={budget}")
    if name == "upstream":
        return [*chosen, "optimization.enabled=false"]
    how, _, groups = name.partition(".")
    if how in SWITCHED:
        chosen += switched(groups, SWITCHED[how])
    elif name != "all":
        raise SystemExit(f"{spec}: a row is upstream, all, with.GROUP or without.GROUP, then :MASKS")
    return chosen


def run(rows: list[Row], ahead: int, deadline: float) -> None:
    """Run all rows, each alone on the device from its first step on."""
    waiting, starting, queue = list[Row](), list[Row](), list(rows)
    running: Row | None = None
    while running or waiting or starting or queue:
        if time.time() > deadline:
            for row in [*waiting, *starting, *([running] if running else [])]:
                row.go_on()
                if row.process:
                    os.killpg(row.process.pid, signal.SIGTERM)
                    row.times["ended"] = time.time()
            print("out of time", flush=True)
            time.sleep(3)
            return
        if running and running.ended:
            running.times["ended"] = time.time()
            print(f"{running.name}: {json.dumps(summary(running))}", flush=True)
            running = None
        for row in [row for row in starting if row.ready or row.ended]:
            starting.remove(row)
            waiting.append(row)
            if not row.ended:
                row.stop()
        if running is None and waiting and not starting:
            # In the order given: upstream's row, which has yet to take its memory, stands last.
            waiting.sort(key=rows.index)
            running = waiting.pop(0)
            running.go_on()
        while running is None and queue and len(starting) + len(waiting) < ahead:
            starting.append(queue.pop(0))
            starting[-1].start()
        time.sleep(0.2)


def summary(row: Row) -> dict[str, Any]:
    """What a run's files say."""
    start = row.times["started"]
    found: dict[str, Any] = {
        "status": row.process.returncode if row.process else None,
        "overrides": row.overrides,
        "seconds": {name: round(value - start, 1) for name, value in row.times.items()},
    }
    try:
        steps = rank_rows(row.folder)
        report = json.loads((row.folder / "turbo" / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {**found, "error": str(error), "log": said(row)}
    steady = [step for step in steps[WARMUP:] if step.ms is not None and not step.compiled and not step.profiled]
    times = sorted(step.ms for step in steady if step.ms is not None)
    if found["status"]:
        found["log"] = said(row)
    if times:
        found |= {
            "steps": len(times),
            "median_ms": round(statistics.median(times), 1),
            "samples_per_s": round(32e3 / statistics.median(times), 2),
            "min_ms": round(times[0], 1),
            "max_ms": round(times[-1], 1),
            "median_data_ms": round(statistics.median([step.data_ms or 0.0 for step in steady]), 1),
            "median_device_ms": round(statistics.median([step.device_ms or 0.0 for step in steady]), 1),
        }
    found |= {
        "ms": [None if step.ms is None else round(step.ms, 1) for step in steps],
        "losses": [step.loss for step in steps],
        "grad_norms": [step.grad_norm for step in steps],
        "peak_allocated_gib": gib(max((step.peak_allocated_bytes or 0 for step in steps), default=0)),
        "peak_reserved_gib": gib(max((step.peak_reserved_bytes or 0 for step in steps), default=0)),
        "summary": report["summary"],
        "hits": {entry["group"]: [hits_of(member) for member in entry["members"]] for entry in report["execution"]},
    }
    trace = row.folder / "turbo" / "ranks" / "0" / "trace.json"
    if trace.exists():
        found["kernels"] = kernels(trace)
    return found


def said(row: Row) -> str:
    """The end of what a run said, for the error among it."""
    return (row.folder / "console.log").read_text(errors="replace")[-8000:]


def hits_of(member: dict[str, Any]) -> dict[str, Any]:
    """Target and counts of a member."""
    return {"target": member["target"], **(member.get("hits") or {})}


def gib(size: int) -> float:
    return round(size / 2**30, 2)


def kernels(trace: Path, count: int = 40) -> dict[str, Any]:
    """The kernels that took longest in a trace, and how long the device had none, in milliseconds a step."""
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    ran = sorted((e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")), key=lambda e: e["ts"])
    total: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    busy_until, idle, gaps = ran[0]["ts"] if ran else 0.0, 0.0, list[tuple[float, str]]()
    for event in ran:
        name = event["name"][:150]
        total[name] += event["dur"]
        calls[name] += 1
        if event["ts"] > busy_until:
            idle += event["ts"] - busy_until
            gaps.append((round((event["ts"] - busy_until) / 1000, 2), name[:60]))
        busy_until = max(busy_until, event["ts"] + event["dur"])
    return {
        "kernels": len(ran),
        "busy_ms": round(sum(total.values()) / 1000, 1),
        "idle_ms": round(idle / 1000, 1),
        "longest_gaps_ms": sorted(gaps, reverse=True)[:12],
        "top": [[name, calls[name], round(took / 1000, 2)] for name, took in total.most_common(count)],
    }


def environment() -> dict[str, Any]:
    """What the numbers depend on."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    names = ("torch", "triton", "transformers", "jax", "numpy")
    return {
        "device": device,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in names if has(name)},
        "turbo_hydra": turbo_hydra.__version__,
    }


def has(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def main() -> int:
    words, more = words_of(sys.argv[1:])
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", nargs="+")
    parser.add_argument("--repo", type=Path, required=True, help="a checkout of OpenPI")
    parser.add_argument("--steps", type=int, default=8, help="steady steps of a row")
    parser.add_argument("--profile", default="", help="the row, and that row alone, of which one more step is traced")
    parser.add_argument("--ahead", type=int, default=3, help="how many rows may be on the device at a time")
    parser.add_argument("--seconds", type=float, default=500, help="after which whatever runs is ended")
    parser.add_argument("--folder", type=Path, default=Path("outputs", "openpi"))
    parser.add_argument("--commit", default="", help="of turbo_hydra and of OpenPI, for the record")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args(words)
    rows = []
    for index, spec in enumerate(args.rows):
        traced = int(spec == args.profile)
        settings = settings_of(
            args.repo,
            args.folder / "checkpoints" / str(index),
            *overrides_of(spec),
            f"measure.stop_after={WARMUP + args.steps + traced}",
            f"measure.profile={traced}",
            *more,
        )
        rows.append(Row(spec, args.folder / f"{index}", settings))
    began = time.time()
    run(rows, args.ahead, began + args.seconds)
    result = {
        "environment": environment(),
        "time": time.strftime("%Y-%m-%d %H:%M"),
        "commit": args.commit,
        "rows": {row.name: summary(row) for row in rows if row.ended},
    }
    text = json.dumps(result, indent=1)
    if args.json:
        args.json.write_text(text + "\n", encoding="utf-8")
    for name, found in result["rows"].items():
        print(f"{name:28} {found.get('median_ms')} ms  peak {found.get('peak_allocated_gib')} GiB  {found['seconds']}")
        if "kernels" in found:
            print(json.dumps(found["kernels"], indent=0))
    return int(any(found["status"] != 0 for found in result["rows"].values()))


if __name__ == "__main__":
    raise SystemExit(main())
