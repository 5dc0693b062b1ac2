"""ATen graphs for torch.compile: which nodes can be compiled, how a graph is split, and subgraphs as ONNX models."""

from __future__ import annotations

import functools
import hashlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._dynamo.convert_frame import compile_lock
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from .fallbacks import Fallback
from .quiet_exporter import quiet_exporter

_aten = torch.ops.aten

_DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16", torch.int64: "int64", torch.int32: "int32",
           torch.int8: "int8", torch.uint8: "uint8", torch.bool: "bool"}

# Operators whose result depends on how their input lies in memory, which a subgraph does not keep.
_OF_MEMORY = {"aten.as_strided", "aten.as_strided_scatter", "aten.as_strided_copy", "aten.set_", "aten.resize", "aten.resize_", "aten.empty_strided",
              "aten.new_empty_strided", "aten.empty", "aten.empty_like", "aten.new_empty"}

# Operators that only look at a tensor in another way: a subgraph of these is not worth a call.
_VIEWS = {"aten.view", "aten._unsafe_view", "aten.reshape", "aten.permute", "aten.transpose", "aten.t", "aten.squeeze", "aten.unsqueeze", "aten.expand",
          "aten.slice", "aten.select", "aten.split", "aten.split_with_sizes", "aten.alias", "aten.detach", "aten.clone", "aten._to_copy",
          "aten.unbind", "aten.chunk", "aten.lift_fresh_copy", "aten.full", "aten.arange", "aten.scalar_tensor", "aten.zeros", "aten.ones"}

_HEAVY = {"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.convolution", "aten._convolution", "aten.matmul", "aten.linear", "aten.einsum",
          "aten._scaled_dot_product_attention_math", "aten.upsample_bilinear2d", "aten.grid_sampler_2d", "aten.mv", "aten.addmv"}


def operator_name(node: torch.fx.Node) -> str:
    return str(node.target)


