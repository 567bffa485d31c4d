# SPDX-License-Identifier: Apache-2.0
"""What is left out of a prefix: only what the whole batch masks, and never everything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra.catalogs.models.openpi import prefix_trim
from turbo_hydra.catalogs.models.openpi.options import PrefixTrim

TOKENS = torch.arange(20).view(2, 10)
IMAGES = [torch.full((2, 3), float(number)) for number in range(3)]


def observed(cameras: list[list[bool]], lengths: list[int]) -> tuple[Any, ...]:
    masks = [torch.tensor(camera) for camera in cameras]
    return list(IMAGES), masks, TOKENS, torch.arange(10) < torch.tensor(lengths)[:, None], "state"


def trimmed(given: tuple[Any, ...], **options: Any) -> Any:
    call = prefix_trim.preprocess_observation(lambda self, observation, train: given, PrefixTrim(**options))
    return call(SimpleNamespace(), None, train=True)


@given(
    used=st.lists(st.booleans(), min_size=1, max_size=40).filter(any),
    bucket=st.integers(0, 50),
)
def test_a_prompt_keeps_all_that_is_used_in_steps_of_a_bucket(used: list[bool], bucket: int) -> None:
    length = prefix_trim.kept_length(used, bucket)
    assert 0 < length <= len(used)
    assert not any(used[length:])
    if bucket == 0:
        assert length == len(used)
    else:
        assert length % bucket == 0 or length == len(used)
        assert any(used[(length - 1) // bucket * bucket :])  # no bucket more than needed


def test_cameras_that_one_sample_has_stay() -> None:
    images, masks, tokens, token_mask, state = trimmed(
        observed([[True, True], [False, True], [False, False]], [3, 6]), bucket=4
    )
    assert [float(image[0, 0]) for image in images] == [0.0, 1.0]
    assert len(masks) == 2
    assert torch.equal(tokens, TOKENS[:, :8])
    assert token_mask.shape == tokens.shape
    assert int(token_mask.sum()) == 9
    assert state == "state"


def test_options_switch_either_off() -> None:
    given = observed([[True, True], [False, False], [False, False]], [3, 6])
    assert len(trimmed(given, cameras=False)[0]) == 3
    assert trimmed(given, bucket=0)[2].shape == (2, 10)


NOT_BOOLEAN = observed([[True, True]] * 3, [3, 6])
NO_PROMPT = (*observed([[True, True]] * 3, [3, 6])[:2], None, None, "state")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (observed([[False, False]] * 3, [3, 6]), "nothing is valid"),
        (observed([[True, True]] * 3, [0, 0]), "nothing is valid"),
        (NO_PROMPT, "no prompt"),
        ((*NOT_BOOLEAN[:3], NOT_BOOLEAN[3].float(), "state"), "not boolean"),
        ((*NOT_BOOLEAN[:3], NOT_BOOLEAN[3][:, :5], "state"), "another shape"),
    ],
    ids=["no camera", "no token", "no prompt", "floats", "shapes"],
)
def test_what_cannot_be_trimmed_stays_as_it_is(
    given: tuple[Any, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(prefix_trim, "fallback", said.append)
    found = trimmed(given)
    assert all(mine is theirs for mine, theirs in zip(found, given, strict=True))
    assert len(said) == 1
    assert reason in said[0]
