"""Jobs handed to a service with a worker of this host."""

import diapason as dp
import numpy as np
import pytest

CPU = "cpu -num-cores=1"
GEMM = {"options": {"m": 32, "n": 48, "k": 64}, "min_repeat_ms": 1}


def test_a_job_is_submitted_and_watched(address):
    service, told = dp.Service(address), []
    job = service.submit("gemm", CPU, trials=4, **GEMM)
    done = service.watch(job, callback=told.append, interval=0.2)
    assert (done.id, done.state, done.ended, done.model, done.target) == (job, "done", True, "gemm", CPU)
    assert (done.trials, done.measured, done.failed) == (4, 4, 0)
    assert done.estimated_us > 0 and done.details["tasks"][0]["verified"]
    assert told[-1] == done and all(isinstance(one, dp.Job) for one in told)
    assert service.job(job) == done
    assert job in [one.id for one in service.jobs()]


def test_a_model_of_python_is_sent(address, model):
    service = dp.Service(address)
    job = service.submit(model, CPU, trials=1, dims={"batch": [2, 4]}, min_repeat_ms=1)
    assert service.job(job).details["dims"] == {"batch": [2, 4]}
    assert service.watch(job, interval=0.2).state == "done"


def test_a_package_is_built_with_the_records_of_the_service(address, model, weight, tmp_path):
    service, dims = dp.Service(address), {"batch": [3, 5]}
    assert service.watch(service.submit(model, CPU, trials=12, dims=dims, min_repeat_ms=1), interval=0.2).state == "done"
    report = service.build(model, CPU, out=tmp_path / "package", dims=dims)
    assert (report.out, report.target.split()[0], [plan.sizes for plan in report.plans]) == (str(tmp_path / "package"), "cpu", [{"batch": 3}, {"batch": 5}])
    assert report.kernels_stored > 0
    for plan in report.plans:
        assert plan.check.ok and plan.check.sizes == plan.sizes and plan.padding["batch"].safe
        assert (plan.task_count, plan.fallback_count, plan.shipped_count) == (len({task.id for task in plan.tasks}), 0, 0)
        assert {task.record_source for task in plan.tasks} == {"service"}
    x = np.ones((5, 8), dtype=np.float32)
    np.testing.assert_allclose(dp.load(report.out)(x)[0], np.maximum(x @ weight, 0), rtol=1e-4, atol=1e-5)


def test_a_package_without_records_warns(address, tmp_path):
    with pytest.warns(dp.DiapasonWarning, match="^there is no record of workload .* on target cpu -num-cores=1; "):
        report = dp.Service(address).build("gemm", CPU, out=tmp_path / "package", options={"m": 8, "n": 8, "k": 24}, check=False)
    (plan,) = report.plans
    assert (plan.task_count, plan.fallback_count, plan.sizes, plan.check) == (1, 1, {}, None)
    with pytest.raises(dp.Error, match="^unknown network 'none': "):
        dp.Service(address).build("none", CPU, out=tmp_path / "other")


def test_the_tracker_of_a_service_lends_its_devices(address, tmp_path):
    history = tmp_path / "h.db"
    result = dp.tune("gemm", CPU, history=history, trials=3, fleet=dp.Fleet(address), **GEMM)
    assert (result.progress.measured, [check.ok for check in result.checks]) == (3, [True])
    assert dp.History(history).summary().record_count == 3
    with pytest.raises(dp.UnavailableError, match="127.0.0.1:1"):
        dp.tune("gemm", CPU, history=history, trials=4, fleet=dp.Fleet("127.0.0.1:1", wait=0.1), **GEMM)
    with pytest.raises(dp.Error, match="^--tracker 192.0.2.1:9190 would speak plain text beyond this host; "):
        dp.tune("gemm", CPU, history=history, trials=4, fleet=dp.Fleet("192.0.2.1:9190"), **GEMM)


def test_a_job_is_cancelled(address):
    service = dp.Service(address)
    job = service.submit("gemm", CPU, trials=100000, **GEMM)
    assert service.cancel(job).id == job
    ended = service.watch(job, interval=0.2)
    assert ended.state == "cancelled" and ended.measured < 100000


def test_what_a_service_refuses_is_an_error(address):
    service = dp.Service(address)
    with pytest.raises(dp.NotFoundError, match="^there is no job 777; `diapason jobs list` shows those there are$"):
        service.job(777)
    with pytest.raises(dp.Error, match="^unknown network 'none': "):
        service.submit("none", CPU)
    with pytest.raises(dp.InvalidArgumentError, match="^mask is not an option of jobs; tune on this host "):
        service.submit("gemm", CPU, mask="m")
    with pytest.raises(TypeError, match="^a int is no model; "):
        service.submit(3)


def test_a_service_that_is_not_there_is_an_error():
    with pytest.raises(dp.UnavailableError, match=r"^the service at '127\.0\.0\.1:1' does not answer \(Connection refused\): start it with 'diapason serve', or "):
        dp.Service("127.0.0.1:1", timeout=0.5).jobs()
