# SPDX-License-Identifier: Apache-2.0
"""One file's content over another's: what `extends` and a recipe's defaults list do."""

from __future__ import annotations

from typing import Any


def merge(base: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """`data` over `base`: groups, options, dependencies key by key; catalogs and evidence add up; the rest replaces."""
    merged = {**base, **data}
    for key in ("catalogs", "evidence"):
        if key in merged:
            merged[key] = list(dict.fromkeys((*(base.get(key) or ()), *(data.get(key) or ()))))
    for key, depth in (("groups", 2), ("options", 3), ("compatibility", 2), ("shadow", 1)):
        if key in merged:
            merged[key] = _merged_mappings(base.get(key), data.get(key), depth)
    return merged


def _merged_mappings(base: Any, data: Any, depth: int) -> Any:
    if depth == 0 or not isinstance(base, dict) or not isinstance(data, dict):
        return base if data is None else data
    merged = dict(base)
    for key, value in data.items():
        merged[key] = _merged_mappings(base.get(key), value, depth - 1) if key in base else value
    return merged
