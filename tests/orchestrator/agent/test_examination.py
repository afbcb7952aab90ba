"""`hosts doctor` from the orchestrator's side to the agents' verbs. What the agents find is played."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.agent.worker import Examine
from orchestrator.drivers.hosts.agents.calls import ExaminationSetup
from orchestrator.drivers.hosts.agents.facts import HostState
from orchestrator.drivers.swarm import starting
from orchestrator.drivers.swarm.cluster import Cluster, SwarmHost
from orchestrator.drivers.swarm.examination import Examination, examine
from orchestrator.errors import HostError
from orchestrator.fabric.link_prober import Prober
from orchestrator.planning.hosts.inventory import Underlay
from tests.fakes.link_prober import FakeProber
from tests.orchestrator.agent.swarm import ClusterOfAgents
from tests.texts import containing

PC = SwarmHost("1", "pc-1", "10.0.0.1", True, "ready", "active", "amd64", 16.0, 33_500_000_000, "28.3.0", {})
HOSTS = [PC, replace(PC, name="pc-2", address="10.0.0.2"), replace(PC, name="pc-3", address="10.0.0.3")]
FACTS = HostState(version="1", kernel="6.1.0")
HELLO = {"pid": 7, "mtu": 1500, "version": "1"}
HUB = 8
NO_ECHO = {"sent": 5, "received": None}
THERE, BACK = 9.4e8, 9.3e8
PAIRS = [("pc-1", "pc-2"), ("pc-1", "pc-3"), ("pc-2", "pc-3")]
MISSING = "No such image: edgebed-agent:latest"


def examiner(host: str, asked: dict[str, Any], deaf: str = "nobody", prober: FakeProber | None = None) -> Examine:
    async def examine(setup: ExaminationSetup, folder: Path, stack: AsyncExitStack) -> tuple[HostState, int, Prober]:
        asked[host] = setup
        if host == "pc-2" and deaf == "all":
            raise HostError("no namespaces here")
        return replace(FACTS, model=host, trunk=""), HUB, prober or FakeProber(deaf)

    return examine


async def ask(cluster: ClusterOfAgents, hosts: Sequence[SwarmHost] = HOSTS) -> Examination:
    return await examine(cast(Cluster, cluster), hosts, "edgebed-agent", "edgebed-node", lambda said: None)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the orchestrator makes its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


async def test_every_host_reports_and_is_measured_with_every_other(tmp_path: Path, folders: Path) -> None:
    asked: dict[str, Any] = {}
    probers = {each.name: FakeProber() for each in HOSTS}
    cluster = ClusterOfAgents(HOSTS, tmp_path, lambda host: examiner(host, asked, prober=probers[host]), HELLO)
    found = await ask(cluster)
    assert {host: facts.model for host, facts in found.facts.items()} == {each.name: each.name for each in HOSTS}
    addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert asked["pc-2"] == ExaminationSetup(asked["pc-1"].run, "edgebed-node", 1, addresses, 1500)
    there = dict.fromkeys(PAIRS, Underlay(0.001, THERE, 1500))
    assert found.underlay == there | {pair[::-1]: Underlay(0.001, BACK, 1500) for pair in PAIRS}
    assert (found.silent, found.unmeasured, found.cut) == ({}, {}, {})
    for prober in probers.values():
        for address, handle in prober.responders.items():
            assert handle.pid == (HUB if address.startswith("10.77.") else HELLO["pid"])
        streams = [plan[way] for _, plan in prober.probes for way in ("forward", "back") if plan[way]]
        assert all((each["transport"], each["seconds"]) == ("tcp", 0.3) for each in streams)
    assert cluster.calls == ["start pc-1, pc-2, pc-3", "stop"]
    assert os.listdir(folders) == []


@pytest.mark.parametrize("after", [0, 1])
async def test_rates_are_not_measured_next_to_a_run(tmp_path: Path, folders: Path, after: int) -> None:
    """``after``: how many measurements are done when the run begins."""
    cluster = ClusterOfAgents(HOSTS, tmp_path, lambda host: examiner(host, {}), HELLO)
    said: list[str] = []

    def tell(what: object) -> None:
        said.append(str(what))
        if sum("rate" in each for each in said) == after:
            cluster.mark("mine-20260101-120000-aaaa", tmp_path)

    found = await examine(cast(Cluster, cluster), HOSTS, "edgebed-agent", "edgebed-node", tell)
    assert found.busy == ("mine-20260101-120000-aaaa",)
    assert found.underlay == dict.fromkeys([*PAIRS, *(pair[::-1] for pair in PAIRS)], Underlay(0.001, None, 1500))
    assert [each for each in said if "rate" in each] == [containing("measuring", "between pc-1 and pc-2")][:after]


async def test_hosts_that_do_not_report(tmp_path: Path, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "FAILING", 0.0)
    asked: dict[str, Any] = {}
    cluster = ClusterOfAgents(
        HOSTS, tmp_path, lambda host: MISSING if host == "pc-3" else examiner(host, asked, deaf="all"), HELLO
    )
    found = await ask(cluster)
    assert set(found.facts) == {"pc-1"}
    assert found.silent == {"pc-2": "no namespaces here", "pc-3": MISSING}
    assert cluster.calls[-1] == "stop"


async def test_a_host_that_goes_down_is_not_waited_for(tmp_path: Path, folders: Path) -> None:
    gone = replace(HOSTS[1], state="down")
    cluster = ClusterOfAgents([PC, gone], tmp_path, lambda host: "" if host == "pc-2" else examiner(host, {}), HELLO)
    found = await ask(cluster, HOSTS[:2])
    assert (set(found.facts), found.silent) == ({"pc-1"}, {"pc-2": "the swarm has lost it"})


async def test_hosts_that_do_not_receive_from_each_other(tmp_path: Path, folders: Path) -> None:
    cluster = ClusterOfAgents(HOSTS, tmp_path, lambda host: examiner(host, {}, deaf="10.0.0.3"), HELLO)
    found = await ask(cluster)
    assert set(found.underlay) == {("pc-1", "pc-2"), ("pc-2", "pc-1")}
    assert found.unmeasured == {
        ("pc-1", "pc-3"): containing("pc-1 comes back from pc-3 (10.0.0.3)"),
        ("pc-2", "pc-3"): containing("pc-2 comes back from pc-3 (10.0.0.3)"),
    }


@pytest.mark.parametrize(
    ("deaf", "narrow", "lost"), [("10.77.0.3", 9000, "packets of 100 bytes"), ("", 1400, "packets of 1450 bytes")]
)
async def test_what_the_trunk_does_not_carry(tmp_path: Path, folders: Path, deaf: str, narrow: int, lost: str) -> None:
    cluster = ClusterOfAgents(HOSTS, tmp_path, lambda host: examiner(host, {}, prober=FakeProber(deaf, narrow)), HELLO)
    found = await ask(cluster)
    assert len(found.underlay) == 6
    assert set(found.cut) >= {("pc-1", "pc-3"), ("pc-2", "pc-3")}
    assert set(found.cut.values()) == {lost}


async def test_without_hosts_nothing_is_started(tmp_path: Path) -> None:
    cluster = ClusterOfAgents(HOSTS, tmp_path, lambda host: MISSING, HELLO)
    assert await ask(cluster, []) == Examination()
    assert cluster.calls == []


async def test_the_agents_end_when_the_question_is_cancelled(tmp_path: Path, folders: Path) -> None:
    async def never(setup: ExaminationSetup, folder: Path, stack: AsyncExitStack) -> tuple[HostState, int, Prober]:
        await asyncio.Event().wait()
        raise AssertionError

    cluster = ClusterOfAgents(HOSTS, tmp_path, lambda host: never, HELLO)
    asking = asyncio.create_task(ask(cluster))
    await cluster.started.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert cluster.calls[-1] == "stop"
    assert os.listdir(folders) == []
