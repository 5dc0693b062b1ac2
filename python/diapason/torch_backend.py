"""torch.compile(model, backend="diapason"): inference by packages. See docs/python.md.

Of a graph that Dynamo captures, AOTAutograd makes one of ATen operators without side effects (mutated and aliased tensors are dealt with around it). The
first call with a combination of sizes splits that graph, builds a package of each supported part, or takes it from the cache, and compares
its results with PyTorch's; what is not supported, or not the same, stays with PyTorch, with a reason (explain_fallbacks).
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import pathlib
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TensorifyScalarRestartAnalysis
from torch.fx.experimental.proxy_tensor import make_fx

from . import _runtime, torch_buckets, torch_graph
from .compiler import _build
from .compiler import tasks as tasks_of
from .errors import Error, _make_error
from .fallbacks import Fallback, _add
from .history import History
from .model import _library, _warn, _warnings_kept
from .package import Package, load
from .package_cache import PackageCache, default_folder
from .service import Job, _device_of
from .torch_buckets import Buckets, SymbolicGraph
from .torch_graph import Subgraph
from .torch_options import CompileOptions, parse
from .tuning import tune

_MOST_SPLITS = 8  # of a graph, each with the nodes left out that the one before has shown not to work
_MOST_CHANGES = 3  # of weights, before they are known to change
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}  # of results, relative to the largest


def compile_graph(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None,
                  name: str | None = None) -> Callable[..., Any]:
    """The backend "diapason" of torch.compile.

    Args:
        gm, example_inputs: from Dynamo.
        options: of :class:`diapason.CompileOptions`, by name.

    Raises:
        InvalidArgumentError: an option is unknown or has a wrong value.
        Error: the cache folder cannot be used.
    """
    wanted = parse(options, mode, name)
    cache = PackageCache(wanted.cache or default_folder(), int(wanted.cache_gib * 2**30))
    tensors = [value for value in example_inputs if isinstance(value, torch.Tensor)]
    reason = _why_not_at_all(wanted, tensors)
    if reason is not None:
        _add(Fallback("", "", "", reason))
        return gm.forward
    device = _device(tensors)

    def training(graph: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        _add(Fallback("", "", "", _TRAINING))
        return _boxed(graph.forward)

    def inference(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return _boxed(_CompiledGraph(graph, _frozen(len(examples)) if wanted.freeze else set(), device, wanted, cache))

    try:
        with _plain_attention(device):
            return aot_autograd(fw_compiler=training, inference_compiler=inference, decompositions=_decompositions())(gm, example_inputs)
    except TensorifyScalarRestartAnalysis:
        raise
    except Exception as error:  # whatever PyTorch cannot trace must still run
        _add(Fallback("", "", "", f"PyTorch cannot make a graph of it without side effects ({torch_graph.reason_of(error)})"))
        return gm.forward


_TRAINING = ("gradients are wanted, and only inference is compiled: call the model under torch.no_grad() or torch.inference_mode()")


def _why_not_at_all(options: CompileOptions, tensors: list[torch.Tensor]) -> str | None:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _TRAINING
    kinds = {tensor.device.type for tensor in tensors}
    if not tensors:
        return "it has no tensors among its inputs"
    if not kinds & {"cpu", "cuda"}:
        return f"its tensors are on {', '.join(sorted(kinds))}; cpu and cuda are supported"
    kind = _device(tensors).type
    if options.target is not None and options.target.split()[0] != kind:
        raise _make_error("INVALID_ARGUMENT", f"options: target is {options.target!r}, and the tensors of the model are on {kind}; move the model, or leave "
                                              "target out")
    try:
        torch_graph._exporter()
    except ImportError as error:
        return f"PyTorch's exporter to ONNX needs a package that is missing ({error}); run 'pip install onnx onnxscript'"
    return None


def _device(tensors: list[torch.Tensor]) -> torch.device:
    """What a graph is compiled for: the GPU of its first tensor that is on one, else cpu."""
    return next((tensor.device for tensor in tensors if tensor.device.type == "cuda"), torch.device("cpu"))


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Of operators that PyTorch's exporter does not know."""
    from torch._decomp import get_decompositions

    aten = torch.ops.aten
    return {**get_decompositions([aten._scaled_dot_product_flash_attention_for_cpu, aten._adaptive_avg_pool2d, aten.std.correction]),
            aten.var.correction: _variance, aten.var_mean.correction: _variance_and_mean}


