# SPDX-License-Identifier: Apache-2.0
"""Finds the model's own files beside the package's, as after copying them over it."""

from pathlib import Path

_OWN = Path(__file__).parents[3] / "openpi" / "models_pytorch" / "transformers_replace"
__path__.append(str(_OWN / "models" / "paligemma"))
