# SPDX-License-Identifier: Apache-2.0
import warnings

from torch import nn

from mmcv.utils import deprecated_api_warning


class MultiheadAttention(nn.Module):
    def __init__(self, embed_dims, num_heads, dropout=0.0, batch_first=False):
        super().__init__()
        self.batch_first = batch_first
        self.attn = nn.MultiheadAttention(embed_dims, num_heads, dropout)
        self.proj_drop, self.dropout_layer = nn.Dropout(0.0), nn.Dropout(dropout)

    @deprecated_api_warning({"residual": "identity"}, cls_name="MultiheadAttention")
    def forward(
        self,
        query,
        key=None,
        value=None,
        identity=None,
        query_pos=None,
        key_pos=None,
        attn_mask=None,
        key_padding_mask=None,
        **kwargs,
    ):
        key = query if key is None else key
        value = key if value is None else value
        identity = query if identity is None else identity
        if key_pos is None and query_pos is not None:
            if query_pos.shape == key.shape:
                key_pos = query_pos
            else:
                warnings.warn("position encoding of key is missing", stacklevel=2)
        query = query if query_pos is None else query + query_pos
        key = key if key_pos is None else key + key_pos
        if self.batch_first:
            query, key, value = (item.transpose(0, 1) for item in (query, key, value))
        out = self.attn(query=query, key=key, value=value, attn_mask=attn_mask, key_padding_mask=key_padding_mask)[0]
        if self.batch_first:
            out = out.transpose(0, 1)
        return identity + self.dropout_layer(self.proj_drop(out))


class FFN(nn.Module):
    def __init__(self, embed_dims, feedforward_channels, ffn_drop=0.0):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(embed_dims, feedforward_channels),
            nn.ReLU(inplace=True),
            nn.Dropout(ffn_drop),
            nn.Linear(feedforward_channels, embed_dims),
            nn.Dropout(ffn_drop),
        )

    @deprecated_api_warning({"residual": "identity"}, cls_name="FFN")
    def forward(self, x, identity=None):
        return (x if identity is None else identity) + self.layers(x)
