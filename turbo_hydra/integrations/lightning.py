# SPDX-License-Identifier: Apache-2.0
"""For users of Lightning 2, as `lightning` or as `pytorch_lightning`.

Two lines of a script, and one argument of its Trainer::

    import turbo_hydra
    turbo_hydra.apply(model="my_policy")        # above the import of the model

    Trainer(..., callbacks=[TurboCallback()])

Importing this module imports neither Lightning nor torch, so it may stand above `apply()`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbo_hydra import api
from turbo_hydra.engine.errors import StrictStop, TurboHydraError
from turbo_hydra.engine.report import to_markdown, write_json_atomic, write_text_atomic
from turbo_hydra.integrations import lightning_checks as checks
from turbo_hydra.integrations.lightning_cli import trainer_settings, turbo_cli

if TYPE_CHECKING:
    # For the type checker; an instance gets the classes of the copies of Lightning that are loaded.
    from lightning.pytorch import Callback as _Callback

    from turbo_hydra.engine.apply import Engine
    from turbo_hydra.measure.meter import Meter
else:
    _Callback = object

__all__ = ["TurboCallback", "trainer_settings", "turbo_cli"]
_log = logging.getLogger("turbo_hydra")
_PREFIX = "turbo_hydra"


class TurboCallback(_Callback):
    """Tells the Trainer's loggers what was applied, what a step costs and what was used.

    Decisions go to every logger as hyperparameters, the meter's figures and the hits as metrics, every
    `log_every_n_steps` of the Trainer and at the end; the report goes into the folder `turbo` of the first logger's
    folder, each rank's beside it. Where no meter runs yet, as without `turbo-train`, one is started for the fit.
    A development run (`fast_dev_run`) is checked and writes nothing.

    Parameters
    ----------
    meter : bool
        Whether a meter is started where none runs.

    Raises
    ------
    TurboHydraError
        When the Trainer starts and the engine has not run in this process.
    StrictStop
        When the Trainer starts and the config is strict, where a group cannot reach the model: its module was imported
        before the engine ran, or an instance keeps the original as an attribute of its own.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> TurboCallback:
        """An instance that is a `Callback` of each copy of Lightning that is loaded: the two names are two copies."""
        bases = _callback_classes()
        if cls is TurboCallback and bases:
            return super().__new__(type(cls.__name__, (cls, *bases), {"__module__": cls.__module__}))
        return super().__new__(cls)

    def __init__(self, *, meter: bool = True) -> None:
        self._start_meter = meter
        self._checked = False
        self._folder: Path | None = None

    def __reduce__(self) -> Any:
        return (_made, (self._start_meter,), self.__dict__)

    @property
    def state_key(self) -> str:
        """Nothing is kept in checkpoints."""
        return "TurboCallback"

    # What the Trainer calls

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Check that the engine ran, before the model was imported."""
        engine = _engine()
        if not self._checked:
            self._checked = True
            _say(engine, checks.imported_before(engine, pl_module))

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Look at the model as it is trained, begin metering, and tell what was decided."""
        engine = _engine()
        self._look(engine, pl_module)
        folder = _log_folder(trainer)  # a collective: on all ranks
        if trainer.fast_dev_run:
            return
        self._folder = folder
        if self._start_meter:
            self._begin_metering(trainer)
        decisions = {f"{_PREFIX}/{entry['group']}": entry["status"] for entry in _groups(engine)}
        # Lightning tells the script's own after this hook, and TensorBoard shows the first that it is told.
        for logger in trainer.loggers:
            logger.log_hyperparams({**_hyperparameters(pl_module), **_hyperparameters(trainer.datamodule), **decisions})
        self._write(trainer, engine)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Look at the model where it is validated without being trained."""
        if not trainer.training:
            self._look(_engine(), pl_module)

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Look at the model as it is tested."""
        self._look(_engine(), pl_module)

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """Look at the model as it predicts."""
        self._look(_engine(), pl_module)

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """Let a meter that has no observers know the loss."""
        meter = _own_meter()
        if meter is not None:
            meter.backward_started(loss)

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """The backward pass is over."""
        meter = _own_meter()
        if meter is not None:
            meter.backward_ended()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Tell the loggers, as often as Lightning itself does."""
        every = trainer.log_every_n_steps
        if every and trainer.loggers and (batch_idx + 1) % every == 0 and self._folder is not None:
            self._log_figures(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Tell the loggers for the last time, and write the report."""
        if self._folder is None:
            return
        meter = _ended()
        self._log_figures(trainer, meter)
        self._write(trainer, _engine(), meter)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Write what is known, whatever ended the run."""
        engine = api.current_engine()
        if self._folder is None or engine is None:
            return
        self._write(trainer, engine, _ended())

    # Within

    def _look(self, engine: Engine, pl_module: Any) -> None:
        _say(engine, checks.own_attributes(engine, pl_module))

    def _begin_metering(self, trainer: Any) -> None:
        from turbo_hydra.measure import meter, observers

        if observers.current() is None and self._folder is not None:
            made = meter.install({"progress": "off"}, {}, self._rank_folder(trainer, self._folder))
            if made is not None:
                _Own.meter = made

    def _log_figures(self, trainer: Any, meter: Meter | None = None) -> None:
        from turbo_hydra.measure import observers

        meter = meter or observers.current()
        figures: dict[str, float] = {} if meter is None else _figures(meter.summary())
        for outcome in _engine().outcomes.values():
            hits = [item.hits.replacement for item in outcome.prepared.members if item.hits is not None]
            if outcome.status == "applied" and hits and not outcome.prepared.group.is_observer:
                figures[f"{_PREFIX}/hits/{outcome.prepared.group.id}"] = sum(hits)
        for logger in trainer.loggers:
            logger.log_metrics(figures, step=trainer.global_step)

    def _rank_folder(self, trainer: Any, folder: Path) -> Path:
        return folder / "turbo" / "ranks" / str(trainer.global_rank)

    def _write(self, trainer: Any, engine: Engine, meter: Meter | None = None) -> None:
        from turbo_hydra.measure import observers

        if self._folder is None:
            return
        meter = meter or observers.current()
        report = engine.report.to_dict()
        told = {**report, "rank": trainer.global_rank, "steps": {} if meter is None else meter.summary()}
        try:
            own = self._rank_folder(trainer, self._folder)
            own.mkdir(parents=True, exist_ok=True)
            write_json_atomic(own / "report.json", told)
            if trainer.is_global_zero:
                write_json_atomic(self._folder / "turbo" / "report.json", told)
                write_text_atomic(self._folder / "turbo" / "report.md", to_markdown(report))
        except OSError as problem:  # a full disk ends no training
            _log.warning("TurboCallback cannot write its report: %s", problem)


class _Own:
    """The meter that a callback of this process has started."""

    meter: Meter | None = None


def _own_meter() -> Meter | None:
    """The meter that a callback started and that still runs."""
    if _Own.meter is None:
        return None
    from turbo_hydra.measure import observers

    if observers.current() is not _Own.meter:
        _Own.meter = None
    return _Own.meter


def _ended() -> Meter | None:
    """The meter, with all steps in its summary; closed, if a callback has started it."""
    from turbo_hydra.measure import observers

    meter = _own_meter()
    if meter is not None:
        meter.close()
        return meter
    running = observers.current()
    if running is not None:
        running.flush()
    return running


def _made(meter: bool) -> TurboCallback:
    return TurboCallback(meter=meter)


def _callback_classes() -> tuple[type, ...]:
    loaded = [sys.modules.get(name) for name in ("lightning.pytorch", "pytorch_lightning")]
    return tuple(module.Callback for module in loaded if module is not None)


def _engine() -> Engine:
    engine = api.current_engine()
    if engine is None:
        raise TurboHydraError(
            "TurboCallback: no optimizations were applied in this process; call turbo_hydra.apply() above the import "
            "of the model, or start the script with turbo-train"
        )
    return engine


def _say(engine: Engine, problems: Iterable[str]) -> None:
    told = list(problems)
    if told and engine.plan.selection.strict:
        raise StrictStop(f"optimization.strict is set, and {'; '.join(told)}", engine.report)
    for problem in told:
        _log.warning("TurboCallback: %s", problem)


def _groups(engine: Engine) -> list[dict[str, Any]]:
    return [entry for entry in engine.report.execution if not entry["observer"]]


def _hyperparameters(part: Any) -> dict[str, Any]:
    """What Lightning itself tells loggers of a module or a data module."""
    if part is None or not getattr(part, "_log_hyperparams", False):
        return {}
    return {name: value for name, value in part.hparams_initial.items() if name != "_class_path"}


def _log_folder(trainer: Any) -> Path:
    return Path(trainer.log_dir or trainer.default_root_dir)


def _figures(summary: Mapping[str, Any]) -> dict[str, float]:
    memory = summary.get("peak_memory") or {}
    held = memory.get("device_allocated_bytes") or memory.get("host_bytes")
    found = {
        "step_ms": summary.get("median_ms"),
        "device_ms": summary.get("device_median_ms"),
        "samples_per_s": summary.get("samples_per_s"),
        "data_wait_share": summary.get("data_wait_share"),
        "utilisation": summary.get("utilisation"),
        "peak_memory_gib": held / 2**30 if held else None,
    }
    return {f"{_PREFIX}/{name}": float(value) for name, value in found.items() if value is not None}
