"""Graphs with dynamic sizes as one package: a plan for each bucket of sizes, to which inputs are padded.

Powers of two are the buckets. That padding changes no result is proven when the package is built (docs/architecture.md); a graph for which it is not gets
a package for each size instead.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from . import torch_graph
from .torch_graph import Subgraph

Place = tuple[int, int]  # position of an input, and its axis


@dataclass(frozen=True)
class SymbolicGraph:
    """A whole graph of which inputs have dynamic sizes.

    Attributes:
        module: the graph.
        examples: of its inputs, with the names of symbols, "d0", in the place of dynamic sizes; inputs that are numbers are symbols too.
        frozen: positions of inputs that are constants of the package.
        places: where the size of each symbol is read.
    """

    module: torch.fx.GraphModule
    examples: list[Any]
    frozen: tuple[int, ...]
    places: tuple[Place, ...]

    def sizes_of(self, args: Sequence[Any]) -> tuple[int, ...]:
        return tuple(args[position].shape[axis] for position, axis in self.places)

    def subgraph(self, args: Sequence[Any]) -> Subgraph:
        """With the constants of a call, which are not kept here: a model may let go of its weights."""
        return Subgraph(self.module, {position: args[position] for position in self.frozen}, self.examples)


@dataclass(frozen=True)
class _Example:
    dtype: Any
    shape: tuple[int | str, ...]


class _NotSymbolic(Exception):
    """The graph has no form with symbols."""


class _Symbols:
    """Names by PyTorch's symbols, and the first place of each."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self.places: list[Place] = []

    def extent(self, extent: Any, place: Place) -> int | str:
        """An extent of an input as an example has it. Raises _NotSymbolic: it is something else than a number or a symbol."""
        if not isinstance(extent, torch.SymInt):
            return int(extent)
        expression = extent.node.expr
        if not expression.is_symbol:
            raise _NotSymbolic
        if expression not in self._names:
            self._names[expression] = f"d{len(self._names)}"
            self.places.append(place)
        return self._names[expression]

    def name(self, number: Any) -> str:
        """Of an input that is a number. Raises _NotSymbolic: no tensor has that size."""
        name = self._names.get(number.node.expr) if isinstance(number, torch.SymInt) else None
        if name is None:
            raise _NotSymbolic
        return name


def _check_outputs(graph: torch.fx.Graph) -> None:
    """Results are tensors of their own: none is an input, a number, or shares memory with another one. Raises _NotSymbolic."""
    (output,) = [node for node in graph.nodes if node.op == "output"]
    origins = set()
    for made in output.args[0]:
        if not isinstance(made, torch.fx.Node) or not isinstance(made.meta.get("val"), torch.Tensor):
            raise _NotSymbolic
        while torch_graph._is_view(made):
            made = made.args[0]
        if made.op != "call_function" or made in origins:
            raise _NotSymbolic
        origins.add(made)


def symbolic_graph(graph: torch.fx.GraphModule, frozen: Collection[int]) -> SymbolicGraph | None:
    """The graph with its dynamic sizes as symbols; None where a package cannot have them.

    Args:
        frozen: positions of the inputs that are constants of a package.
    """
    symbols, examples = _Symbols(), []
    values = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    try:
        _check_outputs(graph.graph)
        for position, value in enumerate(values):
            known = isinstance(value, torch.Tensor)
            examples.append(_Example(value.dtype, tuple(symbols.extent(extent, (position, axis)) for axis, extent in enumerate(value.shape))) if known else None)
        examples = [_Example("number", (symbols.name(value),)) if example is None else example for example, value in zip(examples, values)]
    except _NotSymbolic:
        return None
    if not symbols.places or any(position in frozen for position, _ in symbols.places):
        return None
    return SymbolicGraph(graph, examples, tuple(sorted(frozen)), tuple(symbols.places))


