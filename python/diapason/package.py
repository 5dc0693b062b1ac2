"""Packages: networks that were built for a device, loaded and run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _runtime


@dataclass(frozen=True)
class Port:
    """An input or output of a package.

    Attributes:
        name: its name in the network.
        dtype: the element type, as NumPy names it: ``"float32"``, ``"int64"``, ``"bool"``; or ``"bfloat16"``, for which NumPy needs
            the package ml_dtypes.
        shape: extents; -1 where an extent depends on the sizes of symbolic dimensions.
        symbols: by axis, the symbolic dimension that an extent of -1 is proportional to; ``None`` for others.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    symbols: tuple[str | None, ...]

    def _text(self) -> str:
        extents = [str(extent) if extent >= 0 else symbol or "?" for extent, symbol in zip(self.shape, self.symbols)]
        return f"{self.name} {self.dtype}" + (f" {'x'.join(extents)}" if extents else "")


class Package:
    """A network that was built for a device, with its weights and kernels loaded. Made by :func:`diapason.load`.

    All methods may be called from any thread. Calls of several threads run at the same time; each needs memory of its own for
    intermediate tensors, which later calls use again.
    """

    def __init__(self, package: _runtime.Package, path: str) -> None:
        self._package = package
        self._path = path
        self._inputs = tuple(Port(*port) for port in package.inputs())
        self._outputs = tuple(Port(*port) for port in package.outputs())

    @property
    def network(self) -> str:
        """The name of the network: ``"resnet-18"``."""
        return self._package.network()

    @property
    def target(self) -> str:
        """What it was built for: ``"cpu -num-cores=2"``."""
        return self._package.target()

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs, in the order in which calls take them."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The outputs, in the order in which calls return them."""
        return self._outputs

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbolic dimensions; none where all shapes are fixed."""
        return tuple(self._package.symbols())

    @property
    def plans(self) -> tuple[dict[str, int], ...]:
        """The combinations of sizes of symbolic dimensions that the package was built for; one empty one without symbols."""
        return tuple(dict(zip(self.symbols, sizes)) for sizes in self._package.plans())

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Runs the network.

        Args:
            *arrays: the inputs in order: NumPy arrays, PyTorch tensors, or anything else with ``__dlpack__``. Shapes and element
                types are those of :attr:`inputs`; sizes of symbolic dimensions follow from the shapes. Arrays are dense, in
                row-major order, and all on the host, or (cuda) all on the package's GPU. They are read where they are.
            **named: inputs by name, in place of positions.

        Returns:
            The output where there is one, else a tuple in the order of :attr:`outputs`. They are of the same library as the first
            input (NumPy, PyTorch, or what its ``__array_namespace__`` names) and on the same device.

        Raises:
            InvalidArgumentError: inputs are missing or unknown, or of another shape, type or device than the package wants.
            TypeError: an input is no array.
            UnavailableError: an output is of type bfloat16, the first input is a NumPy array, and ml_dtypes is not installed.
            Error: the run failed.
        """
        inputs = self._ordered(arrays, named)
        results = self.run(inputs)
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None, stream: int | None = None) -> list[Any]:
        """Runs the network on inputs and, if given, into outputs.

        Args:
            inputs: all inputs in order, as in calls.
            outputs: writable arrays for all outputs in order; ``None``: new ones are made.
            stream: cuda, with inputs on the GPU: the handle of the stream that the run is put into, without waiting for it. The
                default is PyTorch's current stream for its tensors, and CUDA's default stream for others. What reads the outputs
                must be in that stream or wait for it.

        Returns:
            The outputs in order.

        Raises:
            As :meth:`__call__`.
        """
        _check_listed(inputs, "inputs")
        if outputs is not None:
            _check_listed(outputs, "outputs")
        given = [_plain(array, port, "input") for array, port in _paired(inputs, self._inputs)]
        into = None if outputs is None else [_plain(array, port, "output") for array, port in _paired(outputs, self._outputs)]
        example = inputs[0] if inputs else None
        if into is None:
            self._check_types_of_numpy(example)
        results = self._package.run(given, into, _stream_of(example) if stream is None else stream)
        if outputs is not None:
            return list(outputs)
        convert = _converter(example)
        return [convert(result, port.dtype) for result, port in zip(results, self._outputs)]

    def _run_at(self, inputs: list[int], outputs: list[int], gpu: int, stream: int) -> None:
        """As :meth:`run` of a package with fixed shapes, on memory at these addresses: of the host if `gpu` is -1, else of that GPU."""
        self._package.run_at(inputs, outputs, gpu, stream)

    def _run_tensors(self, inputs: list[Any], stream: int) -> list[Any]:
        """As :meth:`run` of tensors of PyTorch that need no gradients."""
        from_dlpack = sys.modules["torch"].from_dlpack
        return [from_dlpack(result) for result in self._package.run(inputs, None, stream)]

    def _check_types_of_numpy(self, example: Any) -> None:
        """Before a run, whose outputs could not be handed over."""
        if not _becomes_numpy(example) or _bfloat16_of_numpy() is not None:
            return
        for port in self._outputs:
            if port.dtype == "bfloat16":
                raise _make("UNAVAILABLE", f"output {port.name!r} is of type bfloat16, which NumPy does not have: install ml_dtypes "
                            "(pip install ml_dtypes), or give PyTorch tensors")

    def _ordered(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        names = [port.name for port in self._inputs]
        if not named and len(arrays) == len(names):
            return list(arrays)
        wanted = ", ".join(repr(name) for name in names)
        if len(arrays) > len(names):
            raise _invalid(f"{len(arrays)} inputs were given, and the package has {len(names)}: {wanted}")
        values: dict[str, Any] = dict(zip(names, arrays))
        for name, array in named.items():
            if name not in names:
                raise _invalid(f"the package has no input {name!r}; its inputs are {wanted}")
            if name in values:
                raise _invalid(f"input {name!r} was given by position and by name; give it once")
            values[name] = array
        for name in names:
            if name not in values:
                raise _invalid(f"input {name!r} is missing; the inputs of the package are {wanted}")
        return [values[name] for name in names]

    def __repr__(self) -> str:
        takes, gives = (", ".join(port._text() for port in ports[:3]) + (", ..." if len(ports) > 3 else "") for ports in (self._inputs, self._outputs))
        return f"<diapason.Package {self.network} for {self.target}, from {self._path!r}: {takes} -> {gives}>"


def load(path: str | os.PathLike[str], device: int | None = None, threads: int = 0) -> Package:
    """Loads a package that ``diapason.build`` or ``diapason build`` made.

    Loading executes the package's native code with the rights of the process: load only packages that you or people whom you trust
    have built, from folders that others cannot write to.

    Args:
        path: the folder of the package, or its ``.dpk`` file.
        device: cuda: the number of the GPU; ``None``: the one that the package names, 0 unless it was built for another.
        threads: cpu: threads of a run; 0: as many as the package was built for.

    Raises:
        NotFoundError: there is no package.
        UnavailableError: there is no GPU or driver, or a library that the package calls is missing.
        Error: the package is damaged, or was built for another device or by another version.
    """
    if threads < 0:
        raise _invalid(f"threads is {threads}; give 0 for as many as the package was built for, or a number above 0")
    folder = os.fspath(path)
    return Package(_runtime.Package(folder, -1 if device is None else device, threads), folder)


def _make(code: str, text: str) -> Exception:
    from .errors import _make_error

    return _make_error(code, text)


def _invalid(text: str) -> Exception:
    return _make("INVALID_ARGUMENT", text)


def _check_listed(arrays: Any, what: str) -> None:
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(f"{what} is a {type(arrays).__name__}: give a list of arrays, in the order of the package's {what}")


def _paired(arrays: Sequence[Any], ports: tuple[Port, ...]) -> list[tuple[Any, Port | None]]:
    """Arrays beyond the last port have none; the library says that there are too many."""
    return [(array, ports[i] if i < len(ports) else None) for i, array in enumerate(arrays)]


def _bfloat16_of_numpy() -> Any:
    """The element type of ml_dtypes; None where that is not installed."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    return ml_dtypes.bfloat16


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_numpy(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _becomes_numpy(example: Any) -> bool:
    """Whether outputs are NumPy arrays, where this is the first input; on a GPU they are not."""
    if _is_torch(example):
        return False
    of_another = example is not None and hasattr(example, "__array_namespace__") and not type(example).__module__.startswith("numpy")
    return not of_another and (not hasattr(example, "__dlpack_device__") or example.__dlpack_device__()[0] in (1, 3))


def _plain(array: Any, port: Port | None, kind: str) -> Any:
    if _is_torch(array):
        return array.detach()  # PyTorch exports no tensors that are part of a graph of gradients.
    if not _is_numpy(array):
        return array
    name = f"{kind} {port.name!r}" if port is not None else kind
    if not array.dtype.isnative:
        raise _invalid(f"{name} has elements in the other byte order ({array.dtype.str}): give array.astype(array.dtype.newbyteorder('='))")
    if array.dtype.kind not in "biufV":
        raise _invalid(f"{name} has elements of type {array.dtype.name}, which no package has: give an array of numbers")
    if kind == "output" and not array.flags.writeable:
        raise _invalid(f"{name} is read-only: give a writable array")
    if array.dtype.name == "bfloat16" and (kind == "input" or array.flags.writeable):  # of ml_dtypes, which NumPy does not export
        return _runtime.bfloat16_of_bits(array.view("uint16"))
    if port is not None and port.dtype == "bfloat16" and array.dtype.name != "bfloat16":
        raise _invalid(f"{kind} {port.name!r} is {array.dtype.name}; the package wants bfloat16, which NumPy does not have: give a PyTorch tensor, or "
                       "an array of ml_dtypes.bfloat16 (pip install ml_dtypes)")
    return array


def _stream_of(example: Any) -> int:
    if _is_torch(example) and example.is_cuda:
        return int(sys.modules["torch"].cuda.current_stream(example.device).cuda_stream)
    return 0


def _converter(example: Any) -> Callable[[Any, str], Any]:
    """What makes an array of an output, given its element type."""
    if _is_torch(example):
        from_dlpack = sys.modules["torch"].from_dlpack
        return lambda result, dtype: from_dlpack(result)
    if example is not None and hasattr(example, "__array_namespace__") and not type(example).__module__.startswith("numpy"):
        of_library = example.__array_namespace__().from_dlpack
        return lambda result, dtype: of_library(result)
    import numpy

    bfloat16 = _bfloat16_of_numpy()

    def to_numpy(result: Any, dtype: str) -> Any:
        # What is on a GPU and of no library that is known here stays as it is: an object with __dlpack__.
        if result.__dlpack_device__()[0] != 1:
            return result
        if dtype == "bfloat16":
            return numpy.asarray(_runtime.bits_of_bfloat16(result)).view(bfloat16)
        return numpy.asarray(result)

    return to_numpy
