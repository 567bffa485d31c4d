# SPDX-License-Identifier: Apache-2.0
import torch


def normalize_bbox(bboxes, pc_range):
    x, y, z, wide, long, high, turn, *speed = bboxes.split(1, -1)
    return torch.cat((x, y, wide.log(), long.log(), z, high.log(), turn.sin(), turn.cos(), *speed), dim=-1)
