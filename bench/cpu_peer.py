#!/usr/bin/env python3
"""Latency of a Diapason package against ONNX Runtime on the same ResNet-18, in one run.

    bench/cpu_peer.py --package DIR [--threads 2] [--rounds 5] [--json]

Makes an ONNX file of ResNet-18 (batch 1, 224x224, float32, random weights, batch norms folded into the convolutions, as
both sides would do), and times the two in turns, so that a change of the machine's clock or load hits both. ONNX Runtime
and onnx come from PyPI into a virtual environment under build/, which is made when it is missing.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

from python_environment import enter_venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / "build" / "peer-venv"
PACKAGES = ["onnxruntime", "onnx", "numpy"]


def resnet18(path):
    """Writes the ONNX file."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    nodes, weights = [], []

    def constant(name, array):
        weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def conv(x, name, ci, co, kernel, stride):
        w = constant(name + ".w", random.normal(0, (2 / (ci * kernel * kernel)) ** 0.5, (co, ci, kernel, kernel)))
        b = constant(name + ".b", random.normal(0, 0.1, co))
        pad = kernel // 2
        nodes.append(helper.make_node("Conv", [x, w, b], [name], kernel_shape=[kernel, kernel], strides=[stride, stride],
                                      pads=[pad] * 4))
        return name

    def relu(x):
        nodes.append(helper.make_node("Relu", [x], [x + ".relu"]))
        return x + ".relu"

    def block(x, name, ci, co, stride):
        y = conv(relu(conv(x, name + ".0", ci, co, 3, stride)), name + ".1", co, co, 3, 1)
        if stride != 1 or ci != co:
            x = conv(x, name + ".skip", ci, co, 1, stride)
        nodes.append(helper.make_node("Add", [y, x], [name]))
        return relu(name)

    x = relu(conv("data", "stem", 3, 64, 7, 2))
    nodes.append(helper.make_node("MaxPool", [x], ["pool"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4))
    x, ci = "pool", 64
    for stage, co in enumerate((64, 128, 256, 512)):
        for i in range(2):
            x = block(x, f"s{stage}b{i}", ci, co, 2 if stage > 0 and i == 0 else 1)
            ci = co
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["mean"]))
    nodes.append(helper.make_node("Flatten", ["mean"], ["flat"]))
    constant("fc.w", random.normal(0, 512 ** -0.5, (1000, 512)))
    constant("fc.b", random.normal(0, 0.1, 1000))
    nodes.append(helper.make_node("Gemm", ["flat", "fc.w", "fc.b"], ["output"], transB=1))
    image = helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 3, 224, 224])
    result = helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 1000])
    graph = helper.make_graph(nodes, "resnet-18", [image], [result], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def peer_session(path, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def time_peer(session, seconds):
    """Samples in microseconds, one a call, for so long."""
    import numpy as np

    feed = {"data": np.random.default_rng(1).normal(0, 1, (1, 3, 224, 224)).astype(np.float32)}
    for _ in range(5):
        session.run(None, feed)
    samples, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        session.run(None, feed)
        samples.append((time.perf_counter() - start) * 1e6)
    return samples


def time_package(program, package):
    command = [program, "run", package, "--bench", "--repeat", "20", "--min-repeat-ms", "50", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["latency_us"]["samples"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", help="package of resnet-18 that `diapason build` made")
    parser.add_argument("--program", default=str(ROOT / "build" / "bin" / "diapason"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write-onnx", metavar="FILE", help="write the ONNX file there and end")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.package and not args.write_onnx:
        parser.error("--package is missing")
    enter_venv(VENV, PACKAGES)
    path = pathlib.Path(args.write_onnx or VENV / "resnet-18.onnx")
    resnet18(path)
    if args.write_onnx:
        return
    session = peer_session(path, args.threads)
    ours, peer = [], []
    for _ in range(args.rounds):
        peer += time_peer(session, 1.5)
        ours += time_package(args.program, args.package)
    ours_us, peer_us = statistics.median(ours), statistics.median(peer)
    import onnxruntime

    report = {"diapason_us": ours_us, "onnxruntime_us": peer_us, "ratio": ours_us / peer_us, "threads": args.threads,
              "onnxruntime": onnxruntime.__version__}
    if args.json:
        print(json.dumps(report))
    else:
        print(f"ResNet-18, batch 1, float32, {args.threads} threads, medians of {args.rounds} rounds in turns")
        print(f"  ONNX Runtime {report['onnxruntime']:8} {peer_us / 1e3:9.3f} ms")
        print(f"  Diapason              {ours_us / 1e3:9.3f} ms")
        print(f"  ratio                 {report['ratio']:9.2f}")


if __name__ == "__main__":
    main()
