"""The policer of a link drops what a queue of the link's rate and buffer would have no room for."""

from __future__ import annotations

from random import Random

import pytest

from netem.impair import Impairment
from netem.kernel import police
from netem.kernel.police import Bucket, bucket_of
from netem.profile import FULL_FRAME, GilbertElliott, LinkProfile

SLOW = LinkProfile(latency=0.01, rate=1e6, buffer_bytes=20_000)


class Policer:
    """Linux's token bucket (act_police.c, tcf_police_act), in bytes."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.tokens = float(bucket.size)
        self.last = 0.0

    def takes(self, now: float, size: int) -> bool:
        self.tokens = min(self.bucket.size, self.tokens + (now - self.last) * self.bucket.rate)
        self.last = now
        if self.tokens < size:
            return False
        self.tokens -= size
        return True


def test_a_bucket_is_the_rate_and_the_buffer() -> None:
    # 20,000 bytes, and two ticks of 64 ns at 125,000 bytes a second, rounded up to a byte.
    assert bucket_of(SLOW) == Bucket(125_000, 20_001)
    assert " ".join(police.making(7, bucket_of(SLOW))) == (
        "action police rate 1000000bit burst 20001b mtu 262144b conform-exceed drop/ok index 7"
    )
    assert " ".join(police.change_command(7, bucket_of(SLOW))).startswith("tc actions change action police rate ")
    assert police.sharing(7) == ["action", "police", "index", "7"]


def test_a_policer_of_sizes_has_no_rate() -> None:
    # A frame has 14 bytes more than its packet.
    assert " ".join(police.sizing(8, 1200)) == "action police mtu 1214b conform-exceed drop/pipe index 8"
    assert " ".join(police.sizing(8, None)) == "action police mtu 262144b conform-exceed pipe/pipe index 8"
    assert police.size_command(8, 1200) == ["tc", "actions", "change", *police.sizing(8, 1200)]


@pytest.mark.parametrize("profile", [LinkProfile(), LinkProfile(rate=32e9), LinkProfile(real=True)])
def test_without_a_rate_everything_passes(profile: LinkProfile) -> None:
    assert bucket_of(profile) is None
    assert "conform-exceed ok/ok" in " ".join(police.making(7, None))


@pytest.mark.parametrize("latency", [0.0, 1.0])
def test_it_takes_what_a_queue_takes(latency: float) -> None:
    """Mixed sizes at 1.5 times the rate, in bursts: the same packets find no room as in `netem.impair`."""
    draw = Random(1)
    profile = SLOW.merged(latency=latency)
    link, bucket = Impairment(profile, 1), bucket_of(profile)
    assert bucket is not None
    policer, now = Policer(bucket), 0.0
    fates = []
    for _ in range(5000):
        size = draw.choice((60, 242, FULL_FRAME))
        now += draw.choice((0.0, 0.0, 3 * size * 8 / 1.5e6))
        fates.append((bool(link.offer(now, size)), policer.takes(now, size)))
    dropped = sum(not queued for queued, _ in fates)
    assert 500 < dropped < 4500
    # The two ticks more than the buffer may let a packet pass, and then one packet less passes later.
    assert sum(queued != policed for queued, policed in fates) <= 0.002 * len(fates)


def test_full_frames_and_super_packets_pass_any_buffer() -> None:
    assert bucket_of(SLOW.merged(buffer_bytes=0)) == Bucket(125_000, FULL_FRAME + 1)
    assert bucket_of(SLOW, 46 * FULL_FRAME) == Bucket(125_000, 46 * FULL_FRAME + 1)


def test_what_waits_at_a_change_takes_its_part_of_the_bucket() -> None:
    bucket = Bucket(125_000, 20_000)
    assert bucket.rest(0.0) == bucket
    assert bucket.rest(5000.5).size == 14_999
    assert bucket.rest(50_000).size == FULL_FRAME
    assert bucket.rest(50_000, 20_000) == bucket
    # 10 ms of the rate are on their way: 1,250 bytes.
    assert police.waiting_bytes(SLOW, 11_250) == 10_000
    assert police.waiting_bytes(SLOW, 1000) == 0
    assert police.waiting_bytes(LinkProfile(latency=0.1), 1e6) == 0


def test_a_silent_link_drains_nothing() -> None:
    bucket = bucket_of(SLOW.merged(silence=60.0, buffer_bytes=20_000))
    assert bucket is not None
    assert bucket.size == 20_000
    assert bucket.rate * 60.0 < bucket.size / 4  # next to nothing while it lasts


@pytest.mark.parametrize(
    ("profile", "share"),
    [
        (LinkProfile(loss=0.25), 0.75),
        (LinkProfile(duplicate=0.5), 1.0),  # each copy comes to the policer
        (LinkProfile(loss=GilbertElliott(p=0.1, r=0.3)), 0.75),
        # Of 100 packets 50 are drawn for duplication only, and copied; 25 are lost, and 25 of the copies.
        (LinkProfile(loss=0.5, duplicate=0.5), (75 + 12.5) / 125),
    ],
)
def test_what_is_lost_needs_no_room(profile: LinkProfile, share: float) -> None:
    assert police.queued_share(profile) == pytest.approx(share)


def test_a_lossy_link_lets_its_whole_rate_through() -> None:
    lossy = bucket_of(SLOW.merged(loss=0.5, buffer_bytes=20_000))
    assert lossy is not None
    # Twice the rate and the buffer, less 2 %.
    assert lossy.rate == pytest.approx(2 * 125_000 * 0.98, rel=1e-4)
    assert lossy.size == pytest.approx(40_000, abs=2)


def test_losses_let_the_queue_of_a_saturated_link_exceed_its_buffer_little() -> None:
    profile = SLOW.merged(loss=0.1, buffer_bytes=20_000)
    bucket = bucket_of(profile)
    assert bucket is not None
    draw, policer, queue, excesses = Random(2), Policer(bucket), 0.0, []
    for number in range(200_000):
        now, frame = number * 0.004, 1242  # 2.5 times the rate
        queue = max(0.0, queue - 0.004 * 125_000)
        if policer.takes(now, frame) and draw.random() >= 0.1:
            queue += frame
        excesses.append(queue - 20_000)
    assert sum(excesses) / len(excesses) < 20_000 / 4
    assert max(excesses) < 40_000
    assert police.slack(profile, 20_000) == pytest.approx(0.1 / (2 * 20_000 / FULL_FRAME / 4))


def test_buffers_beyond_what_tc_can_store_are_cut_short() -> None:
    """tc stores the time that a bucket lasts in 2**32 ticks of 64 ns, 274.9 s."""
    slow = LinkProfile(rate=800.0, buffer_bytes=50_000)  # 500 s
    assert bucket_of(slow) == Bucket(100, 27_000)
    assert police.cut_short(slow)
    assert not police.cut_short(SLOW)
    assert not police.cut_short(LinkProfile())
    bucket = bucket_of(LinkProfile(rate=8.0))
    assert bucket is not None
    assert FULL_FRAME <= bucket.size <= 274 * bucket.rate


@pytest.mark.parametrize(
    ("profile", "limit"),
    [
        (LinkProfile(), 100_000),
        (LinkProfile(rate=100e3, latency=1.0), 100_000),
        (LinkProfile(latency=0.5), 500_000),  # a million packets a second
        # 336 Mbit/s are a million frames of 42 bytes: for 100 ms and 4 times 25 ms, and 2.1 MB of such in the buffer.
        (LinkProfile(rate=336e6, latency=0.1, jitter=0.025, buffer=0.05), 250_000),
        (LinkProfile(rate=1e6, silence=1.0, buffer_bytes=42_000_000), 1_002_977),  # 1e6 / 8 / 42 and a million
        (LinkProfile(latency=86_400.0), 2**32 - 1),
    ],
)
def test_the_limit_is_above_what_is_on_its_way_and_waits_if_all_is_small(profile: LinkProfile, limit: int) -> None:
    assert police.queue_limit(profile) == limit
