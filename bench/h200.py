#!/usr/bin/env python3
"""Diapason against PyTorch, cuDNN and cuBLAS on one NVIDIA GPU: the whole table, or parts of it by name.

Each part tunes, builds, checks the outputs, and times both sides in turns; it ends with its rows of the table and leaves a
JSON document and its history in the folder of --out. Parts that an earlier run left there, or in --history, are in the
table too. Exit status: 1 when a part failed or an output was wrong; bars that are missed do not count.
"""
import argparse
import pathlib
import sys
import tempfile
import time

from gpu_table import cases, table
from gpu_table.parts import Bench, run_part
from gpu_table.programs import Failed, Programs, find_programs
from gpu_table.results import Results

ROOT = pathlib.Path(__file__).resolve().parent.parent


def seconds_argument(text):
    part, _, seconds = text.partition("=")
    try:
        if part in cases.SECONDS and float(seconds) >= 0:
            return part, float(seconds)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text}: write it as PART=SECONDS, with one of {', '.join(cases.SECONDS)}")


def parse(words):
    parser = argparse.ArgumentParser(prog="bench/h200.sh", description=__doc__.split("\n\n")[0],
                                     epilog=__doc__.split("\n\n")[1], formatter_class=argparse.RawDescriptionHelpFormatter)
    known = cases.PARTS + cases.MORE_PARTS
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(cases.PARTS)} (default: these), "
                        f"{', '.join(cases.MORE_PARTS)} (torch.compile, by name only)")
    parser.add_argument("--seconds-of", action="append", default=[], type=seconds_argument, metavar="PART=SECONDS",
                        help="seconds of tuning of a part (of each kernel in convs, depthwise, gemm); may be repeated")
    parser.add_argument("--history", metavar="FOLDER", help="go on from the histories and parts of an earlier --out")
    parser.add_argument("--out", default=ROOT / "build" / "bench" / "h200", metavar="FOLDER", help="default: build/bench/h200")
    parser.add_argument("--no-peers", action="store_true", help="our side only")
    parser.add_argument("--target", default="cuda", help="default: cuda")
    parser.add_argument("--programs", metavar="FOLDER", help="with diapason and task_times; default: build/bin, then bundle/bin")
    parser.add_argument("--peers", default=ROOT / "bench" / "peers_torch.py", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--plan", action="store_true", help="only say how long the parts will take")
    args = parser.parse_args(words)
    for part in args.parts:
        if part not in known:
            parser.error(f"there is no part {part}; the parts are {', '.join(known)}")
    args.parts = args.parts or cases.PARTS
    return args


def planned_seconds(part, seconds):
    """Roughly: tuning and the rest."""
    tuning = cases.COMPILE_SECONDS if part == "max-autotune" else seconds[part] * cases.KERNELS.get(part, 1)
    return tuning + cases.REST[part]


def print_plan(parts, seconds):
    for part in parts:
        print(f"{part:16} {planned_seconds(part, seconds):6.0f} s")
    print(f"{'in all':16} {sum(planned_seconds(part, seconds) for part in parts):6.0f} s")


def machine_of(programs):
    devices = programs.diapason("devices", "--json")["devices"]
    facts = [{"device": d["name"], "driver": d["driver"]} for d in devices if d["target"].startswith("cuda")]
    return facts[0] if facts else {}


def print_table(results, folder):
    rows, whens, versions = [], [], set()
    for part in cases.PARTS + cases.MORE_PARTS:
        result = results.load(part)
        rows += table.rows_of(part, result)
        if result:
            versions.add(table.versions_text(result))
            whens.append(f"{part} {result['when']}")
    print("\n".join(["", table.text(rows), "", *sorted(versions), "measured (UTC): " + ", ".join(whens)]))
    (folder / "table.md").write_text(table.markdown(rows), encoding="utf-8")


def main(words):
    args = parse(words)
    seconds = {**cases.SECONDS, **dict(args.seconds_of)}
    if args.plan:
        print_plan(args.parts, seconds)
        return 0
    results = Results(args.out)
    if args.history:
        results.take_over(args.history)
    programs = Programs(find_programs(ROOT, args.programs), None if args.no_peers else args.peers, args.target,
                        results.folder / "log.txt")
    started = time.monotonic()

    def say(text):
        print(f"[{(time.monotonic() - started) / 60:5.1f} min] {text}", flush=True)

    ok = True
    try:
        machine = machine_of(programs)
    except Failed as failure:
        raise SystemExit(f"bench/h200.py: {failure}") from None
    with tempfile.TemporaryDirectory() as packages:
        bench = Bench(programs, results, pathlib.Path(packages), seconds, say, machine)
        for part in args.parts:
            say(part)
            result = run_part(bench, part)
            ok = ok and result["finished"] and not table.failed_checks(result)
            print("\n".join([*table.kernel_lines(result), table.text(table.rows_of(part, result))]), flush=True)
    print_table(results, results.folder)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
