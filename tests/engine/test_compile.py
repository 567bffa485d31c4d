# SPDX-License-Identifier: Apache-2.0
"""What `torch.compile` makes of a member: one graph, no break, no recompilation, and a trace that is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra import About
from turbo_hydra.engine.dispatch import dispatcher
from turbo_hydra.engine.hits import Hits

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

torch = pytest.importorskip("torch", reason="torch is not installed")

LIB = """
    import torch

    def act(x, scale=1.0):
        return x * scale

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            return act(self.linear(x))

        @staticmethod
        def half(x):
            return x * 0.5
"""
NEW = """
    import torch
    from turbo_hydra import fallback

    def act(x, scale=1.0):
        return x * scale + 1.0

    def forward(self, x):
        return self.linear(x) - 1.0

    def wide(x, scale=1.0):
        return x.shape[0] > 2

    def wrapping(original, options):
        def guarded(x, scale=1.0):
            if x.dtype is not torch.float32:
                fallback("not float32")
                return original(x, scale)
            return original(x, scale) + 1.0
        return guarded
"""


@pytest.fixture(autouse=True)
def dynamo() -> Iterator[Any]:
    """Dynamo's counters, from zero."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch._dynamo.utils.counters
    torch._dynamo.reset()


@pytest.fixture
def compiled_lab(lab: Lab) -> Lab:
    lab.write("lib", LIB)
    lab.write("new", NEW)
    return lab


def compiled(function: Any, **settings: Any) -> Any:
    return torch.compile(function, backend="eager", fullgraph=True, **settings)


def graphs(dynamo: Any) -> tuple[int, int]:
    """How many graphs were made, and how many breaks there were."""
    return dynamo["stats"]["unique_graphs"], sum(dynamo["graph_break"].values())


def test_a_function_is_inlined_into_one_graph_and_reported_as_traced(
    compiled_lab: Lab, dynamo: Any, recwarn: pytest.WarningsRecorder
) -> None:
    lab = compiled_lab
    lab.group("it", lab.replace("lib.act", "new.act"))
    lab.apply()
    lib = lab.load("lib")
    step = compiled(lambda x: lib.act(x) * 2.0)
    x = torch.ones(3, 4)
    for _ in range(12):
        assert torch.equal(step(x), (x + 1.0) * 2.0)
    assert graphs(dynamo) == (1, 0)
    assert lab.member()["hits"] == {"replacement": 0, "original": 0, "traced": 1, "reasons": {}}
    assert not [item for item in recwarn if "lru_cache" in str(item.message)], "what counts caches nothing"
    # Eager calls of the same member go on being counted, and cause no recompilation.
    lib.act(x)
    step(x)
    assert graphs(dynamo) == (1, 0)
    assert lab.member()["hits"]["replacement"] == 1


def test_what_is_called_in_place_of_a_replacement_is_not_compiled(dynamo: Any) -> None:
    hits = Hits()
    seen: list[str] = []

    def replacement(x: Any) -> Any:
        return x + 1.0

    def eager(x: Any) -> Any:
        seen.append("eager")
        return replacement(x)

    act = dispatcher(lambda x: x, replacement, hits=hits, eager=eager)
    x = torch.ones(3)
    assert torch.equal(compiled(lambda x: act(x) * 2.0)(x), (x + 1.0) * 2.0)
    assert (seen, graphs(dynamo), hits.traced) == ([], (1, 0), 1)
    assert torch.equal(act(x), x + 1.0)
    assert (seen, hits.replacement) == (["eager"], 1)


def test_a_compiled_module_whose_forward_is_a_target(compiled_lab: Lab, dynamo: Any) -> None:
    lab = compiled_lab
    lab.group("it", lab.replace("lib.Net.forward", "new.forward"))
    lab.apply()
    net = lab.load("lib").Net()
    step = compiled(net)
    x = torch.ones(3, 4)
    for _ in range(12):
        assert torch.equal(step(x), net.linear(x) - 1.0)
    assert graphs(dynamo) == (1, 0)
    assert lab.member()["hits"]["traced"] > 0


