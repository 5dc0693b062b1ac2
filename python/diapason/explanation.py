"""Candidates in readable form: records of a history, and candidates of a network's tasks."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import Any

if sys.version_info >= (3, 11):
    from typing import Unpack
else:
    from typing_extensions import Unpack

from .model import ModelOptions, _library, _model, _warn
from .readable import duration, shown


@dataclass(frozen=True)
class Measurement:
    """How long a record's program took.

    Attributes:
        median_us, samples_us: microseconds per run.
        runs_per_sample: how many runs a sample is the mean of.
        stopped_early: the measurement was stopped early, since the candidate was clearly slower than the best.
        gflops_per_s: arithmetic operations per second, in billions.
    """

    median_us: float
    samples_us: list[float]
    runs_per_sample: int
    stopped_early: bool
    gflops_per_s: float


@dataclass(frozen=True)
class Failure:
    """Why a record has no time: the kind of the error, the stage that it occurred in, and a sentence."""

    kind: str
    stage: str
    text: str


@dataclass(frozen=True)
class Share:
    """How often a network has the task, and the task's share of the network's time with the best records of the same target and device."""

    network: str
    count: float
    share: float


@dataclass(frozen=True)
class Explanation:
    """A candidate: its schedule as steps, loops and source, and its numbers. A part that cannot be derived is empty, and ``problem`` says why.

    Attributes:
        record: id of the record; None: a candidate of a task, without a measurement.
        workload, task, target, device: what the candidate computes, and what it was compiled for and measured on.
        algorithm, sketch, configuration: the schedule: names, and values of the tunable parameters by name.
        measured, failed: the result of the measurement, of which a record has one.
        predicted_us, analytic_us: what the cost model said when the candidate was chosen, and the analytic estimate; None: not known.
        verification, verification_text: "unknown", "ok", "failed" or "wrong_in_network", and what was found.
        computation, rewrite: the task, and what the algorithm makes of it where that changes it.
        steps, loops, source: the schedule, and the kernels.
        features: what the cost model sees, by name.
        shares: of networks that have the task.
        sketch_times_us: of a candidate of a task: the analytic estimates of all sketches with their default configurations, the fastest first.
    """

    record: int | None
    workload: str
    task: str
    target: str
    device: str
    algorithm: str
    sketch: str
    configuration: dict[str, int]
    measured: Measurement | None
    failed: Failure | None
    predicted_us: float | None
    analytic_us: float | None
    verification: str
    verification_text: str
    computation: str = field(repr=False)
    rewrite: str = field(repr=False)
    steps: str = field(repr=False)
    loops: str = field(repr=False)
    source: str = field(repr=False)
    problem: str
    features: dict[str, float] = field(repr=False)
    shares: list[Share]
    sketch_times_us: dict[str, float]

    def __repr__(self) -> str:
        what = "candidate" if self.record is None else f"record {self.record}"
        time = "" if self.measured is None else duration(self.measured.median_us)
        if self.measured is None and self.analytic_us is not None:
            time = f"estimated {duration(self.analytic_us)}"
        failed = "" if self.failed is None else f"failed: {self.failed.kind}"
        return shown("Explanation", [f"{what} of {self.task}", self.target, self.sketch, time, failed, self.problem])


def _explanation(found: dict[str, Any]) -> Explanation:
    made = {"configuration": dict(found["configuration"]), "features": dict(found["features"]), "sketch_times_us": dict(found["sketch_times_us"]),
            "shares": [Share(**one) for one in found["shares"]],
            "measured": None if found["measured"] is None else Measurement(**found["measured"]),
            "failed": None if found["failed"] is None else Failure(**found["failed"])}
    return Explanation(**{**found, **made})


def explain(model: Any, target: str, task: int | str, sketch: str | None = None, parameters: dict[str, int] | None = None,
            **options: Unpack[ModelOptions]) -> Explanation:
    """A candidate of a network's task in readable form. Neither a history nor the device is needed. :meth:`diapason.History.explain` explains records.

    Args:
        model, target, **options: as :func:`diapason.tasks`.
        task: its number or its name, as :func:`diapason.tasks` lists them.
        sketch: the sketch; None: that of the fallback schedule.
        parameters: values of the sketch's tunable parameters by name; the others have their defaults.

    Raises:
        InvalidArgumentError: the task, the sketch or a parameter does not exist, or a value is not legal; the message lists those that are.
    """
    choice = _library().CandidateChoice()
    choice.target, choice.task, choice.sketch, choice.parameters = target, str(task), sketch or "", dict(parameters or {})
    with _model(model, options) as source:
        return _explanation(_library().explain_candidate(source, choice, _warn))


def _explain_record(history: str | os.PathLike[str], record: int) -> Explanation:
    return _explanation(_library().explain_record(os.fspath(history), record))
