# SPDX-License-Identifier: Apache-2.0
"""A sweep whose runs take no time, in a process that a test kills: `python killed.py FOLDER LOG`.

All is the real thing but the run itself: what a run leaves is written in the same places and in the same order.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from turbo_hydra.launch import files
from turbo_hydra.sweep.campaign import Campaign
from turbo_hydra.sweep.result import Result, read
from turbo_hydra.sweep.rows import Row, Toggle, design
from turbo_hydra.sweep.settings import AblationSettings
from turbo_hydra.sweep.store import Store

DESIGN = design("leave_one_out", [Toggle("x.a"), Toggle("x.b"), Toggle("x.c")])
SETTINGS = AblationSettings(repeats=3, smallest=0.9)


def store_in(folder: Path) -> Store:
    return Store(folder, {"model": "killed"}, SETTINGS.loss_steps)


def main(folder: Path, log: Path) -> None:
    store = store_in(folder)
    pause = float(os.environ.get("PAUSE", "0"))

    def say(text: str) -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def run(batch: Sequence[tuple[Row, int]]) -> list[Result]:
        found = []
        for row, number in batch:
            began = time.time()
            run_folder = store.begin(row, number, began)
            say(f"started {row.name} {number}")
            time.sleep(pause)
            hits = [{"group": id, "status": "applied", "members": [{"hits": {"replacement": 1}}]} for id in row.on]
            rank = {"median_ms": 10.0 + len(row.on) + number / 10, "cpu_median_ms": 1.0}
            report = {"exit_status": 0, "execution": hits, "steps": {"count": 5, "ranks": {"0": rank}}}
            files.write_json(run_folder / "turbo" / "report.json", report)
            say(f"ended {row.name} {number}")
            result = read(run_folder, time.time() - began, began, SETTINGS.loss_steps)
            assert result is not None
            store.put(row, number, result)
            found.append(result)
        return found

    with store.locked():
        store.load(DESIGN.rows, SETTINGS.repeats)
        Campaign(DESIGN, SETTINGS, store, run, say=lambda text: None).conduct()
    say("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
