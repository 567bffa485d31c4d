# SPDX-License-Identifier: Apache-2.0
"""The meter on real training loops, against numbers that the loops take down themselves."""

from __future__ import annotations

import math
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from turbo_hydra.measure.meter import Meter, install
from turbo_hydra.measure.rows import FILE

if TYPE_CHECKING:
    from tests.measure.conftest import Measured


def model_and_data() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), torch.randn(64, 4), torch.randn(64, 1)


class Numbers(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index


def test_plain_loop(measured: Measured) -> None:
    model, x, y = model_and_data()
    optimizer = torch.optim.AdamW(model.parameters())
    losses, norms = [], []
    with measured(model={"batch": 64}) as metered:
        for _ in range(5):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
            optimizer.step()
            losses.append(loss.item())
    rows = metered.rows
    assert [row.step for row in rows] == [0, 1, 2, 3, 4]
    assert [row.loss for row in rows] == losses
    assert [row.grad_norm for row in rows] == norms
    assert [row.samples for row in rows] == [64] * 5
    assert rows[0].ms is None
    assert all(row.ms is not None and row.ms > 0 for row in rows[1:])
    assert rows[0].cpu_ms is None
    assert all(row.cpu_ms is not None and row.cpu_ms > 0 for row in rows[1:])
    assert all(row.data_ms is None and row.losses is None for row in rows)
    summary = metered.meter.summary()
    assert summary["count"] == 5
    assert (summary["first_loss"], summary["last_loss"]) == (losses[0], losses[-1])
    assert summary["data_wait_share"] is None
    assert summary["samples_per_s"] == pytest.approx(64_000 / summary["median_ms"])
    assert summary["time_to_first_step_s"] > 0
    assert summary["peak_memory"]["host_bytes"] > 10_000_000
    assert summary["problem"] is None


def test_step_times_add_up_to_the_loop(measured: Measured) -> None:
    model, x, y = model_and_data()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before, after = list[float](), list[float]()
    with measured() as metered:
        for _ in range(50):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            before.append(time.perf_counter())
            optimizer.step()
            after.append(time.perf_counter())
    told = sum(row.ms for row in metered.rows if row.ms is not None) / 1000
    # A step ends somewhere in the optimizer's, however long the machine takes for that.
    assert before[-1] - after[0] <= told <= after[-1] - before[0]


def test_gradient_accumulation_is_one_step(measured: Measured) -> None:
    model, x, y = model_and_data()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses: list[list[float]] = []
    with measured() as metered:
        for _ in range(3):
            losses.append([])
            for part in range(4):
                loss = nn.functional.mse_loss(model(x[part::4]), y[part::4]) / 4
                loss.backward()
                losses[-1].append(loss.item())
            optimizer.step()
            optimizer.zero_grad()
    assert [row.losses for row in metered.rows] == losses
    assert [row.loss for row in metered.rows] == [sum(several) for several in losses]


def test_updates_at_every_micro_batch_with_step_every(measured: Measured) -> None:
    model, x, y = model_and_data()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with measured({"step_every": 3}) as metered:
        for _ in range(6):
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    assert [len(row.losses or []) for row in metered.rows] == [3, 3]


def test_two_optimizers_after_one_backward(measured: Measured) -> None:
    model, x, y = model_and_data()
    assert isinstance(model, nn.Sequential)
    first = torch.optim.SGD(model[0].parameters(), 0.1)
    second = torch.optim.Adam(model[2].parameters())
    losses = []
    with measured() as metered:
        for _ in range(4):
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            first.step()
            second.step()
            losses.append(loss.item())
    assert [row.loss for row in metered.rows] == losses


def test_a_backward_for_each_of_two_optimizers(measured: Measured) -> None:
    generator, discriminator = nn.Linear(2, 4), nn.Linear(4, 1)
    optimizers = [torch.optim.SGD(part.parameters(), 0.01) for part in (discriminator, generator)]
    losses = []
    with measured() as metered:
        for _ in range(3):
            for optimizer in optimizers:
                loss = discriminator(generator(torch.ones(8, 2))).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    assert [row.loss for row in metered.rows] == losses


def test_optimizer_in_backward(measured: Measured) -> None:
    model, x, y = model_and_data()
    optimizers = {parameter: torch.optim.SGD([parameter], 0.1) for parameter in model.parameters()}

    def update(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()  # type: ignore[index]
        optimizers[parameter].zero_grad()  # type: ignore[index]

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    losses = []
    with measured() as metered:
        for _ in range(4):
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            losses.append(loss.item())
    assert [row.loss for row in metered.rows] == losses
    assert losses[-1] < losses[0]


def test_lbfgs_closure_is_one_step_with_the_loss_that_step_returns(measured: Measured) -> None:
    model, x, y = model_and_data()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
    evaluations = 0

    def closure() -> torch.Tensor:
        nonlocal evaluations
        evaluations += 1
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    with measured() as metered:
        returned = [optimizer.step(closure).item() for _ in range(3)]
    assert evaluations > 3
    assert [row.loss for row in metered.rows] == returned


def test_grad_scaler_gives_the_unscaled_loss_and_counts_skipped_steps(measured: Measured) -> None:
    model, x, y = model_and_data()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    losses = []
    with measured() as metered:
        for step in range(4):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            if step == 2:
                parameter = next(model.parameters())
                assert parameter.grad is not None
                parameter.grad.fill_(math.inf)
                # unscale_ looked before: look again.
                scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = {
                    torch.device("cpu"): torch.tensor(1.0)
                }
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    assert [row.loss for row in metered.rows] == losses
    assert [row.skipped for row in metered.rows] == [False, False, True, False]
    assert metered.meter.summary()["skipped_steps"] == 1


def test_grad_scaler_that_overflows_by_itself(measured: Measured) -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    with measured() as metered:
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale((parameter * 8).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    # 8 * 2^127 and 8 * 2^126 are infinite in float32; 8 * 2^125 is too (2^128), so no step updates.
    assert [row.skipped for row in metered.rows] == [True, True, True]
    assert [row.loss for row in metered.rows] == [8.0, 8.0, 8.0]


def test_scaled_loss_that_is_divided_after_scaling(measured: Measured) -> None:
    parameter = nn.Parameter(torch.tensor([3.0]))
    optimizer = torch.optim.SGD([parameter], 0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with measured() as metered:
        for _ in range(4):
            (scaler.scale(parameter.square().sum()) / 4).backward()
        scaler.step(optimizer)
    assert metered.rows[0].losses == [2.25] * 4


def test_two_scaled_losses_before_their_backwards(measured: Measured) -> None:
    parameter = nn.Parameter(torch.tensor([3.0]))
    optimizer = torch.optim.SGD([parameter], 0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with measured() as metered:
        first, second = scaler.scale([parameter.sum(), (2 * parameter).sum()])
        first.backward()
        second.backward()
        scaler.step(optimizer)
    assert metered.rows[0].losses == [3.0, 6.0]


def test_the_meter_keeps_no_graph_alive(measured: Measured) -> None:
    import weakref

    parameter = nn.Parameter(torch.ones(4))
    with measured() as metered:
        scaler = torch.amp.GradScaler("cpu")
        activation = parameter.exp()
        seen = weakref.ref(activation)
        scaler.scale(activation.sum()).backward()
        del activation
        assert seen() is None
    assert metered.rows == []


def test_a_loss_that_is_changed_in_place_after_backward(measured: Measured) -> None:
    parameter = nn.Parameter(torch.tensor([3.0]))
    optimizer = torch.optim.SGD([parameter], 0.0)
    with measured() as metered:
        loss = parameter.sum()
        loss.backward()
        loss.detach().zero_()
        optimizer.step()
    assert metered.rows[0].loss == 3.0


def test_a_re_entrant_checkpoint_does_not_add_a_loss(measured: Measured) -> None:
    from torch.utils.checkpoint import checkpoint

    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], 0.1)
    with measured() as metered:
        loss = checkpoint(lambda value: value * 2, parameter, use_reentrant=True)
        assert isinstance(loss, torch.Tensor)
        loss.sum().backward()
        optimizer.step()
    assert metered.rows[0].loss == 2.0
    assert metered.rows[0].losses is None


def test_backward_of_several_and_of_what_is_no_scalar(measured: Measured) -> None:
    parameter = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = torch.optim.SGD([parameter], 0.0)
    with measured() as metered:
        torch.autograd.backward([parameter.sum(), parameter.prod()])
        optimizer.step()
        (parameter * 2).backward(torch.ones(2))
        optimizer.step()
    assert [row.loss for row in metered.rows] == [5.0, None]
    assert metered.rows[0].losses == [3.0, 2.0]


def test_waiting_for_a_data_loader(measured: Measured) -> None:
    model, x, y = model_and_data()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    class Slow(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            if index >= 6:
                raise IndexError
            torch.linalg.svd(torch.randn(160, 160))
            return x[index], y[index]

    with measured() as metered:
        for data, target in torch.utils.data.DataLoader(Slow(), batch_size=2):
            nn.functional.mse_loss(model(data), target).backward()
            optimizer.step()
    rows = metered.rows
    assert len(rows) == 3
    assert all(row.data_ms is not None and row.data_ms > 0 for row in rows)
    assert all(row.ms is None or (row.data_ms or 0) < row.ms for row in rows)
    share = metered.meter.summary()["data_wait_share"]
    waits, walls = [row.data_ms or 0 for row in rows[1:]], [row.ms or 0 for row in rows[1:]]
    assert share == pytest.approx(sum(waits) / sum(walls))
    assert share > 0.5


def test_a_loader_inside_a_loader_is_waited_for_once(measured: Measured) -> None:
    inner = torch.utils.data.DataLoader(Numbers())

    class Outer(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> int:
            return sum(int(item) for item in inner)

    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], 0.1)
    with measured() as metered:
        for _ in torch.utils.data.DataLoader(Outer()):
            parameter.sum().backward()
            optimizer.step()
    rows = metered.rows
    assert len(rows) == 2
    assert rows[1].data_ms is not None
    assert rows[1].ms is not None
    assert rows[1].data_ms < rows[1].ms


def test_a_loader_that_a_thread_reads_ahead_is_no_wait(measured: Measured) -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], 0.1)
    with measured() as metered:
        thread = threading.Thread(target=lambda: list(torch.utils.data.DataLoader(Numbers())))
        thread.start()
        thread.join()
        parameter.sum().backward()
        optimizer.step()
    assert metered.rows[0].data_ms is None


def test_workers_of_a_loader_write_nothing(measured: Measured) -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], 0.1)

    class Training(torch.utils.data.Dataset[float]):
        """A worker that itself trains: its steps are not this process's."""

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> float:
            # Without a backward, which a torch built for CUDA refuses in a forked process.
            own = nn.Parameter(torch.ones(1))
            own.grad = torch.ones(1)
            torch.optim.SGD([own], 0.1).step()
            return own.item()

    with measured() as metered:
        loader = torch.utils.data.DataLoader(Training(), num_workers=2, multiprocessing_context="fork")
        for _ in loader:
            parameter.sum().backward()
            optimizer.step()
    assert [row.step for row in metered.rows] == [0, 1, 2, 3]
    assert all(row.data_ms for row in metered.rows)


