"""Contention probes through the channel that they measure, on a clock of their own: what is sent as configured passes,
and another rule, rate or buffer fails."""

from __future__ import annotations

import heapq
from dataclasses import replace

import pytest

from netem.measurement.contention import (
    FEWEST_PINGS,
    LATE,
    Contention,
    Way,
    alone,
    jain,
    judge_contention,
    judge_isolation,
    judge_queue_of_idle,
    pings,
    plan_contention,
    senders,
)
from netem.measurement.judge import Judgement
from netem.measurement.measure import MOST_DATAGRAMS, Measurement, OneWay
from netem.measurement.tally import UDP_HEADERS, Flood
from netem.media.channel import Channel
from netem.media.profile import RULES, ChannelProfile, Crossing
from netem.profile import LinkProfile

MTU = 1500
NEAR = LinkProfile(latency=0.01)
MEMBERS = [f"device-{number}" for number in range(6)]


def ways(profile: LinkProfile = NEAR, members: list[str] = MEMBERS) -> dict[str, Way]:
    return {member: Way(profile, [Crossing("cell", member)]) for member in members}


def planned(channel: ChannelProfile, members: list[str] = MEMBERS[:3]) -> Contention:
    return plan_contention("cell", ways(members=members), {"cell": channel}, mtu=MTU)


