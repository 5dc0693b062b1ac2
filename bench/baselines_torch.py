#!/usr/bin/env python3
"""PyTorch, cuDNN and cuBLAS on the first NVIDIA GPU: float32 without TF32, with it, or float16, random weights, everything in CUDA graphs.

    bench/baselines_torch.py network NAME [--batch N]     a network of torchvision, eager, both memory formats
    bench/baselines_torch.py compiled NAME [--batch N]    the same by torch.compile with freezing
    bench/baselines_torch.py kernels convs|depthwise|gemm|...-half  the kernels of gpu_table/cases.py, the best of formats and variants
    bench/baselines_torch.py export NAME FILE             the network as ONNX, with image.npy and expected.npy beside it
    bench/baselines_torch.py serve                        answers such requests, one JSON list of words a line, until its input ends

Prints one JSON document each; times are medians in microseconds. A sample is 20 ms of replays one after the other, as Diapason
takes its own. Before timing: batch norms are folded into convolutions, cuDNN tries all of its algorithms.
"""
import argparse
import functools
import gc
import importlib.util
import json
import math
import os
import pathlib
import statistics
import sys
import time
import warnings

import torch
import torch.nn.functional as F
import torchvision
from torch.fx.experimental.optimization import fuse

from gpu_table import cases, npy

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


def make(name):
    torch.manual_seed(0)
    return getattr(torchvision.models, name)(weights=None, **cases.TORCHVISION_OPTIONS.get(name, {})).eval()