def test_an_exception_in_mid_step_keeps_the_steps_before(measured: Measured) -> None:
    model, x, y = model_and_data()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    class Stop(Exception):
        pass

    def train() -> None:
        for step in range(5):
            loss = nn.functional.mse_loss(model(x), y)
            if step == 2:
                loss.register_hook(_raising(Stop))
            loss.backward()
            optimizer.step()

    with measured({"interval": 1000}) as metered:
        with pytest.raises(Stop):
            train()
        # The script may catch it and go on.
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    assert [row.step for row in metered.rows] == [0, 1, 2]


def _raising(kind: type[Exception]) -> Any:
    def hook(_: torch.Tensor) -> None:
        raise kind

    return hook


def test_rows_wait_for_the_interval_and_close_writes_the_rest(measured: Measured) -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], 0.1)
    with measured({"interval": 1000}) as metered:
        for _ in range(4):
            parameter.sum().backward()
            optimizer.step()
        assert len(metered.rows) == 1
    assert len(metered.rows) == 4


def test_after_close_nothing_is_seen(measured: Measured) -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], 0.1)
    with measured() as metered:
        pass
    metered.meter.close()
    parameter.sum().backward()
    optimizer.step()
    assert metered.rows == []
    assert metered.meter.summary()["count"] == 0


