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
    other_queues,
    pings,
    plan_contention,
    senders,
    sending,
)
from netem.measurement.judge import Judgement
from netem.measurement.probe_plan import MOST_DATAGRAMS, Measurement, OneWay, ProbePlan, Saturation
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


def of_each(plan: Contention, name: str) -> list[float]:
    """An attribute of each saturation."""
    return [getattr(saturation, name) for saturation in plan.saturations.values()]


class TestPlan:
    """Three members of a channel, unless a test says otherwise; a datagram of an idle member has 656 bits."""

    def test_datagrams(self) -> None:
        """20 Mbit/s in three shares; datagrams of 1,514 bytes with headers, which an MTU of 1500 allows. A buffer of
        100 ms holds 250,000 bytes, and twice the rate fills it in 100 ms."""
        plan = planned(ChannelProfile(20e6))
        assert plan.rates == pytest.approx(dict.fromkeys(MEMBERS[:3], 20e6 / 3))
        assert (plan.channel, plan.full, plan.frame, plan.corrupt) == ("cell", True, 1514, 0.0)
        assert plan.filled == pytest.approx(0.1)
        assert plan.spacing == pytest.approx(4 * 8 * 1514 / (20e6 / 3))  # four frames of a member
        expected = Saturation("udp", 2 * 20e6 / 3, 1.0, 1472, 0, 0.1, 0.1, fills=True)
        for saturation in plan.saturations.values():
            # A quarter of 10 ms of a share is 16,667 bytes, 0.7 of a third of the buffer 58,333.
            assert saturation.window == pytest.approx(75_000, abs=1)
            assert replace(saturation, window=0, offer=0.0) == replace(expected, offer=0.0)
            assert saturation.offer == pytest.approx(expected.offer)

    def test_a_slow_channel(self) -> None:
        """A share of 33 kbit/s is 100 datagrams of 42 bytes a second: less than the smallest, 60 bytes without headers.
        Datagrams of an idle member may use a twentieth of 100 kbit/s: 131 ms between them, and 10 of them take 1.312
        s, after the 0.1 s in which the buffer fills."""
        plan = planned(ChannelProfile(100e3))
        assert plan.frame == 60 + 42
        assert plan.spacing == pytest.approx(0.1312)
        assert {each.size for each in plan.saturations.values()} == {60}
        assert of_each(plan, "seconds") == pytest.approx([0.1 + 1.312] * len(plan.rates))

    def test_the_slowest_member_sends_a_hundred_datagrams(self) -> None:
        """300 kbit/s in three shares are 125 bytes each 10 ms."""
        plan = planned(ChannelProfile(300e3))
        assert plan.frame == 125
        assert plan.spacing == pytest.approx(20 * 656 / 300e3)

    def test_half_of_the_fastest_datagrams_is_doubled(self) -> None:
        """Two shares of 25 Mbit/s."""
        plan = planned(ChannelProfile(50e6), MEMBERS[:2])
        assert of_each(plan, "offer") == [50e6, 50e6]

    @pytest.mark.parametrize(
        ("rate", "buffer", "transport", "offered", "filled", "seconds", "queue"),
        [
            (60e6, 0.1, "udp", 90e6, 0.2, 1.0, 0.1),
            (60e6, 1.0, "udp", 90e6, 2.0, 2.5, 1.0),
            (60e6, 6.0, "udp", 90e6, 12.0, 8.0, 4.0),  # what comes in 8 s does not fill the buffer
            (100e6, 0.1, "udp", 150e6, 0.2, 1.0, 0.1),
            (101e6, 0.1, "tcp", 151.5e6, 0.2, 1.0, 0.0),
        ],
    )
    def test_a_fast_channel_is_filled_by_half_more_than_its_rate(
        self, rate: float, buffer: float, transport: str, offered: float, filled: float, seconds: float, queue: float
    ) -> None:
        """Twice its rate, if that is 100 Mbit/s at most; what is more than its rate fills the buffer."""
        plan = planned(ChannelProfile(rate, buffer=buffer))
        assert plan.filled == pytest.approx(filled)
        assert sum(each.offer for each in plan.saturations.values()) == pytest.approx(offered)
        for saturation in plan.saturations.values():
            assert (saturation.transport, saturation.size) == (transport, 0 if transport == "tcp" else 1472)
            assert (saturation.seconds, saturation.queue) == pytest.approx((seconds, queue))
        assert plan.frame == 1514

    def test_the_drain_is_at_the_rate_of_the_slowest_member(self) -> None:
        plan = planned(ChannelProfile(54e6, "airtime", 0.1, RATES))
        assert of_each(plan, "drain") == pytest.approx([0.1 * 54 / 6] * len(plan.rates))

    @pytest.mark.parametrize(("jitter", "seconds"), [(0.0, 1.0), (0.005, 1.0), (0.05, 5.0), (0.5, 20.0)])
    def test_jitter_takes_a_hundred_times_as_long(self, jitter: float, seconds: float) -> None:
        jittery = ways(members=MEMBERS[:3]) | {MEMBERS[0]: Way(replace(NEAR, jitter=jitter), [Crossing("cell", "x")])}
        plan = plan_contention("cell", jittery, {"cell": ChannelProfile(20e6)}, mtu=MTU)
        assert of_each(plan, "seconds") == pytest.approx([seconds] * len(plan.rates))

    @pytest.mark.parametrize(
        ("profile", "offer"),
        [
            (LinkProfile(loss=0.2), 20e6 / 0.8),
            (LinkProfile(loss=0.6), 20e6 / 0.5),
            (LinkProfile(rate=12e6), 13.2e6),
            (LinkProfile(rate=12e6, loss=0.2), 16.5e6),
            (LinkProfile(rate=40e6), 20e6),
        ],
    )
    def test_losses_are_made_up_for_and_a_link_is_not_overloaded_much(self, profile: LinkProfile, offer: float) -> None:
        """Two members have 10 Mbit/s each, and offer twice that, or a tenth more than their links carry."""
        plan = plan_contention("cell", ways(profile, MEMBERS[:2]), {"cell": ChannelProfile(20e6)}, mtu=MTU)
        assert of_each(plan, "offer") == pytest.approx([offer] * len(plan.rates))

    def test_no_queue_is_expected_of_a_channel_that_is_not_full(self) -> None:
        slow = ways(LinkProfile(rate=2e6, corrupt=0.03), MEMBERS[:2]) | ways(LinkProfile(rate=2e6), ["other"])
        plan = plan_contention("cell", slow, {"cell": ChannelProfile(10e6)}, mtu=1450)
        assert {each.queue for each in plan.saturations.values()} == {0.0}
        assert (plan.full, plan.corrupt, plan.frame) == (False, 0.03, 1450 + 14)

    def test_senders_wait_for_late_datagrams(self) -> None:
        """20 ms and 1 ms of jitter there, 10 ms and 3 ms back: 30 ms, five times 4 ms, and 100 ms."""
        way = Way(LinkProfile(latency=0.02, jitter=0.001))
        saturation = planned(ChannelProfile(20e6)).saturations[MEMBERS[0]]
        plan = sending(way, LinkProfile(latency=0.01, jitter=0.003), saturation, 5.0)
        assert plan.wait == pytest.approx(0.15)
        rest = ProbePlan(count=1, spacing=0.01, size=40, wait=0.0, forward=saturation, back=None, start=5.0)
        assert replace(plan, wait=0.0) == rest
        assert (plan.needed, plan.rate_last) == (0, False)

    @pytest.mark.parametrize(("rate", "count", "spacing"), [(1e9, 69, 0.0072672), (656e3, 50, 0.01), (6560, 10, 1.0)])
    def test_an_idle_member_uses_a_tenth_of_its_rate(self, rate: float, count: int, spacing: float) -> None:
        """For half a second, but ten at least; not more often than the plan says, 7.27 ms."""
        found = pings(planned(ChannelProfile(20e6)), Way(NEAR), NEAR, rate)
        assert found.count == count
        assert found.spacing == pytest.approx(spacing)
        assert (found.start, found.forward, found.back) == (0.0, None, None)