def computes(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and node.target is not operator.getitem


def _packet(node: torch.fx.Node) -> str:
    target = node.target
    return str(target.overloadpacket) if isinstance(target, torch._ops.OpOverload) else str(target)


def module_of(node: torch.fx.Node) -> str:
    """The innermost module that a node came from: "L['self'].head (Linear)"."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path, kind = list(stack.values())[-1]
    return f"{path} ({kind if isinstance(kind, str) else kind.__name__})"


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for one in value for tensor in _tensors(one)]
    return []


def _numbers(value: Any) -> bool:
    """Whether there is a number in it that is only known when the network runs."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    return isinstance(value, (list, tuple)) and any(_numbers(one) for one in value)


@functools.cache
def _exporter() -> Callable[[Any], bool]:
    """Whether PyTorch's exporter knows an operator. Raises ImportError where it is not installed."""
    import onnx  # noqa: F401
    import onnxscript  # noqa: F401
    from torch.onnx._internal.exporter import _registration

    registry = _registration.ONNXRegistry.from_torchlib()
    decompositions = torch.export.default_decompositions()
    return lambda target: registry.is_registered(target) or target in decompositions


def _wrong_tensor(tensor: torch.Tensor, device: torch.device, what: str) -> str | None:
    if tensor.layout != torch.strided:
        return f"{what} is of layout {tensor.layout}; dense tensors are supported"
    if tensor.dtype not in _DTYPES:
        return f"{what} is of type {str(tensor.dtype).removeprefix('torch.')}; {', '.join(sorted(_DTYPES.values()))} are supported"
    if tensor.device != device:
        return f"{what} is on {tensor.device}; the graph is compiled for {device}"
    if any(isinstance(extent, int) and extent == 0 for extent in tensor.shape):
        return f"{what} is empty (shape {list(tensor.shape)})"
    if tensor.dim() > 8:
        return f"{what} has {tensor.dim()} dimensions; up to 8 are supported"
    return None


def _indexes_by_numbers(node: torch.fx.Node) -> bool:
    """x[i, j] with tensors of integers; with a mask, the shape of the result would depend on its values."""
    if _packet(node) != "aten.index":
        return False
    return all(index is None or index.meta["val"].dtype in (torch.int64, torch.int32) for index in node.args[1])


def _wrong_target(node: torch.fx.Node) -> str | None:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return "it is no operator of PyTorch's ATen library"
    if _packet(node) in _OF_MEMORY:
        return "its result depends on how tensors lie in memory"
    if torch.Tag.nondeterministic_seeded in target.tags:
        return "it draws random numbers"
    if torch.Tag.dynamic_output_shape in target.tags and not _indexes_by_numbers(node):
        return "the shape of its result depends on values"
    if torch.Tag.data_dependent_output in target.tags:
        return "it turns a value into a number of Python"
    if target.namespace == "aten" and target._schema.is_mutable:
        return "it writes to its input"
    if not _exporter()(target):
        return "PyTorch has no ONNX form of it"
    return None


def why_not(node: torch.fx.Node, device: torch.device, numbers: bool = False) -> str | None:
    """Why a node cannot be part of a subgraph; None: it can. `numbers`: inputs, and extents of tensors, may be numbers known when the network runs."""
    wrong = _wrong_target(node)
    if wrong is not None:
        return wrong
    for given in node.all_input_nodes:
        value = given.meta.get("val")
        if numbers and isinstance(value, torch.SymInt):
            continue
        if not isinstance(value, torch.Tensor):
            return "one of its inputs is no tensor"
        wrong = _wrong_tensor(value, device, f"input '{given.name}'")
        if wrong is not None:
            return wrong
    made = node.meta.get("val")
    if made is None or _numbers(made):
        return "its result is no tensor"
    used: Iterable[Any] = [made] if isinstance(made, torch.Tensor) else [user.meta.get("val") for user in node.users if user.target is operator.getitem]
    for tensor in _tensors(list(used)):
        wrong = _wrong_tensor(tensor, device, "its result")
        if wrong is not None:
            return wrong
    return None


class _Support(OperatorSupportBase):
    """Nodes without a reason against them, by name."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self._reasons = reasons

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        if node.op != "call_function":
            return False
        if node.target is operator.getitem:
            return self.is_node_supported(submodules, node.args[0])
        return node.name not in self._reasons


def _computes_numbers(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.SymInt)


def reasons_against(graph: torch.fx.GraphModule, device: torch.device, numbers: bool = False) -> dict[str, str]:
    """Why nodes cannot be compiled, by the names of those that cannot. `numbers`: as of why_not; those that compute numbers are left out then."""
    reasons = {}
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target is not operator.getitem:
            if numbers and _computes_numbers(node):
                continue
            reason = why_not(node, device, numbers)
            if reason is not None:
                reasons[node.name] = reason
        elif node.op in ("call_module", "call_method"):
            reasons[node.name] = "it is no operator of PyTorch's ATen library"
    return reasons


def copy_of(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """With nodes of its own, of the same names; attributes are shared."""
    copy = torch.fx.Graph()
    copy.output(copy.graph_copy(graph.graph, {}))
    return torch.fx.GraphModule(graph, copy)


def without_empty_parts(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy in which nothing is joined to tensors of no elements, as caches do when they are new."""
    graph = copy_of(graph)
    for node in list(graph.graph.nodes):
        if node.op != "call_function" or node.target is not _aten.cat.default or not isinstance(node.args[0], (list, tuple)):
            continue
        full = [part for part in node.args[0] if not (isinstance(part.meta.get("val"), torch.Tensor) and 0 in part.meta["val"].shape)]
        same = len({part.meta["val"].dtype for part in node.args[0]}) == 1
        if not same or not full or len(full) == len(node.args[0]):
            continue
        if len(full) > 1:
            node.args = (full, *node.args[1:])
            continue
        with graph.graph.inserting_before(node):
            copy = graph.graph.call_function(_aten.clone.default, (full[0],))
        copy.meta = dict(node.meta)
        node.replace_all_uses_with(copy)
    graph.graph.eliminate_dead_code()
    return graph


def _is_view(node: Any) -> bool:
    """Whether a node's result shares memory with its first input: x.T, or one part of a split."""
    if not isinstance(node, torch.fx.Node) or node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return _is_view(node.args[0])
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    return any(returned.alias_info is not None for returned in target._schema.returns)


def with_views_apart(graph: torch.fx.GraphModule) -> tuple[torch.fx.GraphModule, list[str]]:
    """A copy in which results of the graph that share memory with each other are views of one tensor, made at the end: packages return each result in
    memory of its own. Also returns the names of the nodes that make them, which must stay with PyTorch."""
    graph = copy_of(graph)
    (output,) = [node for node in graph.graph.nodes if node.op == "output"]
    results = [node for node in torch.fx.node.map_arg(output.args[0], lambda node: node) if isinstance(node, torch.fx.Node)]
    origin, count = {}, {}
    for result in dict.fromkeys(results):
        node = result
        while _is_view(node):
            node = node.args[0]
        origin[result] = node
        count[node] = count.get(node, 0) + 1
    copies: dict[torch.fx.Node, torch.fx.Node] = {}

    def again(node: torch.fx.Node) -> torch.fx.Node:
        if not _is_view(node):
            return node
        if node not in copies:
            before = again(node.args[0])
            with graph.graph.inserting_before(output):
                copies[node] = graph.graph.node_copy(node, lambda given: before if given is node.args[0] else given)
        return copies[node]

    apart = {result: again(result) for result in origin if count[origin[result]] > 1 and origin[result].op != "placeholder"}
    output.args = (torch.fx.node.map_arg(output.args[0], lambda node: apart.get(node, node)),)
    graph.graph.eliminate_dead_code()
    return graph, [node.name for node in copies.values()]


def _computing(nodes: Iterable[torch.fx.Node]) -> list[torch.fx.Node]:
    return [node for node in nodes if computes(node) and not _computes_numbers(node) and _packet(node) not in _VIEWS]


def is_worth_a_call(nodes: Iterable[torch.fx.Node]) -> bool:
    """Whether these are enough for a package of their own."""
    computing = _computing(nodes)
    return len(computing) >= 2 or any(_packet(node) in _HEAVY for node in computing)


def split(graph: torch.fx.GraphModule, reasons: Mapping[str, str]) -> tuple[torch.fx.GraphModule, list[str], list[Fallback]]:
    """The graph with its supported parts as submodules, the names of these, and parts that are too small."""
    graph = copy_of(graph)
    partitioner = CapabilityBasedPartitioner(graph, _Support(reasons), allows_single_node_partition=True)
    partitions = partitioner.propose_partitions()
    worth, small = [], []
    for partition in partitions:
        if is_worth_a_call(partition.nodes):
            worth.append(partition)
        else:
            for node in _computing(partition.nodes):
                small.append(Fallback(operator_name(node), node.name, module_of(node), "it stands alone between others that run in eager mode, and a call "
                                      "would cost more than it saves"))
    names_before = {name for name, _ in graph.named_children()}
    fused = partitioner.fuse_partitions(worth, prefix="diapason_")
    return fused, [name for name, _ in fused.named_children() if name not in names_before], small


# ---- Subgraphs ----


@dataclass
class Subgraph:
    """A supported part of a graph.

    Attributes:
        module: computes it with PyTorch, from all inputs in order.
        constants: the inputs whose values are known, by position.
        examples: shapes and types of all inputs, without values.
    """

    module: torch.fx.GraphModule
    constants: dict[int, torch.Tensor]
    examples: list[torch.Tensor]

    @property
    def given(self) -> list[int]:
        """Positions of the inputs that come with each call."""
        return [position for position in range(len(self.examples)) if position not in self.constants]


@dataclass(frozen=True)
class _Ref:
    number: int


def digest(tensor: torch.Tensor) -> str:
    """Of a tensor's type, shape and values."""
    found = hashlib.blake2b(f"{tensor.dtype} {list(tensor.shape)}".encode(), digest_size=20)
    found.update(memoryview(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()))
    return found.hexdigest()


def key_of(subgraph: Subgraph, more: str, digests: Callable[[torch.Tensor], str]) -> str:
    """Equal for subgraphs that compute the same from the same weights, in any process."""
    found = hashlib.blake2b(more.encode(), digest_size=20)
    numbers: dict[torch.fx.Node, int] = {}
    position = 0
    for node in subgraph.module.graph.nodes:
        args = torch.fx.node.map_arg((node.args, node.kwargs), lambda given: _Ref(numbers[given]))
        text = repr((node.op, "" if node.op in ("placeholder", "output") else str(node.target), () if node.op == "placeholder" else args))
        if node.op == "placeholder":
            example = subgraph.examples[position]
            constant = subgraph.constants.get(position)
            text += f"{example.dtype} {list(example.shape)} " + ("" if constant is None else digests(constant))
            position += 1
        elif node.op == "get_attr":
            text += digests(getattr(subgraph.module, node.target))
        numbers[node] = len(numbers)
        found.update(text.encode() + b"\0")
    return found.hexdigest()


def dense_order(value: torch.Tensor) -> tuple[int, ...] | None:
    """The order of a tensor's axes in which it is dense in row-major order; None: it is so already, or in no order."""
    if value.is_contiguous() or 0 in value.stride():
        return None
    order = tuple(sorted(range(value.dim()), key=lambda axis: -int(value.stride(axis))))
    return order if value.permute(order).is_contiguous() else None


def _as_written(graph: torch.fx.Graph, node: torch.fx.Node, value: torch.Tensor | None) -> torch.fx.Node:
    """A result as a package writes it: in the order of axes in which PyTorch's is dense, so that it is a view of the package's."""
    order = None if value is None else dense_order(value)
    return node if order is None else graph.call_function(torch.ops.aten.permute.default, (node, list(order)))


def _with_constants(subgraph: Subgraph) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """The subgraph as a module of the inputs that come with each call. Weights stay where they are."""
    graph, owner, numbers = torch.fx.Graph(), torch.nn.Module(), {}
    position = 0
    for node in subgraph.module.graph.nodes:
        if node.op == "placeholder":
            constant = subgraph.constants.get(position)
            if constant is None:
                numbers[node] = graph.placeholder(f"x{position}")
            else:
                owner.register_buffer(f"w{position}", constant.detach())
                numbers[node] = graph.get_attr(f"w{position}")
            position += 1
            continue
        if node.op == "get_attr":
            owner.register_buffer(node.target, getattr(subgraph.module, node.target).detach())
        if node.op == "output":
            made = node.args[0]
            results = [_as_written(graph, numbers[one], one.meta.get("val")) for one in (made if isinstance(made, (list, tuple)) else [made])]
            graph.output(tuple(results) if isinstance(made, (list, tuple)) else results[0])
            continue
        numbers[node] = graph.node_copy(node, lambda given: numbers[given])
        numbers[node].meta = {}
    examples = tuple(torch.zeros(subgraph.examples[p].shape, dtype=subgraph.examples[p].dtype, device=subgraph.examples[p].device)
                     for p in subgraph.given)
    return torch.fx.GraphModule(owner, graph), examples


def export(subgraph: Subgraph, path: str) -> None:
    """Writes a subgraph as an ONNX model, weights in a file beside it. Inputs are called x0, x1, ... by their position; results have their axes in
    the order of dense_order.

    Needs a thread in which nothing is being traced. Raises whatever PyTorch's exporter raises.
    """
    module, examples = _with_constants(subgraph)
    export_module(module, examples).save(path, external_data=True)


def export_module(module: torch.nn.Module, examples: tuple[torch.Tensor, ...], dynamic_shapes: Any = None) -> Any:
    """A module as a torch.onnx.ONNXProgram. `dynamic_shapes` as torch.export.export takes them."""
    with tracing(), torch.no_grad(), quiet_exporter():
        program = torch.export.export(module, examples, dynamic_shapes=dynamic_shapes, strict=False)
        return torch.onnx.export(program, dynamo=True, verbose=False, external_data=True)


def alone(node: torch.fx.Node, constant: Callable[[torch.fx.Node], torch.Tensor | None]) -> Subgraph:
    """A node as a subgraph of its own."""
    graph, numbers = torch.fx.Graph(), {}
    constants, examples = {}, []
    for given in node.all_input_nodes:
        value = constant(given)
        if value is not None:
            constants[len(examples)] = value
        numbers[given] = graph.placeholder(f"x{len(examples)}")
        examples.append(given.meta["val"])
    made = graph.node_copy(node, lambda given: numbers[given])
    made.meta = {}
    if isinstance(node.meta["val"], torch.Tensor):
        graph.output(made)
    else:
        used = sorted({user.args[1] for user in node.users if user.target is operator.getitem})
        graph.output(tuple(graph.call_function(operator.getitem, (made, index)) for index in used))
    return Subgraph(torch.fx.GraphModule(torch.nn.Module(), graph), constants, examples)


def reason_of(error: BaseException) -> str:
    """The first sentence of an error that says something."""
    text = str(error)
    marker = "## Exception summary"
    if marker in text:
        text = text[text.index(marker) + len(marker):]
        text = text.replace("<class '", "").replace("'>: ", ": ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("⬆️")]
    first = lines[0] if lines else type(error).__name__
    return first if len(first) <= 300 else first[:297] + "..."


def tracing() -> Any:
    """PyTorch traces in one thread at a time: modes of its tracers are of the process. Dynamo holds the same lock."""
    return compile_lock


def is_tracing() -> bool:
    """Whether this thread is in the middle of it."""
    return compile_lock._is_owned()


def outputs_of(module: torch.fx.GraphModule) -> Sequence[Any]:
    """What a subgraph returns, without values: one tensor, or several."""
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    made = output.args[0]
    return [one.meta["val"] for one in made] if isinstance(made, (list, tuple)) else [made.meta["val"]]
