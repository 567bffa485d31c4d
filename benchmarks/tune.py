# SPDX-License-Identifier: Apache-2.0
"""Find the launch configurations of this kind of device and write them into `kernels/configurations`.

    python -m benchmarks.tune [--only WORD ...] [--prepare N] [--output DIR]

Each entry of the table is decided by the case that names it in `benchmarks/kernel_cases.py` or `matrix_cases.py`, by
its forward or with its backward. The fastest candidate is written; ranks read it and never search. `--prepare N`
compiles all candidates in N processes first, so that the search itself only measures.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import matrix_cases
from benchmarks.device_time import device_time
from benchmarks.kernel_cases import BF16, CASES, Case, pi05_sizes, stem
from benchmarks.kernels import both_ways
from turbo_hydra.kernels import configurations
from turbo_hydra.kernels.device import device_kind

Launch = dict[str, int]


def grid(**values: tuple[int, ...]) -> list[Launch]:
    """Every combination."""
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


_ELEMENTWISE = [
    {"BLOCK": block, "num_warps": warps}
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 16), (1024, 2))
]
_CHUNKS = [
    {"CHUNK": chunk, "BLOCK": block, "num_warps": warps}
    for chunk in (16384, 65536)
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8))
]
CANDIDATES: dict[tuple[str, str], list[Launch]] = {
    **{("gated", kernel): _ELEMENTWISE for kernel in ("forward", "backward", "forward_exact", "backward_exact")},
    ("gelu_tanh_bias", "forward"): grid(ROWS=(1, 2, 4, 8), BLOCK=(512, 1024), num_warps=(4,)),
    ("gelu_tanh_bias", "backward"): grid(
        ROWS=(4, 8, 16), BLOCK=(256, 512), PROGRAMS=(8, 16), num_warps=(4,), STAGES=(1, 2, 3)
    ),
    ("ada_rms_norm", "forward"): grid(ROWS=(1, 2, 4), num_warps=(2, 4, 8)),
    ("ada_rms_norm", "backward"): grid(ROWS=(1, 2, 4), PROGRAMS=(4, 8), num_warps=(4, 8), STAGES=(1, 2, 3)),
    ("rope", "rotate"): grid(TOKENS=(1, 2, 4), num_warps=(1, 2, 4)),
    ("softmax", "forward"): grid(ROWS=(1, 2, 4), num_warps=(1, 2, 4)),
    ("softmax", "backward"): grid(ROWS=(1, 2, 4), num_warps=(1, 2, 4)),
    ("clip_norm", "squares"): _CHUNKS,
    ("adamw", "step"): _CHUNKS,
    ("msda", "forward"): grid(BLOCK=(4, 8, 16, 32), num_warps=(1, 2, 4)),
    ("msda", "backward"): grid(BLOCK=(2, 4, 8, 16), num_warps=(1, 2, 4)),
    ("linear_cross_entropy", "loss"): grid(BLOCK=(2048, 4096, 8192), num_warps=(8, 16)),
    **{
        ("prefix_attention", kernel): grid(BLOCK_K=(32, 64), num_warps=(8,), num_stages=(1, 2), maxnreg=(128, 255))
        for kernel in ("probabilities", "scores")
    },
    ("prefix_attention", "key_product"): grid(BLOCK_R=(32, 64), num_warps=(4, 8), num_stages=(2, 3)),
    ("prefix_attention", "row_product"): grid(BLOCK_K=(32, 64), num_warps=(4, 8), num_stages=(2, 3)),
}


@contextmanager
def configured(name: str, kernel: str, shape_class: str, config: Launch) -> Iterator[None]:
    """Launch a kernel in a given way while the block runs."""
    original = configurations._launch

    def chosen(asked: str, of: str, other: str, kind: Any) -> Launch:
        return config if (asked, of) == (name, kernel) else original(asked, of, other, kind)

    configurations._launch = chosen  # type: ignore[assignment]
    try:
        yield
    finally:
        configurations._launch = original


def optimizer_cases(tensors: int | None = None) -> list[Case]:
    """The lists of tensors that `clip_norm` and `adamw` are tuned by: a third of PI0.5's parameters, or fewer."""
    sizes = pi05_sizes()[1::3][:tensors]

    def lists(*dtypes: torch.dtype) -> list[Any]:
        return [[torch.randn(size, device="cuda").mul_(1e-3).to(of) for size in sizes] for of in dtypes]

    def step(params: Any, grads: Any, first: Any, second: Any) -> None:
        stem("adamw").adamw(params, grads, first, second, 5, lr=1e-5, beta1=0.9, beta2=0.95, weight_decay=0.0, eps=1e-8)

    def case(name: str, inputs: Callable[[], Any], kernel: Callable[..., Any], tuned: tuple[str, str, str]) -> Case:
        return Case(name, "", inputs, kernel, kernel, 0, tunes=(tuned,))

    wide = torch.float32
    return [
        case("clip_norm", lambda: lists(BF16), lambda given: stem("clip_norm").clip_norm(given, 1.0),
             ("clip_norm", "squares", "default")),
        case("adamw", lambda: lists(BF16, BF16, BF16, BF16), step, ("adamw", "step", "16_bit_state")),
        case("adamw float32 state", lambda: lists(BF16, BF16, wide, wide), step, ("adamw", "step", "default")),
    ]  # fmt: skip


