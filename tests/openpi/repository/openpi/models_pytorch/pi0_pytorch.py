# SPDX-License-Identifier: Apache-2.0
"""A flow-matching policy in miniature, with the methods and local functions that the groups rely on."""

import math

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

import openpi.models.gemma as _gemma
import openpi.models_pytorch.preprocessing_pytorch as _preprocessing
from openpi.models_pytorch.gemma_pytorch import PaliGemmaWithExpertModel


def make_att_2d_masks(pad_masks, att_masks):
    blocks = torch.cumsum(att_masks, dim=1)
    return (blocks[:, None, :] <= blocks[:, :, None]) & pad_masks[:, None, :] & pad_masks[:, :, None]


class PI0Pytorch(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.pi05 = config.pi05
        vlm, expert = _gemma.get_config(config.paligemma_variant), _gemma.get_config(config.action_expert_variant)
        self.paligemma_with_expert = PaliGemmaWithExpertModel(
            vlm, expert, use_adarms=[False, self.pi05], precision=config.dtype
        )
        self.action_in_proj = nn.Linear(config.action_dim, expert.width)
        self.action_out_proj = nn.Linear(expert.width, config.action_dim)
        self.time_mlp = nn.Linear(expert.width, expert.width)
        self.state_proj = None if self.pi05 else nn.Linear(config.action_dim, expert.width)
        self.gradient_checkpointing_enabled = False

    def gradient_checkpointing_enable(self):
        self.gradient_checkpointing_enabled = True

    def _apply_checkpoint(self, func, *args, **kwargs):
        if self.gradient_checkpointing_enabled and self.training:
            return torch.utils.checkpoint.checkpoint(
                func, *args, use_reentrant=False, preserve_rng_state=False, **kwargs
            )
        return func(*args, **kwargs)

    def _prepare_attention_masks_4d(self, att_2d_masks):
        return torch.where(att_2d_masks[:, None, :, :], 0.0, -2.3819763e38)

    def _preprocess_observation(self, observation, *, train=True):
        observation = _preprocessing.preprocess_observation_pytorch(observation, train=train)
        return (
            list(observation.images.values()),
            list(observation.image_masks.values()),
            observation.tokenized_prompt,
            observation.tokenized_prompt_mask,
            observation.state,
        )

    def embed_prefix(self, images, img_masks, lang_tokens, lang_masks):
        parts, pads = [], []
        for img, img_mask in zip(images, img_masks, strict=True):

            def image_embed_func(img):
                return self.paligemma_with_expert.embed_image(img)

            parts.append(self._apply_checkpoint(image_embed_func, img))
            pads.append(img_mask[:, None].expand(parts[-1].shape[:2]))

        def lang_embed_func(lang_tokens):
            embedded = self.paligemma_with_expert.embed_language_tokens(lang_tokens)
            return embedded * math.sqrt(embedded.shape[-1])

        parts.append(self._apply_checkpoint(lang_embed_func, lang_tokens))
        pads.append(lang_masks)
        pad_masks = torch.cat(pads, dim=1)
        return torch.cat(parts, dim=1), pad_masks, torch.zeros_like(pad_masks)

    def embed_suffix(self, state, noisy_actions, timestep):
        def action_proj_func(noisy_actions):
            return self.action_in_proj(noisy_actions)

        def time_mlp_func(timestep):
            width = self.time_mlp.in_features
            angles = timestep[:, None] * torch.arange(1, width + 1, device=timestep.device)
            return F.silu(self.time_mlp(angles.cos()))

        actions = self._apply_checkpoint(action_proj_func, noisy_actions)
        condition = self._apply_checkpoint(time_mlp_func, timestep)
        att_masks = [1] + [0] * (actions.shape[1] - 1)
        if not self.pi05:
            actions = torch.cat((self.state_proj(state)[:, None], actions + condition[:, None]), dim=1)
            att_masks, condition = [1, *att_masks], None
        pads = torch.ones(actions.shape[:2], dtype=torch.bool, device=actions.device)
        att_masks = torch.tensor(att_masks, dtype=actions.dtype, device=actions.device).expand(pads.shape)
        return actions, pads, att_masks, condition

    def forward(self, observation, actions, noise=None, time=None):
        images, img_masks, tokens, token_masks, state = self._preprocess_observation(observation, train=True)
        noise = torch.randn_like(actions) if noise is None else noise
        time = torch.rand(len(actions), device=actions.device) if time is None else time
        x_t = time[:, None, None] * noise + (1 - time[:, None, None]) * actions
        prefix_embs, prefix_pads, prefix_att = self.embed_prefix(images, img_masks, tokens, token_masks)
        suffix_embs, suffix_pads, suffix_att, adarms_cond = self.embed_suffix(state, x_t, time)
        dtype = self.paligemma_with_expert.paligemma.language_model.layers[0].self_attn.q_proj.weight.dtype
        prefix_embs, suffix_embs = prefix_embs.to(dtype), suffix_embs.to(dtype)
        pad_masks = torch.cat((prefix_pads, suffix_pads), dim=1)
        att_2d_masks = make_att_2d_masks(pad_masks, torch.cat((prefix_att, suffix_att), dim=1))
        position_ids = torch.cumsum(pad_masks, dim=1) - 1
        att_2d_masks_4d = self._prepare_attention_masks_4d(att_2d_masks)

        def forward_func(prefix_embs, suffix_embs, att_2d_masks_4d, position_ids, adarms_cond):
            (_, suffix_out), _ = self.paligemma_with_expert.forward(
                attention_mask=att_2d_masks_4d,
                position_ids=position_ids,
                past_key_values=None,
                inputs_embeds=[prefix_embs, suffix_embs],
                use_cache=False,
                adarms_cond=[None, adarms_cond],
            )
            return suffix_out

        suffix_out = self._apply_checkpoint(
            forward_func, prefix_embs, suffix_embs, att_2d_masks_4d, position_ids, adarms_cond
        )
        suffix_out = suffix_out[:, -self.config.action_horizon :].float()

        def action_out_proj_func(suffix_out):
            return self.action_out_proj(suffix_out)

        return F.mse_loss(noise - actions, self._apply_checkpoint(action_out_proj_func, suffix_out), reduction="none")
