# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from mmcv.runner import auto_fp16, force_fp32
from mmdet.models.utils.positional_encoding import LearnedPositionalEncoding
from torch import nn

from projects.mmdet3d_plugin.bevformer.modules.decoder import inverse_sigmoid
from projects.mmdet3d_plugin.bevformer.modules.transformer import PerceptionTransformer
from projects.mmdet3d_plugin.core.bbox.assigners.hungarian_assigner_3d import HungarianAssigner3D, PseudoSampler
from projects.mmdet3d_plugin.core.bbox.util import normalize_bbox


class BEVFormerHead(nn.Module):
    def __init__(self, bev_h, bev_w, num_query, num_classes, pc_range, transformer):
        super().__init__()
        width, layers = transformer["embed_dims"], transformer["decoder"]["num_layers"]
        self.bev_h, self.bev_w, self.num_classes, self.pc_range = bev_h, bev_w, num_classes, pc_range
        self.transformer = PerceptionTransformer(**transformer)
        self.positional_encoding = LearnedPositionalEncoding(width // 2, bev_h, bev_w)
        self.bev_embedding = nn.Embedding(bev_h * bev_w, width)
        self.query_embedding = nn.Embedding(num_query, width * 2)
        self.cls_branches = nn.ModuleList([nn.Linear(width, num_classes) for _ in range(layers)])
        self.reg_branches = nn.ModuleList([nn.Linear(width, 10) for _ in range(layers)])
        self.assigner, self.sampler = HungarianAssigner3D(pc_range), PseudoSampler()
        self.fp16_enabled = False

    @auto_fp16(apply_to=("mlvl_feats"))
    def forward(self, mlvl_feats, img_metas, prev_bev=None, only_bev=False):
        bs, dtype = mlvl_feats[0].shape[0], mlvl_feats[0].dtype
        bev_queries = self.bev_embedding.weight.to(dtype)
        bev_mask = torch.zeros((bs, self.bev_h, self.bev_w), device=bev_queries.device).to(dtype)
        of = {"bev_pos": self.positional_encoding(bev_mask).to(dtype), "img_metas": img_metas, "prev_bev": prev_bev}
        if only_bev:
            return self.transformer.get_bev_features(mlvl_feats, bev_queries, self.bev_h, self.bev_w, **of)
        bev_embed, hs, init_reference, inter_references = self.transformer(
            mlvl_feats,
            bev_queries,
            self.query_embedding.weight.to(dtype),
            self.bev_h,
            self.bev_w,
            reg_branches=self.reg_branches,
            **of,
        )
        classes, coords = [], []
        for lvl, state in enumerate(hs.permute(0, 2, 1, 3)):
            reference = inverse_sigmoid(init_reference if lvl == 0 else inter_references[lvl - 1])
            box = self.reg_branches[lvl](state)
            place = torch.cat((box[..., :2] + reference[..., :2], box[..., 4:5] + reference[..., 2:3]), -1).sigmoid()
            low, high = box.new_tensor(self.pc_range).split(3)
            place = place * (high - low) + low
            coords.append(torch.cat((place[..., :2], box[..., 2:4], place[..., 2:], box[..., 5:]), -1))
            classes.append(self.cls_branches[lvl](state))
        return {
            "bev_embed": bev_embed,
            "all_cls_scores": torch.stack(classes),
            "all_bbox_preds": torch.stack(coords),
            "enc_cls_scores": None,
            "enc_bbox_preds": None,
        }

    def _get_target_single(self, cls_score, bbox_pred, gt_labels, gt_bboxes, gt_bboxes_ignore=None):
        num_bboxes = bbox_pred.size(0)
        assigned = self.assigner.assign(bbox_pred, cls_score, gt_bboxes, gt_labels, gt_bboxes_ignore)
        sampled = self.sampler.sample(assigned, bbox_pred, gt_bboxes)
        labels = gt_bboxes.new_full((num_bboxes,), self.num_classes, dtype=torch.long)
        labels[sampled.pos_inds] = gt_labels[sampled.pos_assigned_gt_inds]
        bbox_targets = torch.zeros_like(bbox_pred)[..., : gt_bboxes.shape[-1]]
        bbox_weights = torch.zeros_like(bbox_pred)
        bbox_weights[sampled.pos_inds] = 1.0
        bbox_targets[sampled.pos_inds] = sampled.pos_gt_bboxes
        label_weights = gt_bboxes.new_ones(num_bboxes)
        return labels, label_weights, bbox_targets, bbox_weights, sampled.pos_inds, sampled.neg_inds

    def loss_single(self, cls_scores, bbox_preds, gt_bboxes_list, gt_labels_list, gt_bboxes_ignore_list=None):
        found = [
            self._get_target_single(cls_scores[i], bbox_preds[i], gt_labels_list[i], gt_bboxes_list[i])
            for i in range(cls_scores.size(0))
        ]
        labels, label_weights, targets, weights = (torch.cat([one[part] for one in found]) for part in range(4))
        count = max(sum(one[4].numel() for one in found), 1)
        scores = cls_scores.reshape(-1, self.num_classes)
        wanted = F.one_hot(labels, self.num_classes + 1)[:, :-1].to(scores.dtype)
        loss_cls = (F.binary_cross_entropy_with_logits(scores, wanted, reduction="none").sum(-1) * label_weights).sum()
        normalized = normalize_bbox(targets, self.pc_range)
        finite = torch.isfinite(normalized).all(dim=-1)
        boxes = bbox_preds.reshape(-1, bbox_preds.size(-1))
        loss_bbox = ((boxes[finite] - normalized[finite]).abs() * weights[finite]).sum()
        return loss_cls / count, loss_bbox / count

    @force_fp32(apply_to=("preds_dicts"))
    def loss(self, gt_bboxes_list, gt_labels_list, preds_dicts, gt_bboxes_ignore=None, img_metas=None):
        device = gt_labels_list[0].device
        boxes = [torch.cat((item.gravity_center, item.tensor[:, 3:]), dim=1).to(device) for item in gt_bboxes_list]
        losses = {}
        pairs = zip(preds_dicts["all_cls_scores"], preds_dicts["all_bbox_preds"], strict=True)
        for layer, (scores, preds) in enumerate(pairs):
            losses[f"d{layer}.loss_cls"], losses[f"d{layer}.loss_bbox"] = self.loss_single(
                scores, preds, boxes, gt_labels_list
            )
        return losses
