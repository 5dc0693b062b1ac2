"""Tuning jobs of a service that `diapason serve` runs."""

from __future__ import annotations

import json
import math
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

if sys.version_info >= (3, 11):
    from typing import Unpack
else:
    from typing_extensions import Unpack

from .compiler import BuildReport, BuiltPlan, BuiltTask, FusionChoice, NetworkCheck, Padding, RefinedRecords, WrongRecord
from .errors import _make_error
from .model import ModelOptions, _library, _model, _warn
from .readable import count, duration, seconds_text, shown


@dataclass(frozen=True)
class Job:
    """A tuning job.

    Attributes:
        id: its number.
        state: ``"queued"``, ``"running"``, ``"done"``, ``"failed"`` or ``"cancelled"``.
        text: why it failed, or how it ended.
        model, target: what is tuned, and for what.
        trials, measured, failed: measurements in all, those in the history before it included; by this job; failed ones of all.
        elapsed_s: seconds since its start.
        estimated_us, estimated_fallback_us: latency of the network with the best records, and with fallback schedules; None: not known yet.
        stop_reason: why it ended.
        warnings: sentences.
        details: all that the service says of it: tasks, errors, the check of the network.
    """

    id: int
    state: str
    text: str
    model: str
    target: str
    trials: int
    measured: int
    failed: int
    elapsed_s: float
    estimated_us: float | None
    estimated_fallback_us: float | None
    stop_reason: str
    warnings: list[str]
    details: dict[str, Any] = field(repr=False)

    @property
    def ended(self) -> bool:
        return self.state not in ("queued", "running")

    def __repr__(self) -> str:
        estimate = "" if self.estimated_us is None else f"estimated latency {duration(self.estimated_us)}"
        return shown("Job", [f"{self.id} {self.state}", f"{self.model} for {self.target}",
                             count(self.trials, "trial") + f" ({self.failed} failed) in {seconds_text(self.elapsed_s)}", estimate, self.text])


def _job(document: dict[str, Any]) -> Job:
    named = {name: document[name] for name in Job.__dataclass_fields__ if name not in ("id", "details")}
    return Job(id=document["job"], details=document, **named)


class Service:
    """A service that takes tuning jobs. Any thread; each call connects anew.

    Args:
        address: ``"host:port"`` of ``diapason serve``.
        token_file: file with the token to show.
        tls_cert, tls_key, tls_ca: files for TLS (PEM): a certificate to show with its key, and the authority that vouches for the service.
        insecure: speak plain text beyond this host.
        timeout: seconds to try when the service does not answer.
    """

    def __init__(self, address: str, *, token_file: str | os.PathLike[str] | None = None, tls_cert: str | os.PathLike[str] | None = None,
                 tls_key: str | os.PathLike[str] | None = None, tls_ca: str | os.PathLike[str] | None = None, insecure: bool = False,
                 timeout: float = 10) -> None:
        self._address = address
        files = {"token-file": token_file, "tls-cert": tls_cert, "tls-key": tls_key, "tls-ca": tls_ca}
        self._reach = [f"--service={address}"] + [f"--{name}={os.fspath(path)}" for name, path in files.items() if path is not None]
        if insecure:
            self._reach.append("--insecure")
        self._timeout = f"--timeout={timeout}"

    def __repr__(self) -> str:
        return f"diapason.Service({self._address!r})"

    @property
    def address(self) -> str:
        """``"host:port"``."""
        return self._address

    def submit(self, model: Any, target: str = "cpu", *, trials: int | None = None, seconds: float | None = None, priority: int = 0,
               device: str | None = None, labels: dict[str, str] | None = None, seed: int = 0, repeat: int = 3, min_repeat_ms: float | None = None,
               check: bool = True, **options: Unpack[ModelOptions]) -> int:
        """Hands a network to the service for tuning.

        Args:
            model, target, **options: as :func:`diapason.tasks`; ``mask`` and the limits of reading are the service's.
            trials, seconds, seed, repeat, min_repeat_ms, check: as :func:`diapason.tune`.
            priority: jobs of a higher one are measured first.
            device: only devices of this model.
            labels: only devices of workers that carry these labels.

        Returns:
            The id of the job.

        Raises:
            InvalidArgumentError: an option is not understood.
            Error: the service does not answer, or refuses the job.
        """
        flags = [f"--target={target}", f"--priority={priority}", f"--seed={seed}", f"--repeat={repeat}"]
        given = {"trials": trials, "seconds": seconds, "device": device, "min-repeat-ms": min_repeat_ms,
                 "labels": None if labels is None else ",".join(f"{key}={value}" for key, value in labels.items())}
        flags += [f"--{name}={value}" for name, value in given.items() if value is not None]
        if not check:
            flags.append("--no-check")
        if options.get("mask"):
            raise _make_error("INVALID_ARGUMENT", "mask is not an option of jobs; tune on this host (dp.tune) to give it")
        with _model(model, options) as source:
            return int(self._call(["submit"], [*flags, *_model_flags(source), "--", source.source])["job"])

    def job(self, job: int) -> Job:
        """How a job stands. Raises Error: there is none, or the service does not answer."""
        return _job(self._call(["jobs", "show"], ["--", str(job)]))

    def jobs(self) -> list[Job]:
        """All jobs, newest first; their :attr:`Job.details` may leave out the tasks."""
        return [_job(document) for document in self._call(["jobs", "list"])["jobs"]]

    def watch(self, job: int, callback: Callable[[Job], object] | None = None, interval: float = 1) -> Job:
        """Waits until a job has ended. Ctrl-C, and an exception of the callback, leave it running.

        Args:
            callback: called with a :class:`Job` every `interval` seconds, and at the end.

        Raises:
            Error: there is no such job, or the service does not answer any more.
        """
        while True:
            now = self.job(job)
            if callback is not None:
                callback(now)
            if now.ended:
                return now
            time.sleep(interval)

    def cancel(self, job: int) -> Job:
        """Ends a job; what it measured is kept. Raises Error: it has ended, or the service does not answer."""
        self._call(["jobs", "cancel"], ["--", str(job)])
        return self.job(job)

    def build(self, model: Any, target: str = "cpu", *, out: str | os.PathLike[str], shipped_records: bool = True, check: bool = True,
              build_timeout: float = 120, **options: Unpack[ModelOptions]) -> BuildReport:
        """Makes a package on this host with the best verified schedules of the service's history, as :func:`diapason.build` does with those of a file.

        Args:
            model, target, out, shipped_records, check, build_timeout, **options: as :func:`diapason.build`.

        Raises:
            InvalidArgumentError: the model, an option or the target is not understood.
            Error: the service does not answer, the network is wrong, or the package could not be made.
        """
        flags = [f"--target={target}", f"--out={os.fspath(out)}", f"--build-timeout={build_timeout}", "--no-measure"]
        flags += ([] if shipped_records else ["--no-shipped-records"]) + ([] if check else ["--no-check"])
        with _model(model, options) as source:
            flags += [*_model_flags(source), f"--import-seconds={source.import_seconds:g}"] + ([f"--mask={source.mask}"] if source.mask else [])
            flags += [f"--import-memory={source.import_memory_gib:g}"] if source.import_memory_gib else []
            return _build_report(_program(["build", *self._reach, "--json", *flags, "--", source.source]))

    def _records(self, target: str) -> list[tuple[str, int]]:
        """The best record of each workload: its key and the record's id."""
        found = _program(["query", *self._reach, "--json", f"--target={target}"])
        return sorted((record["workload"], record["record"]) for record in found["records"])

    def _call(self, command: Sequence[str], args: Sequence[str] = ()) -> Any:
        return _program([*command, *self._reach, self._timeout, "--json", *args])


