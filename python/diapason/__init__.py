"""Diapason: neural networks made fast on a device by search and measurement.

    import diapason as dp

    dp.tune("model.onnx", target="cpu", history="h.db", seconds=600)
    dp.build("model.onnx", target="cpu", history="h.db", out="package")
    package = dp.load("package")
    scores = package(image)            # NumPy in, NumPy out; PyTorch in, PyTorch out

See docs/python.md.
"""

from ._runtime import version as __version__
from .compiler import (BuildReport, BuiltPlan, BuiltTask, FusionChoice, ModelInput, NetworkCheck, Padding, PlanTasks, RefinedRecords, Task, TaskList, WrongRecord,
                       build, tasks)
from .errors import Error, InvalidArgumentError, NotFoundError, ResourceExhaustedError, UnavailableError
from .explanation import Explanation, Failure, Measurement, Share, explain
from .fallbacks import Fallback, explain_fallbacks
from .fleet import Fleet
from .history import History, HistoryProblems, HistorySummary, Record, copy_history, import_history, prune_history
from .model import DiapasonWarning, ModelOptions
from .package import Package, Port, load
from .service import Job, Service
from .torch_options import CompileOptions
from .tuning import Progress, TaskProgress, TuneResult, tune

__all__ = [
    "BuildReport",
    "BuiltPlan",
    "BuiltTask",
    "CompileOptions",
    "DiapasonWarning",
    "Error",
    "Explanation",
    "Failure",
    "Fallback",
    "Fleet",
    "FusionChoice",
    "History",
    "HistoryProblems",
    "HistorySummary",
    "InvalidArgumentError",
    "Job",
    "Measurement",
    "ModelInput",
    "ModelOptions",
    "NetworkCheck",
    "NotFoundError",
    "Package",
    "Padding",
    "PlanTasks",
    "Port",
    "Progress",
    "Record",
    "RefinedRecords",
    "ResourceExhaustedError",
    "Service",
    "Share",
    "Task",
    "TaskList",
    "TaskProgress",
    "TuneResult",
    "UnavailableError",
    "WrongRecord",
    "__version__",
    "build",
    "copy_history",
    "explain",
    "explain_fallbacks",
    "import_history",
    "load",
    "prune_history",
    "tasks",
    "tune",
]
