# SPDX-License-Identifier: Apache-2.0
import torch
from mmcv.utils import ext_module
from torch.amp import custom_bwd, custom_fwd
from torch.autograd.function import Function, once_differentiable


class MultiScaleDeformableAttnFunction_fp32(Function):
    @staticmethod
    @custom_fwd(cast_inputs=torch.float32, device_type="cuda")
    def forward(
        ctx, value, value_spatial_shapes, value_level_start_index, sampling_locations, attention_weights, im2col_step
    ):
        ctx.im2col_step = im2col_step
        tensors = value, value_spatial_shapes, value_level_start_index, sampling_locations, attention_weights
        ctx.save_for_backward(*tensors)
        return ext_module.ms_deform_attn_forward(*tensors, im2col_step=im2col_step)

    @staticmethod
    @once_differentiable
    @custom_bwd(device_type="cuda")
    def backward(ctx, grad_output):
        return ext_module.ms_deform_attn_backward(*ctx.saved_tensors, grad_output, im2col_step=ctx.im2col_step)
