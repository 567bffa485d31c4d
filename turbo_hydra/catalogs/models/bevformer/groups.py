# SPDX-License-Identifier: Apache-2.0
"""Groups that make BEVFormer's training faster."""

from __future__ import annotations

from turbo_hydra import About, group, wrap
from turbo_hydra.catalogs.models.bevformer.options import Compile, Data, Training

_HERE = "turbo_hydra.catalogs.models.bevformer"
_MMCV = "turbo_hydra.catalogs.mmcv"
_SHARED = "turbo_hydra.catalogs.shared"
_PLUGIN = "projects.mmdet3d_plugin"
_PARTS = f"{_PLUGIN}.bevformer.modules"
_FUNCTION = f"{_PARTS}.multi_scale_deformable_attn_function.MultiScaleDeformableAttnFunction_fp32"
_ENCODER = f"{_PARTS}.encoder.BEVFormerEncoder"
_HEAD = f"{_PLUGIN}.bevformer.dense_heads.bevformer_head.BEVFormerHead"
_VALIDATED = "BEVFormer at 66b65f3, torch 2.13 on CPU, float32; a small model of the same structure. No device yet"

group(
    "bevformer.msda",
    wrap(f"{_FUNCTION}.forward", f"{_MMCV}.msda.function_forward"),
    wrap(f"{_FUNCTION}.backward", f"{_MMCV}.msda.function_backward"),
    # What all three attentions call without a GPU is mmcv's, under three names.
    depends_on=("mmcv.msda",),
    about=About(
        why="On a device all three attentions call an operator of mmcv's extension through the plugin's own copy of "
        "mmcv's Function, which mmcv.msda does not reach. The Triton kernel takes the operator's place, which need not "
        "be compiled then.",
        memory="none",
        numerics="close",
        validated=f"{_VALIDATED}; the kernel in Triton's interpreter",
        until="the plugin calls mmcv's own Function",
    ),
)

group(
    "bevformer.sca",
    wrap(f"{_PARTS}.spatial_cross_attention.SpatialCrossAttention.forward", f"{_HERE}.sca.cross_attention"),
    wrap(f"{_PARTS}.spatial_cross_attention.MSDeformableAttention3D.forward", f"{_HERE}.sca.camera_attention"),
    about=About(
        why="Each layer looks for the queries that each camera sees, waits for the device for each, and copies them "
        "camera by camera and sample by sample into a batch and back. Which they are is the same in all layers: they "
        "are looked for once, with one transfer, and copied in one operation each way.",
        memory="the batch's indices are kept for a step; one copy of the camera features less",
        numerics="close",
        validated=_VALIDATED,
        until="BEVFormer finds them once",
    ),
)

group(
    "bevformer.tsa",
    wrap(f"{_PARTS}.temporal_self_attention.TemporalSelfAttention.forward", f"{_HERE}.tsa.forward"),
    about=About(
        why="The maps of then and of now are attended in a batch of their own each, and the two results are averaged; "
        "offsets, weights and results are copied into that order and out of it. As two levels of one attention they "
        "are summed where they are read. The sum of the shapes is compared once, not in each layer.",
        memory="less: one result instead of two, no copies of offsets and weights",
        numerics="close",
        validated=_VALIDATED,
    ),
)

group(
    "bevformer.decoder_attention",
    wrap(f"{_PARTS}.decoder.CustomMSDeformableAttention.forward", f"{_HERE}.decoder_attention.forward"),
    about=About(
        why="Each decoder layer adds up the shapes of its one map on the device and waits for the sum, to compare it. "
        "It is compared once a step.",
        memory="none",
        numerics="bitwise",
        validated=_VALIDATED,
        until="BEVFormer compares on the host",
    ),
)

group(
    "bevformer.geometry",
    wrap(f"{_ENCODER}.get_reference_points", f"{_HERE}.reference_points.get_reference_points"),
    wrap(f"{_ENCODER}.point_sampling", f"{_HERE}.point_sampling.point_sampling", stack=True),
    wrap(f"{_PARTS}.encoder.BEVFormerLayer.forward", f"{_HERE}.encoder_layer.forward", stack=True),
    wrap(f"{_PARTS}.transformer.PerceptionTransformer.get_bev_features", f"{_HERE}.bev_features.get_bev_features"),
    wrap(
        "mmdet.models.utils.positional_encoding.LearnedPositionalEncoding.forward",
        f"{_HERE}.positional_encoding.forward",
    ),
    about=About(
        why="Reference points and sizes are made anew in each call or layer, and sizes are sent to the device each "
        "time; the projection into the cameras repeats a matrix for each point and multiplies them one by one; the "
        "positional encoding is copied twice into a layout that each sum with a query turns round. What depends on "
        "sizes is made once, the projection scales and adds rows, the encoding lies as the queries do.",
        memory="less: no matrices repeated for each point",
        numerics="close",
        validated=_VALIDATED,
    ),
)

