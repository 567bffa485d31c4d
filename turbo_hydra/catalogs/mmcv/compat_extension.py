# SPDX-License-Identifier: Apache-2.0
"""mmcv's questions to an extension that is absent."""

from __future__ import annotations

from collections.abc import Callable

from turbo_hydra import fallback


def version(original: Callable[[], str], options: None) -> Callable[[], str]:
    """Factory for `get_compiler_version` and `get_compiling_cuda_version`."""

    def get_version() -> str:
        try:
            answer = original()
        except ImportError:  # of the stand-in, which is there to be imported and not to be called
            return "n/a"
        fallback("the extension is there")
        return answer

    return get_version
