#!/usr/bin/env python3
"""Exports networks of PyTorch to ONNX, builds them with zero trials and compares them with PyTorch.

    ninja -C build diapason
    bench/real_models/exports.py --list
    bench/real_models/exports.py                            # all; writes build/real_models/exports.md, after each network
    bench/real_models/exports.py --only 'bert|swin' --exporter torchscript

    bench/real_models/exports.py --target cuda --tune 20 --exporter dynamo --dtype float32    # and their speed, against PyTorch

The networks (networks.py) have random weights. Each is exported by the default exporter of torch.onnx.export (dynamo) and by the older one
(torchscript), in float16 too unless it is a detector, some in bfloat16. A result is right if its largest error against the network in float64 is below 1e-4 of its largest
element, or at most OWN_ERRORS times PyTorch's own error: some networks with random weights amplify rounding errors. In float16 and bfloat16 it is
compared with what ONNX Runtime computes in float32 from the weights in the file (float16: 2e-2, bfloat16: 0.1): that the exporter rounded them
changes some networks by more than that, whoever runs the file. The table has the error against the network too. The last column counts the kernels
whose workload key the other exporter's model of the network does not have.

With --tune, each is tuned for so many seconds, beginning with shipped records, and what is built then is compared and timed. Beside it stands PyTorch's eager mode on the same GPU: without TF32, batch norms folded into convolutions, in a CUDA graph, the better of both memory formats.
"""
import argparse
import collections
import concurrent.futures
import copy
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from python_environment import enter_venv  # noqa: E402
PACKAGES = ["torch", "torchvision", "timm", "transformers", "onnx", "onnxscript", "onnxruntime", "numpy"]
EXPORTERS = ("dynamo", "torchscript")
TOLERANCE = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
OWN_ERRORS = 4


# ---- in the process that exports

def randomize(module):
    """Parameters that initialization leaves constant (zeros, ones) get noise, so that no layer is an identity."""
    import torch
    for parameter in module.parameters():
        if parameter.numel() > 1 and parameter.min() == parameter.max():
            parameter.add_(torch.randn_like(parameter) * 0.1)


