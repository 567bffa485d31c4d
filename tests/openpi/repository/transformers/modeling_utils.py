# SPDX-License-Identifier: Apache-2.0
"""The table of attention functions, made when this module is imported."""

from typing import Any, ClassVar

from transformers.integrations.sdpa_attention import sdpa_attention_forward


class AttentionInterface:
    _global_mapping: ClassVar[dict[str, Any]] = {"sdpa": sdpa_attention_forward}

    def __getitem__(self, name):
        return self._global_mapping[name]


ALL_ATTENTION_FUNCTIONS = AttentionInterface()
