# SPDX-License-Identifier: Apache-2.0
"""A repository of layers for the package `kernels`, as the hub has them."""

from . import layers

__all__ = ["layers"]
