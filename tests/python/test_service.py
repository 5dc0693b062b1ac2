"""Jobs handed to a service with a worker of this host."""

import subprocess

import diapason as dp
import pytest
from conftest import PROGRAM

CPU = "cpu -num-cores=1"
GEMM = {"options": {"m": 32, "n": 48, "k": 64}, "min_repeat_ms": 1}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    with open(folder / "log", "w") as log, subprocess.Popen(
            [PROGRAM, "serve", "--listen", "127.0.0.1:0", "--history", str(folder / "h.db"), "--launch", "local", "--workers", "1", "--worker-args",
             "--devices cpu"], stdout=subprocess.PIPE, stderr=log, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("service listens on 127.0.0.1:"), (folder / "log").read_text()
            yield line.split()[-1]
        finally:
            process.terminate()


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


def test_a_job_is_cancelled(address):
    service = dp.Service(address)
    job = service.submit("gemm", CPU, trials=100000, **GEMM)
    assert service.cancel(job).id == job
    ended = service.watch(job, interval=0.2)
    assert ended.state == "cancelled" and ended.measured < 100000


def test_what_a_service_refuses_is_an_error(address):
    service = dp.Service(address)
    with pytest.raises(dp.Error, match="^there is no job 777; `diapason jobs list` shows those there are$"):
        service.job(777)
    with pytest.raises(dp.Error, match="^unknown network 'none': "):
        service.submit("none", CPU)
    with pytest.raises(dp.InvalidArgumentError, match="^mask is not an option of jobs; tune on this host "):
        service.submit("gemm", CPU, mask="m")
    with pytest.raises(TypeError, match="^a int is no model; "):
        service.submit(3)


def test_a_service_that_is_not_there_is_an_error():
    with pytest.raises(dp.Error, match=r"^the service at '127\.0\.0\.1:1' does not answer \(Connection refused\): start it with 'diapason serve', or "):
        dp.Service("127.0.0.1:1", timeout=0.5).jobs()
