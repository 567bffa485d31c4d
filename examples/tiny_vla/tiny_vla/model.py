# SPDX-License-Identifier: Apache-2.0
"""The policy."""

import torch
import torch.nn.functional as F
from torch import nn

from tiny_vla.attention import make_attention_mask
from tiny_vla.config import ModelConfig
from tiny_vla.flow import embed_time, sample_time
from tiny_vla.joint import JointTransformer
from tiny_vla.vision import PatchEncoder


class TinyVLA(nn.Module):
    """Camera frames, an instruction and proprioception to a chunk of actions.

    Symbols: B batch, C cameras, T instruction tokens, H horizon, A action size, L tokens of prefix and suffix.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width, expert_width = config.prefix.width, config.expert.width
        self.vision = PatchEncoder(config)
        self.instruction = nn.Embedding(config.vocabulary, width)
        self.proprio = nn.Linear(config.proprio_size, width)
        self.action_in = nn.Linear(config.action_size, expert_width)
        self.action_out = nn.Linear(expert_width, config.action_size)
        self.time_in = nn.Linear(expert_width, expert_width)
        self.time_out = nn.Linear(expert_width, expert_width)
        self.transformer = JointTransformer(config)

    def embed_prefix(
        self, images: torch.Tensor, tokens: torch.Tensor, token_mask: torch.Tensor, proprio: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Prefix [B, P, width] of images [B, C, 3, h, w], tokens [B, T] and proprio [B, 4]; what of it is present."""
        batch = len(images)
        parts = [self.vision(images[:, camera]) for camera in range(images.shape[1])]
        present = [torch.ones(batch, part.shape[1], dtype=torch.bool, device=images.device) for part in parts]
        parts.append(self.instruction(tokens))
        present.append(token_mask)
        parts.append(self.proprio(proprio)[:, None])
        present.append(torch.ones(batch, 1, dtype=torch.bool, device=images.device))
        return torch.cat(parts, dim=1), torch.cat(present, dim=1)

    def embed_suffix(self, noisy: torch.Tensor, time: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Action tokens [B, H, width] of noisy actions [B, H, A], and the condition [B, width] of time [B]."""
        condition = F.silu(self.time_in(embed_time(time, self.config.expert.width)))
        condition = F.silu(self.time_out(condition))
        return self.action_in(noisy), condition

    def velocity(
        self, prefix: torch.Tensor, present: torch.Tensor, noisy: torch.Tensor, time: torch.Tensor
    ) -> torch.Tensor:
        """The velocity [B, H, A] at ``noisy`` and ``time``, given the prefix."""
        suffix, condition = self.embed_suffix(noisy, time)
        present = torch.cat((present, present.new_ones(suffix.shape[:2])), dim=1)
        new_block = torch.zeros(present.shape[1], dtype=torch.bool, device=present.device)
        new_block[prefix.shape[1]] = True  # the prefix does not see the actions
        mask = make_attention_mask(present, new_block)
        position_ids = torch.cumsum(present, dim=1) - 1
        return self.action_out(self.transformer(prefix, suffix, mask, position_ids, condition))

    def forward(
        self,
        images: torch.Tensor,
        tokens: torch.Tensor,
        token_mask: torch.Tensor,
        proprio: torch.Tensor,
        actions: torch.Tensor,
    ) -> torch.Tensor:
        """The flow-matching loss [B, H, A], not reduced."""
        noise = torch.randn_like(actions)
        time = sample_time(len(actions), actions.device)
        noisy = time[:, None, None] * noise + (1 - time[:, None, None]) * actions
        prefix, present = self.embed_prefix(images, tokens, token_mask, proprio)
        return F.mse_loss(self.velocity(prefix, present, noisy, time), noise - actions, reduction="none")

    @torch.no_grad()
    def sample(
        self,
        images: torch.Tensor,
        tokens: torch.Tensor,
        token_mask: torch.Tensor,
        proprio: torch.Tensor,
        noise: torch.Tensor,
        steps: int = 10,
    ) -> torch.Tensor:
        """Actions [B, H, A] by Euler steps from ``noise`` at time 1 to time 0."""
        prefix, present = self.embed_prefix(images, tokens, token_mask, proprio)
        actions = noise
        for step in range(steps):
            time = torch.full((len(actions),), 1.0 - step / steps, device=actions.device)
            actions = actions - self.velocity(prefix, present, actions, time) / steps
        return actions
