"""Runs of diapason, task_times and the peers' script."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time


class Failed(Exception):
    """A program that failed or took too long; the text names it and quotes its last words."""


class Programs:
    def __init__(self, folder, peers, target, log):
        self._folder, self._peers, self._target = pathlib.Path(folder), peers, target
        self._log_file = log
        self._tune_help = None

    def diapason(self, *words, timeout=300, json_output=True):
        out = self._call([str(self._folder / "diapason"), *map(str, words)], timeout)
        return json.loads(out) if json_output else out

    def tune_knows(self, flag):
        if self._tune_help is None:
            self._tune_help = self.diapason("tune", "--help", json_output=False)
        return flag in self._tune_help

    def tune(self, model, options, history, seconds, *flags):
        return self.diapason("tune", model, *options, "--target", self._target, "--history", history, "--seconds", seconds,
                             *flags, "--json", timeout=seconds + 180)

    def build(self, model, options, history, out, *flags):
        return self.diapason("build", model, *options, "--target", self._target, "--history", history, "--out", out, *flags, "--json")

    def run(self, package, *flags):
        return self.diapason("run", package, *flags, "--json")

    def task_times(self, package, rounds=3):
        """Samples of the only task of a package, microseconds, with the same operands again and again, as peers run it."""
        tasks = json.loads(self._call([str(self._folder / "task_times"), str(package), str(rounds), "--json"], 300))["tasks"]
        if len(tasks) != 1:
            raise Failed(f"{package} has {len(tasks)} tasks, where one is compared")
        return tasks[0]

    def peers(self, *words, timeout=300):
        """The peers' report; nothing with --no-peers."""
        if self._peers is None:
            return {}
        return json.loads(self._call([sys.executable, str(self._peers), *map(str, words)], timeout))

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
