# SPDX-License-Identifier: Apache-2.0
"""A decoder in miniature, with the names and calls that the groups rely on."""

import torch
from torch import Tensor, nn
from transformers.activations import PytorchGELUTanh


class GemmaRMSNorm(nn.Module):
    """Plain with a weight, or modulated by a condition; gives the normed input and a gate."""

    def __init__(self, dim, eps=1e-6, cond_dim=None):
        super().__init__()
        self.eps, self.dim, self.cond_dim = eps, dim, cond_dim
        if cond_dim is None:
            self.weight, self.dense = nn.Parameter(0.1 * torch.randn(dim)), None
        else:
            self.dense = nn.Linear(cond_dim, 3 * dim)
            nn.init.normal_(self.dense.weight, std=0.1)

    def _norm(self, x):
        return x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps)

    def forward(self, x, cond=None):
        normed = self._norm(x)
        if cond is None or self.dense is None:
            return (normed * (1.0 + self.weight.float())).to(x.dtype), None
        if cond.shape[-1] != self.cond_dim:
            raise ValueError("wrong condition")
        modulation = self.dense(cond)
        modulation = modulation.unsqueeze(1) if x.dim() == 3 else modulation
        scale, shift, gate = modulation.chunk(3, dim=-1)
        return (normed * (1 + scale.float()) + shift.float()).to(x.dtype), gate.to(x.dtype)


class GemmaMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.width, config.mlp_dim, bias=False)
        self.up_proj = nn.Linear(config.width, config.mlp_dim, bias=False)
        self.down_proj = nn.Linear(config.mlp_dim, config.width, bias=False)
        self.act_fn = PytorchGELUTanh()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class GemmaRotaryEmbedding(nn.Module):
    def __init__(self, head_dim, base=100.0):
        super().__init__()
        exponents = torch.arange(0, head_dim, 2).float() / head_dim
        self.register_buffer("inv_freq", base**-exponents, persistent=False)
        self.attention_scaling = 1.0

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = position_ids[..., None].float() * self.inv_freq.float()
        angles = torch.cat((angles, angles), dim=-1)
        return (angles.cos() * self.attention_scaling).to(x.dtype), (angles.sin() * self.attention_scaling).to(x.dtype)


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def apply_rotary_pos_emb(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def _gated_residual(x, y, gate):
    return x + y if gate is None else x + y * gate


def eager_attention_forward(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    groups = module.num_key_value_groups
    scores = query @ key.repeat_interleave(groups, dim=1).transpose(2, 3) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask[:, :, :, : key.shape[2]]
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    output = weights @ value.repeat_interleave(groups, dim=1)
    return output.transpose(1, 2).contiguous(), weights


class GemmaAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.head_dim, self.scaling = config.head_dim, config.head_dim**-0.5
        self.num_key_value_groups = config.num_heads // config.num_kv_heads
        self.q_proj = nn.Linear(config.width, config.num_heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.width, config.num_kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.width, config.num_kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.num_heads * config.head_dim, config.width, bias=False)


class GemmaDecoderLayer(nn.Module):
    def __init__(self, config, cond_dim):
        super().__init__()
        self.self_attn, self.mlp = GemmaAttention(config), GemmaMLP(config)
        self.input_layernorm = GemmaRMSNorm(config.width, cond_dim=cond_dim)
        self.post_attention_layernorm = GemmaRMSNorm(config.width, cond_dim=cond_dim)


class GemmaModel(nn.Module):
    def __init__(self, config, vocabulary=64, adaptive=False):
        super().__init__()
        cond_dim = config.width if adaptive else None
        self.embed_tokens = nn.Embedding(vocabulary, config.width)
        self.layers = nn.ModuleList([GemmaDecoderLayer(config, cond_dim) for _ in range(config.depth)])
        self.norm = GemmaRMSNorm(config.width, cond_dim=cond_dim)
        self.rotary_emb = GemmaRotaryEmbedding(config.head_dim)
        self.gradient_checkpointing = False


class GemmaForCausalLM(nn.Module):
    def __init__(self, config, adaptive=False):
        super().__init__()
        self.model = GemmaModel(config, adaptive=adaptive)
        self.lm_head = nn.Linear(config.width, 64, bias=False)  # never used, as upstream
