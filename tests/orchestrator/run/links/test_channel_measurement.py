"""Which channels are measured with which links, what a prober is asked for, and what the record gets."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest

from netem.measurement.probe_plan import Measurement, OneWay
from netem.media.profile import ChannelProfile, Crossing
from netem.profile import LinkProfile
from orchestrator.fabric.base import NodeHandle
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import LinkPlan, MediumPlan, Plan
from orchestrator.run.links import link_measurement
from orchestrator.run.links.channel_measurement import ProbedChannel, measure, one_of_each_kind
from orchestrator.scenario.reading import parse
from tests.fakes.link_prober import FakeProber

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
    pairs = link_measurement.one_of_each_kind(made, [node.name for node in made.nodes])
    rates = Counter(pair.forward.profile.rate for pair in pairs)
    assert rates == {None: 1, 10e6: 1, 2e6: 1, 1e6: 1}
    for batch in link_measurement.batches(pairs):
        places = [place for pair in batch for place in pair.places]
        assert len(places) == len(set(places))


class SharedChannels(FakeProber):
    """Channels share equally; the round trip grows by ``queue`` while members send. The first ``late`` probes were
    late."""

    def __init__(self, queue: float = 0.001, late: int = 0) -> None:
        super().__init__()
        self.queue, self.late = queue, late

    def result(self, arguments: Sequence[str], sent: dict[str, Any]) -> dict[str, Any]:
        self.late -= sent["start"] > 0
        grown = self.queue if sent["start"] else 0.0
        offer = sent["forward"]["offer"] / 2 if sent["forward"] else None
        way = OneWay(sent=1, received=1, rate=offer)
        found = Measurement(
            rtt_median=0.02 + grown, rtt_p99=0.02, rtt_samples=50, forward=way, back=way, late=float(self.late >= 0)
        )
        return asdict(found)


def measured(prober: FakeProber, *, latency: float = 0.01, hosts: Sequence[str] = ("",)) -> dict[str, str] | str:
    made = plan(CELL, SLOW)
    made = replace(made, links=tuple(replace(link, profile=LinkProfile(latency=latency)) for link in made.links))
    handles = {node.name: NodeHandle(number, hosts[number % len(hosts)]) for number, node in enumerate(made.nodes)}
    found = asyncio.run(measure(chosen(made)[0], made, handles, prober))
    return found if isinstance(found, str) else {figure.quantity: figure.verdict for _, figure in found}


def test_in_the_kernel_a_slow_link_takes_more_of_the_channel_than_it_carries() -> None:
    made, slow = plan(CELL, SLOW), LinkProfile(rate=5e5)
    made = replace(
        made,
        links=tuple(
            replace(each, profile=slow if each.source == "device-0-0" else LinkProfile()) for each in made.links
        ),
    )
    handles = {node.name: NodeHandle(number) for number, node in enumerate(made.nodes)}

    def lowest(engine: str) -> float | None:
        found = asyncio.run(measure(chosen(made)[0], made, handles, SharedChannels(), engine))
        assert not isinstance(found, str)
        return next(figure.low for _, figure in found if figure.quantity == "rate")

    low = lowest("userspace")
    assert low is not None
    assert lowest("kernel") == pytest.approx(low - 5e4)  # 0.55 Mbit/s are sent


def test_senders_start_together_and_the_idle_when_the_buffer_is_full() -> None:
    prober = SharedChannels(queue=0.0004)
    assert measured(prober) == dict.fromkeys(("rate", "fairness", "share", "queue", "isolation"), "pass")
    sending = [sent for _, sent in prober.probes if sent["forward"]]
    pinging = [sent["start"] for _, sent in prober.probes if not sent["forward"]]
    assert len({sent["start"] for sent in sending}) == 1
    assert len({handle for handle, sent in prober.probes if sent["forward"]}) == 3
    assert sorted(start > sending[0]["start"] for start in pinging) == [False, False, True, True]


def test_datagrams_fit_into_the_smallest_mtu_of_the_senders() -> None:
    made = plan(CELL, SLOW)
    narrow = {"device-0-0", "edge-0"}
    made = replace(
        made,
        links=tuple(replace(each, mtu=1280 if {each.source, each.target} == narrow else None) for each in made.links),
    )
    handles = {node.name: NodeHandle(number) for number, node in enumerate(made.nodes)}
    prober = SharedChannels()
    asyncio.run(measure(chosen(made)[0], made, handles, prober))
    sizes = {sent["forward"]["size"] for _, sent in prober.probes if sent["forward"]}
    assert sizes == {1280 - 28}  # less the headers of IPv4 and UDP; the prober's own packets have 1450


def test_senders_of_a_slow_channel_have_time_for_their_answers_before_they_start() -> None:
    """Three answers of 400 bytes take 1.76 s at 5.47 kbit/s. A sender waits for an echo and for an answer."""
    slow = plan(ChannelProfile(5470.0, "fair", 1.0), SLOW)
    handles = {node.name: NodeHandle(number) for number, node in enumerate(slow.nodes)}
    prober, began = SharedChannels(), time.time()
    assert not isinstance(asyncio.run(measure(chosen(slow)[0], slow, handles, prober)), str)
    sending = [sent for _, sent in prober.probes if sent["forward"]]
    assert min(sent["wait"] for sent in sending) > 3 * 8 * 400 / 5470
    assert all(sent["start"] > began + 2 * sent["wait"] for sent in sending)


def test_senders_on_hosts_with_different_clocks_start_together() -> None:
    prober = SharedChannels(queue=0.0004)
    prober.ahead = {"a": 0.0, "b": 100.0}
    measured(prober, hosts=("a", "b"))
    sending = [(handle.host, sent["start"]) for handle, sent in prober.probes if sent["forward"]]
    starts = [start - prober.ahead[host] for host, start in sending]
    assert {host for host, _ in sending} == {"a", "b"}
    assert max(starts) - min(starts) < 1.0


def test_a_queue_of_others_fails_isolation_and_the_idle() -> None:
    prober = SharedChannels(queue=0.05)
    found = measured(prober)
    assert len(prober.probes) == 2 * 7
    assert isinstance(found, dict)
    assert (found["queue"], found["isolation"]) == ("fail", "fail")


def test_a_late_sender_is_measured_again_once() -> None:
    prober = SharedChannels(queue=0.0, late=1)
    assert measured(prober) == dict.fromkeys(("rate", "fairness", "share", "queue", "isolation"), "pass")
    assert len(prober.probes) == 2 * 7
    again = SharedChannels(queue=0.0, late=100)
    found = measured(again)
    assert isinstance(found, dict)
    assert found["rate"] == "unknown"
    assert len(again.probes) == 2 * 7


def test_a_prober_that_fails_gives_the_reason() -> None:
    assert measured(FakeProber(refusal="no")) == "no"
