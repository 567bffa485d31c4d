# SPDX-License-Identifier: Apache-2.0
"""Two transformers, one attention: prefix (what is seen and said) and action expert meet in every layer."""

import torch
from torch import nn

from tiny_vla.attention import eager_attention
from tiny_vla.config import ModelConfig, StreamConfig
from tiny_vla.layers import GeGLU, RMSNorm, checkpointed, gated_residual
from tiny_vla.rotary import RotaryEmbedding, apply_rotary


class StreamLayer(nn.Module):
    """One transformer's own weights of a layer; one key/value head serves all query heads."""

    def __init__(self, config: ModelConfig, stream: StreamConfig, condition_width: int | None) -> None:
        super().__init__()
        self.head_size = config.head_size
        inner = config.heads * config.head_size
        self.input_norm = RMSNorm(stream.width, condition_width)
        self.q_proj = nn.Linear(stream.width, inner, bias=False)
        self.k_proj = nn.Linear(stream.width, config.head_size, bias=False)
        self.v_proj = nn.Linear(stream.width, config.head_size, bias=False)
        self.o_proj = nn.Linear(inner, stream.width, bias=False)
        self.post_norm = RMSNorm(stream.width, condition_width)
        self.mlp = GeGLU(stream.width, stream.mlp_width)

    def qkv(
        self, x: torch.Tensor, condition: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Query, key and value [batch, heads, length, head_size] of the normed ``x``, and the residual's gate."""
        normed, gate = self.input_norm(x, condition)
        shape = (*normed.shape[:-1], -1, self.head_size)
        query, key, value = (
            proj(normed).view(shape).transpose(1, 2) for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        return query, key, value, gate

    def finish(
        self,
        x: torch.Tensor,
        attended: torch.Tensor,
        gate: torch.Tensor | None,
        condition: torch.Tensor | None,
    ) -> torch.Tensor:
        """Output projection, residual and MLP, after the attention."""
        x = gated_residual(x, self.o_proj(attended), gate)
        normed, gate = self.post_norm(x, condition)
        return gated_residual(x, self.mlp(normed), gate)


class JointLayer(nn.Module):
    """A layer of both transformers."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.prefix = StreamLayer(config, config.prefix, condition_width=None)
        self.expert = StreamLayer(config, config.expert, condition_width=config.expert.width)
        self.scale = config.head_size**-0.5

    def forward(
        self,
        prefix: torch.Tensor,
        suffix: torch.Tensor,
        mask: torch.Tensor,
        position_ids: torch.Tensor,
        condition: torch.Tensor,
        rotary: RotaryEmbedding,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Both streams [batch, length, width] one layer further.

        ``mask`` is additive [batch, 1, L, L] and ``position_ids`` is [batch, L] over L = prefix + suffix tokens;
        ``condition`` [batch, expert width] is the embedded flow-matching time.
        """
        prefix_q, prefix_k, prefix_v, prefix_gate = self.prefix.qkv(prefix, None)
        suffix_q, suffix_k, suffix_v, suffix_gate = self.expert.qkv(suffix, condition)
        query = torch.cat((prefix_q, suffix_q), dim=2)
        key = torch.cat((prefix_k, suffix_k), dim=2)
        value = torch.cat((prefix_v, suffix_v), dim=2)
        cos, sin = rotary(query, position_ids)
        query, key = apply_rotary(query, key, cos, sin)
        attended = eager_attention(query, key, value, mask, self.scale)
        seen, acted = attended[:, : prefix.shape[1]], attended[:, prefix.shape[1] :]
        return (
            self.prefix.finish(prefix, seen, prefix_gate, None),
            self.expert.finish(suffix, acted, suffix_gate, condition),
        )


class JointTransformer(nn.Module):
    """All layers; only the expert's stream comes out, the prefix is there to be attended to."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gradient_checkpointing = config.gradient_checkpointing
        self.layers = nn.ModuleList(JointLayer(config) for _ in range(config.layers))
        self.rotary = RotaryEmbedding(config.head_size)
        self.norm = RMSNorm(config.expert.width, condition_width=config.expert.width)

    def forward(
        self,
        prefix: torch.Tensor,
        suffix: torch.Tensor,
        mask: torch.Tensor,
        position_ids: torch.Tensor,
        condition: torch.Tensor,
    ) -> torch.Tensor:
        """The expert's stream after all layers and the final norm; arguments as in ``JointLayer.forward``."""
        for layer in self.layers:
            if self.gradient_checkpointing:
                prefix, suffix = checkpointed(layer, prefix, suffix, mask, position_ids, condition, self.rotary)
            else:
                prefix, suffix = layer(prefix, suffix, mask, position_ids, condition, self.rotary)
        return self.norm(suffix, condition)[0]
