"""Ending agents that were left running, and what is told of it. tests/swarm has agents that are there."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli.main import cli
from orchestrator.drivers.swarm import leftovers, standing
from orchestrator.drivers.swarm.cluster import Cluster
from orchestrator.drivers.swarm.hosting import hosts_up
from orchestrator.drivers.swarm.hosting.hosts_up import LeftRunning
from orchestrator.drivers.swarm.standing import NAME, Access, Standing, taken, write_keys
from orchestrator.errors import HostError
from orchestrator.host.docker_socket import DIRECTORY
from orchestrator.planning.keys import keypair
from tests.fakes.swarm import FakeCluster
from tests.orchestrator.drivers.swarm.test_findings import PC, PI
from tests.texts import containing

SWARM = "s0"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = FakeCluster([PC, PI])
    made.mark("mine-1", tmp_path)
    monkeypatch.setattr(Cluster, "connect", lambda: made)
    monkeypatch.setattr(leftovers, "sweep", made.sweep)
    return made


def left(cluster: FakeCluster) -> Access:
    """This user's agents."""
    keys = Access(keypair(), keypair(), NAME)
    write_keys(SWARM, keys)
    found = Standing(keys.server.public, standing.own_version(), "image", standing.keys_folder())
    cluster.standing = found.labels() | {DIRECTORY: str(found.folder)}
    return keys


def hosts(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["hosts", *arguments])


def told(*arguments: str) -> Any:
    return json.loads(hosts(*arguments, "--json").stdout)


def test_agents_and_their_keys_are_gone(cluster: FakeCluster) -> None:
    left(cluster)
    result = hosts("down")
    assert (result.exit_code, result.stdout) == (0, containing("the agents are ended"))
    assert cluster.standing is None
    assert list(standing.keys_folder().iterdir()) == []
    assert cluster.swept == []


def test_a_host_that_does_not_answer_is_named_and_later_swept(cluster: FakeCluster) -> None:
    left(cluster)
    cluster.silent = ["pi-1"]
    result = hosts("down")
    assert result.exit_code == 1
    assert "pi-1 (its agent does not answer)" in result.output
    assert told("down") == {"agents": False, "data": False, "left": {}}
    assert cluster.swept == [(["pc-1", "pi-1"], False)]


def test_data_sets_are_removed_from_the_hosts_that_answer(cluster: FakeCluster) -> None:
    left(cluster)
    cluster.silent = ["pi-1"]
    assert told("down", "--data") == {"agents": True, "data": True, "left": {"pi-1": "its agent does not answer"}}
    assert cluster.swept == [(["pc-1"], True)]


def test_what_a_run_uses_stays(cluster: FakeCluster) -> None:
    keys = left(cluster)
    with ExitStack() as stack:
        assert taken(SWARM, keys.server.public, stack) is not None
        error = hosts("down").exception
    assert isinstance(error, HostError)
    assert str(error).startswith("the agents that are left running")
    assert cluster.standing is not None
    assert hosts("down").exit_code == 0


def test_those_of_another_user_stay(cluster: FakeCluster, tmp_path: Path) -> None:
    left(cluster)
    (tmp_path / "other").mkdir(mode=0o777)
    (tmp_path / "other").chmod(0o777)  # others may write to it, so that its owner says nothing
    assert cluster.standing is not None
    cluster.standing |= {DIRECTORY: str(tmp_path / "other"), **Standing("other", "", "", Path()).labels()}
    error = hosts("down").exception
    assert isinstance(error, HostError)
    assert "are another user's, or lost" in str(error)
    assert cluster.standing is not None


def test_agents_with_lost_keys_can_be_ended(cluster: FakeCluster) -> None:
    left(cluster)
    standing.forget_keys(SWARM)
    assert told("down") == {"agents": True, "data": False, "left": {}}


def test_messages_about_hosts_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_up, "up", lambda tell: LeftRunning(("pc-1",), {"pi-1": "No such image: edgebed-agent"}))
    result = hosts("up")
    assert (result.exit_code, result.stdout) == (1, "agents are left running on pc-1\n")
    assert result.stderr == "pi-1: No such image: edgebed-agent\n"
    assert told("up") == {"hosts": ["pc-1"], "refused": {"pi-1": "No such image: edgebed-agent"}}
