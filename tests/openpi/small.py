# SPDX-License-Identifier: Apache-2.0
"""The small model, with and without groups, in a process that must not keep its package named `transformers`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from turbo_hydra import Registry
from turbo_hydra.engine.declarations import Group
from turbo_hydra.engine.objects import load_object

CATALOG = "turbo_hydra.catalogs.models.openpi"
REPOSITORY = Path(__file__).resolve().parent / "repository"
CAMERAS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
HORIZON, ACTION_DIM, PADDED = 3, 5, 12
_known: dict[str, ModuleType] = {}


def _owner(path: str) -> Any:
    """What a path names; torch takes some of its modules out of their package."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return load_object(path)


def _ours(name: str) -> bool:
    return name.partition(".")[0] in ("openpi", "transformers")


@contextmanager
def repository() -> Iterator[None]:
    """Let `openpi` and `transformers` be the small ones inside the block, the same modules each time."""
    before = {name: module for name, module in sys.modules.items() if _ours(name)}
    for name in before:
        del sys.modules[name]
    sys.modules.update(_known)
    sys.path.insert(0, str(REPOSITORY))
    try:
        for module in ("openpi.models_pytorch.pi0_pytorch", "openpi.training.data_loader"):
            importlib.import_module(module)
        yield
    finally:
        sys.path.remove(str(REPOSITORY))
        for name in [name for name in sys.modules if _ours(name)]:
            _known[name] = sys.modules.pop(name)
        sys.modules.update(before)


def groups() -> Mapping[str, Group]:
    """All groups of the catalog that replace or wrap; those of imports are not put in place here."""
    registry = Registry()
    registry.load(CATALOG)
    return {id: group for id, group in registry.groups.items() if not group.is_import_group}


@contextmanager
def applied(ids: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Put groups in place without the engine, each with its options, in the order in which they are declared."""
    known = groups()
    with pytest.MonkeyPatch.context() as patch:
        for id in [id for id in known if id in ids]:
            group = known[id]
            options = group.options(**ids[id]) if group.options else None
            for member in group.members:
                places = [path.rpartition(".") for path in member.paths]
                original = vars(_owner(places[0][0]))[places[0][2]]
                new = load_object(member.replacement)
                new = new(original, options) if member.kind == "wrap" else new
                for path, _, name in places:
                    owner = _owner(path)
                    if isinstance(owner, dict):
                        patch.setitem(owner, name, new)
                    else:
                        patch.setattr(owner, name, new)
                for module in [value for key, value in sys.modules.items() if _ours(key)]:
                    for other in [key for key, value in vars(module).items() if value is original]:
                        patch.setattr(module, other, new)
        yield


def model(dtype: str = "float32", *, pi05: bool = True, seed: int = 0) -> Any:
    """A small PI0.5 (or PI0) as upstream's script makes it: in training, with checkpointing on."""
    torch.manual_seed(seed)
    config = SimpleNamespace(
        dtype=dtype,
        pi05=pi05,
        paligemma_variant="dummy",
        action_expert_variant="expert",
        action_dim=ACTION_DIM,
        action_horizon=HORIZON,
    )
    pi0: Any = load_object("openpi.models_pytorch.pi0_pytorch.PI0Pytorch")(config)
    pi0.gradient_checkpointing_enable()
    return pi0.train()


def batch(
    size: int = 2,
    *,
    cameras: tuple[bool, ...] = (True, True, True),
    prompts: tuple[int, ...] = (PADDED,),
    padded: int = PADDED,
    seed: int = 1,
) -> tuple[SimpleNamespace, Tensor]:
    """An observation and its actions: which cameras are valid, and the lengths of the prompts, in turn."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([prompts[index % len(prompts)] for index in range(size)])
    observation = SimpleNamespace(
        images={name: torch.randn(size, 3, 8, 8, generator=generator) for name in CAMERAS},
        image_masks={name: torch.full((size,), valid) for name, valid in zip(CAMERAS, cameras, strict=True)},
        state=torch.randn(size, ACTION_DIM, generator=generator),
        tokenized_prompt=torch.randint(0, 64, (size, padded), generator=generator),
        tokenized_prompt_mask=torch.arange(padded) < lengths[:, None],
    )
    return observation, torch.randn(size, HORIZON, ACTION_DIM, generator=generator)


def step(pi0: nn.Module, data: tuple[Any, Tensor], seed: int = 3) -> tuple[Tensor, dict[str, Tensor | None]]:
    """Losses and gradients of one forward and backward at a seed."""
    torch.manual_seed(seed)
    pi0.zero_grad()
    losses = pi0(*data)
    losses.mean().backward()
    return losses.detach(), {
        name: None if parameter.grad is None else parameter.grad.clone() for name, parameter in pi0.named_parameters()
    }


def same(found: Any, expected: Any, atol: float | None) -> None:
    """Losses and gradients are equal: bit by bit where `atol` is None, else up to it and a part in a thousand of it."""
    torch.testing.assert_close(found[0], expected[0], atol=atol or 0.0, rtol=1e-3 * bool(atol))
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        mine = found[1][name]
        assert (mine is None) == (gradient is None), name
        if gradient is not None:
            try:
                torch.testing.assert_close(mine, gradient, atol=atol or 0.0, rtol=1e-3 * bool(atol))
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None
