# SPDX-License-Identifier: Apache-2.0
import numpy as np
import torch
from mmcv.runner import auto_fp16
from torch import nn

from .decoder import DetectionTransformerDecoder
from .encoder import BEVFormerEncoder


def rotate(image, angle, center=None):
    """torchvision's, of which a small grid needs no more than whole quarters and a shift."""
    return torch.rot90(image, int(angle) % 4, (1, 2)).roll(center[0] % 3, 2)


class PerceptionTransformer(nn.Module):
    def __init__(self, embed_dims, num_feature_levels, num_cams, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = BEVFormerEncoder(**encoder), DetectionTransformerDecoder(**decoder)
        self.embed_dims, self.rotate_center, self.fp16_enabled = embed_dims, [1, 1], False
        self.rotate_prev_bev = self.use_shift = self.use_can_bus = self.use_cams_embeds = True
        self.level_embeds = nn.Parameter(torch.randn(num_feature_levels, embed_dims))
        self.cams_embeds = nn.Parameter(torch.randn(num_cams, embed_dims))
        self.reference_points = nn.Linear(embed_dims, 3)
        self.can_bus_mlp = nn.Sequential(nn.Linear(18, embed_dims), nn.ReLU(inplace=True), nn.LayerNorm(embed_dims))

    @auto_fp16(apply_to=("mlvl_feats", "bev_queries", "prev_bev", "bev_pos"))
    def get_bev_features(
        self, mlvl_feats, bev_queries, bev_h, bev_w, grid_length=(0.512, 0.512), bev_pos=None, prev_bev=None, **kwargs
    ):
        bs = mlvl_feats[0].size(0)
        bev_queries = bev_queries.unsqueeze(1).repeat(1, bs, 1)
        bev_pos = bev_pos.flatten(2).permute(2, 0, 1)
        delta_x = np.array([each["can_bus"][0] for each in kwargs["img_metas"]])
        delta_y = np.array([each["can_bus"][1] for each in kwargs["img_metas"]])
        ego_angle = np.array([each["can_bus"][-2] / np.pi * 180 for each in kwargs["img_metas"]])
        translation_length = np.sqrt(delta_x**2 + delta_y**2)
        bev_angle = ego_angle - np.arctan2(delta_y, delta_x) / np.pi * 180
        shift_y = translation_length * np.cos(bev_angle / 180 * np.pi) / grid_length[0] / bev_h * self.use_shift
        shift_x = translation_length * np.sin(bev_angle / 180 * np.pi) / grid_length[1] / bev_w * self.use_shift
        shift = bev_queries.new_tensor(np.array([shift_x, shift_y])).permute(1, 0)
        if prev_bev is not None:
            if prev_bev.shape[1] == bev_h * bev_w:
                prev_bev = prev_bev.permute(1, 0, 2)
            if self.rotate_prev_bev:
                for i in range(bs):
                    tmp = prev_bev[:, i].reshape(bev_h, bev_w, -1).permute(2, 0, 1)
                    tmp = rotate(tmp, kwargs["img_metas"][i]["can_bus"][-1], center=self.rotate_center)
                    prev_bev[:, i] = tmp.permute(1, 2, 0).reshape(bev_h * bev_w, 1, -1)[:, 0]
        can_bus = bev_queries.new_tensor(np.array([each["can_bus"] for each in kwargs["img_metas"]]))
        bev_queries = bev_queries + self.can_bus_mlp(can_bus)[None, :, :] * self.use_can_bus
        feat_flatten, spatial_shapes = [], []
        for lvl, feat in enumerate(mlvl_feats):
            spatial_shapes.append(tuple(feat.shape[-2:]))
            feat = feat.flatten(3).permute(1, 0, 3, 2)
            if self.use_cams_embeds:
                feat = feat + self.cams_embeds[:, None, None, :].to(feat.dtype)
            feat_flatten.append(feat + self.level_embeds[None, None, lvl : lvl + 1, :].to(feat.dtype))
        feat_flatten = torch.cat(feat_flatten, 2).permute(0, 2, 1, 3)
        spatial_shapes = torch.as_tensor(spatial_shapes, dtype=torch.long, device=bev_pos.device)
        level_start_index = torch.cat((spatial_shapes.new_zeros((1,)), spatial_shapes.prod(1).cumsum(0)[:-1]))
        return self.encoder(
            bev_queries,
            feat_flatten,
            feat_flatten,
            bev_h=bev_h,
            bev_w=bev_w,
            bev_pos=bev_pos,
            spatial_shapes=spatial_shapes,
            level_start_index=level_start_index,
            prev_bev=prev_bev,
            shift=shift,
            **kwargs,
        )

    @auto_fp16(apply_to=("mlvl_feats", "bev_queries", "object_query_embed", "prev_bev", "bev_pos"))
    def forward(
        self,
        mlvl_feats,
        bev_queries,
        object_query_embed,
        bev_h,
        bev_w,
        grid_length=(0.512, 0.512),
        bev_pos=None,
        reg_branches=None,
        cls_branches=None,
        prev_bev=None,
        **kwargs,
    ):
        bev_embed = self.get_bev_features(
            mlvl_feats, bev_queries, bev_h, bev_w, grid_length=grid_length, bev_pos=bev_pos, prev_bev=prev_bev, **kwargs
        )
        bs = mlvl_feats[0].size(0)
        query_pos, query = torch.split(object_query_embed, self.embed_dims, dim=1)
        query_pos, query = (item.unsqueeze(0).expand(bs, -1, -1) for item in (query_pos, query))
        reference_points = self.reference_points(query_pos).sigmoid()
        inter_states, inter_references = self.decoder(
            query=query.permute(1, 0, 2),
            key=None,
            value=bev_embed.permute(1, 0, 2),
            query_pos=query_pos.permute(1, 0, 2),
            reference_points=reference_points,
            reg_branches=reg_branches,
            cls_branches=cls_branches,
            spatial_shapes=torch.tensor([[bev_h, bev_w]], device=query.device),
            level_start_index=torch.tensor([0], device=query.device),
            **kwargs,
        )
        return bev_embed, inter_states, reference_points, inter_references
