"""The prepared data sets that a host keeps, each in a folder with the name of its hash.

A data set that arrives is checked against its hash before anything uses it, and again before each run that uses it. All
agents of the host share the folder, so each holds a lock on the data sets that its run uses. The others are removed
when all together become too large, those first that were not used for longest.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from pathlib import Path

from orchestrator import text
from orchestrator.drivers.hosts.agents.facts import KeptData
from orchestrator.errors import DriverError, HostError
from orchestrator.host.hashes import hash_of_files, is_hash

LIMIT = 4 << 30  # bytes of all data sets of a host; what runs use stays beyond it
COMING = ".coming-"


class DataSets:
    """``folder`` is that of this host, ``limit`` in bytes."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder = folder
        self._limit = limit
        self._coming: dict[str, tuple[Path, int]] = {}  # a folder and its lock, by hash
        self._locks: dict[str, int] = {}  # of those in use, by hash

    def path(self, sha256: str) -> Path:
        """The folder of a data set that was taken into use. DriverError if it was not."""
        if sha256 not in self._locks:
            raise DriverError(f"the data set {sha256} is missing: the agent has restarted")
        return self.folder / sha256

    def has_data(self, sha256: str) -> bool:
        """Take a data set into use if this host has it. One that does not have its hash any more is removed."""
        _check_hash(sha256)
        return sha256 in self._locks or self._take(sha256)

    def put_data(
        self,
        sha256: str,
        path: str,
        data: bytes,
        first: bool,
    ) -> None:
        """Add bytes to a file of a data set that is copied here. HostError if the disk is full."""
        if Path(path).name != path or path in ("", ".."):
            raise DriverError(f"no file of a data set: {path}")
        _check_hash(sha256)
        file = self._coming_folder(sha256) / path
        mode = "wb" if first else "ab"
        try:
            with file.open(mode) as stream:
                stream.write(data)
        except OSError as error:
            usage = shutil.disk_usage(self.folder)
            what = f"the data set cannot be written ({error.strerror}; {text.size(usage.free)} are free)"
            raise HostError(what, "make room there", ["docker system df", "docker system prune"]) from None
        file.chmod(0o644)

    def keep_data(self, sha256: str) -> None:
        """The data set is whole: take it into use, and keep it. DriverError if it has another hash."""
        _check_hash(sha256)
        folder = self._coming_folder(sha256)
        try:
            hash_here = hash_of_files(folder)
            if hash_here != sha256:
                raise DriverError(f"the data set that came has the hash {hash_here}, and should have {sha256}")
            folder.chmod(0o755)
            with contextlib.suppress(OSError):  # another run was first
                folder.rename(self.folder / sha256)
        finally:
            self._discard(sha256)
        if not self._take(sha256):
            raise DriverError(f"the data set {sha256} that is kept here is damaged, and another run uses it")
        self._make_room()

    def close(self) -> None:
        """Remove what is not whole, and let go of the rest."""
        for sha256 in list(self._coming):
            self._discard(sha256)
        for lock in self._locks.values():
            os.close(lock)
        self._locks.clear()

    def _take(self, sha256: str) -> bool:
        path = self.folder / sha256
        lock = _lock(path, fcntl.LOCK_SH)
        if lock is None:
            return False
        if hash_of_files(path) != sha256:
            os.close(lock)
            _remove(path)
            return False
        os.utime(path)
        self._locks[sha256] = lock
        return True

    def _make_room(self) -> None:
        """Remove what ended agents have not finished, and as much of what no run uses as is beyond the limit."""
        for path in self.folder.glob(f"{COMING}*"):
            _remove(path)
        size = 0
        datasets = sorted(datasets_in(self.folder), key=_time_of_use, reverse=True)
        for path in datasets:
            own = size_of(path)
            size += own
            if size > self._limit and _remove(path):
                size -= own

    def _coming_folder(self, sha256: str) -> Path:
        while sha256 not in self._coming:
            path = tempfile.mkdtemp(dir=self.folder, prefix=COMING)
            folder = Path(path)
            lock = _lock(folder, fcntl.LOCK_SH)
            if lock is not None:  # otherwise another agent was faster to tidy up
                self._coming[sha256] = (folder, lock)
        folder, _ = self._coming[sha256]
        return folder

    def _discard(self, sha256: str) -> None:
        folder, lock = self._coming.pop(sha256)
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def datasets_in(folder: Path) -> list[Path]:
    """The folders of the data sets that a host keeps in its folder."""
    if folder.is_dir():
        return [path for path in folder.iterdir() if is_hash(path.name)]
    return []


def describe(folder: Path) -> tuple[KeptData, ...]:
    """What a host reports about the data sets in its folder."""
    kept = []
    for path in sorted(datasets_in(folder)):
        kept.append(KeptData(_name(path), path.name, size_of(path)))
    return tuple(kept)


def _name(path: Path) -> str:
    with contextlib.suppress(OSError, ValueError, KeyError):
        text = (path / "meta.json").read_text()
        return str(json.loads(text)["name"])
    return "unnamed"


def size_of(path: Path) -> int:
    """The bytes of a data set; 0 if it is removed while they are counted."""
    with contextlib.suppress(OSError):
        sizes = [file.stat().st_size for file in path.iterdir()]
        return sum(sizes)
    return 0


def _time_of_use(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _check_hash(sha256: str) -> None:
    if not is_hash(sha256):
        raise DriverError(f"no hash of a data set: {sha256}")


def _lock(path: Path, kind: int) -> int | None:
    """A lock on a folder, which ends with its descriptor; None if it is gone, or locked otherwise."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        lock = os.open(path, flags)
    except OSError:
        return None
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
        locked = os.fstat(lock)
        if locked.st_ino == path.stat().st_ino:
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _remove(path: Path) -> bool:
    """Remove a folder unless an agent uses it. Returns whether it is gone."""
    lock = _lock(path, fcntl.LOCK_EX)
    if lock is None:
        return not path.exists()
    try:
        gone = path
        if is_hash(path.name):
            gone = path.with_name(f"{COMING}{path.name}-gone")
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
    finally:
        os.close(lock)
    return True
