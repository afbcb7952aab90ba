"""What must be true of a part of the product that reads hostile input, whatever the input is."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import io
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from orchestrator.cli import main as cli
from orchestrator.layout import print_error

SECONDS = 10.0  # for one input, on a busy host
BACKSTOP = 60.0  # s after which a call that no signal interrupts ends the campaign, with its traceback
MEMORY = 6 << 30  # bytes of address space that one input may add
LONGEST = 20_000  # characters of all errors of a command
SPOKEN = {"\n", "\t"}
EXECUTES = {"os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pickle.find_class"}
CHANGES = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink", "os.truncate"}
CHANGED = {"os.rename": 2, "os.link": 2}  # how many of its first arguments are paths that change; default: the first
FOLLOWS = {"open", "os.chmod", "os.truncate"}  # links; all other events are about an entry of a folder
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_watching: list[tuple[Path, list[str]]] = []  # the place that may change, and what happened elsewhere


class BrokenError(AssertionError):
    """An invariant is broken."""


class EndlessError(BaseException):
    """The time is over. No handler of Exception catches it."""


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching:
        return
    place, seen = _watching[-1]
    if event in EXECUTES:
        seen.append(f"{event} {str(arguments)[:200]}")
    paths: tuple[Any, ...] = ()
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES:
        paths = arguments[:1]
    elif event == "os.symlink":
        paths = arguments[1:2]
    elif event in CHANGES:
        paths = arguments[: CHANGED.get(event, 1)]
    relative_to = arguments[-1] if event in CHANGES and isinstance(arguments[-1], int) else -1  # the argument dir_fd
    base = os.readlink(f"/proc/self/fd/{relative_to}") if relative_to >= 0 else os.curdir
    for path in paths:
        if isinstance(path, str | bytes | os.PathLike):
            folder, name = os.path.split(os.path.abspath(os.path.join(base, os.fsdecode(path))))
            real = os.path.join(os.path.realpath(folder), name)
            real = os.path.realpath(real) if event in FOLLOWS else real
            unnamed = event == "open" and os.path.isdir(real)  # a temporary file without a name
            if real != os.devnull and not unnamed and not Path(real).is_relative_to(place):
                seen.append(f"{event} {real}")


@functools.cache
def _audited() -> None:
    sys.addaudithook(_audit)  # stays until the process ends


def _overdue(_number: int, _frame: FrameType | None) -> None:
    if _watching:
        raise EndlessError(f"not over after {SECONDS} s")


@contextlib.contextmanager
def watched(place: Path, beside: Path) -> Iterator[None]:
    """Raise BrokenError if the body starts a program, changes a file outside ``place``, or one in ``beside``, and
    or takes too long. MemoryError if it takes too much."""
    _audited()
    seen: list[str] = []
    before, limits = _state(beside), resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    handler = signal.signal(signal.SIGALRM, _overdue)
    faulthandler.dump_traceback_later(BACKSTOP, exit=True)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    _watching.append((place.resolve(), seen))
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    except EndlessError as error:
        raise BrokenError(str(error)) from error
    finally:
        _watching.pop()
        sys.dont_write_bytecode = bytecode
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, handler)
    if seen:
        raise BrokenError(f"it did what no input may make it do: {seen}")
    if _state(beside) != before:
        raise BrokenError(f"it changed a file in {beside}")


def _state(folder: Path) -> list[tuple[str, int, int]]:
    return [(str(path), path.lstat().st_mtime_ns, path.lstat().st_size) for path in sorted(folder.rglob("*"))]


def call(*words: str) -> str:
    """Run a command of the command line, and return what it prints. BrokenError unless it ends with a documented exit
    code, prints at most one error, and text that a terminal shows as it is."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        mock.patch.multiple(sys, argv=["edgebed", *words], stdout=output, stderr=errors),
        contextlib.suppress(BrokenPipeError),
    ):
        code = cli.carry_out()
    said, wrong = output.getvalue(), errors.getvalue()
    if code not in (0, 1, 2, 3, 130) or "Traceback" in wrong or wrong.count("error: ") != (code in (1, 2)):
        raise BrokenError(f"{words}: exit code {code}, {wrong[:LONGEST]!r}")
    check_text(said + wrong, LONGEST if code else sys.maxsize)
    if "--json" in words and code in (0, 3):
        strict(said)
    return said


def refused(kinds: type[Exception] | tuple[type[Exception], ...], read: Callable[[], object]) -> None:
    """Read something, which may be refused by an error of these kinds, with a text that can be shown."""
    try:
        read()
    except kinds as error:
        shown = io.StringIO()
        with contextlib.redirect_stderr(shown):
            print_error(str(error))
        if not str(error):
            raise BrokenError(f"{type(error).__name__} without a text") from error
        check_text(shown.getvalue())


def strict(text: str) -> Any:
    """JSON as every reader takes it: no NaN and no infinity."""

    def refuse(name: str) -> None:
        raise BrokenError(f"{name} in JSON")

    return json.loads(text, parse_constant=refuse)


def check_text(text: str, longest: int = LONGEST) -> None:
    """BrokenError if a text is not one for a terminal."""
    if len(text) > longest:
        raise BrokenError(f"a message of {len(text):,} characters: {text[:200]!r}")
    if odd := {each for each in text if each not in SPOKEN and (each < " " or "\x7f" <= each < "\xa0")}:
        raise BrokenError(f"{odd} on a terminal: {text[:1000]!r}")
