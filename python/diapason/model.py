"""Models as calls take them, and the part of the library that tunes and builds."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Union

from .errors import Error, _make_error
from .quiet_exporter import quiet_exporter

if TYPE_CHECKING:
    from . import _tuner

Dims = Mapping[str, Union[int, str, Sequence[int]]]


class DiapasonWarning(UserWarning):
    """A warning of a call that succeeds."""


class ModelOptions(TypedDict, total=False):
    """Keyword arguments of all functions that take a model.

    batch: first extent of every input; the default is the model's, or 1 if it is symbolic.
    layout: ``"NHWC"`` (default) or ``"NCHW"``: layout of images inside the network.
    dtype: type of weights and activations: ``"float32"`` (default), ``"float16"`` or ``"bfloat16"``. On cuda also ``"tf32"`` (float32, with products that may
        be rounded to TensorFloat-32) and ``"mixed"`` (as tf32, for tasks whose result stays within `tolerance`).
    tolerance: largest relative error of a task's result for ``"mixed"``; the default is 1e-3.
    dims: sizes of symbolic dimensions: ``{"batch": [1, 4], "seq": "16..128"}``. Each combination of sizes becomes a plan of the package.
    mask: input that is 1 at real positions of a sequence and 0 at padded ones.
    input_shapes: shapes of inputs that differ from the model's: ``{"x": (1, 3, 224, 224)}``.
    options: options of a built-in network: ``{"image": 64}``.
    strict: reject models that contain float64, which is otherwise computed in float32 with a warning, or have a newer ONNX opset than the known ones.
    name: name in histories of a model given as bytes or as an object; the default is the name of its graph, or "model" if that has none.
    import_memory_gib, import_seconds: limits of the process that reads the model; by default half of the host's memory, and 300.
    """

    batch: int
    layout: str
    dtype: str
    tolerance: float
    dims: Dims | None
    mask: str
    input_shapes: Mapping[str, Sequence[int]]
    options: Mapping[str, Any]
    strict: bool
    name: str
    import_memory_gib: float
    import_seconds: float


def _library() -> Any:
    """The extension that tunes and builds: it is loaded when it is first needed, since packages run without it."""
    from . import _tuner

    program = pathlib.Path(_tuner.__file__).parent.absolute() / "bin" / "diapason"
    if not os.access(program, os.X_OK):
        raise _make_error("UNAVAILABLE", f"the program {program} is missing, which reads models and measures; install the package again")
    _tuner.set_program(str(program))
    return _tuner


_local = threading.local()
_NOT_CALLERS = {"diapason", "torch", "contextlib", "functools", "threading", None}  # None: code that PyTorch generates


def _warn(sentence: str) -> None:
    """Points at the line of the user that called: the innermost one outside this package, and PyTorch where that calls it."""
    kept = getattr(_local, "kept", None)
    if kept is not None:
        kept.append(sentence)
        return
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _module_of(frame) in _NOT_CALLERS:
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, DiapasonWarning, stacklevel=level)


def _module_of(frame: types.FrameType) -> str | None:
    """The top-level package of the code of a frame."""
    name = frame.f_globals.get("__name__")
    return name.partition(".")[0] if isinstance(name, str) else None


@contextlib.contextmanager
def _warnings_kept(kept: list[str]) -> Iterator[None]:
    """Warnings of this thread are added to `kept`, for one that knows who called."""
    _local.kept = kept
    try:
        yield
    finally:
        _local.kept = None


def _invalid(text: str) -> Exception:
    return _make_error("INVALID_ARGUMENT", text)


def _dim_texts(dims: Dims) -> list[str]:
    texts = []
    for symbol, sizes in dims.items():
        text = str(sizes) if isinstance(sizes, (int, str)) else ",".join(str(size) for size in sizes)
        texts.append(f"{symbol}={text}")
    return texts


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip(".") or "model"


def _graph_name(model: Any, made: _tuner.Model) -> str:
    """Of an onnx.ModelProto, or of the bytes of one, which are in `made`'s file too; "": it has none, or is no model, as the library says soon."""
    if hasattr(model, "SerializeToString"):
        return str(getattr(getattr(model, "graph", None), "name", ""))
    try:
        from onnx import ModelProto
    except ImportError:
        try:
            return str(_library().graph_name(made))
        except Error:
            return ""
    from google.protobuf.message import DecodeError

    try:
        return str(ModelProto.FromString(bytes(model)).graph.name)
    except DecodeError:
        return ""


def _is_exported_program(model: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "export") and isinstance(model, torch.export.ExportedProgram)


def _export(program: Any, path: str) -> None:
    import torch

    try:
        with quiet_exporter():
            torch.onnx.export(program, dynamo=True, verbose=False).save(path)
    except ImportError as error:
        raise _make_error("UNAVAILABLE", f"PyTorch cannot export the program to ONNX ({error}); install what it names, for example onnxscript") from error


def _content(model: Any) -> bytes | None:
    """The bytes of a model that is no path; None for others."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    if hasattr(model, "SerializeToString"):  # onnx.ModelProto, without a need of onnx
        return bytes(model.SerializeToString())
    return None


@contextlib.contextmanager
def _model(model: Any, options: ModelOptions) -> Iterator[_tuner.Model]:
    """The model as the library takes it; files that had to be made for it are there meanwhile."""
    made = _library().Model()
    unknown = sorted(set(options) - set(ModelOptions.__annotations__))
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r} of models; these are there: {', '.join(ModelOptions.__annotations__)}")
    made.batch = options.get("batch", 0)
    made.layout = options.get("layout", "NHWC")
    made.dtype = options.get("dtype", "float32")
    made.tolerance = float(options.get("tolerance", 0))
    made.dims = _dim_texts(options.get("dims") or {})
    made.mask = options.get("mask", "")
    made.strict = options.get("strict", False)
    made.input_shapes = {name: list(shape) for name, shape in options.get("input_shapes", {}).items()}
    made.options = {name: str(value) for name, value in options.get("options", {}).items()}
    made.import_memory_gib = float(options.get("import_memory_gib", 0))
    made.import_seconds = float(options.get("import_seconds", 300))
    if isinstance(model, str):
        made.source = model
        yield made
        return
    if isinstance(model, os.PathLike):
        made.source = os.path.abspath(os.fspath(model))
        yield made
        return
    content = _content(model)
    if content is None and not _is_exported_program(model):
        raise TypeError(f"a {type(model).__name__} is no model; give the path of an .onnx file, the name of a built-in network, the bytes of an ONNX "
                        "file, an onnx.ModelProto or a torch.export.ExportedProgram")
    with tempfile.TemporaryDirectory(prefix="diapason_model_") as folder:
        made.source = os.path.join(folder, "model.onnx")
        if content is not None:
            pathlib.Path(made.source).write_bytes(content)
        else:
            _export(model, made.source)
        name = options.get("name") or ("" if content is None else _graph_name(model, made))
        named = os.path.join(folder, _file_name(name) + ".onnx")
        os.rename(made.source, named)
        made.source = named
        yield made