def carried(plan: Contention, channel: ChannelProfile, late: float = 0.0) -> tuple[dict[str, Measurement], float]:
    """What arrives through the channel, and the median delay of the datagrams of an idle member."""
    sent = []
    for number, (name, saturation) in enumerate(plan.saturations.items()):
        spacing = 8 * (saturation.size + UDP_HEADERS) / saturation.offer
        for position in range(int(saturation.seconds / spacing)):
            sent.append((position * spacing + 1e-6 * number, name, saturation.size + UDP_HEADERS))
    idle = pings(plan, Way(NEAR), NEAR)
    sent += [(plan.filled + position * idle.spacing, "idle", 82) for position in range(idle.count)]
    medium: Channel[tuple[str, float]] = Channel(channel, lambda packet: None)
    floods, delays = {name: Flood() for name in plan.rates}, list[float]()

    def arrived(now: float) -> None:
        for at, (name, left) in medium.advance(now):
            if name == "idle":
                delays.append(at - left)
            else:
                floods[name].add(left, at, plan.saturations[name].size)

    heapq.heapify(sent)
    while sent:
        at, name, size = heapq.heappop(sent)
        arrived(at)
        medium.offer(at, name, size, 1, (name, at))
    arrived(1e9)
    found = {name: measurement(OneWay(sent=1, received=1, **flood.result()), late) for name, flood in floods.items()}  # type: ignore[arg-type]
    return found, sorted(delays)[len(delays) // 2]


def measurement(forward: OneWay | None = None, late: float = 0.0, rtt: float = 0.02, samples: int = 50) -> Measurement:
    way = OneWay(sent=1, received=1)
    return Measurement(rtt_median=rtt, rtt_p99=rtt, rtt_samples=samples, forward=forward or way, back=way, late=late)


def verdicts(judgements: list[Judgement]) -> dict[str, str]:
    return {each.quantity: each.verdict for each in judgements}


RATES = {"device-1": 6e6}
CHANNELS = {
    "fair": ChannelProfile(20e6, "fair", 0.1),
    "slow": ChannelProfile(200e3, "fair", 0.2),
    "airtime": ChannelProfile(54e6, "airtime", 0.1, RATES),
    "frames": ChannelProfile(54e6, "frames", 0.1, RATES),
    "fifo": ChannelProfile(20e6, "fifo", 0.1),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_a_channel_as_configured_passes(name: str) -> None:
    channel = CHANNELS[name]
    plan = planned(channel)
    assert plan.full
    found, delay = carried(plan, channel)
    judged = judge_contention(plan, channel.rule, found, pinged=82 * 8 / plan.spacing)
    assert {*verdicts(judged).values()} == {"pass"}, judged
    assert len(judged) == (1 if name == "fifo" else 3)
    queue = judge_queue_of_idle(plan, channel, 1, measurement(), measurement(rtt=0.02 + delay))
    assert queue.verdict == "pass", queue


@pytest.mark.parametrize(
    ("configured", "real", "failing"),
    [
        ("fair", replace(CHANNELS["fair"], rate=19e6), {"rate"}),
        ("fair", replace(CHANNELS["fair"], rate=21e6), {"rate"}),
        ("airtime", replace(CHANNELS["airtime"], share="fair"), {"rate", "fairness", "share"}),
        ("frames", replace(CHANNELS["frames"], share="airtime"), {"rate", "fairness", "share"}),
    ],
)
def test_another_channel_than_configured_fails(configured: str, real: ChannelProfile, failing: set[str]) -> None:
    plan = planned(CHANNELS[configured])
    judged = verdicts(judge_contention(plan, real.rule, carried(plan, real)[0]))
    assert {name for name, verdict in judged.items() if verdict == "fail"} == failing


@pytest.mark.parametrize(("channel", "real", "verdict"), [("fair", "fifo", "fail"), ("fifo", "fair", "unknown")])
def test_an_idle_member_reports_the_buffer(channel: str, real: str, verdict: str) -> None:
    plan = planned(CHANNELS[channel])
    _, delay = carried(plan, CHANNELS[real])
    loaded = measurement(rtt=0.02 + delay)
    assert judge_queue_of_idle(plan, CHANNELS[channel], 1, measurement(), loaded).verdict == verdict


def test_senders_that_a_busy_host_slows_down_show_nothing() -> None:
    plan = planned(CHANNELS["fair"])
    slow = {name: replace(each, offer=0.2 * each.offer) for name, each in plan.saturations.items()}
    found, _ = carried(replace(plan, saturations=slow), CHANNELS["fair"])
    assert verdicts(judge_contention(plan, RULES["fair"], found)) == {"rate": "unknown"}


def test_a_late_sender_or_ping_shows_nothing() -> None:
    plan = planned(CHANNELS["fair"])
    found, _ = carried(plan, CHANNELS["fair"], late=2 * LATE)
    assert verdicts(judge_contention(plan, RULES["fair"], found)) == {"rate": "unknown"}
    assert judge_isolation(0.0, measurement(), measurement(late=2 * LATE)).verdict == "unknown"


@pytest.mark.parametrize(("rtt", "verdict"), [(0.0204, "pass"), (0.0206, "fail"), (0.0196, "pass")])
def test_isolation(rtt: float, verdict: str) -> None:
    assert judge_isolation(0.0, measurement(), measurement(rtt=rtt)).verdict == verdict


def test_senders_are_few_of_different_rates_and_leave_one_idle() -> None:
    cell = {"cell": ChannelProfile(10e6, "frames", rates={"device-4": 1e6, "device-5": 1e6})}
    assert senders("cell", ways(), cell) == ["device-0", "device-4", "device-1", "device-5"]
    assert senders("cell", ways(members=MEMBERS[:3]), cell) == MEMBERS[:2]
    assert senders("cell", ways(members=MEMBERS[:2]), cell) == MEMBERS[:2]


def test_slow_members_are_more_or_fill_no_channel() -> None:
    slow = ways(LinkProfile(rate=2e6))
    assert len(senders("cell", slow, {"cell": ChannelProfile(10e6)})) == 5
    wide = {"cell": ChannelProfile(100e6)}
    chosen = senders("cell", slow, wide)
    plan = plan_contention("cell", {name: slow[name] for name in chosen}, wide, mtu=MTU)
    assert not plan.full
    assert set(plan.rates.values()) == {2e6}


def test_a_narrower_channel_behind_limits_what_is_expected() -> None:
    both = {name: Way(NEAR, [Crossing("cell", name), Crossing("uplink", "edge-0")]) for name in MEMBERS[:2]}
    channels = {"cell": ChannelProfile(20e6), "uplink": ChannelProfile(8e6)}
    plan = plan_contention("cell", both, channels, mtu=MTU)
    assert not plan.full
    assert plan.rates == pytest.approx(dict.fromkeys(both, 4e6))


def test_what_is_sent() -> None:
    slow, usual, fast = (planned(ChannelProfile(rate)) for rate in (100e3, 20e6, 1e9))
    assert {each.transport for each in fast.saturations.values()} == {"tcp"}
    for plan in (slow, usual):
        assert sum(each.offer for each in plan.saturations.values()) <= MOST_DATAGRAMS
        assert max(each.seconds for each in plan.saturations.values()) <= 5
        assert pings(plan, Way(NEAR), NEAR).count >= FEWEST_PINGS
    assert max(each.seconds for each in usual.saturations.values()) == pytest.approx(1.0)


def test_a_link_alone_has_the_rate_and_the_buffer_of_its_slowest_queue() -> None:
    channels = {"cell": ChannelProfile(8e6, buffer=0.2), "uplink": ChannelProfile(80e6)}
    crossings = [Crossing("cell", "device-0"), Crossing("uplink", "edge-0")]
    shared = alone(Way(LinkProfile(latency=0.01, rate=40e6), crossings), channels)
    assert (shared.rate, shared.buffer_limit) == (8e6, 200_000)
    assert shared.latency == pytest.approx(0.01 + 82 * 8 * (1 / 40e6 + 1 / 80e6))
    own = LinkProfile(latency=0.01, rate=1e6)
    assert alone(Way(own, crossings), channels).rate == 1e6
    assert alone(Way(own), channels) is own


def test_jains_index() -> None:
    assert jain([3, 3, 3]) == 1
    assert jain([1, 0, 0, 0]) == 0.25