def test_a_compiled_bound_method_that_is_a_target(compiled_lab: Lab, dynamo: Any) -> None:
    lab = compiled_lab
    lab.group("it", lab.replace("lib.Net.forward", "new.forward"))
    lab.apply()
    net = lab.load("lib").Net()
    step = compiled(net.forward)
    x = torch.ones(3, 4)
    for _ in range(12):
        assert torch.equal(step(x), net.linear(x) - 1.0)
    assert graphs(dynamo) == (1, 0)
    assert lab.member()["hits"]["traced"] > 0


def test_a_target_below_a_compiled_module(compiled_lab: Lab, dynamo: Any) -> None:
    lab = compiled_lab
    lab.group("it", lab.replace("lib.act", "new.act"), lab.replace("lib.Net.half", "new.half"))
    lab.write("new", NEW + "\n    def half(x):\n        return x * 0.25\n")
    lab.apply()
    net = lab.load("lib").Net()
    step = compiled(lambda x: net.half(net(x)))
    x = torch.ones(3, 4)
    for _ in range(12):
        assert torch.equal(step(x), (net.linear(x) + 1.0) * 0.25)
    assert graphs(dynamo) == (1, 0)
    assert [lab.member(index=index)["hits"]["traced"] for index in (0, 1)] == [1, 1]


def test_gradients_flow_and_backward_makes_no_second_graph(compiled_lab: Lab, dynamo: Any) -> None:
    lab = compiled_lab
    lab.group("it", lab.wrap("lib.act", "new.wrapping"))
    lab.apply()
    net = lab.load("lib").Net()
    step = compiled(net)
    x = torch.ones(3, 4)
    for _ in range(4):
        net.zero_grad()
        step(x).sum().backward()
        assert torch.equal(net.linear.bias.grad, torch.full((4,), 3.0))
    assert graphs(dynamo) == (1, 0)


def test_a_condition_on_the_shape_chooses_while_tracing(compiled_lab: Lab, dynamo: Any) -> None:
    lab = compiled_lab
    lab.group("it", lab.replace("lib.act", "new.act", runtime_condition="new.wide"))
    lab.apply()
    lib = lab.load("lib")
    step = compiled(lambda x: lib.act(x), dynamic=False)
    for rows in (4, 1, 4, 1):
        x = torch.ones(rows, 4)
        assert torch.equal(step(x), x + 1.0 if rows > 2 else x)
    assert graphs(dynamo) == (2, 0), "one for each shape, as without the condition"
    assert lab.member()["hits"] == {"replacement": 0, "original": 0, "traced": 1, "reasons": {}}


def test_a_condition_on_a_symbolic_size_is_traced(compiled_lab: Lab, dynamo: Any) -> None:
    lab = compiled_lab
    lab.group("it", lab.replace("lib.act", "new.act", runtime_condition="new.wide"))
    lab.apply()
    lib = lab.load("lib")
    step = compiled(lambda x: lib.act(x), dynamic=True)
    for rows in (4, 5, 6, 7):
        x = torch.ones(rows, 9)  # no size equals another, which Dynamo would take for a rule
        assert torch.equal(step(x), x + 1.0)
    assert graphs(dynamo) == (1, 0)


def test_a_guard_that_falls_back_breaks_no_graph(compiled_lab: Lab, dynamo: Any) -> None:
    lab = compiled_lab
    lab.group("it", lab.wrap("lib.act", "new.wrapping"))
    lab.apply()
    lib = lab.load("lib")
    step = compiled(lambda x: lib.act(x))
    x = torch.ones(3, 4, dtype=torch.float64)
    for _ in range(5):
        assert torch.equal(step(x), x)
    assert graphs(dynamo) == (1, 0)
    assert lab.member()["hits"]["reasons"] == {}


