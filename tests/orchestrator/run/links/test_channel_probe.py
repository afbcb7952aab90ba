"""Which channels are measured with which links, what a prober is asked for, and what the record gets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from netem.measurement.measure import Measurement, OneWay
from netem.media.profile import ChannelProfile, Crossing
from netem.profile import LinkProfile
from orchestrator.errors import HostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import LinkPlan, MediumPlan, Plan
from orchestrator.run.links import probe as link_probe
from orchestrator.run.links.channel_probe import ProbedChannel, measure, one_of_each_kind
from orchestrator.scenario.reading import parse

TEXT = """\
algorithm: hierfavg
topology: {edges: 2, devices_per_edge: 4}
links: {device-edge: {latency: 10ms}, edge-cloud: {latency: 5ms}}
"""
CELL, SLOW = ChannelProfile(10e6, "fair", 0.1), ChannelProfile(2e6, "frames", 0.1, {"device-1-3": 1e6})


def plan(*cells: ChannelProfile) -> Plan:
    """A cell of half duplex for the devices of each edge."""
    made = make_plan(parse(TEXT, "f.yaml"), None)

    def crossing(link: LinkPlan) -> LinkPlan:
        device = next((name for name in (link.source, link.target) if name.startswith("device")), None)
        return link if device is None else replace(link, crossings=(Crossing(f"cell-{device.split('-')[1]}", device),))

    media = [MediumPlan(f"cell-{number}", {f"cell-{number}": cell}, ()) for number, cell in enumerate(cells)]
    return replace(made, media=tuple(media), links=tuple(map(crossing, made.links)))


def ends(link: LinkPlan | None) -> tuple[str, str] | None:
    return None if link is None else (link.source, link.target)


def chosen(made: Plan, absent: str = "") -> list[ProbedChannel]:
    return one_of_each_kind(made, [node.name for node in made.nodes if node.name != absent])


def test_a_channel_of_each_kind_with_few_members() -> None:
    first, second = chosen(plan(CELL, SLOW))
    assert (first.name, list(first.loading)) == ("cell-0", ["device-0-0", "device-0-1", "device-0-2"])
    assert second.name == "cell-1"
    assert "device-1-3" in second.loading
    assert "device-0-3" in (ends(first.idle) or ())
    apart = ends(first.apart)
    assert apart is not None
    assert "edge-1" in apart
    assert [each.name for each in chosen(plan(CELL, CELL))] == ["cell-0"]
    assert [each.name for each in chosen(plan(CELL, CELL), absent="device-0-0")] == ["cell-0", "cell-1"]


def test_links_alone_on_their_channels_are_kinds_of_their_own() -> None:
    made = plan(CELL, SLOW)
    pairs = link_probe.one_of_each_kind(made, [node.name for node in made.nodes])
    rates = Counter(pair.forward.profile.rate for pair in pairs)
    assert rates == {None: 1, 10e6: 1, 2e6: 1, 1e6: 1}
    for batch in link_probe.batches(pairs):
        places = [place for pair in batch for place in pair.places]
        assert len(places) == len(set(places))


class Fake:
    """A prober whose channels share equally; the round trip grows by ``queue`` while members send. The first ``late``
    probes were late. The clocks of hosts are ``ahead``."""

    mtu = 1500

    def __init__(self, queue: float = 0.001, late: int = 0, broken: bool = False) -> None:
        self.queue, self.late, self.broken = queue, late, broken
        self.asked: list[tuple[int, dict[str, Any]]] = []
        self.ahead: dict[str, float] = {}

    @contextlib.asynccontextmanager
    async def responding(self, handle: NodeHandle, address: str) -> AsyncIterator[dict[str, Any]]:
        if self.broken:
            raise HostError("no")
        yield {"port": 1, "token": "00"}

    async def now(self, handle: NodeHandle) -> float:
        return time.time() + self.ahead.get(handle.host, 0.0)

    async def probe(self, handle: NodeHandle, arguments: Sequence[str]) -> dict[str, Any]:
        sent = json.loads(arguments[-1])
        self.asked.append((handle.pid, sent))
        self.late -= sent["start"] > 0
        grown = self.queue if sent["start"] else 0.0
        offer = sent["forward"]["offer"] / 2 if sent["forward"] else None
        way = OneWay(sent=1, received=1, rate=offer)
        found = Measurement(
            rtt_median=0.02 + grown, rtt_p99=0.02, rtt_samples=50, forward=way, back=way, late=float(self.late >= 0)
        )
        return asdict(found)


def measured(prober: Fake, *, latency: float = 0.01, hosts: Sequence[str] = ("",)) -> dict[str, str] | str:
    made = plan(CELL, SLOW)
    made = replace(made, links=tuple(replace(link, profile=LinkProfile(latency=latency)) for link in made.links))
    handles = {node.name: NodeHandle(number, hosts[number % len(hosts)]) for number, node in enumerate(made.nodes)}
    found = asyncio.run(measure(chosen(made)[0], made, handles, prober))
    return found if isinstance(found, str) else {figure.quantity: figure.verdict for _, figure in found}


def test_senders_start_together_and_the_idle_when_the_buffer_is_full() -> None:
    prober = Fake(queue=0.0004)
    assert measured(prober) == dict.fromkeys(("rate", "fairness", "share", "queue", "isolation"), "pass")
    sending = [sent for _, sent in prober.asked if sent["forward"]]
    pinging = [sent["start"] for _, sent in prober.asked if not sent["forward"]]
    assert len({sent["start"] for sent in sending}) == 1
    assert len({pid for pid, sent in prober.asked if sent["forward"]}) == 3
    assert sorted(start > sending[0]["start"] for start in pinging) == [False, False, True, True]


def test_senders_on_hosts_with_different_clocks_start_together() -> None:
    prober = Fake(queue=0.0004)
    prober.ahead = {"a": 0.0, "b": 100.0}
    measured(prober, hosts=("a", "b"))
    starts = [sent["start"] - prober.ahead["ab"[pid % 2]] for pid, sent in prober.asked if sent["forward"]]
    assert len({pid % 2 for pid, sent in prober.asked if sent["forward"]}) == 2
    assert max(starts) - min(starts) < 1.0


def test_a_queue_of_others_fails_isolation_and_the_idle() -> None:
    prober = Fake(queue=0.05)
    found = measured(prober)
    assert len(prober.asked) == 2 * 7
    assert isinstance(found, dict)
    assert (found["queue"], found["isolation"]) == ("fail", "fail")


def test_a_late_sender_is_measured_again_once() -> None:
    prober = Fake(queue=0.0, late=1)
    assert measured(prober) == dict.fromkeys(("rate", "fairness", "share", "queue", "isolation"), "pass")
    assert len(prober.asked) == 2 * 7
    again = Fake(queue=0.0, late=100)
    found = measured(again)
    assert isinstance(found, dict)
    assert found["rate"] == "unknown"
    assert len(again.asked) == 2 * 7


def test_a_prober_that_fails_gives_the_reason() -> None:
    assert measured(Fake(broken=True)) == "no"
