# SPDX-License-Identifier: Apache-2.0
import copy

import numpy as np
import torch
from mmcv.cnn.bricks.transformer import FFN
from mmcv.runner import auto_fp16, force_fp32
from torch import nn

from .spatial_cross_attention import SpatialCrossAttention
from .temporal_self_attention import TemporalSelfAttention


class BEVFormerEncoder(nn.Module):
    def __init__(self, num_layers, pc_range, num_points_in_pillar=4, **layer):
        super().__init__()
        self.layers = nn.ModuleList([BEVFormerLayer(**layer) for _ in range(num_layers)])
        self.pc_range, self.num_points_in_pillar = pc_range, num_points_in_pillar
        self.fp16_enabled = False

    @staticmethod
    def get_reference_points(H, W, Z=8, num_points_in_pillar=4, dim="3d", bs=1, device="cuda", dtype=torch.float):
        if dim == "3d":
            count = num_points_in_pillar
            zs = torch.linspace(0.5, Z - 0.5, count, dtype=dtype, device=device).view(-1, 1, 1).expand(count, H, W) / Z
            xs = torch.linspace(0.5, W - 0.5, W, dtype=dtype, device=device).view(1, 1, W).expand(count, H, W) / W
            ys = torch.linspace(0.5, H - 0.5, H, dtype=dtype, device=device).view(1, H, 1).expand(count, H, W) / H
            ref_3d = torch.stack((xs, ys, zs), -1).permute(0, 3, 1, 2).flatten(2).permute(0, 2, 1)
            return ref_3d[None].repeat(bs, 1, 1, 1)
        ref_y, ref_x = torch.meshgrid(
            torch.linspace(0.5, H - 0.5, H, dtype=dtype, device=device),
            torch.linspace(0.5, W - 0.5, W, dtype=dtype, device=device),
            indexing="ij",
        )
        ref_2d = torch.stack((ref_x.reshape(-1)[None] / W, ref_y.reshape(-1)[None] / H), -1)
        return ref_2d.repeat(bs, 1, 1).unsqueeze(2)

    @force_fp32(apply_to=("reference_points", "img_metas"))
    def point_sampling(self, reference_points, pc_range, img_metas):
        allow_tf32 = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        lidar2img = reference_points.new_tensor(np.asarray([meta["lidar2img"] for meta in img_metas]))
        reference_points = reference_points.clone()
        for axis in range(3):
            low, high = pc_range[axis], pc_range[axis + 3]
            reference_points[..., axis] = reference_points[..., axis] * (high - low) + low
        reference_points = torch.cat((reference_points, torch.ones_like(reference_points[..., :1])), -1)
        reference_points = reference_points.permute(1, 0, 2, 3)
        D, B, num_query = reference_points.size()[:3]
        num_cam = lidar2img.size(1)
        points = reference_points.view(D, B, 1, num_query, 4).repeat(1, 1, num_cam, 1, 1).unsqueeze(-1)
        lidar2img = lidar2img.view(1, B, num_cam, 1, 4, 4).repeat(D, 1, 1, num_query, 1, 1)
        cam = torch.matmul(lidar2img.to(torch.float32), points.to(torch.float32)).squeeze(-1)
        eps = 1e-5
        bev_mask = cam[..., 2:3] > eps
        cam = cam[..., 0:2] / torch.maximum(cam[..., 2:3], torch.ones_like(cam[..., 2:3]) * eps)
        cam[..., 0] /= img_metas[0]["img_shape"][0][1]
        cam[..., 1] /= img_metas[0]["img_shape"][0][0]
        for axis in range(2):
            bev_mask = bev_mask & (cam[..., axis : axis + 1] > 0.0) & (cam[..., axis : axis + 1] < 1.0)
        torch.backends.cuda.matmul.allow_tf32 = allow_tf32
        torch.backends.cudnn.allow_tf32 = allow_tf32
        return cam.permute(2, 1, 3, 0, 4), torch.nan_to_num(bev_mask).permute(2, 1, 3, 0, 4).squeeze(-1)

    @auto_fp16()
    def forward(
        self,
        bev_query,
        key,
        value,
        *args,
        bev_h=None,
        bev_w=None,
        bev_pos=None,
        spatial_shapes=None,
        level_start_index=None,
        valid_ratios=None,
        prev_bev=None,
        shift=0.0,
        **kwargs,
    ):
        of = {"bs": bev_query.size(1), "device": bev_query.device, "dtype": bev_query.dtype}
        high = self.pc_range[5] - self.pc_range[2]
        ref_3d = self.get_reference_points(bev_h, bev_w, high, self.num_points_in_pillar, dim="3d", **of)
        ref_2d = self.get_reference_points(bev_h, bev_w, dim="2d", **of)
        reference_points_cam, bev_mask = self.point_sampling(ref_3d, self.pc_range, kwargs["img_metas"])
        shift_ref_2d = ref_2d.clone()
        shift_ref_2d += shift[:, None, None, :]
        bev_query, bev_pos = bev_query.permute(1, 0, 2), bev_pos.permute(1, 0, 2)
        bs, len_bev, levels, _ = ref_2d.shape
        if prev_bev is not None:
            prev_bev = prev_bev.permute(1, 0, 2)
            prev_bev = torch.stack([prev_bev, bev_query], 1).reshape(bs * 2, len_bev, -1)
            both = torch.stack([shift_ref_2d, ref_2d], 1)
        else:
            both = torch.stack([ref_2d, ref_2d], 1)
        for layer in self.layers:
            bev_query = layer(
                bev_query,
                key,
                value,
                *args,
                bev_pos=bev_pos,
                ref_2d=both.reshape(bs * 2, len_bev, levels, 2),
                ref_3d=ref_3d,
                bev_h=bev_h,
                bev_w=bev_w,
                spatial_shapes=spatial_shapes,
                level_start_index=level_start_index,
                reference_points_cam=reference_points_cam,
                bev_mask=bev_mask,
                prev_bev=prev_bev,
                **kwargs,
            )
        return bev_query


