# SPDX-License-Identifier: Apache-2.0
"""What lerobot 0.4's PI0 and PI0.5 expect of transformers, and no release of it has: Gemma modulated by a condition.

lerobot was written for files that are copied over an installed transformers. Its own calls are told from those of other
code by what they hand over: a norm's `cond`, a model's `adarms_cond`. Any other Gemma in the process computes what it
did. A model's parameters have the names that they have with those files, so that published weights can be loaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from turbo_hydra import fallback

if TYPE_CHECKING:
    from turbo_hydra.compatibility import ImportContext

Function = Callable[..., Any]
_ABSENT: Any = object()

_CHECK = '''
def check_whether_transformers_replace_is_installed_correctly() -> bool:
    """Whether lerobot finds what it expects: turbo_hydra's group lerobot.conditional_norm sees to it."""
    return True
'''


def check_source(text: str | None, context: ImportContext) -> str:
    """Text of the module that lerobot asks whether the files are there; that of the files where they are."""
    return _CHECK if text is None else text


def gated_residual(x: Tensor | None, y: Tensor | None, gate: Tensor | None) -> Tensor | None:
    """Give x + y * gate; without a gate x + y, and where one of them is None the other."""
    if x is None or y is None:
        return y if x is None else x
    return _added(x, y, gate)


class ConditionalNorm(nn.Module):
    """Gemma's RMS norm, whose scale, shift and gate a condition gives where there is one.

    Parameters
    ----------
    width : int
        Of what is normalised.
    eps : float
        Added to the mean square.
    condition_width : int, optional
        Of the condition; None for a norm that has a learned scale instead.
    """

    def __init__(self, width: int, eps: float, condition_width: int | None) -> None:
        super().__init__()
        self.eps, self.cond_dim = eps, condition_width
        self.dense: nn.Linear | None = None
        if condition_width is None:
            self.weight = nn.Parameter(torch.zeros(width))
        else:
            self.dense = nn.Linear(condition_width, 3 * width)
            nn.init.zeros_(self.dense.weight)

    def forward(self, x: Tensor, cond: Tensor | None = _ABSENT) -> Any:
        """The normed x; with `cond`, be it None, that and the gate, [batch, 1, width] or None.

        Raises
        ------
        ValueError
            If the norm needs a condition and gets none, or one of another width.
        """
        wide = x.float()
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        if self.dense is None:
            normed = (normed * (1.0 + self.weight.float())).to(x.dtype)
            return normed if cond is _ABSENT else (normed, None)
        if cond is _ABSENT or cond is None or cond.shape[-1] != self.cond_dim:
            found = "none" if cond is _ABSENT or cond is None else f"one that is {cond.shape[-1]} wide"
            raise ValueError(f"this norm needs a condition that is {self.cond_dim} wide, found {found}")
        modulation = self.dense(cond)
        scale, shift, gate = (modulation.unsqueeze(1) if x.dim() == 3 else modulation).chunk(3, dim=-1)
        return (normed * (1.0 + scale.float()) + shift.float()).to(x.dtype), gate.to(x.dtype)

    def extra_repr(self) -> str:
        """What `print(model)` shows of it."""
        return f"eps={self.eps}, cond_dim={self.cond_dim}"


def decoder_layer(original: Function, options: None) -> Function:
    """Factory for `GemmaDecoderLayer.__init__`."""

    def __init__(self: Any, config: Any, layer_idx: int) -> None:
        original(self, config, layer_idx)
        self.input_layernorm = _norm(config)
        self.post_attention_layernorm = _norm(config)

    return __init__


def model(original: Function, options: None) -> Function:
    """Factory for `GemmaModel.__init__`."""

    def __init__(self: Any, config: Any) -> None:
        original(self, config)
        self.norm = _norm(config)

    return __init__


def model_forward(original: Function, options: None) -> Function:
    """Factory for `GemmaModel.forward`: calls with `adarms_cond` are lerobot's, in which embeddings come scaled.

    While lerobot draws actions it reads the prefix's keys and values in each of its steps, with `use_cache=False`: they
    are not added to.
    """

    def forward(
        self: Any,
        input_ids: Any = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        cache_position: Any = None,
        **kwargs: Any,
    ) -> Any:
        ours = "adarms_cond" in kwargs and inputs_embeds is not None and position_ids is not None
        if not ours or inputs_embeds is None or attention_mask is None or attention_mask.dim() != 4:
            fallback("not lerobot's call")
            arguments = (input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, use_cache)
            return original(self, *arguments, cache_position, **kwargs)
        condition, cache = kwargs["adarms_cond"], past_key_values
        if use_cache and cache is None:
            cache = importlib.import_module("transformers.cache_utils").DynamicCache(config=self.config)
        hidden = inputs_embeds.to(_dtype(self.layers, inputs_embeds.dtype))
        embeddings = self.rotary_emb(hidden, position_ids)
        for layer in self.layers:
            residual = hidden
            hidden, gate = layer.input_layernorm(hidden, cond=condition)
            hidden, _ = layer.self_attn(
                hidden_states=hidden,
                position_embeddings=embeddings,
                attention_mask=attention_mask,
                past_key_values=cache if use_cache or cache is None else _ReadOnly(cache),
            )
            residual = hidden = _added(residual, hidden, gate)
            hidden, gate = layer.post_attention_layernorm(hidden, cond=condition)
            hidden = _added(residual, layer.mlp(hidden), gate)
        hidden, _ = self.norm(hidden, cond=condition)
        output = importlib.import_module("transformers.modeling_outputs").BaseModelOutputWithPast
        return output(last_hidden_state=hidden, past_key_values=cache if use_cache else None)

    return forward


def embed_image(original: Function, options: None) -> Function:
    """Factory for `PaliGemmaWithExpertModel.embed_image`: transformers divides the features by what Gemma scales by."""

    def embed_image(self: Any, image: Tensor) -> Any:
        whole = self.paligemma.model
        return whole.multi_modal_projector(whole.vision_tower(image).last_hidden_state)

    return embed_image


def siglip_encoder(original: Function, options: None) -> Function:
    """Factory for `SiglipEncoder.forward`: lerobot keeps the embeddings in float32 where the layers are bfloat16."""

    def forward(self: Any, inputs_embeds: Tensor, attention_mask: Any = None, **kwargs: Any) -> Any:
        return original(self, inputs_embeds.to(_dtype(self.layers, inputs_embeds.dtype)), attention_mask, **kwargs)

    return forward


class _ReadOnly:
    """Keys and values of a prefix, to which those of a call are joined for that call alone."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def update(self, key: Tensor, value: Tensor, layer: int, settings: Any = None) -> tuple[Tensor, Tensor]:
        keys, values = self._cache[layer][:2]
        return torch.cat((keys, key), dim=2), torch.cat((values, value), dim=2)


def _added(x: Tensor, y: Tensor, gate: Tensor | None) -> Tensor:
    return x + y if gate is None else x + y * gate


def _norm(config: Any) -> ConditionalNorm:
    width = getattr(config, "adarms_cond_dim", None) if getattr(config, "use_adarms", False) else None
    return ConditionalNorm(config.hidden_size, config.rms_norm_eps, width)


def _dtype(layers: Any, default: torch.dtype) -> torch.dtype:
    """bfloat16 where the layers compute in it; else as it is."""
    narrow = len(layers) > 0 and layers[0].self_attn.q_proj.weight.dtype == torch.bfloat16
    return torch.bfloat16 if narrow else default
