# SPDX-License-Identifier: Apache-2.0
"""What declarations of several files speak of."""

from __future__ import annotations

HERE = "turbo_hydra.catalogs.models.openpi"
SHARED = "turbo_hydra.catalogs.shared"
GEMMA = "transformers.models.gemma.modeling_gemma"
# The targets in transformers are of OpenPI's own files, which this group serves; OpenPI's modules import them.
SERVED = ("openpi.transformers_replace",)
SMALL = "torch 2.13 on CPU, float32 and bfloat16, a small model of the same structure"