@pytest.mark.parametrize(
    ("rate", "number"),
    [(10e6, 4), (2.475e6, 4), (2.47e6, 5), (0.825e6, 12), (0.82e6, 4)],  # 99 % of 10 Mbit/s; 12 at most
)
def test_as_many_send_as_fill_the_channel(rate: float, number: int) -> None:
    many = ways(LinkProfile(rate=rate), [f"device-{number}" for number in range(30)])
    assert len(senders("cell", many, {"cell": ChannelProfile(10e6)})) == number


def test_the_other_queues_of_a_way_delay_by_their_buffers() -> None:
    channels = {"cell": ChannelProfile(8e6, buffer=0.2), "uplink": ChannelProfile(80e6)}
    way = Way(LinkProfile(rate=40e6, buffer=0.05), [Crossing("cell", "device-0"), Crossing("uplink", "edge-0")])
    (own, uplink) = other_queues(way, channels)
    assert own == pytest.approx((40e6, 0.05))
    assert uplink == pytest.approx((80e6, 0.1))


UDP = Saturation("udp", 2e7, 1.0, 958, 0, 0.1, 0.1, fills=True)
TCP = replace(UDP, transport="tcp", size=0, queue=0.0)
TWO = Contention("cell", {"a": 4e6, "b": 6e6}, True, 0.1, 0.002, 1000, 0.01, {"a": UDP, "b": UDP})


