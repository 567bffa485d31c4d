# SPDX-License-Identifier: Apache-2.0
"""The process in which `check()` makes its plan: `python -m turbo_hydra.check_process REQUEST`.

It does not run the caller's `__main__`; what the imported modules print goes nowhere near the answer, which is a file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(request: Path) -> None:
    """Read a request (config, force, disable, sys_path, answer) and write the plan, or an `error` and its `type`."""
    asked = json.loads(request.read_text(encoding="utf-8"))
    sys.path[:] = asked["sys_path"]
    from turbo_hydra.config import OptimizationConfigCatalog, check_names, load_catalogs
    from turbo_hydra.engine.errors import TurboHydraError
    from turbo_hydra.engine.plan import prepare
    from turbo_hydra.engine.report import write_json_atomic

    try:
        config = OptimizationConfigCatalog().load(asked["config"])
        registry = load_catalogs(config)
        check_names(config, registry)
        known = [id for id in asked["force"] if id in config.groups]
        answer = prepare(registry, config.selection(force=known, disable=asked["disable"])).to_execution().to_dict()
    except TurboHydraError as error:
        answer = {"error": str(error), "type": type(error).__name__}
    write_json_atomic(Path(asked["answer"]), answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
