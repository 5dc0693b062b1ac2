"""Tuning on the devices of this host, or of a fleet."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

if sys.version_info >= (3, 11):
    from typing import Unpack
else:
    from typing_extensions import Unpack

from .compiler import FusionChoice, NetworkCheck, _check
from .errors import _make_error
from .fleet import Fleet
from .model import ModelOptions, _library, _model
from .progress_line import progress_line
from .readable import count, duration, seconds_text, shown


@dataclass(frozen=True)
class TaskProgress:
    """A task while it is tuned.

    Attributes:
        id, name, workload: as in :class:`diapason.Task`.
        count: times it runs with the best fusion so far.
        trials, failed: measurements, those in the history before this run included, and those without a time.
        best_us, gflops_per_s, fallback_us: of the best record, and of the fallback schedule; None: not known.
        verified: the best record's result was compared with the reference implementation.
        record, sketch: of the best.
        tuned: in this run; others count, but get no trials.
    """

    id: int
    name: str
    workload: str
    count: float
    trials: int
    failed: int
    best_us: float | None
    fallback_us: float | None
    gflops_per_s: float | None
    verified: bool
    record: int | None
    sketch: str
    tuned: bool

    def __repr__(self) -> str:
        best = "" if self.best_us is None else f"best {duration(self.best_us)} (fallback {duration(self.fallback_us)}) by {self.sketch}"
        return shown("TaskProgress", [f"{self.id} {self.name}", f"count {self.count:g}",
                                      count(self.trials, "trial") + (f" ({self.failed} failed)" if self.failed else ""), best])


@dataclass(frozen=True)
class Progress:
    """The state of a run at one moment.

    Attributes:
        elapsed_s: seconds since its start.
        trials, measured, failed: measurements in all, those in the history before this run included; by this run; failed ones of all.
        trial_limit, time_limit_s, time_left_s: None: no limit, or not known.
        estimated_us: latency of the network with the best records; None while a task has no time.
        estimated_fallback_us: the same with fallback schedules.
        candidates: that the search evaluated.
        errors: how many candidates of this run failed, by kind.
    """

    elapsed_s: float
    trials: int
    measured: int
    failed: int
    trial_limit: int | None
    time_limit_s: float | None
    time_left_s: float | None
    estimated_us: float | None
    estimated_fallback_us: float | None
    candidates: int
    errors: dict[str, int]
    tasks: list[TaskProgress]

    def __repr__(self) -> str:
        return shown("Progress", [self._text()])

    def _text(self) -> str:
        limit = "" if self.trial_limit is None else f"/{self.trial_limit}"
        left = "" if self.time_left_s is None else f", left {self.time_left_s:.0f} s"
        timed = sum(task.best_us is not None for task in self.tasks)
        return (f"{self.trials}{limit} trials in {seconds_text(self.elapsed_s)}, {timed} of {len(self.tasks)} tasks timed, "
                f"estimate {duration(self.estimated_us)}{left}")


@dataclass(frozen=True)
class TuneResult:
    """What a run ended with.

    Attributes:
        progress: the last state.
        stop_reason: why it ended.
        fusion_choices: where another alternative than the default fusion was best.
        checks: of the assembled network, by plan; empty: there was none.
    """

    progress: Progress
    stop_reason: str
    fusion_choices: list[FusionChoice]
    checks: list[NetworkCheck]

    @property
    def estimated_us(self) -> float | None:
        """The latency of the network with the best records."""
        return self.progress.estimated_us

    def __repr__(self) -> str:
        state = self.progress
        timed = sum(task.best_us is not None for task in state.tasks)
        wrong = sum(not check.ok for check in self.checks)
        return shown("TuneResult", [f"estimated latency {duration(state.estimated_us)} (with fallback schedules {duration(state.estimated_fallback_us)})",
                                    f"{count(state.trials, 'trial')} in {seconds_text(state.elapsed_s)}", f"{timed} of {count(len(state.tasks), 'task')} timed",
                                    f"stopped: {self.stop_reason}", "not checked" if not self.checks else f"check not ok in {wrong}" if wrong else "check ok"])


def _progress(state: dict[str, Any]) -> Progress:
    return Progress(**{**state, "tasks": [TaskProgress(**task) for task in state["tasks"]]})


def _check_limits(**given: float | None) -> None:
    """Arguments whose 0 would mean their default to the library."""
    for name, value in given.items():
        if value is None:
            continue
        if name == "trials" and value < 1:
            raise _make_error("INVALID_ARGUMENT", f"trials is {value}; give a number of at least 1, or None for the default")
        if not value > 0:  # nan too
            raise _make_error("INVALID_ARGUMENT", f"{name} is {value}; give a number above 0, or None for the default")


def tune(model: Any, target: str = "cpu", *, history: str | os.PathLike[str], trials: int | None = None, seconds: float | None = None,
         callback: Callable[[Progress], object] | None = None, progress: bool | None = None, tasks: Sequence[int] | None = None,
         early_stop: float = 0, seed: int = 0, shipped_records: bool = True, deterministic: bool = False, repeat: int = 3, min_repeat_ms: float | None = None, build_timeout: float = 30,
         run_timeout: float = 10, builders: int = 0, sandbox: str = "auto", check: bool = True, fleet: Fleet | None = None,
         **options: Unpack[ModelOptions]) -> TuneResult:
    """Searches for fast schedules of a network on a device of this host or a fleet, and stores every measurement in a history.

    Tuning stops at ``trials`` or ``seconds``, whichever comes first. Then the network is assembled from the best records and compared with the
    reference implementation of the model, which takes seconds to minutes more. Ctrl-C, or an exception in the callback, stops the run within some seconds; the
    measurements so far are in the history, and the same call resumes there.

    Args:
        model, target, **options: as :func:`diapason.tasks`.
        history: the file to add to; created if it does not exist.
        trials: limit on measurements, including those in the history; the default is 1000, or no limit with ``seconds``.
        seconds: time limit, including verification.
        callback: called with a :class:`Progress` about ten times a second, on the tuning thread, while the caller waits. It must return quickly.
        progress: show a line of progress, below the cell in Jupyter and on stderr elsewhere; by default in Jupyter and if stderr is a terminal.
        tasks: tune only these, by id (:func:`diapason.tasks`).
        early_stop: stop early: a fraction such as 0.01 is the least improvement expected of the next tenth of the trials; a whole number is the number
            of trials without improvement.
        seed: seed of the search.
        shipped_records: start from the records that come with Diapason.
        deterministic: run one round after the other, so that the same seed and measurements give the same proposals; slower.
        repeat: samples per trial.
        min_repeat_ms: least length of a sample; the default is 20.
        build_timeout, run_timeout: seconds to compile and to measure a candidate.
        builders: number of processes that compile; 0: depends on cores and memory.
        sandbox: whether bubblewrap isolates the processes that compile and measure: ``"auto"``, ``"on"`` or ``"off"``.
        check: compare the assembled network with the reference at the end.
        fleet: the fleet whose devices measure; its workers have their own ``builders`` and ``sandbox``. None: the devices of this host.

    Raises:
        InvalidArgumentError, NotFoundError: the model, an option or the target is invalid.
        UnavailableError: there is no such device, or the tracker does not answer.
        Error: the tuned network is wrong or could not be checked (``result`` of the exception is the :class:`TuneResult`), or the run failed.
        KeyboardInterrupt: Ctrl-C.
    """
    _check_limits(trials=trials, seconds=seconds, min_repeat_ms=min_repeat_ms)
    library = _library()
    wanted = library.TuneOptions()
    wanted.target, wanted.history = target, os.fspath(history)
    wanted.trials, wanted.seconds = trials or 0, float(seconds or 0)
    wanted.tasks = list(tasks or [])
    wanted.early_stop, wanted.seed, wanted.deterministic = float(early_stop), seed, deterministic
    wanted.shipped_records = shipped_records
    wanted.repeat, wanted.min_repeat_ms = repeat, -1.0 if min_repeat_ms is None else float(min_repeat_ms)
    wanted.build_timeout_seconds, wanted.run_timeout_seconds = float(build_timeout), float(run_timeout)
    wanted.builders, wanted.sandbox, wanted.check = builders, sandbox, check
    if fleet is not None:
        wanted.fleet = fleet._request()

    with progress_line(progress) as line, _model(model, options) as wanted.model:

        def tell(state: dict[str, Any]) -> None:
            now = _progress(state)
            line.show(f"tuning: {now._text()}")
            if callback is not None:
                callback(now)

        tuned = library.tune(wanted, line.warn, tell if line.is_shown or callback is not None else None)
    result = TuneResult(_progress(tuned["progress"]), tuned["stop_reason"], [FusionChoice(**one) for one in tuned["fusion_choices"]],
                        [_check(one) for one in tuned["checks"]])
    if tuned["check_code"] != "OK":
        error = _make_error(tuned["check_code"], tuned["check_text"])
        error.result = result
        raise error
    return result
