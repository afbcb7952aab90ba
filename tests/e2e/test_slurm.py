"""A sweep as an array of a Slurm with two nodes on this host."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT, SMALL, command, wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("munged", "slurmctld", "slurmd", "sbatch"))),
        reason="needs root and Slurm: apt-get install slurmctld slurmd slurm-client munge",
    ),
]

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
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Slurm's daemons, which the commands of this process and its children find."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as name, contextlib.ExitStack() as daemons:
        folder, key = Path(name), Path(name, "key")
        folder.chmod(0o755)  # munged refuses a socket that not all users reach
        key.write_bytes(os.urandom(64))
        key.chmod(0o600)
        for node in ("n1", "n2"):
            (folder / node).mkdir()
        configuration = folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(folder=folder, ports=free_ports(3)))
        monkeypatch.setenv("SLURM_CONF", str(configuration))
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
