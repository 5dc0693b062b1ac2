#!/usr/bin/env python3
"""Builds and runs models that random_models.py wrote, and compares them with what ONNX Runtime computed. Needs Python alone, for machines without packages.

    bench/random_models/random_models.py --seed 1 --count 300 --write cases
    bench/random_models/replay.py cases --target cuda --jobs 16 --program bundle/bin/diapason

A case is a folder with model.onnx, arrays as .npy, and case.json: inputs and outputs by name with their files, and how far outputs may be off.
Folders of cases that are not right stay as they are, with what was said in verdict.txt. Exit status 1: some were not right.
"""
import argparse
import concurrent.futures
import json
import pathlib
import shutil
import subprocess
import sys
import time

import verdict
from verdict import Verdict


# What `tune` may say of a random model without being wrong: it is built without records then.
NOT_TUNED = ("there is no task to tune", "so that nothing can be compared")


def commands(folder, case, flags):
    """(step, command) of each step of a case."""
    program, model, package, history = str(flags.program), str(folder / "model.onnx"), str(folder / "package"), str(folder / "history.db")
    target = ["--target", flags.target]
    build = [program, "build", model, *target, "--out", package, "--no-measure", "--no-check"]
    steps = []
    if flags.seconds:
        steps.append(("tune", [program, "tune", model, *target, "--history", history, "--seconds", str(flags.seconds)]))
        build += ["--history", history]
    run = [program, "run", package, "--tolerance", str(case["tolerance"])]
    for option, kind in (("--input", "inputs"), ("--compare", "outputs")):
        for name, file in case[kind].items():
            run += [option, f"{name}={folder / file}"]
    return steps + [("build", build), ("run", run)]


def of_outputs(said):
    """The verdict of a run by its lines about the compared outputs; nothing where all are as they should be."""
    failed = [line for line in said.splitlines() if line.startswith("compare ") and " FAILED" in line]
    return Verdict("wrong", "compare", "; ".join(failed)[:500]) if failed else None


def try_case(folder, flags):
    """The verdict of one case."""
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    for step, command in commands(folder, case, flags):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=flags.limit, errors="replace")
        except subprocess.TimeoutExpired:
            return Verdict("hung", step, f"no end after {flags.limit:.0f} s")
        if step == "tune" and any(sentence in done.stderr for sentence in NOT_TUNED):
            continue
        said = (step == "run" and of_outputs(done.stdout)) or verdict.of_command(step, done.returncode, done.stderr or done.stdout)
        if said:
            return said
    for left in ("package", "history.db", "history.db.model"):
        path = folder / left
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return Verdict("right")


def add_flags(parser):
    parser.add_argument("--target", default="cpu", help="target (default: cpu)")
    parser.add_argument("--seconds", type=float, default=0, help="tuning of each model (default 0: fallback schedules)")
    parser.add_argument("--limit", type=float, default=300, help="seconds that one command may take (default 300)")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time (default 1)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=pathlib.Path, help="folder of cases")
    parser.add_argument("--program", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2] / "build/bin/diapason")
    parser.add_argument("--stop-after", type=float, default=float("inf"), help="seconds after which no further case is begun")
    add_flags(parser)
    flags = parser.parse_args()
    begin = time.time()

    def one(folder):
        if time.time() - begin > flags.stop_after:
            return None
        said = try_case(folder, flags)
        if said.kind != "right":
            (folder / "verdict.txt").write_text(f"{said}\n", encoding="utf-8")
            print(f"{folder.name}: {said.kind} ({said.step}): {said.text}", flush=True)
        return said

    folders = sorted(f.parent for f in flags.cases.glob("*/case.json"))
    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        verdicts = {f.name: said for f, said in zip(folders, pool.map(one, folders)) if said}
    print("\n".join(verdict.table(verdicts)))
    print(f"{len(verdicts)} of {len(folders)} cases in {time.time() - begin:.0f} s")
    return any(v.kind != "right" for v in verdicts.values()) or not verdicts


if __name__ == "__main__":
    sys.exit(main())
