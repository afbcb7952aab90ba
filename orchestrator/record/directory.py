"""A run's directory: its files, and the process that holds it.

The orchestrator of a run holds a lock on ``lock`` as long as it runs. The lock distinguishes a running run from one
with a killed orchestrator.

Statements of a directory about processes are trusted only if no other user can have written them (`is_ours`).
Otherwise root would end any process that another user writes into it.
"""

from __future__ import annotations

import calendar
import contextlib
import fcntl
import hmac
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from node.files import read_untrusted
from orchestrator.errors import RecordError, RunError
from orchestrator.record.schema import DATABASE

_GLANCE = 0.001  # s
_PATIENCE = 1.0  # s between taking the lock and writing the process id into it


class _Inside:
    """A path in the directory of a run."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __get__(self, directory: RunDirectory, _: type[RunDirectory]) -> Path:
        return directory.path / self._place


@dataclass(frozen=True)
class RunDirectory:
    """The directory of a run, ``runs/<id>/``: ``path``, and the paths of the files inside."""

    path: Path

    logs = _Inside("logs")
    nodes = _Inside("nodes")  # the assignments, with the nodes' secret keys; removed when the run ends
    scenario = _Inside("scenario.yaml")  # as it was given
    checkpoints = _Inside("checkpoints")
    plugins = _Inside("plugins")  # the source of the scenario's plug-ins; nodes load them from here
    shards = _Inside("shards.npz")
    control = _Inside("control")
    socket = _Inside("control/socket")  # on which the orchestrator receives from the nodes
    commands = _Inside("commands")  # the socket on which the orchestrator receives commands of its user
    report = _Inside("report.html")
    summary = _Inside("summary.json")
    lock = _Inside("lock")

    @property
    def run(self) -> str:
        return self.path.name

    def checkpoints_of(self, node: str) -> Path:
        """The folder of one node's checkpoints. A container can write only to the folder of its own node."""
        return self.checkpoints / node

    @property
    def began(self) -> float:
        """When the run started, in s since the epoch: by its id, or if it was renamed by its scenario; 0 if unknown."""
        stamp = _STAMP.search(self.run)
        if stamp is not None:
            with contextlib.suppress(ValueError, OverflowError):
                moment = time.strptime(stamp[1], "%Y%m%d-%H%M%S")
                return float(calendar.timegm(moment))
        return self.written

    @property
    def written(self) -> float:
        """When the scenario was written, in seconds since the epoch; 0 if it is missing."""
        try:
            return self.scenario.stat().st_mtime
        except OSError:
            return 0.0

    @property
    def is_ours(self) -> bool:
        """Whether this user owns the directory, and no other user can write to it."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        return status.st_uid == os.geteuid() and not others_write

    def token(self) -> str:
        """The secret that the run's processes carry, made at its first use. Only this user can read it."""
        path = self.path / "token"
        with contextlib.suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o600)
            with open(descriptor, "w") as file:
                file.write(secrets.token_hex(16))
        return path.read_text()

    def knows(self, token: str) -> bool:
        """Whether a process with this token belongs to the run."""
        path = self.path / "token"
        try:
            is_own = self.is_ours and path.lstat().st_uid == os.geteuid()
            if not is_own or token == "":
                return False
            return hmac.compare_digest(path.read_bytes(), os.fsencode(token))
        except OSError:
            return False

    @classmethod
    def create(cls, runs: Path, name: str) -> RunDirectory:
        """Make a fresh directory: ``<name>-<date>-<time>-<4 hex digits>``, in UTC, so that ids sort everywhere."""
        directory = None
        try:
            runs.mkdir(parents=True, exist_ok=True)
            directory = make_empty(runs.resolve(), name)
            directory.furnish()
        except OSError as error:
            if directory is not None:
                directory.remove()
            raise RunError(f"cannot make a run's directory in {runs}: {error.strerror}; choose --runs") from None
        return directory

    def furnish(self) -> None:
        """Make the folders of a fresh run."""
        for folder in (self.logs, self.checkpoints, self.plugins):
            folder.mkdir(mode=0o755)
        self.reopen()

    def reopen(self) -> None:
        """Make the folders again that are removed at the end of a run."""
        self.remove_keys()
        for folder in (self.nodes, self.control):
            folder.mkdir(mode=0o700)

    def remove_keys(self) -> None:
        """Remove the sockets, and the assignments with the secret keys."""
        for folder in (self.nodes, self.control):
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.commands.unlink()

    def remove(self) -> None:
        """Remove the whole directory, if the run did not begin."""
        shutil.rmtree(self.path, ignore_errors=True)

    @contextlib.contextmanager
    def held(self, wait: Callable[[int], object] | None = None) -> Iterator[None]:
        """Lock the directory for this process. RunError if another process holds it, or if it cannot be locked.

        ``wait``: called repeatedly with the id of another process while that holds the lock, instead of the error.
        """
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self.lock, flags, 0o644)
        except OSError as error:
            raise RunError(f"{self.lock} cannot be written ({error.strerror})") from None
        try:
            while not _locked(descriptor, fcntl.LOCK_EX):
                if wait is None:
                    self.refuse_held()
                else:
                    holder = self.holder()
                    if holder is not None:
                        wait(holder)
                time.sleep(_GLANCE)  # another process holds the shared lock to see who the holder is
            try:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            except OSError as error:
                raise RunError(f"{self.lock} cannot be written ({error.strerror}): make room, then try again") from None
            yield
        finally:
            os.close(descriptor)

    def holder(self) -> int | None:
        """The process id of the running orchestrator; None if there is none."""
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(self.lock, flags)
        except OSError:  # also for a link, which may lead to the lock of another run
            return None
        deadline = time.monotonic() + _PATIENCE
        try:
            while not _locked(descriptor, fcntl.LOCK_SH):
                written = os.pread(descriptor, 32, 0).strip()
                if written.isdigit():
                    return int(written)
                if written or time.monotonic() > deadline:
                    raise RecordError(f"{self.lock} is damaged: end the process that holds it, then remove it")
                time.sleep(_GLANCE)  # the holder is about to write its id
        finally:
            os.close(descriptor)
        return None

    def latest_holder(self) -> int | None:
        """The process id in the lock: of the running orchestrator, or of the latest one. None if there is none."""
        try:
            written = read_untrusted(self.lock, 32).strip()
        except OSError:
            return None
        if not written.isdigit():
            return None
        return int(written)

    def is_held_by(self, pid: int) -> bool:
        """Whether process ``pid`` holds the lock, by its locks (proc(5), /proc/pid/fdinfo), not by the file's text."""
        process = Path(f"/proc/{pid}")
        try:
            infos = list((process / "fdinfo").iterdir())
            locked = [info.name for info in infos if " FLOCK " in info.read_text()]
            return any(self.lock.samefile(process / "fd" / name) for name in locked)
        except OSError:  # the process has ended, or belongs to another user
            return False

    def refuse_held(self) -> None:
        """RunError if the run's orchestrator is running."""
        holder = self.holder()
        if holder is not None:
            raise RunError(f"{self.run} is still running (process {holder}): wait for its end, or `down` it first")