class BEVFormerLayer(nn.Module):
    def __init__(self, embed_dims, num_heads, feedforward_channels, dropout, cross):
        super().__init__()
        self.attentions = nn.ModuleList(
            [
                TemporalSelfAttention(embed_dims, num_heads, 1, dropout=dropout),
                SpatialCrossAttention(embed_dims, dropout=dropout, **cross),
            ]
        )
        self.ffns = nn.ModuleList([FFN(embed_dims, feedforward_channels, dropout)])
        self.norms = nn.ModuleList([nn.LayerNorm(embed_dims) for _ in range(3)])
        self.operation_order = ("self_attn", "norm", "cross_attn", "norm", "ffn", "norm")
        self.pre_norm, self.num_attn, self.fp16_enabled = False, 2, False

    def forward(
        self,
        query,
        key=None,
        value=None,
        bev_pos=None,
        query_pos=None,
        key_pos=None,
        attn_masks=None,
        query_key_padding_mask=None,
        key_padding_mask=None,
        ref_2d=None,
        ref_3d=None,
        bev_h=None,
        bev_w=None,
        reference_points_cam=None,
        mask=None,
        spatial_shapes=None,
        level_start_index=None,
        prev_bev=None,
        **kwargs,
    ):
        norm_index = attn_index = ffn_index = 0
        identity = query
        if attn_masks is None:
            attn_masks = [None for _ in range(self.num_attn)]
        elif isinstance(attn_masks, torch.Tensor):
            attn_masks = [copy.deepcopy(attn_masks) for _ in range(self.num_attn)]
        for layer in self.operation_order:
            if layer == "self_attn":
                query = self.attentions[attn_index](
                    query,
                    prev_bev,
                    prev_bev,
                    identity if self.pre_norm else None,
                    query_pos=bev_pos,
                    key_pos=bev_pos,
                    attn_mask=attn_masks[attn_index],
                    key_padding_mask=query_key_padding_mask,
                    reference_points=ref_2d,
                    spatial_shapes=torch.tensor([[bev_h, bev_w]], device=query.device),
                    level_start_index=torch.tensor([0], device=query.device),
                    **kwargs,
                )
                attn_index += 1
                identity = query
            elif layer == "norm":
                query = self.norms[norm_index](query)
                norm_index += 1
            elif layer == "cross_attn":
                query = self.attentions[attn_index](
                    query,
                    key,
                    value,
                    identity if self.pre_norm else None,
                    query_pos=query_pos,
                    key_pos=key_pos,
                    reference_points=ref_3d,
                    reference_points_cam=reference_points_cam,
                    mask=mask,
                    attn_mask=attn_masks[attn_index],
                    key_padding_mask=key_padding_mask,
                    spatial_shapes=spatial_shapes,
                    level_start_index=level_start_index,
                    **kwargs,
                )
                attn_index += 1
                identity = query
            elif layer == "ffn":
                query = self.ffns[ffn_index](query, identity if self.pre_norm else None)
                ffn_index += 1
        return query
