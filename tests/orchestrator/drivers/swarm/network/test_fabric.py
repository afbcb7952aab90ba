"""Links of several hosts when one of them refuses a change, or does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from netem.profile import LinkProfile
from orchestrator.drivers.swarm.agents.calls import HostLinks
from orchestrator.drivers.swarm.agents.channel import Agents
from orchestrator.drivers.swarm.driver import SwarmDriver
from orchestrator.drivers.swarm.network.fabric import SwarmFabric
from orchestrator.errors import DriverError, FabricError, LostError
from orchestrator.fabric.base import Counted, Fabric, LinkChange
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import LinkPlan, Plan
from orchestrator.scenario.reading import parse

SCENARIO = """\
algorithm: {name: fedavg, rounds: 1}
topology: {edges: 0, devices: 2}
links: {device-cloud: {latency: 10ms}}
"""
HOSTS = {"cloud": "pc-1", "device-0": "pc-1", "device-1": "pc-2"}


class TwoHosts:
    """The agents of pc-1 and pc-2, and what the driver knows of them. ``errors``: what a host answers, or raises."""

    homes = HOSTS
    hosts = ("pc-1", "pc-2")

    def __init__(self) -> None:
        self.engines = dict.fromkeys(self.hosts, "userspace")
        self.tcp: dict[str, dict[str, str]] = {host: {} for host in self.hosts}
        self.errors: dict[str, Exception | str] = {}
        self.refused: set[int] = set()  # changes, by their place in a batch
        self.answers: int | None = None  # the number of results of a batch
        self.changes: dict[str, list[LinkChange]] = {"pc-1": [], "pc-2": []}
        self.shaped: dict[str, list[LinkPlan]] = {"pc-1": [], "pc-2": []}

    def has(self, host: str) -> bool:
        return True

    async def call(self, host: str, method: Callable[..., Any], *arguments: Any) -> Any:
        error = self.errors.get(host)
        if isinstance(error, Exception):
            raise error
        if method is Fabric.counters:
            return Counted([{"source": "device-0", "target": "cloud", "offered": 1}])
        if method is HostLinks.shape:
            (self.shaped[host],) = arguments
            return []
        (changes,) = arguments
        self.changes[host] += changes
        replies = ["no" if number in self.refused else error for number in range(len(changes))]
        return replies[: self.answers]


@dataclass
class Opened:
    plan: Plan
    hosts: TwoHosts = field(default_factory=TwoHosts)

    async def fabric(self) -> SwarmFabric:
        fabric = SwarmFabric(cast(Agents, self.hosts), self.plan, cast(SwarmDriver, self.hosts), lambda *_: 0.0)
        await fabric.shape(self.plan.links)
        return fabric


@pytest.fixture
def opened() -> Opened:
    return Opened(make_plan(parse(SCENARIO, "two.yaml"), None))


@pytest.mark.parametrize("error", ["no", DriverError("pc-2: its agent gave no answer")], ids=["refuses", "silent"])
async def test_a_host_that_fails_a_change_fails_only_its_own(opened: Opened, error: Exception | str) -> None:
    fabric = await opened.fabric()
    opened.hosts.errors["pc-2"] = error
    done = await asyncio.gather(
        fabric.cut("device-0", "cloud"), fabric.cut("device-1", "cloud"), return_exceptions=True
    )
    assert done[0] is None
    assert isinstance(done[1], FabricError)
    del opened.hosts.errors["pc-2"]
    for host in TwoHosts.hosts:
        opened.hosts.changes[host].clear()
        await fabric.reshape(host)
    cut = {host: [(each.source, each.target) for each in opened.hosts.changes[host]] for host in TwoHosts.hosts}
    assert cut == {"pc-1": [("device-0", "cloud")], "pc-2": []}


async def test_a_profile_that_is_refused_does_not_come_back(opened: Opened) -> None:
    fabric = await opened.fabric()
    before = opened.hosts.shaped["pc-2"]
    opened.hosts.errors["pc-2"] = "no"
    with pytest.raises(FabricError, match="pc-2: no"):
        await fabric.change("device-1", "cloud", LinkProfile(latency=0.5))
    del opened.hosts.errors["pc-2"]
    await fabric.reshape("pc-2")
    assert opened.hosts.shaped["pc-2"] == before


@pytest.mark.parametrize("refused", [0, 1])
async def test_of_two_changes_of_a_link_the_one_that_is_made_stays(opened: Opened, refused: int) -> None:
    fabric = await opened.fabric()
    opened.hosts.refused = {refused}
    profiles = [LinkProfile(latency=0.3), LinkProfile(latency=0.5)]
    done = await asyncio.gather(
        *(fabric.change("device-1", "cloud", profile) for profile in profiles), return_exceptions=True
    )
    assert [isinstance(each, FabricError) for each in done] == [refused == 0, refused == 1]
    opened.hosts.refused = set()
    await fabric.reshape("pc-2")
    shaped = {each.source: each.profile for each in opened.hosts.shaped["pc-2"]}
    assert shaped["device-1"] == profiles[1 - refused]


async def test_a_host_that_answers_for_too_few_changes_is_named(opened: Opened) -> None:
    fabric = await opened.fabric()
    opened.hosts.answers = 0
    with pytest.raises(FabricError, match=r"^pc-2: its agent gave 0 results of 1 changes$"):
        await fabric.cut("device-1", "cloud")


async def test_a_change_for_a_lost_host_takes_effect_later(opened: Opened) -> None:
    fabric = await opened.fabric()
    opened.hosts.errors["pc-2"] = LostError("pc-2: its agent is away")
    await fabric.cut("device-1", "cloud")
    del opened.hosts.errors["pc-2"]
    await fabric.reshape("pc-2")
    assert [(each.source, each.target) for each in opened.hosts.changes["pc-2"]] == [("device-1", "cloud")]


async def test_counters_of_a_silent_host_stay(opened: Opened) -> None:
    fabric = await opened.fabric()
    before = await fabric.counters()
    opened.hosts.errors["pc-2"] = DriverError("pc-2: its agent gave no answer")
    assert await fabric.counters() == before
