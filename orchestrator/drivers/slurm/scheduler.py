"""Slurm as the scheduler of a sweep: an array of jobs."""

from __future__ import annotations

import shlex

from orchestrator.drivers.scheduler import Job, Scheduler, TaskStates, in_words

_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
}
"""The final states of squeue(1); in every other one, a task waits or runs."""

_END_BEFORE = 60  # s before the time limit; a task that can resume ends then
_REQUEUED = 50  # times at most; a task without progress must end
_REQUEUING = """\
trap 'limit=near; kill -TERM $!' USR1
{command} &
wait $!
code=$?
[ -z "$limit" ] && exit $code
wait $!  # for its checkpoints
[ "${{SLURM_RESTART_COUNT:-0}}" -lt {most} ] && scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
"""


def describe(job: Job) -> str:
    options = {
        "job-name": job.name,
        "array": f"0-{job.count - 1}",
        "cpus-per-task": job.cores,
        "chdir": job.place,
        "output": str(job.folder).replace("%", "%%") + "/slurm-%a.log",
    }
    command = job.shell(job.python, '"$SLURM_ARRAY_TASK_ID"')
    if job.resumes:
        options["signal"] = f"B:USR1@{_END_BEFORE}"
        command = _REQUEUING.format(command=command, most=_REQUEUED)
    else:
        command = f"exec {command}\n"
    lines = [f"#SBATCH --{name}={shlex.quote(str(value))}" for name, value in options.items()]
    return "\n".join(["#!/bin/sh", *lines, "#SBATCH --open-mode=append", "#SBATCH --requeue", command])


def parse(printed: str) -> TaskStates:
    states = {}
    active = False
    for line in printed.splitlines():
        task, state, reason, nodes = line.split("|")
        active = active or state not in _ENDED
        if reason == "None":
            reason = ""
        states[int(task)] = in_words(state, reason, nodes)
    return TaskStates(states, active)


SCHEDULER = Scheduler(
    "sweep.sbatch",
    describe,
    ["sbatch", "FILE"],
    ["squeue", "--noheader", "--array", "--states=all", "--format=%K|%T|%r|%N", "--name=JOB"],
    parse,
    ["scancel", "--name=JOB"],
    contained=False,
)
