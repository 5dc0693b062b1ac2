"""A random model while it grows, with the values of all its tensors.

A node is tried alone on ONNX Runtime, on the values at hand and on values that are off as those of another correct evaluation may be. It
stays if its results are finite numbers of ordinary size which rounding errors do not change much; integers and booleans are to stay equal.
So every element of a model's outputs can be compared.
"""
import dataclasses

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

from reduce import as_inputs

IR_VERSION = 10
# By type: what another evaluation may be off by after one node, and after all of them, of the largest element; the largest element.
NOISE = {np.dtype(np.float32): (1e-6, 2e-4, 1e4), np.dtype(np.float64): (1e-6, 2e-4, 1e4), np.dtype(np.float16): (1e-3, 1e-2, 1e3)}
ELEMENTS = 20000


@dataclasses.dataclass
class Value:
    name: str
    array: np.ndarray
    noisy: list
    kind: str  # "input", "constant" or "node"
    uses: int = 0

    @property
    def shape(self):
        return self.array.shape

    @property
    def rank(self):
        return self.array.ndim

    @property
    def dtype(self):
        return self.array.dtype


def is_float(dtype):
    return np.dtype(dtype) in NOISE


def value_info(name, array):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def session(model, optimized=True):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def error_of(got, want):
    """The largest difference of two arrays of one shape, relative to the largest element that is wanted; 0 if they are equal."""
    if want.size == 0:
        return 0.0
    if not is_float(want.dtype):
        return 0.0 if np.array_equal(got, want) else float("inf")
    got, want = got.astype(np.float64), want.astype(np.float64)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    if same.all():
        return 0.0
    difference = np.abs(got - want)[~same].max()
    largest = np.abs(want[np.isfinite(want)]).max(initial=0.0) or 1.0
    return float(difference / largest) if np.isfinite(difference) else float("inf")


