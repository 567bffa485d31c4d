# SPDX-License-Identifier: Apache-2.0
"""Settings of the meter: what is refused, in which words, and where the batch is found."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra.measure.batch import samples_per_step
from turbo_hydra.measure.settings import MeasureSettings, MeasureSettingsError


def test_defaults_are_those_of_the_configuration() -> None:
    from turbo_hydra.config.hydra_schema import MeasureConf

    assert MeasureSettings.from_mapping(vars(MeasureConf())) == MeasureSettings()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"writer": []}, "unknown setting 'measure.writer'; did you mean 'measure.writers'"),
        ({"zzz": 1}, "unknown setting 'measure.zzz'; known are enabled, interval,"),
        ({"enabled": "yes"}, "'measure.enabled' must be true or false, found 'yes'"),
        ({"interval": -1}, "'measure.interval' must be a number of seconds, 0 or more, found -1"),
        ({"interval": True}, "'measure.interval' must be a number of seconds, 0 or more, found True"),
        ({"step_every": 0}, "'measure.step_every' must be a whole number, 1 or more, found 0"),
        ({"warmup": 1.5}, "'measure.warmup' must be a whole number, 0 or more, found 1.5"),
        ({"profile": -1}, "'measure.profile' must be a whole number, 0 or more, found -1"),
        ({"writers": ["wandb"]}, "'measure.writers' must be a list of csv and tensorboard, found ['wandb']"),
        ({"peak_tflops": 0}, "'measure.peak_tflops' must be a number of 10^12 operations a second, above 0, found 0"),
        ({"progress": "fancy"}, "'measure.progress' must be one of auto, bar, lines, off, found 'fancy'"),
    ],
)
def test_what_is_refused(data: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MeasureSettingsError, match=re.escape(sentence)):
        MeasureSettings.from_mapping(data)


def test_what_is_accepted() -> None:
    settings = MeasureSettings.from_mapping(
        {"progress": False, "writers": ["csv", "csv"], "warmup": None, "interval": 1, "progress_interval": 0.5}
    )
    assert settings.progress == "off"
    assert settings.writers == ("csv",)
    assert MeasureSettings.from_mapping({"writers": "csv"}).writers == ("csv",)


@pytest.mark.parametrize(
    ("model", "argv", "expected"),
    [
        ({}, [], None),
        ({"batch": None}, [], None),
        ({"batch": 32}, [], 32),
        ({"batch": "32"}, [], 32),
        ({"batch": "batch-size", "args": {"batch-size": 16}}, [], 16),
        ({"batch": "batch_size", "args": {"batch-size": 16}}, [], 16),
        ({"batch": "--batch-size", "args": {"batch_size": 16}}, [], 16),
        ({"batch": "batch-size", "args": {"batch-size": 16}}, ["--batch-size", "8"], 8),
        ({"batch": "batch-size"}, ["--batch-size=8", "--seed", "0"], 8),
        ({"batch": "train.batch"}, ["train.batch=4"], 4),
        ({"batch": "b", "args": None}, ["-b", "1", "-b", "2"], 2),
    ],
)
def test_where_the_batch_is_found(model: dict[str, Any], argv: list[str], expected: int | None) -> None:
    assert samples_per_step(model, argv) == expected


@pytest.mark.parametrize(
    ("model", "argv", "words"),
    [
        ({"batch": "batch-size"}, ["--seed", "0"], "names the argument 'batch-size', which the run does not give"),
        ({"batch": "batch"}, ["--batch"], "names the argument 'batch', which the run does not give"),
        ({"batch": "batch"}, ["--batch", "auto"], "'auto', which is no number of samples"),
        ({"batch": 0}, [], "model.batch is 0, which is no number of samples"),
        ({"batch": True}, [], "model.batch is True, which is no number of samples"),
    ],
)
def test_a_batch_that_is_not_known_is_a_warning(
    model: dict[str, Any], argv: list[str], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert samples_per_step(model, argv) is None
    assert words in caplog.text


@given(st.integers(1, 10**6), st.lists(st.sampled_from(["--seed", "3", "x=1", "--flag", "-v"])))
def test_the_argument_is_found_among_others(batch: int, others: list[str]) -> None:
    assert samples_per_step({"batch": "batch-size"}, [*others, f"--batch-size={batch}"]) == batch
