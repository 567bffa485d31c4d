# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

import torch
from scipy.optimize import linear_sum_assignment

from projects.mmdet3d_plugin.core.bbox.util import normalize_bbox


def _focal_cost(scores, labels):
    p = scores.sigmoid()
    positive = -(p + 1e-12).log() * 0.25 * (1 - p) ** 2
    negative = -(1 - p + 1e-12).log() * 0.75 * p**2
    return (positive[:, labels] - negative[:, labels]) * 2.0


def _l1_cost(boxes, wanted):
    return torch.cdist(boxes, wanted, p=1) * 0.25


class HungarianAssigner3D:
    def __init__(self, pc_range):
        self.cls_cost, self.reg_cost, self.pc_range = _focal_cost, _l1_cost, pc_range

    def assign(self, bbox_pred, cls_pred, gt_bboxes, gt_labels, gt_bboxes_ignore=None, eps=1e-7):
        inds = bbox_pred.new_full((len(bbox_pred),), 0, dtype=torch.long)
        if len(gt_bboxes) == 0:
            return SimpleNamespace(gt_inds=inds)
        wanted = normalize_bbox(gt_bboxes, self.pc_range)
        cost = self.cls_cost(cls_pred, gt_labels) + self.reg_cost(bbox_pred[:, :8], wanted[:, :8])
        rows, columns = linear_sum_assignment(cost.detach().cpu())
        inds[torch.from_numpy(rows).to(inds.device)] = torch.from_numpy(columns).to(inds.device) + 1
        return SimpleNamespace(gt_inds=inds)


class PseudoSampler:
    def sample(self, assigned, bboxes, gt_bboxes):
        pos = torch.nonzero(assigned.gt_inds > 0, as_tuple=False).squeeze(-1).unique()
        neg = torch.nonzero(assigned.gt_inds == 0, as_tuple=False).squeeze(-1).unique()
        taken = assigned.gt_inds[pos] - 1
        return SimpleNamespace(pos_inds=pos, neg_inds=neg, pos_assigned_gt_inds=taken, pos_gt_bboxes=gt_bboxes[taken])
