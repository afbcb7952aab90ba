"""Docker Swarm as the scheduler of a sweep: a service of the mode replicated-job."""

from __future__ import annotations

import json
import os
import shlex

from orchestrator.drivers.scheduler import RETRIES, Job, Scheduler, TaskStates, in_words, variables

ENDED = ("Complete", "Failed", "Rejected", "Shutdown", "Orphaned", "Remove")


def describe(job: Job) -> str:
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
    slots = {**variables(job), "SLOT": "{{.Task.Slot}}"}
    words = [f"--{name}={value}" for name, value in options.items()]
    words += [f"--env={name}={value}" for name, value in slots.items()]
    start = ["docker", "service", "create", "--detach", "--quiet", "--no-healthcheck"]
    end = [job.image, "-c", task]
    lines = [shlex.join(start), shlex.join(words), shlex.join(end)]
    return " \\\n  ".join(lines) + "\n"


def parse(printed: str) -> TaskStates:
    states: dict[int, str] = {}
    active = False
    for line in printed.splitlines():  # the latest attempt of a task comes first
        task = json.loads(line)
        slot = task["Name"].rpartition(".")[2]
        number = int(slot) if slot.isdecimal() else 0
        if number in states:
            continue
        state = task["CurrentState"].partition(" ")[0]
        active = active or state not in ENDED
        states[number] = in_words(state, task["Error"], task["Node"])
    return TaskStates(states, active)


SCHEDULER = Scheduler(
    "sweep.swarm.sh",
    describe,
    ["sh", "FILE"],
    ["docker", "service", "ps", "--no-trunc", "--format={{json .}}", "JOB"],
    parse,
    ["docker", "service", "rm", "JOB"],
)
