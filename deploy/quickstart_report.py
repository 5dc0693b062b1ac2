#!/usr/bin/env python3
"""The end of deploy/quickstart.sh: a table of what a network takes with fallback schedules, tuned, and in ONNX Runtime.

    quickstart_report.py PROGRAM FALLBACK TUNED --model MODEL --target TARGET [--onnx FILE]

FALLBACK and TUNED are packages. Both are checked, then all take turns, and the table has medians. ONNX Runtime takes part on the
processor if python3 has it, on as many threads: with the network itself where MODEL is an ONNX file, and with the same layers and
random weights for resnet-18, written to FILE, for which python3 needs the package onnx too.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

ROUNDS = 5
SECONDS = 0.5  # of each in a round


def document(program, *words):
    """The JSON document that a command prints."""
    return json.loads(subprocess.run([program, *words, "--json"], check=True, stdout=subprocess.PIPE).stdout)


def resnet18(path):
    """The layers of ResNet-18 with batch normalization folded into them, as an ONNX file of random weights."""
    import numpy as np
    import onnx
    random = np.random.default_rng(1)
    nodes, weights = [], []

    def constant(shape, scale):
        weights.append(onnx.numpy_helper.from_array((random.standard_normal(shape) * scale).astype("float32"), f"w{len(weights)}"))
        return weights[-1].name

    def node(op, inputs, **attributes):
        nodes.append(onnx.helper.make_node(op, inputs, [f"t{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def conv(x, channels_in, channels, kernel, stride):
        inputs = [x, constant((channels, channels_in, kernel, kernel), (2 / (channels_in * kernel * kernel)) ** 0.5), constant((channels,), 0.1)]
        return node("Conv", inputs, strides=[stride] * 2, pads=[kernel // 2] * 4)

    x = node("MaxPool", [node("Relu", [conv("image", 3, 64, 7, 2)])], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    before = 64
    for channels in (64, 128, 256, 512):
        for block in range(2):
            stride = 2 if block == 0 and channels > 64 else 1
            y = conv(node("Relu", [conv(x, before, channels, 3, stride)]), channels, channels, 3, 1)
            x = node("Relu", [node("Add", [y, conv(x, before, channels, 1, stride) if stride > 1 else x])])
            before = channels
    x = node("Gemm", [node("Flatten", [node("GlobalAveragePool", [x])]), constant((512, 1000), 0.05), constant((1000,), 0.1)])
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(nodes, "resnet-18", [info("image", onnx.TensorProto.FLOAT, [1, 3, 224, 224])],
                                   [info(x, onnx.TensorProto.FLOAT, [1, 1000])], weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)


class OnnxRuntime:
    """A network in ONNX Runtime on the processor, on random inputs. ImportError: python3 has no onnxruntime, or no onnx to write one."""

    def __init__(self, model, file, threads):
        import numpy as np
        import onnxruntime
        if not model.endswith(".onnx"):
            resnet18(file)
            model = file
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.version = onnxruntime.__version__
        self.inputs = {}
        for port in self.session.get_inputs():
            if port.type != "tensor(float)" or not all(isinstance(extent, int) for extent in port.shape):
                raise ValueError(f"input '{port.name}' is {port.type} {port.shape}")
            self.inputs[port.name] = np.random.default_rng(1).standard_normal(port.shape).astype("float32")

    def milliseconds(self, seconds):
        samples, end = [], time.perf_counter() + seconds
        while not samples or time.perf_counter() < end:
            begin = time.perf_counter()
            self.session.run(None, self.inputs)
            samples.append((time.perf_counter() - begin) * 1e3)
        return statistics.median(samples)


def onnx_runtime(args):
    """The network in ONNX Runtime and why there is none: one of them is None."""
    if not args.target.startswith("cpu"):
        return None, "it is compared on processors only"
    if args.model != "resnet-18" and not args.model.endswith(".onnx"):
        return None, "there is no ONNX file of this network"
    try:
        return OnnxRuntime(args.model, args.onnx, cores(args.program, args.tuned)), None
    except ImportError as missing:
        return None, f"python3 has no module {missing.name}; pip install onnxruntime onnx"
    except ValueError as why:
        return None, f"its inputs are not made here: {why}"


def cores(program, package):
    """Threads that the package runs on."""
    words = [word for word in document(program, "inspect", package)["target"].split() if word.startswith("-num-cores=")]
    return int(words[0].split("=")[1]) if words else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("fallback")
    parser.add_argument("tuned")
    parser.add_argument("--model", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--onnx", default="resnet-18.onnx")
    args = parser.parse_args()
    packages = {"fallback schedules": args.fallback, "tuned": args.tuned}
    errors = {name: document(args.program, "run", package, "--check")["check"]["max_abs_error"] for name, package in packages.items()}
    runtime, why_not = onnx_runtime(args)
    samples = {name: [] for name in packages}
    for _ in range(ROUNDS):
        for name, package in packages.items():
            report = document(args.program, "run", package, "--bench", "--duration", str(SECONDS))
            samples[name].append(report["latency"]["median_us"] / 1e3)
        if runtime:
            samples.setdefault(f"ONNX Runtime {runtime.version}", []).append(runtime.milliseconds(SECONDS))
    times = {name: statistics.median(values) for name, values in samples.items()}
    print(f"\n{args.model} on {args.target}, medians of {ROUNDS} rounds in turns:\n")
    print(f"  {'':24}{'latency':>12}{'of fallback':>14}{'largest error':>16}")
    for name, time_ms in times.items():
        error = f"{errors[name]:.1e}" if name in errors else ""
        print(f"  {name:24}{time_ms:9.3f} ms{time_ms / times['fallback schedules']:14.2f}{error:>16}".rstrip())
    print(f"\ntuning made it {times['fallback schedules'] / times['tuned']:.2f} times as fast; errors are against the reference implementation")
    if why_not:
        print(f"ONNX Runtime is not in the table: {why_not}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
