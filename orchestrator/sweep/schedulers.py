"""The schedulers that execute the tasks of a sweep as a job: Slurm, Docker Swarm and Kubernetes.

A scheduler has a description of the job, the command that submits it, and one that lists its tasks. It decides where
and when tasks run, how often a failed one is repeated, and what happens when a host is lost. Pure.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RETRIES = 2  # of each task by Swarm, and of each on average by Kubernetes


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


def _in_words(state: str, reason: str, host: str) -> str:
    words = state.lower()
    if reason:
        words += f" ({reason})"
    if host:
        words += f" on {host}"
    return words


# Slurm

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


def _slurm_script(job: Job) -> str:
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


def _slurm_tasks(printed: str) -> TaskStates:
    states = {}
    active = False
    for line in printed.splitlines():
        task, state, reason, nodes = line.split("|")
        active = active or state not in _ENDED
        if reason == "None":
            reason = ""
        states[int(task)] = _in_words(state, reason, nodes)
    return TaskStates(states, active)


# Docker Swarm

_SWARM_ENDED = ("Complete", "Failed", "Rejected", "Shutdown", "Orphaned", "Remove")


def _swarm_script(job: Job) -> str:
    # Swarm gives slot 0 the id of its host instead of a number. It repeats a task without end unless its exit code is
    # 0, so that only a task that was killed must have another one.
    command = job.shell(["edgebed"], "$SLOT")
    task = f"case $SLOT in *[!0-9]*) SLOT=0;; esac; {command} || [ $? -lt 128 ]"
    options = {
        "name": job.name,
        "mode": "replicated-job",
        "replicas": job.count,
        "restart-condition": "on-failure",
        "restart-max-attempts": RETRIES,
        "reserve-cpu": job.cores,
        "user": f"{os.geteuid()}:{os.getegid()}",
        "workdir": job.place,
        "mount": f"type=bind,source={job.place},target={job.place}",
        "entrypoint": "sh",
    }
    variables = {**_variables(job), "SLOT": "{{.Task.Slot}}"}
    words = [f"--{name}={value}" for name, value in options.items()]
    words += [f"--env={name}={value}" for name, value in variables.items()]
    start = ["docker", "service", "create", "--detach", "--quiet", "--no-healthcheck"]
    end = [job.image, "-c", task]
    lines = [shlex.join(start), shlex.join(words), shlex.join(end)]
    return " \\\n  ".join(lines) + "\n"


def _swarm_tasks(printed: str) -> TaskStates:
    states: dict[int, str] = {}
    active = False
    for line in printed.splitlines():  # the latest attempt of a task comes first
        task = json.loads(line)
        slot = task["Name"].rpartition(".")[2]
        number = int(slot) if slot.isdecimal() else 0
        if number in states:
            continue
        state = task["CurrentState"].partition(" ")[0]
        active = active or state not in _SWARM_ENDED
        states[number] = _in_words(state, task["Error"], task["Node"])
    return TaskStates(states, active)


# Kubernetes


def _kubernetes_job(job: Job) -> str:
    shared = str(job.place)
    command = job.shell(["edgebed"], "$JOB_COMPLETION_INDEX")
    variables = []
    for name, value in _variables(job).items():
        variables.append({"name": name, "value": value})
    container = {
        "name": "task",
        "image": job.image,
        "command": ["sh", "-c", f"exec {command}"],
        "workingDir": shared,
        "env": variables,
        "resources": {"requests": {"cpu": str(job.cores)}},
        "volumeMounts": [{"name": "shared", "mountPath": shared}],
    }
    pod = {
        "restartPolicy": "Never",
        "securityContext": {"runAsUser": os.geteuid(), "runAsGroup": os.getegid()},
        "containers": [container],
        "volumes": [{"name": "shared", "hostPath": {"path": shared, "type": "Directory"}}],
    }
    labels = {"edgebed.sweep": job.name}
    described = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job.name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": job.count,
            "parallelism": job.count,
            "backoffLimit": RETRIES * job.count,
            "template": {"metadata": {"labels": dict(labels)}, "spec": pod},
        },
    }
    import yaml

    return yaml.safe_dump(described, sort_keys=False, width=1000)


def _kubernetes_tasks(printed: str) -> TaskStates:
    """The phases of the pods, with the reason of a pod that waits or has failed."""
    from orchestrator.drivers.kubernetes.reading import reason_of

    states = {}
    active = True
    items = json.loads(printed)["items"]
    items.sort(key=lambda item: item["metadata"]["creationTimestamp"])  # a later attempt replaces one
    for item in items:
        status = item.get("status", {})
        if item["kind"] == "Job":
            active = not _has_ended(status)
            continue
        index = item["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        host = item["spec"].get("nodeName", "")
        states[int(index)] = _in_words(status["phase"], reason_of(status), host)
    return TaskStates(states, active)


def _has_ended(status: Mapping[str, Any]) -> bool:
    """Whether a job with this status is complete or has failed."""
    for condition in status.get("conditions", ()):
        is_final = condition["type"] in ("Complete", "Failed")
        if is_final and condition["status"] == "True":
            return True
    return False


def _variables(job: Job) -> dict[str, str]:
    """A container of any user has no home. All tasks share the prepared data sets."""
    return {"HOME": "/tmp", "EDGEBED_CACHE": str(job.folder / ".data")}


SCHEDULERS = {
    "slurm": Scheduler(
        "sweep.sbatch",
        _slurm_script,
        ["sbatch", "FILE"],
        ["squeue", "--noheader", "--array", "--states=all", "--format=%K|%T|%r|%N", "--name=JOB"],
        _slurm_tasks,
        ["scancel", "--name=JOB"],
        contained=False,
    ),
    "swarm": Scheduler(
        "sweep.swarm.sh",
        _swarm_script,
        ["sh", "FILE"],
        ["docker", "service", "ps", "--no-trunc", "--format={{json .}}", "JOB"],
        _swarm_tasks,
        ["docker", "service", "rm", "JOB"],
    ),
    "kubernetes": Scheduler(
        "sweep.kubernetes.yaml",
        _kubernetes_job,
        ["kubectl", "create", "--filename", "FILE"],
        ["kubectl", "get", "jobs,pods", "--output=json", "--selector=edgebed.sweep=JOB"],
        _kubernetes_tasks,
        ["kubectl", "delete", "job", "JOB"],
    ),
}
