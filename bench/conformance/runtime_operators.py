#!/usr/bin/env python3
"""Compares operators of ONNX Runtime's own domain (com.microsoft), of which ONNX has no cases, with ONNX Runtime.

    ninja -C build conformance_case && bench/conformance/runtime_operators.py
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from python_environment import enter_venv  # noqa: E402
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build"))


class Checker:
    """Counts what differs. Inputs of a node are (name, array), None for one that is absent; `constants` names initializers."""

    def __init__(self, folder):
        self.folder, self.cases, self.bad = folder, 0, 0

    def compare(self, model, fed, level, flags):
        """The verdict on a model of which ONNX Runtime says what it computes."""
        import onnxruntime
        from onnx import numpy_helper

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        wanted = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, fed)
        path = self.folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        command = [str(BUILD / "bin/conformance_case"), str(path), *flags]
        for kind, values in (("input", fed.values()), ("output", wanted)):
            for i, value in enumerate(values):
                file = self.folder / f"{kind}_{i}.pb"
                file.write_bytes(numpy_helper.from_array(value).SerializeToString())
                command.append(f"--{kind}={file}")
        verdict = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        self.cases += 1
        self.bad += verdict["status"] != "passed"
        return verdict

    def check(self, op, inputs, constants, outputs=("y",), **attributes):
        import onnx
        import onnxruntime
        from onnx import helper, numpy_helper

        arrays = {n: a for n, a in inputs if a is not None}
        fed = {n: a for n, a in arrays.items() if n not in constants}
        node = helper.make_node(op, [n if a is not None else "" for n, a in inputs], outputs, domain="com.microsoft", **attributes)
        infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in fed.items()]
        graph = helper.make_graph([node], op, infos, [onnx.ValueInfoProto(name=o) for o in outputs if o],
                                  [numpy_helper.from_array(arrays[n], n) for n in constants])
        model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
        verdict = self.compare(model, fed, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL, ["--rtol=1e-3", "--atol=1e-4"])
        shown = ", ".join(f"{k}={v}" for k, v in attributes.items())
        print(f"{verdict['status']:8} {op}({', '.join(arrays)}) {shown} {verdict['reason']}")


def attention(c, random):
    import numpy as np

    f = lambda *s: random.standard_normal(s).astype(np.float32)
    batch, length, heads, size = 2, 5, 2, 4
    hidden = heads * size
    base = [("x", f(batch, length, hidden)), ("w", f(hidden, 3 * hidden) * 0.3), ("b", f(3 * hidden))]
    mask = np.ones((batch, length), np.int32)
    mask[0, 3:] = 0
    c.check("Attention", base, ["w", "b"], num_heads=heads)
    c.check("Attention", base, ["w", "b"], num_heads=heads, unidirectional=1)
    c.check("Attention", [*base, ("mask", mask)], ["w", "b"], num_heads=heads)
    c.check("Attention", [*base, ("lengths", np.array([3, 5], np.int32))], ["w", "b"], num_heads=heads)
    c.check("Attention", [*base, ("mask", None), ("past", f(2, batch, heads, 3, size))], ["w", "b"], ("y", "present"), num_heads=heads,
            unidirectional=1)
    qkv = [("q", f(batch, length, hidden)), ("k", f(batch, 6, hidden)), ("v", f(batch, 6, hidden))]
    keys = np.ones((batch, 6), np.int32)
    keys[1, 4:] = 0
    c.check("MultiHeadAttention", qkv, [], num_heads=heads)
    c.check("MultiHeadAttention", [*qkv, ("b", f(3 * hidden))], ["b"], num_heads=heads)
    c.check("MultiHeadAttention", [*qkv, ("b", None), ("mask", keys)], [], num_heads=heads)
    c.check("MultiHeadAttention", [*qkv, ("b", None), ("mask", None), ("bias", f(batch, heads, length, 6))], [], num_heads=heads)
    angles = random.uniform(0, 3, (10, size // 2)).astype(np.float32)
    tables = [("cos", np.cos(angles)), ("sin", np.sin(angles))]
    places = ("places", np.tile(np.arange(length, dtype=np.int64), (batch, 1)))
    c.check("RotaryEmbedding", [("x", f(batch, heads, length, size)), places, *tables], ["cos", "sin"])
    c.check("RotaryEmbedding", [("x", f(batch, length, hidden)), ("start", np.array([2], np.int64)), *tables], ["cos", "sin"])
    c.check("RotaryEmbedding", [("x", f(batch, length, hidden)), places, *tables], ["cos", "sin"], interleaved=1)
    words = [("words", random.integers(0, 7, (batch, length)).astype(np.int32)), ("segments", random.integers(0, 2, (batch, length)).astype(np.int32))]
    c.check("EmbedLayerNormalization", [*words, ("we", f(7, hidden)), ("pe", f(9, hidden)), ("se", f(2, hidden)), ("g", f(hidden)), ("b", f(hidden)),
                                        ("mask", mask)], ["we", "pe", "se", "g", "b"], ("y", "counts"), epsilon=1e-5)
    c.check("SkipLayerNormalization", [("x", f(batch, length, hidden)), ("skip", f(batch, length, hidden)), ("g", f(hidden)), ("b", f(hidden)),
                                       ("bias", f(hidden))], ["g", "b", "bias"], ("y", "mean", "inverse", "sum"), epsilon=1e-5)


def grouped(c, random):
    """GroupQueryAttention: prompts and steps with a cache. What is behind a sequence in its row or in the cache is nobody's, so that none is longer."""
    import numpy as np

    f = lambda *s: random.standard_normal(s).astype(np.float32)
    heads, groups, size = 4, 2, 16
    angles = random.uniform(0, 3, (20, size // 2)).astype(np.float32)
    tables = [("cos", np.cos(angles)), ("sin", np.sin(angles))]
    rotary, shared, outputs = {"do_rotary": 1}, {"num_heads": heads, "kv_num_heads": groups}, ("y", "present_k", "present_v")
    # Batch, new tokens, length of the cache, whether that is known.
    for batch, new, past, constant in ((1, 5, 0, False), (2, 5, 0, False), (1, 1, 6, True), (1, 1, 6, False), (2, 1, 6, False), (1, 3, 6, False)):
        qkv = [("q", f(batch, new, heads * size)), ("k", f(batch, new, groups * size)), ("v", f(batch, new, groups * size))]
        packed = [("q", f(batch, new, (heads + 2 * groups) * size)), ("k", None), ("v", None)]
        cache = [(name, f(batch, groups, past, size) if past else None) for name in ("pk", "pv")]
        counts = [("last", np.full(batch, past + new - 1, np.int32)), ("total", np.array(past + new, np.int32))]
        known = ["total", "last"] if constant else ["total"]
        c.check("GroupQueryAttention", [*qkv, *cache, *counts], known, outputs, **shared)
        c.check("GroupQueryAttention", [*packed, *cache, *counts], known, outputs, **shared, scale=0.2, softcap=5.0)
        c.check("GroupQueryAttention", [*qkv, *cache, *counts], known, outputs, **shared, local_window_size=2)
        for interleaved in (0, 1):
            c.check("GroupQueryAttention", [*qkv, *cache, *counts, *tables], [*known, "cos", "sin"], outputs, **shared, **rotary, rotary_interleaved=interleaved)
        c.check("GroupQueryAttention", [*qkv, *cache, *counts], known, outputs, **shared, smooth_softmax=1)


def fused(c, random):
    """FusedMatMul with the axes of its operands in all orders, and the statistics of a normalized sum."""
    import numpy as np

    def operand(shape, batch, last):
        x = random.standard_normal(shape).astype(np.float32)
        if last:
            x = np.swapaxes(x, -1, -2)
        return np.ascontiguousarray(np.moveaxis(x, -2, 0) if batch else x)

    for flags in range(16):
        names = {name: flags >> i & 1 for i, name in enumerate(("transA", "transB", "transBatchA", "transBatchB"))}
        c.check("FusedMatMul", [("a", operand((2, 5, 3, 4), names["transBatchA"], names["transA"])),
                                ("b", operand((2, 5, 4, 6), names["transBatchB"], names["transB"]))], [], alpha=0.5, **names)
    x, skip, g = (random.standard_normal(s).astype(np.float32) for s in ((2, 5, 8), (2, 5, 8), (8,)))
    c.check("SkipSimplifiedLayerNormalization", [("x", x), ("skip", skip), ("g", g)], ["g"], ("y", "", "inverse", "sum"), epsilon=1e-5)


def quantised(c, random):
    import numpy as np

    f = lambda *s: random.standard_normal(s).astype(np.float32)
    u = lambda *s: random.integers(0, 256, s).astype(np.uint8)
    pair = lambda name, scale, zero: [(f"{name}s", np.array(scale, np.float32)), (f"{name}z", np.array(zero, np.uint8))]
    k, n, block = 40, 6, 16
    blocks = (k + block - 1) // block
    weights = [("a", f(3, k)), ("b", u(n, blocks, block // 2)), ("s", f(n * blocks))]
    c.check("MatMulNBits", weights, ["b", "s"], K=k, N=n, bits=4, block_size=block)
    c.check("MatMulNBits", [*weights, ("z", u(n * ((blocks + 1) // 2)))], ["b", "s", "z"], K=k, N=n, bits=4, block_size=block)
    c.check("MatMulNBits", [("a", f(3, k)), ("b", u(n, blocks, block)), ("s", f(n * blocks))], ["b", "s"], K=k, N=n, bits=8, block_size=block)
    table = [("t", u(7, k // 2)), ("i", random.integers(0, 7, (2, 3))), ("s", f(7, blocks))]
    c.check("GatherBlockQuantized", table, ["t", "s"], gather_axis=0, quantize_axis=1, block_size=block, bits=4)
    c.check("GatherBlockQuantized", [*table, ("z", u(7, (blocks + 1) // 2))], ["t", "s", "z"], gather_axis=0, quantize_axis=1, block_size=block, bits=4)
    attention = [("x", u(2, 5, 8)), ("w", random.integers(-99, 99, (8, 24)).astype(np.int8)), ("g", f(24)), ("xs", np.array(0.02, np.float32)),
                 ("ws", np.array(0.01, np.float32)), ("mask", None), ("xz", np.array(120, np.uint8)), ("wz", np.array(0, np.int8))]
    c.check("QAttention", attention, ["w", "g", "xs", "ws", "xz", "wz"], num_heads=2)
    attention[4] = ("ws", random.uniform(0.005, 0.02, 24).astype(np.float32))
    attention[7] = ("wz", random.integers(-3, 3, 24).astype(np.int8))
    attention[5] = ("mask", np.array([3, 5], np.int32))
    c.check("QAttention", attention, ["w", "g", "xs", "ws", "xz", "wz"], num_heads=2, unidirectional=1)
    two = [("a", u(3, 4)), *pair("a", 0.1, 120), ("b", u(3, 4)), *pair("b", 0.2, 100)]
    constants = ["as", "az", "bs", "bz", "cs", "cz"]
    c.check("QLinearAdd", [*two, *pair("c", 0.3, 128)], constants)
    c.check("QLinearMul", [*two, *pair("c", 1.3, 128)], constants)
    one = ["as", "az", "cs", "cz"]
    c.check("QLinearSigmoid", [("a", u(3, 4)), *pair("a", 0.03, 120), *pair("c", 1 / 256, 0)], one)
    c.check("QLinearGlobalAveragePool", [("a", u(1, 3, 4, 4)), *pair("a", 0.1, 120), *pair("c", 0.1, 128)], one)
    c.check("QLinearAveragePool", [("a", u(1, 3, 5, 4)), *pair("a", 0.1, 120), *pair("c", 0.13, 128)], one, kernel_shape=[2, 2], strides=[2, 1], pads=[1, 0, 0, 0])
    c.check("QLinearSoftmax", [("a", u(3, 4)), *pair("a", 0.03, 120), *pair("c", 1 / 256, 0)], one, axis=-1, opset=13)
    c.check("QLinearConcat", [*pair("c", 0.15, 110), *two], constants, axis=1)
    c.check("QLinearWhere", [("if", random.integers(0, 2, (3, 4)).astype(bool)), *two, *pair("c", 0.3, 128)], constants)
    gemm = [("a", u(3, 8)), *pair("a", 0.1, 120), ("b", u(5, 8)), *pair("b", 0.02, 100), ("g", random.integers(-900, 900, 5).astype(np.int32))]
    c.check("QGemm", [*gemm, *pair("c", 0.3, 128)], [*constants, "b", "g"], transB=1)
    c.check("QGemm", [*gemm[:6], ("g", None)], ["as", "az", "bs", "bz", "b"], transB=1, alpha=0.5)
    steps, batch, inputs, hidden = 4, 1, 6, 5
    lstm = [("x", f(steps, batch, inputs)), ("w", u(1, inputs, 4 * hidden)), ("r", u(1, hidden, 4 * hidden)), ("b", f(1, 8 * hidden)), ("lengths", None),
            ("h", None), ("c", None), ("p", None), ("ws", np.array([0.01], np.float32)), ("wz", np.array([120], np.uint8)),
            ("rs", np.array([0.02], np.float32)), ("rz", np.array([130], np.uint8))]
    c.check("DynamicQuantizeLSTM", lstm, ["w", "r", "b", "ws", "wz", "rs", "rz"], ("y", "last", "state"), hidden_size=hidden)
    c.check("DynamicQuantizeMatMul", [("a", f(3, 8)), ("b", u(8, 5)), *pair("b", 0.02, 120)], ["b", "bs", "bz"])


def pairs(c, random):
    """Q/DQ pairs, which ONNX Runtime makes integer arithmetic of: equal to the last bit."""
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

    u = lambda *s: random.integers(0, 256, s).astype(np.uint8)
    i = lambda *s: random.integers(-127, 128, s).astype(np.int8)

    def model(name, x, constants, nodes):
        graph = helper.make_graph([helper.make_node(op, ins, [out], **attributes) for op, ins, out, attributes in nodes], name,
                                  [helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, x.shape)],
                                  [helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, None)],
                                  [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()])
        made = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
        verdict = c.compare(made, {"x": x}, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL, ["--optimize"])
        print(f"{verdict['status']:8} {name} between Q/DQ pairs {verdict['reason']}")

    dq = lambda name, axis=None: ("DequantizeLinear", [name, name + "_s", name + "_z"], name + "_f", {} if axis is None else {"axis": axis})
    q = ("QuantizeLinear", ["y_f", "y_s", "y_z"], "y", {})
    scales = lambda **kw: {n: np.float32(v) for n, v in kw.items()}
    for zero, relu in ((0, True), (110, False)):
        w_s = random.uniform(0.002, 0.02, 7).astype(np.float32)
        constants = {**scales(x_s=0.03, y_s=0.17), "x_z": np.uint8(121), "y_z": np.uint8(zero), "w": i(7, 5, 3, 3), "w_s": w_s, "w_z": np.zeros(7, np.int8),
                     "b": random.integers(-3000, 3000, 7).astype(np.int32), "b_s": np.float32(0.03) * w_s, "b_z": np.zeros(7, np.int32)}
        conv = ("Conv", ["x_f", "w_f", "b_f"], "c" if relu else "y_f", {"pads": [1, 1, 1, 1], "strides": [2, 2]})
        after = [("Relu", ["c"], "y_f", {})] if relu else []
        model("Conv, Relu" if relu else "Conv", u(2, 5, 11, 9), constants, [dq("x"), dq("w", 0), dq("b", 0), conv, *after, q])
    two = {**scales(x_s=0.03, w_s=0.01, y_s=0.4), "x_z": np.uint8(121), "y_z": np.uint8(128), "w": i(24, 7), "w_z": np.int8(0)}
    model("MatMul", u(3, 5, 24), two, [dq("x"), dq("w"), ("MatMul", ["x_f", "w_f"], "y_f", {}), q])
    add = {**scales(x_s=0.03, w_s=0.05, y_s=0.07), "x_z": np.uint8(121), "y_z": np.uint8(128), "w": u(24), "w_z": np.uint8(100)}
    model("Add", u(3, 24), add, [dq("x"), dq("w"), ("Add", ["x_f", "w_f"], "y_f", {}), q])


def main():
    enter_venv(BUILD / "conformance/runtime_venv", ["onnx", "onnxruntime", "numpy"])
    import numpy as np

    random = np.random.default_rng(0)
    f = lambda *s: random.standard_normal(s).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        c = Checker(pathlib.Path(folder))
        attention(c, random)
        grouped(c, random)
        fused(c, np.random.default_rng(1))
        quantised(c, random)
        pairs(c, random)
        for op in ("Gelu", "FastGelu", "QuickGelu"):
            c.check(op, [("x", f(3, 4))], [])
        for activation, numbers in (("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.2}), ("Elu", {"activation_alpha": 1.2}),
                                    ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4})):
            c.check("FusedGemm", [("a", f(3, 4)), ("b", f(5, 4)), ("g", f(5))], ["b", "g"], transB=1, alpha=0.5, activation=activation, **numbers)
        for op in ("FastGelu", "BiasGelu"):
            c.check(op, [("x", f(3, 4)), ("b", f(4))], ["b"])
    print(f"{c.cases - c.bad} of {c.cases} as ONNX Runtime has them")
    return c.bad != 0


if __name__ == "__main__":
    sys.exit(main())
