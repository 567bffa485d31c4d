# SPDX-License-Identifier: Apache-2.0
"""Reading definitions from files alone: no line of the code that is read is ever executed."""

from turbo_hydra.config.static.reader import Seen, StaticReader
from turbo_hydra.config.static.trees import Installed, Repository, SourceTree, Wheel

__all__ = ["Installed", "Repository", "Seen", "SourceTree", "StaticReader", "Wheel"]
