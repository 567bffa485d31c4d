# SPDX-License-Identifier: Apache-2.0
"""A causal language model's loss without its logits.

The target is the `forward` of a `...ForCausalLM`, which in all families and versions calls its `model`, its `lm_head`
and its `loss_function`. Here the last two are one computation that never has all logits. What the model is called with,
and what it gives beside the last hidden state, is handed on as it is, under whatever names the version has for it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.shared.chunked_loss import chunked_loss
from turbo_hydra.catalogs.shared.plain import autocast_dtype, not_plain, not_plain_linear
from turbo_hydra.catalogs.transformers.options import Loss
from turbo_hydra.kernels import linear_cross_entropy as kernel

Forward = Callable[..., Any]
# What the loss takes beside labels; everything else that a call may give is the model's.
_KEPT = ("labels", "logits_to_keep")


def causal_lm(original: Forward, options: Loss) -> Forward:
    """Factory for `forward` of a decoder alone, whose vocabulary is its config's."""
    return _forward(original, options, "CausalLMOutputWithPast", frozenset(_KEPT))


def paligemma(original: Forward, options: Loss) -> Forward:
    """Factory for `PaliGemmaForConditionalGeneration.forward`; its `model` makes another mask where it gets labels."""
    model = vars(sys.modules[original.__module__])["PaliGemmaModel"]
    takes_labels = "labels" in inspect.signature(model.forward).parameters
    kept = frozenset(_KEPT[1:] if takes_labels else _KEPT)
    return _forward(original, options, f"{original.__module__}.PaliGemmaCausalLMOutputWithPast", kept)


def _forward(original: Forward, options: Loss, output: str, kept: frozenset[str]) -> Forward:
    module, _, name = output.rpartition(".")
    output_class = vars(import_module(module or "transformers.modeling_outputs"))[name]
    standard = vars(import_module("transformers.loss.loss_utils"))["ForCausalLMLoss"]
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [item.name for item in inspect.signature(original).parameters.values() if item.kind not in stars][1:]
    always = options.when == "always"

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        reason = _unfit(self, given, standard, always)
        if reason is not None:
            fallback(reason)
            return original(self, *args, **kwargs)
        outputs = self.model(**{key: value for key, value in given.items() if key not in kept})
        loss = _loss(self, outputs.last_hidden_state, given)
        others = {key: value for key, value in outputs.items() if key != "last_hidden_state"}
        return output_class(loss=loss, **others)

    return forward


def _unfit(model: Any, given: Mapping[str, Any], standard: Any, always: bool) -> str | None:
    """Why this call's logits must be there; None where only their loss is wanted."""
    if given.get("labels") is None:
        return "no labels"
    if not (model.training or always):
        return "evaluation, whose logits may be wanted"
    kept = given.get("logits_to_keep", 0)
    if not isinstance(kept, int) or kept != 0:
        return "some logits are asked for"
    items = given.get("num_items_in_batch")
    if isinstance(items, Tensor) and items.dim() != 0:
        return "a number of items for each of several parts"
    if given.get("return_dict", True) is False or getattr(model.config, "return_dict", True) is False:
        return "outputs by position"
    if model.loss_function is not standard:
        return "another loss function"
    head = model.lm_head
    reason = not_plain_linear(head)
    if reason is not None:
        return reason
    if head.bias is not None:
        return "logits with a bias"
    if head.weight.shape[0] != _text_config(model).vocab_size:
        return "a vocabulary of another size than the config's"
    return None


def _text_config(model: Any) -> Any:
    return getattr(model.config, "text_config", None) or model.config


def _loss(model: Any, hidden: Tensor, given: Mapping[str, Any]) -> Tensor:
    """What the library's `ForCausalLMLoss` gives for the logits of `hidden`: shifted, and divided as it divides."""
    weight = model.lm_head.weight
    low = autocast_dtype(hidden.device)
    if low is not None:
        hidden, weight = hidden.to(low), weight.to(low)
    ignore = given.get("ignore_index", -100)
    target = given.get("shift_labels")
    if target is None:
        target = F.pad(given["labels"], (0, 1), value=ignore)[..., 1:].contiguous()
    target = target.to(hidden.device).reshape(hidden.shape[:-1])
    items = given.get("num_items_in_batch")
    softcap = getattr(_text_config(model), "final_logit_softcapping", None)
    fits = softcap is None and _fits(hidden, weight, target)
    if fits and items is None:
        return kernel.linear_cross_entropy(hidden, weight, target, ignore)
    share = _share((target != ignore).sum() if items is None else items, hidden)
    if fits and hidden.dtype != torch.float16:  # a sum's gradients may be too large for it
        return kernel.linear_cross_entropy(hidden, weight, target, ignore, reduction="sum") * share
    return chunked_loss(hidden, weight, target, share, ignore, softcap or 0.0).float()


def _share(count: Tensor | float, like: Tensor) -> Tensor:
    """One over a count, where `like` is; nothing waits for the device."""
    wide = torch.float64 if like.dtype == torch.float64 else torch.float32
    if isinstance(count, Tensor):
        return 1.0 / count.detach().to(like.device, wide)
    return like.new_full((), 1.0 / count, dtype=wide)


def _fits(hidden: Tensor, weight: Tensor, target: Tensor) -> bool:
    return not_plain(hidden, weight, target) is None and kernel.unfit(hidden, weight, target) is None