def _module(symbolic: SymbolicGraph, args: Sequence[Any]) -> tuple[torch.nn.Module, list[int]]:
    """The graph as a module of the tensors that come with each call, and their positions. Numbers are read from the tensors' shapes."""
    subgraph = symbolic.subgraph(args)
    graph, owner = torch.fx.Graph(), torch.nn.Module()
    placeholders = [node for node in subgraph.module.graph.nodes if node.op == "placeholder"]
    numbers: dict[torch.fx.Node, torch.fx.Node] = {}
    given = []
    for position, (node, example) in enumerate(zip(placeholders, subgraph.examples)):
        if example.dtype == "number":
            continue
        constant = subgraph.constants.get(position)
        if constant is None:
            numbers[node] = graph.placeholder(f"x{position}")
            given.append(position)
        else:
            owner.register_buffer(f"w{position}", constant.detach())
            numbers[node] = graph.get_attr(f"w{position}")
    for node, example in zip(placeholders, subgraph.examples):
        if example.dtype == "number":
            position, axis = symbolic.places[int(example.shape[0][1:])]
            numbers[node] = graph.call_function(torch.ops.aten.sym_size.int, (numbers[placeholders[position]], axis))
    for node in subgraph.module.graph.nodes:
        if node.op == "get_attr":
            owner.register_buffer(node.target, getattr(subgraph.module, node.target).detach())
        if node.op == "output":
            graph.output(torch.fx.node.map_arg(node.args[0], lambda one: numbers[one]))
        elif node.op != "placeholder":
            numbers[node] = graph.node_copy(node, lambda one: numbers[one])
            numbers[node].meta = {}
    return torch.fx.GraphModule(owner, graph), given


def export(symbolic: SymbolicGraph, args: Sequence[Any], path: str) -> list[str]:
    """Writes the graph as an ONNX model with symbolic dimensions, as torch_graph.export does, and returns their names by symbol.

    Raises whatever PyTorch's exporter raises, for example where the graph is right for some sizes alone.
    """
    module, given = _module(symbolic, args)
    examples = symbolic.examples
    dims = [torch.export.Dim(f"d{number}") for number in range(len(symbolic.places))]
    # Sizes of 0 and 1 would be taken for fixed; two sizes that are equal, for one.
    extents = [args[position].shape[axis] for position, axis in symbolic.places]
    if min(extents) < 2 or len(set(extents)) < len(extents):
        extents = [max(extent, 2) + 2 * number for number, extent in enumerate(extents)]
    inputs = tuple(torch.zeros([extent if isinstance(extent, int) else extents[int(extent[1:])] for extent in examples[position].shape],
                               dtype=examples[position].dtype, device=args[position].device) for position in given)
    shapes = tuple({axis: dims[int(extent[1:])] for axis, extent in enumerate(examples[position].shape) if isinstance(extent, str)} for position in given)
    exported = torch_graph.export_module(module, inputs, shapes)
    exported.save(path, external_data=True)
    by_name = {port.name: port for port in exported.model.graph.inputs}
    return [str(by_name[f"x{position}"].shape[axis]) for position, axis in symbolic.places]


class Buckets:
    """Sizes that have a plan, by symbol. They grow with the sizes that are asked for."""

    def __init__(self, symbols: int) -> None:
        self._sizes: list[list[int]] = [[] for _ in range(symbols)]

    @property
    def sizes(self) -> list[list[int]]:
        return self._sizes

    def with_room_for(self, sizes: Sequence[int]) -> Buckets:
        """These, or more where they have no plan for `sizes`: the next power of two."""
        more = Buckets(len(self._sizes))
        for place, (have, size) in enumerate(zip(self._sizes, sizes)):
            more._sizes[place] = have if have and size <= have[-1] else [*have, 1 << (size - 1).bit_length()]
        return more

    def plan_of(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """The sizes of the plan that runs `sizes`. REQUIRES: there is one."""
        return tuple(next(one for one in have if one >= size) for have, size in zip(self._sizes, sizes))

    def __len__(self) -> int:
        """Plans."""
        return math.prod(len(have) for have in self._sizes) if self._sizes else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Buckets) and self._sizes == other._sizes

    def __hash__(self) -> int:
        return hash(repr(self._sizes))