class Graph:
    def __init__(self, random, opset, floats=np.float32):
        self.random = random
        self.draw = np.random.default_rng(random.getrandbits(32))
        self.opset = opset
        self.floats = np.dtype(floats)
        self.values = []
        self.nodes = []
        self.why_not = ""

    # ---- leaves

    def numbers(self, shape, dtype=None, low=None, high=None):
        """An array of random numbers; floats in [-2, 2] unless said otherwise, some of them 0, integers small."""
        dtype = np.dtype(dtype or self.floats)
        if dtype == np.bool_:
            return self.draw.integers(0, 2, shape).astype(bool)
        if np.issubdtype(dtype, np.integer):
            info = np.iinfo(dtype)
            low = max(info.min, -10) if low is None else low
            high = 10 if high is None else high
            if dtype.itemsize == 1 and (low, high) == (max(info.min, -10), 10):
                low, high = info.min, info.max
            return np.asarray(self.draw.integers(low, high + 1, shape)).astype(dtype)
        array = self.draw.uniform(-2 if low is None else low, 2 if high is None else high, shape)
        if low is None and self.random.random() < 0.1:
            array = np.round(array)
        return np.asarray(array).astype(dtype)

    def leaf(self, array, constant=None):
        """A new input, or a constant (an initializer); one of the two at random unless said."""
        array = np.asarray(array)
        if constant is None:
            constant = self.random.random() < 0.4
        kind = "constant" if constant else "input"
        value = Value(f"{kind[0]}{len(self.values)}", array, [array, array], kind)
        if is_float(array.dtype) and not constant:
            pass  # inputs are given exactly
        self.values.append(value)
        return value

    def new(self, shape, dtype=None, low=None, high=None, constant=None):
        return self.leaf(self.numbers(shape, dtype, low, high), constant)

    def constant(self, array):
        return self.leaf(array, True)

    def ints(self, numbers, dtype=np.int64):
        return self.constant(np.array(numbers, dtype))

    # ---- choice of a value

    def pick(self, dtypes=None, ranks=None, want=None, fresh=0.1):
        """A value of one of these types and ranks that satisfies `want`, rather a late one; None if there is none. Sometimes None at random,
        so that callers make a new one."""
        if self.random.random() < fresh:
            return None
        dtypes = [np.dtype(d) for d in (dtypes or [self.floats])]
        fitting = [v for v in self.values if v.dtype in dtypes and (ranks is None or v.rank in ranks) and (want is None or want(v))
                   and not (v.kind == "constant" and v.uses)]
        if not fitting:
            return None
        fitting = fitting[-8:] if self.random.random() < 0.8 else fitting
        return self.random.choice(fitting)

    # ---- nodes

    def attempt(self, op, inputs, outputs=1, domain="", **attributes):
        """Adds a node; its results, or None with the reason in why_not."""
        names = [v.name if v is not None else "" for v in inputs]
        node = helper.make_node(op, names, [f"n{len(self.nodes)}_{i}" for i in range(outputs)], domain=domain, **attributes)
        return self.attempt_node(node, inputs)

    def attempt_node(self, node, inputs):
        given = {v.name: v for v in inputs if v is not None}
        leaves = [v for v in given.values() if v.kind != "constant"]
        try:
            model = self.model_of([node], list(given.values()), [helper.make_empty_tensor_value_info(n) for n in node.output if n])
            run = session(model)
            wanted = [o for o in node.output if o]
            base = run.run(wanted, {v.name: v.array for v in leaves})
            # Evaluation on noisy values.
            noisy = [run.run(wanted, {v.name: v.noisy[k] for v in leaves}) for k in range(2)]
        except Exception as error:  # ONNX Runtime has many types of its own
            self.why_not = f"{node.op_type}: {str(error).splitlines()[0][:200]}"
            return None
        results = []
        for i, name in enumerate(wanted):
            array = base[i]
            result = Value(name, array, [], "node")
            for k in range(2):
                other = self.with_noise(noisy[k][i], array)
                if other is None:
                    return None
                result.noisy.append(other)
            if not self.is_ordinary(node.op_type, result):
                return None
            results.append(result)
        for value in given.values():
            value.uses += 1
        self.nodes.append(node)
        self.values.extend(results)
        return results

    def with_noise(self, array, base):
        if array.shape != base.shape:
            self.why_not = "its shape depends on rounding"
            return None
        if not is_float(base.dtype):
            return array
        step = NOISE[base.dtype][0] * np.abs(base).astype(np.float64).max(initial=0.0)
        noise = self.draw.uniform(-1, 1, array.shape) * step
        return np.where(array == 0, array, array + noise).astype(base.dtype)

    def is_ordinary(self, op, value):
        array = value.array
        if array.size == 0 or array.size > ELEMENTS or array.dtype.kind not in "fiub":
            self.why_not = f"{op}: empty, too large, or of type {array.dtype}"
            return False
        if not is_float(array.dtype):
            if any(not np.array_equal(array, n) for n in value.noisy):
                self.why_not = f"{op}: depends on rounding"
                return False
            return array.dtype == bool or np.abs(array.astype(np.float64)).max() < 2**40
        _, bar, largest = NOISE[array.dtype]
        top = np.abs(array.astype(np.float64)).max()
        if not np.isfinite(array).all() or top > largest or 0 < top < 1e-3:
            self.why_not = f"{op}: its numbers are too large or too small"
            return False
        if max(error_of(n, array) for n in value.noisy) > bar:
            self.why_not = f"{op}: amplifies rounding"
            return False
        return True

    # ---- models

    def model_of(self, nodes, given, outputs):
        """A model of these nodes that reads these values."""
        inputs = [value_info(v.name, v.array) for v in given if v.kind != "constant"]
        constants = [numpy_helper.from_array(v.array, v.name) for v in given if v.kind == "constant"]
        graph = helper.make_graph(nodes, "random", inputs, outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)])
        model.ir_version = IR_VERSION
        return model

    def finished(self):
        """cut() of what no node reads, and of some other values."""
        made = [v for v in self.values if v.kind == "node"]
        chosen = [v for v in made if v.uses == 0 or self.random.random() < 0.08]
        return self.cut({v.name for v in chosen})

    def cut(self, wanted, given=frozenset()):
        """(model, inputs by name, outputs) of what computes these values and no more; values named in `given` are inputs instead of being computed."""
        needed, nodes = set(wanted), []
        for node in reversed(self.nodes):
            if (needed - given) & set(node.output):
                nodes.insert(0, node)
                needed |= set(node.input)
                for attribute in node.attribute:
                    if attribute.HasField("g"):
                        needed |= {i for n in attribute.g.node for i in n.input}
        values = as_inputs(self.values, given)
        leaves = [v for v in values if v.kind != "node" and v.name in needed and v.name not in wanted]
        outputs = [v for v in self.values if v.name in wanted]
        model = self.model_of(nodes, leaves, [value_info(v.name, v.array) for v in outputs])
        return model, {v.name: v.array for v in leaves if v.kind == "input"}, outputs


def tolerance_of(value):
    """What an output may be off by, of its largest element: five times what noise did to it, but not less than one node may be."""
    if not is_float(value.dtype):
        return 0.0
    floor = {2: 4e-3, 4: 2e-5, 8: 2e-5}[value.dtype.itemsize]
    return max(floor, 5 * max(error_of(n, value.array) for n in value.noisy))
