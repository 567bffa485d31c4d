# SPDX-License-Identifier: Apache-2.0
"""What a condition may ask that is no argument: it changes between steps, never within one."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra import Latch, end_step

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

torch = pytest.importorskip("torch", reason="torch is not installed")
checkpoint = torch.utils.checkpoint.checkpoint

# The original saves two tensors for backward, the replacement three: a recomputation in the other branch is seen.
LIB = "def f(x):\n    return x.exp().sin()\n"
NEW = """
    from turbo_hydra import Latch

    HEALTH = Latch("health of f", True)

    def f(x):
        HEALTH.set(False)
        return x.exp().sin().exp()

    def healthy(x):
        return HEALTH.value
"""
FLIPS_AT_ONCE = """
    HEALTH = [True]

    def f(x):
        HEALTH[0] = False
        return x.exp().sin().exp()

    def healthy(x):
        return HEALTH[0]
"""


@pytest.fixture(autouse=True)
def no_change_is_left() -> Any:
    yield
    end_step()


def train(lab: Lab, steps: int, *, reentrant: bool = False) -> Any:
    """Steps of two micro-batches each, with the target under activation checkpointing; hits after each step."""
    f, weight = lab.load("lib").f, torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    hits = []
    for _ in range(steps):
        for _ in range(2):
            checkpoint(f, weight * 2.0, use_reentrant=reentrant).sum().backward()
        optimizer.step()
        hits.append(lab.hits())
    return hits


@pytest.fixture
def latched(lab: Lab) -> Lab:
    lab.write("lib", LIB)
    lab.write("new", NEW)
    lab.group("it", lab.replace("lib.f", "new.f", runtime_condition="new.healthy"))
    lab.apply()
    return lab


@pytest.mark.parametrize("reentrant", [False, True], ids=["saved tensors", "reentrant"])
def test_a_kernel_that_fails_in_a_forward_is_left_from_the_next_step_on(latched: Lab, reentrant: bool) -> None:
    # Two micro-batches, each with its recomputation, make four calls a step.
    assert train(latched, 3, reentrant=reentrant) == [(4, 0), (4, 4), (4, 8)]


def test_without_the_latch_the_recomputation_would_take_the_other_branch(lab: Lab) -> None:
    lab.write("lib", LIB)
    lab.write("new", FLIPS_AT_ONCE)
    lab.group("it", lab.replace("lib.f", "new.f", runtime_condition="new.healthy"))
    lab.apply()
    with pytest.raises(torch.utils.checkpoint.CheckpointError):
        train(lab, 1)


def test_an_optimizer_that_updates_within_backward_ends_the_step_with_it(latched: Lab) -> None:
    f = latched.load("lib").f
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(3)]
    optimizers = {id(weight): torch.optim.SGD([weight], lr=0.1) for weight in weights}
    for weight in weights:
        weight.register_post_accumulate_grad_hook(lambda item: optimizers[id(item)].step())
    for expected in ((6, 0), (6, 6)):
        out = torch.ones(3)
        for weight in weights:
            out = checkpoint(f, out * weight, use_reentrant=False)
        out.sum().backward()
        assert latched.hits() == expected


def test_a_change_is_told_when_it_takes_effect(caplog: pytest.LogCaptureFixture) -> None:
    latch = Latch("the kernel", "ok")
    with caplog.at_level(logging.WARNING, "turbo_hydra"):
        latch.set("failed")
        assert (latch.value, caplog.messages) == ("ok", [])
        end_step()
        assert latch.value == "failed"
        assert caplog.messages == ["the kernel is 'failed' from this step on; it was 'ok'"]
        end_step()
        latch.set("failed")
        end_step()
    assert len(caplog.messages) == 1, "what stays as it is needs no telling"


def test_the_last_change_of_a_step_counts_and_latches_change_together() -> None:
    first, second = Latch("first", 0), Latch("second", 0)
    for number in range(3):
        first.set(number)
        second.set(-number)
    first.set(0)
    end_step()
    assert (first.value, second.value) == (0, -2)


def test_changes_from_many_threads_are_none_of_them_lost() -> None:
    latches = [Latch(f"latch {number}", 0) for number in range(8)]

    def run(latch: Latch[int]) -> None:
        for number in range(200):
            latch.set(number)
            if number % 50 == 0:
                end_step()

    threads = [threading.Thread(target=run, args=(latch,)) for latch in latches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end_step()
    assert [latch.value for latch in latches] == [199] * 8


def test_a_compiled_condition_is_traced_and_a_change_compiles_once_more(lab: Lab) -> None:
    lab.write("lib", "def f(x):\n    return x * 1.0\n")
    lab.write("new", NEW.replace("HEALTH.set(False)", "").replace("x.exp().sin().exp()", "x * 2.0"))
    lab.group("it", lab.replace("lib.f", "new.f", runtime_condition="new.healthy"))
    lab.apply()
    torch._dynamo.reset()
    counters: Any = torch._dynamo.utils.counters
    counters.clear()
    f: Callable[..., Any] = lab.load("lib").f
    step = torch.compile(lambda x: f(x), backend="eager", fullgraph=True)
    seen = []
    for value in (True, False, True, False):
        lab.get("new.HEALTH").set(value)
        end_step()
        seen.append((float(step(torch.ones(1))), counters["stats"]["unique_graphs"]))
    assert seen == [(2.0, 1), (1.0, 2), (2.0, 2), (1.0, 2)]
    assert sum(counters["graph_break"].values()) == 0


def test_a_latch_that_was_made_before_torch_was_loaded_follows_its_optimizers() -> None:
    code = (
        "import sys\nfrom turbo_hydra import Latch\nlatch = Latch('it', 1)\nassert 'torch' not in sys.modules\n"
        "latch.set(2)\nimport torch\nlatch.set(3)\n"
        "torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1).step()\nprint(latch.value)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr


def test_a_change_that_has_taken_effect_is_done_with() -> None:
    latch = Latch("gone", 1)
    gone = weakref.ref(latch)
    latch.set(2)
    end_step()
    assert latch.value == 2
    del latch
    gc.collect()
    assert gone() is None


class _Optimizers(types.ModuleType):
    """What torch's module of optimizers has of it, with its hooks in sight."""

    def __init__(self) -> None:
        super().__init__("torch.optim.optimizer")
        self.hooks: list[Any] = []

    def register_optimizer_step_post_hook(self, hook: Any) -> None:
        self.hooks.append(hook)


def test_optimizers_are_hooked_once_and_as_soon_as_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    module, optimizers = sys.modules["turbo_hydra.engine.latch"], _Optimizers()
    monkeypatch.setattr(vars(module)["_Steps"], "watching", False)
    monkeypatch.delitem(sys.modules, "torch.optim.optimizer")
    first = Latch("first", 1)
    first.set(2)
    end_step()
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", optimizers)
    assert (first.value, optimizers.hooks) == (2, [])
    first.set(3)
    Latch("second", 1).set(2)
    first.set(4)
    (hook,) = optimizers.hooks
    assert first.value == 2
    hook(None, (), {})
    assert first.value == 4
