# SPDX-License-Identifier: Apache-2.0
"""Devices handed out to jobs side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra.launch.slots import Slots


def test_numbers_and_uuids_are_handed_on_as_they_are(tmp_path: Path) -> None:
    slots = Slots({"CUDA_VISIBLE_DEVICES": "3, GPU-11,MIG-7,0"}, tmp_path)
    assert (slots.variable, slots.total) == ("CUDA_VISIBLE_DEVICES", 4)
    assert slots.take(2) == ["3", "GPU-11"]
    assert slots.take(3) is None
    assert slots.take(2) == ["MIG-7", "0"]
    slots.give(["3", "GPU-11"])
    assert slots.take(1) == ["3"]


@pytest.mark.parametrize(
    ("variables", "variable"),
    [
        ({"HIP_VISIBLE_DEVICES": "0,1"}, "HIP_VISIBLE_DEVICES"),
        ({"HIP_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "4"}, "HIP_VISIBLE_DEVICES"),
        ({"ROCR_VISIBLE_DEVICES": "0,1"}, "ROCR_VISIBLE_DEVICES"),
        ({}, None),
    ],
)
def test_the_list_that_is_set_is_the_one_that_is_split(
    tmp_path: Path, variables: dict[str, str], variable: str | None
) -> None:
    assert Slots(variables, tmp_path).variable == variable


# What another vendor's libraries read hides none of these.
@pytest.mark.parametrize("others", [{}, {"HIP_VISIBLE_DEVICES": "0"}, {"ROCR_VISIBLE_DEVICES": "0"}])
def test_devices_that_no_list_names_are_numbered(tmp_path: Path, others: dict[str, str]) -> None:
    for address in ("0000:17:00.0", "0000:65:00.0"):
        (tmp_path / "proc/driver/nvidia/gpus" / address).mkdir(parents=True)
    slots = Slots(others, tmp_path)
    assert (slots.variable, slots.take(2)) == ("CUDA_VISIBLE_DEVICES", ["0", "1"])


def test_a_job_that_wants_more_than_there_is_gets_all_of_it(tmp_path: Path) -> None:
    slots = Slots({"CUDA_VISIBLE_DEVICES": "0,1"}, tmp_path)
    assert slots.take(8) == ["0", "1"]
    assert Slots({}, tmp_path).take(8) == []


@given(st.lists(st.integers(0, 4), max_size=20), st.integers(1, 8))
def test_no_device_is_given_to_two_jobs(wants: list[int], total: int) -> None:
    slots = Slots({"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(total)))}, Path("/nowhere"))
    running: list[list[str]] = []
    for want in wants:
        taken = slots.take(want)
        if taken is None:
            slots.give(running.pop(0))
        else:
            running.append(taken)
        held = [device for devices in running for device in devices]
        assert len(held) == len(set(held)) <= total
