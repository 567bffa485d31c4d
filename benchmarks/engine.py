# SPDX-License-Identifier: Apache-2.0
"""What the engine costs: applying, scanning for holders, dispatching a call, importing the package.

    python benchmarks/engine.py                      every table, as Markdown
    python benchmarks/engine.py --quick              the small sizes only

All times are CPU times, which other processes disturb less. Each size is measured in processes of its own, several
times, and given as median (minimum to maximum). Costs of a call are ratios to a plain Python call that is timed in turn
with it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path
from typing import Any

SIZES = [(10, 100), (100, 100), (100, 2000), (1000, 100), (1000, 2000), (1000, 5000), (10_000, 2000), (10_000, 5000)]
REPEATS = 5
_FUNCTION = "def f{0}(x, y={0}):\n    total = x + y\n    return total * {0}\n\n\n"


def write_modules(folder: Path, targets: int, modules: int) -> None:
    """Write `modules` modules with 20 functions or more each, and one with the replacement."""
    functions = max(20, -(-targets // modules))
    text = "".join(_FUNCTION.format(index) for index in range(functions))
    for module in range(modules):
        (folder / f"bench_{module}.py").write_text(text, encoding="utf-8")
    (folder / "bench_replacement.py").write_text("def f(x, y=0):\n    return x\n", encoding="utf-8")


def target_paths(targets: int, modules: int) -> list[str]:
    """Paths of the targets, spread over the modules."""
    return [f"bench_{index % modules}.f{index // modules}" for index in range(targets)]


def measure_apply(targets: int, modules: int, name: str) -> dict[str, float]:
    """CPU seconds of one apply and of its holder scan, everything in folder `name` having been imported before."""
    from turbo_hydra.engine import holders
    from turbo_hydra.engine.apply import Engine
    from turbo_hydra.engine.canonical import ast_hash, source_hash
    from turbo_hydra.engine.declarations import replace
    from turbo_hydra.engine.definitions import SourceIndex
    from turbo_hydra.engine.evidence import EvidenceRecord
    from turbo_hydra.engine.plan import prepare
    from turbo_hydra.engine.registry import Registry
    from turbo_hydra.engine.selection import Selection

    folder = Path(name)
    sys.path.insert(0, name)
    paths = target_paths(targets, modules)
    for number in range(modules):
        __import__(f"bench_{number}")
    evidence = {}
    indexes: dict[str, SourceIndex] = {}
    for path in paths:
        module, _, function = path.partition(".")
        if module not in indexes:
            indexes[module] = SourceIndex((folder / f"{module}.py").read_text(encoding="utf-8"))
        found = indexes[module].named(function)[0]
        evidence[path] = (EvidenceRecord(source=source_hash(found.text), ast=ast_hash(found.node)),)
    registry = Registry()
    for index, path in enumerate(paths):
        registry.group(f"bench.g{index}", replace(path, "bench_replacement.f"))
    selection = Selection(groups=dict.fromkeys(registry.groups, True), evidence=evidence)
    start = time.process_time()
    plan = prepare(registry, selection)
    prepared = time.process_time()
    report = Engine(plan, run_id="benchmark", describe={}).apply()
    end = time.process_time()
    if report.summary["applied"] != targets:
        raise SystemExit(f"only {report.summary} of {targets} groups were applied")
    originals = {id(item): item for item in [object() for _ in range(targets)]}
    scan = time.process_time()
    holders.find(originals)
    scanned = time.process_time()
    return {"prepare": prepared - start, "apply": end - prepared, "total": end - start, "scan": scanned - scan}


def method(self: object, x: int, y: int = 1, *, flag: bool = False) -> int:
    """A call that everything is compared with: with a keyword parameter."""
    return x


def by_hand_method(self: object, x: int, y: int = 1, *, flag: bool = False) -> int:
    """What a wrapper by hand costs."""
    return method(self, x, y, flag=flag)


def yes_method(self: object, x: int, y: int = 1, *, flag: bool = False) -> bool:
    """A condition."""
    return True


def function(self: object, x: int, y: int = 1) -> int:
    """A call that everything is compared with: without keyword parameters."""
    return x


def by_hand_function(self: object, x: int, y: int = 1) -> int:
    """What a wrapper by hand costs."""
    return function(self, x, y)


def yes_function(self: object, x: int, y: int = 1) -> bool:
    """A condition."""
    return True


SIGNATURES = {
    "f(self, x, y=1)": (function, by_hand_function, yes_function),
    "f(self, x, y=1, *, flag=False)": (method, by_hand_method, yes_method),
}


def measure_dispatch(name: str) -> dict[str, float]:
    """CPU nanoseconds of a call of one signature, each variant timed in turn with the others."""
    from turbo_hydra.engine.dispatch import dispatcher
    from turbo_hydra.engine.hits import Hits

    plain, by_hand, condition = SIGNATURES[name]
    variants: dict[str, Any] = {
        "plain call": plain,
        "a Python wrapper that only calls": by_hand,
        "counting": dispatcher(plain, plain, hits=Hits()),
        "condition and counting": dispatcher(plain, plain, hits=Hits(), condition=condition),
        "condition": dispatcher(plain, plain, hits=None, condition=condition),
        "neither": dispatcher(plain, plain, hits=None),
    }
    if importlib.util.find_spec("wrapt") is not None:
        import wrapt

        variants["wrapt.FunctionWrapper"] = wrapt.FunctionWrapper(plain, lambda f, i, a, k: f(*a, **k))
    best = dict.fromkeys(variants, float("inf"))
    for _ in range(30):
        for key, variant in variants.items():
            timer = timeit.Timer("f(None, 1, 2)", globals={"f": variant}, timer=time.process_time)
            best[key] = min(best[key], timer.timeit(20_000) / 20_000 * 1e9)
    return best


def measure_import() -> dict[str, float]:
    """CPU milliseconds of an interpreter's start, and of one that imports the package."""
    result = {}
    for name, code in (("python alone", "pass"), ("import turbo_hydra", "import turbo_hydra")):
        times = []
        for _ in range(9):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append((after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1e3)
        result[name] = statistics.median(times)
    return result


def run_apply(targets: int, modules: int) -> dict[str, float]:
    """`measure_apply` in a process of its own, on files that were there before it began."""
    with tempfile.TemporaryDirectory() as name:
        write_modules(Path(name), targets, modules)
        for path in Path(name).iterdir():
            # Files as old as a model's usually are: what was written since a process began is compiled to compare.
            os.utime(path, (0, 0))
        return _child("apply", str(targets), str(modules), name)


def _child(*arguments: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _spread(values: list[float], digits: int = 3) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", nargs="*")
    arguments = parser.parse_args()
    if arguments.child is not None:
        kind, *rest = arguments.child
        measured = measure_apply(int(rest[0]), int(rest[1]), rest[2]) if kind == "apply" else measure_dispatch(*rest)
        sys.stdout.write(json.dumps(measured) + "\n")
        return
    out = sys.stdout.write
    out("| targets | modules | prepare s | apply s | together s | of which the scan s |\n|---|---|---|---|---|---|\n")
    for targets, modules in SIZES[:3] if arguments.quick else SIZES:
        runs = [run_apply(targets, modules) for _ in range(2 if arguments.quick else REPEATS)]
        row = [_spread([run[name] for run in runs]) for name in ("prepare", "apply", "total", "scan")]
        out(f"| {targets} | {modules} | {' | '.join(row)} |\n")
    for signature in SIGNATURES:
        calls = [_child("dispatch", signature) for _ in range(2 if arguments.quick else REPEATS)]
        out(f"\n| a call of `{signature}` | ns | ratio to a plain call |\n|---|---|---|\n")
        for name in calls[0]:
            ratios = [run[name] / run["plain call"] for run in calls]
            out(f"| {name} | {statistics.median(run[name] for run in calls):.0f} | {_spread(ratios, 2)} |\n")
    out("\n| start | ms |\n|---|---|\n")
    for name, value in measure_import().items():
        out(f"| {name} | {value:.0f} |\n")


if __name__ == "__main__":
    main()
