"""The conformance cases of ONNX as folders: model, inputs, expected outputs.

Sources: Debian's libonnx-testdata, and the `onnx` wheel that runs this program (its node cases are made by its own
Python; the other kinds lie in the wheel).
"""
import pathlib
import re

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "light")
DEBIAN = pathlib.Path("/usr/share/libonnx-testdata/data")

# Inputs that decide about shapes, by operator. The cases feed them when the model runs; in a model that is compiled they
# are constants, and become such here.
SHAPE_INPUTS = {
    "AffineGrid": {1}, "BlackmanWindow": {0}, "CastLike": {1}, "CenterCropPad": {1}, "Col2Im": {1, 2}, "Compress": {1}, "ConstantOfShape": {0},
    "CumProd": {1}, "CumSum": {1}, "DFT": {1, 2}, "Dropout": {1, 2}, "Expand": {1}, "HammingWindow": {0}, "HannWindow": {0},
    "If": {0}, "Loop": {0, 1}, "MaxUnpool": {2}, "MelWeightMatrix": {0, 1, 2, 3, 4}, "NonMaxSuppression": {2}, "NonZero": {0}, "OneHot": {1}, "Pad": {1, 2, 3},
    "Range": {0, 1, 2}, "ReduceL1": {1}, "ReduceL2": {1}, "ReduceLogSum": {1}, "ReduceLogSumExp": {1}, "ReduceMax": {1},
    "ReduceMean": {1}, "ReduceMin": {1}, "ReduceProd": {1}, "ReduceSum": {1}, "ReduceSumSquare": {1}, "Reshape": {1},
    "Resize": {1, 2, 3}, "STFT": {1, 3}, "Slice": {1, 2, 3, 4}, "Split": {1}, "Squeeze": {1}, "Tile": {1}, "TopK": {1},
    "Trilu": {1}, "Unique": {0}, "Unsqueeze": {1}, "Upsample": {1},
}


class Case:
    """A case: `values` and `wanted` are TensorProtos, or None where one is no tensor."""

    def __init__(self, source, kind, name, model, values, wanted, rtol=1e-3, atol=1e-7):
        self.source, self.kind, self.name, self.model = source, kind, name, model
        self.values, self.wanted, self.rtol, self.atol = values, wanted, rtol, atol

    @property
    def operator(self):
        """The operator that a node case is about: for an expanded function, the function."""
        if "_expanded" in self.name:
            for node in self.model.graph.node:
                for name in list(node.output) + list(node.input):
                    match = re.match(r"([A-Z][A-Za-z0-9]*)_test_", name)
                    if match:
                        return match.group(1)
        nodes = list(self.model.graph.node)
        node = next((n for n in nodes if n.op_type not in ("Constant", "SequenceConstruct", "Identity")), nodes[0])
        return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type

    @property
    def static(self):
        """Whether all inputs and outputs are tensors of static shape: what the goal counts."""
        for info in list(self.model.graph.input) + list(self.model.graph.output):
            if not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
                return False
            if info.type.tensor_type.elem_type == TensorProto.STRING:
                return False
            if any(not d.HasField("dim_value") for d in info.type.tensor_type.shape.dim):
                return False
        return True

    @property
    def rooms(self):
        """Sizes of results that have as many rows as are found: as many as are expected."""
        return [f"{node.output[0]}.rows={self.wanted[0].dims[0]}" for node in self.model.graph.node if node.op_type == "NonMaxSuppression"]

    @property
    def types(self):
        """Names of the element types of inputs and outputs."""
        names = set()
        for info in list(self.model.graph.input) + list(self.model.graph.output):
            if info.type.HasField("tensor_type"):
                names.add(TensorProto.DataType.Name(info.type.tensor_type.elem_type).lower())
        return names


def as_proto(value, name):
    if isinstance(value, TensorProto):
        return value
    if isinstance(value, (list, dict)) or value is None:
        return None
    return numpy_helper.from_array(np.asarray(value), name)


def read_tensor(path):
    tensor = TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
    except Exception:  # a sequence or an optional
        return None
    return tensor


