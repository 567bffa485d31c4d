# SPDX-License-Identifier: Apache-2.0
"""The families of models: where they are and what differs. All else about them is the same, and is said once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Decoder:
    """A family of decoders.

    Parameters
    ----------
    name : str
        What its groups' names begin with; its module is `transformers.models.NAME.modeling_NAME`.
    prefix : str
        What the names of its classes begin with.
    norm : {"gemma", "llama"}
        The form of its RMS norm.
    plain_attention : bool
        Whether its eager attention is scores, mask and softmax; others cap the scores or look through a window.
    one_rotation : bool
        Whether its rotary embedding has one set of frequencies; others have one for each kind of layer.
    """

    name: str
    prefix: str
    norm: Literal["gemma", "llama"] = "llama"
    plain_attention: bool = True
    one_rotation: bool = True

    @property
    def module(self) -> str:
        """Where its classes are."""
        return f"transformers.models.{self.name}.modeling_{self.name}"


@dataclass(frozen=True)
class Encoder:
    """A family of image encoders whose MLP is two linear layers with GELU between them."""

    name: str
    prefix: str

    @property
    def module(self) -> str:
        """Where its classes are."""
        return f"transformers.models.{self.name}.modeling_{self.name}"


DECODERS = (
    Decoder("gemma", "Gemma", norm="gemma"),
    Decoder("gemma2", "Gemma2", norm="gemma", plain_attention=False),
    Decoder("gemma3", "Gemma3", norm="gemma", plain_attention=False, one_rotation=False),
    Decoder("llama", "Llama"),
    Decoder("mistral", "Mistral"),
    Decoder("qwen2", "Qwen2"),
    Decoder("qwen3", "Qwen3"),
)
ENCODERS = (
    Encoder("siglip", "Siglip"),
    Encoder("siglip2", "Siglip2"),
)
