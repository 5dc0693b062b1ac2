"""Packages that the tests run, made by the program of the build tree."""

import os
import pathlib
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

PROGRAM = os.environ["DIAPASON_PROGRAM"]
os.environ["DIAPASON_RECORDS"] = ""  # what is built here does not depend on the records that come with the program


def build(folder: pathlib.Path, *args: str) -> str:
    done = subprocess.run([PROGRAM, "build", *args, "--target", "cpu -num-cores=1", "--out", str(folder), "--no-check", "--no-measure"],
                          capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return str(folder)


def dense_model(weight: np.ndarray) -> onnx.ModelProto:
    """relu(x @ weight) and -x, with a symbolic first dimension "batch"."""
    inner, outer = weight.shape
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weight"], ["product"]), helper.make_node("Relu", ["product"], ["y"]),
         helper.make_node("Neg", ["x"], ["negative"])],
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", inner])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", outer]),
         helper.make_tensor_value_info("negative", TensorProto.FLOAT, ["batch", inner])],
        [numpy_helper.from_array(weight, "weight")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="session")
def weight():
    return np.random.default_rng(3).standard_normal((8, 12), dtype=np.float32)


@pytest.fixture(scope="session")
def model(weight):
    return dense_model(weight)


@pytest.fixture(scope="session")
def gemm(tmp_path_factory):
    """The product of an input "a" of 16x8 and an input "b" of 8x12."""
    return build(tmp_path_factory.mktemp("packages") / "gemm", "gemm", "--set", "m=16", "--set", "k=8", "--set", "n=12", "--set", "constant=0")


@pytest.fixture(scope="session")
def dense(tmp_path_factory, model):
    """dense_model with plans for a batch of 1 and of 4."""
    folder = tmp_path_factory.mktemp("packages")
    onnx.save(model, folder / "dense.onnx")
    return build(folder / "dense", str(folder / "dense.onnx"), "--dim", "batch=1,4")


@pytest.fixture(scope="session")
def bfloat16(tmp_path_factory):
    """x + 1 of 2x3, in bfloat16."""
    graph = helper.make_graph([helper.make_node("Add", ["x", "one"], ["y"])], "bfloat16",
                              [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [2, 3])],
                              [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [2, 3])],
                              [helper.make_tensor("one", TensorProto.BFLOAT16, [], [1.0])])
    folder = tmp_path_factory.mktemp("packages")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "bfloat16.onnx")
    return build(folder / "bfloat16", str(folder / "bfloat16.onnx"))


@pytest.fixture
def matrices():
    random = np.random.default_rng(1)
    return random.standard_normal((16, 8), dtype=np.float32), random.standard_normal((8, 12), dtype=np.float32)


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    """Of a service with a worker for cpu."""
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
