#!/usr/bin/env python3
"""PyTorch, cuDNN and cuBLAS on the first NVIDIA GPU: float32 without TF32, random weights, everything in CUDA graphs.

    bench/peers_torch.py network NAME [--batch N]     a network of torchvision, eager, both memory formats
    bench/peers_torch.py compiled NAME [--batch N]    the same by torch.compile with max-autotune: takes minutes
    bench/peers_torch.py kernels convs|depthwise|gemm the kernels of gpu_table/cases.py, the best of formats and ways
    bench/peers_torch.py export NAME FILE             the network as ONNX, with image.npy and expected.npy beside it

Prints one JSON document; times are medians in microseconds. A sample is 20 ms of replays one after the other, as Diapason
takes its own.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys

import torch
import torch.nn.functional as F
import torchvision

from gpu_table import cases, npy
from gpu_table.torch_to_onnx import export

FORMATS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
SAMPLES = 10
SAMPLE_MS = 20


def captured(call, copies):
    """A graph of so many calls, after cuDNN's own search and warm-up."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(5):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(copies):
            call()
    return graph


def replay_ms(graph, replays):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def time_us(call, copies=1):
    """Median of samples, for one call."""
    graph = captured(call, copies)
    replay_ms(graph, 5)
    replays = max(1, math.ceil(SAMPLE_MS / (replay_ms(graph, 5) / 5)))
    return statistics.median(replay_ms(graph, replays) for _ in range(SAMPLES)) / (replays * copies) * 1e3


def network(name, memory_format, batch=1):
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(weights=None).eval().cuda().to(memory_format=memory_format)
    image = torch.randn(batch, 3, 224, 224, device="cuda").contiguous(memory_format=memory_format)
    return model, image


def time_network(args):
    variants = {}
    for name, memory_format in FORMATS.items():
        model, image = network(args.name, memory_format, args.batch)
        variants[name] = time_us(lambda: model(image))
    return {"variants": variants, "best_us": min(variants.values())}


def time_compiled(args):
    """Without CUDA graphs of its own, so that it is timed as all others."""
    variants = {}
    for name, memory_format in FORMATS.items():
        torch.compiler.reset()
        model, image = network(args.name, memory_format, args.batch)
        compiled = torch.compile(model, mode="max-autotune-no-cudagraphs")
        for _ in range(3):
            compiled(image)
        variants[name] = time_us(lambda: compiled(image))
    return {"variants": variants, "best_us": min(variants.values())}


def random(shape, memory_format=torch.contiguous_format):
    return torch.randn(*shape, device="cuda").contiguous(memory_format=memory_format)


def conv_ways(o, memory_format):
    """The convolution alone, and with bias and relu: as kernels of their own and as cuDNN's fused call."""
    x = random((1, o["ci"], o["h"], o["w"]), memory_format)
    w = random((o["co"], o["ci"], o["kernel"], o["kernel"]), memory_format)
    b, stride, pad = random((o["co"],)), o["stride"], (o["kernel"] - 1) // 2
    return {"alone": lambda: F.conv2d(x, w, None, stride, pad),
            "separate": lambda: F.relu_(F.conv2d(x, w, b, stride, pad)),
            "fused": lambda: torch.cudnn_convolution_relu(x, w, b, (stride, stride), (pad, pad), (1, 1), 1)}


def depthwise_ways(o, memory_format):
    """The convolution alone, and with scale, shift and relu as kernels of their own."""
    channels = o["channels"] * o["multiplier"]
    x = random((1, o["channels"], o["size"], o["size"]), memory_format)
    w = random((channels, 1, o["kernel"], o["kernel"]), memory_format)
    scale, shift = random((1, channels, 1, 1)), random((1, channels, 1, 1))

    def conv():
        return F.conv2d(x, w, None, 1, o["kernel"] // 2, 1, o["channels"])

    return {"alone": conv, "separate": lambda: torch.relu(conv() * scale + shift),
            "in place": lambda: conv().mul_(scale).add_(shift).relu_()}


def time_ways(ways, copies):
    """A way that this version does not know or cannot run is left out; the convolution alone must run."""
    times = {}
    for name, call in ways.items():
        try:
            times[name] = time_us(call, copies)
        except (RuntimeError, AttributeError) as error:
            if name in ("alone", "separate"):
                raise
            print(f"{name}: {error}", file=sys.stderr)
    return times


def time_convolution(kernel):
    ways = conv_ways if kernel.operator == "conv2d" else depthwise_ways
    variants = {}
    for name, memory_format in FORMATS.items():
        for way, time in time_ways(ways(kernel.options, memory_format), 20).items():
            variants[f"{name} {way}"] = time
    alone = {name: time for name, time in variants.items() if name.endswith("alone")}
    whole = {name: time for name, time in variants.items() if name not in alone}
    return {"variants": variants, "best_us": min(whole.values()), "bare_us": min(alone.values())}


def time_gemm(kernel):
    a, b = random((kernel.options["m"], kernel.options["k"])), random((kernel.options["k"], kernel.options["n"]))
    time = time_us(lambda: a @ b, 4)
    return {"variants": {"a @ b": time}, "best_us": time, "bare_us": time}


def time_kernels(args):
    if args.part == "gemm":
        return {"kernels": {cases.GEMM.name: time_gemm(cases.GEMM)}}
    kernels = cases.CONVS if args.part == "convs" else cases.DEPTHWISE
    return {"kernels": {kernel.name: time_convolution(kernel) for kernel in kernels}}


def set_statistics(model):
    """Statistics of the batch norms from random images, so that activations stay near 1 through all layers."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    model.train()(torch.randn(4, 3, 224, 224))
    return model.eval()


def export_network(args):
    """On the processor: the reference must not depend on cuDNN's choice of algorithm."""
    torch.manual_seed(0)
    model = set_statistics(getattr(torchvision.models, args.name)(weights=None))
    image = torch.randn(1, 3, 224, 224)
    file = pathlib.Path(args.file)
    file.write_bytes(export(model, image, args.name))
    for name, value in (("image", image), ("expected", model(image))):
        npy.write(file.parent / f"{name}.npy", value.shape, value.flatten().tolist())
    return {"file": str(file)}


def versions():
    cuda = torch.cuda.is_available()
    return {"device": torch.cuda.get_device_name() if cuda else "cpu", "torch": torch.__version__, "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version() if cuda else None}


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for name, run in (("network", time_network), ("compiled", time_compiled)):
        command = commands.add_parser(name)
        command.add_argument("name")
        command.add_argument("--batch", type=int, default=1)
        command.set_defaults(run=run)
    command = commands.add_parser("kernels")
    command.add_argument("part", choices=("convs", "depthwise", "gemm"))
    command.set_defaults(run=time_kernels)
    command = commands.add_parser("export")
    command.add_argument("name")
    command.add_argument("file")
    command.set_defaults(run=export_network)
    return parser.parse_args(words)


@torch.inference_mode()
def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    args = parse(sys.argv[1:])
    print(json.dumps(versions() | args.run(args)))


if __name__ == "__main__":
    main()
