# SPDX-License-Identifier: Apache-2.0
"""A process of `benchmarks.bevformer`: it applies its groups, makes the model, and takes turns when it is told to."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import turbo_hydra
from benchmarks.bevformer_parts import Parts, leave_out_dropout
from turbo_hydra.config import OptimizationConfigCatalog, load_catalogs

SYNCS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "hipStreamSynchronize")
# Operations that wait for a device wherever they run: one number read, indices whose count is not known before.
READS = ("aten::_local_scalar_dense", "aten::nonzero")


def config_of(row: str, base: str, folder: Path) -> tuple[Path, list[str]]:
    """A config for the row, and the groups that a row of their own is worth."""
    import yaml

    configs = OptimizationConfigCatalog()
    known = configs.load(Path(base) if base.endswith(".yaml") else configs.model_path(base))
    declared = load_catalogs(known).groups
    speed = [id for id in known.groups if declared[id].purpose == "optimization"]
    on = {id for id in speed if known.groups[id]}
    sign, name = (row[0], row[1:]) if row[0] in "+-" else ("", row)
    if name not in ("none", "again", "all", "operator") and name not in speed:
        raise SystemExit(f"no group '{name}'; there are {', '.join(speed)}")
    without = {id for id in on if id != name and name not in declared[id].depends_on}
    alone = {name, *declared[name].depends_on} if name in declared else set()
    chosen = {"all": on, "-": without, "+": on | alone}.get(sign or name, alone)
    groups: dict[str, dict[str, bool]] = {}
    for id in speed:
        catalog, _, short = id.partition(".")
        groups.setdefault(catalog, {})[short] = id in chosen
    file = folder / "optimization.yaml"
    of = {"schema_version": "turbo_hydra/optimization-config/v1", "kind": "OptimizationConfig", "extends": [base]}
    file.write_text(yaml.safe_dump({**of, "groups": groups}), encoding="utf-8")
    return file, [id for id in speed if id in on]


def turn(parts: Parts, seed: int) -> dict[str, Any]:
    """Times of all parts."""
    import torch

    ms = {}
    for name in parts.names:
        if parts.device == "cpu":
            start = time.thread_time_ns()
            parts.run(name, seed)
            ms[name] = (time.thread_time_ns() - start) / 1e6
            continue
        parts.run(name, seed)  # takes the memory that the last turn gave back
        # From an idle device to an idle device: what the host takes to launch is in it.
        torch.cuda.synchronize()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        parts.run(name, seed)
        events[1].record()
        torch.cuda.synchronize()
        ms[name] = events[0].elapsed_time(events[1])
    return {"ms": ms}


def keep(parts: Parts, seed: int, file: str) -> dict[str, Any]:
    """Write what each part gives, and all gradients, for other rows to compare theirs with."""
    import torch

    torch.save(_found(parts, seed), file)
    return {}


def compare(parts: Parts, seed: int, file: str) -> dict[str, Any]:
    """The largest difference of a part's results, and of its gradients, each of the largest number of its tensor.

    The whole detector's losses are a kind of their own: a matching within rounding of another may go either way there.
    """
    import torch

    expected = torch.load(file, weights_only=True)
    largest: dict[str, dict[str, Any]] = {}
    for (kind, name), tensor in _found(parts, seed).items():
        other = expected.pop((kind, name))
        distance = float((tensor - other).abs().max() / other.abs().max().clamp_min(1e-30))
        known = largest.setdefault(kind, {"value": 0.0, "at": ""})
        if not distance <= known["value"]:  # not a number is more than any
            known.update(value=distance, at=name)
    if expected:
        raise RuntimeError(f"the other row has {', '.join(name for _, name in expected)} too")
    return largest


def _found(parts: Parts, seed: int) -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {}
    for part in parts.names:
        results = parts.run(part, seed)
        for name, value in results.items():
            found["whole" if part == "whole" else "results", f"{part}.{name}"] = value
        if part == "whole":
            continue
        leaves = {f"feature {level}": item for level, item in enumerate(parts.features)}
        leaves |= {"bev": parts.bev, "scores": parts.scores, "preds": parts.preds}
        for name, leaf in (*leaves.items(), *parts.head.named_parameters()):
            if leaf.grad is not None:
                found["gradients", f"{part}.{name}"] = leaf.grad
    return {name: value.detach().to("cpu", copy=True) for name, value in found.items()}


def memory(parts: Parts, seed: int) -> dict[str, float]:
    """MiB that the tensors of each part take at most, beyond what was there before."""
    import torch

    peaks = {}
    for name in parts.names:
        parts.clear()
        if parts.device != "cpu":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            found = parts.run(name, seed)
            torch.cuda.synchronize()
            most = torch.cuda.max_memory_allocated() - before
        else:
            activities = [torch.profiler.ProfilerActivity.CPU]
            with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profile:
                found = parts.run(name, seed)
            raw = profile.profiler.kineto_results.events()
            now = most = 0
            for event in sorted((event for event in raw if event.name() == "[memory]"), key=lambda e: e.start_ns()):
                now += event.nbytes()
                most = max(most, now)
        del found
        peaks[name] = round(most / 2**20, 3)
    return peaks


def trace(parts: Parts, seed: int) -> dict[str, Any]:
    """How often the host waits for the device in each part of the head, and how many kernels it launches.

    `reads` are the operations that would wait for a device; they are there in the trace of a CPU too.
    """
    import torch

    on_device = parts.device != "cpu"
    activities = [torch.profiler.ProfilerActivity.CPU]
    if on_device:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    counts: dict[str, Any] = {}
    for name in [name for name in parts.names if name != "whole"]:
        parts.run(name, seed)
        if on_device:
            torch.cuda.synchronize()
        with torch.profiler.profile(activities=activities, acc_events=True) as profile:
            with torch.profiler.record_function("benchmark.part"):
                parts.run(name, seed)
            if on_device:
                torch.cuda.synchronize()
        events = profile.events()
        part = next(event.time_range for event in events if event.name == "benchmark.part")
        # What the profiler waits for itself, and this function, lies after the part.
        names = [event.name for event in events if part.start <= event.time_range.start < part.end]
        counts[name] = {
            "syncs": sum(name in SYNCS for name in names),
            "launches": sum("LaunchKernel" in name for name in names),
            "reads": sum(name in READS for name in names),
        }
    return counts


def profile(parts: Parts, seed: int, count: int = 25) -> dict[str, Any]:
    """What the device was busy with in the whole step, or else in the encoder: all of it, and what took longest."""
    import torch

    name = "whole" if "whole" in parts.names else "encoder"
    if parts.device == "cpu":
        return {}
    parts.run(name, seed)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        parts.run(name, seed)
        torch.cuda.synchronize()
    kernels = [event for event in found.key_averages() if event.self_device_time_total > 0]
    kernels.sort(key=lambda event: -event.self_device_time_total)
    return {
        "part": name,
        "busy_ms": round(sum(event.self_device_time_total for event in kernels) / 1e3, 1),
        "longest": [
            [event.key[:150], event.count, round(event.self_device_time_total / 1e3, 2)] for event in kernels[:count]
        ],
    }


def operators(parts: Parts, built: bool) -> dict[str, Any]:
    """The attention's kernel beside mmcv's operator where it is built, at the shapes of each attention."""
    import torch
    from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttnFunction

    from turbo_hydra.catalogs.mmcv.deform_conv import extension_is_there
    from turbo_hydra.kernels import msda

    head = parts.head
    maps = [tuple(item.shape[-2:]) for item in parts.features]
    grid, width = [(head.bev_h, head.bev_w)], head.transformer.embed_dims // 8
    cells, queries = head.bev_h * head.bev_w, head.query_embedding.weight.shape[0]
    cases = {"sca": (6, maps, cells // 4, 8), "tsa": (2, grid, cells, 4), "decoder": (1, grid, queries, 4)}
    found: dict[str, Any] = {}
    for name, (batch, shapes, count, points) in cases.items():
        sizes = torch.tensor(shapes, device=parts.device)
        starts = sizes.prod(1).cumsum(0) - sizes.prod(1)
        value = torch.randn(batch, int(sizes.prod(1).sum()), 8, width, device=parts.device, requires_grad=True)
        locations = torch.rand(batch, count, 8, len(shapes), points, 2, device=parts.device, requires_grad=True)
        weights = torch.rand(batch, count, 8, len(shapes), points, device=parts.device, requires_grad=True)
        tensors = (value, sizes, starts, locations, weights)
        sides: dict[str, Callable[[], Any]] = {
            "kernel": partial(msda.msda, *tensors),
            "pytorch": partial(msda.msda_plain, *tensors),
        }
        if built or extension_is_there():
            sides["mmcv"] = partial(MultiScaleDeformableAttnFunction.apply, *tensors, 64)
        found[name] = {side: _device_ms(run, (value, locations, weights)) for side, run in sides.items()}
    return found


def _device_ms(run: Callable[[], Any], leaves: tuple[Any, ...]) -> float:
    """Median milliseconds of a forward and backward."""
    import torch

    times: list[float] = []
    for number in range(13):
        for leaf in leaves:
            leaf.grad = None
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        torch.cuda.synchronize()
        events[0].record()
        run().sum().backward()
        events[1].record()
        torch.cuda.synchronize()
        if number >= 3:
            times.append(events[0].elapsed_time(events[1]))
    return sorted(times)[len(times) // 2]


def take_pytorch_path() -> None:
    """Have upstream's attentions call mmcv's PyTorch path on a device too, as where no extension is built."""

    class PyTorchPath:
        @staticmethod
        def apply(value: Any, shapes: Any, starts: Any, locations: Any, weights: Any, step: int) -> Any:
            from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch as function

            return function(value, shapes, locations, weights)

    modules = "projects.mmdet3d_plugin.bevformer.modules"
    for name in ("decoder", "spatial_cross_attention", "temporal_self_attention"):
        vars(importlib.import_module(f"{modules}.{name}"))["MultiScaleDeformableAttnFunction_fp32"] = PyTorchPath


def graphs() -> dict[str, Any]:
    """Graphs that were compiled, and why they ended where they did not end by themselves."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    counters = dynamo.counters if dynamo else {}
    return {
        "compiled": counters.get("stats", {}).get("unique_graphs", 0),
        "breaks": {reason[:200]: count for reason, count in counters.get("graph_break", {}).items()},
    }