def jobs(words: list[str], tensors: int | None) -> Iterator[tuple[Case, tuple[str, str, str]]]:
    """Each case with each entry that it decides."""
    makers: list[Callable[[], list[Case]]] = [*CASES, *matrix_cases.CASES, partial(optimizer_cases, tensors)]
    for make in makers:
        for case in make():
            if not words or any(word in case.name for word in words):
                for entry in case.tunes:
                    yield case, entry


def time_of(case: Case, kernel: str, inputs: list[Any]) -> float:
    """Milliseconds of a case's forward where its kernel is tuned, else of the forward with its backward."""
    if not case.backward_bytes:
        return device_time(lambda: case.kernel(*inputs), repeats=7, budget=0.2).median
    forward, both = both_ways(case.kernel, inputs)
    alone = kernel.startswith("forward") or kernel == "rotate"
    return device_time(forward if alone else both, repeats=15, budget=0.1).median


def search(case: Case, entry: tuple[str, str, str], part: tuple[int, int] | None) -> dict[str, Any]:
    """All candidates of an entry and their times; with `part`, only every so many of them, and nothing is measured."""
    name, kernel, shape_class = entry
    candidates = CANDIDATES[name, kernel]
    inputs = case.inputs()
    times = []
    for config in candidates if part is None else candidates[part[0] :: part[1]]:
        with configured(name, kernel, shape_class, config):
            try:
                if part is None:
                    times.append((time_of(case, kernel, inputs), config))
                elif case.backward_bytes:
                    both_ways(case.kernel, inputs)[1]()
                else:
                    case.kernel(*inputs)
            except Exception as error:  # a candidate that does not fit is no candidate
                sys.stderr.write(f"{entry} {config}: {type(error).__name__}: {str(error)[:200]}\n")
    times.sort(key=lambda item: item[0])
    return {"entry": entry, "times": times}


def write(found: list[dict[str, Any]], folder: Path) -> None:
    """Put the fastest into the stems' files, under this kind of device."""
    kind = device_kind(torch.device("cuda", 0)).name
    for result in found:
        (name, kernel, shape_class), times = result["entry"], result["times"]
        path = folder / f"{name}.json"
        source = path if path.exists() else configurations.FOLDER / path.name
        table = json.loads(source.read_text(encoding="utf-8"))
        own = table.setdefault(kind, {"kernels": {}})
        own["device"] = torch.cuda.get_device_name()
        own["date"] = datetime.date.today().isoformat()
        own["kernels"].setdefault(kernel, {})[shape_class] = times[0][1]
        own["kernels"][kernel].setdefault("default", times[0][1])
        path.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Compile, search, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="words of which a case's name must have one")
    parser.add_argument("--prepare", type=int, default=0, metavar="N", help="processes that compile first")
    parser.add_argument("--part", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=configurations.FOLDER, help="folder that is written to")
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "benchmarks.tune", *(["--only", *arguments.only] if arguments.only else [])]
    running = [
        subprocess.Popen([*command, "--part", str(number), str(arguments.prepare)])
        for number in range(arguments.prepare)
    ]
    for process in running:
        process.wait()
    part = tuple(arguments.part) if arguments.part else None
    found = []
    for case, entry in jobs(arguments.only, None if part is None else 6):
        found.append(search(case, entry, part))
        torch.cuda.empty_cache()
    if part is not None:
        return
    for result in found:
        sys.stdout.write(f"{'/'.join(result['entry'])}\n")
        for milliseconds, config in result["times"]:
            sys.stdout.write(f"  {milliseconds:8.4f} ms {config}\n")
    arguments.output.mkdir(parents=True, exist_ok=True)
    write([result for result in found if result["times"]], arguments.output)


if __name__ == "__main__":
    main()