def _variance_and_mean(x: torch.Tensor, dim: list[int] | None = None, *, correction: float | None = None,
                       keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    if x.is_complex():
        return NotImplemented
    axes = list(dim) if dim else list(range(x.dim()))
    count = 1
    for axis in axes:
        count = count * x.shape[axis]
    mean = x.mean(axes, keepdim=True)
    rest = torch.sym_max(0, count - (1 if correction is None else correction))
    variance = (x - mean).square().sum(axes, keepdim=keepdim) / rest
    return variance, mean if keepdim else x.mean(axes)


def _variance(x: torch.Tensor, dim: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False) -> torch.Tensor:
    found = _variance_and_mean(x, dim, correction=correction, keepdim=keepdim)
    return found if found is NotImplemented else found[0]


def _plain_attention(device: torch.device) -> Any:
    """On a GPU, attention is traced as products and softmax instead of one of PyTorch's kernels; on cpu, a decomposition does the same."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.MATH) if device.type == "cuda" else contextlib.nullcontext()


def _boxed(function: Callable[..., Any]) -> Callable[..., Any]:
    from functorch.compile import make_boxed_func

    return make_boxed_func(function)


def _frozen(count: int) -> set[int]:
    """Positions of inputs that are weights: parameters and buffers of modules, which the graph does not write to."""
    context = torch._guards.TracingContext.try_get()
    facts = None if context is None else context.fw_metadata
    if facts is None:
        return set()
    written = {position for position, info in enumerate(facts.input_info) if info.mutates_data or info.mutates_metadata}
    return {position for position in facts.static_input_indices or [] if position < count} - written


# ---- A graph ----


def _may_be_there(history: str) -> bool:
    return str(history).startswith(("postgresql://", "postgres://")) or os.path.exists(history)


class _Weights:
    """The weights that packages have as constants, and whether they are still the same."""

    def __init__(self, tensors: Mapping[int, torch.Tensor], args: tuple[Any, ...]) -> None:
        self._gone = False
        self._references = [weakref.ref(tensor, self._forget) for tensor in tensors.values()]
        self._watch = _runtime.Watch(args, list(tensors))

    def _forget(self, _: Any) -> None:
        self._gone = True  # another tensor may get its place in memory

    def unchanged(self, args: tuple[Any, ...]) -> bool:
        """Changes through ``.data`` and through memory that is shared with others are not seen: PyTorch does not count them."""
        return not self._gone and self._watch.unchanged(args)


class _Variant:
    """A graph for one combination of sizes; `shared`: by a package that others use too."""

    def __init__(self, run: Callable[..., Any], weights: _Weights, shared: bool = False) -> None:
        self.run = run
        self.weights = weights
        self.shared = shared


class _CompiledGraph:
    """What AOTAutograd calls in place of its graph. Any thread."""

    def __init__(self, graph: torch.fx.GraphModule, frozen: set[int], device: torch.device, options: CompileOptions, cache: PackageCache) -> None:
        self._graph = graph
        self._frozen = frozen
        self._compiler = _Compiler(device, options, cache)
        self._options = options
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self._dynamic = any(not isinstance(node.meta["val"], torch.Tensor) or torch_graph._numbers(list(node.meta["val"].shape)) for node in placeholders)
        self._lock = threading.Lock()
        self._variants: dict[Any, _Variant | None] = {}  # None: it runs in eager mode
        self._bucketed: _Bucketed | None = None  # of dynamic graphs; None: not tried yet
        self._changes = 0

    def __call__(self, *args: Any) -> Any:
        key = self._sizes(args) if self._dynamic else ()
        variant = self._variants.get(key, self)
        if isinstance(variant, _Variant):
            results = variant.run(*args)
            if variant.weights.unchanged(args):  # looked at while the GPU is at work; results with old weights are dropped
                return results
        if variant is not None:
            variant = self._make(key, args)
        return self._graph(*args) if variant is None else variant.run(*args)

    def _sizes(self, args: Sequence[Any]) -> Any:
        return tuple(tuple(arg.shape) if isinstance(arg, torch.Tensor) else arg for position, arg in enumerate(args) if position not in self._frozen)

    def _make(self, key: Any, args: Sequence[Any]) -> _Variant | None:
        with self._lock:
            variant = self._variants.get(key, self)
            if variant is None:
                return None
            if variant is not self and variant.weights.unchanged(args):
                return variant
            bucketed = self._bucketed
            if variant is not self or (bucketed is not None and bucketed.weights is not None and not bucketed.weights.unchanged(args)):
                self._changes += 1
                self._variants.clear()  # the others have old weights too
                self._bucketed = None
                if self._changes > _MOST_CHANGES:
                    _add(Fallback("", "", "", f"its weights have changed {self._changes} times between calls; with options={{'freeze': False}} they are "
                                              "inputs of the package, and may change"))
                    self._variants[key] = None
                    return None
            if torch_graph.is_tracing():  # called while a graph is traced: this thread would wait for itself
                return None
            made = self._shared_variant(args) if self._dynamic and self._changes <= _MOST_CHANGES else None
            if made is not None:
                self._variants[key] = made
                return made
            count = sum(one is None or not one.shared for one in self._variants.values()) + (0 if self._bucketed is None else len(self._bucketed.buckets))
            if count >= self._options.sizes or self._changes > _MOST_CHANGES:
                _add(Fallback("", "", "", f"there are packages for {count} sizes of it already, as many as options={{'sizes': "
                                          f"{self._options.sizes}}} allows; sizes {_sizes_text(args)} have none"))
                return None
            self._variants[key] = made = self._variant(args)
            return made

    def _constants(self, args: tuple[Any, ...]) -> dict[int, torch.Tensor]:
        """Tensors of inference mode do not count changes, so they stay inputs."""
        return {position: args[position] for position in self._frozen if not args[position].is_inference()}

    def _shared_variant(self, args: tuple[Any, ...]) -> _Variant | None:
        """By the package with a plan for each bucket of sizes; None where there can be none."""
        frozen = self._constants(args)
        if self._bucketed is None:
            self._bucketed = _Bucketed(self._graph, frozen, self._compiler, self._options.sizes)
        run = self._bucketed.run_for(args, frozen)
        return None if run is None else _Variant(run, self._bucketed.weights, shared=True)

    def _variant(self, args: tuple[Any, ...]) -> _Variant | None:
        frozen = self._constants(args)
        try:
            run = _in_thread(lambda stop: self._compiler.compile(self._static(args), frozen, stop))
        except Exception as error:  # of PyTorch or of ours: the model must still run
            _add(Fallback("", "", "", f"it could not be compiled ({type(error).__name__}: {torch_graph.reason_of(error)})"))
            return None
        return None if run is None else _Variant(run, _Weights(frozen, args))

    def _static(self, args: Sequence[Any]) -> torch.fx.GraphModule:
        """The graph with the sizes of `args`."""
        if not self._dynamic:
            return self._graph

        def run(*given: Any) -> Any:
            with torch.fx.traceback.preserve_node_meta():
                return torch.fx.Interpreter(self._graph).run(*given)

        with torch_graph.tracing():
            return make_fx(run, tracing_mode="fake")(*args)


class _Bucketed:
    """A dynamic graph as one package for all of its sizes, where it can be one, and its padding was proven to be harmless."""

    def __init__(self, graph: torch.fx.GraphModule, frozen: Mapping[int, torch.Tensor], compiler: _Compiler, limit: int) -> None:
        self._compiler = compiler
        self._limit = limit
        self._symbolic = torch_buckets.symbolic_graph(graph, frozen)
        self.buckets = Buckets(0 if self._symbolic is None else len(self._symbolic.places))
        self._kernel: _SizedKernel | None = None
        self.weights: _Weights | None = None  # that the package has; None: there is none yet

    def run_for(self, args: tuple[Any, ...], frozen: Mapping[int, torch.Tensor]) -> Callable[..., Any] | None:
        """What runs these sizes; the package is made, or made again with more plans. None: there is none, and there will be none."""
        if self._symbolic is None:
            return None
        sizes = self._symbolic.sizes_of(args)
        if min(sizes) < 1:
            return None
        wanted = self.buckets.with_room_for(sizes)
        if wanted == self.buckets:
            return self._kernel
        if len(wanted) > self._limit:
            return None
        symbolic = self._symbolic
        try:
            package = _in_thread(lambda stop: self._compiler.package_of_sizes(symbolic, args, wanted, stop))
        except Exception:  # of PyTorch or of ours; each size gets a package of its own then, which tells what is wrong
            if self._kernel is None:
                self._symbolic = None
            return None
        self.buckets, self._kernel, self.weights = wanted, _SizedKernel(symbolic, package, wanted, self._compiler.device), _Weights(frozen, args)
        return self._kernel


def _sizes_text(args: Sequence[Any]) -> str:
    shapes = ["x".join(str(extent) for extent in arg.shape) for arg in args if isinstance(arg, torch.Tensor) and not isinstance(arg, torch.nn.Parameter)]
    return ", ".join(shapes[-3:]) or "of numbers"


def _in_thread(body: Callable[[threading.Event], Any]) -> Any:
    """Runs `body` in a thread of its own, where no mode of PyTorch's tracers is on. Ctrl-C sets its event and waits for it."""
    stop, result, error, warned = threading.Event(), [], [], []

    def work() -> None:
        try:
            with torch.no_grad(), _warnings_kept(warned):
                result.append(body(stop))
        except BaseException as caught:
            error.append(caught)

    thread = threading.Thread(target=work, name="diapason-compile", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        stop.set()
        thread.join()
        raise
    for sentence in warned:
        _warn(sentence)
    if error:
        raise error[0]
    return result[0]


# ---- Compiling ----


class _Refused(Exception):
    """A subgraph that cannot be compiled, ever: why, by the positions of its nodes; "" for the whole."""

    def __init__(self, why: dict[str, str]) -> None:
        super().__init__(why)
        self.why = why


class _Compiler:
    """Makes packages of the supported parts of static graphs."""

    def __init__(self, device: torch.device, options: CompileOptions, cache: PackageCache) -> None:
        self.device = device
        self._options = options
        self._cache = cache
        self._target = options.target or device.type
        tunes_here = options.tunes and options.service is None
        self._history = options.history or (os.path.join(cache.folder, "history.db") if tunes_here else None)
        self._digests: dict[int, tuple[torch.Tensor, str]] = {}

    def compile(self, graph: torch.fx.GraphModule, frozen: Mapping[int, torch.Tensor], stop: threading.Event) -> Callable[..., Any] | None:
        """The graph with packages in it; None where none could be made. Reasons go to explain_fallbacks."""
        placeholders = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        constants = {placeholders[position]: tensor for position, tensor in frozen.items()}
        self._digests.clear()
        graph, views = torch_graph.with_views_apart(torch_graph.without_empty_parts(graph))
        reasons = {**torch_graph.reasons_against(graph, self.device), **dict.fromkeys(views, "")}
        for _ in range(_MOST_SPLITS):
            fused, names, small = torch_graph.split(graph, reasons)
            subgraphs = {name: _subgraph(fused, name, constants) for name in names}
            packages, refused = {}, {}
            for name, subgraph in subgraphs.items():
                try:
                    packages[name] = self._package(subgraph, stop)
                except _Refused as refusal:
                    refused.update(self._blamed(subgraph, refusal.why))
            if not refused:
                break
            reasons.update(refused)
        for node in graph.graph.nodes:
            if reasons.get(node.name):
                _add(Fallback(torch_graph.operator_name(node), node.name, torch_graph.module_of(node), reasons[node.name]))
        for fallback in small:
            _add(fallback)
        for name, package in packages.items():
            setattr(fused, name, _Kernel(subgraphs[name], package, self.device))
        self._digests.clear()
        return _without_graph(fused) if packages else None

    def package_of_sizes(self, symbolic: SymbolicGraph, args: Sequence[Any], buckets: Buckets, stop: threading.Event) -> Package:
        """A package of the whole graph with a plan for each bucket. Raises _Refused or Error: there is none."""
        nodes = list(symbolic.module.graph.nodes)
        if torch_graph.reasons_against(symbolic.module, self.device, numbers=True) or not torch_graph.is_worth_a_call(nodes):
            raise _Refused({"": "a part of it stays with PyTorch"})
        self._digests.clear()
        key = torch_graph.key_of(symbolic.subgraph(args), f"{self._facts()} {buckets.sizes}", self._digest)
        self._digests.clear()

        def build(out: str) -> None:
            with tempfile.TemporaryDirectory(prefix="diapason_torch_") as folder:
                model = os.path.join(folder, f"{self._options.name}-{key[:12]}.onnx")
                try:
                    names = torch_buckets.export(symbolic, args, model)
                except Exception as error:
                    raise _Refused({"": f"PyTorch cannot export it to ONNX with dynamic sizes ({torch_graph.reason_of(error)})"}) from error
                dims = dict(zip(names, buckets.sizes))
                for plan in tasks_of(model, self._target, dims=dims).plans:
                    for symbol, padding in plan.padding.items():
                        if not padding.safe:
                            raise _Refused({"": f"inputs cannot be padded along {symbol}: {padding.reason}"})
                self._build_model(model, out, stop, dims)

        return self._cached(key, lambda out: self._made(key, lambda: build(out), lambda: {}, stop))

    def _blamed(self, subgraph: Subgraph, why: dict[str, str]) -> dict[str, str]:
        """Reasons by the names of nodes."""
        nodes = list(subgraph.module.graph.nodes)
        found = {nodes[int(number)].name: reason for number, reason in why.items() if number}
        if not found:
            found = {node.name: why[""] for node in nodes if torch_graph.computes(node)}
        return found

    def _package(self, subgraph: Subgraph, stop: threading.Event) -> Package:
        key = torch_graph.key_of(subgraph, self._facts(), self._digest)
        return self._cached(key, lambda out: self._made(key, lambda: self._build(key, subgraph, out, stop), lambda: self._probe(subgraph, stop), stop))

    def _cached(self, key: str, make: Callable[[str], None]) -> Package:
        why = self._cache.refusal(key)
        if why is not None:
            raise _Refused(why)
        for attempt in range(2):
            path = self._cache.get(key, make)
            try:
                return load(path, device=self.device.index)
            except Error:  # damaged, or removed by another process just now: make it once more
                self._cache.remove(key)
                if attempt == 1:
                    raise
        raise AssertionError

    def _made(self, key: str, build: Callable[[], None], probe: Callable[[], dict[str, str]], stop: threading.Event) -> None:
        """Remembers what cannot be built; `probe` finds out which nodes are to blame."""
        try:
            build()
        except (Error, _Refused) as error:
            lasting = isinstance(error, _Refused) or error.code in _LASTING
            if stop.is_set() or not lasting:
                raise
            why = error.why if isinstance(error, _Refused) else {"": torch_graph.reason_of(error)}
            why.update(probe())
            self._cache.refuse(key, why)
            raise _Refused(why) from error

    def _build(self, key: str, subgraph: Subgraph, out: str, stop: threading.Event) -> None:
        with tempfile.TemporaryDirectory(prefix="diapason_torch_") as folder:
            model = os.path.join(folder, f"{self._options.name}-{key[:12]}.onnx")
            _export(subgraph, model)
            self._build_model(model, out, stop, {})

    def _build_model(self, model: str, out: str, stop: threading.Event, dims: dict[str, list[int]]) -> None:
        def callback(_: Any) -> None:
            if stop.is_set():
                raise KeyboardInterrupt

        if self._options.service is not None:
            self._build_by_service(model, out, stop, dims)
            return
        if self._options.tunes:
            tune(model, self._target, history=self._history, trials=self._options.trials or None, seconds=self._options.seconds or None,
                 callback=callback, check=False, dims=dims)
        wanted = _library().BuildOptions()
        wanted.target, wanted.out, wanted.histories = self._target, out, self._histories()
        wanted.check, wanted.measure, wanted.build_timeout_seconds = self._options.tunes, False, 120.0
        _build(model, wanted, {"dims": dims}, lambda _: None)

    def _histories(self) -> list[str]:
        if self._history is None or _may_be_there(self._history):
            return [] if self._history is None else [self._history]
        _warn(f"there is no history {self._history}, so schedules are those that come with Diapason; options={{'trials': ...}} makes one")
        return []

    def _build_by_service(self, model: str, out: str, stop: threading.Event, dims: dict[str, list[int]]) -> None:
        """Ctrl-C ends the job; what it measured stays with the service."""
        service = self._options.service
        assert service is not None
        tasks_of(model, self._target, dims=dims)  # what cannot be compiled is found here, by its kind of error
        if self._options.tunes:
            _with_weights_inside(model)
            job = service.submit(model, self._target, trials=self._options.trials or None, seconds=self._options.seconds or None,
                                 device=_device_of(self._target), dims=dims)

            def callback(_: Job) -> None:
                if stop.is_set():
                    raise KeyboardInterrupt

            try:
                ended = service.watch(job, callback)
            except KeyboardInterrupt:
                service.cancel(job)
                raise
            if ended.state != "done":
                raise _make_error("UNAVAILABLE", f"job {job} of the service {service.address} is {ended.state}: {ended.text}")
        service.build(model, self._target, out=out, check=self._options.tunes, dims=dims)

    def _probe(self, subgraph: Subgraph, stop: threading.Event) -> dict[str, str]:
        """Which nodes cannot be compiled even by themselves."""
        nodes = list(subgraph.module.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        constants = {placeholders[position]: tensor for position, tensor in subgraph.constants.items()}
        found, tried = {}, {}
        for number, node in enumerate(nodes):
            if not torch_graph.computes(node) or stop.is_set():
                continue
            one = torch_graph.alone(node, constants.get)
            key = torch_graph.key_of(one, "", self._digest)
            if key not in tried:
                tried[key] = self._why_not_alone(one)
            if tried[key]:
                found[str(number)] = tried[key]
        return found

    def _why_not_alone(self, one: Subgraph) -> str:
        if not one.given:
            return ""
        with tempfile.TemporaryDirectory(prefix="diapason_torch_") as folder:
            model = os.path.join(folder, "node.onnx")
            try:
                _export(one, model)
                tasks_of(model, self._target)
            except _Refused as refusal:
                return refusal.why[""]
            except Error as error:
                return torch_graph.reason_of(error).replace(f"'{model}'", "the model") if error.code in _LASTING else ""
        return ""

    def _digest(self, tensor: torch.Tensor) -> str:
        """Kept while a graph is compiled."""
        if id(tensor) not in self._digests:
            self._digests[id(tensor)] = (tensor, torch_graph.digest(tensor))
        return self._digests[id(tensor)][1]

    def _facts(self) -> str:
        """What a package depends on beside its graph."""
        program = pathlib.Path(__file__).parent / "bin" / "diapason"
        facts = program.stat()
        records, service = "", self._options.service
        if service is not None and not self._options.tunes:
            records = repr(service._records(self._target))
        if self._history is not None and not self._options.tunes and _may_be_there(self._history):
            records = str(History(self._history).summary().record_count)
        return repr((_runtime.version, facts.st_size, facts.st_mtime_ns, torch.__version__, self._target, _machine(self.device), self._options.trials,
                     self._options.seconds, self._history, None if service is None else service.address, records))


# Codes of errors that the same call would meet again.
_LASTING = {"INVALID_ARGUMENT", "UNIMPLEMENTED", "DATA_LOSS", "INTERNAL"}


def _export(subgraph: Subgraph, path: str) -> None:
    """Raises _Refused."""
    try:
        torch_graph.export(subgraph, path)
    except Exception as error:  # PyTorch's exporter has no one class of errors
        raise _Refused({"": f"PyTorch cannot export it to ONNX ({torch_graph.reason_of(error)})"}) from error


def _with_weights_inside(path: str) -> None:
    """Makes a model one file, since a service takes one. Raises _Refused."""
    import onnx

    try:
        onnx.save(onnx.load(path), path)
    except ValueError as error:  # of protobuf
        raise _Refused({"": f"its weights do not fit into the 2 GiB of one ONNX file, and a service takes no others ({error})"}) from error


@functools.cache
def _machine(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)} {torch.cuda.get_device_capability(device)}"
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    kinds = sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    return f"{kinds} {len(os.sched_getaffinity(0))}"


def _subgraph(fused: torch.fx.GraphModule, name: str, constants: Mapping[str, torch.Tensor]) -> Subgraph:
    (call,) = [node for node in fused.graph.nodes if node.op == "call_module" and node.target == name]
    known, examples = {}, []
    for position, given in enumerate(call.args):
        examples.append(given.meta["val"])
        if given.op == "placeholder" and given.name in constants:
            known[position] = constants[given.name]
        elif given.op == "get_attr":
            known[position] = getattr(fused, given.target)
    return Subgraph(getattr(fused, name), known, examples)


# ---- Running ----


class _Kernel(torch.nn.Module):
    """A package in the place of a subgraph. Its first results are compared with PyTorch's."""

    def __init__(self, subgraph: Subgraph, package: Package, device: torch.device) -> None:
        super().__init__()
        self._eager = subgraph.module
        self._package: Package | None = package
        self.needs = [int(port.name[1:]) for port in package.inputs]  # positions of the arguments that the package reads, in its order
        (output,) = [node for node in subgraph.module.graph.nodes if node.op == "output"]
        self._single = not isinstance(output.args[0], (list, tuple))
        self._results = [_Result(value, device) for value in torch_graph.outputs_of(subgraph.module)]
        self._device = device
        self._gpu = -1 if device.type != "cuda" else device.index or 0
        self._checked = False

    @property
    def settled(self) -> bool:
        """Its results were compared and are right."""
        return self._checked and self._package is not None

    def forward(self, *args: torch.Tensor) -> Any:
        if self._package is None:
            return self._eager(*args)
        results = self.run([args[position] for position in self.needs])
        if results is None:
            return self._eager(*args)
        if not self._checked:
            wanted = self._eager(*args)
            wrong = _difference(results, [wanted] if self._single else list(wanted))
            if wrong is not None:
                self._drop(wrong)
                return wanted
            self._checked = True
        return results[0] if self._single else tuple(results)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        """What the package returns for the arguments that it needs; None, from then on, where it fails."""
        package = self._package
        if package is None:
            return None
        dense = [_dense(tensor) for tensor in inputs]
        memory = [result.make() for result in self._results]
        stream = 0 if self._gpu < 0 else torch.cuda.current_stream(self._gpu).cuda_stream
        try:
            package._run_at([tensor.data_ptr() for tensor in dense], [tensor.data_ptr() for tensor in memory], self._gpu, stream)
        except Error as error:
            self._drop(f"its package failed ({torch_graph.reason_of(error)})")
            return None
        return [result.view(tensor) for result, tensor in zip(self._results, memory)]

    def _drop(self, reason: str) -> None:
        self._package = None
        nodes = [node for node in self._eager.graph.nodes if torch_graph.computes(node)]
        operators = ", ".join(sorted({torch_graph.operator_name(node) for node in nodes}))
        _add(Fallback("", nodes[0].name, torch_graph.module_of(nodes[0]), f"{reason} (operators: {operators})"))


class _SizedKernel:
    """A package with plans for several sizes in the place of a graph. The first results of each plan are compared with PyTorch's. Any thread."""

    def __init__(self, symbolic: SymbolicGraph, package: Package, buckets: Buckets, device: torch.device) -> None:
        self._graph = symbolic.module
        self._package: Package | None = package
        self._needs = [int(port.name[1:]) for port in package.inputs]
        self._symbolic = symbolic
        self._buckets = buckets
        self._checked: set[tuple[int, ...]] = set()
        self._orders: list[tuple[int, ...] | None] | None = None  # of the axes of PyTorch's results, where some are not in row-major order
        self._gpu = -1 if device.type != "cuda" else device.index or 0

    def __call__(self, *args: Any) -> Any:
        package = self._package
        if package is None:
            return self._graph(*args)
        stream = 0 if self._gpu < 0 else torch.cuda.current_stream(self._gpu).cuda_stream
        try:
            results = package._run_tensors([_dense(args[position]).detach() for position in self._needs], stream)
        except Error as error:
            return self._drop(f"its package failed ({torch_graph.reason_of(error)})", args)
        if len(self._checked) < len(self._buckets):
            plan = self._buckets.plan_of(self._symbolic.sizes_of(args))
            if plan not in self._checked:
                return self._check(plan, results, args)
        if self._orders is None:
            return results
        return [tensor if order is None else _in_order(tensor, order) for tensor, order in zip(results, self._orders)]

    def _check(self, plan: tuple[int, ...], results: list[torch.Tensor], args: Sequence[Any]) -> Any:
        wanted = self._graph(*args)
        wrong = _difference(results, list(wanted))
        if wrong is not None:
            return self._drop(wrong, args)
        orders = [torch_graph.dense_order(tensor) for tensor in wanted]
        if any(order is not None for order in orders):
            self._orders = orders
        self._checked.add(plan)
        return wanted

    def _drop(self, reason: str, args: Sequence[Any]) -> Any:
        self._package = None
        _add(Fallback("", "", "", reason))
        return self._graph(*args)


class _Result:
    """A result of a package: memory for it, and its view that has the shape and strides of PyTorch's result."""

    def __init__(self, value: torch.Tensor, device: torch.device) -> None:
        order = torch_graph.dense_order(value)
        self._shape = tuple(int(extent) for extent in (value if order is None else value.permute(order)).shape)
        self._type, self._device = value.dtype, device
        self._back = None if order is None else [order.index(axis) for axis in range(len(order))]
        self._strides = None if order is not None or value.is_contiguous() or 0 in value.stride() else tuple(map(int, value.stride()))

    def make(self) -> torch.Tensor:
        return torch.empty(self._shape, dtype=self._type, device=self._device)

    def view(self, memory: torch.Tensor) -> torch.Tensor:
        if self._back is not None:
            return memory.permute(self._back)
        return memory if self._strides is None else _laid_out(memory, self._strides)


def _without_graph(fused: torch.fx.GraphModule) -> Callable[..., Any]:
    """The same function; where it is one package of all its inputs, without the graph around it, once the package's results are known to be right."""
    nodes = list(fused.graph.nodes)
    calls = [node for node in nodes if node.op == "call_module"]
    others = [node for node in nodes if node.op not in ("placeholder", "output", "call_module") and node.target is not operator.getitem]
    (output,) = [node for node in nodes if node.op == "output"]
    if len(calls) != 1 or others or not isinstance(output.args[0], (list, tuple)):
        return fused
    kernel = getattr(fused, calls[0].target)
    places = {node: position for position, node in enumerate(node for node in nodes if node.op == "placeholder")}
    picks = [_pick_of(made, calls[0], places) for made in output.args[0]]
    if None in picks:
        return fused
    reads = [places[calls[0].args[position]] for position in kernel.needs]

    def run(*args: Any) -> Any:
        results = kernel.run([args[position] for position in reads]) if kernel.settled else None
        if results is None:
            return fused(*args)
        return [(results if of_package else args)[position] for of_package, position in picks]

    return run


def _pick_of(made: Any, call: torch.fx.Node, places: Mapping[torch.fx.Node, int]) -> tuple[bool, int] | None:
    """Where an output comes from: from the package or not, and its position there; None: from elsewhere."""
    if made is call:
        return True, 0
    if not isinstance(made, torch.fx.Node):
        return None
    if made in places:
        return False, places[made]
    return (True, made.args[1]) if made.args[0] is call else None


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor.contiguous()


def _in_order(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """The tensor, dense with its axes in that order of memory."""
    return tensor.permute(order).contiguous().permute([order.index(axis) for axis in range(len(order))])


def _laid_out(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _difference(got: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> str | None:
    """What is wrong with results; None: they are PyTorch's, up to rounding."""
    for one, other in zip(got, wanted, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"its package returned {one.dtype} {list(one.shape)} and PyTorch {other.dtype} {list(other.shape)}"
        if not one.dtype.is_floating_point:
            if not torch.equal(one, other):
                return f"its package and PyTorch differed in {int((one != other).sum())} of {one.numel()} integers"
            continue
        finite = torch.isfinite(other)
        if not torch.equal(torch.where(finite, 0, other).nan_to_num(7, 8, 9), torch.where(finite, 0, one).nan_to_num(7, 8, 9)):
            return "its package and PyTorch differed in what is no finite number"
        scale = torch.where(finite, other, 0).abs().max().item()
        error = torch.where(finite, one.float() - other.float(), 0).abs().max().item()
        if not error <= _TOLERANCE[one.dtype] * max(scale, 1e-6):
            return f"its package and PyTorch differed by {error:.3g}, where the largest result is {scale:.3g}"
    return None
