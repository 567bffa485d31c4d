# SPDX-License-Identifier: Apache-2.0
import torch
from mmcv.cnn.bricks.transformer import FFN, MultiheadAttention
from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch
from mmcv.utils import deprecated_api_warning
from torch import nn

from .multi_scale_deformable_attn_function import MultiScaleDeformableAttnFunction_fp32


def inverse_sigmoid(x, eps=1e-5):
    x = x.clamp(min=0, max=1)
    return torch.log(x.clamp(min=eps) / (1 - x).clamp(min=eps))


class CustomMSDeformableAttention(nn.Module):
    def __init__(self, embed_dims, num_heads, num_levels=1, num_points=4, im2col_step=64, dropout=0.1):
        super().__init__()
        self.dropout, self.batch_first, self.im2col_step = nn.Dropout(dropout), False, im2col_step
        self.embed_dims, self.num_heads, self.num_levels, self.num_points = (
            embed_dims,
            num_heads,
            num_levels,
            num_points,
        )
        self.sampling_offsets = nn.Linear(embed_dims, num_heads * num_levels * num_points * 2)
        self.attention_weights = nn.Linear(embed_dims, num_heads * num_levels * num_points)
        self.value_proj, self.output_proj = nn.Linear(embed_dims, embed_dims), nn.Linear(embed_dims, embed_dims)

    @deprecated_api_warning({"residual": "identity"}, cls_name="MultiScaleDeformableAttention")
    def forward(
        self,
        query,
        key=None,
        value=None,
        identity=None,
        query_pos=None,
        key_padding_mask=None,
        reference_points=None,
        spatial_shapes=None,
        level_start_index=None,
        flag="decoder",
        **kwargs,
    ):
        value = query if value is None else value
        identity = query if identity is None else identity
        query = query if query_pos is None else query + query_pos
        if not self.batch_first:
            query, value = query.permute(1, 0, 2), value.permute(1, 0, 2)
        bs, num_query, _ = query.shape
        bs, num_value, _ = value.shape
        assert (spatial_shapes[:, 0] * spatial_shapes[:, 1]).sum() == num_value
        value = self.value_proj(value)
        if key_padding_mask is not None:
            value = value.masked_fill(key_padding_mask[..., None], 0.0)
        value = value.view(bs, num_value, self.num_heads, -1)
        of = (self.num_heads, self.num_levels, self.num_points)
        offsets = self.sampling_offsets(query).view(bs, num_query, *of, 2)
        weights = self.attention_weights(query).view(bs, num_query, self.num_heads, -1).softmax(-1)
        weights = weights.view(bs, num_query, *of)
        normalizer = torch.stack([spatial_shapes[..., 1], spatial_shapes[..., 0]], -1)
        if reference_points.shape[-1] == 2:
            locations = reference_points[:, :, None, :, None, :] + offsets / normalizer[None, None, None, :, None, :]
        else:
            by_size = reference_points[:, :, None, :, None, 2:] * 0.5
            locations = reference_points[:, :, None, :, None, :2] + offsets / self.num_points * by_size
        if torch.cuda.is_available() and value.is_cuda:
            output = MultiScaleDeformableAttnFunction_fp32.apply(
                value, spatial_shapes, level_start_index, locations, weights, self.im2col_step
            )
        else:
            output = multi_scale_deformable_attn_pytorch(value, spatial_shapes, locations, weights)
        output = self.output_proj(output)
        output = output if self.batch_first else output.permute(1, 0, 2)
        return self.dropout(output) + identity


class DetrTransformerDecoderLayer(nn.Module):
    """mmdet's, as far as it is used."""

    def __init__(self, embed_dims, num_heads, feedforward_channels, dropout):
        super().__init__()
        self.attentions = nn.ModuleList(
            [
                MultiheadAttention(embed_dims, num_heads, dropout),
                CustomMSDeformableAttention(embed_dims, num_heads, dropout=dropout),
            ]
        )
        self.ffns = nn.ModuleList([FFN(embed_dims, feedforward_channels, dropout)])
        self.norms = nn.ModuleList([nn.LayerNorm(embed_dims) for _ in range(3)])

    def forward(self, query, key=None, value=None, query_pos=None, **kwargs):
        query = self.attentions[0](query, query, query, None, query_pos=query_pos, key_pos=query_pos, **kwargs)
        query = self.norms[0](query)
        query = self.attentions[1](query, key, value, None, query_pos=query_pos, **kwargs)
        return self.norms[2](self.ffns[0](self.norms[1](query), None))


class DetectionTransformerDecoder(nn.Module):
    def __init__(self, num_layers, **layer):
        super().__init__()
        self.layers = nn.ModuleList([DetrTransformerDecoderLayer(**layer) for _ in range(num_layers)])
        self.return_intermediate = True
        self.fp16_enabled = False

    def forward(self, query, *args, reference_points=None, reg_branches=None, key_padding_mask=None, **kwargs):
        output = query
        intermediate, references = [], []
        for lid, layer in enumerate(self.layers):
            points = reference_points[..., :2].unsqueeze(2)
            output = layer(output, *args, reference_points=points, key_padding_mask=key_padding_mask, **kwargs)
            if reg_branches is not None:
                tmp = reg_branches[lid](output.permute(1, 0, 2))
                refined = torch.zeros_like(reference_points)
                refined[..., :2] = tmp[..., :2] + inverse_sigmoid(reference_points[..., :2])
                refined[..., 2:3] = tmp[..., 4:5] + inverse_sigmoid(reference_points[..., 2:3])
                reference_points = refined.sigmoid().detach()
            intermediate.append(output)
            references.append(reference_points)
        return torch.stack(intermediate), torch.stack(references)