def test_no_steps_at_all_has_a_summary(measured: Measured) -> None:
    with measured() as metered:
        pass
    summary = metered.meter.summary()
    assert summary["count"] == 0
    assert summary["median_ms"] is None
    assert summary["first_loss"] is None


def test_a_full_disk_ends_the_meter_and_not_the_training(measured: Measured, caplog: pytest.LogCaptureFixture) -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], 0.1)
    with measured() as metered:
        (steps,) = (int(link.name) for link in Path("/proc/self/fd").iterdir() if link.resolve().name == FILE)
        os.dup2(os.open("/dev/full", os.O_WRONLY), steps)
        for _ in range(3):
            optimizer.zero_grad()
            parameter.sum().backward()
            optimizer.step()
    assert parameter.item() == pytest.approx(0.7)
    assert "No space left on device" in metered.meter.summary()["problem"]
    assert caplog.text.count("metering ended") == 1


def test_evolution_without_backward(measured: Measured) -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], 0.1)
    with measured() as metered:
        for _ in range(3):
            parameter.grad = torch.autograd.grad(parameter.square().sum(), parameter)[0]
            optimizer.step()
    assert [row.loss for row in metered.rows] == [None, None, None]


def test_not_a_number_survives_the_file(measured: Measured) -> None:
    parameter = nn.Parameter(torch.tensor([math.nan]))
    optimizer = torch.optim.SGD([parameter], 0.1)
    with measured() as metered:
        parameter.sum().backward()
        optimizer.step()
    loss = metered.rows[0].loss
    assert loss is not None
    assert math.isnan(loss)