def _device_of(target: str) -> str | None:
    """The model of this host's device for a target, as histories have it; None: there is none."""
    kind = target.split()[0]
    return next((str(device["device"]) for device in _program(["devices", "--json"])["devices"] if device["target"].split()[0] == kind), None)


def _program(args: Sequence[str]) -> Any:
    """What the program prints as JSON. Its warnings are ours, and so are its errors."""
    program = pathlib.Path(_library().__file__).parent.absolute() / "bin" / "diapason"
    done = subprocess.run([str(program), *args], capture_output=True, text=True)
    lines = done.stderr.splitlines()
    for line in lines:
        if line.startswith("warning: "):
            _warn(line.removeprefix("warning: "))
    if done.returncode == 0:
        return json.loads(done.stdout)
    try:
        document = json.loads(done.stdout)
        code, text = document["code"], document["error"]
    except (ValueError, KeyError, TypeError):  # it was stopped, for example
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")] or lines
        code, text = "UNKNOWN", errors[-1] if errors else f"diapason ended with {done.returncode}"
    raise _make_error(code, text)


def _model_flags(source: Any) -> list[str]:
    flags = [f"--layout={source.layout}", f"--dtype={source.dtype}"] + [f"--dim={text}" for text in source.dims]
    flags += [f"--input-shape={name}={'x'.join(map(str, shape))}" for name, shape in source.input_shapes.items()]
    flags += [f"--set={name}={value}" for name, value in source.options.items()]
    flags += [f"--tolerance={source.tolerance}"] if source.tolerance else []
    return flags + ([f"--batch={source.batch}"] if source.batch else []) + (["--strict"] if source.strict else [])


def _build_report(document: dict[str, Any]) -> BuildReport:
    return BuildReport(document["out"], document["target"], document["libraries"], [_built_plan(plan) for plan in document.get("plans", [document])], document["kernels_used"],
                       document["kernels_stored"])


def _built_plan(document: dict[str, Any]) -> BuiltPlan:
    tasks = [BuiltTask(task["task_id"], task["task"], task["count"], task["workload"], task["record_source"] or "", task["record"], task["record_uuid"] or "",
                       task["schedule"], task.get("writes", ""), task.get("estimated_us")) for task in document["tasks"]]
    sizes = document.get("sizes", {})
    return BuiltPlan(
        sizes=sizes, tasks=tasks, task_count=len({task.id for task in tasks}),
        fallback_count=len({task.id for task in tasks if not task.record_source}),
        shipped_count=len({task.id for task in tasks if task.record_source == "shipped"}),
        fusion_choices=[FusionChoice(**one) for one in document["fusion_choices"]], tasks_us=document["tasks_us"], estimated_us=document["estimated_us"],
        latency_us=document["latency_us"], check=_network_check(document["check"], sizes) if "check" in document else None,
        refined=RefinedRecords(**document["refined"]), padding={symbol: Padding(**one) for symbol, one in document.get("padding", {}).items()})


def _network_check(document: dict[str, Any], sizes: dict[str, int]) -> NetworkCheck:
    wrong = [WrongRecord(one["record"], one["task"], one["text"], one["replacement"]) for one in document["wrong_records"]]
    error = math.inf if document["max_rel_error"] is None else document["max_rel_error"]
    return NetworkCheck(sizes, document["ok"], error, document["elapsed_s"], document["text"], document["latency_us"], wrong)
