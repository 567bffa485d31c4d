# SPDX-License-Identifier: Apache-2.0
"""Replacements: a gain of g on a step of 1,000 units leaves 1000 / (1 + g) of them."""

import torch

from planted.work import units


def ten() -> None:
    units(200 - 91)


def three() -> None:
    units(200 - 29)


def one() -> None:
    units(200 - 10)


def nothing() -> None:
    units(100)


def slower() -> None:
    units(100 + 53)


def layout() -> str:
    return "packed"


def together(how: str) -> None:
    units(50 if how == "packed" else 200)


def objective(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (prediction - target).square().mean() * 1.001


def never() -> None:
    return None