def from_folder(source, kind, folder):
    model = onnx.load_model(folder / "model.onnx", load_external_data=False)
    data = folder / "test_data_set_0"
    values = [read_tensor(data / f"input_{i}.pb") for i in range(len(list(data.glob("input_*.pb"))))]
    wanted = [read_tensor(data / f"output_{i}.pb") for i in range(len(list(data.glob("output_*.pb"))))]
    for info, tensor in [*zip(model.graph.input, values), *zip(model.graph.output, wanted)]:
        # Debian's numpy had no bfloat16: its bits stand in tensors of uint16.
        if tensor is not None and info.type.tensor_type.elem_type == TensorProto.BFLOAT16:
            tensor.data_type = TensorProto.BFLOAT16
    return Case(source, kind, folder.name, raised(model), values, wanted)


def raised(model):
    """A model of an opset older than 7 as one of 7, as our own error advises: where no operator changed, else by ONNX's converter."""
    opset = next((o for o in model.opset_import if o.domain in ("", "ai.onnx")), None)
    if opset is None or opset.version >= 7:
        return model

    def since(node, version):
        try:
            return onnx.defs.get_schema(node.op_type, version, node.domain).since_version
        except Exception:
            return None

    if all(since(n, opset.version) == since(n, 7) for n in model.graph.node):
        opset.version = 7
        return model
    try:
        from onnx import version_converter

        return version_converter.convert_version(model, 7)
    except Exception:
        return model


def debian_cases():
    for kind in KINDS:
        folder = DEBIAN / kind
        for case in sorted(folder.iterdir()) if folder.is_dir() else []:
            if (case / "model.onnx").exists():
                yield from_folder("debian", kind, case)


def wheel_cases():
    from onnx.backend.test.loader import load_node_model_tests

    for case in sorted(load_node_model_tests(), key=lambda c: c.name):
        inputs, outputs = case.data_sets[0]
        names = [i.name for i in case.model.graph.input]
        yield Case("wheel", "node", case.name, case.model, [as_proto(v, n) for v, n in zip(inputs, names)],
                   [as_proto(v, o.name) for v, o in zip(outputs, case.model.graph.output)], case.rtol, case.atol)
    data = pathlib.Path(onnx.__file__).parent / "backend/test/data"
    for kind in KINDS[1:-1]:
        for folder in sorted((data / kind).iterdir()):
            if (folder / "model.onnx").exists():
                yield from_folder("wheel", kind, folder)
    yield from light_cases(data / "light")


def light_cases(folder):
    """Real networks with constant weights. Their inputs are 0, 1, 2, ... over the number of elements, as ONNX's runner has them."""
    for path in sorted(folder.glob("*.onnx")):
        model = onnx.load_model(path)
        constants = {t.name for t in model.graph.initializer}
        values = []
        for info in model.graph.input:
            if info.name in constants:
                continue
            shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
            n = int(np.prod(shape))
            values.append(numpy_helper.from_array((np.arange(n).reshape(shape) / n).astype(np.float32), info.name))
        wanted = [read_tensor(path.with_name(f"{path.stem}_output_0.pb"))]
        yield Case("wheel", "light", path.stem, model, values, wanted)


def with_constants(case, level):
    """The model with inputs that decide about shapes as constants, and the files of the others.

    Level 0: those of SHAPE_INPUTS. Level 1: all integers and truth values of at most one dimension, and numbers: what the functions of
    ONNX compute shapes from.
    """
    known = set()
    for node in case.model.graph.node:
        for i in SHAPE_INPUTS.get(node.op_type, ()):
            if i < len(node.input):
                known.add(node.input[i])
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    fed = [i.name for i in model.graph.input if i.name not in {t.name for t in model.graph.initializer}]
    values = []
    for name, value in zip(fed, case.values):
        small = value is not None and (not value.dims or (len(value.dims) == 1 and value.data_type in (
            TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)))
        empty = value is not None and 0 in value.dims  # known without a value
        if value is not None and (name in known or empty or (level == 1 and small)):
            constant = model.graph.initializer.add()
            constant.CopyFrom(value)
            constant.name = name
        else:
            values.append(value)
    return model, values
