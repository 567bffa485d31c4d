# SPDX-License-Identifier: Apache-2.0
"""The replacements that families share: what they fit, and that a call which does not fit is the original's.

Without a device no kernel runs here. That they compute what the library computes is seen with the library itself
(tests/real/test_transformers.py), in Triton's interpreter too.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.transformers.conftest import Reasons
from turbo_hydra.catalogs.shared import activations, gated_mlp, gelu_mlp, plain, rms_norm, rotary
from turbo_hydra.catalogs.shared.options import GatedMlp
from turbo_hydra.catalogs.transformers import attention
from turbo_hydra.catalogs.transformers.options import Attention

HERE = "turbo_hydra.catalogs.shared"


def original(*args: Any, **kwargs: Any) -> str:
    return "original"


def norm(dtype: Any = torch.float32) -> Any:
    weight = nn.Parameter(torch.ones(8, dtype=dtype))
    return SimpleNamespace(weight=weight, eps=1e-6, variance_epsilon=1e-6)


def old_rotation(q: Any, k: Any, cos: Any, sin: Any, position_ids: Any = None, unsqueeze_dim: int = 1) -> Any:
    return "old", position_ids, unsqueeze_dim


def new_rotation(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
    return "new", unsqueeze_dim


def test_a_rotation_has_the_parameters_of_the_version_that_is_there() -> None:
    x = torch.zeros(1, 2, 3, 4)
    for target, fifth, expected in ((old_rotation, "p", ("old", "p", 1)), (new_rotation, 2, ("new", 2))):
        made: Any = rotary.apply(target, None)
        assert list(inspect.signature(made).parameters) == list(inspect.signature(target).parameters)
        assert made(x, x, x[0], x[0], fifth) == expected, "the fifth argument by position"


ROTATIONS: list[tuple[dict[str, Any], str]] = [
    ({"unsqueeze_dim": 2}, "heads that are not in dimension 1"),
    ({"cos": torch.zeros(1, 3, 4, dtype=torch.float64)}, "cosines of another dtype, to which the result"),
    ({}, "no kernel for tensors on cpu"),
]


@pytest.mark.parametrize(("changed", "reason"), ROTATIONS, ids=[reason for _, reason in ROTATIONS])
def test_a_rotation_that_does_not_fit_is_the_original_s(
    reasons_of: Reasons, changed: dict[str, Any], reason: str
) -> None:
    said = reasons_of(f"{HERE}.rotary")
    x = torch.zeros(1, 2, 3, 4)
    given = {"q": x, "k": x, "cos": x[0, :1], "sin": x[0, :1], **changed}
    made: Any = rotary.apply(new_rotation, None)
    assert made(**given) == ("new", given.get("unsqueeze_dim", 1))
    assert len(said) == 1
    assert said[0].startswith(reason)


@pytest.mark.parametrize("name", ["gemma", "llama"])
def test_a_norm_without_a_device_is_the_original_s(reasons_of: Reasons, name: str) -> None:
    said = reasons_of(f"{HERE}.rms_norm")
    make: Any = getattr(rms_norm, name)
    assert make(original, None)(norm(), torch.zeros(2, 8)) == "original"
    assert said == ["no kernel for tensors on cpu"]


class Subclass(Tensor):
    """Such as a part of a tensor on several devices."""


def test_tensors_that_are_not_plain_are_left_to_the_original(reasons_of: Reasons) -> None:
    said = reasons_of(f"{HERE}.rms_norm")
    x = torch.zeros(2, 8).as_subclass(Subclass)
    assert rms_norm.gemma(original, None)(norm(), x) == "original"  # type: ignore[arg-type]
    assert said == ["tensors that are not plain"]
    assert plain.not_plain(torch.zeros(1), nn.Parameter(torch.zeros(1))) is None


class GELUTanh(nn.Module):
    """Named as the library's."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(x, approximate="tanh")


