"""The whole test suite from a bundle, on a machine with a GPU (bench/gpu_tests.sh).

Test programs run in shards, as many at a time as there are cores; those that time the device run alone, at the end. The tests of the
search space go through thousands of candidates in one case each: they are split by tasks (DIAPASON_SHARD), and such a case has
passed when it has in every shard and the shards together compared something. A case that a program began and did not end, because it
died or ran out of time, has failed.
"""
import argparse
import collections
import concurrent.futures
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

# Programs that time the device, or hold it against a clock: one at a time, nothing beside them.
ALONE = ("cuda_device_tests", "library_cuda_tests", "build_tests")
# Processes of a program; two of the others. The tests of the command line start fleets of their own.
SHARDS = {"cli_tests": 8, "worker_tests": 8, "service_tests": 4, "scheduler_tests": 4, "sketch_tests": 6, "attacks_tests": 6,
          "chaos_tests": 1, "onnx_tests": 4, "codegen_tests": 4}
# Cases of sketch_tests that DIAPASON_SHARD splits.
GUARD = ("*ExecuteTest.Candidates*", "*NumbersTest.*", "*DomainTest.Holds*")
GUARD_SHARDS = 16
# Cases that start a server of PostgreSQL.
POSTGRES = ("*Postgres*",)
ALL_POSTGRES = ("failover_tests",)  # programs that have no others
BEGAN = re.compile(r"^\[ RUN      \] (\S+)", re.M)
ENDED = re.compile(r"\[(       OK|  FAILED |  SKIPPED) \] (\S+) \(\d+ ms\)")
COUNTED = re.compile(r"^\[==========\] (\d+) tests? from \d+ test suites? ran\.", re.M)
GUARDED = re.compile(r"^guard: (.+?),? (\S+): (\d+) tasks, (\d+) sketches, (\d+) candidates", re.M)
RESULTS = {"       OK": "passed", "  FAILED ": "failed", "  SKIPPED": "skipped"}

Job = collections.namedtuple("Job", "suite name command environment limit")
Done = collections.namedtuple("Done", "job results problem text seconds")


def parse_gtest(text, code):
    """Results by case, and what else is wrong with the program, or ""."""
    results = {name: RESULTS[word] for word, name in ENDED.findall(text)}
    for name in BEGAN.findall(text):
        results.setdefault(name, "failed")
    ran = COUNTED.search(text)
    if ran is None:
        return results, "it did not end: exit status %s" % code
    if int(ran.group(1)) != len(results):
        return results, "it ran %s cases and reported %d" % (ran.group(1), len(results))
    if code != 0 and "failed" not in results.values():
        return results, "exit status %s without a failed case" % code
    return results, ""


def parse_unittest(text, code):
    ran = re.search(r"^Ran (\d+) tests? in", text, re.M)
    count = int(ran.group(1)) if ran else 0
    numbers = {word: int(number) for word, number in re.findall(r"(failures|errors|skipped)=(\d+)", text)}
    failed = numbers.get("failures", 0) + numbers.get("errors", 0)
    if count == 0 or (code != 0 and failed == 0):
        return {}, "exit status %s after %d cases" % (code, count)
    results = {}
    for result, number in (("failed", failed), ("skipped", numbers.get("skipped", 0))):
        results.update({"%s %d" % (result, i + 1): result for i in range(number)})
    results.update({"passed %d" % (i + 1): "passed" for i in range(count - len(results))})
    return results, ""


def parse(job, text, code):
    if job.name.startswith("unittest"):
        return parse_unittest(text, code)
    if job.suite == "fuzz":
        return {job.name: "passed" if code == 0 else "failed"}, ""
    return parse_gtest(text, code)


class Runner:
    """Runs jobs until a moment; after it none is begun, and those that run are killed."""

    def __init__(self, until):
        self.until = until
        self.lock = threading.Lock()
        self.done = []

    def run(self, job):
        started = time.monotonic()
        limit = min(job.limit, self.until - started)
        if limit <= 0:
            return self.finish(Done(job, {}, "not begun: the time is over", "", 0))
        with tempfile.TemporaryDirectory(prefix="gpu-tests-") as scratch:
            os.chmod(scratch, 0o755)  # a test attacks as another user, who must get so far
            environment = dict(os.environ, **job.environment, TMPDIR=scratch, TEST_TMPDIR=scratch + "/")
            process = subprocess.Popen(job.command, env=environment, cwd=scratch, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, start_new_session=True)
            try:
                output, _ = process.communicate(timeout=limit)
                late = False
            except subprocess.TimeoutExpired:
                late = True
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
        text = output.decode(errors="replace")
        results, problem = parse(job, text, process.returncode)
        if late:
            problem = "killed after %d s" % limit
        return self.finish(Done(job, results, problem, text, time.monotonic() - started))

    def finish(self, done):
        with self.lock:
            self.done.append(done)


