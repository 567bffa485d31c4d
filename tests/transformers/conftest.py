# SPDX-License-Identifier: Apache-2.0
"""What the library offers to the loss, as far as the loss asks for it; the library itself is not installed here."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

Reasons = Callable[[str], list[str]]


@pytest.fixture(autouse=True)
def _one_thread_and_own_seed() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    torch.set_num_threads(threads)


@pytest.fixture
def reasons_of(monkeypatch: pytest.MonkeyPatch) -> Reasons:
    """Return a function that collects what the guards of a module say."""

    def collect(module: str) -> list[str]:
        said: list[str] = []
        __import__(module)
        monkeypatch.setattr(f"{module}.fallback", said.append)
        return said

    return collect


@dataclass
class Outputs:
    """Outputs of a model; what is None is not among the items."""

    last_hidden_state: Tensor | None = None
    loss: Tensor | None = None
    logits: Tensor | None = None
    cache: Any = None

    def items(self) -> list[tuple[str, Any]]:
        """Names and values."""
        return [(key, value) for key, value in vars(self).items() if value is not None]


def standard_loss(
    logits: Tensor, labels: Tensor, vocab_size: int, num_items_in_batch: Any = None, ignore_index: int = -100, **_: Any
) -> Tensor:
    """A causal language model's loss by its formula: each token is told by those before it."""
    rows, wanted = logits[:, :-1].float().flatten(0, 1), labels[:, 1:].flatten()
    each = F.cross_entropy(rows, wanted, ignore_index=ignore_index, reduction="none")
    count = (wanted != ignore_index).sum() if num_items_in_batch is None else num_items_in_batch
    return each.sum() / count


class Body(nn.Module):
    """What comes before the head; notes what it was called with."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.called: dict[str, Any] = {}

    def forward(self, **given: Any) -> Outputs:
        self.called = given
        return Outputs(last_hidden_state=self.embed(given["input_ids"]).tanh(), cache="cache")


class CausalLM(nn.Module):
    """A model with a head and a loss, as all of the library's are."""

    def __init__(self, vocabulary: int = 37, width: int = 16, softcap: float | None = None) -> None:
        super().__init__()
        self.model = Body(vocabulary, width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.config = SimpleNamespace(vocab_size=vocabulary, return_dict=True, final_logit_softcapping=softcap)
        self.loss_function: Any = standard_loss

    def forward(self, input_ids: Any = None, cache: Any = None, labels: Any = None, **kwargs: Any) -> Any:
        return plain_forward(self, input_ids, cache, labels, **kwargs)


def plain_forward(
    self: Any, input_ids: Any = None, cache: Any = None, labels: Any = None, logits_to_keep: Any = 0, **kwargs: Any
) -> Any:
    """All logits, capped where the config says so, and their loss."""
    outputs = self.model(input_ids=input_ids, cache=cache, **kwargs)
    logits = self.lm_head(outputs.last_hidden_state)
    cap = self.config.final_logit_softcapping
    if cap is not None:
        logits = torch.tanh(logits / cap) * cap
    loss = None
    if labels is not None:
        loss = self.loss_function(logits, labels, self.config.vocab_size, **kwargs)
    return Outputs(loss=loss, logits=logits, cache=outputs.cache)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the library's modules be there, with what the loss takes from them."""
    modules: dict[str, dict[str, Any]] = {
        "transformers": {},
        "transformers.modeling_outputs": {"CausalLMOutputWithPast": Outputs},
        "transformers.loss": {},
        "transformers.loss.loss_utils": {"ForCausalLMLoss": standard_loss},
    }
    for name, held in modules.items():
        module = types.ModuleType(name)
        vars(module).update(held)
        monkeypatch.setitem(sys.modules, name, module)
