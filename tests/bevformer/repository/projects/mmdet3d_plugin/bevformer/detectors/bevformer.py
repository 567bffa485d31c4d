# SPDX-License-Identifier: Apache-2.0
import copy

import torch
from mmcv.ops.modulated_deform_conv import ModulatedDeformConv2dPack
from torch import nn

from projects.mmdet3d_plugin.bevformer.dense_heads.bevformer_head import BEVFormerHead
from projects.mmdet3d_plugin.models.utils.grid_mask import GridMask


class BEVFormer(nn.Module):
    """A backbone of one convolution a level, with or without DCN, and the head."""

    def __init__(self, width, levels, head, *, dcn=False):
        super().__init__()
        self.grid_mask = GridMask(True, True, rotate=1, offset=False, ratio=0.5, mode=1, prob=0.7)
        self.levels = nn.ModuleList([nn.Conv2d(3 if i == 0 else width, width, 3, 2, 1) for i in range(levels)])
        self.dcn = ModulatedDeformConv2dPack(width, width) if dcn else nn.Identity()
        self.pts_bbox_head = BEVFormerHead(**head)

    def extract_feat(self, img, len_queue=None):
        frames, cameras = img.shape[:2]
        x = self.grid_mask(img.reshape(-1, *img.shape[2:]))
        found = []
        for level in self.levels:
            x = self.dcn(level(x))
            found.append(x.view(frames, cameras, *x.shape[1:]))
        return found

    def obtain_history_bev(self, imgs_queue, img_metas_list):
        self.eval()
        with torch.no_grad():
            prev_bev = None
            bs, len_queue = imgs_queue.shape[:2]
            feats = self.extract_feat(imgs_queue.reshape(bs * len_queue, *imgs_queue.shape[2:]))
            for i in range(len_queue):
                img_metas = [each[i] for each in img_metas_list]
                if not img_metas[0]["prev_bev_exists"]:
                    prev_bev = None
                now = [feat.view(bs, len_queue, *feat.shape[1:])[:, i] for feat in feats]
                prev_bev = self.pts_bbox_head(now, img_metas, prev_bev, only_bev=True)
            self.train()
            return prev_bev

    def forward(self, img, img_metas, gt_bboxes_3d, gt_labels_3d):
        last = img.size(1) - 1
        prev_bev = self.obtain_history_bev(img[:, :-1], copy.deepcopy(img_metas))
        img_metas = [each[last] for each in img_metas]
        if not img_metas[0]["prev_bev_exists"]:
            prev_bev = None
        outs = self.pts_bbox_head(self.extract_feat(img[:, -1]), img_metas, prev_bev)
        return self.pts_bbox_head.loss(gt_bboxes_3d, gt_labels_3d, outs, img_metas=img_metas)
