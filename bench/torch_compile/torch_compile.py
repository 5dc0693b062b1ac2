#!/usr/bin/env python3
"""Networks of torchvision and transformers through torch.compile(backend="diapason"), against eager mode; with --times also their speed.

    $ PYTHONPATH=build/python python3 bench/torch_compile/torch_compile.py resnet-18 bert --times --seconds 60

Needs torch, torchvision, transformers, onnx and onnxscript. Weights are random, with batch norms calibrated. Exits with 1 when a result is wrong.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import diapason as dp
import torch


def calibrated(model, example):
    """With batch norms that have seen some input, so that values stay in a sane range."""
    model.train()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn_like(example))
    return model.eval()


def resnet(small):
    import torchvision

    size = 64 if small else 224
    x = torch.randn(4, 3, size, size)
    return calibrated(torchvision.models.resnet18(), x), (x[:1],), {}


def mobilenet(small):
    import torchvision

    size = 64 if small else 224
    x = torch.randn(4, 3, size, size)
    return calibrated(torchvision.models.mobilenet_v2(width_mult=0.35 if small else 1.0), x), (x[:1],), {}


def vit(small):
    import torchvision

    if small:
        model = torchvision.models.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=10)
        x = torch.randn(1, 3, 32, 32)
    else:
        model, x = torchvision.models.vit_b_16(), torch.randn(1, 3, 224, 224)
    torch.nn.init.normal_(model.heads[-1].weight)  # it starts as zeros
    return model.eval(), (x,), {}


def bert(small):
    import transformers

    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128, "vocab_size": 500} if small else {
        "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 2048}
    model = transformers.BertModel(transformers.BertConfig(**shape)).eval()
    ids = torch.randint(0, model.config.vocab_size, (1, 24 if small else 128))
    mask = torch.ones_like(ids)
    mask[:, -5:] = 0
    return model, (ids,), {"attention_mask": mask}


def gpt2(small):
    import transformers

    shape = {"n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 500, "n_positions": 64} if small else {}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape)).eval()
    return model, (torch.randint(0, model.config.vocab_size, (1, 16 if small else 64)),), {"use_cache": True}


MODELS = {"resnet-18": resnet, "mobilenet-v2": mobilenet, "bert": bert, "gpt-2": gpt2, "vit": vit}


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for one in value.values() for tensor in tensors_of(one)]
    if isinstance(value, (list, tuple)):
        return [tensor for one in value for tensor in tensors_of(one)]
    if hasattr(value, "layers"):  # a cache of transformers
        return [tensor for layer in value.layers for tensor in (layer.keys, layer.values)]
    return []


def error_of(got, wanted):
    """The largest relative error over all tensors of a result."""
    got, wanted = tensors_of(got), tensors_of(wanted)
    assert len(got) == len(wanted) > 0
    return max(((one - other).abs().max() / other.abs().max()).item() for one, other in zip(got, wanted))


def milliseconds(run, device):
    """Medians of calls one by one, each until its result is there, and on a GPU of calls in a row, which wait once at the end, as `diapason run` times them."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def seconds(calls):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        wait()
        return (time.perf_counter() - start) / calls

    def median(calls):
        times, end = [], time.perf_counter() + 2
        while len(times) < 5 or (time.perf_counter() < end and len(times) < 200):
            times.append(seconds(calls))
        return statistics.median(times) * 1e3

    seconds(3)
    return median(1), median(50) if device == "cuda" else None


def text_of(times):
    one, row = times
    return f"{one:.3f} ms" if row is None else f"{row:.3f} ms (one by one {one:.3f})"


def alone(cache):
    """What `diapason run` says of the packages of a folder together, in milliseconds. None: it has none."""
    program = pathlib.Path(dp.__file__).parent / "bin" / "diapason"
    total = None
    for package in sorted(pathlib.Path(cache, "packages").glob("[!.]*")):
        done = subprocess.run([program, "run", package, "--bench", "--duration", "2", "--json"], capture_output=True, text=True, check=True)
        total = (total or 0) + json.loads(done.stdout)["latency"]["median_us"] / 1e3
    return None if total is None else (total, None)


def on(device, value):
    """Tensors and modules, in lists, tuples and dicts too, on the device."""
    if isinstance(value, dict):
        return {name: on(device, one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(on(device, one) for one in value)
    return value.to(device) if hasattr(value, "to") else value


def compiled_and_checked(name, model, args, kwargs, options):
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="diapason", options=options)
    wanted = model(*args, **kwargs)
    start = time.perf_counter()
    got = compiled(*args, **kwargs)
    seconds = time.perf_counter() - start
    error = max(error_of(got, wanted), error_of(compiled(*args, **kwargs), wanted))
    print(f"{name}: first call {seconds:.1f} s, largest relative error {error:.2g}")
    for fallback in dp.explain_fallbacks(clear=True):
        print(f"  {fallback}")
    return compiled, error < 1e-3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), help=", ".join(MODELS))
    parser.add_argument("--small", action="store_true", help="small configurations")
    parser.add_argument("--times", action="store_true", help="eager mode, Inductor, Diapason, and `diapason run` of the same packages, in milliseconds")
    parser.add_argument("--no-inductor", action="store_true", help="with --times: leave Inductor out")
    parser.add_argument("--seconds", type=float, default=0, help="with --times: tune for so long, too")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where the models are (default: cpu)")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--cache", help="folder of packages; the default is a new one")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    torch.manual_seed(1)
    right = True
    # PyTorch rounds float32 products to TF32 in convolutions by default; the results are compared at full precision.
    torch.backends.cudnn.allow_tf32 = False
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for name in given.models:
            cache = str(pathlib.Path(given.cache or folder, name))
            model, args, kwargs = on(given.device, MODELS[name](given.small))
            compiled, ok = compiled_and_checked(name, model, args, kwargs, {"cache": cache})
            right = right and ok
            if not given.times:
                continue

            def timed(call):
                return milliseconds(lambda: call(*args, **kwargs), given.device)

            times = {"eager": timed(model), "diapason": timed(compiled), "diapason run": alone(cache)}
            if not given.no_inductor:
                times["inductor"] = timed(torch.compile(model))
            if given.seconds:
                cache += "-tuned"
                compiled, ok = compiled_and_checked(f"{name} tuned", model, args, kwargs, {"cache": cache, "seconds": given.seconds})
                right = right and ok
                times.update({"diapason tuned": timed(compiled), "diapason run tuned": alone(cache)})
            print(f"{name}: " + ", ".join(f"{key} {text_of(value)}" for key, value in times.items() if value is not None), flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
