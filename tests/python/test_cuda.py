"""Packages on a GPU, with tensors of PyTorch. Skipped where there is none; bench/torch_compile/torch_compile.py --device cuda compares whole networks."""

import threading

import diapason as dp
import numpy as np
import pytest
from conftest import dense_model

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)


@pytest.fixture(scope="module")
def product(tmp_path_factory):
    """The product of an input "a" of 512x256 and an input "b" of 256x384."""
    out = tmp_path_factory.mktemp("cuda") / "gemm"
    dp.build("gemm", "cuda", out=out, options={"m": 512, "k": 256, "n": 384, "constant": 0}, measure=False)
    return dp.load(out)


@pytest.fixture(scope="module")
def operands():
    torch.manual_seed(1)
    return torch.randn(512, 256, device="cuda"), torch.randn(256, 384, device="cuda")


def check(got, a, b):
    assert got.device == a.device
    torch.testing.assert_close(got.double(), a.double() @ b.double(), rtol=1e-4, atol=1e-3)


def test_tensors_stay_on_the_gpu(product, operands):
    a, b = operands
    check(product(a, b), a, b)
    out = torch.empty(512, 384, device="cuda")
    (result,) = product.run([a, b], outputs=[out])
    assert result.data_ptr() == out.data_ptr()
    check(out, a, b)


def test_results_keep_their_memory_and_values(product, operands):
    a, b = operands
    torch.cuda.synchronize()
    kept = [(factor, product.run([a * factor, b], outputs=[torch.empty(512, 384, device="cuda")])[0]) for factor in range(1, 6)]
    into = kept[0][1]
    for factor in range(6, 9):  # the same memory again, then others
        product.run([a * factor, b], outputs=[into])
        kept.append((factor + 10, product(a * (factor + 10), b)))
    kept[0] = (8, into)
    for factor, result in kept:
        check(result, a * factor, b)


def test_memory_that_kernels_cannot_use(product, operands):
    a, b = operands
    odd_a, odd_b, odd_out = (torch.empty(1 + rows * columns, device="cuda")[1:].view(rows, columns) for rows, columns in ((512, 256), (256, 384), (512, 384)))
    odd_a.copy_(a)
    odd_b.copy_(b)
    product.run([odd_a, odd_b], outputs=[odd_out])
    check(odd_out, a, b)
    # The output begins where "b" ends, less a row.
    shared = torch.empty(255 + 512, 384, device="cuda")
    shared[:256] = b
    product.run([a, shared[:256]], outputs=[shared[255:]])
    check(shared[255:], a, b)
    check(product(a, b), a, b)


def test_a_run_waits_for_the_callers_stream_and_is_waited_for(product, operands):
    a, b = operands
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(20):
            torch.cuda._sleep(20_000_000)  # what reads too early reads the values of before
            changed = a * 2
            result = product(changed, b) + 1
            del changed
    stream.synchronize()
    check(result - 1, a * 2, b)


def test_arrays_of_the_host_are_copied(product, operands):
    a, b = (tensor.cpu().numpy() for tensor in operands)
    got = product(a, b)
    assert isinstance(got, np.ndarray)
    np.testing.assert_allclose(got, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-3)


def test_tensors_of_the_host_and_the_gpu_are_an_error(product, operands):
    a, b = operands
    with pytest.raises(dp.InvalidArgumentError):
        product(a.cpu(), b)


def test_threads_have_streams_of_their_own(product, operands):
    a, b = operands
    torch.cuda.synchronize()
    errors = []

    def work(factor):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(50):
                    result = product(a * factor, b)
                torch.cuda.current_stream().synchronize()
            check(result, a * factor, b)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k + 1,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_sizes_of_a_plan_and_between_plans(weight, tmp_path):
    dp.build(dense_model(weight), "cuda", out=tmp_path / "dense", dims={"batch": [4]}, measure=False)
    package = dp.load(tmp_path / "dense")
    with pytest.raises(dp.InvalidArgumentError, match="would have to be padded to batch=4, which is done in memory of the host alone"):
        package(torch.randn(3, weight.shape[0], device="cuda"))
    x = torch.randn(4, weight.shape[0], device="cuda")
    y, negative = package(x)
    torch.testing.assert_close(y, torch.relu(x @ torch.from_numpy(weight).cuda()), rtol=1e-4, atol=1e-4)
    assert torch.equal(negative, -x)


class _Layers(torch.nn.Module):
    """Returns what each layer computes, as transformers return their caches."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(6))

    def forward(self, x):
        results = []
        for layer in self.layers:
            x = torch.tanh(layer(x))
            results += [x, x.view(-1, 8, 8).permute(1, 0, 2)]
        return results


def test_torch_compile_with_many_results(tmp_path):
    torch._dynamo.reset()
    dp.explain_fallbacks(clear=True)
    torch.manual_seed(1)
    model = _Layers().eval().cuda()
    run = torch.compile(model, backend="diapason", options={"cache": str(tmp_path / "cache")})
    kept = []
    with torch.no_grad():
        for number in range(8):
            x = torch.randn(32, 64, device="cuda")
            results = run(x)
            if number % 3 != 0:  # others are freed, and their memory is given out again
                kept.append((x, results))
        for x, results in kept:
            for got, wanted in zip(results, model(x), strict=True):
                assert got.stride() == wanted.stride()
                torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)
    assert dp.explain_fallbacks() == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_torch_compile(tmp_path, dtype):
    torch._dynamo.reset()
    dp.explain_fallbacks(clear=True)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
                                torch.nn.Flatten(), torch.nn.Linear(256, 10), torch.nn.Softmax(-1)).eval().to("cuda", dtype)
    run = torch.compile(model, backend="diapason", options={"cache": str(tmp_path / "cache")})
    x = torch.randn(2, 3, 16, 16, device="cuda", dtype=dtype)
    with torch.no_grad():
        for _ in range(3):
            got = run(x)
            torch.testing.assert_close(got, model(x), rtol=2e-2, atol=2e-3)
    assert dp.explain_fallbacks() == []
