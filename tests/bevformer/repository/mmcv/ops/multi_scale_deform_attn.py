# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch.autograd.function import Function, once_differentiable

from mmcv.utils import ext_module


class MultiScaleDeformableAttnFunction(Function):
    @staticmethod
    def forward(
        ctx, value, value_spatial_shapes, value_level_start_index, sampling_locations, attention_weights, im2col_step
    ):
        ctx.im2col_step = im2col_step
        tensors = value, value_spatial_shapes, value_level_start_index, sampling_locations, attention_weights
        ctx.save_for_backward(*tensors)
        return ext_module.ms_deform_attn_forward(*tensors, im2col_step=im2col_step)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return ext_module.ms_deform_attn_backward(*ctx.saved_tensors, grad_output, im2col_step=ctx.im2col_step)


def multi_scale_deformable_attn_pytorch(value, value_spatial_shapes, sampling_locations, attention_weights):
    batch, _, heads, width = value.shape
    queries, levels, points = (sampling_locations.shape[axis] for axis in (1, 3, 4))
    maps = value.split([high * wide for high, wide in value_spatial_shapes], dim=1)
    grids = 2 * sampling_locations - 1
    read = []
    for level, (high, wide) in enumerate(value_spatial_shapes):
        image = maps[level].flatten(2).transpose(1, 2).reshape(batch * heads, width, high, wide)
        grid = grids[:, :, :, level].transpose(1, 2).flatten(0, 1)
        read.append(F.grid_sample(image, grid, mode="bilinear", padding_mode="zeros", align_corners=False))
    weights = attention_weights.transpose(1, 2).reshape(batch * heads, 1, queries, levels * points)
    output = (torch.stack(read, dim=-2).flatten(-2) * weights).sum(-1).view(batch, heads * width, queries)
    return output.transpose(1, 2).contiguous()
