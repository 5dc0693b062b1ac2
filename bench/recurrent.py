#!/usr/bin/env python3
"""Recurrent layers on one NVIDIA GPU, in turns with PyTorch (cuDNN in a CUDA graph).

Each layer is exported from PyTorch with random weights, tuned from nothing, built, compared with PyTorch's outputs and timed.
Exit status: 1 when one differs.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

from baselines_torch import captured, replay_ms

REPLAYS = 50  # of a sample

LAYERS = {  # kind, steps, rows of a batch, hidden units, layers, directions
    "lstm-256": ("LSTM", 64, 1, 256, 1, 1),
    "lstm-512": ("LSTM", 64, 1, 512, 1, 1),
    "lstm-128-both": ("LSTM", 64, 1, 128, 2, 2),
    "lstm-256-batch8": ("LSTM", 64, 8, 256, 1, 1),
    "lstm-512-batch4": ("LSTM", 64, 4, 512, 1, 1),
    "gru-256": ("GRU", 64, 1, 256, 1, 1),
    "gru-256-batch8": ("GRU", 64, 8, 256, 1, 1),
    "gru-256-long": ("GRU", 256, 1, 256, 1, 1),
    "rnn-512": ("RNN", 64, 1, 512, 1, 1),
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("layers", nargs="*", metavar="LAYER", help=f"{', '.join(LAYERS)} (default: all)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16"])
    parser.add_argument("--seconds", type=float, default=15, help="of tuning, for each layer (default 15)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", default="build/bin", metavar="FOLDER", help="with diapason (default build/bin)")
    parser.add_argument("--out", metavar="FILE", help="results as JSON")
    args = parser.parse_args()
    args.layers = args.layers or list(LAYERS)
    return args


class Layer(torch.nn.Module):
    def __init__(self, kind, hidden, layers, directions):
        super().__init__()
        self.layer = getattr(torch.nn, kind)(hidden, hidden, layers, bidirectional=directions == 2)

    def forward(self, x):
        return self.layer(x)[0]


def run(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=os.environ | {"DIAPASON_RECORDS": "/nonexistent"})
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}\n{done.stdout[-500:]}\n{done.stderr[-1500:]}")
    return done.stdout


def measure(name, args, folder):
    kind, steps, batch, hidden, layers, directions = LAYERS[name]
    torch.manual_seed(1)
    model = Layer(kind, hidden, layers, directions).eval()
    x = torch.randn(steps, batch, hidden)
    exported = folder / "layer.onnx"
    torch.onnx.export(model, (x,), str(exported), input_names=["x"], output_names=["y"], dynamo=False, opset_version=17)
    with torch.no_grad():
        np.save(folder / "x.npy", x.numpy().astype(args.dtype))
        np.save(folder / "y.npy", model(x).numpy())
    diapason = pathlib.Path(args.programs) / "diapason"
    network = [exported, "--target", "cuda", "--dtype", args.dtype]
    history = folder / "history.db"
    tuned = json.loads(run(diapason, "tune", *network, "--history", history, "--seconds", args.seconds, "--json"))
    package = folder / "package"
    built = json.loads(run(diapason, "build", *network, "--history", history, "--out", package, "--json"))
    tolerance = ["--tolerance", "0.02"] if args.dtype == "float16" else []
    run(diapason, "run", package, "--input", f"x={folder}/x.npy", "--compare", f"y={folder}/y.npy", *tolerance)
    dtype = torch.float16 if args.dtype == "float16" else torch.float32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model, x = model.cuda().to(dtype), x.cuda().to(dtype)
    with torch.no_grad():
        graph = captured(lambda: model(x), 1)
    samples = {"ours": [], "torch": []}
    for _ in range(args.rounds):
        timed = json.loads(run(diapason, "run", package, "--bench", "--duration", "0.1", "--min-repeat-ms", "20", "--json"))
        samples["ours"] += timed["throughput"]["samples_us"]
        samples["torch"] += [replay_ms(graph, REPLAYS) * 1000 / REPLAYS for _ in range(10)]
    medians = {which: statistics.median(s) for which, s in samples.items()}
    return {"layer": name, "dtype": args.dtype, **medians, "trials": tuned.get("trials"), "kernels": built["kernels_used"],
            "fusion": [c["alternative"] for c in built["fusion_choices"]],
            "schedules": [t["schedule"] for t in built["tasks"] if "recurrence" in t["task"]]}


def main():
    args = parse()
    results, failed = [], False
    print(f"{'layer':18} {'dtype':8} {'us':>9} {'PyTorch':>9} {'ratio':>6}")
    for name in args.layers:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                r = measure(name, args, pathlib.Path(folder))
            except RuntimeError as error:
                print(f"{name}: {error}", flush=True)
                failed = True
                continue
        results.append(r)
        print(f"{name:18} {r['dtype']:8} {r['ours']:9.1f} {r['torch']:9.1f} {r['ours'] / r['torch']:6.2f}  {r['kernels']} kernels "
              f"{r['fusion']} {r['schedules']} {r['trials']} trials {time.monotonic() - started:.0f} s", flush=True)
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(results, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
