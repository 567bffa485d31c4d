# SPDX-License-Identifier: Apache-2.0
"""Images and language in one module."""

from torch import nn
from transformers.models.gemma.modeling_gemma import GemmaModel
from transformers.models.siglip.modeling_siglip import WIDTH, SiglipVisionModel


class PaliGemmaMultiModalProjector(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(WIDTH, config.vision_config.projection_dim)

    def forward(self, image_features):
        return self.linear(image_features)


class PaliGemmaModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.vision_tower = SiglipVisionModel()
        self.multi_modal_projector = PaliGemmaMultiModalProjector(config)
        self.language_model = GemmaModel(config.text_config)

    def get_image_features(self, pixel_values):
        return self.multi_modal_projector(self.vision_tower(pixel_values))


class PaliGemmaForConditionalGeneration(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.model = config, PaliGemmaModel(config)

    @property
    def language_model(self):
        return self.model.language_model

    @property
    def vision_tower(self):
        return self.model.vision_tower
