# SPDX-License-Identifier: Apache-2.0
"""Groups on `torch.nn.Module`s that others shard, copy, switch to evaluation or export."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

torch = pytest.importorskip("torch", reason="torch is not installed")

LIB = """
    import torch

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.drop = torch.nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(self.linear(x))

        def sample(self, x):
            return self.linear(x)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([Layer(), Layer()])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x
"""
NEW = """
    import torch
    from turbo_hydra import fallback
    from . import lib

    class Layer(lib.Layer):
        def forward(self, x):
            return self.linear(x) * 2.0

    def forward(self, x):
        return self.linear(x) * 2.0

    def sample(self, x):
        return self.linear(x) * 2.0

    def in_training(original, options):
        def forward(self, x):
            if not self.training:
                fallback("evaluation")
                return original(self, x)
            return self.linear(x) * 2.0
        return forward
"""


@pytest.fixture
def modules(lab: Lab) -> Lab:
    lab.write("lib", LIB)
    lab.write("new", NEW)
    return lab


def expected(net: Any, x: Any) -> Any:
    """What the replaced layers make of `x`, by hand."""
    for layer in net.layers:
        x = torch.nn.functional.linear(x, layer.linear.weight, layer.linear.bias) * 2.0
    return x


# Evaluation.


def test_evaluation_and_training_reach_the_same_member(modules: Lab) -> None:
    modules.group("it", modules.replace("lib.Layer.forward", "new.forward"))
    modules.apply()
    net, x = modules.load("lib").Net(), torch.ones(2, 4)
    for mode in (net.train, net.eval, net.train):
        mode()
        assert torch.equal(net(x), expected(net, x))
    assert modules.hits() == (6, 0)


def test_a_guard_on_evaluation_is_tallied_and_the_original_sees_the_module_s_mode(modules: Lab) -> None:
    modules.group("it", modules.wrap("lib.Layer.forward", "new.in_training"))
    modules.apply()
    layer, x = modules.load("lib").Layer(), torch.ones(2, 4)
    assert torch.equal(layer(x), layer.linear(x) * 2.0)
    layer.eval()
    assert torch.equal(layer(x), layer.linear(x)), "the original's dropout is off"
    assert modules.member()["hits"] == {"replacement": 1, "original": 1, "traced": 0, "reasons": {"evaluation": 1}}


def test_the_grad_mode_of_the_caller_is_the_replacement_s(modules: Lab) -> None:
    modules.group("it", modules.replace("lib.Layer.forward", "new.forward"))
    modules.apply()
    layer, x = modules.load("lib").Layer(), torch.ones(2, 4)
    modes = (torch.no_grad, torch.inference_mode, torch.enable_grad)
    seen = []
    for mode in modes:
        with mode():
            out = layer(x)
        seen.append((out.requires_grad, out.is_inference()))
    assert seen == [(False, False), (False, True), (True, False)]
    assert modules.hits() == (3, 0)


# Copies.


def test_copies_of_a_module_follow_the_member_and_its_undo(modules: Lab) -> None:
    modules.group("it", modules.replace("lib.Layer.forward", "new.forward"))
    made = modules.apply()
    net, x = modules.load("lib").Net().eval(), torch.ones(2, 4)
    copies = [copy.deepcopy(net), pickle.loads(pickle.dumps(net))]
    for item in copies:
        assert torch.equal(item(x), expected(net, x))
        assert list(item.state_dict()) == list(net.state_dict())
    made.undo()
    first, second = net.layers
    for item in (net, *copies):
        assert torch.equal(item(x), second.linear(first.linear(x)))


@pytest.mark.slow  # importing torch's exporter takes as long as the other tests together
def test_an_exported_graph_holds_the_replacement_and_keeps_it(modules: Lab) -> None:
    modules.group("it", modules.replace("lib.Layer.forward", "new.forward"))
    made = modules.apply()
    net, x = modules.load("lib").Net().eval(), torch.ones(2, 4)
    exported = torch.export.export(net, (x,))
    told = modules.member()["hits"]
    assert told["replacement"] + told["traced"] == 2, "what export ran or traced is told"
    made.undo()
    assert torch.allclose(exported.module()(x), expected(net, x))
    assert modules.member()["hits"] == told, "what the graph computes is not"


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_torchscript_compiles_the_original_and_the_member_is_told_as_never_reached(lab: Lab) -> None:
    lab.write("lib", "import torch\n\ndef f(x: torch.Tensor) -> torch.Tensor:\n    return x * 2.0\n")
    lab.write("new", "def f(x):\n    return x * 3.0\n")
    lab.group("it", lab.replace("lib.f", "new.f"))
    made = lab.apply()
    scripted = torch.jit.script(lab.load("lib").f)
    assert float(scripted(torch.ones(1))) == 2.0
    hits = made.plan.groups["lab.it"].members[0].hits
    assert hits is not None
    assert (hits.replacement, hits.traced) == (0, 0)


# FSDP2 gives every module that it shards a class of its own, made from the module's.


@pytest.fixture(scope="module")
def mesh() -> Iterator[Any]:
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("torch has no gloo")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield distributed.device_mesh.init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


def shard(net: Any, mesh: Any) -> Any:
    from torch.distributed.fsdp import fully_shard

    for layer in net.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def train(net: Any, x: Any) -> tuple[Any, list[Any]]:
    """Output and gradients of one step, as plain tensors."""
    net.zero_grad()
    out = net(x)
    out.sum().backward()
    grads = [item.grad.full_tensor() if hasattr(item.grad, "full_tensor") else item.grad for item in net.parameters()]
    return out.detach(), grads


def same(first: tuple[Any, list[Any]], second: tuple[Any, list[Any]]) -> bool:
    return torch.equal(first[0], second[0]) and all(map(torch.equal, first[1], second[1]))


@pytest.mark.parametrize("sharded_first", [False, True], ids=["applied first", "sharded first"])
def test_a_method_reaches_the_classes_that_fsdp2_makes(modules: Lab, mesh: Any, sharded_first: bool) -> None:
    modules.group("it", modules.replace("lib.Layer.forward", "new.forward"))
    modules.record()
    lib = modules.load("lib")
    net, x = lib.Net(), torch.ones(2, 4)
    plain = copy.deepcopy(net)
    if sharded_first:
        shard(net, mesh)
        made = modules.apply()
    else:
        made = modules.apply()
        shard(net, mesh)
    assert type(net.layers[0]) is not lib.Layer
    assert same(train(net, x), train(plain, x))
    assert torch.equal(plain(x), expected(plain, x))
    assert modules.hits() == (6, 0)
    with torch.no_grad():
        assert torch.equal(net.eval()(x), expected(plain, x))
    made.undo()
    first, second = plain.layers
    assert torch.equal(net(x), second.linear(first.linear(x))), "a sharded module follows the undo too"


def test_a_class_that_was_replaced_is_what_fsdp2_makes_its_class_from(modules: Lab, mesh: Any) -> None:
    modules.group("it", modules.replace("lib.Layer", "new.Layer"))
    modules.apply()
    lib = modules.load("lib")
    net, x = lib.Net(), torch.ones(2, 4)
    plain = copy.deepcopy(net)
    shard(net, mesh)
    assert isinstance(net.layers[0], lib.Layer)
    assert same(train(net, x), train(plain, x))
    assert torch.equal(plain(x), expected(plain, x))


def test_a_class_that_fsdp2_has_made_classes_from_is_refused_by_their_names(modules: Lab, mesh: Any) -> None:
    modules.group("it", modules.replace("lib.Layer", "new.Layer"))
    modules.record()
    net = shard(modules.load("lib").Net(), mesh)
    modules.apply()
    assert (modules.status(), modules.codes()) == ("blocked", ["target.subclasses"])
    assert "FSDPLayer" in modules.message()
    assert type(net.layers[0]).__name__ == "FSDPLayer"


def test_a_method_that_fsdp2_holds_at_the_instance_is_told(modules: Lab, mesh: Any) -> None:
    from torch.distributed.fsdp import register_fsdp_forward_method

    modules.group("it", modules.replace("lib.Layer.sample", "new.sample"))
    modules.record()
    net, x = shard(modules.load("lib").Net(), mesh), torch.ones(2, 4)
    layer = net.layers[0]
    register_fsdp_forward_method(layer, "sample")
    modules.apply()
    check = modules.checks()["instances.own_attribute"]
    assert check.status == "warning"
    assert "FSDPLayer" in check.message
    layer.sample(x)
    assert modules.hits() == (0, 0), "the method that was taken before is held"
    modules.engines[-1].undo()


def test_a_method_that_fsdp2_holds_after_apply_is_the_replacement(modules: Lab, mesh: Any) -> None:
    from torch.distributed.fsdp import register_fsdp_forward_method

    modules.group("it", modules.replace("lib.Layer.sample", "new.sample"))
    modules.apply()
    net, x = shard(modules.load("lib").Net(), mesh), torch.ones(2, 4)
    register_fsdp_forward_method(net.layers[0], "sample")
    net.layers[0].sample(x)
    assert modules.hits() == (1, 0)


def test_the_class_that_fsdp2_makes_is_no_target(modules: Lab, mesh: Any) -> None:
    target = "/torch.distributed.fsdp._fully_shard._fsdp_init.FSDPLayer.forward"
    modules.group("it", modules.replace(target, "new.forward"))
    shard(modules.load("lib").Net(), mesh)
    modules.apply()
    assert (modules.status(), modules.codes()) == ("blocked", ["target.missing"])
