"""Tasks, builds, tuning and histories."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

import diapason as dp
import numpy as np
import onnx
import pandas
import pytest

CPU = "cpu -num-cores=1"
GEMM = {"options": {"m": 32, "n": 48, "k": 64}}
FAST = {"min_repeat_ms": 1, "progress": False}


@pytest.fixture(scope="session")
def tuned(tmp_path_factory):
    """A history of 6 trials of a product, with what the callback was told."""
    history = tmp_path_factory.mktemp("histories") / "h.db"
    told = []
    result = dp.tune("gemm", CPU, history=history, trials=6, callback=told.append, **FAST, **GEMM)
    return history, result, told


def test_tasks_of_a_built_in_network():
    found = dp.tasks("gemm", CPU, **GEMM)
    assert found.target == CPU
    (task,) = found
    assert (task.id, task.count, task.flops) == (1, 1, 2 * 32 * 48 * 64)
    assert task.workload and task.sketches and task.kernel_count >= 1 and not task.moves_data
    assert [one.dtype for one in found.inputs] == ["float32"] * len(found.inputs)


def test_a_model_is_a_path_or_bytes_or_an_object(model, tmp_path):
    path = tmp_path / "dense.onnx"
    onnx.save(model, path)
    lists = [dp.tasks(given, CPU, dims={"batch": [2]}) for given in (path, str(path), path.read_bytes(), model)]
    assert len(lists[0]) >= 1
    assert [[task.workload for task in one] for one in lists] == [[task.workload for task in lists[0]]] * 4
    assert [(one.name, one.symbols) for one in lists[0].inputs] == [("x", ["batch", ""])]
    assert lists[0].plans[0].sizes == {"batch": 2}


@pytest.mark.parametrize("with_onnx", [True, False])
def test_histories_know_bytes_by_the_name_of_their_graph(model, tmp_path, monkeypatch, with_onnx):
    if not with_onnx:
        monkeypatch.setitem(sys.modules, "onnx", None)  # as where it is not installed
    content = model.SerializeToString()

    def network(given, **options):
        built = dp.build(given, CPU, out=tmp_path / "package", dims={"batch": [1, 2]}, check=False, measure=False, **options)
        return dp.load(built.out).network

    assert [network(given) for given in (content, bytearray(content), memoryview(content), model)] == ["dense"] * 4
    assert network(content, name="mine") == "mine"
    nameless = onnx_copy(model, "")
    assert network(nameless.SerializeToString()) == network(nameless) == "model"
    with pytest.raises(ValueError, match="it is no ONNX model, or it was cut off"):
        dp.tasks(b"\xff" * 10)


def onnx_copy(model, name):
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.name = name
    return copy


def test_tuning_tells_how_far_it_is(tuned):
    history, result, told = tuned
    assert (result.progress.trials, result.progress.measured, result.progress.trial_limit) == (6, 6, 6)
    (task,) = result.progress.tasks
    assert task.trials == 6 and task.verified and task.best_us <= task.fallback_us
    assert result.estimated_us > 0
    (check,) = result.checks
    assert check.ok and check.wrong_records == []
    assert len(told) >= 2 and all(isinstance(one, dp.Progress) for one in told)
    assert told[-1].trials == 6
    assert [one.trials for one in told] == sorted(one.trials for one in told)


def test_the_same_call_goes_on(tuned, tmp_path):
    history, _, _ = tuned
    copy = tmp_path / "h.db"
    copy.write_bytes(history.read_bytes())
    result = dp.tune("gemm", CPU, history=copy, trials=8, check=False, **FAST, **GEMM)
    assert (result.progress.trials, result.progress.measured, result.checks) == (8, 2, [])


def test_a_build_may_compare_records_in_the_network(tuned, tmp_path):
    built = dp.build("gemm", CPU, history=tuned[0], out=tmp_path / "package", refine=1, **GEMM)
    assert built.plans[0].tasks[0].record in [record.id for record in dp.History(tuned[0]).query(target="cpu", top=10)]
    refined = built.plans[0].refined
    assert refined.compared >= refined.replaced and refined.regrouped == 0 and 0 < refined.ratio <= 1, refined
    assert ("of the latency before it was compared in the network" in repr(built.plans[0])) == (refined.replaced > 0)
    alone = dp.build("gemm", CPU, history=tuned[0], out=tmp_path / "alone", refine=0, **GEMM)
    assert alone.plans[0].refined == dp.RefinedRecords(compared=0, replaced=0, regrouped=0, ratio=1, ended_early=False)
    with pytest.raises(ValueError):
        dp.build("gemm", CPU, history=tuned[0], out=tmp_path / "other", refine="soon", **GEMM)


def test_a_history_is_queried(tuned):
    history = dp.History(tuned[0])
    (best,) = history.query(model="gemm")
    assert isinstance(best, dp.Record) and best.verified and best.target == CPU
    assert best.median_us == pytest.approx(sorted(best.samples_us)[len(best.samples_us) // 2], rel=0.5)
    assert best.median_us == pytest.approx(tuned[1].progress.tasks[0].best_us)
    several = history.query(target="cpu", workload=best.workload[:8], top=3)
    assert len(several) == 3 and several[0] == best
    assert history.query(target="cuda") == []
    assert history.best(best.workload) == best
    assert history.best(best.workload, device=best.device, target=CPU) == best
    assert history.best("none") is None
    summary = history.summary()
    assert (summary.record_count, summary.networks, summary.devices) == (6, ["gemm"], [best.device])
    with pytest.raises(dp.NotFoundError, match="resnet-18"):
        history.query(model="resnet-18")
    with pytest.raises(ValueError, match="^the best 0 records are asked for; ask for 1 or more$"):
        history.query(top=0)


def test_a_history_is_checked_exported_imported_copied_and_pruned(tuned, tmp_path):
    history = dp.History(tuned[0])
    records = history.summary().record_count
    assert history.check().ok and history.check().record_count == records
    lines, copy = tmp_path / "lines.jsonl", tmp_path / "copy.db"
    assert history.export(lines) == records
    assert dp.import_history(tmp_path / "imported.db", lines) == records
    assert dp.import_history(tmp_path / "imported.db", lines) == 0
    assert dp.copy_history(tuned[0], copy) == records
    assert dp.prune_history(copy, out=tmp_path / "best.db") == 1
    assert dp.History(tmp_path / "best.db").query()[0].uuid == history.query()[0].uuid
    with pytest.raises(dp.InvalidArgumentError, match="csv"):
        history.export(lines, format="csv")
    lines.write_text("{\n")
    with pytest.raises(dp.InvalidArgumentError, match="line 1"):
        dp.import_history(tmp_path / "imported.db", lines)
    with pytest.raises(dp.InvalidArgumentError, match="keep 1 or more"):
        dp.prune_history(copy, keep=0)


def test_records_and_candidates_are_explained(tuned):
    history = dp.History(tuned[0])
    best = history.query()[0]
    record = history.explain(best.id)
    assert record.measured.median_us == best.median_us and record.failed is None
    assert record.sketch and record.configuration and "for" in record.loops and record.features
    assert [(share.network, share.share) for share in record.shares] == [("gemm", 1)]
    assert repr(record).startswith(f"<diapason.Explanation record {best.id} of {best.task}, ")
    with pytest.raises(dp.NotFoundError):
        history.explain(999999)
    candidate = dp.explain("gemm", "cuda -arch=sm_90", 1)
    assert candidate.record is None and candidate.measured is None and "__global__" in candidate.source
    assert candidate.sketch in candidate.sketch_times_us
    name, value = next(iter(candidate.configuration.items()))
    assert dp.explain("gemm", "cuda -arch=sm_90", 1, sketch=candidate.sketch, parameters={name: value}).source == candidate.source
    with pytest.raises(dp.InvalidArgumentError, match="magic"):
        dp.explain("gemm", "cuda -arch=sm_90", 1, parameters={"magic": 1})


def test_records_become_a_table(tuned):
    table = dp.History(tuned[0]).to_pandas(model="gemm", top=6)
    assert isinstance(table, pandas.DataFrame) and list(table["task"]) == [table["task"][0]] * len(table)
    assert len(table) >= 1


def test_a_package_has_the_records_of_the_history(tuned, tmp_path):
    history, result, _ = tuned
    built = dp.build("gemm", CPU, out=tmp_path / "package", history=history, **GEMM)
    (plan,) = built.plans
    assert (plan.task_count, plan.fallback_count) == (1, 0)
    assert plan.tasks[0].record == result.progress.tasks[0].record
    assert plan.check.ok and plan.latency_us > 0
    package = dp.load(built.out)
    arrays = [np.ones(port.shape, np.float32) for port in package.inputs]
    assert np.isfinite(package(*arrays)).all()


def test_records_come_from_several_histories_and_from_shipped_files(tuned, tmp_path, monkeypatch):
    history, result, _ = tuned
    shipped = tmp_path / "records" / "cpu" / "gemm.jsonl"
    shipped.parent.mkdir(parents=True)
    subprocess.run([os.environ["DIAPASON_PROGRAM"], "records", "add", history, "--out", shipped], check=True, capture_output=True, timeout=60)

    def source(**more):
        (task,) = dp.build("gemm", CPU, out=tmp_path / "package", check=False, measure=False, **more, **GEMM).plans[0].tasks
        return task.record_source, task.record is not None, task.record_uuid != ""

    with pytest.warns(dp.DiapasonWarning, match="none.db"):
        assert source(history=[tmp_path / "none.db", history]) == ("history", True, True)
    assert source(history=shipped) == ("file", False, True)
    monkeypatch.setenv("DIAPASON_RECORDS", str(tmp_path / "records"))
    assert source() == ("shipped", False, True)
    with pytest.warns(dp.DiapasonWarning, match="fallback schedule"):
        assert source(shipped_records=False) == ("", False, False)


def test_a_model_of_python_is_built_and_run(model, weight, tmp_path):
    with pytest.warns(dp.DiapasonWarning, match="^4 of 4 tasks have no verified record on target "):
        built = dp.build(model, CPU, out=tmp_path / "package", dims={"batch": [1, 4]})
    assert [plan.sizes for plan in built.plans] == [{"batch": 1}, {"batch": 4}]
    assert all(plan.check.ok for plan in built.plans)
    package = dp.load(built.out)
    assert package.network == "dense"
    x = np.random.default_rng(1).standard_normal((3, 8), dtype=np.float32)
    np.testing.assert_allclose(package(x)[0], np.maximum(x @ weight, 0), rtol=1e-5, atol=1e-5)


def test_exceptions_of_the_callback_end_the_run_and_come_through(tmp_path):
    class Enough(Exception):
        pass

    def callback(progress):
        assert threading.current_thread() is not threading.main_thread()
        if progress.measured >= 2:
            raise Enough

    with pytest.raises(Enough):
        dp.tune("gemm", CPU, history=tmp_path / "h.db", trials=10000, callback=callback, **FAST, **GEMM)
    assert 2 <= dp.History(tmp_path / "h.db").summary().record_count < 10000


INTERRUPTED = """
import sys, diapason as dp
def callback(progress):
    print(progress.measured, flush=True)
