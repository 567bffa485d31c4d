# SPDX-License-Identifier: Apache-2.0
"""Groups that change how layers compute: their layout, their precision, and compiled ones."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.catalogs.conftest import Reasons
from tests.catalogs.patching import applied, groups
from turbo_hydra import CheckContext
from turbo_hydra.catalogs.torch import compiling
from turbo_hydra.catalogs.torch.options import Compile


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_images_keep_their_channels_last_from_the_first_convolution_on(dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(2)
    net = nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Conv2d(16, 4, 3, stride=2), nn.Flatten()).to(dtype)
    image: Any = torch.randn(2, 8, 13, 11, dtype=dtype, requires_grad=True)
    results = []
    for ids in ((), ("torch.channels_last",)):
        net.zero_grad()
        image.grad = None
        with applied(*ids):
            hidden = net[:2](image)
            net(image).float().square().sum().backward()
        assert hidden.is_contiguous(memory_format=torch.channels_last) == bool(ids)
        results.append([image.grad.clone(), *(item.grad.clone() for item in net.parameters() if item.grad is not None)])
    torch.testing.assert_close(results[1], results[0], rtol=tolerance, atol=tolerance)


def test_images_without_a_batch_and_of_few_channels_stay(reasons_of: Reasons) -> None:
    said = reasons_of("turbo_hydra.catalogs.torch.channels_last")
    layer = nn.Conv2d(3, 4, 3)
    with applied("torch.channels_last"):
        assert layer(torch.ones(2, 3, 5, 5)).is_contiguous()
        layer(torch.ones(3, 5, 5))
    assert said == ["fewer channels than min_channels", "an image without a batch"]
    with applied("torch.channels_last", min_channels=3):
        assert layer(torch.ones(2, 3, 5, 5)).is_contiguous(memory_format=torch.channels_last)


@pytest.fixture
def precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("precision")
def test_the_precision_is_set_with_the_first_optimizer_unless_one_is_set(reasons_of: Reasons) -> None:
    said = reasons_of("turbo_hydra.catalogs.torch.matmul_precision")
    torch.set_float32_matmul_precision("highest")
    with applied("torch.matmul_precision", precision="high"):
        optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
        assert torch.get_float32_matmul_precision() == "high"
        torch.set_float32_matmul_precision("medium")
        torch.optim.AdamW([torch.ones(1, requires_grad=True)])
    assert torch.get_float32_matmul_precision() == "medium"
    assert said == ["a precision is set already"]
    assert optimizer.defaults["lr"] == 0.1


class Gelu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(self.layer(x)) * x


class Child(Gelu):
    pass


def is_compiled(module: Any) -> bool:
    return module._compiled_call_impl is not None


def test_instances_of_the_named_classes_are_compiled_and_no_others() -> None:
    with applied("torch.compile", modules=(f"{__name__}.Gelu",)):
        net, child = nn.Sequential(Gelu(), nn.Linear(5, 2)), Child()
    assert [is_compiled(item) for item in (net, net[0], net[1], net[0].layer, child)] == [
        *(False, True, False, False, False)
    ]
    assert not is_compiled(copy.deepcopy(net)[0]), "copies are not, as torch has it"
    with applied("torch.compile", modules=("*.test_layers.*",)):
        assert is_compiled(Child())
    assert not is_compiled(Gelu())


def test_a_compiled_layer_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    # The default backend takes a C++ compiler tens of seconds; that it computes what it should is torch's own matter.
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: compile(*args, backend="aot_eager", dynamic=False))
    torch.manual_seed(3)
    plain = Gelu()
    with applied("torch.compile", modules=(f"{__name__}.Gelu",)):
        ours = Gelu()
    ours.load_state_dict(plain.state_dict())
    x = torch.randn(3, 5)
    for net in (plain, ours):
        net(x).square().sum().backward()
    torch.testing.assert_close(ours(x), plain(x))
    torch.testing.assert_close(ours.layer.weight.grad, plain.layer.weight.grad)


def test_a_compile_that_names_nothing_says_what_to_name() -> None:
    context = CheckContext("torch.compile", Compile(modules=()), frozenset(), {})
    result = compiling.check(context)
    assert not result.compatible
    assert "names no class; give dotted paths" in result.reason
    assert compiling.check(CheckContext("torch.compile", Compile(), frozenset(), {})).compatible


def test_every_group_says_what_it_is() -> None:
    for id, group in groups().items():
        assert group.about is not None, id
        assert len(group.about.why) > 100, id
        assert "torch" in group.about.validated or "device" in group.about.validated, id
