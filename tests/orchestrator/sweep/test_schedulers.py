"""The descriptions of jobs, and what the schedulers say of their tasks."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from orchestrator.drivers.scheduler import Job, TaskStates
from orchestrator.sweep.schedulers import scheduler_of

JOB = Job(
    name="mine-ab12cd",
    count=24,
    arguments=["sweep", "mine.yaml", "--runs", "my runs", "--set", "driver=sim", "--workers", "2"],
    python=["/opt/venv/bin/python", "-P", "-m", "orchestrator"],
    cores=2,
    place=Path("/shared/study"),
    folder=Path("/shared/study/my runs/100%"),
    image="registry/edgebed:2",
)
ARGUMENTS = "sweep mine.yaml --runs 'my runs' --set driver=sim --workers 2 --task"


def parsed(scheduler: str, printed: str) -> TaskStates:
    return scheduler_of(scheduler).parse(printed)


def test_a_script_for_slurm() -> None:
    assert scheduler_of("slurm").describe(JOB) == (
        "#!/bin/sh\n"
        "#SBATCH --job-name=mine-ab12cd\n"
        "#SBATCH --array=0-23\n"
        "#SBATCH --cpus-per-task=2\n"
        "#SBATCH --chdir=/shared/study\n"
        "#SBATCH --output='/shared/study/my runs/100%%/slurm-%a.log'\n"
        "#SBATCH --open-mode=append\n"
        "#SBATCH --requeue\n"
        f'exec /opt/venv/bin/python -P -m orchestrator {ARGUMENTS} "$SLURM_ARRAY_TASK_ID"\n'
    )


def test_a_slurm_task_that_resumes_is_requeued_at_its_limit() -> None:
    script = scheduler_of("slurm").describe(replace(JOB, resumes=True))
    assert "#SBATCH --signal=B:USR1@60\n" in script
    assert 'scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"\n' in script


@pytest.mark.parametrize(
    ("signalled", "restarts", "calls"), [(True, 0, ["requeue 4_0"]), (True, 50, []), (False, 0, [])]
)
def test_the_script_of_a_slurm_task_that_resumes(
    tmp_path: Path, signalled: bool, restarts: int, calls: list[str]
) -> None:
    """edgebed ends with 130 after SIGTERM, and writes its checkpoints first."""
    task, scontrol = tmp_path / "edgebed", tmp_path / "scontrol"
    called, ended, done = tmp_path / "called", tmp_path / "ended", tmp_path / "done"
    trap = f"trap 'sleep 0.1; touch {ended}; exit 130' TERM"
    task.write_text(f"#!/bin/sh\n{trap}\necho started\nuntil [ -e {done} ]; do sleep 0.02; done\nexit 3\n")
    scontrol.write_text(f'#!/bin/sh\n[ -e {ended} ] && echo "$@" >> {called}\n')
    for each in (task, scontrol):
        each.chmod(0o755)
    script = scheduler_of("slurm").describe(replace(JOB, resumes=True, python=[str(task)]))
    variables = {"SLURM_ARRAY_JOB_ID": "4", "SLURM_ARRAY_TASK_ID": "0", "SLURM_RESTART_COUNT": str(restarts)}
    with subprocess.Popen(
        ["sh", "-c", script], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"} | variables, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"started\n"
        if signalled:
            running.send_signal(signal.SIGUSR1)
        else:
            done.touch()
    assert (called.read_text().splitlines() if called.exists() else []) == calls
    assert running.returncode == (0 if calls else 1 if signalled else 3)


def test_a_command_for_swarm() -> None:
    words = shlex.split(scheduler_of("swarm").describe(JOB))
    assert words[:3] == ["docker", "service", "create"]
    assert {"--mode=replicated-job", "--replicas=24", "--reserve-cpu=2", "--restart-max-attempts=2"} <= set(words)
    assert {"--mount=type=bind,source=/shared/study,target=/shared/study", "--workdir=/shared/study"} <= set(words)
    assert {"--env=SLOT={{.Task.Slot}}", f"--user={os.geteuid()}:{os.getegid()}"} <= set(words)
    assert words[-3:] == [
        "registry/edgebed:2",
        "-c",
        f"case $SLOT in *[!0-9]*) SLOT=0;; esac; edgebed {ARGUMENTS} $SLOT || [ $? -lt 128 ]",
    ]


def test_a_job_for_kubernetes() -> None:
    job = yaml.safe_load(scheduler_of("kubernetes").describe(JOB))
    kubernetes_validate.validate(job, "1.37", strict=True)
    assert (job["apiVersion"], job["kind"], job["metadata"]["name"]) == ("batch/v1", "Job", "mine-ab12cd")
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 24, 24)
    assert spec["template"]["metadata"]["labels"] == job["metadata"]["labels"] == {"edgebed.sweep": "mine-ab12cd"}
    (container,), (volume,) = pod["containers"], pod["volumes"]
    assert container["command"] == ["sh", "-c", f"exec edgebed {ARGUMENTS} $JOB_COMPLETION_INDEX"]
    assert container["workingDir"] == container["volumeMounts"][0]["mountPath"] == volume["hostPath"]["path"]
    assert container["volumeMounts"][0]["name"] == volume["name"]


@pytest.mark.parametrize(
    ("printed", "states", "active"),
    [
        ("", {}, False),
        (
            "0|COMPLETED|None|n1\n1|RUNNING|None|n2\n2|PENDING|Resources|\n",
            {0: "completed on n1", 1: "running on n2", 2: "pending (Resources)"},
            True,
        ),
        ("3|FAILED|NonZeroExitCode|n1\n4|TIMEOUT|TimeLimit|n2\n",
            {3: "failed (NonZeroExitCode) on n1", 4: "timeout (TimeLimit) on n2"}, False),
    ],
)  # fmt: skip
def test_states_of_slurm(printed: str, states: dict[int, str], active: bool) -> None:
    assert parsed("slurm", printed) == TaskStates(states, active)


def line(number: int, state: str, node: str = "", error: str = "") -> str:
    return json.dumps({"Name": f"mine-ab12cd.{number}", "CurrentState": state, "Node": node, "Error": error}) + "\n"


def test_states_of_swarm() -> None:
    lost = line(2, "Running 3 seconds ago", "b") + line(2, "Failed 9 seconds ago", "c", "task: non-zero exit (1)")
    first = json.dumps({**json.loads(line(0, "Complete 1 second ago", "a")), "Name": "mine-ab12cd.j73035yba232"})
    assert parsed("swarm", lost + first) == TaskStates({2: "running on b", 0: "complete on a"}, True)
    assert parsed("swarm", line(1, "Failed 1 second ago", "c", "no such image")) == TaskStates(
        {1: "failed (no such image) on c"}, False
    )


def pod(index: int, phase: str, created: str, status: dict[str, Any], node: str = "") -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {
            "creationTimestamp": created,
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        },
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, **status},
    }


def test_states_of_kubernetes() -> None:
    job: dict[str, Any] = {"kind": "Job", "metadata": {"creationTimestamp": "2026-11-26T07:00:00Z"}, "status": {}}
    waiting = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}
    pulling = {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    killed = {"containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]}
    done = {"containerStatuses": [{"state": {"terminated": {"reason": "Completed", "exitCode": 0}}}]}
    pods = [
        pod(2, "Running", "2026-11-26T07:00:09Z", {}, "b"),  # the second attempt
        pod(0, "Pending", "2026-11-26T07:00:01Z", waiting),
        pod(1, "Pending", "2026-11-26T07:00:01Z", pulling, "a"),
        pod(2, "Failed", "2026-11-26T07:00:01Z", killed, "a"),
        pod(3, "Failed", "2026-11-26T07:00:01Z", killed, "a"),
        pod(4, "Succeeded", "2026-11-26T07:00:01Z", done, "a"),
    ]
    states = {
        0: "pending (0/3 nodes are available)",
        1: "pending (ImagePullBackOff) on a",
        2: "running on b",
        3: "failed (OOMKilled) on a",
        4: "succeeded on a",
    }
    assert parsed("kubernetes", json.dumps({"items": [*pods, job]})) == TaskStates(states, True)
    job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert not parsed("kubernetes", json.dumps({"items": [job]})).active
