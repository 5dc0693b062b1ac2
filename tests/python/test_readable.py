"""What a Python prompt shows of results: one short line each."""

import pathlib
import re
import subprocess
import sys

import diapason as dp
import pytest
from diapason.readable import duration, operations

CPU = "cpu -num-cores=1"
GEMM = {"options": {"m": 32, "n": 48, "k": 64}}
TIME = r"[0-9.e+-]+ (us|ms|s)"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    history = tmp_path_factory.mktemp("histories") / "h.db"
    return history, dp.tune("gemm", CPU, history=history, trials=4, min_repeat_ms=1, progress=False, **GEMM)


@pytest.mark.parametrize("microseconds,text", [(None, "-"), (0.5, "0.5 us"), (999.44, "999.4 us"), (1000, "1 ms"), (18603, "18.6 ms"), (2.5e6, "2.5 s")])
def test_durations(microseconds, text):
    assert duration(microseconds) == text


@pytest.mark.parametrize("flops,text", [(0, "0 FLOP"), (864.0, "864 FLOP"), (237.6e6, "237.6 MFLOP"), (3.636e9, "3.636 GFLOP"), (2e12, "2 TFLOP")])
def test_numbers_of_operations(flops, text):
    assert operations(flops) == text


def test_lists_of_tasks():
    found = dp.tasks("resnet-18", CPU, options={"image": 32})
    assert re.fullmatch(r"<diapason.TaskList cpu -num-cores=1, 18 tasks, 12 of fusion alternatives, [0-9.]+ MFLOP>", repr(found)), found
    assert re.fullmatch(r"<diapason.Task 1 conv2d_7x7_s2_32x32x3_64_bias_relu, count 1, [0-9.]+ MFLOP, \d+ sketches, \d kernels?>", repr(found.tasks[0])), found.tasks[0]


def test_results_of_tuning(tuned):
    _, result = tuned
    assert re.fullmatch(rf"<diapason.TuneResult estimated latency {TIME} \(with fallback schedules {TIME}\), 4 trials in [0-9.]+ s, 1 of 1 task timed, "
                        rf"stopped: .+, check ok>", repr(result)), result
    assert re.fullmatch(rf"<diapason.Progress 4/4 trials in [0-9.]+ s, 1 of 1 tasks timed, estimate {TIME}(, left \d+ s)?>", repr(result.progress)), result.progress
    (task,) = result.progress.tasks
    assert re.fullmatch(rf"<diapason.TaskProgress 1 gemm_32x48x64, count 1, 4 trials( \(\d failed\))?, best {TIME} \(fallback {TIME}\) by \S+>", repr(task)), task
    (check,) = result.checks
    assert re.fullmatch(rf"<diapason.NetworkCheck ok, largest relative error [0-9.e-]+(, latency {TIME})?>", repr(check)), check


def test_histories(tuned):
    history = dp.History(tuned[0])
    assert repr(history) == f"<diapason.History {str(tuned[0])!r}>"
    summary = history.summary()
    assert repr(summary) == (f"<diapason.HistorySummary {str(tuned[0])!r}, 4 records ({summary.failed} failed), 1 run, of gemm, on {summary.devices[0]}>")
    (record,) = history.query(model="gemm")
    assert re.fullmatch(rf"<diapason.Record \d+ of gemm_32x48x64, {TIME} on {re.escape(record.device)}, cpu -num-cores=1, \S+, verified>", repr(record)), record


def test_builds_and_packages(tuned, tmp_path):
    out = str(tmp_path / "package")
    built = dp.build("gemm", CPU, out=out, history=tuned[0], **GEMM)
    assert re.fullmatch(rf"<diapason.BuildReport {re.escape(repr(out))} for cpu -num-cores=1, 1 task, estimated latency {TIME}, measured {TIME}, check ok>",
                        repr(built)), built
    assert re.fullmatch(rf"<diapason.BuiltPlan 1 task, estimated latency {TIME}, measured {TIME}, check ok>", repr(built.plans[0])), built.plans
    assert re.fullmatch(rf"<diapason.BuiltTask 1 gemm_32x48x64, count 1, record \d+ of history, .+, {TIME}>", repr(built.plans[0].tasks[0])), built.plans[0].tasks
    assert repr(dp.load(out)) == f"<diapason.Package gemm for cpu -num-cores=1, from {out!r}: a float32 32x64 -> output float32 32x48>"


def test_packages_with_symbolic_dimensions(dense):
    assert repr(dp.load(dense)) == f"<diapason.Package dense for cpu -num-cores=1, from {dense!r}: x float32 batchx8 -> y float32 batchx12, negative float32 batchx8>"


def test_jobs():
    job = dp.Job(id=3, state="done", text="", model="resnet-18", target="cuda", trials=100, measured=90, failed=2, elapsed_s=61.4, estimated_us=167.9,
                 estimated_fallback_us=None, stop_reason="trial limit reached", warnings=[], details={"tasks": list(range(100))})
    assert repr(job) == "<diapason.Job 3 done, resnet-18 for cuda, 100 trials (2 failed) in 61 s, estimated latency 167.9 us>"


WARNS = """
import diapason as dp

def make(out):
    return dp.build("gemm", "cpu -num-cores=1", out=out,
                    options={"m": 16, "n": 16, "k": 16}, shipped_records=False, check=False, measure=False)

make("package")
"""


def test_warnings_name_the_line_that_called(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(WARNS)
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    place, line = done.stderr.splitlines()
    assert place.startswith(f"{script}:5: DiapasonWarning: there is no record of workload ")
    assert line.strip() == 'return dp.build("gemm", "cpu -num-cores=1", out=out,'


def test_warnings_may_be_errors(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(WARNS)
    done = subprocess.run([sys.executable, "-W", "error", str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("diapason.model.DiapasonWarning: there is no record of workload ")


def test_no_module_of_the_package_is_named_by_a_warning():
    """Whoever adds a layer need not count frames."""
    from diapason import model

    package = pathlib.Path(model.__file__).parent
    with pytest.warns(dp.DiapasonWarning) as caught:
        model._warn("a sentence")
    assert pathlib.Path(caught[0].filename) == pathlib.Path(__file__) and package not in pathlib.Path(caught[0].filename).parents