def test_what_calls_the_member_is_compiled_as_often_as_without_it(compiled_lab: Lab, dynamo: Any) -> None:
    lab = compiled_lab
    lab.group("it", lab.replace("lib.act", "new.act"))

    def run(act: Callable[..., Any]) -> tuple[int, int]:
        torch._dynamo.reset()
        dynamo.clear()
        step = torch.compile(lambda x, scale: act(x, scale), backend="eager")
        for rows, scale in ((2, 1.0), (3, 1.0), (4, 2.0), (2, 3.0), (5, 1.0)):
            step(torch.ones(rows, 4), scale)
        return graphs(dynamo)

    plain = run(lab.get("new.act"))
    lab.apply()
    assert run(lab.load("lib").act) == plain


def test_a_member_among_eager_calls_is_counted_exactly(compiled_lab: Lab) -> None:
    lab = compiled_lab
    lab.group("it", lab.replace("lib.act", "new.act", runtime_condition="new.wide"))
    lab.apply()
    lib = lab.load("lib")
    for rows in (1, 2, 3, 4, 5):
        lib.act(torch.ones(rows, 4))
    assert lab.hits() == (3, 2)


def test_a_checkpoint_s_recomputation_counts_as_a_call(compiled_lab: Lab) -> None:
    lab = compiled_lab
    lab.write("new", "def act(x, scale=1.0):\n    return x.exp().exp()\n")
    lab.group("it", lab.replace("lib.act", "new.act"))
    lab.apply()
    lib = lab.load("lib")
    x = torch.ones(3, 4, requires_grad=True)
    torch.utils.checkpoint.checkpoint(lib.act, x, use_reentrant=False).sum().backward()
    assert lab.hits() == (2, 0)


def test_the_static_methods_of_an_autograd_function_are_targets(compiled_lab: Lab) -> None:
    lab = compiled_lab
    lab.write(
        "lib",
        """
        import torch

        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * 2
        """,
    )
    lab.write("new", "def forward(ctx, x):\n    return x * 3\ndef backward(ctx, grad):\n    return grad * 3\n")
    lab.group("it", lab.replace("lib.Twice.forward", "new.forward"), lab.replace("lib.Twice.backward", "new.backward"))
    lab.record()
    twice = lab.load("lib").Twice
    before = dict(vars(twice))
    lab.apply()
    x = torch.ones(2, requires_grad=True)
    out = twice.apply(x)
    out.sum().backward()
    assert torch.equal(out, torch.full((2,), 3.0))
    assert torch.equal(x.grad, torch.full((2,), 3.0))
    assert [lab.hits(index=0), lab.hits(index=1)] == [(1, 0), (1, 0)]
    lab.engines[-1].undo()
    assert dict(vars(twice)) == before


# A group that says of itself that it may not be compiled.

INTERPRETED = """
    import torch

    def act(x, scale=1.0):
        # What a compiler sees is known from outside only; the interpreter sees whether it is in a compiled region.
        return x * scale + (5.0 if torch.compiler.is_compiling() else 1.0)
"""


@pytest.fixture
def uncompilable(compiled_lab: Lab) -> Lab:
    lab = compiled_lab
    lab.write("new", NEW + INTERPRETED)
    lab.group("it", lab.replace("lib.act", "new.act"), about=About(why="a test", compile=False))
    return lab


@pytest.mark.parametrize("counting", ["auto", "off"])
def test_a_compiled_caller_breaks_its_graph_where_a_member_may_not_be_compiled(
    uncompilable: Lab, dynamo: Any, counting: Any
) -> None:
    lab = uncompilable
    lab.apply(count_calls=counting)
    lib = lab.load("lib")
    step = torch.compile(lambda x: lib.act(x * 3.0) * 2.0, backend="eager")
    for _ in range(4):
        assert torch.equal(step(torch.ones(3, 4)), torch.full((3, 4), 8.0))
    assert graphs(dynamo)[0] == 2, "one before the member and one after it; its own code is in none"
    if counting == "auto":
        assert lab.member()["hits"] == {"replacement": 4, "original": 0, "traced": 0, "reasons": {}}


def test_a_compiled_caller_that_allows_no_break_is_told(uncompilable: Lab) -> None:
    lab = uncompilable
    lab.apply()
    lib = lab.load("lib")
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"turbo_hydra lab\.it"):
        compiled(lambda x: lib.act(x))(torch.ones(3, 4))


