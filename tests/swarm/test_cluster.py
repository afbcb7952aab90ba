"""The swarm of three real Engines, and agents on it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from orchestrator.drivers.swarm.cluster import Agent, Cluster
from orchestrator.errors import HostError
from tests.e2e.engine import at
from tests.e2e.harness import command, json_of, wait_for
from tests.e2e.image import import_commands
from tests.swarm.engines import EngineHost, Engines

pytestmark = pytest.mark.e2e

IMAGE = "edgebed-test:script"
RUN = "test-20260101-120000-aaaa"
AGENT = """\
trap 'exit 0' TERM
cat /run/secrets/key > /place/$(uname -n)
ip -oneline address show dev data0 >> /place/$(uname -n)
while :; do sleep 0.1; done
"""
"""Writes down what it finds on its host, and ends when it is told to."""


@pytest.fixture(scope="module")
def place(engines: Engines) -> Engines:
    """Where agents can be made from IMAGE."""
    for host in engines.hosts:
        with closing(host.daemon.client()) as client:
            import_commands(client, IMAGE, ["sh", "cat", "ip", "sleep", "uname"], ['ENTRYPOINT ["sh", "-c"]'])
    return engines


@pytest.fixture
def cluster(place: Engines) -> Iterator[Cluster]:
    with at(place.manager.address), closing(Cluster.connect()) as connected:
        yield connected
        connected.stop_agents(RUN)
    for host in place.hosts:
        wait_empty(host)


def wait_empty(host: EngineHost) -> None:
    with closing(host.daemon.client()) as client:
        wait_for(lambda: client.api.containers(all=True) == [] or None, f"the end of the containers of {host.name}")


def start(cluster: Cluster, place: Path, script: str = AGENT, hosts: list[str] | None = None) -> None:
    """Agents that have ``place`` of this host as /place."""
    cluster.start_agents(
        *(RUN, place, IMAGE, [script]),
        environment={},
        mounts={place: Path("/place")},
        secrets={"key": b"secret\n"},
        hosts=hosts,
    )


def two_lines(file: Path) -> list[str] | None:
    """What an agent has written down."""
    lines = file.read_text().splitlines() if file.exists() else []
    return lines if len(lines) == 2 else None


def states(cluster: Cluster) -> dict[str, str]:
    return {host: agent.state for host, agent in cluster.agents(RUN).items()}


def test_the_hosts_and_their_labels(cluster: Cluster, place: Engines) -> None:
    found = cluster.members()
    assert [(each.name, each.address) for each in found] == [(each.name, each.underlay) for each in place.hosts]
    assert [each.manager for each in found] == [True, False, False]
    assert all(each.usable and each.cores >= 1 and each.memory > 1 << 29 for each in found)
    place.set_label("b", "edgebed.hardware", "raspberry-pi-4")
    assert [each.labels for each in cluster.members()] == [{}, {"edgebed.hardware": "raspberry-pi-4"}, {}]
    told = [(each["name"], each["labels"]) for each in json_of("hosts")["hosts"]]
    assert told == [(each.name, each.labels) for each in cluster.members()]
    on_manager = [*place.manager.enter(), "--unset=DOCKER_HOST", *command("hosts", "--json")]
    shown = subprocess.run(on_manager, capture_output=True, text=True, check=True).stdout
    assert json.loads(shown) == json_of("hosts")
    place.set_label("b", "edgebed.hardware", None)
    assert cluster.members()[1].labels == {}


def test_an_agent_on_each_host_until_they_are_stopped(cluster: Cluster, place: Engines, tmp_path: Path) -> None:
    start(cluster, tmp_path)
    running = dict.fromkeys("abc", "running")
    wait_for(lambda: states(cluster) == running or None, "an agent on each host")
    assert cluster.runs() == {RUN: tmp_path}
    for host in place.hosts:
        secret, address = wait_for(partial(two_lines, tmp_path / host.name), f"what the agent of {host.name} found")
        assert secret == "secret"
        assert f" inet {host.underlay}/24 " in address  # the network is the host's
    assert cluster.stop_agents(RUN) == []
    assert (cluster.runs(), cluster.agents(RUN)) == ({}, {})


def test_why_an_agent_does_not_live(cluster: Cluster, tmp_path: Path) -> None:
    start(cluster, tmp_path, "exit 3", ["a", "c"])
    failed = "task: non-zero exit (3)"
    wait_for(lambda: {each.error for each in cluster.agents(RUN).values()} == {failed} or None, "the error")
    assert set(cluster.agents(RUN)) == {"a", "c"}
    assert cluster.stop_agents(RUN) == []
    start(cluster, tmp_path / "nowhere", hosts=["b"])
    missing = str(tmp_path / "nowhere")
    wait_for(lambda: missing in cluster.agents(RUN).get("b", Agent("", "")).error or None, "the error")


def test_an_engine_that_does_not_manage_the_swarm(place: Engines) -> None:
    with at(place.hosts[1].address), pytest.raises(HostError, match=r"this host, b, .* manager \(10\.77\.0\.1\)"):
        Cluster.connect()
