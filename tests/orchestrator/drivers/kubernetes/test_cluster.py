"""What kubectl is asked, and what its refusals become, with a fake of it that a test writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from node.assignment import Keypair
from orchestrator.drivers.base import LeavesTraces, LeftRun, Removal, entry_of
from orchestrator.drivers.hosts.agents.settings import Settings
from orchestrator.drivers.kubernetes import cluster
from orchestrator.errors import HostError
from orchestrator.planning.hosts.inventory import HostFacts
from orchestrator.scenario.sections.drivers import DRIVERS
from tests.texts import containing

HOSTS = [HostFacts("n1", "10.0.0.7", "amd64", 2, 1 << 31)]
SECRET = "Tn0tOnAnyC0mmandL1ne"
SETTINGS = Settings(run="r", address="tcp://a:1", server="s", keys=Keypair(public="p", secret=SECRET), lease=15.0)
ANSWERS = """\
#!/bin/sh
PATH=/usr/bin:/bin
echo "$*" >> {folder}/words
case $1 in get) cat {folder}/pods;; create) cat > {folder}/created;; esac
"""

Write = Callable[[str], None]


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the script that is kubectl; there is none before."""
    file = tmp_path / "bin" / "kubectl"
    file.parent.mkdir()
    monkeypatch.setenv("PATH", str(file.parent))

    def write(script: str) -> None:
        file.write_text(script.replace("{folder}", str(tmp_path)))
        file.chmod(0o755)

    return write


def pods(folder: Path, state: dict[str, object], phase: str) -> None:
    status = {"phase": phase, "containerStatuses": [{"state": state}]}
    listed = {"items": [{"metadata": {"annotations": {"edgebed-host": "n1"}}, "status": status}]}
    (folder / "pods").write_text(json.dumps(listed))


def test_without_kubectl_or_a_cluster_there_is_one_error(kubectl: Write) -> None:
    entry = entry_of(DRIVERS["kubernetes"])
    (error,) = entry.missing()
    assert error.what == containing("command 'kubectl' is missing, which finds")
    refused = 'Error from server (Forbidden): nodes is forbidden: User "a" cannot list resource "nodes"'
    kubectl(f"#!/bin/sh\necho '{refused}' >&2\nexit 1\n")
    (error,) = entry.missing()
    assert error.what == f"`kubectl get nodes --output=json` failed ({refused})"
    assert "edgebed docs kubernetes" in error.remedy


async def test_the_secret_is_on_no_command_line_and_all_is_removed(kubectl: Write, tmp_path: Path) -> None:
    kubectl(ANSWERS)
    pods(tmp_path, {"running": {}}, "Running")
    told: asyncio.Queue[str] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        end = asyncio.ensure_future(await cluster.start_agents(told.put_nowait, HOSTS, SETTINGS, stack))
        assert await told.get() == "the agent on n1 is running"
        assert not end.done()
        end.cancel()
    words = (tmp_path / "words").read_text()
    assert SECRET not in words
    assert SECRET in (tmp_path / "created").read_text()
    assert words.splitlines()[-1].startswith("delete daemonsets,secrets --selector=edgebed-run=r ")


async def test_a_pod_that_cannot_start_ends_the_wait(kubectl: Write, tmp_path: Path) -> None:
    kubectl(ANSWERS)
    pods(tmp_path, {"waiting": {"reason": "ImagePullBackOff"}}, "Pending")
    async with AsyncExitStack() as stack:
        end = await cluster.start_agents(lambda said: None, HOSTS, SETTINGS, stack)
        assert await end == containing("n1 does not start (pending: ImagePullBackOff)")


async def test_what_a_refused_creation_has_made_is_removed(kubectl: Write, tmp_path: Path) -> None:
    kubectl(ANSWERS.replace("cat > {folder}/created", "echo 'forbidden: exceeded quota' >&2; exit 1"))
    (tmp_path / "pods").write_text('{"items": []}')
    with pytest.raises(HostError, match=r"`kubectl create --filename=-` failed \(forbidden: exceeded quota\)"):
        async with AsyncExitStack() as stack:
            (await cluster.start_agents(lambda said: None, HOSTS, SETTINGS, stack)).close()
    assert "delete daemonsets,secrets" in (tmp_path / "words").read_text()


def test_the_agents_of_a_killed_run_are_removed(kubectl: Write, tmp_path: Path) -> None:
    kubectl(ANSWERS)
    pods(tmp_path, {"running": {}}, "Running")
    entry = entry_of(DRIVERS["kubernetes"])
    assert isinstance(entry, LeavesTraces)
    assert entry.remove(LeftRun("r", None, "docker")) == Removal()
    assert entry.remove(LeftRun("r", None, "kubernetes")) == Removal(hosts=["n1"])