def sent(**values: float) -> Measurement:
    """What came of a sender, behind half of the buffer."""
    return measurement(replace(OneWay(sent=1, received=1, queue_delay=0.05), **values))  # type: ignore[arg-type]


class TestJudgement:
    """10 Mbit/s in shares of 4 and 6. A datagram is 1,000 bytes: in half a second, a sends 250 of them."""

    def test_bounds(self) -> None:
        """1 % are corrupt, and 1 of 250 datagrams may be cut off at the ends: 1.4 % in each share. Of the sum, half of
        that and 2 %; of a share, all of it and 5 %. An idle member took 100 kbit/s."""
        found = {"a": sent(loaded=4.04e6, rate=9e9), "b": sent(rate=5.82e6)}
        rate, fairness, share = judge_contention(TWO, RULES["fair"], found, pinged=1e5)
        assert (rate.quantity, rate.asked) == ("rate", 1e7)
        assert rate.measured == pytest.approx(9.86e6)
        assert (rate.low, rate.high) == pytest.approx((1e7 * (1 - 0.027) - 1e5, 1e7 * 1.027))
        assert rate.detail == "2 members together, in Mbit/s: a 4.04 of 4, b 5.82 of 6"
        # Shares of 1.01 and 0.97 of what they are to be.
        index = 1.98**2 / (2 * (1.01**2 + 0.97**2))
        assert fairness.measured == pytest.approx(index)
        assert (fairness.asked, fairness.low, fairness.high) == (1.0, 0.98, 1.0)
        assert (share.asked, share.measured, share.detail) == (6e6, 5.82e6, "b: the worst")
        assert (share.low, share.high) == pytest.approx((6e6 * (1 - 0.064) - 5e4, 6e6 * 1.064))

    def test_a_stream_has_no_datagram_that_may_be_cut_off(self) -> None:
        plan = replace(TWO, saturations={"a": TCP, "b": TCP})
        rate, _, share = judge_contention(plan, RULES["fair"], {"a": sent(rate=4e6), "b": sent(rate=6e6)})
        assert (rate.high, share.high) == pytest.approx((1e7 * 1.025, 4e6 * 1.06))

    def test_of_a_sender_of_few_datagrams_all_may_be(self) -> None:
        plan = replace(TWO, saturations={"a": replace(UDP, seconds=0.001), "b": UDP})
        rate, *_ = judge_contention(plan, RULES["fair"], {"a": sent(rate=4e6), "b": sent(rate=6e6)})
        assert rate.high == pytest.approx(1e7 * (1.02 + 1.01 / 2))

    def test_one_queue_is_judged_by_all_that_left_it(self) -> None:
        """1.4 MB from the first datagram of a to the last one of b, 1.1 s."""
        found = {
            "a": sent(rate=4e6, bytes=600_000, first=5.0, last=6.0),
            "b": sent(rate=6e6, bytes=800_000, first=5.1, last=6.1),
        }
        (rate,) = judge_contention(TWO, RULES["fifo"], found)
        assert rate.measured == pytest.approx(8 * 1.4e6 / 1.1)
        assert rate.detail == "2 members together, in Mbit/s: a 4, b 6"

    @pytest.mark.parametrize("times", [{}, {"first": 5.0}, {"last": 5.0}, {"first": 5.0, "last": 5.0}])
    def test_without_times_by_the_sum(self, times: dict[str, float]) -> None:
        found = {"a": sent(rate=4e6, bytes=9, **times), "b": sent(rate=6e6)}
        assert judge_contention(TWO, RULES["fifo"], found)[0].measured == pytest.approx(1e7)

    @pytest.mark.parametrize(("waited", "verdict"), [(0.05, "fail"), (0.049, "unknown"), (None, "unknown")])
    def test_too_little_fails_a_channel_that_was_full(self, waited: float | None, verdict: str) -> None:
        way = OneWay(sent=1, received=1, rate=4e6, queue_delay=waited)
        found = {"a": measurement(way), "b": measurement(way)}
        rate = judge_contention(TWO, RULES["fair"], found)[0]
        assert (rate.verdict, "did not fill" in rate.detail) == (verdict, verdict == "unknown")

    def test_a_stream_that_did_not_wait_filled_nothing(self) -> None:
        plan = replace(TWO, saturations={"a": TCP, "b": TCP})
        for waited, verdict in ((0.0, "unknown"), (0.001, "fail")):
            way = OneWay(sent=1, received=1, rate=4e6, queue_delay=waited)
            found = {"a": measurement(way), "b": measurement(way)}
            assert judge_contention(plan, RULES["fair"], found)[0].verdict == verdict

    def test_who_is_late_or_has_no_rate_shows_nothing(self) -> None:
        punctual = {"a": sent(rate=4e6), "b": sent(rate=6e6)}
        cases = [(0.05, sent(rate=6e6), ""), (0.051, sent(rate=6e6), "0.051 s late"), (0.05, sent(), "too little")]
        for late, other, why in cases:
            found = punctual | {"b": replace(other, late=late)}
            rate, *more = judge_contention(TWO, RULES["fair"], found)
            assert (rate.verdict, bool(more)) == (("unknown", False) if why else ("pass", True))
            assert why in rate.detail


