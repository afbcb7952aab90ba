"""A scheduler, which executes the tasks of a sweep as a job. It belongs to a driver, see `DriverKind`.

A scheduler has a description of the job, the command that submits it, and one that lists its tasks. It decides where
and when tasks run, how often a failed one is repeated, and what happens when a host is lost. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

RETRIES = 2  # of each task in a container, for some schedulers on average


@dataclass(frozen=True)
class Job:
    """The tasks of a sweep as a job. No other job has its ``name``. ``arguments`` are those of edgebed, without the
    number of the task. ``python`` starts edgebed on this host. A task uses ``cores``. ``place`` is the working
    directory, and ``folder`` that of the sweep. ``image`` is that of containers. ``resumes``: a task that was
    interrupted continues when it starts again."""

    name: str
    count: int
    arguments: Sequence[str]
    python: Sequence[str]
    cores: int
    place: Path
    folder: Path
    image: str
    resumes: bool = False

    def shell(self, start: Sequence[str], number: str) -> str:
        """The command of a task for a shell, which expands its ``number``."""
        return f"{shlex.join([*start, *self.arguments])} --task {number}"


@dataclass(frozen=True)
class TaskStates:
    """The states of the tasks of a job, in words, and whether any of them waits or runs."""

    states: Mapping[int, str]
    active: bool


@dataclass(frozen=True)
class Scheduler:
    """``describe`` writes the description, a file with the name ``file``. ``submit``, ``list`` and ``cancel`` are
    commands, in which FILE stands for the path of the file and JOB for the name of the job. ``parse`` reads what
    ``list`` prints. ``contained``: its tasks run in containers."""

    file: str
    describe: Callable[[Job], str]
    submit: Sequence[str]
    list: Sequence[str]
    parse: Callable[[str], TaskStates]
    cancel: Sequence[str]
    contained: bool = True


def in_words(state: str, reason: str, host: str) -> str:
    words = state.lower()
    if reason:
        words += f" ({reason})"
    if host:
        words += f" on {host}"
    return words


def variables(job: Job) -> dict[str, str]:
    """A container of any user has no home. All tasks share the prepared data sets."""
    return {"HOME": "/tmp", "EDGEBED_CACHE": str(job.folder / ".data")}
