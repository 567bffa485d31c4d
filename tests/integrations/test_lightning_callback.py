# SPDX-License-Identifier: Apache-2.0
"""What the callback tells loggers and writes, what it refuses, and that training under it is training as ever."""

from __future__ import annotations

import copy
import csv
import importlib
import json
import logging
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, WeightAveraging
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from torch import Tensor, nn

from turbo_hydra import StrictStop, TurboHydraError
from turbo_hydra.integrations.lightning import TurboCallback
from turbo_hydra.measure import observers

if TYPE_CHECKING:
    from tests.integrations.conftest import Apply, Policy


class Module(pl.LightningModule):
    """A block and a head."""

    __module__ = "__main__"  # as in a script, which defines it below apply()

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block, self.head = block, nn.Linear(4, 1)

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        loss: Tensor = self.head(self.block(batch)).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Tensor, index: int) -> None:
        self.log("val", self.head(self.block(batch)).abs().mean())

    test_step = validation_step

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), 1e-2)


class Alternating(Module):
    """Two optimizers, by hand."""

    __module__ = "__main__"

    def __init__(self, block: nn.Module) -> None:
        super().__init__(block)
        self.automatic_optimization = False

    def training_step(self, batch: Tensor, index: int) -> None:  # type: ignore[override]
        optimizers: Any = self.optimizers()
        for optimizer in optimizers:
            optimizer.zero_grad()
            self.manual_backward(self.head(self.block(batch)).square().mean())
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.AdamW(self.block.parameters(), 1e-2), torch.optim.SGD(self.head.parameters(), 1e-2)]


