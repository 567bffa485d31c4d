# SPDX-License-Identifier: Apache-2.0
"""A Trainer's devices follow the ranks that were started, and LightningCLI with the engine in front of it."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from turbo_hydra import api
from turbo_hydra.engine.objects import load_object

WRONG_USE = 2


def trainer_settings(devices: Any = None, num_nodes: Any = None) -> dict[str, Any]:
    """`devices` and `num_nodes` for a Trainer: those of the ranks that run, nothing where no launcher has started any.

    Parameters
    ----------
    devices, num_nodes : int or str, optional
        What the script itself asks for; `auto` and None ask for nothing.

    Raises
    ------
    SystemExit
        With one sentence on stderr and status 2, if that is not what runs.
    """
    asked = {name: value for name, value in (("devices", devices), ("num_nodes", num_nodes)) if value is not None}
    running = _running()
    if running is None:
        return asked
    for name, value in asked.items():
        if str(value) not in ("auto", "-1", str(running[name])):
            what, setting = ("ranks on this node", "ranks") if name == "devices" else ("nodes", "nodes")
            _refuse(
                f"the Trainer asks for {name}={value}, and the launcher has started {running[name]} {what}; "
                f"leave {name} out, or set runtime.{setting} to {value}"
            )
    return running


def _running() -> dict[str, Any] | None:
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    here, all = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), int(os.environ.get("WORLD_SIZE", "1"))
    return {"devices": here, "num_nodes": max(1, all // here)}


def turbo_cli(
    model_class: str | type | None = None,
    datamodule_class: str | type | None = None,
    *,
    optimization_config_path: str | os.PathLike[str] | None = None,
    optimization_model: str | None = None,
    **kwargs: Any,
) -> Any:
    """`LightningCLI` that applies the optimizations before it imports the model; with the callback, on all ranks.

    Parameters
    ----------
    model_class, datamodule_class : str or type, optional
        Dotted paths, imported after applying; classes as for `LightningCLI`, imported by then.
    optimization_config_path, optimization_model
        As `optimization_config_path` and `model` of `turbo_hydra.apply`, which is called unless this process has had
        its attempt, as a rank of `turbo-train` has.
    **kwargs
        As for `LightningCLI`.

    Returns
    -------
    LightningCLI
        After it has run the command.
    """
    if api.current_report() is None:
        api.apply(optimization_config_path=optimization_config_path, model=optimization_model)
    from lightning.pytorch.cli import LightningCLI

    from turbo_hydra.integrations.lightning import TurboCallback

    class TurboCLI(LightningCLI):
        """LightningCLI whose Trainer has what the launcher started."""

        def before_instantiate_classes(self) -> None:
            config = self.config[self.subcommand] if self.subcommand else self.config
            settings = trainer_settings(config.trainer.devices, config.trainer.num_nodes)
            for name, value in settings.items():
                setattr(config.trainer, name, value)

    defaults = dict(kwargs.pop("trainer_defaults", None) or {})
    callbacks = defaults.get("callbacks") or []
    defaults["callbacks"] = [*(callbacks if isinstance(callbacks, list) else [callbacks]), TurboCallback()]
    return TurboCLI(_loaded(model_class), _loaded(datamodule_class), trainer_defaults=defaults, **kwargs)


def _loaded(given: str | type | None) -> Any:
    return load_object(given) if isinstance(given, str) else given


def _refuse(sentence: str) -> NoReturn:
    sys.stderr.write(f"turbo_hydra: {sentence}\n")
    raise SystemExit(WRONG_USE)
