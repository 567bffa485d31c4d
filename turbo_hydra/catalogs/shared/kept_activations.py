# SPDX-License-Identifier: Apache-2.0
"""Which activations a compiled region keeps for its backward pass, where it may not keep all.

Of a memory budget torch makes a knapsack: bytes against operations, each tensor by itself. In a deep network they are
not by themselves. A small product that is added to the residual stream frees little, and all that follows it in the
network needs it, so that the backward pass begins by computing the whole stream again and holds each part until its
layer comes: the bytes are taken after all, and the time is lost. What is large, inside a layer, is needed in that layer
alone. So the stream is kept, and of the rest the largest goes first.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch._functorch.config as functorch
from torch import Tensor, fx
from torch.utils.checkpoint import CheckpointPolicy
from torch.utils.flop_counter import flop_registry

try:
    from torch._inductor.custom_graph_pass import CustomKnapsackSolver
except ImportError:  # torch before 2.11 takes any callable
    CustomKnapsackSolver = object  # type: ignore[assignment,misc]

# Written into the key of compiled graphs; to be raised with every change of what is kept.
_VERSION = "turbo_hydra.kept_activations 1"
# What passes on the result of a product as it is.
_SAME = ("view", "_unsafe_view", "reshape", "clone", "_to_copy", "convert_element_type")
_PRODUCTS = ("mm", "addmm", "bmm")


def settings(budget: float) -> dict[str, Any]:
    """Settings of `torch._functorch.config` for a region that may keep this part of its activations.

    Parameters
    ----------
    budget : float
        More than 0, at most 1: of what torch would keep where time alone counts.
    """
    chosen: dict[str, Any] = {"activation_memory_budget": budget}
    if budget < 1:
        chosen["activation_memory_budget_solver"] = LargestFirst()
        # Torch before 2.10 takes operators of our own as free, and has no such pass.
        for name, value in (("is_non_builtin_to_include", True), ("joint_custom_pass", keep_stream)):
            if hasattr(functorch, name):
                chosen[name] = value
    return chosen


class LargestFirst(CustomKnapsackSolver):
    """A value for `torch._functorch.config.activation_memory_budget_solver`."""

    def __call__(
        self, memory: Sequence[float], joint_graph: Any, max_memory: float, node_info: Any, nodes: Sequence[Any]
    ) -> tuple[list[int], list[int]]:
        """Divide tensors into those that are kept and those that are computed again, as torch asks of a solver.

        Parameters
        ----------
        memory : sequence of float
            Bytes of each tensor, as a part of what the region would keep.
        joint_graph : torch.fx.Graph
            Forward and backward.
        max_memory : float
            The memory budget: the sum of what is kept is at most this.
        node_info : object
            Not looked at.
        nodes : sequence of torch.fx.Node
            Whose tensors they are.

        Returns
        -------
        kept, again : list of int
            Indices.
        """
        place = {node: index for index, node in enumerate(joint_graph.nodes)}
        # The backward pass begins with the last layers, when everything is still there, and comes to the first when
        # most has gone. An operator of our own is several products, whose result is no larger than that of one.
        order = sorted(
            range(len(nodes)),
            key=lambda index: (_is_own_product(nodes[index]), -memory[index], place[nodes[index]]),
        )
        total, again = sum(memory), list[int]()
        for index in order:
            if total <= max_memory:
                break
            total -= memory[index]
            again.append(index)
        return sorted(set(order) - set(again)), again

    def uuid(self) -> Any:
        """What compiled graphs are cached by, in addition."""
        return _VERSION


def keep_stream(graph: fx.GraphModule, inputs: Any = None) -> fx.GraphModule:
    """A pass over forward and backward, before they are parted: the residual stream is to be kept in any case.

    That is: sums with the result of a product, of the shape of an activation that the region was given.
    """
    shapes = {_shape(node) for node in graph.graph.nodes if node.op == "placeholder"}
    shapes = {shape for shape in shapes if len(shape) > 2}
    for node in list(graph.graph.nodes):
        if node.op == "call_function" and _joins_stream(node, shapes):
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        # Under the name that autograd has given to what it keeps, a result would be kept a second time.
        if node.target is operator.getitem and _is_own_product(node.all_input_nodes[0]):
            while aliases := [user for user in node.users if _name(user) == "alias"]:
                aliases[0].replace_all_uses_with(node)
                graph.graph.erase_node(aliases[0])
    return graph


def _shape(node: fx.Node) -> tuple[str, ...]:
    """Sizes of a tensor, none of anything else; those that vary by their names, which say nothing of their values."""
    value = node.meta.get("val")
    return tuple(map(str, value.shape)) if isinstance(value, Tensor) else ()


def _joins_stream(node: fx.Node, shapes: set[tuple[str, ...]]) -> bool:
    added = _name(node) == "add" and _shape(node) in shapes
    return added and any(_is_product(item) for item in node.all_input_nodes)


def _is_product(node: fx.Node) -> bool:
    while _name(node) in _SAME:
        node = node.all_input_nodes[0]
    return _name(node) in _PRODUCTS


def _is_own_product(node: fx.Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    return packet in flop_registry and not str(packet).startswith("aten.")


def _name(node: fx.Node) -> str:
    """Name of a node's operator, without overload and namespace."""
    packet = getattr(node.target, "overloadpacket", None)
    return "" if packet is None else str(packet).rpartition(".")[2]
