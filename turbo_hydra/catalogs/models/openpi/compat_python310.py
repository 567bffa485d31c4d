# SPDX-License-Identifier: Apache-2.0
"""A feature type that data sets of newer releases of `datasets` name, for older releases."""

from __future__ import annotations

import importlib

from turbo_hydra.compatibility import ImportContext


def list_feature(context: ImportContext) -> None:
    """Register `List` with `datasets` where it is unknown, as the type that means the same there.

    A `Sequence` of dictionaries is read as a dictionary of lists, a `List` of them as a list; LeRobot's data sets
    have values only, of which both are lists.
    """
    features = importlib.import_module("datasets.features.features")
    features._FEATURE_TYPES.setdefault("List", features.Sequence)
