"""A sweep as a job of a scheduler: describe it, submit it, and follow it to its end."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from orchestrator.drivers.scheduler import Job, Scheduler
from orchestrator.errors import HostError, RunError
from orchestrator.host.process.processes import end_with
from orchestrator.host.process.signals import interrupted
from orchestrator.record.directory import write_whole
from orchestrator.scenario.sections.alternatives import listed
from orchestrator.sweep.reading import Sweep
from orchestrator.sweep.schedulers import names_of, scheduler_of
from orchestrator.sweep.sweeper import name_of

PAUSE = 2.0  # s between two looks at a job, doubled after each one that fails
FAILURES = 8  # in succession; they take about 17 min together

PYTHON = [sys.executable, "-P", "-m", "orchestrator"]


def task_words(sweep: Sweep, arguments: Sequence[str], workers: int | None) -> list[str]:
    """The arguments of edgebed that all tasks have."""
    words = ["sweep", str(sweep.file), *arguments]
    if workers is not None:
        words += ["--workers", str(workers)]
    return words


def execute_in_parallel(
    count: int,
    tasks: Iterable[int],
    words: Sequence[str],
    tell: Callable[[str], None],
    ended: Callable[[int], None],
) -> bool:
    """Execute each task in its own process, ``count`` at the same time. ``tell`` prints their lines. ``ended`` is
    called in this thread after each task, with its number. Returns whether all tasks were executed.

    If this is interrupted, the running tasks end in order, without further lines. If this process is killed, the tasks
    are killed too.
    """
    started: list[subprocess.Popen[str]] = []
    end_with_parent = partial(end_with, os.getpid())

    def execute(number: int) -> None:
        command = [*PYTHON, *words, "--task", str(number)]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=end_with_parent,
        ) as process:
            started.append(process)
            if interrupted():  # between the two lines above
                process.terminate()
            for line in process.stdout or ():
                if not interrupted():
                    tell(line.rstrip("\n"))
        if process.returncode < 0 and not interrupted():
            tell(f"task {number} was killed by signal {-process.returncode}: repeat the command to execute it again")

    with ThreadPoolExecutor(count) as pool:
        numbers = {pool.submit(execute, number): number for number in tasks}
        try:
            for future in as_completed(numbers):
                future.result()
                ended(numbers[future])
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in started:
                process.terminate()
            return False
    return True


def write_job(
    scheduler: str,
    sweep: Sweep,
    directory: Path,
    arguments: Sequence[str],
    *,
    workers: int | None,
    image: str,
) -> tuple[Job, Path]:
    """Write the description of the sweep as a job into ``directory``. Returns the job, and the path of the description.

    ``arguments``: those of the command line that all tasks have. RunError if tasks in containers could not run.
    """
    place = Path.cwd()
    kind = scheduler_of(scheduler)
    simulated = all(combination.scenario.driver_kind.simulated for combination in sweep.combinations)
    if kind.contained:
        if not simulated:
            others = " or --on ".join(names_of(contained=False))
            raise RunError(
                f"--on {scheduler}: containers run the driver {listed(simulated=True)} only; use --on {others}"
            )
        for path in (sweep.file, sweep.scenario, directory):
            if not path.resolve().is_relative_to(place):
                raise RunError(f"--on {scheduler}: {path} is not below the working directory, which all hosts share")
    cores = workers or 1
    words = task_words(sweep, arguments, cores if simulated else None)
    job = Job(
        name=f"{sweep.name}-{secrets.token_hex(3)}",
        count=len(sweep.combinations),
        arguments=words,
        python=PYTHON,
        cores=cores,
        place=place,
        folder=directory.resolve(),
        image=image,
        resumes=not simulated,
    )
    file = directory / kind.file
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(file, kind.describe(job))
    except OSError as error:
        raise RunError(f"cannot write {file} ({error.strerror}): make room, or choose --runs") from None
    return job, file


def execute_job(
    scheduler: str,
    sweep: Sweep,
    job: Job,
    file: Path,
    tell: Callable[[str], None],
) -> None:
    """Submit a job, and follow it until no task waits or runs. ``tell`` prints a line for each new state of a task.

    HostError if a command of the scheduler fails. A command that lists the tasks may fail several times before. The job
    continues after an error or an interruption.
    """
    kind = scheduler_of(scheduler)
    _output(kind.submit, job, file)
    cancel = shlex.join(_words(kind.cancel, job, file))
    tell(f"submitted {file} as {job.name}; `{cancel}` ends it")
    try:
        _follow(kind, sweep, job, file, tell)
    except (KeyboardInterrupt, HostError):
        tell(f"{job.name} continues; `{cancel}` ends it, and `--collect` writes the tables")
        raise


def _follow(
    kind: Scheduler,
    sweep: Sweep,
    job: Job,
    file: Path,
    tell: Callable[[str], None],
) -> None:
    states: dict[int, str] = {}
    quiet = 0
    failed = 0
    while quiet < 2:  # a scheduler may take a moment to list a task, or its next attempt
        try:
            printed = _output(kind.list, job, file)
            tasks = kind.parse(printed)
        except HostError as error:  # its controller may restart
            failed += 1
            if failed > FAILURES:
                raise
            tell(f"{error.what}; trying again")
            time.sleep(PAUSE * 2**failed)
            continue
        failed = 0
        for number, state in tasks.states.items():
            if states.get(number) != state:
                tell(f"{name_of(sweep, number)}: {state}")
        states |= tasks.states
        quiet = 0 if tasks.active else quiet + 1
        time.sleep(PAUSE)


def _output(command: Sequence[str], job: Job, file: Path) -> str:
    words = _words(command, job, file)
    if shutil.which(words[0]) is None:
        raise HostError(f"there is no command {words[0]}", "install the scheduler's client, or use --print")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        start = shlex.join(words[:2])
        raise HostError(f"`{start}` failed: {done.stderr.strip()}", f"see {file}")
    return done.stdout


def _words(command: Sequence[str], job: Job, file: Path) -> list[str]:
    words = []
    for word in command:
        if word == "FILE":
            words.append(str(file))
        else:
            words.append(word.replace("JOB", job.name))
    return words
