#!/usr/bin/env python3
"""Networks of torchvision and transformers, and products of 8-bit integers, on the processor, against ONNX Runtime on the same ONNX file in
the same run.

    bench/cpu.sh                                          six image classifiers, 300 s of tuning each
    bench/cpu.sh --seconds 0 resnet18                     fallback schedules alone
    bench/cpu.sh --seconds 20 int8-gemm int8-conv3x3      layers of quantised models
    bench/cpu.sh --seconds 0 resnet50-int8 bert-int8      quantised networks
    bench/cpu.sh --older /elsewhere/build/bin/diapason    another build of Diapason takes part, tuned for as long
    bench/cpu.sh --at-once                                all networks tuned at the same time, each on processors of its own

Each network (random weights, batch 1, float32) is exported by torch.onnx, built with fallback schedules (whose time is reported), tuned
into build/bench/cpu-NETWORK.db and built again. Then the packages and ONNX Runtime take turns, so that a change of the machine's clock
or load hits all of them; the table has medians in milliseconds, and the largest difference from ONNX Runtime's outputs as a share of the
largest element. With --at-once every network has --threads processors, different cores where the machine has enough of them, on which it is
exported, built and tuned beside the others (which share memory and the last cache with it), without the check of the network; then one
network after the other is timed on its processors, and so is ONNX Runtime, with a thread on each. PyTorch, ONNX Runtime and the rest come
from PyPI into a virtual environment under build/, which is made when it is missing (3 GB); BENCH_PYTHON=this says that python3 has them.
"""
import argparse
import concurrent.futures
import functools
import json
import math
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

from processors import groups_of_cores, parse_list
from python_environment import enter_venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "bench"
VENV = ROOT / "build" / "baseline-venv"
PACKAGES = ["torch", "torchvision", "transformers", "onnx", "onnxscript", "onnxruntime", "numpy"]
CLASSIFIERS = ["resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "efficientnet_b0", "densenet121"]
OTHERS = ["vit_b_16", "bert"]
# Quantised convolutions of uint8 images with a zero point by int8 weights, one scale for each channel: channels in, channels out, extent,
# window.
CONVOLUTIONS = {"int8-conv3x3": (64, 64, 56, 3), "int8-conv1x1": (256, 64, 56, 1), "int8-conv3x3-deep": (512, 512, 7, 3)}
PRODUCTS = ["int8-gemm", *CONVOLUTIONS]
# Networks quantised by ONNX Runtime's tools: pairs of QuantizeLinear and DequantizeLinear, or products of dynamically quantised activations.
QUANTISED = {"resnet50-int8": "resnet50", "bert-int8": "bert"}


def module_of(name):
    """(module, its inputs by name)."""
    import torch
    if name != "bert":
        import torchvision
        return getattr(torchvision.models, name)(weights=None), {"x": torch.randn(1, 3, 224, 224)}
    import transformers

    class Encoder(torch.nn.Module):  # the exporter does not get on with the many parameters that the model's own forward has

        def __init__(self):
            super().__init__()
            self.model = transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False)

        def forward(self, input_ids):
            return self.model(input_ids=input_ids).last_hidden_state

    return Encoder(), {"input_ids": torch.randint(0, 30000, (1, 128))}


def write_product(name, path):
    """128x768 by 768x3072 with sums in int32, or a convolution."""
    import numpy as np
    import onnx
    random = np.random.default_rng(0)

    def constant(label, array):
        return onnx.numpy_helper.from_array(np.asarray(array), label)

    def tensor(label, kind, *shape):
        return onnx.helper.make_tensor_value_info(label, getattr(onnx.TensorProto, kind), shape)

    if name in CONVOLUTIONS:
        inside, outside, extent, window = CONVOLUTIONS[name]
        weights = random.integers(-127, 128, (outside, inside, window, window), dtype=np.int8)
        scales = (random.random(outside) * 0.01 + 0.001).astype(np.float32)
        constants = [constant("x_scale", np.float32(0.02)), constant("x_zero", np.uint8(128)), constant("w", weights), constant("w_scale", scales),
                     constant("w_zero", np.zeros(outside, np.int8)), constant("y_scale", np.float32(0.5)), constant("y_zero", np.uint8(128)),
                     constant("bias", random.integers(-1000, 1000, outside, dtype=np.int32))]
        node = onnx.helper.make_node("QLinearConv", ["x", *(c.name for c in constants)], ["y"], pads=[window // 2] * 4)
        image, result = tensor("x", "UINT8", 1, inside, extent, extent), tensor("y", "UINT8", 1, outside, extent, extent)
    else:
        constants = [constant("w", random.integers(-127, 128, (768, 3072), dtype=np.int8)), constant("x_zero", np.uint8(121))]
        node = onnx.helper.make_node("MatMulInteger", ["x", "w", "x_zero"], ["y"])
        image, result = tensor("x", "UINT8", 128, 768), tensor("y", "INT32", 128, 3072)
    graph = onnx.helper.make_graph([node], name, [image], [result], constants)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), str(path))