group(
    "bevformer.conv_tf32",
    wrap(f"{_ENCODER}.point_sampling", f"{_HERE}.conv_tf32.point_sampling", stack=True),
    about=About(
        why="Projecting the pillars, BEVFormer switches TF32 off and then leaves convolutions with the setting of "
        "matrix products, which is off: from the second iteration on the backbone convolves in full float32, in the "
        "first in TF32. Convolutions keep what they were set to. Off, since they have fewer digits then.",
        memory="none",
        numerics="changes training",
        validated="the setting itself; TF32 needs a device",
        until="BEVFormer restores what it has changed",
    ),
)

group(
    "bevformer.grid_mask",
    wrap(f"{_PLUGIN}.models.utils.grid_mask.GridMask.forward", f"{_HERE}.grid_mask.forward", stack=True),
    about=About(
        why="A mask half as large again as the image is cut row by row in NumPy, turned by an angle that is 0 and sent "
        "to the device, which is waited for. Height plus width numbers say the same; the mask is made of them where "
        "the images are. What is drawn, and in which order, stays.",
        memory="less",
        numerics="bitwise",
        validated=_VALIDATED,
    ),
)

group(
    "bevformer.assigner",
    wrap(f"{_HEAD}.loss", f"{_HERE}.assigner.loss"),
    wrap(f"{_HEAD}._get_target_single", f"{_HERE}.assigner.get_target_single"),
    about=About(
        why="Predictions are matched with boxes layer by layer: each copies its costs to the host, waits, sends the "
        "match back and looks for it on the device, which waits three times more. The costs of all layers are made and "
        "copied together, by the assigner's own functions, and what was matched is known without looking.",
        memory="the costs of all layers at once",
        numerics="bitwise",
        validated=_VALIDATED,
    ),
)

group(
    "bevformer.data",
    wrap(f"{_PLUGIN}.datasets.builder.build_dataloader", f"{_HERE}.dataloader.build_dataloader"),
    wrap("mmdet3d.datasets.pipelines.loading.LoadMultiViewImageFromFiles.__call__", f"{_HERE}.loading.load"),
    options=Data,
    about=About(
        why="Camera images are slices of a stack whose last axis is the camera, so that all augmentation strides; "
        "they are arrays of their own. Batches are not pinned, and could not be in mmcv's containers; they are, where "
        "there is an accelerator, and more are ready. Workers stay from epoch to epoch by upstream's own choice. Each "
        "frame is decoded for each sample that it is in: with `frames` set, a process keeps the last ones, which pays "
        "where samples are near each other in time (a small data set, or one that is not shuffled).",
        memory="pinned host memory, batches ahead, and 52 MB a kept frame of six images of 900 x 1600",
        numerics="bitwise",
        validated=f"{_VALIDATED}; pinning has not been seen on a device",
        backward=False,
    ),
)

group(
    "bevformer.training",
    wrap("torch.optim.AdamW.__init__", f"{_SHARED}.fused_adamw.adamw"),
    wrap("torch.nn.parallel.distributed.DistributedDataParallel.__init__", f"{_SHARED}.ddp_state.init"),
    options=Training,
    about=About(
        why="BEVFormer's AdamW makes several passes over each parameter, one parameter a group; the fused kernel makes "
        "one. With several ranks gradients live in the buckets that are exchanged. What the script gives stays as "
        "given (buffers are not sent), and the batch size is the user's.",
        memory="with several ranks less: one copy of the gradients instead of two",
        numerics="close",
        validated=_VALIDATED,
        backward=False,
    ),
)

group(
    "bevformer.compile_encoder",
    wrap(f"{_PARTS}.encoder.BEVFormerLayer.forward", f"{_HERE}.compiling.encoder_layer", stack=True),
    options=Compile,
    compatibility_check=f"{_HERE}.compiling.check",
    about=About(
        why="Norms, residuals, softmax and the places where the attentions read are separate passes. An encoder layer "
        "is compiled, once for all six; its graph ends where the queries that a camera sees are counted.",
        memory="less: fewer intermediate results are kept",
        numerics="changes training",
        validated=f"{_VALIDATED}; Inductor on a CPU, without dropout, of which it draws other numbers",
        compiles=True,
    ),
)

group(
    "bevformer.compile_decoder",
    wrap(f"{_PARTS}.decoder.DetectionTransformerDecoder.forward", f"{_HERE}.compiling.decoder"),
    options=Compile,
    compatibility_check=f"{_HERE}.compiling.check",
    about=About(
        why="Six decoder layers of 900 queries are many small operations, whose launches take longer than they do. "
        "They are compiled together with the refinement of the boxes between them.",
        memory="less: fewer intermediate results are kept",
        numerics="changes training",
        validated=f"{_VALIDATED}; Inductor on a CPU, without dropout, of which it draws other numbers",
        compiles=True,
    ),
)
