"""What the pages take for granted: files, numbers that are small in a test, and what stands around a piece of a program."""
import dataclasses
import shutil
import typing

import numpy as np
import onnx
from commands import run
from onnx import TensorProto, helper, numpy_helper

ALL_TASKS = 24  # trials that time every task of the small resnet-18

# In the commands of all pages, in order, after the page's own.
SMALL = [
    (r"submit resnet-18", "submit gemm --set m=16 --set n=16 --set k=16"),
    (r"\bresnet-18 --target cpu", "resnet-18 --set image=32 --target cpu"),
    (r"build gpt2\b", "build gpt2 --set layers=1 --set vocab=1000"),
    (rf"--(seconds \d+|trials (?!{ALL_TASKS}\b)\d{{2,}})", "--trials 8 --min-repeat-ms 1"),
    (r"--target cuda\b", "--target cpu"),
    (r"seq=16\.\.128", "seq=16,32"), (r"seq=128:5", "seq=32:5"),
    (r"diapason ui\b", "diapason ui --http 127.0.0.1:0"),
    (r"diapason run package\b.* --bench", r"\g<0> --duration 0.2"),
    (r"diapason profile package", r"\g<0> --duration 0.2"),
    (r"PREFIX|/opt/diapason", "prefix"),
    (r"openssl pkcs12 -export", r"\g<0> -passout pass:test"),
]
SMALL_PYTHON = [
    (r"seconds=\d+|trials=\d+", "trials=8"), (r'"cuda"', '"cpu"'),
    (r'"resnet-18", "cpu"', '"gemm", "cpu", options={"m": 16, "n": 16, "k": 16}'),
]


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def constants(**arrays):
    return [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]