class TestIdle:
    """A frame of 1,000 bytes takes 1 ms at 8 Mbit/s, and each of two senders has one ahead."""

    FAIR = ChannelProfile(8e6)

    @pytest.mark.parametrize(("rate_of_b", "high"), [(8e6, 0.004 + 0.001 + 0.001), (4e6, 0.006 + 0.001 + 0.0015)])
    def test_two_passes_behind_a_frame_of_each(self, rate_of_b: float, high: float) -> None:
        channel = ChannelProfile(8e6, "frames", rates={"b": rate_of_b})
        queue = judge_queue_of_idle(TWO, channel, 2, measurement(), measurement(rtt=0.024))
        assert (queue.measured, queue.low, queue.high) == pytest.approx((0.004, 0.0, high))
        assert queue.detail == "round trip 24 ms, 20 ms before"

    @pytest.mark.parametrize(
        ("buffer", "passes", "low", "high"), [(0.1, 2, 0.18, 0.22), (0.02, 1, 0.015, 0.025), (0.004, 1, 0.0, 0.009)]
    )
    def test_one_queue_for_all(self, buffer: float, passes: int, low: float, high: float) -> None:
        """The margin is a tenth, or 5 ms."""
        channel = ChannelProfile(8e6, "fifo", buffer)
        for plan, least in ((TWO, low), (replace(TWO, saturations={"a": UDP, "b": TCP}), 0.0)):
            queue = judge_queue_of_idle(plan, channel, passes, measurement(), measurement(rtt=0.02 + buffer))
            assert (queue.low, queue.high) == pytest.approx((least, high))

    def test_a_buffer_that_was_not_full_shows_nothing(self) -> None:
        channel = ChannelProfile(8e6, "fifo", 0.1)
        queue = judge_queue_of_idle(TWO, channel, 1, measurement(), measurement(rtt=0.109))
        assert (queue.verdict, "did not fill" in queue.detail) == ("unknown", True)
        queue = judge_queue_of_idle(TWO, channel, 1, measurement(), measurement(rtt=0.111))
        assert (queue.verdict, "did not fill" in queue.detail) == ("pass", False)

    @pytest.mark.parametrize(
        ("quiet", "loaded", "verdict"),
        [
            (measurement(samples=5), measurement(samples=5, late=0.05), "pass"),
            (measurement(samples=4), measurement(), "unknown"),
            (measurement(), measurement(samples=4), "unknown"),
            (measurement(), measurement(late=0.051), "unknown"),
            (replace(measurement(), rtt_median=None), measurement(), "unknown"),
            (measurement(), replace(measurement(), rtt_median=None), "unknown"),
        ],
    )
    def test_few_or_late_datagrams_show_nothing(self, quiet: Measurement, loaded: Measurement, verdict: str) -> None:
        for judged in (judge_isolation(0.0, quiet, loaded), judge_queue_of_idle(TWO, self.FAIR, 1, quiet, loaded)):
            assert judged.verdict == verdict

    @pytest.mark.parametrize(("samples", "most"), [(50, 0.0025), (0, 0.0005 + 0.01 * 2**0.5)])
    def test_jitter_widens_isolation_by_four_standard_deviations_of_two_medians(
        self, samples: int, most: float
    ) -> None:
        """Of each 1.25 times the jitter of 2 ms by the root of the number: with 50, 4 x 1.25 x 2 ms x 0.2 = 2 ms."""
        judged = judge_isolation(0.002, measurement(samples=samples), measurement())
        assert (judged.low, judged.high) == pytest.approx((-most, most))
