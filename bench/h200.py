#!/usr/bin/env python3
"""Diapason against PyTorch, cuDNN and cuBLAS on one NVIDIA GPU: the whole table, or parts of it by name.

Each part tunes from nothing for a fixed time, builds, checks the outputs and times both sides in turns, once. Results are in
results.json of the folder of --out, the table in table.md, what programs said in log.txt. Parts that were measured in several
calls become one table with --merge, if they are of one build. Exit status: 1 when a part failed or an output was wrong.
"""
import argparse
import pathlib
import sys
import tempfile
import time

from gpu_table import cases, table
from gpu_table.parts import Bench, Kept, run_part
from gpu_table.programs import Baseline, Failed, Programs, find_programs
from gpu_table.results import Results

ROOT = pathlib.Path(__file__).resolve().parent.parent


def parse(words):
    parser = argparse.ArgumentParser(prog="bench/h200.sh", description=__doc__.split("\n\n")[0],
                                     epilog=__doc__.split("\n\n")[1], formatter_class=argparse.RawDescriptionHelpFormatter)
    known = cases.PARTS + cases.MORE_PARTS
    parser.add_argument("parts", nargs="*", metavar="PART",
                        help=f"{', '.join(cases.PARTS)} (default: these), {', '.join(cases.MORE_PARTS)}; or, for several of them, "
                             f"{', '.join(cases.GROUPS)}")
    parser.add_argument("--call", type=int, choices=range(1, len(cases.CALLS) + 1),
                        help="one of the calls of at most ten minutes that the default parts are divided into")
    parser.add_argument("--out", default=ROOT / "build" / "bench" / "h200", metavar="FOLDER", help="default: build/bench/h200")
    parser.add_argument("--merge", nargs="+", default=[], metavar="FOLDER", help="measure nothing; the table of these --out folders")
    parser.add_argument("--no-baselines", action="store_true", help="our side of the built-in networks and kernels only")
    parser.add_argument("--target", default="cuda", help="default: cuda")
    parser.add_argument("--records", metavar="FILE", help="add the best record of each task of networks, as `diapason records add` does")
    parser.add_argument("--histories", metavar="FOLDER", help="keep the history of each row there, for `diapason query` and `report`")
    parser.add_argument("--programs", metavar="FOLDER", help="with diapason and task_times; default: build/bin, then bundle/bin")
    parser.add_argument("--baselines", default=ROOT / "bench" / "baselines_torch.py", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--plan", action="store_true", help="only say how long the parts will take")
    args = parser.parse_args(words)
    args.parts = [part for name in args.parts for part in cases.GROUPS.get(name, [name])]
    for part in args.parts:
        if part not in known:
            parser.error(f"there is no part {part}; the parts are {', '.join(known)}, and {', '.join(cases.GROUPS)} are several of them")
    if args.parts and args.call:
        parser.error("--call names parts already; leave the parts out, or --call")
    args.parts = args.parts or (cases.CALLS[args.call - 1] if args.call else cases.PARTS)
    return args


def print_plan(parts):
    for part in parts:
        print(f"{part:16} {cases.tuning_seconds(part):4.0f} s of tuning, {cases.planned_seconds(part):4.0f} s in all")
    print(f"{'sum':16} {sum(map(cases.tuning_seconds, parts)):4.0f} s of tuning, "
          f"{cases.START + sum(map(cases.planned_seconds, parts)):4.0f} s in all")


def machine_of(programs):
    devices = programs.diapason("devices", "--json")["devices"]
    facts = [{"device": d["device"], "driver": d["driver"]} for d in devices if d["target"].startswith("cuda")]
    return facts[0] if facts else {}


def print_table(results):
    rows, whens, versions = [], [], set()
    for part in cases.PARTS + cases.MORE_PARTS:
        result = results.load(part)
        rows += table.rows_of(part, result)
        if result:
            versions.add(table.versions_text(result))
            whens.append(f"{part} {result['when']}")
    print("\n".join(["", table.text([table.HEADER, *rows]), "", *sorted(versions), "measured (UTC): " + ", ".join(whens)]))
    (results.folder / "table.md").write_text(table.markdown(rows), encoding="utf-8")


def merge(args):
    results = Results(args.out)
    for folder in args.merge:
        results.add(folder)
    print_table(results)
    parts = [part for part in cases.PARTS + cases.MORE_PARTS if results.load(part)]
    return 0 if all(table.is_right(results.load(part)) for part in parts) else 1


def measure(args):
    results = Results(args.out)
    log = results.folder / "log.txt"
    programs = Programs(find_programs(ROOT, args.programs), args.target, log)
    build = programs.build_id()
    results.check_build(build, "this diapason")
    for part in args.parts:
        if results.load(part):
            raise SystemExit(f"bench/h200.sh: {args.out} has {part} already, and a part is measured once; name a new folder with --out")
    started = time.monotonic()

    def say(text):
        print(f"[{(time.monotonic() - started) / 60:5.1f} min] {text}", flush=True)

    try:
        machine = machine_of(programs)
    except Failed as failure:
        raise SystemExit(f"bench/h200.sh: {failure}") from None
    baseline = Baseline(None if args.no_baselines else args.baselines, log)
    right = True
    try:
        with tempfile.TemporaryDirectory() as scratch:
            bench = Bench(programs, baseline, results, pathlib.Path(scratch), say, machine, build,
                          Kept(args.records, args.histories))
            for part in args.parts:
                say(part)
                result = run_part(bench, part)
                right = right and table.is_right(result)
                print(table.text(table.rows_of(part, result)), flush=True)
    finally:
        baseline.close()
    print_table(results)
    return 0 if right else 1


def main(words):
    args = parse(words)
    if args.plan:
        print_plan(args.parts)
        return 0
    return merge(args) if args.merge else measure(args)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
