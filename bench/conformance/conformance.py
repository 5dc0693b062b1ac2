#!/usr/bin/env python3
"""Runs ONNX's conformance cases and writes docs/operators.md.

    ninja -C build conformance_case diapason
    bench/conformance/conformance.py                                # all, in the interpreter; writes docs/operators.md
    bench/conformance/conformance.py --only 'attention|rotary'      # some; prints the verdicts only
    bench/conformance/conformance.py --device cpu --sample 100      # executed: packages built with zero trials

The cases are those of Debian's libonnx-testdata and of the newest `onnx` wheel of PyPI, which is installed in build/conformance.
Each case runs in a process of its own with limits of memory and time.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from python_environment import enter_venv  # noqa: E402
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "light")
MEMORY = 4 << 30
SECONDS = 60


# Results of a seed, by a generator that ONNX leaves open: 0 or 1 of the right type and shape.
RANDOM = {"Bernoulli"}


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def save(tensors, folder, stem):
    """Writes tensors and returns the paths; nothing where one is no tensor."""
    paths = []
    for i, tensor in enumerate(tensors):
        if tensor is None:
            return []
        path = folder / f"{stem}_{i}.pb"
        path.write_bytes(tensor.SerializeToString())
        paths.append(str(path))
    return paths


def prepare(case, home, level):
    from cases import with_constants

    folder = home / case.source / case.kind / case.name
    folder.mkdir(parents=True, exist_ok=True)
    model, values = with_constants(case, level)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder, model, values


def judge(command):
    """The verdict of one process: (status, reason)."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, preexec_fn=limit_memory)
    except subprocess.TimeoutExpired:
        return "hung", f"no end after {SECONDS} s"
    if done.returncode != 0:
        return "crashed", f"exit {done.returncode}: {done.stderr.strip()[-300:]}"
    verdict = json.loads(done.stdout)
    return verdict["status"], verdict["reason"]


def tolerances(case):
    """Of ONNX's runner, but not below two steps of short floats, nor below noise around 0: its references round in other places."""
    from onnx import TensorProto

    types = {t.data_type for t in case.wanted if t is not None}
    if case.operator in RANDOM:
        return 0, 1
    rtol = max([case.rtol] + [2**-9] * (TensorProto.FLOAT16 in types) + [2**-6] * (TensorProto.BFLOAT16 in types))
    return rtol, max(case.atol, 1e-6)


def interpret(case, home, programs):
    """Level 1 of the constants only where level 0 was refused: few inputs shall be constants."""
    for level in (0, 1):
        folder, _, values = prepare(case, home, level)
        inputs, outputs = save(values, folder, "input"), save(case.wanted, folder, "output")
        rtol, atol = tolerances(case)
        command = [str(programs / "conformance_case"), str(folder / "model.onnx"), f"--rtol={rtol}", f"--atol={atol}"]
        command += [f"--input={p}" for p in inputs] + [f"--output={p}" for p in outputs] + [f"--dim={r}" for r in case.rooms]
        status, reason = judge(command)
        if level == 0:
            first = (status, reason)
        if status not in ("refused", "failed"):
            return status, reason
    return first


def execute(case, home, programs, device):
    """Builds a package with zero trials and runs it."""
    import numpy as np
    from onnx import numpy_helper

    if case.kind == "light":
        folder, _, values = prepare(case, home, 0)
        save(values, folder, "input")
    else:
        status, reason = interpret(case, home, programs)
        if status != "passed":
            return status, reason
        folder = home / case.source / case.kind / case.name
    import onnx

    model = onnx.load_model(folder / "model.onnx")
    fed = [i.name for i in model.graph.input if i.name not in {t.name for t in model.graph.initializer}]
    package, out = folder / "package", folder / "out"
    build = [str(programs / "diapason"), "build", str(folder / "model.onnx"), "--target", device, "--out", str(package), "--no-measure", "--no-check"]
    build += [f"--dim={r}" for r in case.rooms]
    run = [str(programs / "diapason"), "run", str(package), "--output-dir", str(out)]
    for i, name in enumerate(fed):
        run += ["--input", f"{name}={folder / f'input_{i}.pb'}"]
    for command in (build, run):
        done = subprocess.run(command, capture_output=True, text=True, timeout=10 * SECONDS)
        if done.returncode != 0:
            return "crashed" if done.returncode < 0 else "failed", (done.stderr or done.stdout).strip()[-300:]
    for info, wanted in zip(case.model.graph.output, case.wanted):
        got, want = np.load(out / (info.name.replace("/", "_") + ".npy")), numpy_helper.to_array(wanted)
        if got.shape != want.shape or not np.allclose(got.astype(np.float64), want.astype(np.float64), tolerances(case)[0], 1e-5, equal_nan=True):
            return "wrong", f"output '{info.name}' differs"
    return "passed", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder (default: build)")
    parser.add_argument("--only", default="", help="cases whose name matches this expression; writes no page")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of cases (default: all); with fewer, no page is written")
    parser.add_argument("--device", default="interpreter", help="interpreter (default), cpu, opencl or cuda")
    parser.add_argument("--sample", type=int, default=0, help="so many cases, drawn at random with a fixed seed; writes no page")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--out", type=pathlib.Path, help="page to write (default: docs/operators.md, if all cases run)")
    parser.add_argument("--json", type=pathlib.Path, help="also writes all verdicts to this file")
    flags = parser.parse_args()
    enter_venv(flags.build / "conformance/venv", ["onnx", "numpy", "pillow"])
    from cases import debian_cases, wheel_cases
    from page import write_page

    programs, home = flags.build / "bin", flags.build / "conformance/cases"
    cases = [c for c in [*debian_cases(), *wheel_cases()] if re.search(flags.only, c.name) and c.kind in flags.kinds.split(",")]
    if flags.sample:
        cases = random.Random(1).sample([c for c in cases if c.static], flags.sample)


    def work(case):
        # The real networks are too large for the interpreter.
        if flags.device == "interpreter" and case.kind != "light":
            return interpret(case, home, programs)
        return execute(case, home, programs, "cpu" if flags.device == "interpreter" else flags.device)

    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        verdicts = list(pool.map(work, cases))
    results = list(zip(cases, verdicts))
    if flags.json:
        flags.json.write_text(json.dumps([{"source": c.source, "kind": c.kind, "name": c.name, "operator": c.operator, "static": c.static,
                                           "status": s, "reason": r} for c, (s, r) in results], indent=1))
    counts = collections.Counter(s for _, (s, _) in results)
    static = [s for c, (s, _) in results if c.static]
    partial = flags.only or flags.sample or flags.kinds != ",".join(KINDS)
    if partial and not flags.out:
        for case, (status, reason) in results:
            print(f"{status:8} {case.source} {case.kind}/{case.name} {reason}")
    else:
        write_page(flags.out or ROOT / "docs/operators.md", results, programs)
    print(f"{len(results)} cases: " + ", ".join(f"{n} {s}" for s, n in sorted(counts.items())))
    if static:
        print(f"static tensors: {static.count('passed')} of {len(static)} passed ({100 * static.count('passed') / len(static):.1f}%)")
    return 0 if not set(counts) & {"wrong", "crashed", "hung"} else 1


if __name__ == "__main__":
    sys.exit(main())
