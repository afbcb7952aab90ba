"""Kubernetes as the scheduler of a sweep: an indexed job."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import yaml

from orchestrator.drivers.kubernetes.reading import reason_of
from orchestrator.drivers.scheduler import RETRIES, Job, Scheduler, TaskStates, in_words, variables


def describe(job: Job) -> str:
    shared = str(job.place)
    command = job.shell(["edgebed"], "$JOB_COMPLETION_INDEX")
    environment = []
    for name, value in variables(job).items():
        environment.append({"name": name, "value": value})
    container = {
        "name": "task",
        "image": job.image,
        "command": ["sh", "-c", f"exec {command}"],
        "workingDir": shared,
        "env": environment,
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
    return yaml.safe_dump(described, sort_keys=False, width=1000)


def parse(printed: str) -> TaskStates:
    """The phases of the pods, with the reason of a pod that waits or has failed."""
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
        states[int(index)] = in_words(status["phase"], reason_of(status), host)
    return TaskStates(states, active)


def _has_ended(status: Mapping[str, Any]) -> bool:
    """Whether a job with this status is complete or has failed."""
    for condition in status.get("conditions", ()):
        is_final = condition["type"] in ("Complete", "Failed")
        if is_final and condition["status"] == "True":
            return True
    return False


SCHEDULER = Scheduler(
    "sweep.kubernetes.yaml",
    describe,
    ["kubectl", "create", "--filename", "FILE"],
    ["kubectl", "get", "jobs,pods", "--output=json", "--selector=edgebed.sweep=JOB"],
    parse,
    ["kubectl", "delete", "job", "JOB"],
)