def test_a_compiled_step_is_told_apart(measured: Measured) -> None:
    torch.compiler.reset()
    model, x, y = model_and_data()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    compiled = torch.compile(model, backend="aot_eager")
    with measured({"warmup": 0}) as metered:
        for step in range(12):
            size = 32 if step == 6 else 64
            nn.functional.mse_loss(compiled(x[:size]), y[:size]).backward()
            optimizer.step()
    flags = [row.compiled for row in metered.rows]
    assert flags[0]
    assert flags[6]
    assert not any(flags[1:6])
    assert not any(flags[7:])
    summary = metered.meter.summary()
    assert summary["compiled_steps"] == 2
    assert summary["steady"] == 10
    assert summary["compile_s"] > 0


def test_a_step_that_is_compiled_as_a_whole_is_compiled_once(measured: Measured) -> None:
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    model, x, y = model_and_data()
    optimizer = torch.optim.AdamW(model.parameters())

    @torch.compile(backend="eager")
    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    losses, frames = [], []
    with measured() as metered:
        for _ in range(6):
            losses.append(step().item())
            frames.append(sum(counters["frames"].values()))
    assert [row.loss for row in metered.rows] == losses
    # The optimizer's second step has a state, for which torch compiles anew by itself.
    assert frames[2:] == [frames[2]] * 4
    assert [row.compiled for row in metered.rows][2:] == [False] * 4


def test_the_profiler_writes_one_trace_of_the_steps_asked_for(measured: Measured) -> None:
    import json

    model, x, y = model_and_data()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with measured({"profile": 2}) as metered:
        for _ in range(8):
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    assert [row.profiled for row in metered.rows] == [False, False, False, True, True, False, False, False]
    trace = json.loads((metered.folder / "trace.json").read_text(encoding="utf-8"))
    assert sum(event.get("name") == "Optimizer.step#SGD.step" for event in trace["traceEvents"]) == 2


def test_what_the_profiler_takes_to_write_is_no_steps_time(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    took = list[float]()
    export = torch.profiler.profile.export_chrome_trace

    def timed(self: Any, path: str) -> None:
        start = time.perf_counter()
        export(self, path)
        took.append(time.perf_counter() - start)

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", timed)
    model, x, y = model_and_data()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    before = list[float]()
    with measured({"profile": 2}) as metered:
        for _ in range(8):
            nn.functional.mse_loss(model(x), y).backward()
            before.append(time.perf_counter())
            optimizer.step()
    whole = time.perf_counter() - before[0]  # the first step ends after it
    assert len(took) == 1
    assert sum(row.ms for row in metered.rows if row.ms is not None) / 1000 + took[0] <= whole


def test_profiler_of_a_script_that_ends_early(measured: Measured) -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], 0.1)
    with measured({"profile": 100}) as metered:
        for _ in range(5):
            parameter.sum().backward()
            optimizer.step()
    assert (metered.folder / "trace.json").exists()


def test_settings_that_switch_it_off(tmp_path: Path) -> None:
    meter: Meter | None = install({"enabled": False}, {}, tmp_path)
    assert meter is None
    assert list(tmp_path.iterdir()) == []


def test_stop_after_ends_the_script_as_its_own_exit_would(measured: Measured) -> None:
    model, x, y = model_and_data()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    cleaned = []

    def script() -> None:
        try:
            for _ in range(10):
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
        finally:
            cleaned.append(True)

    with measured({"stop_after": 3}) as metered, pytest.raises(SystemExit) as ended:
        script()
    assert ended.value.code == 0
    assert [row.step for row in metered.rows] == [0, 1, 2]
    assert all(row.loss is not None for row in metered.rows)
    assert cleaned
    assert metered.meter.summary()["problem"] is None


def test_tokens_of_a_step(measured: Measured) -> None:
    model, x, y = model_and_data()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    with measured(model={"batch": {"samples": "batch-size", "tokens": 151}, "args": {"batch-size": 4}}) as metered:
        for _ in range(3):
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    assert [(row.samples, row.tokens) for row in metered.rows] == [(4, 604)] * 3
    summary = metered.meter.summary()
    assert summary["tokens_per_s"] == pytest.approx(151 * summary["samples_per_s"])
    assert (summary["tflops"], summary["utilisation"]) == (None, None)


@pytest.mark.parametrize("peak", [None, 0.5])
def test_utilisation_is_the_models_operations_over_the_devices(peak: float | None, measured: Measured) -> None:
    model, x, y = model_and_data()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    with measured(
        {"peak_tflops": peak}, model={"batch": {"samples": "n", "operations": 3e9}, "args": {"n": 4}}
    ) as metered:
        for _ in range(3):
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    summary = metered.meter.summary()
    # 4 samples of 3e9 operations in a median step.
    rate = 4 * 3e9 / (summary["median_ms"] / 1e3) / 1e12
    assert summary["tflops"] == pytest.approx(rate)
    assert summary["utilisation"] == (None if peak is None else pytest.approx(rate / peak))