try:
    dp.tune("gemm", "cpu -num-cores=1", history=sys.argv[1], trials=100000, callback=callback, min_repeat_ms=1, options={"m": 32, "n": 48, "k": 64})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_keeps_what_was_measured(tmp_path):
    history = tmp_path / "h.db"
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(history)], stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        measured = 0
        while measured < 3:
            line = process.stdout.readline()
            assert line, "it ended by itself"
            measured = int(line)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert rest.splitlines()[-1] == "interrupted"
    assert process.returncode == 0
    assert dp.History(history).summary().record_count >= measured


def test_other_threads_run_while_it_tunes(tmp_path):
    turns = 0
    done = threading.Event()

    def count():
        nonlocal turns
        while not done.wait(0.01):
            turns += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        dp.tune("gemm", CPU, history=tmp_path / "h.db", trials=4, check=False, **FAST, **GEMM)
    finally:
        done.set()
        thread.join()
    assert turns > 20


def test_a_line_tells_how_far_it_is(tmp_path, capfd):
    dp.tune("gemm", CPU, history=tmp_path / "h.db", trials=3, check=False, min_repeat_ms=1, progress=True, **GEMM)
    lines = capfd.readouterr().err.split("\r\x1b[K")
    assert lines[-1].startswith("tuning: 3/3 trials in ") and "1 of 1 tasks timed, estimate " in lines[-1] and lines[-1].endswith("\n")


