"""Runs of diapason and task_times, and the process that answers for PyTorch."""
import copy
import hashlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time


class Failed(Exception):
    """A program that failed or took too long; the text names it and quotes its last words."""


class Programs:
    def __init__(self, folder, target, log):
        self._folder, self._target = pathlib.Path(folder), target
        self._log_file = log
        self._help = {}

    def diapason(self, *words, timeout=300, json_output=True):
        out = self._call([str(self._folder / "diapason"), *map(str, words)], timeout)
        return json.loads(out) if json_output else out

    def warm(self):
        """The same programs, which tune for operands in the caches."""
        other = copy.copy(self)
        other._target = f"{self._target} -caches=warm"
        return other

    def knows(self, command, flag):
        if command not in self._help:
            self._help[command] = self.diapason(command, "--help", json_output=False)
        return flag in self._help[command]

    def tune(self, model, options, history, seconds, flags):
        return self.diapason("tune", model, *options, "--target", self._target, "--history", history, "--seconds", seconds,
                             *flags, "--json", timeout=seconds + 180)

    def build(self, model, options, history, out, flags, refine=0):
        """Unchecked where that can be said, since `run --check` follows; with `refine` seconds, records are chosen in the whole
        network, which is checked for that."""
        check = []
        if refine:
            check = ["--refine", refine]
        elif self.knows("build", "--no-check"):
            check = ["--no-check"]
        return self.diapason("build", model, *options, "--target", self._target, "--history", history, "--out", out, *flags,
                             *check, "--json")

    def run(self, package, *flags):
        return self.diapason("run", package, *flags, "--json")

    def task_times(self, package, rounds=3):
        """Samples of the only task of a package, microseconds, with the same operands again and again, as baselines run it."""
        tasks = json.loads(self._call([str(self._folder / "task_times"), str(package), str(rounds), "--json"], 300))["tasks"]
        if len(tasks) != 1:
            raise Failed(f"{package} has {len(tasks)} tasks, where one is compared")
        return tasks[0]

    def build_id(self):
        """Tells builds of diapason apart: rows of one table are of one build."""
        return hashlib.sha256((self._folder / "diapason").read_bytes()).hexdigest()[:12]

    def _call(self, command, timeout):
        self._log(time.strftime("%H:%M:%S ") + " ".join(command))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            end_session(process)
            raise Failed(f"{short(command)} was not done in {timeout:.0f} s") from None
        except BaseException:
            end_session(process)
            raise
        self._log(err)
        if process.returncode != 0:
            words = (err.strip() or out.strip() or "no message").splitlines()[-1]
            raise Failed(f"{short(command)} ended with {process.returncode}: {words}")
        return out

    def _log(self, text):
        with open(self._log_file, "a", encoding="utf-8") as log:
            print(text, file=log)


class Baseline:
    """PyTorch's side (bench/baselines_torch.py): one process for all requests, since importing PyTorch takes seconds. It is
    idle while our side is measured. After a failure the next request starts another."""

    def __init__(self, script, log):
        self._script, self._log_file, self._process = script, log, None

    def ask(self, *words, timeout=300):
        """The answer to a request; nothing without baselines. Failed when it failed or took too long."""
        if self._script is None:
            return {}
        if self._process is None:
            with open(self._log_file, "a", encoding="utf-8") as log:
                self._process = subprocess.Popen([sys.executable, str(self._script), "serve"], stdin=subprocess.PIPE,
                                                 stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        request = " ".join(map(str, words))
        try:
            self._process.stdin.write((json.dumps([str(word) for word in words]) + "\n").encode())
            self._process.stdin.flush()
            ready, _, _ = select.select([self._process.stdout], [], [], timeout)
            line = self._process.stdout.readline() if ready else b""
        except BrokenPipeError:
            ready, line = True, b""
        if not line.endswith(b"\n"):
            self.close()
            raise Failed(f"the baseline ended at its request `{request}`; see log.txt" if ready
                         else f"the baseline's `{request}` was not done in {timeout:.0f} s")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(f"the baseline's `{request}` failed: {answer['error']}")
        return answer

    def close(self):
        if self._process is not None:
            process, self._process = self._process, None
            end_session(process)


def end_session(process):
    """Ends a process with those it started (compilers, workers); diapason finishes what it measures first."""
    for sign, patience in ((signal.SIGINT, 15), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, sign)
            process.communicate(timeout=patience)
            return
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            process.communicate()
            return


def short(command):
    words = [pathlib.Path(word).name if "/" in word else word for word in command]
    if words[0].startswith("python"):
        words = words[1:]
    return " ".join(words[:3])


def find_programs(root, given):
    """The folder that has diapason and task_times: the one given, or the build's, or a bundle's."""
    folders = [pathlib.Path(given)] if given else [root / "build" / "bin", root / "bundle" / "bin"]
    for folder in folders:
        if (folder / "diapason").exists():
            return folder
    raise SystemExit(f"bench/h200.py: there is no diapason in {' or '.join(map(str, folders))}; build it with "
                     "`cmake --build build --target diapason task_times`, or name its folder with --programs")
