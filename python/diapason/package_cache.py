"""A folder with packages by what they were built from, shared by processes.

    FOLDER/packages/KEY/     a package; its modification time says when it was last used
    FOLDER/packages/.tmp-*   one that is being made or removed
    FOLDER/locks/KEY         held (flock) by the process that makes it
    FOLDER/refused/KEY       why it cannot be made; for a week

A package appears by a rename, whole or not at all. Packages are native code: the folder must be the user's own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator

from .errors import _make_error

_REFUSED_SECONDS = 7 * 24 * 3600
_STALE_SECONDS = 24 * 3600  # after which what a process left that died is removed


def default_folder() -> str:
    """``$DIAPASON_CACHE``, or ``diapason`` in the user's cache folder."""
    given = os.environ.get("DIAPASON_CACHE")
    if given:
        return given
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "diapason")


def _bytes_of(folder: pathlib.Path) -> int:
    total = 0
    for parent, _, files in os.walk(folder):
        for file in files:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(parent, file)).st_size
    return total


class PackageCache:
    """Packages by key. Safe from any thread and process.

    Args:
        folder: made where there is none, readable by its owner alone.
        limit_bytes: the packages used last are kept up to this; the newest is kept always.

    Raises:
        Error: the folder cannot be made or used, or others may write to it (code "FAILED_PRECONDITION").
    """

    def __init__(self, folder: str, limit_bytes: int) -> None:
        self._folder = pathlib.Path(folder).absolute()
        self._packages = self._folder / "packages"
        self._limit_bytes = limit_bytes
        try:
            for made in (self._folder, self._packages, self._folder / "locks", self._folder / "refused"):
                made.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._check_private(made)
        except OSError as error:
            raise _make_error("UNAVAILABLE", f"the cache folder '{folder}' cannot be used ({error.strerror}); name another one "
                                             "(options={'cache': ...} or DIAPASON_CACHE)") from error

    @staticmethod
    def _check_private(folder: pathlib.Path) -> None:
        facts = folder.stat()
        if facts.st_uid != os.geteuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise _make_error("FAILED_PRECONDITION", f"the cache folder '{folder}' is not yours alone to write to, and packages are native code; run "
                                                     f"'chmod go-w {folder}', or name another one (options={{'cache': ...}} or DIAPASON_CACHE)")

    @property
    def folder(self) -> str:
        return str(self._folder)

    def find(self, key: str) -> str | None:
        """The folder of a package, which counts as used now; None where there is none."""
        package = self._packages / key
        try:
            os.utime(package)
        except OSError:
            return None
        return str(package)

    def get(self, key: str, make: Callable[[str], None]) -> str:
        """The folder of a package, which `make` writes to the folder that it is given where there is none. Other processes wait meanwhile."""
        found = self.find(key)
        if found is not None:
            return found
        with self._locked(key):
            found = self.find(key)
            if found is not None:
                return found
            scratch = pathlib.Path(tempfile.mkdtemp(prefix=".tmp-", dir=self._packages))
            try:
                make(str(scratch / "package"))
                os.rename(scratch / "package", self._packages / key)
                os.utime(self._packages / key)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        self._shrink(keep=key)
        return str(self._packages / key)

    def remove(self, key: str) -> None:
        """Removes a package, for example a damaged one."""
        with contextlib.suppress(OSError):
            scratch = tempfile.mkdtemp(prefix=".tmp-", dir=self._packages)
            with contextlib.suppress(OSError):
                os.rename(self._packages / key, os.path.join(scratch, key))
            shutil.rmtree(scratch, ignore_errors=True)

    def refusal(self, key: str) -> dict[str, str] | None:
        """What :meth:`refuse` kept."""
        path = self._folder / "refused" / key
        try:
            if time.time() - path.stat().st_mtime > _REFUSED_SECONDS:
                path.unlink()
                return None
            found = json.loads(path.read_text())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def refuse(self, key: str, why: dict[str, str]) -> None:
        """Keeps why a package cannot be made."""
        with contextlib.suppress(OSError):
            descriptor, scratch = tempfile.mkstemp(prefix=".tmp-", dir=self._folder / "refused")
            with os.fdopen(descriptor, "w") as file:
                json.dump(why, file)
            os.rename(scratch, self._folder / "refused" / key)

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        path = self._folder / "locks" / key
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                # Whoever held it before has removed the file when it was done: this lock is then of no file any more.
                if self._is_file(descriptor, path):
                    try:
                        yield
                    finally:
                        with contextlib.suppress(OSError):
                            os.unlink(path)
                    return
            finally:
                os.close(descriptor)

    @staticmethod
    def _is_file(descriptor: int, path: pathlib.Path) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(path))
        except FileNotFoundError:
            return False

    def _shrink(self, keep: str) -> None:
        packages = []
        with contextlib.suppress(OSError):
            for entry in list(self._packages.iterdir()):
                with contextlib.suppress(OSError):
                    used = entry.stat().st_mtime
                    if not entry.name.startswith(".tmp-"):
                        packages.append((used, entry))
                    elif time.time() - used > _STALE_SECONDS:
                        shutil.rmtree(entry, ignore_errors=True)
        packages.sort(key=lambda one: (one[1].name == keep, one[0]), reverse=True)
        total = 0
        for _, package in packages:
            total += _bytes_of(package)
            if total > self._limit_bytes and package.name != keep:
                self.remove(package.name)
