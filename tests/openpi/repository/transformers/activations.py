# SPDX-License-Identifier: Apache-2.0
"""The one activation."""

from torch import Tensor, nn


class PytorchGELUTanh(nn.Module):
    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.gelu(input, approximate="tanh")
