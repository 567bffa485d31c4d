# SPDX-License-Identifier: Apache-2.0
"""Parts of a step. A unit of work is one product of matrices; a step without groups has 1,000 of them."""

import torch

_A = torch.randn(48, 48)
_B = torch.randn(48, 48)


def units(count: int) -> None:
    for _ in range(count):
        torch.mm(_A, _B)


def ten() -> None:
    units(200)


def three() -> None:
    units(200)


def one() -> None:
    units(200)


def nothing() -> None:
    units(100)


def slower() -> None:
    units(100)


def layout() -> str:
    return "plain"


def together(how: str) -> None:
    units(200)


def objective(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (prediction - target).square().mean()


def never() -> None:
    """Nobody calls it."""
