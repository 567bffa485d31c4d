# SPDX-License-Identifier: Apache-2.0
from torch.autograd.function import Function, once_differentiable

from mmcv.utils import ext_module


class SigmoidFocalLossFunction(Function):
    @staticmethod
    def forward(ctx, input, target, gamma=2.0, alpha=0.25, weight=None, reduction="mean"):
        ctx.save_for_backward(input, target)
        return ext_module.sigmoid_focal_loss_forward(input, target, weight, gamma, alpha, reduction)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return ext_module.sigmoid_focal_loss_backward(*ctx.saved_tensors, grad_output)


sigmoid_focal_loss = SigmoidFocalLossFunction.apply
