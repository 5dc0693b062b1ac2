"""Histories for tests and measurements of the page: copies of a record that was really measured, so that it can be explained.

    python3 tests/ui/histories.py PROGRAM OUT.db --tasks 500 --trials 10000
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import tempfile
import uuid

SECOND = 1_000_000_000
START = 1_760_000_000 * SECOND
ERRORS = [("compile", "compile", "error: expected ';' before '}' token"), ("run_timeout", "run", "the kernel did not finish in 10 s"),
          ("out_of_memory", "load", "4.2 GiB are needed"), ("wrong_result", "verify", "element 17 is 3.5, expected 1.25")]
SKETCHES = ["direct/tile1.inside", "direct/tile2.whole", "gemm/tile1", "gemm/tile2.inside", "winograd(2)/tile0", "winograd(4)/tile1"]


def diapason(program, *args, **more):
    return subprocess.run([program, *args], check=True, capture_output=True, text=True, timeout=120, **more).stdout


def measured_lines(program, folder):
    """JSON lines of a history that was tuned for a moment, each complete in itself."""
    path = os.path.join(folder, "seed.db")
    diapason(program, "tune", "gemm", "--m", "32", "--n", "48", "--k", "64", "--target", "cpu -num-cores=1", "--trials", "6",
             "--min-repeat-ms", "1", "--history", path, "--no-check")
    header, *lines = [json.loads(line) for line in diapason(program, "history", "export", path).splitlines()]
    runs = {run["uuid"]: run for run in header["runs"]}
    return [line | {"format": 1, "run": runs[line["run"]]} for line in lines if "timing" in line]


class Maker:
    """Lines of one network with random trials."""

    def __init__(self, base, network="made-up network", seed=1):
        self.base, self.network, self.random, self.count = base, network, random.Random(seed), 0
        self.runs = [dict(base["run"], uuid=uuid.UUID(int=run + 1).hex, command_line=f"diapason tune net --seed {run}", host="box",
                          started_at=START + run * 3600 * SECOND, ended_at=START + (run * 3600 + 1800) * SECOND) for run in range(2)]

    def trial(self, task, number, name=None, error=None, run=0, **more):
        key = f"{task:032x}_1x64"
        line = {name: value for name, value in self.base.items() if name not in ("checksum", "timing", "max_error")}
        line["verified"] = "unknown"
        self.count += 1
        line.update(uuid=uuid.UUID(int=1000 + self.count).hex, workload_key=key, task_name=name or f"conv2d_3x3_{task}_bias_relu", trial=number,
                    sketch=self.random.choice(SKETCHES[task % 3:task % 3 + 4]), run=self.runs[run],
                    created_at=self.runs[run]["started_at"] + self.count * SECOND // 8,
                    networks=[{"network": self.network, "task_name": name or f"conv2d_3x3_{task}_bias_relu", "weight": float(1 + task % 3)}])
        if error:
            line["error"] = dict(zip(("kind", "stage", "text"), error))
            line.pop("predicted", None)
        else:
            seconds = 1e-5 * (1 + task % 40) * (0.6 + self.random.expovariate(1) / (1 + number / 8))
            line["timing"] = {"samples": [seconds, seconds * 1.02, seconds * 0.99], "number": 10, "raced_out": self.random.random() < 0.3,
                              "build_seconds": 0.2, "run_seconds": 0.1}
            line["predicted"] = seconds * self.random.lognormvariate(0, 0.25)
            if self.random.random() < 0.05:
                line.update(verified="ok", max_error=1e-6)
        line.update(more)
        return line

    def trials(self, tasks, trials):
        for number in range(trials // tasks):
            for task in range(tasks):
                error = self.random.choice(ERRORS) if self.random.random() < 0.04 else None
                yield self.trial(task, number, error=error, run=int(number >= trials // tasks // 2))


def write(program, path, lines):
    """Adds the lines to a history, which is made when there is none."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(text)
        file.flush()
        diapason(program, "history", "import", str(path), file.name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--trials", type=int, default=10000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        maker = Maker(measured_lines(args.program, folder)[0])
    write(args.program, args.out, maker.trials(args.tasks, args.trials))


if __name__ == "__main__":
    main()