def write_quantised(name, path):
    """The float32 network in uint8 activations and int8 weights: an image classifier statically, from a few random images, BERT dynamically."""
    from onnxruntime import quantization
    floats, prepared = OUT / f"cpu-{QUANTISED[name]}.onnx", OUT / f"cpu-{QUANTISED[name]}-prepared.onnx"
    if not floats.exists():
        export(QUANTISED[name], floats)
    quantization.shape_inference.quant_pre_process(str(floats), str(prepared), skip_symbolic_shape=True)
    if QUANTISED[name] == "bert":
        quantization.quantize_dynamic(str(prepared), str(path), weight_type=quantization.QuantType.QInt8)
    else:
        quantization.quantize_static(str(prepared), str(path), RandomImages(), quant_format=quantization.QuantFormat.QDQ,
                                     activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8, per_channel=True)
    prepared.unlink()


class RandomImages:
    """A reader of calibration data."""

    def __init__(self):
        import numpy as np
        random = np.random.default_rng(2)
        self.images = iter([random.normal(0, 1, (1, 3, 224, 224)).astype(np.float32) for _ in range(4)])

    def get_next(self):
        image = next(self.images, None)
        return None if image is None else {"x": image}


def export(name, path):
    if name in PRODUCTS:
        return write_product(name, path)
    if name in QUANTISED:
        return write_quantised(name, path)
    import torch
    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)  # a fused operator, for which the exporter has none
    with torch.no_grad():
        module, inputs = module_of(name)
        for parameter in module.parameters():  # torchvision's ViT ends in a layer of zeros, whose outputs are all 0
            if parameter.dim() > 1 and not parameter.any():
                torch.nn.init.normal_(parameter, std=0.02)
        norms = [m for m in module.modules() if isinstance(m, torch.nn.BatchNorm2d)]
        for norm in norms:  # statistics of random images, so that activations stay near 1 through all layers
            norm.momentum = 1.0
        if norms:
            module.train()
            module(torch.randn(4, 3, 224, 224))
        module.eval()
        torch.onnx.export(module, tuple(inputs.values()), str(path), input_names=list(inputs), dynamo=False)


def run(*command, processors=()):
    """Its output. On these processors alone, if there are any."""
    pinned = ["taskset", "-c", ",".join(map(str, processors))] if processors else []
    command = [*pinned, *command]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(str(word) for word in command)}\n{done.stderr}")
    return done.stdout


def session_of(path, threads, exact=False, processors=()):
    """`exact`: sums of products of bytes that do not saturate in 16 bits, which those of processors with AVX2 alone do otherwise. `processors`: of
    its threads, one each; the first is the caller's own, who stays there."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    if processors:
        os.sched_setaffinity(0, set(processors[:1]))
        if threads > 1:  # of the others; they are counted from 1
            options.add_session_config_entry("session.intra_op_thread_affinities", ";".join(str(p + 1) for p in processors[1:threads]))
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feeds_of(session):
    import numpy as np
    random = np.random.default_rng(1)
    draw = {"tensor(uint8)": lambda shape: random.integers(0, 256, shape, dtype=np.uint8), "tensor(int64)": lambda shape: random.integers(0, 30000, shape),
            "tensor(float)": lambda shape: random.normal(0, 1, shape).astype(np.float32)}
    return {i.name: draw[i.type](i.shape) for i in session.get_inputs()}


def time_session(session, feeds, seconds):
    """Samples in milliseconds, one a call, for so long."""
    for _ in range(3):
        session.run(None, feeds)
    samples, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        session.run(None, feeds)
        samples.append((time.perf_counter() - start) * 1e3)
    return samples


@functools.cache
def can_end_early(program):
    """Whether it can be told for how long to measure latencies one by one; older builds cannot."""
    return "--duration" in run(program, "run", "--help")


def time_package(program, package, processors=()):
    short = ["--duration", "0.1"] if can_end_early(program) else []
    done = run(program, "run", package, "--bench", *short, "--repeat", "12", "--min-repeat-ms", "50", "--json", processors=processors)
    report = json.loads(done)
    samples = report["throughput"]["samples_us"] if "throughput" in report else report["latency_us"]["samples"]  # of older builds
    return [us / 1e3 for us in samples]


def difference(program, package, model, feeds, processors=()):
    """The largest difference of an output from what ONNX Runtime computes, of the output's largest element."""
    import numpy as np
    session, folder = session_of(model, 1, exact=True), OUT / "cpu-outputs"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    inputs = []
    for name, array in feeds.items():
        np.save(folder / f"in-{name}.npy", array)
        inputs += ["--input", f"{name}={folder / f'in-{name}.npy'}"]
    run(program, "run", package, *inputs, "--output-dir", folder, processors=processors)
    worst = 0.0
    for output, want in zip(session.get_outputs(), session.run(None, feeds)):
        got = np.load(folder / f"{output.name}.npy").astype(np.float64)
        if not want.any():
            sys.exit(f"error: {model}: output {output.name} is 0 everywhere, which shows nothing; export the network with other weights")
        worst = max(worst, float(np.abs(got - want).max() / np.abs(want.astype(np.float64)).max()))
    return worst


