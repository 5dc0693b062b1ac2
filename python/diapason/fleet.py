"""Devices of a fleet, for tuning on them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from .model import _library

_Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Fleet:
    """The devices of the workers of a tracker (``diapason tracker``, ``diapason worker``; docs/fleet.md): ``dp.tune(..., fleet=dp.Fleet("host:9190"))``.

    Attributes:
        tracker: ``"host:port"``; several with commas between them: the one that answers.
        device: the devices' model; None: the one that the fleet has of the target.
        labels: that their workers must carry.
        priority, weight: who has a higher priority is measured first, and those of one priority by their weights.
        wait: seconds to wait for a device, and for the tracker, for which it is 60 at most.
        token_file, tls_cert, tls_key, tls_ca: files with the token to show, and for mutual TLS.
        insecure: allow plain text beyond this host.
    """

    tracker: str
    device: str | None = None
    labels: dict[str, str] | None = None
    priority: int = 0
    weight: float = 1
    wait: float = 60
    token_file: _Path | None = None
    tls_cert: _Path | None = None
    tls_key: _Path | None = None
    tls_ca: _Path | None = None
    insecure: bool = False

    def _request(self) -> Any:
        library = _library()
        endpoint, request = library.Endpoint(), library.FleetRequest()
        endpoint.address, endpoint.insecure = self.tracker, self.insecure
        for name in ("token_file", "tls_cert", "tls_key", "tls_ca"):
            setattr(endpoint, name, os.fspath(getattr(self, name) or ""))
        request.tracker, request.device, request.labels = endpoint, self.device or "", dict(self.labels or {})
        request.priority, request.weight, request.wait_seconds = self.priority, float(self.weight), float(self.wait)
        return request