class Listening(Logger):
    """A logger of nobody's: keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.parameters: dict[str, Any] = {}
        self.metrics: list[tuple[dict[str, float], int | None]] = []

    @property
    def name(self) -> str:
        return "listening"

    @property
    def version(self) -> int:
        return 0

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self.parameters.update(params)

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.metrics.append((dict(metrics), step))

    def told(self, name: str) -> list[float]:
        return [metrics[name] for metrics, _ in self.metrics if name in metrics]


def loader(seed: int = 0) -> Any:
    data = torch.randn(24, 4, generator=torch.Generator().manual_seed(seed))
    return torch.utils.data.DataLoader(data, batch_size=4)  # type: ignore[arg-type]


def trainer(folder: Path, *callbacks: Any, **settings: Any) -> pl.Trainer:
    settings = {"max_epochs": 1, "logger": False, "enable_checkpointing": False, "log_every_n_steps": 2, **settings}
    return pl.Trainer(
        accelerator="cpu",
        devices=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=[*callbacks],
        **settings,
    )


def fitted(policy: Policy, folder: Path, *callbacks: Any, kind: type[Module] = Module, **settings: Any) -> Module:
    torch.manual_seed(0)
    module = kind(policy.load("net").Block())
    trainer(folder, *callbacks, **settings).fit(module, loader(), loader(1))
    return module


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def weights(module: nn.Module) -> list[Tensor]:
    return [value.clone() for value in module.state_dict().values()]


def test_any_logger_gets_decisions_figures_and_hits(policy: Policy, apply: Apply, tmp_path: Path) -> None:
    apply()
    listening, in_csv, in_board = Listening(), CSVLogger(tmp_path / "csv"), TensorBoardLogger(tmp_path / "tb")
    fitted(policy, tmp_path, TurboCallback(), logger=[listening, in_csv, in_board])
    parameters = listening.parameters
    assert {name for name, status in parameters.items() if status == "applied"} == {
        f"turbo_hydra/{policy.package}.block",
        "turbo_hydra/torch.fused_adamw",
    }
    assert parameters["turbo_hydra/torch.ddp_state"] == "skipped"
    # 6 batches of training and as many of validation (2 of those, before the training, as sanity check).
    assert listening.told(f"turbo_hydra/hits/{policy.package}.block")[-1] == 14
    assert listening.told("turbo_hydra/hits/torch.fused_adamw")[-1] == 1
    assert all(value > 0 for value in listening.told("turbo_hydra/step_ms"))
    assert listening.told("turbo_hydra/peak_memory_gib")[-1] > 0.01
    rows = list(csv.DictReader(Path(in_csv.log_dir, "metrics.csv").read_text("utf-8").splitlines()))
    assert any(row.get(f"turbo_hydra/hits/{policy.package}.block") == "14" for row in rows)
    assert "turbo_hydra/torch.fused_adamw: applied" in Path(in_csv.log_dir, "hparams.yaml").read_text()
    reading: Any = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    events = reading.EventAccumulator(in_board.log_dir)
    events.Reload()
    assert {"turbo_hydra/hits/torch.fused_adamw", "turbo_hydra/peak_memory_gib"} <= set(events.Tags()["scalars"])


def test_tensorboard_shows_the_scripts_own_hyperparameters_too(policy: Policy, apply: Apply, tmp_path: Path) -> None:
    class Told(Module):
        __module__ = "__main__"

        def __init__(self, block: nn.Module, width: int = 5) -> None:
            super().__init__(block)
            self.save_hyperparameters("width")

    apply()
    logger = TensorBoardLogger(tmp_path)
    fitted(policy, tmp_path, TurboCallback(), kind=Told, logger=logger)
    reading: Any = importlib.import_module("tensorboard.backend.event_processing.event_file_loader")
    data: Any = importlib.import_module("tensorboard.plugins.hparams.plugin_data_pb2")
    (file,) = Path(logger.log_dir).glob("events*")
    sessions = [
        data.HParamsPluginData.FromString(value.metadata.plugin_data.content).session_start_info.hparams
        for event in reading.EventFileLoader(str(file)).Load()
        for value in event.summary.value
        if value.tag == "_hparams_/session_start_info"
    ]
    assert {"width", "turbo_hydra/torch.fused_adamw"} <= set(sessions[0]), "the first is the one that is shown"


def test_the_report_goes_into_the_first_loggers_folder(policy: Policy, apply: Apply, tmp_path: Path) -> None:
    apply()
    logger = CSVLogger(tmp_path / "runs", name="mine", version=3)
    fitted(policy, tmp_path, TurboCallback(), logger=logger)
    folder = tmp_path / "runs" / "mine" / "version_3" / "turbo"
    report = read(folder / "report.json")
    assert report == read(folder / "ranks" / "0" / "report.json")
    assert {entry["group"]: entry["status"] for entry in report["execution"]}[f"{policy.package}.block"] == "applied"
    assert (report["rank"], report["steps"]["count"]) == (0, 6)
    assert len((folder / "ranks" / "0" / "steps.jsonl").read_text().splitlines()) == 6
    assert report["steps"]["first_loss"] == pytest.approx(
        json.loads((folder / "ranks" / "0" / "steps.jsonl").read_text().splitlines()[0])["loss"]
    )
    assert f"| {policy.package}.block | optimization | applied |" in (folder / "report.md").read_text()
    assert observers.current() is None, "the meter that it started is gone"


def test_without_a_logger_the_report_goes_where_the_trainer_writes(
    policy: Policy, apply: Apply, tmp_path: Path
) -> None:
    apply()
    fitted(policy, tmp_path, TurboCallback())
    assert read(tmp_path / "turbo" / "report.json")["steps"]["count"] == 6


def test_a_meter_that_runs_already_is_the_one_that_is_asked(policy: Policy, apply: Apply, tmp_path: Path) -> None:
    from turbo_hydra.measure import meter

    apply()
    running = meter.install({"progress": "off", "interval": 0}, {}, tmp_path / "own")
    assert running is not None
    fitted(policy, tmp_path, TurboCallback())
    assert observers.current() is running
    running.close()
    assert read(tmp_path / "turbo" / "report.json")["steps"]["count"] == 6
    assert not (tmp_path / "turbo" / "ranks" / "0" / "steps.jsonl").exists()


def test_no_meter_is_started_where_none_is_wanted(policy: Policy, apply: Apply, tmp_path: Path) -> None:
    apply()
    listening = Listening()
    fitted(policy, tmp_path, TurboCallback(meter=False), logger=listening)
    assert read(tmp_path / "turbo" / "report.json")["steps"] == {}
    assert listening.told("turbo_hydra/step_ms") == []
    assert listening.told(f"turbo_hydra/hits/{policy.package}.block")[-1] == 14


def test_training_is_what_it_is_without_the_callback(policy: Policy, apply: Apply, tmp_path: Path) -> None:
    apply()
    plain = weights(fitted(policy, tmp_path / "plain"))
    ours = weights(fitted(policy, tmp_path / "ours", TurboCallback()))
    assert all(torch.equal(mine, reference) for mine, reference in zip(ours, plain, strict=True))


def test_without_an_engine_it_says_what_to_do(policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turbo_hydra.api._Process.engine", None)
    with pytest.raises(TurboHydraError, match=r"call turbo_hydra\.apply\(\) above the import of the model, or start"):
        fitted(policy, tmp_path, TurboCallback())


@pytest.mark.parametrize("strict", [False, True])
def test_a_model_that_was_imported_first_is_named(
    policy: Policy, apply: Apply, tmp_path: Path, caplog: pytest.LogCaptureFixture, strict: bool
) -> None:
    policy.load("net")
    apply(strict=strict)
    with caplog.at_level(logging.WARNING, "turbo_hydra"):
        if strict:
            with pytest.raises(StrictStop, match=rf"{policy.package}\.net of the model was imported before"):
                fitted(policy, tmp_path, TurboCallback())
        else:
            fitted(policy, tmp_path, TurboCallback())
    said = f"{policy.package}.net of the model was imported before turbo_hydra.apply()"
    assert (said in caplog.text) == (not strict)


@pytest.mark.parametrize("strict", [False, True])
def test_an_instance_whose_forward_was_bound_before_is_named(
    policy: Policy, apply: Apply, tmp_path: Path, caplog: pytest.LogCaptureFixture, strict: bool
) -> None:
    apply(strict=strict)
    module = Module(policy.load("net").Block())
    original: Any = vars(type(module.block))["forward"].__wrapped__
    module.block.forward = original.__get__(module.block)
    said = f"group '{policy.package}.block' does not reach 'block' (Block) of the model, since forward is an attribute"
    with caplog.at_level(logging.WARNING, "turbo_hydra"):
        if strict:
            with pytest.raises(StrictStop) as stopped:
                trainer(tmp_path, TurboCallback()).fit(module, loader())
            assert said in str(stopped.value)
        else:
            trainer(tmp_path, TurboCallback()).fit(module, loader())
            assert said in caplog.text


def test_validating_and_testing_alone_look_at_the_model_too(
    policy: Policy, apply: Apply, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    apply()
    module = Module(policy.load("net").Block())
    module.block.forward = vars(type(module.block))["forward"].__wrapped__.__get__(module.block)
    for run in ("validate", "test"):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "turbo_hydra"):
            getattr(trainer(tmp_path, TurboCallback()), run)(module, loader(), verbose=False)
        assert "does not reach 'block'" in caplog.text
    assert not (tmp_path / "turbo").exists()


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"overfit_batches": 2, "max_epochs": 3}, 6),
        ({"accumulate_grad_batches": 3}, 2),
        ({"gradient_clip_val": 0.1}, 6),
        ({"limit_val_batches": 0}, 6),
        ({"precision": "bf16-mixed"}, 6),
        ({"max_steps": 4, "max_epochs": -1}, 4),
    ],
    ids=lambda value: str(value),
)
def test_settings_of_the_trainer(
    policy: Policy, apply: Apply, tmp_path: Path, settings: dict[str, Any], steps: int
) -> None:
    apply()
    fitted(policy, tmp_path, TurboCallback(), **settings)
    assert read(tmp_path / "turbo" / "report.json")["steps"]["count"] == steps


def test_a_development_run_is_checked_and_writes_nothing(policy: Policy, apply: Apply, tmp_path: Path) -> None:
    apply()
    folder = tmp_path / "nothing"
    fitted(policy, folder, TurboCallback(), fast_dev_run=True)
    assert not folder.exists()
    assert observers.current() is None


def test_several_optimizers_make_several_updates_of_a_step(policy: Policy, apply: Apply, tmp_path: Path) -> None:
    apply()
    fitted(policy, tmp_path, TurboCallback(), kind=Alternating)
    report = read(tmp_path / "turbo" / "report.json")
    assert report["steps"]["count"] == 12
    hits = {member["target"]: member["hits"] for entry in report["execution"] for member in entry["members"]}
    assert hits["torch.optim.AdamW.__init__"]["replacement"] == 1
    assert hits["torch.optim.SGD.__init__"]["reasons"] == {"left out by an option": 1}


def test_a_run_is_resumed_from_its_checkpoint(policy: Policy, apply: Apply, tmp_path: Path) -> None:
    apply()
    through = weights(fitted(policy, tmp_path / "through", TurboCallback(), max_epochs=3))
    half = ModelCheckpoint(tmp_path / "kept", save_last=True)
    fitted(policy, tmp_path / "half", TurboCallback(), half, max_epochs=2, enable_checkpointing=True)
    torch.manual_seed(9)
    module = Module(policy.load("net").Block())
    resumed = trainer(tmp_path / "resumed", TurboCallback(), max_epochs=3)
    resumed.fit(module, loader(), loader(1), ckpt_path=half.last_model_path, weights_only=False)
    for mine, reference in zip(weights(module), through, strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-6, rtol=1e-5)
    assert read(tmp_path / "resumed" / "turbo" / "report.json")["steps"]["count"] == 6
    saved = torch.load(half.last_model_path, weights_only=False)
    assert "TurboCallback" not in saved["callbacks"], "it leaves nothing in checkpoints"
    # What a run without the groups wrote goes on with them, and the other way round.
    assert [group["fused"] for group in saved["optimizer_states"][0]["param_groups"]] == [None]


def test_an_average_of_the_weights_is_made_from_copies(policy: Policy, apply: Apply, tmp_path: Path) -> None:
    apply()
    averaging = WeightAveraging()
    module = fitted(policy, tmp_path, TurboCallback(), averaging, max_epochs=2)
    report = read(tmp_path / "turbo" / "report.json")
    assert report["steps"]["count"] == 12
    copied = copy.deepcopy(module)
    x = torch.ones(2, 4)
    assert torch.equal(copied.block(x), module.block(x))
    assert policy.load("fast").CALLS[-2:] == [2, 2], "a copy takes the replacement too"


def test_compiled_modules_train_and_are_not_taken_for_bound_ones(
    policy: Policy, apply: Apply, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    apply()
    torch.manual_seed(0)
    module = Module(policy.load("net").Block())
    module.block = torch.compile(module.block, backend="eager")  # type: ignore[assignment]
    module.head.compile(backend="eager")
    with caplog.at_level(logging.WARNING, "turbo_hydra"):
        trainer(tmp_path, TurboCallback()).fit(module, loader())
    assert "does not reach" not in caplog.text
    report = read(tmp_path / "turbo" / "report.json")
    assert report["steps"]["count"] == 6
    assert policy.load("fast").CALLS, "the replacement was traced"


def test_what_ended_a_run_leaves_the_report(policy: Policy, apply: Apply, tmp_path: Path) -> None:
    class Breaking(Module):
        __module__ = "__main__"

        def training_step(self, batch: Tensor, index: int) -> Tensor:
            if index == 3:
                raise RuntimeError("the data ran out")
            return super().training_step(batch, index)

    apply()
    with pytest.raises(RuntimeError, match="the data ran out"):
        fitted(policy, tmp_path, TurboCallback(), kind=Breaking)
    assert read(tmp_path / "turbo" / "report.json")["steps"]["count"] == 3
    assert observers.current() is None


def test_the_callback_is_one_of_either_copy_of_lightning() -> None:
    other = pytest.importorskip("pytorch_lightning")
    assert other.Callback is not pl.Callback
    made = TurboCallback(meter=False)
    assert isinstance(made, (pl.Callback,))
    assert isinstance(made, other.Callback)
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert isinstance(copied, TurboCallback)
        assert copied._start_meter is False


def test_pytorch_lightnings_trainer_takes_it(policy: Policy, apply: Apply, tmp_path: Path) -> None:
    other = pytest.importorskip("pytorch_lightning")
    apply()

    class Theirs(other.LightningModule):  # type: ignore[name-defined, misc]
        __module__ = "__main__"

        def __init__(self, block: nn.Module) -> None:
            super().__init__()
            self.block = block

        def training_step(self, batch: Tensor, index: int) -> Tensor:
            loss: Tensor = self.block(batch).square().mean()
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    made = other.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=TurboCallback(),
    )
    made.fit(Theirs(policy.load("net").Block()), loader())
    assert read(tmp_path / "turbo" / "report.json")["steps"]["count"] == 6
