# SPDX-License-Identifier: Apache-2.0
"""Instructions as word numbers."""

import torch

PAD, UNKNOWN = 0, 1


class WordTokenizer:
    """A fixed list of words; anything else is ``UNKNOWN``."""

    def __init__(self, instructions: list[str]) -> None:
        words = sorted({word for text in instructions for word in text.lower().split()})
        self.ids = {word: number for number, word in enumerate(words, start=2)}

    def encode(self, text: str, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Word numbers padded to ``length`` (int64) and where they are words (bool)."""
        ids = [self.ids.get(word, UNKNOWN) for word in text.lower().split()][:length]
        tokens = torch.full((length,), PAD, dtype=torch.int64)
        tokens[: len(ids)] = torch.tensor(ids, dtype=torch.int64)
        mask = torch.zeros(length, dtype=torch.bool)
        mask[: len(ids)] = True
        return tokens, mask
