"""Packages loaded and run: shapes, arrays in and out, threads, and errors."""

import pathlib
import sys
import threading

import diapason as dp
import ml_dtypes
import numpy as np
import pytest


class OnlyDlpack:
    """A tensor of another library: what NumPy's has, but for the buffer."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_a_package_describes_its_inputs_and_outputs(gemm):
    package = dp.load(gemm)
    assert package.network == "gemm"
    assert package.target == "cpu -num-cores=1"
    assert [(port.dtype, port.shape, port.symbols) for port in package.inputs] == [("float32", (16, 8), (None, None)), ("float32", (8, 12), (None, None))]
    assert [port.shape for port in package.outputs] == [(16, 12)]
    assert package.symbols == ()
    assert package.plans == ({},)
    assert repr(package) == f"<diapason.Package gemm for cpu -num-cores=1, from {gemm!r}: a float32 16x8, b float32 8x12 -> output float32 16x12>"


def test_arrays_come_in_by_position_and_by_name(gemm, matrices):
    package = dp.load(pathlib.Path(gemm))
    a, b = matrices
    result = package(a, b)
    assert isinstance(result, np.ndarray) and result.dtype == np.float32
    np.testing.assert_allclose(result, a @ b, rtol=1e-5, atol=1e-5)
    first, second = (port.name for port in package.inputs)
    np.testing.assert_array_equal(package(a, **{second: b}), result)
    np.testing.assert_array_equal(package(**{second: b, first: a}), result)


def test_tensors_of_other_libraries_come_in_by_dlpack(gemm, matrices):
    a, b = matrices
    np.testing.assert_allclose(dp.load(gemm)(OnlyDlpack(a), OnlyDlpack(b)), a @ b, rtol=1e-5, atol=1e-5)


def test_arrays_that_are_read_only_come_in(gemm, matrices):
    a, b = matrices
    a.flags.writeable = b.flags.writeable = False
    np.testing.assert_allclose(dp.load(gemm)(a, b), a @ b, rtol=1e-5, atol=1e-5)


def test_outputs_are_new_at_each_run_and_outlive_the_package(gemm, matrices):
    a, b = matrices
    package = dp.load(gemm)
    first = package(a, b)
    second = package(a + 1, b)
    del package
    np.testing.assert_allclose(first, a @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(second, (a + 1) @ b, rtol=1e-5, atol=1e-5)


def test_outputs_are_written_where_the_caller_wants_them(gemm, matrices):
    a, b = matrices
    out = np.zeros((16, 12), np.float32)
    (returned,) = dp.load(gemm).run([a, b], outputs=[out])
    assert returned is out
    np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)


def test_bfloat16_is_that_of_ml_dtypes(bfloat16):
    package = dp.load(bfloat16)
    assert [port.dtype for port in package.inputs + package.outputs] == ["bfloat16", "bfloat16"]
    x = np.array([[1, 2, 255], [0.0078125, -1, 2.0**100]]).astype(ml_dtypes.bfloat16)
    x.flags.writeable = False
    y = package(x)
    want = np.array([[2, 3, 256], [1.0078125, 0, 2.0**100]])
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(y.astype(np.float64), want)
    out = np.zeros((2, 3), ml_dtypes.bfloat16)
    (returned,) = package.run([x], outputs=[out])
    assert returned is out
    np.testing.assert_array_equal(out.astype(np.float64), want)
    out.flags.writeable = False
    with pytest.raises(dp.InvalidArgumentError, match="^output 'y' is read-only: give a writable array$"):
        package.run([x], outputs=[out])


def test_bfloat16_from_numpy_alone_is_an_error_that_says_what_to_give(bfloat16, gemm, matrices, monkeypatch):
    package = dp.load(bfloat16)
    with pytest.raises(dp.InvalidArgumentError) as caught:
        package(np.zeros((2, 3), np.float32))
    assert str(caught.value) == ("input 'x' is float32; the package wants bfloat16, which NumPy does not have: give a PyTorch tensor, or an array of "
                                 "ml_dtypes.bfloat16 (pip install ml_dtypes)")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)  # as if it were not installed
    with pytest.raises(dp.UnavailableError) as caught:
        package(OnlyDlpack(np.zeros((2, 3), np.float32)))
    assert str(caught.value) == ("output 'y' is of type bfloat16, which NumPy does not have: install ml_dtypes (pip install ml_dtypes), or give PyTorch "
                                 "tensors")
    a, b = matrices
    dp.load(gemm)(a, b)  # others do not need it


def test_shapes_choose_the_plan(dense, weight):
    package = dp.load(dense)
    assert package.symbols == ("batch",)
    assert package.plans == ({"batch": 1}, {"batch": 4})
    assert [(port.name, port.shape, port.symbols) for port in package.inputs] == [("x", (-1, 8), ("batch", None))]
    for batch in (1, 3, 4):  # 3 is padded
        x = np.random.default_rng(batch).standard_normal((batch, 8), dtype=np.float32)
        y, negative = package(x)
        np.testing.assert_allclose(y, np.maximum(x @ weight, 0), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(negative, -x)


def test_threads_share_a_package(dense, weight):
    package = dp.load(dense, threads=1)
    wrong = []

    def work(seed):
        random = np.random.default_rng(seed)
        for batch in random.integers(1, 5, 50):
            x = random.standard_normal((batch, 8), dtype=np.float32)
            y, negative = package(x)
            if not (np.allclose(y, np.maximum(x @ weight, 0), atol=1e-5) and np.array_equal(negative, -x)):
                wrong.append((seed, batch))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_wrong_inputs_are_errors_with_the_text_of_the_library(gemm, matrices):
    a, b = matrices
    package = dp.load(gemm)
    first, second = (port.name for port in package.inputs)
    with pytest.raises(ValueError) as caught:
        package(a, b.astype(np.float64))
    assert isinstance(caught.value, dp.InvalidArgumentError)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert str(caught.value) == f"input '{second}' is float64 8x12; the package wants float32 8x12"
    with pytest.raises(ValueError, match=f"^input '{first}' is not dense in row-major order: give a contiguous copy$"):
        package(np.asfortranarray(a), b)
    with pytest.raises(ValueError, match=f"^input '{second}' is missing; the inputs of the package are '{first}', '{second}'$"):
        package(a)
    with pytest.raises(ValueError, match=f"^3 inputs were given, and the package has 2: '{first}', '{second}'$"):
        package(a, b, b)
    with pytest.raises(ValueError, match=f"^the package has no input 'none'; its inputs are '{first}', '{second}'$"):
        package(a, none=b)
    with pytest.raises(ValueError, match=f"^input '{first}' was given by position and by name; give it once$"):
        package(a, **{first: a, second: b})
    with pytest.raises(TypeError, match=f"^input '{first}' is a list, which is no array: give a NumPy array, or a tensor with __dlpack__$"):
        package([[1.0]], b)
    np.testing.assert_allclose(package(a, b), a @ b, rtol=1e-5, atol=1e-5)  # it goes on


def test_sizes_without_a_plan_are_an_error(dense):
    with pytest.raises(dp.InvalidArgumentError, match="batch"):
        dp.load(dense)(np.zeros((5, 8), np.float32))


def test_an_output_that_may_not_be_written_is_an_error(gemm, matrices):
    a, b = matrices
    out = np.zeros((16, 12), np.float32)
    out.flags.writeable = False
    package = dp.load(gemm)
    name = package.outputs[0].name
    with pytest.raises(dp.InvalidArgumentError, match=f"^output '{name}' is read-only: give a writable array$"):
        package.run([a, b], outputs=[out])


def test_as_many_outputs_as_the_package_has(gemm, matrices):
    """Others would be written behind the end of a list, or made and lost."""
    package = dp.load(gemm)
    for count in (0, 2, 8, 64):
        outputs = [np.zeros((16, 12), np.float32) for _ in range(count)]
        with pytest.raises(dp.InvalidArgumentError, match=f"^2 inputs and {count} outputs were given, and the package has 2 and 1: give all of them in order$"):
            package.run(list(matrices), outputs=outputs)


def test_what_is_no_array_of_numbers_is_named(gemm, matrices):
    a, b = matrices
    package = dp.load(gemm)
    first = package.inputs[0].name
    for wrong, sentence in (
        (a.astype(">f4"), f"input '{first}' has elements in the other byte order"),
        (a.astype(object), f"input '{first}' has elements of type object, which no package has"),
        (a.astype(str), f"input '{first}' has elements of type str"),
        (np.zeros((0, 32), np.float32), f"input '{first}' is float32 0x32; the package wants"),
    ):
        with pytest.raises(dp.InvalidArgumentError, match=sentence):
            package(wrong, b)
    for listed in (a, {first: a}, None):
        with pytest.raises(TypeError, match=f"^inputs is a {type(listed).__name__}: give a list of arrays"):
            package.run(listed)
    with pytest.raises(TypeError, match="^outputs is a ndarray: give a list of arrays"):
        package.run([a, b], outputs=np.zeros((16, 12), np.float32))


def test_a_package_may_be_one_file(tmp_path):
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    results = []
    for name in ("folder", "file.dpk"):
        dp.build("gemm", "cpu -num-cores=1", out=tmp_path / name, options={"m": 4, "n": 4, "k": 4})
        results.append(dp.load(tmp_path / name)(x))
    assert (tmp_path / "file.dpk").is_file() and np.any(results[0] != 0)
    np.testing.assert_array_equal(results[1], results[0])


def test_what_is_no_package_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        dp.load(tmp_path / "none")
    assert isinstance(caught.value, dp.NotFoundError)
    assert str(caught.value) == f"there is no file or folder '{tmp_path / 'none'}'; name a folder or a .dpk file made by 'diapason build'"
    with pytest.raises(ValueError, match="^threads is -1; give 0 for as many as the package was built for, or a number above 0$"):
        dp.load(tmp_path, threads=-1)
