# SPDX-License-Identifier: Apache-2.0
"""Two decoders that share their attention, layer by layer."""

from types import SimpleNamespace

import torch
from torch import nn
from transformers.models.gemma import modeling_gemma
from transformers.models.gemma.modeling_gemma import GemmaForCausalLM
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration


class PaliGemmaWithExpertModel(nn.Module):
    def __init__(self, vlm_config, action_expert_config, use_adarms=None, precision="bfloat16"):
        super().__init__()
        vision_config = SimpleNamespace(projection_dim=32)  # fixed, as upstream
        self.paligemma = PaliGemmaForConditionalGeneration(
            SimpleNamespace(text_config=vlm_config, vision_config=vision_config)
        )
        self.gemma_expert = GemmaForCausalLM(action_expert_config, adaptive=use_adarms[1])
        self.gemma_expert.model.embed_tokens = None
        self.to_bfloat16_for_selected_params(precision)

    def to_bfloat16_for_selected_params(self, precision="bfloat16"):
        self.to(dtype=getattr(torch, precision))
        for name, parameter in self.named_parameters():
            if any(part in name for part in ("patch_embedding", "input_layernorm", "post_attention", "model.norm")):
                parameter.data = parameter.data.float()

    def embed_image(self, image):
        return self.paligemma.model.get_image_features(image)

    def embed_language_tokens(self, tokens):
        return self.paligemma.language_model.embed_tokens(tokens)

    def forward(
        self,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        inputs_embeds=None,
        use_cache=None,
        adarms_cond=None,
    ):
        models = [self.paligemma.language_model, self.gemma_expert.model]
        adarms_cond = adarms_cond or [None, None]
        checkpointing = self.training  # whatever the flags say, as upstream

        def compute_layer_complete(layer_idx, inputs_embeds, attention_mask, position_ids, adarms_cond):
            parts, gates = [], []
            for model, hidden_states, condition in zip(models, inputs_embeds, adarms_cond, strict=True):
                layer = model.layers[layer_idx]
                hidden_states, gate = layer.input_layernorm(hidden_states, cond=condition)
                gates.append(gate)
                shape = (*hidden_states.shape[:-1], -1, layer.self_attn.head_dim)
                projections = (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
                hidden_states = hidden_states.to(layer.self_attn.q_proj.weight.dtype)
                parts.append([project(hidden_states).view(shape).transpose(1, 2) for project in projections])
            query, key, value = (torch.cat(part, dim=2) for part in zip(*parts, strict=True))
            like = torch.zeros(query.shape[0], query.shape[2], query.shape[3], device=query.device, dtype=query.dtype)
            cos, sin = self.paligemma.model.language_model.rotary_emb(like, position_ids)
            query, key = modeling_gemma.apply_rotary_pos_emb(query, key, cos, sin, unsqueeze_dim=1)
            first = models[0].layers[layer_idx].self_attn
            attended, _ = modeling_gemma.eager_attention_forward(
                first, query, key, value, attention_mask, first.scaling
            )
            attended = attended.reshape(query.shape[0], -1, 8 * first.head_dim)
            outputs, start = [], 0
            for index, hidden_states in enumerate(inputs_embeds):
                layer = models[index].layers[layer_idx]
                end = start + hidden_states.shape[1]
                out = layer.self_attn.o_proj(attended[:, start:end].to(layer.self_attn.o_proj.weight.dtype))
                out = modeling_gemma._gated_residual(hidden_states, out, gates[index])
                residual = out.clone()
                out, gate = layer.post_attention_layernorm(out, cond=adarms_cond[index])
                out = layer.mlp(out.to(layer.mlp.up_proj.weight.dtype))
                outputs.append(modeling_gemma._gated_residual(residual, out, gate))
                start = end
            return outputs

        def compute_final_norms(inputs_embeds, adarms_cond):
            return [models[i].norm(item, cond=adarms_cond[i])[0] for i, item in enumerate(inputs_embeds)]

        for layer_idx in range(len(models[0].layers)):
            arguments = (layer_idx, inputs_embeds, attention_mask, position_ids, adarms_cond)
            if checkpointing:
                inputs_embeds = torch.utils.checkpoint.checkpoint(
                    compute_layer_complete, *arguments, use_reentrant=False, preserve_rng_state=False
                )
            else:
                inputs_embeds = compute_layer_complete(*arguments)
        if checkpointing:
            outputs = torch.utils.checkpoint.checkpoint(
                compute_final_norms, inputs_embeds, adarms_cond, use_reentrant=False, preserve_rng_state=False
            )
        else:
            outputs = compute_final_norms(inputs_embeds, adarms_cond)
        return [outputs[0], outputs[1]], None
