# SPDX-License-Identifier: Apache-2.0
import torch
from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch
from mmcv.runner import force_fp32
from torch import nn

from .multi_scale_deformable_attn_function import MultiScaleDeformableAttnFunction_fp32


class MSDeformableAttention3D(nn.Module):
    def __init__(self, embed_dims=256, num_heads=8, num_levels=4, num_points=8, im2col_step=64, batch_first=True):
        super().__init__()
        self.batch_first, self.im2col_step = batch_first, im2col_step
        self.embed_dims, self.num_heads, self.num_levels, self.num_points = (
            embed_dims,
            num_heads,
            num_levels,
            num_points,
        )
        self.sampling_offsets = nn.Linear(embed_dims, num_heads * num_levels * num_points * 2)
        self.attention_weights = nn.Linear(embed_dims, num_heads * num_levels * num_points)
        self.value_proj = nn.Linear(embed_dims, embed_dims)
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
        **kwargs,
    ):
        value = query if value is None else value
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
        if reference_points.shape[-1] != 2:
            raise ValueError("reference points must be x and y")
        normalizer = torch.stack([spatial_shapes[..., 1], spatial_shapes[..., 0]], -1)
        bs, num_query, anchors, xy = reference_points.shape
        offsets = offsets / normalizer[None, None, None, :, None, :]
        offsets = offsets.view(bs, num_query, *of[:2], self.num_points // anchors, anchors, xy)
        locations = reference_points[:, :, None, None, None, :, :] + offsets
        locations = locations.view(bs, num_query, *of, xy)
        if torch.cuda.is_available() and value.is_cuda:
            output = MultiScaleDeformableAttnFunction_fp32.apply(
                value, spatial_shapes, level_start_index, locations, weights, self.im2col_step
            )
        else:
            output = multi_scale_deformable_attn_pytorch(value, spatial_shapes, locations, weights)
        return output if self.batch_first else output.permute(1, 0, 2)


class SpatialCrossAttention(nn.Module):
    def __init__(self, embed_dims=256, num_cams=6, dropout=0.1, deformable_attention=None):
        super().__init__()
        self.dropout, self.embed_dims, self.num_cams = nn.Dropout(dropout), embed_dims, num_cams
        self.deformable_attention = MSDeformableAttention3D(embed_dims, **deformable_attention)
        self.output_proj = nn.Linear(embed_dims, embed_dims)
        self.fp16_enabled = False

    @force_fp32(apply_to=("query", "key", "value", "query_pos", "reference_points_cam"))
    def forward(
        self,
        query,
        key,
        value,
        residual=None,
        query_pos=None,
        key_padding_mask=None,
        reference_points=None,
        spatial_shapes=None,
        reference_points_cam=None,
        bev_mask=None,
        level_start_index=None,
        flag="encoder",
        **kwargs,
    ):
        key = query if key is None else key
        value = key if value is None else value
        if residual is None:
            inp_residual = query
            slots = torch.zeros_like(query)
        query = query if query_pos is None else query + query_pos
        bs, _, _ = query.size()
        depth = reference_points_cam.size(3)
        indexes = [mask[0].sum(-1).nonzero().squeeze(-1) for mask in bev_mask]
        longest = max(len(each) for each in indexes)
        queries = query.new_zeros([bs, self.num_cams, longest, self.embed_dims])
        references = reference_points_cam.new_zeros([bs, self.num_cams, longest, depth, 2])
        for j in range(bs):
            for i, points in enumerate(reference_points_cam):
                queries[j, i, : len(indexes[i])] = query[j, indexes[i]]
                references[j, i, : len(indexes[i])] = points[j, indexes[i]]
        _, cells, bs, width = key.shape
        key = key.permute(2, 0, 1, 3).reshape(bs * self.num_cams, cells, width)
        value = value.permute(2, 0, 1, 3).reshape(bs * self.num_cams, cells, width)
        attended = self.deformable_attention(
            query=queries.view(bs * self.num_cams, longest, width),
            key=key,
            value=value,
            reference_points=references.view(bs * self.num_cams, longest, depth, 2),
            spatial_shapes=spatial_shapes,
            level_start_index=level_start_index,
        ).view(bs, self.num_cams, longest, width)
        for j in range(bs):
            for i, index in enumerate(indexes):
                slots[j, index] += attended[j, i, : len(index)]
        count = (bev_mask.sum(-1) > 0).permute(1, 2, 0).sum(-1)
        slots = slots / torch.clamp(count, min=1.0)[..., None]
        return self.dropout(self.output_proj(slots)) + inp_residual
