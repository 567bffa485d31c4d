# SPDX-License-Identifier: Apache-2.0
import torch
from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch
from torch import nn

from .multi_scale_deformable_attn_function import MultiScaleDeformableAttnFunction_fp32


class TemporalSelfAttention(nn.Module):
    def __init__(self, embed_dims=256, num_heads=8, num_levels=4, num_points=4, im2col_step=64, dropout=0.1):
        super().__init__()
        self.dropout, self.batch_first, self.im2col_step, self.num_bev_queue = nn.Dropout(dropout), True, im2col_step, 2
        self.embed_dims, self.num_heads, self.num_levels, self.num_points = (
            embed_dims,
            num_heads,
            num_levels,
            num_points,
        )
        self.sampling_offsets = nn.Linear(embed_dims * 2, 2 * num_heads * num_levels * num_points * 2)
        self.attention_weights = nn.Linear(embed_dims * 2, 2 * num_heads * num_levels * num_points)
        self.value_proj, self.output_proj = nn.Linear(embed_dims, embed_dims), nn.Linear(embed_dims, embed_dims)
        self.fp16_enabled = False

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
        if value is None:
            bs, len_bev, c = query.shape
            value = torch.stack([query, query], 1).reshape(bs * 2, len_bev, c)
        identity = query if identity is None else identity
        query = query if query_pos is None else query + query_pos
        bs, num_query, embed_dims = query.shape
        _, num_value, _ = value.shape
        assert (spatial_shapes[:, 0] * spatial_shapes[:, 1]).sum() == num_value
        query = torch.cat([value[:bs], query], -1)
        value = self.value_proj(value)
        if key_padding_mask is not None:
            value = value.masked_fill(key_padding_mask[..., None], 0.0)
        value = value.reshape(bs * 2, num_value, self.num_heads, -1)
        of = (self.num_levels, self.num_points)
        offsets = self.sampling_offsets(query).view(bs, num_query, self.num_heads, 2, *of, 2)
        weights = self.attention_weights(query).view(bs, num_query, self.num_heads, 2, -1).softmax(-1)
        weights = weights.view(bs, num_query, self.num_heads, 2, *of).permute(0, 3, 1, 2, 4, 5)
        weights = weights.reshape(bs * 2, num_query, self.num_heads, *of).contiguous()
        offsets = offsets.permute(0, 3, 1, 2, 4, 5, 6).reshape(bs * 2, num_query, self.num_heads, *of, 2)
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
        output = output.permute(1, 2, 0).view(num_query, embed_dims, bs, 2).mean(-1).permute(2, 0, 1)
        return self.dropout(self.output_proj(output)) + identity