def test_errors_have_the_text_of_the_library(tmp_path):
    with pytest.raises(ValueError, match="'gpu'"):
        dp.tasks("gemm", "gpu")
    with pytest.raises(dp.NotFoundError):
        dp.tasks(tmp_path / "none.onnx")
    with pytest.raises(ValueError):
        dp.tasks(b"no model")
    with pytest.raises(TypeError, match="^a int is no model; give the path of an .onnx file, the name of a built-in network, the bytes of an ONNX file, "
                                        "an onnx.ModelProto or a torch.export.ExportedProgram$"):
        dp.tasks(5)
    with pytest.raises(TypeError, match="^there is no option 'bach' of models; these are there: batch, layout, "):
        dp.tasks("gemm", bach=1)
    with pytest.raises(ValueError, match="^the layout is 'HWC'; give NHWC or NCHW$"):
        dp.tasks("gemm", layout="HWC")
    with pytest.raises(ValueError, match="^repeat is 0; give a number from 1 to 1000$"):
        dp.tune("gemm", CPU, history=tmp_path / "h.db", repeat=0)
    assert not (tmp_path / "h.db").exists()
    with pytest.raises(FileNotFoundError):
        dp.History(tmp_path / "none.db")
    with pytest.raises(dp.NotFoundError, match="^there is no history .*none.db; make one with `diapason tune`, or leave it out to build without records of your own$"):
        dp.build("gemm", CPU, out=tmp_path / "package", history=tmp_path / "none.db", **GEMM)


@pytest.mark.parametrize("name, value, wanted", [
    ("trials", 0, "trials is 0; give a number of at least 1, or None for the default"),
    ("trials", -3, "trials is -3; give a number of at least 1, or None for the default"),
    ("seconds", 0, "seconds is 0; give a number above 0, or None for the default"),
    ("seconds", -1.5, "seconds is -1.5; give a number above 0, or None for the default"),
    ("seconds", float("nan"), "seconds is nan; give a number above 0, or None for the default"),
    ("min_repeat_ms", 0, "min_repeat_ms is 0; give a number above 0, or None for the default"),
])
def test_limits_of_tuning_are_above_0(tmp_path, name, value, wanted):
    with pytest.raises(dp.InvalidArgumentError) as caught:
        dp.tune("gemm", CPU, history=tmp_path / "h.db", **{name: value}, **GEMM)
    assert str(caught.value) == wanted
    assert not (tmp_path / "h.db").exists()


def test_the_program_is_beside_the_extension():
    import diapason._tuner

    program = pathlib.Path(diapason._tuner.__file__).parent / "bin" / "diapason"
    assert os.access(program, os.X_OK)
    version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20).stdout
    assert version.splitlines()[0] == f"diapason {dp.__version__}"
