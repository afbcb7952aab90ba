"""Sweeps and single runs as jobs of a Slurm with two nodes on this host."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.errors import RecordError
from orchestrator.record.directory import RunDirectory, known_runs
from orchestrator.record.events.network import NetworkReading
from orchestrator.results.history import History
from tests.e2e.harness import ROOT, SMALL, THREE, command, traces_of, wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.geteuid() != 0, reason="Slurm's daemons need root"),
    pytest.mark.programs("munged", "slurmctld", "slurmd", "sbatch"),
]

SLOW = THREE.replace("rounds: 3", "rounds: 20").replace("latency: 10ms", "latency: 100ms")
LONG = f"{SLOW}probe: {{before: false}}\n"
SPREAD = f"""\
{LONG}
hosts: {{cloud: n1, device-0: n1, device-1: n2}}
faults: [{{at: 500ms, node: device-1, action: crash, for: 1s}}]
"""
CONFIGURATION = """\
ClusterName=edgebed
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge
CredType=cred/munge
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
KillWait=5
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.2 Port={ports[2]} CPUs=1
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[None]:
    """Slurm's daemons, which the commands of this process and its children find."""
    with (
        tempfile.TemporaryDirectory(prefix="slurm-") as name,
        pytest.MonkeyPatch.context() as patch,
        contextlib.ExitStack() as daemons,
    ):
        folder, key = Path(name), Path(name, "key")
        folder.chmod(0o755)  # munged refuses a socket that not all users reach
        key.write_bytes(os.urandom(64))
        key.chmod(0o600)
        for node in ("n1", "n2"):
            (folder / node).mkdir()
        configuration = folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(folder=folder, ports=free_ports(3)))
        patch.setenv("SLURM_CONF", str(configuration))
        places = {"key-file": key, "socket": folder / "munge", "pid-file": folder / "munge.pid"}
        places |= {"log-file": folder / "munge.log", "seed-file": folder / "seed"}
        munged = ["munged", "--foreground", *(f"--{option}={path}" for option, path in places.items())]
        nodes = [["slurmd", "-D", "-N", node, "-f", str(configuration)] for node in ("n1", "n2")]
        for words in (munged, ["slurmctld", "-D", "-f", str(configuration)], *nodes):
            daemon = daemons.enter_context(
                subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            daemons.callback(daemon.terminate)
            if words is munged:
                wait_for(lambda: places["socket"].exists() or None, "munged")
        wait_for(lambda: idle() == ["idle", "idle"] or None, "the nodes")
        yield


def idle() -> list[str]:
    words = ["sinfo", "--noheader", "--Node", "--format=%t"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


@pytest.mark.usefixtures("slurm")
def test_an_array_on_two_nodes_is_followed_and_collected(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "mine.yaml").write_text("scenario: small.yaml\nseeds: [1, 2]\n")
    words = command("sweep", "mine.yaml", "--driver", "sim", "--on", "slurm")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = [
        subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    for node in ("n1", "n2"):
        assert f"completed on {node}\n" in done[0].stdout
    assert "2 pass" in done[0].stdout
    assert "submitted" not in done[1].stdout  # all runs are complete


USER = "nobody"


@dataclass(frozen=True)
class Ordinary:
    """An ordinary user: a folder, what starts a program there as this user, and a Python that may be read."""

    folder: Path
    start: Callable[..., subprocess.Popen[str]]
    python: str

    def edgebed(self, *words: str) -> subprocess.Popen[str]:
        return self.start(self.python, "-P", "-m", "orchestrator", *words)

    def processes(self) -> dict[int, str]:
        """The processes that this has started, and their commands."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"HOME={self.folder}\0".encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "comm").read_text().strip()
        return found


@pytest.fixture
def ordinary(slurm: None) -> Iterator[Ordinary]:
    user = pwd.getpwnam(USER)
    with tempfile.TemporaryDirectory(prefix="edgebed-") as name:
        os.chown(name, user.pw_uid, user.pw_gid)
        paths = f"{ROOT}:{sysconfig.get_path('purelib')}"
        environment = os.environ | {"PYTHONPATH": paths, "HOME": name, "EDGEBED_CACHE": name}

        def start(*words: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                words,
                cwd=name,
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
                user=user.pw_uid,
                group=user.pw_gid,
                extra_groups=[],
            )

        for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
            found = Ordinary(Path(name), start, python)
            with contextlib.suppress(PermissionError), found.edgebed("--version") as trial:
                if trial.wait() == 0:
                    yield found
                    return
        pytest.skip("an ordinary user may not read this Python")


def slurm_says(*words: str) -> list[str]:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def task() -> str:
    (found,) = slurm_says("squeue", "--noheader", "--array", "--format=%i")
    return found


def wait_for_round(folder: Path, round: int) -> RunDirectory:
    run = wait_for(lambda: next(iter(known_runs(folder)), None), "the run's directory")

    def reached() -> bool | None:
        with contextlib.suppress(RecordError), History.open(run.path) as history:
            return max((each.round or 0 for each in history.events("round")), default=0) >= round or None
        return None

    wait_for(reached, f"round {round}", timeout=120.0)
    return run


def test_a_run_of_an_ordinary_user_survives_cancellation_and_its_time_limit(ordinary: Ordinary) -> None:
    folder, edgebed = ordinary.folder, ordinary.edgebed
    (folder / "long.yaml").write_text(LONG)
    words = ("sweep", "long.yaml", "--on", "slurm")
    with edgebed(*words) as first:
        run = wait_for_round(folder / "runs/long", 3)
        slurm_says("scancel", task())
        assert "cancelled" in first.communicate()[0]
    wait_for(lambda: run.holder() is None or None, "the end of the run")
    assert traces_of(run.run) == []
    with History.open(run.path) as history:
        assert history.outcome is not None
        assert history.outcome.ended == "interrupted"
        rounds = history.rounds_done()
    with edgebed(*words) as second:
        wait_for_round(folder / "runs/long", rounds + 3)
        name = task()
        slurm_says("scancel", "--batch", "--signal=USR1", name)  # as near the limit
        wait_for(
            lambda: slurm_says("squeue", "--noheader", "--format=%r") == ["BeginTime"] or None, "the requeued task"
        )
        wait_for(lambda: idle() == ["idle", "idle"] or None, "the nodes")
        # Without the usual two minutes, but not in the same second, in which Slurm revokes the task's credential.
        slurm_says("scontrol", "update", f"JobId={name}", "StartTime=now+3")
        printed = second.communicate()[0]
        assert "completed on n" in printed, (folder / "runs/long/slurm-0.log").read_text()
    assert known_runs(folder / "runs/long") == [run]
    with History.open(run.path) as history:
        assert history.outcome is not None
        assert (history.outcome.ended, history.rounds_done()) == ("rounds", 20)
    assert traces_of(run.run) == []


def submit(ordinary: Ordinary, *arguments: str) -> str:
    """A job that runs `job.sh` on both nodes. `sbatch --wait` would look at it after 2, 10 and 42 s."""
    words = ("sbatch", "--parsable", "--nodes=2", "--output=job.log", "job.sh", *arguments)
    with ordinary.start(*words) as submission:
        return submission.communicate()[0].strip()


def exit_code(job: str) -> int:
    """Of a job, once it has ended."""

    def shown() -> str | None:
        words = slurm_says("scontrol", "--oneliner", "show", "job", job)
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        return fields["ExitCode"] if fields["JobState"] in ("COMPLETED", "FAILED") else None

    return int(wait_for(shown, f"the end of job {job}", 120.0).split(":")[0])


def test_one_run_spreads_over_the_hosts_of_a_job(ordinary: Ordinary) -> None:
    folder = ordinary.folder
    (folder / "spread.yaml").write_text(SPREAD)
    up = f"exec {ordinary.python} -P -m orchestrator up spread.yaml --driver slurm --runs $1 --set algorithm.rounds=$2"
    (folder / "job.sh").write_text(f"#!/bin/sh\n{up}\n")
    whole = submit(ordinary, "whole", "6")
    assert exit_code(whole) in (0, 3), (folder / "job.log").read_text()  # 3: on a busy host links are late
    (run,) = known_runs(folder / "whole")
    with History.open(run.path) as history:
        assert history.outcome is not None
        assert (history.outcome.ended, history.rounds_done()) == ("rounds", 6)
        assert [each.target for each in history.faults() if each.start is not None] == ["device-1"]
        measured = [recorded.event for recorded in history.recorded(NetworkReading)]
    assert measured[0].first
    assert [each.hosts for each in measured[-1].pairs] == [("n1", "n2")]
    frames = {(each.source, each.target): each for each in measured[-1].frames}
    assert frames["n2", "n1"].sent > 0
    assert frames["n2", "n1"].missing == 0
    killed = submit(ordinary, "killed", "20")
    run = wait_for_round(folder / "killed", 3)
    for pid in [pid for pid, name in ordinary.processes().items() if name == "srun"]:
        os.kill(pid, signal.SIGKILL)
    assert exit_code(killed) == 1
    wait_for(lambda: ordinary.processes() == {} or None, "the end of all processes")
    assert not run.nodes.exists()
