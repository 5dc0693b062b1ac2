"""Diapason: neural networks made fast on a device by search and measurement.

    import diapason as dp

    package = dp.load("package")       # a folder made by `diapason build`
    scores = package(image)            # NumPy in, NumPy out; PyTorch in, PyTorch out

See docs/python.md.
"""

from ._runtime import version as __version__
from .errors import Error, InvalidArgumentError, NotFoundError, ResourceExhaustedError, UnavailableError
from .package import Package, Port, load

__all__ = [
    "Error",
    "InvalidArgumentError",
    "NotFoundError",
    "Package",
    "Port",
    "ResourceExhaustedError",
    "UnavailableError",
    "__version__",
    "load",
]