def make_empty(runs: Path, name: str) -> RunDirectory:
    """Make an empty directory with a new name. Two runs of one second may draw the same digits."""
    while True:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        path = runs / f"{name}-{stamp}-{secrets.token_hex(2)}"
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o755)
            return RunDirectory(path)


_STAMP = re.compile(r"-(\d{8}-\d{6})-[0-9a-f]{4}$")


def is_id(name: str) -> bool:
    """Whether this may be the id of a run or a sweep."""
    return _STAMP.search(name) is not None


def write_whole(path: Path, text: str) -> None:
    """Replace a file in one step (rename(2)). A lone surrogate becomes "?". OSError if that fails."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with part.open("x", encoding="utf-8", errors="replace") as file:
            file.write(text)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _locked(descriptor: int, kind: int) -> bool:
    """Take a lock, and return whether that succeeded. Does not wait. RunError if the file system has no locks."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # such as Lustre without the mount option flock
        what = f"this file system cannot lock files ({error.strerror})"
        raise RunError(f"{what}: choose --runs on another one, such as this host's own disk") from None
    return True


def is_run(path: Path) -> bool:
    """Whether a directory is that of a run that has started, and this user may look into it."""
    return os.path.isfile(path / DATABASE)


def paths_in(runs: Path) -> list[Path]:
    """What is in a folder of runs; nothing if the folder does not exist. RunError if this user cannot read it."""
    try:
        return list(runs.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RunError(f"{runs} cannot be read ({error.strerror}): choose another folder with --runs") from None


def known_runs(runs: Path) -> list[RunDirectory]:
    """The runs in a folder, oldest first."""
    directories = [RunDirectory(path.resolve()) for path in paths_in(runs) if is_run(path)]
    return sorted(directories, key=attrgetter("began", "written"))


def find_run(name: str | None, runs: Path) -> RunDirectory:
    """The run with the id ``name`` or in the directory ``name``; the latest run if ``name`` is None."""
    if name is None:
        known = known_runs(runs)
        if not known:
            raise RunError(f"there is no run in {runs}: start one with `up SCENARIO`")
        return known[-1]
    return find_each([name], runs)[0]


def find_each(names: Sequence[str], runs: Path) -> list[RunDirectory]:
    """The runs with these ids or in these directories. RunError names each that does not exist."""
    paths = {name: _run_path(name, runs) for name in names}
    missing = [f"'{name}'" for name, path in paths.items() if path is None]
    if missing:
        latest = [directory.run for directory in known_runs(runs)[-5:]]
        listed = ", ".join(latest) or "none"
        raise RunError(f"there is no run {' and no run '.join(missing)} in {runs}; the latest are: {listed}")
    directories = []
    for name in names:
        path = paths[name]
        if path is not None:
            directories.append(RunDirectory(path.resolve()))
    return directories


def _run_path(name: str, runs: Path) -> Path | None:
    """The directory of the run with this id in ``runs``, or at this path; None if there is none."""
    for path in (runs / name, Path(name)):
        if is_run(path):
            return path
    return None
