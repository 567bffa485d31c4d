# SPDX-License-Identifier: Apache-2.0
"""Predictions of all decoder layers matched with the boxes at once: one copy to the host a step.

Upstream matches layer by layer, each with a copy of its costs, and finds what was matched by looking for it on the
device. Here all layers' costs are made together, by the assigner's own functions, copied once, and matched on the host;
each layer's targets are written with what is known there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from turbo_hydra import fallback, redecorated
from turbo_hydra.catalogs.models.bevformer.constants import uploaded

Function = Callable[..., Any]
# Under this name a head has its matches while its loss is computed.
_MATCHES = "_turbo_hydra_matches"


class Match(NamedTuple):
    """Rows of the predictions and the boxes they are matched with, in the order of the rows; and all other rows."""

    rows: Tensor
    boxes: Tensor
    others: Tensor


def loss(original: Function, options: None) -> Function:
    """Factory for `BEVFormerHead.loss`."""

    def make(inner: Function) -> Function:
        def loss(
            self: Any,
            gt_bboxes_list: Any,
            gt_labels_list: Any,
            preds_dicts: Any,
            gt_bboxes_ignore: Any = None,
            img_metas: Any = None,
        ) -> Any:
            scores, boxes = preds_dicts["all_cls_scores"], preds_dicts["all_bbox_preds"]
            reason = _unfit(self, scores, boxes, gt_bboxes_ignore)
            if reason is not None:
                fallback(reason)
                return inner(self, gt_bboxes_list, gt_labels_list, preds_dicts, gt_bboxes_ignore, img_metas)
            matches = _matched(self.assigner, scores.detach(), boxes.detach(), gt_bboxes_list, gt_labels_list)
            setattr(self, _MATCHES, matches)
            try:
                return inner(self, gt_bboxes_list, gt_labels_list, preds_dicts, gt_bboxes_ignore, img_metas)
            finally:
                delattr(self, _MATCHES)

        return loss

    return redecorated(original, make)


def get_target_single(original: Function, options: None) -> Function:
    """Factory for `BEVFormerHead._get_target_single`."""

    def _get_target_single(
        self: Any,
        cls_score: Tensor,
        bbox_pred: Tensor,
        gt_labels: Tensor,
        gt_bboxes: Tensor,
        gt_bboxes_ignore: Any = None,
    ) -> Any:
        match = getattr(self, _MATCHES, {}).get(_name(cls_score, bbox_pred))
        if match is None or gt_bboxes_ignore is not None:
            fallback("nothing matched before")
            return original(self, cls_score, bbox_pred, gt_labels, gt_bboxes, gt_bboxes_ignore)
        count = bbox_pred.shape[0]
        labels = gt_bboxes.new_full((count,), self.num_classes, dtype=torch.long)
        labels[match.rows] = gt_labels[match.boxes]
        targets = torch.zeros_like(bbox_pred)[..., : gt_bboxes.shape[-1]]
        weights = torch.zeros_like(bbox_pred)
        weights.index_fill_(0, match.rows, 1.0)
        targets[match.rows] = gt_bboxes[match.boxes]
        return labels, gt_bboxes.new_ones(count), targets, weights, match.rows, match.others

    return _get_target_single


def _name(scores: Tensor, boxes: Tensor) -> tuple[Any, ...]:
    """What tells one layer's predictions for one sample from all others that live."""
    return scores.data_ptr(), boxes.data_ptr(), scores.shape, boxes.shape


def _matched(
    assigner: Any, scores: Tensor, boxes: Tensor, gt_bboxes_list: Any, gt_labels_list: Any
) -> dict[tuple[Any, ...], Match]:
    """The match of each layer's predictions [L, B, Q, ...] for each sample."""
    module = sys.modules[type(assigner).__module__]
    layers, samples, queries, _ = scores.shape
    device = scores.device
    costs, truths = [], []
    for sample in range(samples):
        labels = gt_labels_list[sample]
        given = gt_bboxes_list[sample]
        truth = torch.cat((given.gravity_center, given.tensor[:, 3:]), 1)
        truth = uploaded(truth, labels.device) if truth.device.type == "cpu" else truth.to(labels.device)
        truths.append(len(truth))
        if not len(truth):
            continue
        by_class = assigner.cls_cost(scores[:, sample].flatten(0, 1), labels)
        wanted = module.normalize_bbox(truth, assigner.pc_range)
        by_box = assigner.reg_cost(boxes[:, sample].flatten(0, 1)[:, :8], wanted[:, :8])
        costs.append((by_class + by_box).flatten())
    host = torch.cat(costs).cpu().split([layers * queries * count for count in truths if count]) if costs else ()
    table = iter(host)
    found: list[tuple[Any, Any]] = []
    for count in truths:
        if not count:
            nothing = np.zeros(0, dtype=np.int64)
            found += [(nothing, nothing)] * layers
            continue
        for cost in next(table).view(layers, queries, count):
            found.append(module.linear_sum_assignment(cost))
    parts: list[Any] = []
    lengths: list[int] = []
    for rows, columns in found:
        others = np.ones(queries, dtype=bool)
        others[rows] = False
        three = (rows, columns, np.flatnonzero(others))
        parts += three
        lengths += [len(part) for part in three]
    sent = uploaded(torch.from_numpy(np.concatenate(parts).astype(np.int64)), device).split(lengths)
    names = [_name(scores[layer, sample], boxes[layer, sample]) for sample in range(samples) for layer in range(layers)]
    return {name: Match(*sent[3 * index : 3 * index + 3]) for index, name in enumerate(names)}


def _unfit(self: Any, scores: Any, boxes: Any, ignored: Any) -> str | None:
    assigner = self.assigner
    if type(assigner).__name__ != "HungarianAssigner3D" or type(self.sampler).__name__ != "PseudoSampler":
        return "another assigner or sampler"
    if ignored is not None or not isinstance(scores, Tensor) or not isinstance(boxes, Tensor) or scores.dim() != 4:
        return "called in another way"
    if getattr(sys.modules[type(assigner).__module__], "linear_sum_assignment", None) is None:
        return "SciPy is not there"
    return None
