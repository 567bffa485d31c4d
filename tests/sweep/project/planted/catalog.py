# SPDX-License-Identifier: Apache-2.0
"""Groups with planted effects."""

from __future__ import annotations

from turbo_hydra import About, group, replace


def _plant(name: str, numerics: str = "bitwise") -> None:
    group(
        f"planted.{name}",
        replace(f"planted.work.{name}", f"planted.faster.{name}"),
        about=About(why="a planted effect", numerics=numerics),  # type: ignore[arg-type]
    )


for _name in ("ten", "three", "one", "nothing", "slower", "layout", "together", "never"):
    _plant(_name)
_plant("objective", "close")