def calibrate(module, inputs):
    """Statistics of the batch norms from random inputs, so that activations stay near 1 through all layers."""
    import torch
    norms = [m for m in module.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    if norms:
        module(*[torch.randn((4,) + tuple(t.shape[1:])) for t in inputs])
    module.eval()


def another(tensor):
    """A random tensor of its kind: of the same range if it holds integers."""
    import torch
    if tensor.is_floating_point():
        return torch.randn_like(tensor)
    return tensor if tensor.min() == 0 and tensor.max() == 1 else torch.randint_like(tensor, 0, int(tensor.max()) + 1)


def in_type(tensor, dtype):
    """Floats in the element type of that name; integers as they are."""
    import torch
    return tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor


def export(module, inputs, dims, exporter, file):
    import torch
    names = list(inputs)
    options = {"input_names": names, "dynamo": exporter == "dynamo"}
    if dims and exporter == "dynamo":
        symbols = {s: torch.export.Dim(s, min=1, max=512) for axes in dims.values() for s in axes.values()}
        shapes = tuple({axis: symbols[s] for axis, s in dims.get(n, {}).items()} for n in names)
        takes_all = isinstance(module.forward.__code__.co_varnames, tuple) and module.forward.__code__.co_flags & 4
        options["dynamic_shapes"] = (shapes,) if takes_all else shapes
    elif dims:
        options["dynamic_axes"] = dims
    # The older exporter does not know the operator that PyTorch takes for a whole layer of attention.
    torch.backends.mha.set_fastpath_enabled(exporter == "dynamo")
    torch.onnx.export(module, tuple(inputs.values()), str(file), **options)


def all_nodes(graph):
    """Those of bodies too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g)


def flat(result):
    return [result] if hasattr(result, "shape") else list(result)


def relative_error(got, want):
    """The largest error relative to the largest element of what is wanted, unless all are 0; of numpy arrays."""
    import numpy as np
    got, want = got.astype(np.float64), want.astype(np.float64)
    return float(np.abs(got - want).max(initial=0.0) / (np.abs(want).max(initial=0.0) or 1.0))


def own_error(module, dtype, work, inputs, count):
    """PyTorch's error in the type of the module, on the inputs that were written; None where it finds other rows than in float64, infinite where
    it has numbers that are not finite."""
    import numpy as np
    import torch
    worst = 0.0
    for k in range(count):
        results = flat(module(*[in_type(torch.from_numpy(np.load(work / f"input_{k}_{n}.npy")), dtype) for n in inputs]))
        for i, got in enumerate(results):
            want = np.load(work / f"expected_{k}_{i}.npy")
            if tuple(got.shape) != want.shape:
                return None
            error = relative_error(got.double().numpy(), want)
            worst = max(worst, error if np.isfinite(error) else np.inf)
    return worst


def widen(model):
    """Makes float32 of all that is float16 or bfloat16 in a model."""
    import numpy as np
    from onnx import TensorProto, numpy_helper
    narrow = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    attributes = [(n, a) for n in all_nodes(model.graph) for a in n.attribute]
    for tensor in [*model.graph.initializer, *(a.t for _, a in attributes if a.HasField("t"))]:
        if tensor.data_type in narrow:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for node, attribute in attributes:
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i in narrow:
            attribute.i = TensorProto.FLOAT
    del model.graph.value_info[:]
    for value in [*model.graph.input, *model.graph.output]:
        if value.type.tensor_type.elem_type in narrow:
            value.type.tensor_type.elem_type = TensorProto.FLOAT


def run_widened(folder, work, count):
    """Writes what the exported model computes in float32, as said_K_I.npy."""
    import numpy as np
    import onnx
    import onnxruntime
    model = onnx.load(folder / "model.onnx")
    widen(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for k in range(count):
        feeds = {i.name: np.load(work / f"input_{k}_{i.name}.npy") for i in session.get_inputs()}
        feeds = {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in feeds.items()}
        for i, said in enumerate(session.run(None, feeds)):
            np.save(folder / f"said_{k}_{i}.npy", said)


def export_all(name, dtype, exporters, count, work):
    """Writes for each exporter a folder with model.onnx and facts.json, and inputs and expected outputs beside it."""
    import numpy as np
    import onnx
    import torch
    import networks
    torch.manual_seed(0)
    torch.set_num_threads(2)
    with torch.no_grad():
        made = networks.NETWORKS[name]()
        module, inputs = made.module.eval(), made.inputs
        randomize(module)
        calibrate(module, list(inputs.values()))
        narrow = {n: in_type(t, dtype) for n, t in inputs.items()}
        exact = copy.deepcopy(module).double()
        for k in range(count):
            feeds = {n: t if k == 0 else another(t) for n, t in inputs.items()}
            feeds = {n: in_type(in_type(t, dtype), "float32") for n, t in feeds.items()}
            for i, want in enumerate(flat(exact(*[t.double() if t.is_floating_point() else t for t in feeds.values()]))):
                np.save(work / f"expected_{k}_{i}.npy", want.numpy())
            for n, t in feeds.items():
                # NumPy has no bfloat16; `diapason run` converts.
                np.save(work / f"input_{k}_{n}.npy", (t if dtype == "bfloat16" else t.to(narrow[n].dtype)).numpy())
        module = module.to(getattr(torch, dtype))
        (work / "own.json").write_text(json.dumps(own_error(module, dtype, work, inputs, count)))
        for exporter in exporters:
            folder = work / exporter
            folder.mkdir()
            begin = time.time()
            facts = {}
            try:
                export(module, narrow, made.dims, exporter, folder / "model.onnx")
                model = onnx.load(folder / "model.onnx", load_external_data=False)
                facts = {"opset": max(o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), "nodes": len(model.graph.node),
                         "outputs": [o.name for o in model.graph.output], "seconds": time.time() - begin,
                         "rooms": {f"{n.output[0]}.rows": made.room for n in all_nodes(model.graph) if n.op_type == "NonMaxSuppression" and made.room},
                         "dims": {s: inputs[n].shape[axis] for n, axes in made.dims.items() for axis, s in axes.items()}}
                if dtype != "float32":
                    run_widened(folder, work, count)
            except Exception as error:  # the exporter's own fault; the other one may do
                cause = error.__cause__ or error
                lines = [line for line in str(cause).strip().splitlines() if line.strip()]
                facts = {"error": f"{type(cause).__name__}: {lines[0] if lines else 'no message'}"}
            (folder / "facts.json").write_text(json.dumps(facts))


def eager_latency(name, dtype):
    """Prints microseconds of the network in PyTorch's eager mode on the GPU, or why there are none, as JSON."""
    import networks
    import baselines_torch
    import torch
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    made = networks.NETWORKS[name]()
    module = made.module.eval()
    try:
        module = baselines_torch.fuse(module)
    except Exception:  # what the tracer does not know keeps its batch norms
        pass
    module = module.to("cuda", getattr(torch, dtype))
    inputs = [in_type(t, dtype).cuda() for t in made.inputs.values()]
    times, error = [], ""
    with torch.inference_mode():
        for memory_format in baselines_torch.FORMATS.values():
            if any(t.dim() == 4 for t in inputs):
                module = module.to(memory_format=memory_format)
                inputs = [t.contiguous(memory_format=memory_format) if t.dim() == 4 else t for t in inputs]
            try:
                times.append(baselines_torch.time_us(lambda: module(*inputs)))
            except Exception as failed:  # a network that asks the GPU for values on the way has no graph
                error = str(failed).splitlines()[0][:120]
                break
    print(json.dumps({"us": min(times)} if times else {"error": error}))


# ---- in the process that builds and compares

def run(command, seconds):
    """(seconds it took, its last line of text if it failed, its output)."""
    begin = time.time()
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return seconds, f"no end after {seconds} s", ""
    text = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return time.time() - begin, "" if done.returncode == 0 else (text[-1][:400] if text else f"exit {done.returncode}"), done.stdout


def found(got, want, package, rooms):
    """The rows that were found, where the output has room for more and their number is the expected one."""
    import numpy as np
    if not rooms or got.shape == want.shape:
        return got
    counts = {int(np.load(package / "out" / (symbol.replace("/", "_") + ".npy"))[0]) for symbol in rooms}
    return got[:len(want)] if counts == {len(want)} else got


def largest_error(package, facts, work, count, program):
    """(what is wrong, the largest error relative to the largest element of its output, the same against what the file says)."""
    import numpy as np
    worst, from_file = 0.0, None
    for k in range(count):
        command = [program, "run", package, "--output-dir", package / "out"]
        for file in sorted(work.glob(f"input_{k}_*.npy")):
            command += ["--input", f"{file.stem.split('_', 2)[2]}={file}"]
        _, error, _ = run(command, 600)
        if error:
            return f"not run: {error}", None, None
        for i, name in enumerate(facts["outputs"]):
            want = np.load(work / f"expected_{k}_{i}.npy")
            file = package / "out" / (name.replace("/", "_") + ".npy")
            if not file.exists():
                return f"no output '{name}'", None, None
            got = found(np.load(file), want, package, facts["rooms"])
            if got.shape != want.shape:
                return f"output '{name}' is {got.shape}, not {want.shape}", None, None
            difference = relative_error(got, want)
            if not np.isfinite(difference):
                return f"output '{name}' has numbers that are not finite", None, None
            worst = max(worst, difference)
            said = package.parent / f"said_{k}_{i}.npy"
            if said.exists():
                from_file = max(from_file or 0.0, relative_error(got, np.load(said)))
    return "", worst, from_file


def try_export(folder, dtype, flags):
    """A row of the table, as a dictionary; `keys` are its workload keys with their counts."""
    row = {"result": "", "opset": "", "nodes": "", "kernels": "", "import": "", "build": "", "error": "", "file": "", "own": "", "keys": None}
    facts = json.loads((folder / "facts.json").read_text()) if (folder / "facts.json").exists() else {"error": "the exporter crashed"}
    if "error" in facts:
        return row | {"result": f"not exported: {facts['error'][:160]}"}
    row |= {"opset": facts["opset"], "nodes": facts["nodes"]}
    own = json.loads((folder.parent / "own.json").read_text())
    if own == float("inf"):  # as of a network that divides by norms with an epsilon that float16 has not
        return row | {"result": f"not exported: its own results in {dtype} are not finite"}
    program, model = flags.build / "bin/diapason", folder / "model.onnx"
    sizes = [word for symbol, size in (facts["dims"] | facts["rooms"]).items() for word in ("--dim", f"{symbol}={size}")]
    seconds, error, text = run([program, "tasks", model, "--target", flags.target, "--json", *sizes], 300)
    if error:
        return row | {"result": f"not read: {error}"}
    tasks = json.loads(text)["tasks"]
    keys = collections.Counter({t["workload"]: t["count"] for t in tasks if t["count"] > 0})
    row |= {"import": f"{seconds:.1f}", "kernels": sum(keys.values()), "keys": keys}
    if flags.read_only:
        return row | {"result": "read"}
    package, history = folder / "package", folder / "h.db"
    if flags.tune:
        tune = [program, "tune", model, "--target", flags.target, "--seconds", str(flags.tune), "--history", history, "--no-check", *sizes]
        _, error, _ = run(tune, flags.tune + 300)
        if error:
            return row | {"result": f"not tuned: {error}"}
        sizes += ["--history", history]
    seconds, error, _ = run([program, "build", model, "--target", flags.target, "--out", package, "--no-measure", "--no-check", *sizes], 900)
    if error:
        return row | {"result": f"not built: {error}"}
    row["build"] = f"{seconds:.1f}"
    wrong, worst, from_file = largest_error(package, facts, folder.parent, flags.inputs, program)
    if wrong:
        return row | {"result": wrong}
    right = (worst if from_file is None else from_file) < max(TOLERANCE[dtype], OWN_ERRORS * (own or 0.0))
    row |= {"result": "right" if right else "WRONG", "error": f"{worst:.1e}", "file": "" if from_file is None else f"{from_file:.1e}",
            "own": "" if own is None else f"{own:.1e}"}
    return row | timed(package, dtype, flags) if right and flags.tune else row


def timed(package, dtype, flags):
    """What a row has more where the network is tuned: its latency, PyTorch's, and the ratio."""
    _, error, text = run([flags.build / "bin/diapason", "run", package, "--bench", "--duration", "2", "--json"], 300)
    if error:
        return {"result": f"not timed: {error}"}
    us = json.loads(text)["latency"]["median_us"]
    name = package.parent.parent.name.removesuffix(f"-{dtype}")
    _, error, text = run([sys.executable, __file__, "--build", flags.build, "--eager", name, "--dtype", dtype], 300)
    eager = {"error": error} if error else json.loads(text.splitlines()[-1])
    if "us" not in eager:
        return {"us": us, "eager": eager["error"].replace("|", "/")}
    return {"us": us, "eager": eager["us"], "ratio": us / eager["us"]}


def export_apart(name, dtype, flags):
    """export_all in a process of its own. Returns the folder."""
    work = flags.build / "real_models/exports" / f"{name}-{dtype}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with open(work / "export.log", "w", encoding="utf-8") as log:
        subprocess.run([sys.executable, __file__, "--build", flags.build, "--inputs", str(flags.inputs), "--export", name, "--dtype", dtype,
                        "--exporter", flags.exporter, "--work", work], stdout=log, stderr=log, check=False)
    return work


def try_network(work, dtype, flags):
    """(exporter, row) of each exporter."""
    rows = {}
    for exporter in exporters_of(flags):
        rows[exporter] = try_export(work / exporter, dtype, flags)
    keys = [row["keys"] for row in rows.values()]
    for k, row in enumerate(rows.values()):
        known = len(keys) == 2 and None not in keys
        row["differ"] = sum((keys[k] - keys[1 - k]).values()) if known else ""
    if not flags.keep and all(row["result"] in ("right", "read") for row in rows.values()):
        shutil.rmtree(work)
    return rows.items()


def exporters_of(flags):
    return EXPORTERS if flags.exporter == "both" else (flags.exporter,)


COLUMNS = ("opset", "nodes", "kernels", "import", "build", "error", "file", "own", "differ")
TUNED_COLUMNS = ("us", "eager", "ratio")
HEAD = ["| network | type | exporter | result | opset | nodes | kernels | import, s | build, s | error | against the file | PyTorch's error | other keys |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
TUNED_HEAD = (" us | PyTorch, us | ratio |", "---:|---:|---:|")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder (default: build)")
    parser.add_argument("--target", default="cpu", help="target (default: cpu)")
    parser.add_argument("--only", default="", help="networks whose name matches this expression")
    parser.add_argument("--list", action="store_true", help="print the names of the networks and exit")
    parser.add_argument("--exporter", choices=("both", *EXPORTERS), default="both", help="which exporter (default: both)")
    parser.add_argument("--inputs", type=int, default=2, help="random inputs of each package (default 2)")
    parser.add_argument("--read-only", action="store_true", help="only read and partition the models")
    parser.add_argument("--same-keys", action="store_true", help="count it as a fault where the exporters' models have different workload keys")
    parser.add_argument("--keep", action="store_true", help="keep the models and packages of networks that are right, too")
    parser.add_argument("--dtype", choices=(*TOLERANCE, "all"), default="all", help="only networks of this type")
    parser.add_argument("--tune", type=int, default=0, metavar="SECONDS", help="tune each network for so long, and compare its speed with PyTorch's")
    parser.add_argument("--shard", default="0/1", metavar="K/N", help="only every N-th network, beginning with the K-th from 0: for several GPUs")
    parser.add_argument("--exporting", type=int, default=1, metavar="N", help="networks that are exported at once, ahead of the others (default 1)")
    parser.add_argument("--out", type=pathlib.Path, help="table to write (default: BUILD/real_models/exports.md)")
    parser.add_argument("--export", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--eager", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    flags.build = flags.build.resolve()
    return flags


def main():
    flags = parse()
    enter_venv(flags.build / "real_models/export_venv", PACKAGES)
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    if flags.export:
        export_all(flags.export, flags.dtype, exporters_of(flags), flags.inputs, flags.work)
        return 0
    if flags.eager:
        eager_latency(flags.eager, flags.dtype)
        return 0
    import networks
    chosen = [(n, d) for n in networks.NETWORKS for d in networks.TYPES[n]
              if re.search(flags.only, n) and flags.dtype in (d, "all")]
    shard, shards = map(int, flags.shard.split("/"))
    chosen = chosen[shard::shards]
    if flags.list:
        print("\n".join(f"{n} {d}" for n, d in chosen))
        return 0
    lines, bad, ratios = [line + more for line, more in zip(HEAD, TUNED_HEAD)] if flags.tune else list(HEAD), 0, []
    columns = COLUMNS + (TUNED_COLUMNS if flags.tune else ())
    out = flags.out or flags.build / "real_models/exports.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n")
    with concurrent.futures.ThreadPoolExecutor(flags.exporting) as ahead:
        exported = [ahead.submit(export_apart, name, dtype, flags) for name, dtype in chosen]
        for (name, dtype), work in zip(chosen, exported):
            for exporter, row in try_network(work.result(), dtype, flags):
                good = row["result"] in ("right", "read") or row["result"].startswith("not exported")
                bad += not good or (flags.same_keys and row["differ"] != 0)
                ratios += [row["ratio"]] if "ratio" in row else []
                words = [name, dtype, exporter, row["result"].replace("|", "/"), *[cell(row.get(c, "")) for c in columns]]
                lines.append("| " + " | ".join(words) + " |")
                print(lines[-1], flush=True)
                out.write_text("\n".join(lines) + "\n")  # whole so far, should the rest be cut off
    refused = sum("| not exported" in line for line in lines)
    print(f"{len(lines) - 2 - bad - refused} of {len(lines) - 2 - refused} right, {refused} not exported; table in {out}")
    if ratios:
        print(f"latency over PyTorch's: {statistics.geometric_mean(ratios):.3f} in the geometric mean of {len(ratios)}, at most {max(ratios):.3f}")
    return bad != 0


def cell(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
