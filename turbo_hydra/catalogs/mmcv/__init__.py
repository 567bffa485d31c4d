# SPDX-License-Identifier: Apache-2.0
"""Groups for models that are built of mmcv 1.x."""

from __future__ import annotations

from turbo_hydra import About, group, wrap
from turbo_hydra.catalogs.mmcv import compat  # noqa: F401  its groups come first
from turbo_hydra.catalogs.mmcv.options import DeformConv

_HERE = "turbo_hydra.catalogs.mmcv"
_MSDA = "mmcv.ops.multi_scale_deform_attn"
_DCN = "mmcv.ops.modulated_deform_conv.ModulatedDeformConv2dFunction"
_FOCAL = "mmcv.ops.focal_loss.SigmoidFocalLossFunction"

group(
    "mmcv.msda",
    wrap(f"{_MSDA}.multi_scale_deformable_attn_pytorch", f"{_HERE}.msda.pytorch_path"),
    wrap(f"{_MSDA}.MultiScaleDeformableAttnFunction.forward", f"{_HERE}.msda.function_forward"),
    wrap(f"{_MSDA}.MultiScaleDeformableAttnFunction.backward", f"{_HERE}.msda.function_backward"),
    about=About(
        why="Without a GPU multi-scale deformable attention is a grid_sample for each map, which goes through the "
        "channels of a point with a stride of the whole map, and keeps what it read of all points before it is "
        "weighted. Each query's points are one weighted sum of rows instead, and so are the maps' gradients. On a "
        "device the Triton kernel takes the place of mmcv's operator, which need not be compiled then.",
        memory="less on a CPU: nothing of the size queries x points x channels is kept",
        numerics="close",
        validated="mmcv 1.7.0, torch 2.13 on CPU, float32 and float64; the kernel in Triton's interpreter",
        until="mmcv's PyTorch path reads rows",
    ),
)

group(
    "mmcv.dcn",
    wrap(f"{_DCN}.forward", f"{_HERE}.deform_conv.forward", stack=True),
    wrap(f"{_DCN}.backward", f"{_HERE}.deform_conv.backward", stack=True),
    options=DeformConv,
    about=About(
        purpose="compatibility",
        why="Modulated deformable convolution exists in mmcv's compiled extension alone: a backbone with DCN does not "
        "run where it is not built. Here it is made of PyTorch's operations, with the gradients of input, offset, "
        "mask, weight and bias. Where the extension is there, it is called.",
        memory="as mmcv's operator: one matrix of nine times the image, made again in the backward pass; besides it "
        "indices and weights of 4 x 9 x cells of the result",
        numerics="close",
        validated="torch 2.13 on CPU, float32 and float64, against finite differences and a formula; the extension "
        "itself has not been seen",
        until="mmcv has an operator that needs no compiler",
    ),
)

group(
    "mmcv.dcn_kernel",
    wrap(f"{_DCN}.forward", f"{_HERE}.deform_conv_kernel.forward", stack=True),
    wrap(f"{_DCN}.backward", f"{_HERE}.deform_conv_kernel.backward", stack=True),
    about=About(
        why="In PyTorch's operations the points of a deformable convolution are sorted by what they read for their "
        "gradient. The Triton kernel of deformable attention reads them, and adds up gradients where they belong. "
        "Where the extension is there, or no kernel runs, the call is left as it was.",
        memory="less: neither indices nor weights of 4 x 9 x cells of the result",
        numerics="close",
        validated="torch 2.13 on CPU in Triton's interpreter, float32, against a convolution and mmcv.dcn",
        until="mmcv has an operator that needs no compiler",
    ),
)

group(
    "mmcv.focal_loss",
    wrap(f"{_FOCAL}.forward", f"{_HERE}.focal_loss.forward"),
    wrap(f"{_FOCAL}.backward", f"{_HERE}.focal_loss.backward"),
    about=About(
        purpose="compatibility",
        why="On a device mmdet takes the focal loss of sigmoids from mmcv's compiled extension: a head that is trained "
        "with it ends there where the extension is not built. Here it is made of PyTorch's operations, with its "
        "gradient by formula. Where the extension is there, it is called.",
        memory="a few tensors of rows x classes more",
        numerics="close",
        validated="mmcv 1.7.0, torch 2.13 on CPU, float32 and float64, against a formula and finite differences; torch "
        "2.11 on an H200; the extension itself has not been seen",
        until="mmcv has an operator that needs no compiler",
    ),
)

group(
    "mmcv.attention",
    wrap("mmcv.cnn.bricks.transformer.MultiheadAttention.forward", f"{_HERE}.attention.forward"),
    about=About(
        why="mmcv asks for the attention's weights and drops them, so that torch makes them, keeps them, averages them "
        "over the heads and takes none of its fused kernels. They are not asked for. A fused kernel draws its own "
        "dropout, so the group is off. With dropout on a CPU, where there is no such kernel, mmcv's way is kept.",
        memory="less: no weights of queries x keys are kept",
        numerics="changes training",
        validated="mmcv 1.7.0, torch 2.13 on CPU, float32, without dropout; the fused kernels not yet",
        until="mmcv says need_weights=False",
    ),
)