class Side:
    """A build of Diapason, its packages of a network and what it said. `processors`: on which it works; empty: on any."""

    def __init__(self, label, program, processors=()):
        self.label, self.program, self.processors, self.packages, self.facts = label, program, processors, {}, {}

    def run(self, *command):
        return run(self.program, *command, processors=self.processors)

    def make(self, name, model, target, seconds):
        folder = OUT / f"cpu-{self.label}-{name}"
        for kind in ("default", "tuned"):
            shutil.rmtree(f"{folder}-{kind}", ignore_errors=True)
        start = time.perf_counter()
        self.run("build", model, "--target", target, "--no-check", "--out", f"{folder}-default")
        self.facts["build_s"] = time.perf_counter() - start
        self.packages["default"] = f"{folder}-default"
        if seconds <= 0:
            return
        history = pathlib.Path(f"{folder}.db")
        for file in OUT.glob(history.name + "*"):
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        # Checks of networks take minutes, which those beside this one would wait for: the comparison of outputs is to do.
        check = ["--no-check"] if self.processors else []
        tuned = json.loads(self.run("tune", model, "--target", target, "--history", history, "--seconds", seconds, "--json", *check))
        self.run("build", model, "--target", target, "--history", history, "--no-check", "--out", f"{folder}-tuned")
        self.packages["tuned"] = f"{folder}-tuned"
        self.facts["trials_per_s"] = tuned["trials_per_s"]
        if tuned["estimated_us"] is not None:  # some task was never timed
            self.facts["estimated_ms"] = tuned["estimated_us"] / 1e3


class Network:
    """One of those that are compared, with the builds of Diapason that take part."""

    def __init__(self, name, args, processors=()):
        self.name, self.args, self.processors = name, args, processors
        self.model = (pathlib.Path(args.models) if args.models else OUT) / f"cpu-{name}.onnx"
        self.sides = [Side("new", args.program, processors)] + ([Side("older", args.older, processors)] if args.older else [])

    def export(self):
        if not self.model.exists():
            export(self.name, self.model)

    def make(self):
        for side in self.sides:
            side.make(self.name, self.model, f"cpu -num-cores={self.args.threads}", self.args.seconds)

    def measure(self):
        session = session_of(self.model, self.args.threads, processors=self.processors)
        feeds = feeds_of(session)
        samples = {"onnxruntime": []}
        for _ in range(self.args.rounds):
            samples["onnxruntime"] += time_session(session, feeds, 1)
            for side in self.sides:
                for kind, package in side.packages.items():
                    samples.setdefault(f"{side.label} {kind}", []).extend(time_package(side.program, package, self.processors))
        result = {"network": self.name, "ms": {label: statistics.median(values) for label, values in samples.items()}}
        result["difference"] = max(
            difference(side.program, package, self.model, feeds, self.processors) for side in self.sides for package in side.packages.values())
        result["facts"] = {side.label: dict(side.facts) for side in self.sides}
        print(json.dumps(result), file=sys.stderr, flush=True)
        return result


def measure_in_turn(names, args):
    """Of each network, its result."""
    results = []
    for name in names:
        network = Network(name, args)
        network.export()
        network.make()
        results.append(network.measure())
    return results