def merge(dones):
    """Results by case over the shards of a suite: failed in one is failed; skipped only if in all."""
    results = {}
    for done in dones:
        for name, result in done.results.items():
            order = ("skipped", "passed", "failed")
            before = results.get(name, "skipped")
            results[name] = max(before, result, key=order.index)
        if done.problem:
            results["%s: %s" % (done.job.name, done.problem)] = "failed"
    return results


def guarded(dones):
    """What the shards of the guard compared together, by test and target: tasks, sketches, candidates."""
    sums = collections.OrderedDict()
    for done in dones:
        for test, target, *numbers in GUARDED.findall(done.text):
            sums[test, target] = [a + int(b) for a, b in zip(sums.get((test, target), (0, 0, 0)), numbers)]
    return sums


def failure_text(done, lines=40):
    """The lines of the cases that failed, or the end of what a program that died wrote."""
    picked, current = [], []
    for line in done.text.splitlines():
        if line.startswith("[ RUN      ]"):
            current = []
        current.append(line)
        if line.startswith("[  FAILED  ]") and "(" in line:
            picked += current[:lines]
            current = []
    return "\n".join(picked or (done.text.splitlines()[-lines:] if done.problem or "failed" in done.results.values() else []))


def report(dones, out=sys.stdout):
    """Prints a line a suite, then the sum; returns the exit status."""
    suites = collections.OrderedDict()
    for done in sorted(dones, key=lambda d: d.job.suite):
        suites.setdefault(done.job.suite, []).append(done)
    total = collections.Counter()
    for suite, parts in suites.items():
        results = merge(parts)
        for (test, target), numbers in guarded(parts).items():
            print("guard: %s %s: %d tasks, %d sketches, %d candidates" % (test, target, *numbers), file=out)
            if numbers[2] == 0:
                results["guard: %s %s compared nothing" % (test, target)] = "failed"
        counts = collections.Counter(results.values())
        if not results:
            counts["failed"] = 1
        total += counts
        for done in parts:
            if done.problem or "failed" in done.results.values():
                print("---- %s\n%s" % (done.job.name, failure_text(done)), file=out)
        for name, result in results.items():
            if result == "failed":
                print("failed: %s %s" % (suite, name), file=out)
        print("%s: %d passed, %d failed, %d skipped, %.0f s of processes, the longest %.0f s" % (
            suite, counts["passed"], counts["failed"], counts["skipped"], sum(d.seconds for d in parts),
            max(d.seconds for d in parts)), file=out)
    if not suites:
        total["failed"] = 1
    print("%d passed, %d failed, %d skipped" % (total["passed"], total["failed"], total["skipped"]), file=out)
    return 1 if total["failed"] else 0


def lacks(environment):
    """What tests may not expect of this machine (tests/paths.h)."""
    missing = [] if shutil.which("bwrap", path=environment["PATH"]) else ["bubblewrap"]
    if not any(pathlib.Path("/etc/OpenCL/vendors").glob("*.icd")):
        missing.append("opencl")
    if importlib.util.find_spec("yaml") is None:
        missing.append("pyyaml")
    return " ".join(missing)


def environment_of(bundle):
    environment = {
        "PATH": "%s:%s" % (bundle / "bin", os.environ.get("PATH", "/usr/bin:/bin")),
        "DIAPASON_PROGRAM": str(bundle / "bin" / "diapason"),
        "DIAPASON_DEPLOY": str(bundle / "deploy"),
        "DIAPASON_MAKE_CERTS": str(bundle / "deploy" / "make-certs.sh"),
        "DIAPASON_ENGINES": str(bundle / "tests" / "cli" / "engines"),
        "DIAPASON_ONNX_TESTDATA": str(bundle / "onnx-testdata"),
        "ONNX_TESTDATA_DIR": str(bundle / "onnx-testdata"),
        "OPENSSL_CONF": str(bundle / "deploy" / "openssl.cnf"),
    }
    environment["DIAPASON_TEST_MAY_LACK"] = lacks(environment)
    return environment


def has_postgres():
    """As tests/db/postgres_server.cc looks for it."""
    folders = [str(folder) for folder in pathlib.Path("/usr/lib/postgresql").glob("*/bin")]
    return shutil.which("initdb", path=os.pathsep.join(folders + [os.environ.get("PATH", "")])) is not None


