"""What a channel promises whatever comes: no time lost, order, shares, a bounded buffer, counters that add up."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netem.media.channel import Channel
from netem.media.cross_traffic import arrivals
from netem.media.formulas import shares
from netem.media.profile import CROSS_TRAFFIC, RULES, ChannelProfile, CrossTraffic, Rule
from netem.profile import FULL_FRAME

BY_SHARE = [name for name, rule in RULES.items() if rule.own_queues]
RATE = 8e6  # 1 byte takes 1 µs
SLOWER = {"b": 2e6, "c": 5e6}
POISSON = CrossTraffic("poisson", rate=3e6)  # slow: each frame is followed
FAST = CrossTraffic("poisson", rate=6e6)


class Packet(NamedTuple):
    number: int
    member: str
    size: int
    packets: int = 1


class Trial:
    """A channel, and what has left it and what it has dropped so far."""

    def __init__(self, share: Rule = "fair", buffer: float = 1e3, rates: dict[str, float] | None = None) -> None:
        self.dropped: list[Packet] = []
        self.left: list[tuple[float, Packet]] = []
        self.channel: Channel[Packet] = Channel(profile(share, buffer, rates), self.dropped.append)
        self._numbers = itertools.count()

    def offer(self, now: float, member: str, size: int = FULL_FRAME, packets: int = 1) -> Packet:
        packet = Packet(next(self._numbers), member, size, packets)
        self.channel.offer(now, member, size, packets, packet)
        return packet

    def advance(self, now: float) -> list[tuple[float, Packet]]:
        left = self.channel.advance(now)
        self.left += left
        return left

    def finish(self) -> None:
        """Let all packets leave."""
        while (now := self.channel.next()) < math.inf:
            self.advance(now)

    def saturate(self, members: Iterable[str], seconds: float, window: int = 20, **sizes: Any) -> None:
        """Each member offers a packet for each of its own that leaves, so that always so many are in the channel."""
        for member in members:
            for _ in range(window):
                self.offer(0.0, member, **sizes)
        while (now := self.channel.next()) < seconds:
            for at, packet in self.advance(now):
                self.offer(at, packet.member, **sizes)

    def rows(self, now: float) -> dict[str, dict[str, Any]]:
        return {str(row["member"]): row for row in self.channel.counted(now)}

    def rates(self, seconds: float) -> dict[str, float]:
        return {member: 8 * row["bytes"] / seconds for member, row in self.rows(seconds).items()}


def profile(share: Rule = "fair", buffer: float = 1e3, rates: dict[str, float] | None = None) -> ChannelProfile:
    return ChannelProfile(RATE, share, buffer, rates if rates and share in ("airtime", "frames") else {})


def lindley(packets: Iterable[tuple[float, float]]) -> float:
    """When a server that is never idle while work waits has done it all; of (time, seconds of work)."""
    end = 0.0
    for at, seconds in packets:
        end = max(end, at) + seconds
    return end


offers = st.lists(
    st.tuples(
        st.sampled_from((0.0, 0.0, 1e-5, 1e-3, 0.01)),  # seconds since the one before
        st.sampled_from("abc"),
        st.sampled_from((60, 590, FULL_FRAME)),
        st.integers(1, 3),
    ),
    max_size=60,
)
rules = pytest.mark.parametrize("share", RULES)


@rules
@given(offers=offers)
def test_no_time_is_lost_and_each_members_order_kept(share: Rule, offers: list[tuple[float, str, int, int]]) -> None:
    trial, now, work = Trial(share, rates=SLOWER), 0.0, []
    for pause, member, size, packets in offers:
        now += pause
        trial.advance(now)
        trial.offer(now, member, size * packets, packets)
        work.append((now, 8 * size * packets / trial.channel.profile.rate_of(member)))
    trial.finish()
    times = [at for at, _ in trial.left]
    assert times == sorted(times)
    assert (times or [0.0])[-1] == pytest.approx(lindley(work), abs=1e-9)
    assert not trial.dropped
    for member in "abc":
        numbers = [packet.number for _, packet in trial.left if packet.member == member]
        assert numbers == sorted(numbers)
    assert len(trial.left) == len(offers)


@rules
@given(offers=offers, buffer=st.sampled_from((0.0, 0.001, 0.004, 0.02)))
def test_the_buffer_is_bounded_and_the_counters_add_up(
    share: Rule, offers: list[tuple[float, str, int, int]], buffer: float
) -> None:
    trial, now = Trial(share, buffer, SLOWER), 0.0
    trial.channel.occupy(POISSON, 1, 0.0)
    offered: Counter[str] = Counter()
    for pause, member, size, packets in offers:
        now += pause
        trial.offer(now, member, size * packets, packets)
        trial.advance(now)
        offered[member] += packets
        rows = trial.rows(now).values()
        # An idle channel takes any packet, and a super-packet fits if its first segment does.
        assert sum(row["queued_bytes"] for row in rows) <= max(trial.channel.profile.buffer_bytes, 0) + 3 * FULL_FRAME
        assert sum(row["seconds"] for row in rows) <= now + 1e-9
    trial.finish()
    for member, row in trial.rows(now).items():
        if member != CROSS_TRAFFIC:
            assert row["queued_bytes"] == 0
            assert row["packets"] + row["overflowed"] == offered[member]
            assert row["overflowed"] == sum(each.packets for each in trial.dropped if each.member == member)
            assert row["bytes"] == sum(each.size for _, each in trial.left if each.member == member)


@rules
@pytest.mark.parametrize("traffic", [POISSON, FAST], ids=["slow", "fast"])
@settings(max_examples=30)
@given(offers=offers, polls=st.lists(st.floats(0, 1), max_size=5), rest=st.sampled_from((0.0, 0.3, 2.0, 5.0)))
def test_what_happens_does_not_depend_on_who_looks(
    share: Rule, traffic: CrossTraffic, offers: list[tuple[float, str, int, int]], polls: list[float], rest: float
) -> None:
    def history(looks: list[float]) -> Any:
        trial, now = Trial(share, 0.01, SLOWER), 0.0
        trial.channel.occupy(traffic, 7, 0.0)
        seen = Counter[str]()
        for place, (pause, member, size, packets) in enumerate(offers):
            before, now = now, now + pause + (rest if place == len(offers) // 2 else 0.0)
            for look in sorted(looks):
                trial.advance(before + look * (now - before))
                for name, row in trial.rows(before + look * (now - before)).items():
                    sums = seen[name], row["packets"] + row["overflowed"]
                    assert sums[0] <= sums[1]
                    seen[name] = sums[1]
            trial.offer(now, member, size * packets, packets)
        trial.finish()
        return trial.left, trial.dropped, trial.rows(now + 1)

    assert history(polls) == history([])


@pytest.mark.parametrize("share", BY_SHARE)
@pytest.mark.parametrize("rates", [{}, SLOWER, {"a": 54e6, "b": 54e6, "c": 6e6}])
def test_members_that_always_send_get_their_shares(share: Rule, rates: dict[str, float]) -> None:
    trial = Trial(share, rates=rates)
    trial.saturate("abc", seconds=10.0)
    assert trial.rates(10.0) == pytest.approx(shares(trial.channel.profile, "abc"), rel=0.01)


@pytest.mark.parametrize("share", ["fair", "airtime"])
def test_shares_are_of_bytes_and_of_time_whatever_the_size_of_packets(share: Rule) -> None:
    trial = Trial(share, rates=SLOWER)
    for member, size in (("a", 60), ("b", 600), ("c", FULL_FRAME)):
        for _ in range(30):
            trial.offer(0.0, member, size)
    while (now := trial.channel.next()) < 5.0:
        for at, packet in trial.advance(now):
            trial.offer(at, packet.member, packet.size)
    assert trial.rates(5.0) == pytest.approx(shares(trial.channel.profile, "abc"), rel=0.02)


def test_frames_are_shared_one_by_one_and_super_packets_count_as_their_segments() -> None:
    trial = Trial("frames")
    for _ in range(40):
        trial.offer(0.0, "a", 5 * 100, 5)
    for _ in range(200):
        trial.offer(0.0, "b", 1000)
    trial.advance(0.1)
    rows = trial.rows(0.1)
    assert rows["a"]["packets"] == pytest.approx(rows["b"]["packets"], abs=5)


@pytest.mark.parametrize("share", BY_SHARE)
def test_floods_get_their_shares_too(share: Rule) -> None:
    """Members that do not react to drops, at two, three and four times their shares."""
    trial, rates = Trial(share, 0.1, SLOWER), {}
    wanted = shares(trial.channel.profile, "abc")
    for factor, member in enumerate("abc", 2):
        rates[member] = factor * wanted[member]
    times = sorted(
        (number * 8 * FULL_FRAME / rate, member)
        for member, rate in rates.items()
        for number in range(int(10 * rate / (8 * FULL_FRAME)))
    )
    for now, member in times:
        trial.offer(now, member)
    assert trial.rates(10.0) == pytest.approx(wanted, rel=0.03)


def test_ten_uploads_end_when_the_rate_says_so() -> None:
    """Whoever is served first, the last ends when all bytes have been sent."""
    for share in RULES:
        trial = Trial(share)
        for member, _ in itertools.product("abcdefghij", range(100)):
            trial.offer(0.0, member)
        trial.finish()
        assert trial.left[-1][0] == pytest.approx(1000 * 8 * FULL_FRAME / RATE)
        last = {packet.member: at for at, packet in trial.left}
        early = {"fifo": 0.1, "fair": 0.98, "airtime": 0.98, "frames": 0.98}[share]
        assert last["a"] == pytest.approx(early * trial.left[-1][0], rel=0.03)


def test_a_member_that_was_idle_waits_for_no_others_backlog() -> None:
    trial = Trial("fair")
    for _ in range(1000):
        trial.offer(0.0, "a")
    trial.advance(0.5)
    trial.offer(0.5, "b", 60)
    trial.finish()
    (left,) = [at for at, packet in trial.left if packet.member == "b"]
    assert left - 0.5 <= 2 * 8 * FULL_FRAME / RATE + 8 * 60 / RATE


def test_an_idle_member_of_a_full_fifo_waits_for_its_buffer() -> None:
    trial = Trial("fifo", buffer=0.1)
    for number in range(4000):
        trial.offer(number * 0.5e-3, "a")
    mine = trial.offer(2.0, "b", 60)
    assert not trial.dropped.count(mine)
    trial.finish()
    (left,) = [at for at, packet in trial.left if packet.member == "b"]
    assert left - 2.0 == pytest.approx(0.1, rel=0.03)


def test_the_longest_queue_loses_the_packet_that_came_last() -> None:
    trial = Trial("fair", buffer=0.01)  # 10,000 bytes: six full frames
    packets = [trial.offer(0.0, "a") for _ in range(6)]
    trial.offer(0.0, "b")
    assert trial.dropped == [packets[-1]]
    trial.offer(0.0, "a")
    assert [packet.member for packet in trial.dropped] == ["a", "a"]
    trial.finish()
    assert [packet.member for _, packet in trial.left] == ["a", "b", "a", "a", "a", "a"]


@pytest.mark.parametrize("number", [20, 40])
@pytest.mark.parametrize("share", BY_SHARE)
def test_no_member_starves_in_a_buffer_with_fewer_packets_than_members(share: Rule, number: int) -> None:
    """All members send at the same times in the same order, at 1.5 times the rate."""
    frame = 8 * FULL_FRAME / RATE
    trial = Trial(share, buffer=16 * frame)
    for turn, member in itertools.product(range(500), range(number)):
        trial.offer(turn * number * frame / 1.5, f"m{member}")
    rates = trial.rates(500 * number * frame / 1.5).values()
    assert min(rates) > 0.8 * sum(rates) / number  # the first of forty finds the channel idle each time


def test_a_full_fifo_drops_what_comes() -> None:
    trial = Trial("fifo", buffer=0.01)
    packets = [trial.offer(0.0, member) for member in "aaaaaabb"]
    assert trial.dropped == packets[6:]


@rules
def test_what_waits_leaves_at_a_new_rate_and_so_does_the_rest_of_the_packet_being_sent(share: Rule) -> None:
    trial = Trial(share)
    for _ in range(3):
        trial.offer(0.0, "a", 1000)
    trial.channel.change(ChannelProfile(RATE / 4, share, 1.0), 0.0005)
    trial.finish()
    assert [at for at, _ in trial.left] == pytest.approx([0.0025, 0.0065, 0.0105])
    assert trial.rows(1.0)["a"]["seconds"] == pytest.approx(0.0105)


def test_another_rule_keeps_what_waits() -> None:
    trial = Trial("fifo")
    for member in "aaaab":
        trial.offer(0.0, member, 1000)
    trial.channel.change(profile("fair"), 0.0005)
    trial.offer(0.0005, "b", 1000)
    trial.finish()
    assert "".join(packet.member for _, packet in trial.left) == "aababa"
    trial.channel.change(profile("fifo"), 1.0)
    trial.offer(1.0, "c", 1000)
    trial.finish()
    assert trial.left[-1][0] == pytest.approx(1.001)


def test_removed_packets_leave_no_gap() -> None:
    trial = Trial("fair")
    for member in "aabbbb":
        trial.offer(0.0, member, 1000)
    removed = trial.channel.remove(0.0005, lambda packet: packet.member == "a")
    assert [packet.number for packet in removed] == [1]  # the first is being sent
    trial.finish()
    assert [at for at, _ in trial.left] == pytest.approx([0.001, 0.002, 0.003, 0.004, 0.005])
    assert trial.rows(1.0)["a"]["queued_bytes"] == 0


def test_a_channel_at_rest_has_nothing_to_do() -> None:
    trial = Trial()
    assert trial.channel.next() == math.inf
    trial.channel.occupy(CrossTraffic("constant", rate=4e6), 1, 0.0)
    assert trial.channel.next() == math.inf
    assert trial.advance(3600.0) == []


class TestCrossTraffic:
    @rules
    def test_an_upload_gets_the_rest(self, share: Rule) -> None:
        trial = Trial(share)
        trial.channel.occupy(POISSON, 1, 0.0)
        trial.saturate("a", seconds=10.0)
        others = 8 * FULL_FRAME * sum(1 for _ in itertools.takewhile(lambda at: at < 10, arrivals(POISSON, 1))) / 10
        assert others == pytest.approx(3e6, rel=0.05)
        assert trial.rates(10.0) == pytest.approx({"a": RATE - others, CROSS_TRAFFIC: others}, rel=0.01)

    def test_a_fair_member_gets_half_of_a_channel_that_others_flood(self) -> None:
        trial = Trial("fair", buffer=0.1)
        trial.channel.occupy(CrossTraffic("constant", rate=20e6), 1, 0.0)
        trial.saturate("a", seconds=10.0)
        assert trial.rates(10.0) == pytest.approx({"a": 4e6, CROSS_TRAFFIC: 4e6}, rel=0.01)
        assert not trial.dropped

    def test_others_take_the_room_of_the_longest_queue_while_time_passes(self) -> None:
        trial = Trial("fair", buffer=0.05)
        for _ in range(33):
            trial.offer(0.0, "a")
        trial.channel.occupy(CrossTraffic("constant", rate=80e6), 1, 0.0)
        trial.finish()
        assert trial.dropped

    def test_the_same_seed_is_the_same_traffic(self) -> None:
        def left(seed: int) -> list[float]:
            trial = Trial()
            trial.channel.occupy(POISSON, seed, 0.0)
            trial.saturate("a", seconds=1.0, window=2)
            return [at for at, _ in trial.left]

        assert left(1) == left(1) != left(2)

    def test_its_end_and_its_successor(self) -> None:
        trial = Trial()
        trial.channel.occupy(CrossTraffic("constant", rate=4e6), 1, 0.0)
        trial.channel.occupy(CrossTraffic("constant", rate=1e6), 1, 2.0)
        trial.channel.occupy(None, 0, 4.0)
        trial.channel.occupy(None, 0, 1000.0)
        assert trial.rows(1000.0)[CROSS_TRAFFIC]["bytes"] * 8 == pytest.approx(10e6, rel=0.01)
        trial.offer(1000.0, "a", 1000)
        trial.finish()
        assert trial.left[-1][0] == pytest.approx(1000.001)

    @pytest.mark.parametrize("rate", [0.5e6, 6e6])
    def test_long_rests_are_counted_without_a_step_for_each_frame(self, rate: float) -> None:
        """What others have sent while nobody looked is known, and the queue that the next packet finds is a usual one:
        that of an M/D/1 system (Pollaczek and Khinchine)."""
        trial, waits = Trial(), []
        trial.channel.occupy(CrossTraffic("poisson", rate=rate), 5, 0.0)
        for number in range(1, 400):
            now = 10.0 * number
            trial.offer(now, "a", 1000)
            trial.finish()
            waits.append(trial.left[-1][0] - now - 0.001)
        row = trial.rows(now)[CROSS_TRAFFIC]
        assert 8 * row["bytes"] / now == pytest.approx(rate, rel=0.01)
        assert row["seconds"] == pytest.approx(8 * row["bytes"] / RATE)
        load, service = rate / RATE, 8 * FULL_FRAME / RATE
        # An arrival of another member under `fair` goes ahead of those that wait; it waits for the one being sent.
        assert sum(waits) / len(waits) == pytest.approx(load * service / 2, rel=0.35)

    def test_frames_that_come_faster_than_the_channel_sends(self) -> None:
        trial = Trial(buffer=0.05)
        trial.channel.occupy(CrossTraffic("constant", rate=2 * RATE), 5, 0.0)
        row = trial.rows(1000.0)[CROSS_TRAFFIC]
        assert 8 * row["bytes"] == pytest.approx(1000 * RATE, rel=0.01)
        assert row["overflowed"] == pytest.approx(row["packets"], rel=0.01)
        assert row["seconds"] <= 1000.0

    def test_a_packet_after_a_long_rest_finds_the_backlog_of_a_flood(self) -> None:
        trial = Trial("fifo", buffer=0.1)
        trial.channel.occupy(CrossTraffic("constant", rate=1.1 * RATE), 5, 0.0)
        for now in (10.0, 20.0, 21.0):
            trial.offer(now, "a", 60)
            trial.finish()
            assert trial.left[-1][0] - now == pytest.approx(0.1, rel=0.03)

    def test_losses_do_not_fall_after_a_change_to_a_smaller_buffer(self) -> None:
        trial = Trial("fifo", buffer=0.2)
        trial.channel.occupy(CrossTraffic("constant", rate=9 * RATE), 5, 0.0)
        trial.offer(5.0, "a", 60)
        trial.finish()
        trial.channel.change(ChannelProfile(10 * RATE, "fifo", 0.002), 6.0)
        overflowed = [trial.rows(6.0 + step / 50)[CROSS_TRAFFIC]["overflowed"] for step in range(50)]
        assert overflowed == sorted(overflowed)

    def test_what_a_flood_has_lost_stays_lost_when_it_is_over(self) -> None:
        trial = Trial(buffer=0.05)
        trial.channel.occupy(CrossTraffic("trace", rows=((1.0, 2 * RATE), (11.0, RATE / 8))), 5, 0.0)
        overflowed = [trial.rows(now)[CROSS_TRAFFIC]["overflowed"] for now in (6.0, 11.0, 12.0, 30.0, 100.0)]
        assert overflowed == sorted(overflowed)
        assert overflowed[-1] == pytest.approx(10 * RATE / (8 * FULL_FRAME), rel=0.01)

    @pytest.mark.parametrize("buffer", [0.0, 0.005, 0.1])
    def test_frames_that_are_alone_take_the_same_course_at_once_and_one_by_one(
        self, buffer: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def history() -> tuple[list[float], list[Any]]:
            trial, draw = Trial("fifo", buffer), Random(3)
            trial.channel.occupy(FAST, 7, 0.0)
            now = 0.0
            for _ in range(300):
                now += draw.expovariate(30)
                trial.offer(now, "a", 1000)
                trial.advance(now)
            trial.finish()
            return [at for at, _ in trial.left], [*trial.rows(now)[CROSS_TRAFFIC].values()][1:]

        times, row = history()
        monkeypatch.setattr("netem.media.channel.SLOW", math.inf)
        one_by_one, its_row = history()
        assert times == pytest.approx(one_by_one, abs=1e-9)
        assert row == pytest.approx(its_row)