def type_of(name):
    """"tf32" is float32 whose products may be in TensorFloat-32; nothing else allows these."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name == "tf32"
    return torch.float32 if name == "tf32" else getattr(torch, name)


def batch_norms(model):
    return sum(isinstance(module, torch.nn.BatchNorm2d) for module in model.modules())


def folded(name, dtype):
    """Where PyTorch can trace the network; what is left of its batch norms is in the answer."""
    model = make(name)
    try:
        model = fuse(model)
    except Exception as error:  # whatever the tracer does not know
        print(f"{name} is not folded: {error}", file=sys.stderr)
    return model.to(dtype)


# Hugging Face's names for the options of our networks.
HUGGING_FACE = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads",
                "intermediate": "intermediate_size"}


def transformer(name, attention, dtype, batch):
    """A call of one of Hugging Face's with random weights and that implementation of attention."""
    import transformers
    torch.manual_seed(0)
    kinds = {"bert-base": (transformers.BertModel, transformers.BertConfig, {}),
             "bert-large": (transformers.BertModel, transformers.BertConfig,
                            {HUGGING_FACE[option]: value for option, value in cases.BERT_LARGE.items()}),
             "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config, {}),
             "gpt2-decode": (transformers.GPT2LMHeadModel, transformers.GPT2Config, {})}
    model, config, sizes = kinds[name]
    decode = name == "gpt2-decode"
    network = model._from_config(config(use_cache=decode, **sizes), attn_implementation=attention).eval().to("cuda", dtype)
    tokens = torch.randint(0, 30000, (batch, 1 if decode else 128), device="cuda")
    if decode:
        past = torch.randn(1, network.config.n_head, 512, network.config.n_embd // network.config.n_head, device="cuda", dtype=dtype)
        return functools.partial(decode_one, network, tokens, past)
    inputs = {"input_ids": tokens}
    if name.startswith("bert"):
        inputs |= {"attention_mask": torch.ones_like(tokens), "token_type_ids": torch.zeros_like(tokens)}
    return lambda: network(**inputs)


def decode_one(network, tokens, past):
    """One token after a cache that starts anew at each call; `past`: the keys, and the values, of every layer."""
    import transformers
    cache = transformers.DynamicCache()
    for layer in range(network.config.n_layer):
        cache.update(past, past, layer)
    return network(input_ids=tokens, past_key_values=cache, use_cache=True)


def time_transformer(args):
    """An implementation that cannot be captured in a graph is left out; one must be there."""
    variants = {}
    for attention in ("sdpa", "eager"):
        try:
            call = transformer(args.name, attention, type_of(args.dtype), args.batch)
            with torch.inference_mode():
                variants[attention] = time_us(call)
        except RuntimeError as error:
            print(f"{args.name}, {attention}: {error}", file=sys.stderr)
            torch.cuda.synchronize()
    if not variants:
        raise RuntimeError(f"{args.name} runs in no variant")
    return {"variants": variants, "best_us": min(variants.values())}


def time_network(args):
    if args.name.startswith(("bert", "gpt2")):
        return time_transformer(args)
    variants = {}
    model = folded(args.name, type_of(args.dtype))
    for name, memory_format in FORMATS.items():
        placed = model.cuda().to(memory_format=memory_format)
        image = torch.randn(args.batch, 3, 224, 224, device="cuda", dtype=type_of(args.dtype)).contiguous(memory_format=memory_format)
        with torch.inference_mode():
            variants[name] = time_us(lambda: placed(image))
    return {"variants": variants, "best_us": min(variants.values()), "batch_norms_left": batch_norms(model)}


def time_compiled(args):
    """With the weights frozen, in the default mode, whose layout it chooses itself; timed as all others are."""
    import torch._inductor.config as inductor
    inductor.freezing = True
    torch.compiler.reset()
    model = folded(args.name, type_of(args.dtype)).cuda()
    image = torch.randn(args.batch, 3, 224, 224, device="cuda", dtype=type_of(args.dtype))
    began = time.monotonic()
    with torch.no_grad():  # freezing takes no inference mode
        compiled = torch.compile(model)
        for _ in range(3):
            compiled(image)
        torch.cuda.synchronize()
        seconds = time.monotonic() - began
        variants = {"compiled": time_us(lambda: compiled(image))}
    return {"variants": variants, "best_us": variants["compiled"], "seconds": seconds}


def random(shape, memory_format=torch.contiguous_format):
    return torch.randn(*shape, device="cuda").contiguous(memory_format=memory_format)


def conv_variants(kernel, memory_format):
    """The convolution alone, and with bias and relu: as kernels of their own and as cuDNN's fused call."""
    o, batch, dtype = kernel.options, kernel.batch, type_of(kernel.dtype)
    x = random((batch, o["ci"], o["h"], o["w"]), memory_format).to(dtype)
    w = random((o["co"], o["ci"], o["kernel"], o["kernel"]), memory_format).to(dtype)
    b, stride, pad = random((o["co"],)).to(dtype), o["stride"], (o["kernel"] - 1) // 2
    return {"alone": lambda: F.conv2d(x, w, None, stride, pad),
            "separate": lambda: F.relu_(F.conv2d(x, w, b, stride, pad)),
            "fused": lambda: torch.cudnn_convolution_relu(x, w, b, (stride, stride), (pad, pad), (1, 1), 1)}


def depthwise_variants(kernel, memory_format):
    """The convolution alone, and with scale, shift and relu as kernels of their own."""
    o = kernel.options
    channels = o["channels"] * o["multiplier"]
    x = random((1, o["channels"], o["size"], o["size"]), memory_format)
    w = random((channels, 1, o["kernel"], o["kernel"]), memory_format)
    scale, shift = random((1, channels, 1, 1)), random((1, channels, 1, 1))

    def conv():
        return F.conv2d(x, w, None, 1, o["kernel"] // 2, 1, o["channels"])

    return {"alone": conv, "separate": lambda: torch.relu(conv() * scale + shift),
            "in place": lambda: conv().mul_(scale).add_(shift).relu_()}


def time_variants(variants, copies):
    """A variant that this version does not know or cannot run is left out; the convolution alone must run."""
    times = {}
    for name, call in variants.items():
        try:
            times[name] = time_us(call, copies)
        except (RuntimeError, AttributeError) as error:
            if name in ("alone", "separate"):
                raise
            print(f"{name}: {error}", file=sys.stderr)
    return times


def time_convolution(kernel):
    variants_of = conv_variants if kernel.operator == "conv2d" else depthwise_variants
    variants = {}
    for name, memory_format in FORMATS.items():
        for variant, time in time_variants(variants_of(kernel, memory_format), 20).items():
            variants[f"{name} {variant}"] = time
    alone = {name: time for name, time in variants.items() if name.endswith("alone")}
    # Without bias and relu of our own the convolution alone is the same work.
    fused = kernel.operator != "conv2d" or kernel.options.get("bias", 0)
    whole = {name: time for name, time in variants.items() if (name not in alone) == bool(fused)}
    return {"variants": variants, "best_us": min(whole.values()), "bare_us": min(alone.values())}


def time_gemm(kernel, dtype=torch.float32):
    """Of a constant operand both orders in memory."""
    m, n, k = (kernel.options[name] for name in "mnk")
    if kernel.options.get("int8"):
        return time_gemm_of_bytes(m, n, k)
    a, b = random((m, k)).to(dtype), random((k, n)).to(dtype)
    copies = max(4, min(50, 4096 * 4096 * 4096 // (m * n * k)))
    variants = {"a @ b": time_us(lambda: a @ b, copies)}
    if kernel.options["constant"]:
        turned = b.t().contiguous()
        variants["a @ b.T"] = time_us(lambda: a @ turned.t(), copies)
    best = min(variants.values())
    return {"variants": variants, "best_us": best, "bare_us": best}


def time_gemm_of_bytes(m, n, k):
    """cuBLAS's products of int8 with int32 results, by both orders of the weights in memory."""
    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda") for shape in ((m, k), (k, n)))
    turned = b.t().contiguous().t()
    variants = {}
    for name, weights in (("_int_mm(a, b)", b), ("_int_mm(a, b.T)", turned)):
        try:
            variants[name] = time_us(lambda: torch._int_mm(a, weights), 4)
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
    best = min(variants.values())
    return {"variants": variants, "best_us": best, "bare_us": best}


def time_attention(kernel):
    """PyTorch's implementations that know the shape and type."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    o = kernel.options
    q, k, v = (random((1, o["heads"], o["queries"], o["size"])).to(type_of(kernel.dtype)) for _ in range(3))
    copies = max(1, min(50, 2**31 // (o["heads"] * o["queries"] ** 2 * o["size"] // 16)))
    variants = {}
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        try:
            with sdpa_kernel(backend):
                variants[backend.name] = time_us(lambda: F.scaled_dot_product_attention(q, k, v), copies)
        except RuntimeError as error:
            print(f"{backend.name}: {error}", file=sys.stderr)
    best = min(variants.values())
    return {"variants": variants, "best_us": best, "bare_us": best}


def time_layer_norm(kernel):
    rows, columns = kernel.options["rows"], kernel.options["columns"]
    x, weight, bias = (random(shape).to(type_of(kernel.dtype)) for shape in ((rows, columns), (columns,), (columns,)))
    best = time_us(lambda: F.layer_norm(x, (columns,), weight, bias), 20)
    return {"variants": {"layer_norm": best}, "best_us": best, "bare_us": best}


def time_kernel(kernel):
    """By what it is."""
    timers = {"gemm": lambda: time_gemm(kernel, type_of(kernel.dtype)), "attention": lambda: time_attention(kernel),
              "layer_norm": lambda: time_layer_norm(kernel)}
    return timers.get(kernel.operator, lambda: time_convolution(kernel))()


@torch.inference_mode()
def time_kernels(args):
    kernels = [cases.GEMM] if args.part == "gemm" else cases.KERNEL_LISTS[args.part]
    return {"kernels": {kernel.name: time_kernel(kernel) for kernel in kernels}}


def set_statistics(model):
    """Statistics of the batch norms from random images, so that activations stay near 1 through all layers."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    model.train()(torch.randn(4, 3, 224, 224))
    return model.eval()


def export(model, image, file):
    """By the exporter of TorchScript. It wants the onnx package only to look for functions of onnxscript, which these networks have
    none of; where the package is not there, that step is left out."""
    if importlib.util.find_spec("onnx") is None:
        from torch.onnx._internal.torchscript_exporter import onnx_proto_utils
        onnx_proto_utils._add_onnxscript_fn = lambda model_bytes, custom_opsets: model_bytes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (image,), str(file), dynamo=False, opset_version=17, input_names=["image"], output_names=["output"])


@torch.no_grad()
def export_network(args):
    """On the processor: the reference must not depend on cuDNN's choice of algorithm."""
    model = set_statistics(make(args.name))
    image = torch.randn(1, 3, 224, 224)
    file = pathlib.Path(args.file)
    export(model, image, file)
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
        command.add_argument("--dtype", choices=("float32", "float16", "tf32"), default="float32")
        command.set_defaults(run=run)
    command = commands.add_parser("kernels")
    command.add_argument("part", choices=tuple(cases.KERNELS))
    command.set_defaults(run=time_kernels)
    command = commands.add_parser("export")
    command.add_argument("name")
    command.add_argument("file")
    command.set_defaults(run=export_network)
    commands.add_parser("serve").set_defaults(run=None)
    return parser.parse_args(words)


def answer(args):
    return versions() | args.run(args)


def serve():
    """What libraries print must not get among the answers."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            reply = answer(parse(json.loads(line)))
        except Exception as error:  # the next request may do
            reply = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error).strip() else 'no message'}"}
        print(json.dumps(reply), file=answers, flush=True)
        gc.collect()
        torch.cuda.empty_cache()


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = 0
    args = parse(sys.argv[1:])
    if args.run is None:
        serve()
    else:
        print(json.dumps(answer(args)))


if __name__ == "__main__":
    main()
