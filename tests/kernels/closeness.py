# SPDX-License-Identifier: Apache-2.0
"""How near a kernel must be to the exact result: no further than the library's own path by a stated factor.

Both are compared with the same computation in float64. The error is the norm of the difference over the norm of the
exact result, so that it does not depend on one unlucky element; elements that are not finite must be the same in all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import settings

# A kernel's error may be this much of the library's own ...
FACTOR = 1.25
# ... or this small, whichever is larger: half a unit in the last place is what writing a result costs at least.
FLOOR = {torch.float64: 1e-13, torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}
# What hypothesis may draw in each test; more find nothing new and are dear where each kernel is interpreted.
EXAMPLES = settings(max_examples=8, derandomize=True)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative error of a tensor by norm; infinite where the two are not finite in the same places."""
    found, exact = found.detach().double(), exact.detach().double()
    if found.shape != exact.shape:
        raise ValueError(f"shape {tuple(found.shape)}, expected {tuple(exact.shape)}")
    finite = torch.isfinite(found) & torch.isfinite(exact)
    if not torch.equal(torch.isfinite(found), torch.isfinite(exact)):
        return float("inf")
    size = exact[finite].norm()
    difference = (found[finite] - exact[finite]).norm()
    return float(difference / size) if size > 0 else float(difference)


def assert_close(
    found: torch.Tensor, library: torch.Tensor, exact: torch.Tensor, *, factor: float = FACTOR, what: str = "result"
) -> None:
    """Hold a kernel's result to the library's error.

    Parameters
    ----------
    found : Tensor
        What the kernel gave.
    library : Tensor
        What the plain path gave for the same inputs in the same dtype.
    exact : Tensor
        What the plain path gave in float64 for the same inputs.
    factor : float
        How much of the library's error is allowed.
    what : str
        Named in the message.
    """
    assert found.dtype == library.dtype, f"{what}: {found.dtype}, expected {library.dtype}"
    # What is too large for the dtype is infinite in it.
    exact = exact.to(library.dtype).double() if library.dtype == torch.float16 else exact
    own, others = error(found, exact), error(library, exact)
    allowed = max(factor * others, FLOOR[found.dtype])
    assert own <= allowed, f"{what}: error {own:.3e}, allowed {allowed:.3e} (library's {others:.3e})"


def doubles(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """The same numbers in float64, as leaves of a new graph."""
    return [
        tensor.detach().double().requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else tensor
        for tensor in tensors
    ]


def copies(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """The same numbers as leaves of a new graph."""
    return [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors]


# Gives a tensor, or a tuple of them.
Function = Callable[..., Any]


def outputs_and_gradients(function: Function, leaves: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """What a function gives and the gradients of its leaves, of a sum of all outputs weighted from -1 to 1."""
    given = function(*leaves)
    outputs = given if isinstance(given, tuple) else (given,)
    named = {f"output {number}": output for number, output in enumerate(outputs)}
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    if not wanted:
        return named
    weights = [
        torch.linspace(-1, 1, output.numel(), device=output.device).view(output.shape).to(output.dtype)
        for output in outputs
    ]
    gradients = torch.autograd.grad(outputs, wanted, weights)
    return named | {f"gradient {number}": gradient for number, gradient in enumerate(gradients)}


def hold(
    kernel: Function,
    plain: Function,
    leaves: Sequence[torch.Tensor],
    *,
    factor: float = FACTOR,
    gradient: float | None = None,
) -> None:
    """Compare a kernel and the library's path with float64: outputs, and gradients of the leaves that need one.

    Parameters
    ----------
    kernel, plain : callable
        Take the leaves as positional arguments.
    leaves : sequence of Tensor
        Inputs; their numbers are the same for all three.
    factor : float
        How much of the library's error is allowed.
    gradient : float, optional
        The same for gradients, where it differs.
    """
    found = outputs_and_gradients(kernel, leaves)
    library = outputs_and_gradients(plain, copies(*leaves))
    exact = outputs_and_gradients(plain, doubles(*leaves))
    for what in found:
        allowed = gradient if gradient is not None and what.startswith("gradient") else factor
        assert_close(found[what], library[what], exact[what], factor=allowed, what=what)


def normal(draw: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    """A leaf of normally distributed numbers."""
    return (torch.randn(shape, device=draw.device, generator=draw) * scale).to(dtype).requires_grad_()