def test_eager_calls_of_a_member_that_may_not_be_compiled_are_as_any(uncompilable: Lab) -> None:
    lab = uncompilable
    lab.apply()
    assert torch.equal(lab.load("lib").act(torch.ones(2), scale=3.0), torch.full((2,), 4.0))
    assert lab.hits() == (1, 0)


def test_beside_a_group_that_compiles_it_is_refused(uncompilable: Lab) -> None:
    lab = uncompilable
    lab.write("wraps", "import torch\ndef compiled(original, options):\n    return torch.compile(original)\n")
    lab.group("compiling", lab.wrap("lib.Net.forward", "wraps.compiled"), about=About(why="a test", compiles=True))
    lab.group("after", lab.replace("lib.Net.half", "new.forward"), depends_on=("it",))
    lab.apply(force=("it",))
    assert (lab.status(), lab.codes()) == ("blocked", ["compile.pairing"])
    assert lab.message() == (
        "'lab.it' may not run under torch.compile (its about says compile=False), which 'lab.compiling' uses; "
        "switch one off"
    )
    assert lab.status("compiling") == "applied"
    assert lab.status("after") == "blocked", "what depends on it is blocked too"
    lab.engines[-1].undo()
    lab.apply(disable=("compiling", "after"))
    assert lab.status() == "applied"


@pytest.mark.parametrize("why", ["blocked", "in conflict", "needs a blocked one", "off"])
def test_a_group_that_compiles_and_is_not_applied_refuses_nobody(uncompilable: Lab, why: str) -> None:
    lab = uncompilable
    lab.write("wraps", "import torch\ndef compiled(original, options):\n    return torch.compile(original)\n")
    about = About(why="a test", compiles=True)
    needs = ("missing",) if why == "needs a blocked one" else ()
    target = "lib.Net.nothing" if why == "blocked" else "lib.Net.forward"
    lab.group("missing", lab.replace("lib.nothing", "new.forward"))
    lab.group("compiling", lab.wrap(target, "wraps.compiled"), about=about, depends_on=needs)
    lab.group("rival", lab.replace("lib.Net.forward", "new.forward"))
    off = {"off": ("compiling", "rival"), "in conflict": ()}.get(why, ("rival",))
    lab.apply(disable=off)
    assert lab.status("compiling") == ("skipped" if why == "off" else "blocked")
    assert lab.status() == "applied"


def test_a_group_that_compiles_stands_beside_groups_that_may_be_compiled(compiled_lab: Lab) -> None:
    lab = compiled_lab
    lab.group("it", lab.replace("lib.act", "new.act"), about=About(why="a test"))
    lab.write("wraps", "import torch\ndef compiled(original, options):\n    return torch.compile(original)\n")
    lab.group("compiling", lab.wrap("lib.Net.forward", "wraps.compiled"), about=About(why="a test", compiles=True))
    lab.apply()
    assert (lab.status(), lab.status("compiling")) == ("applied", "applied")


def test_a_frame_that_was_compiled_before_is_told_and_keeps_the_original(compiled_lab: Lab) -> None:
    lab = compiled_lab
    lab.group("it", lab.replace("lib.act", "new.act"))
    lab.record()
    lib = lab.load("lib")
    act = torch.compile(lib.act, backend="eager")
    for scale in (1.0, 2.0):
        act(torch.ones(3, 4), scale)
    lab.apply()
    check = lab.checks()["compiled.before"]
    assert (check.status, lab.status()) == ("warning", "applied")
    assert f"'{lab.path('lib.act')}' was compiled before apply()" in check.message
    assert torch.equal(act(torch.ones(3, 4), 1.0), torch.ones(3, 4)), "what was compiled computes what it did"
    assert torch.equal(lib.act(torch.ones(3, 4), 1.0), torch.full((3, 4), 2.0))


def test_without_such_a_frame_there_is_no_warning(compiled_lab: Lab) -> None:
    lab = compiled_lab
    lab.group("it", lab.replace("lib.act", "new.act"))
    lab.load("lib")
    lab.apply()
    assert "compiled.before" not in lab.checks()
