# SPDX-License-Identifier: Apache-2.0
import torch
from torch import nn
from torch.autograd.function import Function, once_differentiable

from mmcv.utils import ext_module


class ModulatedDeformConv2dFunction(Function):
    @staticmethod
    def forward(
        ctx,
        input,
        offset,
        mask,
        weight,
        bias=None,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        deform_groups=1,
    ):
        ctx.save_for_backward(input, offset, mask, weight, bias)
        return ext_module.modulated_deform_conv_forward(input, weight, bias, offset, mask)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return ext_module.modulated_deform_conv_backward(*ctx.saved_tensors, grad_output)


modulated_deform_conv2d = ModulatedDeformConv2dFunction.apply


class ModulatedDeformConv2dPack(nn.Module):
    """The registry's DCNv2."""

    def __init__(self, channels, outputs, *, stride=1, deform_groups=1):
        super().__init__()
        self.stride, self.deform_groups = stride, deform_groups
        self.weight = nn.Parameter(torch.randn(outputs, channels, 3, 3) / 10)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.conv_offset = nn.Conv2d(channels, deform_groups * 27, 3, stride=stride, padding=1)

    def forward(self, x):
        down, right, mask = torch.chunk(self.conv_offset(x), 3, dim=1)
        offset = torch.cat((down, right), dim=1)
        return modulated_deform_conv2d(
            x, offset, torch.sigmoid(mask), self.weight, self.bias, self.stride, 1, 1, 1, self.deform_groups
        )