def take_operator(file: str) -> None:
    """Put the functions of a library that was built of mmcv's sources where all modules look for the extension's."""
    import mmcv._ext

    name = Path(file).name.partition(".")[0]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{file} is no extension module")
    library = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)
    for function in ("ms_deform_attn_forward", "ms_deform_attn_backward"):
        setattr(mmcv._ext, function, getattr(library, function))


def counts(report: Any) -> dict[str, Any]:
    """What the report says of each group of the row."""
    return {
        entry["group"]: {
            "status": entry["status"],
            "hits": [(member["hits"] or {}).get("replacement") for member in entry["members"]],
            "reasons": [(member["hits"] or {}).get("reasons") for member in entry["members"]],
        }
        for entry in report.to_dict()["execution"]
        if entry["purpose"] == "optimization" and entry["status"] != "skipped"
    }


def begin(settings: dict[str, Any]) -> tuple[Any, Parts, dict[str, Any]]:
    """The report, the parts, and what the parent is told."""
    row, device = settings["row"], settings["device"]
    sys.path.insert(0, settings["repo"])
    with tempfile.TemporaryDirectory() as folder:
        file, groups = config_of(row, settings["config"], Path(folder))
        report = turbo_hydra.apply(optimization_config_path=file)
    import numpy
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(settings["seed"])
    module, _, name = settings["builder"].partition(":")
    made = getattr(importlib.import_module(module), name)(
        settings["repo"], settings["size"], device, settings["whole"]
    )  # fmt: skip
    if not settings["dropout"]:
        leave_out_dropout(made["head"])
    applied = {entry["group"] for entry in report.to_dict()["execution"] if entry["status"] == "applied"}
    if settings["operator"]:
        take_operator(settings["operator"])
    kernel = "bevformer.msda" in applied
    if device != "cpu" and row != "operator" and not kernel and settings["baseline"] == "pytorch":
        take_pytorch_path()
    say = {
        "device": torch.cuda.get_device_name() if device != "cpu" else "cpu",
        "groups": groups,
        "versions": {"torch": torch.__version__, "numpy": numpy.__version__},
    }
    return report, Parts(made, device), say


def main() -> None:
    """Answer what is asked, a line of JSON each; what goes wrong is an answer too."""
    settings = json.loads(sys.argv[1])
    seed = settings["seed"]
    logging.disable(logging.INFO)  # mmcv tells of each parameter how it was initialized
    try:
        report, parts, answer = begin(settings)
        print(json.dumps(answer), flush=True)
        for line in sys.stdin:
            what, _, file = line.strip().partition(" ")
            if what == "turn":
                answer = turn(parts, seed)
            elif what == "keep":
                answer = keep(parts, seed, file)
            elif what == "compare":
                answer = compare(parts, seed, file)
            elif what == "memory":
                answer = memory(parts, seed)
            elif what == "trace":
                answer = trace(parts, seed)
            elif what == "profile":
                answer = profile(parts, seed)
            elif what == "operators":
                answer = operators(parts, settings["operator"] is not None)
            else:
                answer = {"applied": counts(report), "graphs": graphs()}
            parts.give_back()
            print(json.dumps(answer), flush=True)
            if what == "end":
                return
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        print(json.dumps({"error": f"{type(error).__name__}: {error}"[:1000]}), flush=True)


if __name__ == "__main__":
    main()
