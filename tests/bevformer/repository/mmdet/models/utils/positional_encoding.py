# SPDX-License-Identifier: Apache-2.0
import torch
from torch import nn


class LearnedPositionalEncoding(nn.Module):
    def __init__(self, num_feats, row_num_embed=50, col_num_embed=50):
        super().__init__()
        self.row_embed, self.col_embed = nn.Embedding(row_num_embed, num_feats), nn.Embedding(col_num_embed, num_feats)

    def forward(self, mask):
        high, wide = mask.shape[-2:]
        columns = self.col_embed(torch.arange(wide, device=mask.device))
        rows = self.row_embed(torch.arange(high, device=mask.device))
        cells = torch.cat((columns.unsqueeze(0).repeat(high, 1, 1), rows.unsqueeze(1).repeat(1, wide, 1)), dim=-1)
        return cells.permute(2, 0, 1).unsqueeze(0).repeat(mask.shape[0], 1, 1, 1)
