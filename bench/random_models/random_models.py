#!/usr/bin/env python3
"""Builds random models and compares them with ONNX Runtime.

    ninja -C build diapason conformance_case
    bench/random_models/random_models.py --count 200                       # cpu, fallback schedules
    bench/random_models/random_models.py --count 3000 --target interpreter # without kernels: reading and rewriting models only
    bench/random_models/random_models.py --count 40 --target opencl --seconds 3
    bench/random_models/random_models.py --seed 1234 --count 1 --reduce    # one again, and the fewest nodes that still fail

Model number N of a seed is that of seed + N. Models that are not right are kept in --out, with their inputs and what ONNX Runtime computes
(replay.py runs them again). Exit status 1: some were not right.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import multiprocessing
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from python_environment import enter_venv  # noqa: E402
import replay  # noqa: E402
import verdict  # noqa: E402
from verdict import Verdict  # noqa: E402

PACKAGES = ["onnx", "onnxruntime", "numpy"]


def allowed_off(value):
    """What an element of an output may be off by, relative to the output's root mean square, which is what `run --tolerance` means."""
    import numpy as np
    from graph import is_float, tolerance_of

    array = value.array.astype(np.float64)
    if not is_float(value.dtype) or not array.any():
        return 1e-9  # they are compared for equality
    return tolerance_of(value) * float(np.abs(array).max() / np.sqrt(np.mean(array * array)))


def write_case(folder, model, inputs, outputs):
    """The files of a case (replay.py)."""
    import numpy as np
    import onnx

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "model.onnx")
    case = {"inputs": {}, "outputs": {}, "tolerance": max(map(allowed_off, outputs))}
    for kind, arrays in (("inputs", inputs), ("outputs", {v.name: v.array for v in outputs})):
        for name, array in arrays.items():
            case[kind][name] = f"{kind}_{name}.npy"
            np.save(folder / case[kind][name], array)
    (folder / "case.json").write_text(json.dumps(case), encoding="utf-8")


def try_in_interpreter(folder, inputs, outputs, flags):
    import numpy as np
    from graph import tolerance_of
    from onnx import numpy_helper

    command = [str(flags.build / "bin/conformance_case"), str(folder / "model.onnx"), "--optimize", "--rtol", "0"]
    for option, arrays in (("--input", inputs.values()), ("--output", [v.array for v in outputs])):
        for i, array in enumerate(arrays):
            file = folder / f"{option[2:]}_{i}.pb"
            file.write_bytes(numpy_helper.from_array(np.asarray(array)).SerializeToString())
            command += [option, str(file)]
    allowed = max(tolerance_of(v) * float(np.abs(v.array.astype(np.float64)).max()) for v in outputs)
    try:
        done = subprocess.run([*command, "--atol", str(allowed + 1e-12)], capture_output=True, text=True, timeout=flags.limit, errors="replace")
    except subprocess.TimeoutExpired:
        return Verdict("hung", "interpreter", f"no end after {flags.limit:.0f} s")
    failed = verdict.of_command("interpreter", done.returncode, done.stderr)
    if failed:
        return dataclasses.replace(failed, kind="crashed")
    said = json.loads(done.stdout)
    kind = {"passed": "right", "refused": "refused", "failed": "refused", "wrong": "wrong"}[said["status"]]
    return Verdict(kind, "interpreter", said["reason"])


def try_model(folder, model, inputs, outputs, flags):
    """Builds, runs and compares; its verdict."""
    write_case(folder, model, inputs, outputs)
    return try_in_interpreter(folder, inputs, outputs, flags) if flags.target == "interpreter" else replay.try_case(folder, flags)


def whole(made):
    """(model, inputs, outputs) of a graph, where ONNX Runtime agrees with itself about it; None else."""
    from graph import error_of, session, tolerance_of

    model, inputs, outputs = made.finished()
    if not outputs:
        return None
    for optimized in (False, True):
        try:
            results = session(model, optimized).run([v.name for v in outputs], inputs)
        except Exception:  # ONNX Runtime has many types of its own
            return None
        if any(r.shape != v.shape or error_of(r, v.array) > tolerance_of(v) for r, v in zip(results, outputs)):
            return None
    return model, inputs, outputs


def one(seed, flags):
    """(name, verdict) of the model of this seed; the verdict is None where there is no model to compare."""
    from generate import generate

    made = generate(seed, flags.nodes)
    case = whole(made) if made.nodes else None
    if case is None:
        return str(seed), None
    if flags.write:
        write_case(flags.write / str(seed), *case)
        return str(seed), Verdict("right")
    folder = flags.out / str(seed)
    said = try_model(folder, *case, flags)
    if said.kind == "right":
        shutil.rmtree(folder)
    elif flags.reduce:
        from reduce import reduced
        said, count = reduced(made, said, lambda c: try_model(flags.out / f"{seed}-reduced", *c, flags))
        said = dataclasses.replace(said, text=f"{said.text} ({count} of {len(made.nodes)} nodes)")
    return str(seed), said


def in_child(seed, flags):
    """one() in a process of its own: some models crash ONNX Runtime."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=lambda: theirs.send(one(seed, flags)))
    child.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        child.join()
        print(f"{seed}: left out, its process ended with exit code {child.exitcode}", file=sys.stderr, flush=True)
        return str(seed), None
    finally:
        child.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder (default: build)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first model (default 0)")
    parser.add_argument("--count", type=int, default=50, help="how many models (default 50)")
    parser.add_argument("--nodes", type=int, help="nodes of each (default: 1 to 30)")
    parser.add_argument("--reduce", action="store_true", help="look for the fewest nodes that still fail")
    parser.add_argument("--out", type=pathlib.Path, help="folder of models that are not right (default: BUILD/random_models/models)")
    parser.add_argument("--write", type=pathlib.Path, help="write the cases into this folder, for replay.py, instead of trying them")
    replay.add_flags(parser)
    flags = parser.parse_args()
    enter_venv(flags.build / "random_models/venv", PACKAGES)
    import generate  # noqa: F401  once, before the children
    flags.program = flags.build / "bin/diapason"
    flags.out = (flags.out or flags.build / "random_models/models").resolve()
    begin = time.time()
    verdicts = {}
    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        for name, said in pool.map(lambda seed: in_child(seed, flags), range(flags.seed, flags.seed + flags.count)):
            if said is None:
                continue
            verdicts[name] = said
            if said.kind != "right":
                print(f"{name}: {said.kind} ({said.step}): {said.text}", flush=True)
    if flags.write:
        print(f"{len(verdicts)} cases in {flags.write}")
        return 0
    print("\n".join(verdict.table(verdicts)))
    print(f"{len(verdicts)} models in {time.time() - begin:.0f} s; those that are not right are in {flags.out}")
    return any(v.kind != "right" for v in verdicts.values()) or not verdicts


if __name__ == "__main__":
    sys.exit(main())