def save(path, nodes, inputs, outputs, initializers):
    graph = helper.make_graph([helper.make_node(op, takes, gives, **more) for op, takes, gives, more in nodes], path.stem,
                              inputs, outputs, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def save_model(path):
    """relu(x @ weight), with a symbolic batch."""
    weight = np.random.default_rng(3).standard_normal((8, 12), dtype=np.float32)
    save(path, [("MatMul", ["x", "weight"], ["product"], {}), ("Relu", ["product"], ["y"], {})],
         [value("x", TensorProto.FLOAT, ["batch", 8])], [value("y", TensorProto.FLOAT, ["batch", 12])], constants(weight=weight))


def save_bert(path):
    """Attention over embedded tokens, with a mask."""
    random = np.random.default_rng(4)
    nodes = [("Gather", ["table", "input_ids"], ["x"], {}), ("Transpose", ["x"], ["k"], {"perm": [0, 2, 1]}),
             ("MatMul", ["x", "k"], ["scores"], {}), ("Cast", ["attention_mask"], ["mask"], {"to": TensorProto.FLOAT}),
             ("Sub", ["one", "mask"], ["hidden"], {}), ("Mul", ["hidden", "low"], ["penalty"], {}),
             ("Unsqueeze", ["penalty", "middle"], ["spread"], {}), ("Add", ["scores", "spread"], ["masked"], {}),
             ("Softmax", ["masked"], ["weights"], {"axis": -1}), ("MatMul", ["weights", "x"], ["mixed"], {}),
             ("MatMul", ["mixed", "weight"], ["last_hidden_state"], {})]
    save(path, nodes, [value(name, TensorProto.INT64, ["batch", "seq"]) for name in ("input_ids", "attention_mask")],
         [value("last_hidden_state", TensorProto.FLOAT, ["batch", "seq", 8])],
         constants(table=random.standard_normal((11, 8), dtype=np.float32), weight=random.standard_normal((8, 8), dtype=np.float32),
                   one=np.float32(1), low=np.float32(-1e9), middle=np.array([1])))


def readme_files(session):
    save_model(session.folder / "model.onnx")
    save_bert(session.folder / "bert.onnx")
    # Between the sizes of the plans, so that the inputs are padded.
    np.save(session.folder / "ids.npy", np.arange(3 * 20).reshape(3, 20) % 11)
    np.save(session.folder / "mask.npy", np.ones((3, 20), np.int64))


def network_files(session):
    """A history of resnet-18, the package that is built of it, and an input."""
    for name in ("h.db", "package"):
        shared = session.resnet() / name
        shutil.copytree(shared, session.folder / name) if shared.is_dir() else shutil.copy(shared, session.folder)
    np.save(session.folder / "image.npy", np.zeros((1, 32, 32, 3), np.float32))


def runtime_files(session):
    network_files(session)
    shutil.copy(session.source / "examples/run_package.c", session.folder)


def history_files(session):
    """Four records as those of the page: of its JSON, with other times."""
    header, record = session.json()
    lines = [header]
    for number, us in enumerate([414.1, 909.0, None, 252.5]):
        one = {**record, "uuid": f"{number + 16:032x}"}
        del one["checksum"]
        if us is None:
            del one["timing"]
            one["error"] = {"kind": "run_timeout", "stage": "run", "text": "the deadline was over"}
        else:
            one["timing"] = {**record["timing"], "samples": [us * 1e-6] * 3, "raced_out": us == 909.0}
        if number != 3:
            one["verified"] = "unknown"
            del one["max_error"]
        lines.append(one)
    session.import_lines("H.db", lines)
    shutil.copy(session.folder / "H.db", session.folder / "broken.db")


def page_files(session):
    network_files(session)
    run("bash", session.source / "deploy/make-certs.sh", session.folder, "--host", "127.0.0.1", "client")


def library_files(session):
    network_files(session)
    save_model(session.folder / "model.onnx")


def python_files(session):
    save_model(session.folder / "model.onnx")
    run("bash", session.source / "deploy/make-certs.sh", session.folder / "certs", "--host", "127.0.0.1", "client")
    shutil.copy(session.folder / "certs/submitter.token", session.folder / "token")
    address = session.local("gpu-host:9190")
    session.start(f"diapason serve --listen {address} --history served.db --tokens certs/tokens")
    session.start(f"diapason worker --tracker {address} --devices cpu --token-file certs/worker.token")


README_PYTHON = """
import numpy as np
image = np.ones((16, 16), np.float32)
"""
PYTHON = """
import numpy as np
import onnx
import diapason as dp
model, image = onnx.load("model.onnx"), np.ones((1, 8), np.float32)
workload = dp.tasks("model.onnx", "cpu").tasks[0].workload
"""
RUN_PACKAGE = """#include <diapason/runtime.h>
#include <stdio.h>
static float image[32 * 32 * 3], scores[1000];
int main(void) {
%s
  for (int i = 0; i < 1000; ++i)
    if (scores[i] != 0) return 0;
  fprintf(stderr, "no scores\\n");
  return 1;
}
"""
BUILD = """#include <cstdio>
int main() {
%s
  if (!built.ok()) std::puts(built.status().ToString().c_str());
  return built.ok() ? 0 : 1;
}
"""
REGISTRY = """#include <memory>
#include <vector>
#include "compiler/tensor/target.h"
#include "scheduler/sketch/rule.h"
namespace diapason {
std::unique_ptr<SketchRule> MakeOuterParallel();
void Registry(const Target& target, std::vector<std::unique_ptr<SketchRule>>& rules) {
%s
}
}  // namespace diapason
"""
PROJECT = """cmake_minimum_required(VERSION 3.16)
project(page LANGUAGES C CXX)
file(WRITE ${CMAKE_BINARY_DIR}/main.cc "int main() { return 0; }")
add_executable(%s ${CMAKE_BINARY_DIR}/main.cc)
"""


@dataclasses.dataclass
class Page:
    files: typing.Callable = lambda session: None
    python: str = ""  # runs before the page's own
    replacements: list = dataclasses.field(default_factory=list)  # in commands and in what they print
    around: dict = dataclasses.field(default_factory=dict)  # what a piece of a program begins with: a program with a %s


PAGES = {
    "README.md": Page(readme_files, README_PYTHON, [("time limit reached", "all trials are done"), (r"tune resnet-18 (.*) --seconds 120", rf"tune resnet-18 \1 --trials {ALL_TASKS}")],
                      {"diapason_package*": RUN_PACKAGE}),
    "docs/export.md": Page(network_files),
    "docs/fleet.md": Page(),
    "docs/history.md": Page(history_files),
    "docs/library.md": Page(library_files, around={"#include <diapason/compiler.h>": BUILD}),
    "docs/page.md": Page(page_files),
    "docs/profile.md": Page(network_files),
    "docs/python.md": Page(python_files, PYTHON),
    "docs/runtime.md": Page(runtime_files),
    "docs/tour.md": Page(around={"if (!target.is_gpu())": REGISTRY}),
}


def page(name):
    return PAGES.get(name, Page())