def export_at_once(networks, args):
    """Each by a process of its own, since exporting takes one thread."""
    missing = [network for network in networks if not network.model.exists()]
    children = []
    for network in missing:
        command = [sys.executable, __file__, "--export-only", network.name, *(["--models", args.models] if args.models else [])]
        children.append(subprocess.Popen(["taskset", "-c", ",".join(map(str, network.processors)), *command]))
    if any([child.wait() != 0 for child in children]):
        sys.exit("error: a network could not be exported; it says above why")


def measure_at_once(names, args):
    """As measure_in_turn, but all are made at once, each on processors of its own."""
    usable = sorted(os.sched_getaffinity(0))
    groups, own_cores = groups_of_cores(usable, siblings_of(usable), len(names), args.threads)
    if not groups:
        sys.exit(f"error: {len(names)} networks at once need {len(names) * args.threads} processors, of which there are {len(usable)}: name fewer"
                 " networks, or leave --at-once out")
    if not own_cores:
        print("some cores run two networks at once, on a thread each", flush=True)
    networks = [Network(name, args, group) for name, group in zip(names, groups)]
    export_at_once(networks, args)
    with concurrent.futures.ThreadPoolExecutor(len(networks)) as pool:
        for made in [pool.submit(network.make) for network in networks]:
            made.result()
    results = [network.measure() for network in networks]
    os.sched_setaffinity(0, usable)
    return results


def siblings_of(processors):
    """For each of them, all threads of its core, where Linux says so."""
    siblings = {}
    for processor in processors:
        file = pathlib.Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
        if file.exists():
            siblings[processor] = parse_list(file.read_text(encoding="utf-8"))
    return siblings


def show(results):
    columns = [label for label in results[0]["ms"] if label != "onnxruntime"]
    print(f"{'network':16}{'ONNX Runtime':>14}" + "".join(f"{label:>18}{'ratio':>7}" for label in columns) + f"{'off by':>9}{'build s':>9}{'trials/s':>10}{'estimate':>10}")
    for result in results:
        ms, facts = result["ms"], result["facts"]["new"]
        row = f"{result['network']:16}{ms['onnxruntime']:14.3f}"
        row += "".join(f"{ms[label]:18.3f}{ms[label] / ms['onnxruntime']:7.2f}" for label in columns)
        tuned = f"{facts['trials_per_s']:10.1f}" if "trials_per_s" in facts else ""
        tuned += f"{facts['estimated_ms'] / ms['new tuned']:10.2f}" if "estimated_ms" in facts else ""
        print(row + f"{result['difference']:9.1e}{facts['build_s']:9.1f}" + tuned)
    means = [math.exp(statistics.fmean(math.log(r["ms"][label] / r["ms"]["onnxruntime"]) for r in results)) for label in columns]
    print(f"{'geometric mean':30}" + "".join(f"{'':18}{mean:7.2f}" for mean in means))


def processor():
    for line in open("/proc/cpuinfo", encoding="utf-8"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(CLASSIFIERS + OTHERS + PRODUCTS + list(QUANTISED))}; default: the first {len(CLASSIFIERS)}")
    parser.add_argument("--program", default=str(ROOT / "build" / "bin" / "diapason"))
    parser.add_argument("--older", metavar="PROGRAM", help="another build of diapason to compare with")
    parser.add_argument("--seconds", type=float, default=300, help="of tuning a network; 0: fallback schedules alone")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--at-once", action="store_true", help="tunes all networks at the same time, each on processors of its own")
    parser.add_argument("--models", metavar="FOLDER", help="has, or gets, the networks as cpu-NETWORK.onnx (default: build/bench)")
    parser.add_argument("--export-only", action="store_true", help="only exports the networks")
    parser.add_argument("--json", metavar="FILE", help="writes the results there, too")
    args = parser.parse_args()
    unknown = sorted(set(args.networks) - set(CLASSIFIERS + OTHERS + PRODUCTS + list(QUANTISED)))
    if unknown:
        parser.error(f"no network {unknown[0]!r}: choose of {', '.join(CLASSIFIERS + OTHERS + PRODUCTS + list(QUANTISED))}")
    enter_venv(VENV, PACKAGES)
    import onnxruntime
    OUT.mkdir(parents=True, exist_ok=True)
    names = args.networks or CLASSIFIERS
    if args.export_only:
        for name in names:
            Network(name, args).export()
        return
    print(f"{processor()}, {args.threads} threads, batch 1, ONNX Runtime {onnxruntime.__version__}, {args.seconds:g} s of tuning; ms", flush=True)
    results = measure_at_once(names, args) if args.at_once else measure_in_turn(names, args)
    show(results)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
