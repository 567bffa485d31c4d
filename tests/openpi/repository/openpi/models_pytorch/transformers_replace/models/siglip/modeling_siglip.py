# SPDX-License-Identifier: Apache-2.0
"""An image encoder in miniature."""

from torch import nn
from transformers.activations import PytorchGELUTanh
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

SIZE, PATCH, WIDTH, HEADS = 8, 4, 16, 2


class SiglipMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.activation_fn = PytorchGELUTanh()
        self.fc1, self.fc2 = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def forward(self, hidden_states):
        return self.fc2(self.activation_fn(self.fc1(hidden_states)))


class SiglipEncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out_proj, self.mlp = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), SiglipMLP()

    def forward(self, hidden_states):
        batch, length, _ = hidden_states.shape
        split = self.qkv(self.layer_norm1(hidden_states)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended, _ = ALL_ATTENTION_FUNCTIONS["sdpa"](self, *split, None, is_causal=False)
        hidden_states = hidden_states + self.out_proj(attended.flatten(2))
        return hidden_states + self.mlp(self.layer_norm2(hidden_states))


class SiglipVisionModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embedding = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.layers = nn.ModuleList([SiglipEncoderLayer() for _ in range(1)])
        self.post_layernorm = nn.LayerNorm(WIDTH)
        self.gradient_checkpointing = False

    def forward(self, pixel_values):
        hidden_states = self.patch_embedding(pixel_values.to(self.patch_embedding.weight.dtype))
        hidden_states = hidden_states.flatten(2).transpose(1, 2).to(self.post_layernorm.weight.dtype)
        for layer in self.layers:
            hidden_states = layer(hidden_states)
        return self.post_layernorm(hidden_states)
