"""Every prober against the same cases. That of a hub measures the loopback of this host, with real packets."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from netem.measurement.endpoints import probe_arguments
from netem.measurement.probe_plan import Measurement, ProbePlan, plan_probe
from netem.profile import LinkProfile
from orchestrator.agent.responders import Responders
from orchestrator.drivers.hosts.agents.calls import HostResponders
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.drivers.hosts.network.link_prober import HostsProber
from orchestrator.errors import DriverError, HostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.link_prober import HubProber, Prober
from orchestrator.fabric.namespaces.hub import Hub
from tests.fakes.link_prober import FakeProber

ADDRESS = "127.0.0.1"
HERE, THERE = NodeHandle(1, "a"), NodeHandle(2, "b")
UNLIMITED = LinkProfile(latency=0.001)
LIMITED = LinkProfile(latency=0.001, rate=10e6)


class LoopbackHub(Hub):
    """A hub whose nodes are all this host."""

    def __init__(self) -> None:
        pass

    def enter(self, pid: int | None = None, *, network: bool = True) -> list[str]:
        return []


class TwoHosts:
    """The agents of a and b, each with a fake prober."""

    def __init__(self) -> None:
        self.probers = {host: FakeProber() for host in ("a", "b")}
        self.responders = {host: Responders(lambda of=prober: of) for host, prober in self.probers.items()}  # type: ignore[misc]

    async def call(self, host: str, method: Callable[..., Any], *arguments: Any) -> Any:
        target = (
            self.responders[host] if method.__qualname__.startswith(HostResponders.__name__) else self.probers[host]
        )
        try:
            return await getattr(target, method.__name__)(*arguments)
        except HostError as error:
            raise DriverError(f"{host}: {error}") from None


def swarm() -> HostsProber:
    return HostsProber(cast(Agents, TwoHosts()), mtu=1450)


async def measured(prober: Prober, plan: ProbePlan) -> Measurement:
    async with prober.responding(HERE, ADDRESS) as ready:
        return Measurement.from_mapping(await prober.probe(THERE, probe_arguments(ADDRESS, ready, plan)))


async def echoes_are_measured(prober: Prober) -> None:
    found = await measured(prober, plan_probe(UNLIMITED, UNLIMITED))
    assert found.rtt_median is not None
    assert found.rtt_p99 is not None
    assert 0 < found.rtt_median <= found.rtt_p99
    assert (found.forward.rate, found.back.rate) == (None, None)
    assert found.rtt_samples > 0


async def a_direction_with_a_rate_is_filled(prober: Prober) -> None:
    found = await measured(prober, plan_probe(LIMITED, UNLIMITED))
    assert found.forward.rate is not None
    assert found.forward.rate > 0
    assert found.back.rate is None


async def the_clock_of_a_host_is_read(prober: Prober) -> None:
    assert await prober.now(THERE) == pytest.approx(time.time(), abs=5)


async def a_probe_that_fails_is_an_error_of_the_host(prober: Prober) -> None:
    with pytest.raises(HostError):
        await prober.probe(THERE, ["probe", "--plan", "{}"])


@pytest.mark.parametrize(
    "case",
    [
        echoes_are_measured,
        a_direction_with_a_rate_is_filled,
        the_clock_of_a_host_is_read,
        a_probe_that_fails_is_an_error_of_the_host,
    ],
    ids=lambda case: case.__name__,
)
@pytest.mark.parametrize("make", [FakeProber, swarm, lambda: HubProber(LoopbackHub())], ids=["fake", "swarm", "hub"])
async def test_prober(make: Callable[[], Prober], case: Callable[[Prober], Awaitable[None]]) -> None:
    prober = make()
    assert prober.mtu > 0
    await case(prober)


async def test_the_clock_of_another_host() -> None:
    two = TwoHosts()
    two.probers["b"].ahead["b"] = 100.0
    assert await HostsProber(cast(Agents, two), mtu=1450).now(THERE) == pytest.approx(time.time() + 100, abs=5)