def filter_of(picked, left_out):
    """The flag of a test program for the cases of these patterns but for those; none: all."""
    return ["--gtest_filter=" + ":".join(picked) + ("-" + ":".join(left_out) if left_out else "")] if picked or left_out else []


def jobs_of(bundle, limit, wanted, left_out=()):
    """The jobs that may run side by side, and those that run alone; without cases of the patterns `left_out`."""
    environment = environment_of(bundle)
    together, alone = [], []
    without = [] if has_postgres() else list(POSTGRES)
    if without:
        print("PostgreSQL's server is not installed: tests that start one (%s) are left out" % ", ".join(POSTGRES), file=sys.stderr)

    def add(jobs, suite, name, command, more=None, seconds=limit):
        if re.search(wanted, suite):
            jobs.append(Job(suite, name, [str(word) for word in command], dict(environment, **(more or {})), seconds))

    sketch = bundle / "bin" / "sketch_tests"
    for shard in range(GUARD_SHARDS if sketch.exists() else 0):
        add(together, "sketch", "sketch guard %d/%d" % (shard, GUARD_SHARDS), [sketch] + filter_of(GUARD, left_out),
            {"DIAPASON_SHARD": "%d/%d" % (shard, GUARD_SHARDS)})
    for program in sorted((bundle / "bin").glob("*_tests")):
        suite = program.name[:-len("_tests")]
        if without and program.name in ALL_POSTGRES:
            continue
        if program.name in ALONE:
            add(alone, suite, suite, [program] + filter_of((), left_out))
            continue
        rest = filter_of((), (*(GUARD if program == sketch else without), *left_out))
        shards = SHARDS.get(program.name, 2)
        for shard in range(shards):
            add(together, suite, "%s %d/%d" % (suite, shard, shards), [program] + rest,
                {"GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(shard)})
    for program in sorted((bundle / "bin").glob("fuzz_*_driver")):
        target = program.name[len("fuzz_"):-len("_driver")]
        corpus = bundle / "tests" / "fuzz" / "corpus" / target
        add(together, "fuzz", target, [program, "--runs", "100000", "--seconds", "4"] + ([corpus] if corpus.exists() else []))
    for name in ("bench", "deploy"):
        folder = bundle / "tests" / name
        add(together, name, "unittest " + name, [sys.executable, "-B", "-m", "unittest", "discover", "-s", folder, "-p", "*_test.py"],
            {"PYTHONPATH": str(bundle / "bench")})
    return together, alone


def unpack(bundle, folder):
    with tarfile.open(bundle) as archive:
        archive.extractall(folder)
    return pathlib.Path(folder)


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/gpu_tests.sh", description="Runs the test suite of a bundle on a machine with a GPU.",
        epilog="On the machine that builds: deploy/bundle.sh build/gpu-tests --tests. Here: bench/gpu_tests.sh build/gpu-tests.tar.xz")
    parser.add_argument("bundle", nargs="?", default="build/gpu-tests.tar.xz", help="the folder or its archive (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time (default: all cores, %(default)s)")
    parser.add_argument("--limit", type=float, default=240, help="seconds for one process (default: %(default)s)")
    parser.add_argument("--total", type=float, default=570, help="seconds for everything (default: %(default)s)")
    parser.add_argument("--suites", default="", help="a regular expression: only suites whose names it is found in")
    parser.add_argument("--without", default="", metavar="PATTERNS",
                        help="leaves out cases, such as '*/cpu:*/opencl', which machines without a GPU run as well")
    flags = parser.parse_args(argv)
    started = time.monotonic()
    bundle = pathlib.Path(flags.bundle).resolve()
    if not bundle.exists():
        parser.error("there is no %s: make it with deploy/bundle.sh build/gpu-tests --tests" % flags.bundle)
    with tempfile.TemporaryDirectory(prefix="gpu-tests-bundle-") as folder:
        try:
            bundle = bundle if bundle.is_dir() else unpack(bundle, folder)
        except (tarfile.TarError, OSError, EOFError) as error:
            parser.error("%s cannot be unpacked: %s" % (flags.bundle, error))
        together, alone = jobs_of(bundle, flags.limit, flags.suites, tuple(filter(None, flags.without.split(":"))))
        runner = Runner(started + flags.total)
        with concurrent.futures.ThreadPoolExecutor(max_workers=flags.jobs) as pool:
            list(pool.map(runner.run, together))
        for job in alone:
            runner.run(job)
        print("%d processes in %.0f s" % (len(runner.done), time.monotonic() - started))
        return report(runner.done)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