class SiLUActivation(nn.Module):
    """Named as the library's."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.silu(x)


def test_activations_are_known_under_all_their_names() -> None:
    assert [activations.known(item()) for item in (GELUTanh, SiLUActivation, nn.SiLU, nn.GELU, nn.ReLU)] == [
        "gelu_tanh",
        "silu",
        "silu",
        None,
        None,
    ]


def test_an_activation_with_a_forward_of_its_own_is_not_known() -> None:
    theirs, bound = SiLUActivation(), SiLUActivation()
    theirs.forward = MethodType(lambda self, x: 2 * x, theirs)  # type: ignore[method-assign]
    bound.forward = MethodType(SiLUActivation.forward, bound)  # type: ignore[method-assign]
    found = [activations.known(item) for item in (theirs, bound)]
    assert found == [None, "silu"]

    @torch.compile(backend="eager", fullgraph=True)
    def asked(x: Tensor) -> tuple[Tensor, list[str | None]]:
        return x + 1, [activations.known(item) for item in (theirs, bound, silu)]

    silu = SiLUActivation()
    assert asked(torch.zeros(1))[1] == [None, "silu", "silu"]


@pytest.mark.parametrize("options", [None, GatedMlp(), GatedMlp(exact=True)])
def test_a_gate_of_another_kind_or_without_a_device_is_the_original_s(reasons_of: Reasons, options: Any) -> None:
    said = reasons_of(f"{HERE}.gated_mlp")
    forward: Any = gated_mlp.forward(original, options)  # type: ignore[arg-type]
    for activation in (nn.ReLU(), nn.SiLU()):
        assert forward(SimpleNamespace(act_fn=activation), torch.zeros(2, 8)) == "original"
    assert said == ["another activation", "no kernel for tensors on cpu"]


class Linear(nn.Linear):
    """A layer of another class: sharded, quantised, or with an adapter."""


def test_an_mlp_whose_first_layer_is_not_plain_is_the_original_s(reasons_of: Reasons) -> None:
    said = reasons_of(f"{HERE}.gelu_mlp")
    forward: Any = gelu_mlp.forward(original, None)  # type: ignore[arg-type]
    for first, x in (
        (Linear(8, 8), torch.zeros(2, 8)),
        (nn.Linear(8, 8, bias=False), torch.zeros(2, 8)),
        (nn.Linear(8, 8), torch.zeros(2, 8, dtype=torch.bfloat16)),
        (nn.Linear(8, 8), torch.zeros(2, 8)),
    ):
        assert forward(SimpleNamespace(activation_fn=GELUTanh(), fc1=first), x) == "original"
    assert said == [
        "a layer that is no plain linear one",
        "a first layer without a bias",
        "input and bias differ in dtype",
        "no kernel for tensors on cpu",
    ]


class Model:
    """What a model's class says of attention, in one version or the other."""

    _supports_sdpa = True
    _supports_flash_attn_2 = True

    def __init__(self, config: Any) -> None:
        self.config = config


def chosen(options: Attention, found: str) -> str:
    config = SimpleNamespace(_attn_implementation=found, _attn_implementation_internal=found)
    made: Any = attention.init(vars(Model)["__init__"], options)
    made(Model.__new__(Model), config)
    return str(config._attn_implementation_internal)


CHOICES = [
    ("eager", Attention(), "sdpa", None),
    ("sdpa", Attention(), "sdpa", "what is asked for already"),
    ("flex_attention", Attention(), "flex_attention", "another implementation than those to be replaced"),
    ("sdpa", Attention(implementation="eager", instead_of=("sdpa",)), "eager", None),
    (
        "sdpa",
        Attention(implementation="flex_attention", instead_of=("sdpa",)),
        "sdpa",
        "a model that does not support it",
    ),
    (
        "sdpa",
        Attention(implementation="flash_attention_2", instead_of=("sdpa",)),
        "sdpa",
        "flash_attn is not installed",
    ),
]


@pytest.mark.parametrize(("found", "options", "expected", "reason"), CHOICES)
def test_a_model_gets_the_attention_that_its_class_supports(
    reasons_of: Reasons, found: str, options: Attention, expected: str, reason: str | None
) -> None:
    said = reasons_of("turbo_hydra.catalogs.transformers.attention")
    assert chosen(options, found) == expected
    assert said == ([reason] if reason else [])


GUARDS = """
import torch
from types import MethodType, SimpleNamespace
from turbo_hydra.catalogs.shared import gated_mlp, gelu_mlp, rms_norm, rotary

def original(*args, **kwargs):
    return "original"

def rotation(q, k, cos, sin, unsqueeze_dim=1):
    return "original"

def expect(result):
    if result != "original":
        raise SystemExit(f"the guard let it through: {result}")

x = torch.zeros(1, 2, 3, 4)
other = SimpleNamespace(act_fn=None, activation_fn=None, fc1=None, weight=x, eps=1.0, variance_epsilon=1.0)
expect(gated_mlp.forward(original, None)(other, x))
expect(gelu_mlp.forward(original, None)(other, x))
expect(rms_norm.gemma(original, None)(other, x))
expect(rms_norm.llama(original, None)(other, x))
expect(rotary.apply(rotation, None)(x, x, x, x))
print("held", __debug__)
"""


def test_guards_hold_under_python_O() -> None:
    done = subprocess.run([sys.executable, "-O", "-c", GUARDS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.strip() == "held False"
