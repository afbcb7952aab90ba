"""The fates of packets against closed forms: loss models, queues, order.

Statistical checks use fixed seeds and 99 % intervals, so each is either always right or always wrong.
"""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.impair import Impairment
from netem.profile import FULL_FRAME, GilbertElliott, LinkProfile

Z99 = 2.576
"""Half-width of a two-sided 99 % interval in standard deviations."""


def fates(impairment: Impairment, count: int, spacing: float = 1.0, size: int = 1000) -> list[bool]:
    """Offer `count` frames, far apart unless told otherwise; True for each that arrived."""
    return [bool(impairment.offer(index * spacing, size)) for index in range(count)]


def binomial_interval(count: int, fraction: float) -> tuple[int, int]:
    """The central range of a Binomial(count, fraction) that holds at least 99 %, exact: each tail summed to 0.5 %."""
    log = [
        math.lgamma(count + 1)
        - math.lgamma(k + 1)
        - math.lgamma(count - k + 1)
        + k * math.log(fraction)
        + (count - k) * math.log1p(-fraction)
        for k in range(count + 1)
    ]
    low, tail = 0, 0.0
    while tail + math.exp(log[low]) <= 0.005:
        tail += math.exp(log[low])
        low += 1
    high, tail = count, 0.0
    while tail + math.exp(log[high]) <= 0.005:
        tail += math.exp(log[high])
        high -= 1
    return low, high


def test_an_unimpaired_link_delivers_at_once() -> None:
    impairment = Impairment(LinkProfile(), seed=1)
    assert impairment.offer(5.0, 1514) == [(5.0, False)]
    assert impairment.counters.delivered == 1


def test_latency_delays_every_frame_equally() -> None:
    impairment = Impairment(LinkProfile(latency=0.04), seed=1)
    assert [impairment.offer(now, 1514) for now in (0.0, 0.001, 3.0)] == [
        [(0.04, False)],
        [(pytest.approx(0.041), False)],
        [(3.04, False)],
    ]


@pytest.mark.parametrize("loss", [0.005, 0.1, 0.5])
def test_random_loss_is_binomial(loss: float) -> None:
    impairment = Impairment(LinkProfile(loss=loss), seed=7)
    lost = 20_000 - sum(fates(impairment, 20_000))
    low, high = binomial_interval(20_000, loss)
    assert low <= lost <= high
    assert impairment.counters.lost == lost


def test_random_loss_has_no_memory() -> None:
    arrived = fates(Impairment(LinkProfile(loss=0.2), seed=3), 40_000)
    after_loss = [later for earlier, later in pairwise(arrived) if not earlier]
    low, high = binomial_interval(len(after_loss), 0.2)
    assert low <= after_loss.count(False) <= high


@pytest.mark.parametrize(("loss", "arrives"), [(0.0, True), (1.0, False)])
def test_loss_of_nothing_and_of_everything(loss: float, arrives: bool) -> None:
    assert set(fates(Impairment(LinkProfile(latency=0.1, loss=loss), seed=1), 1000)) == {arrives}


def test_gilbert_elliott_loses_its_stationary_fraction() -> None:
    chain = GilbertElliott(p=0.02, r=0.3)
    count = 200_000
    lost = count - sum(fates(Impairment(LinkProfile(loss=chain), seed=11), count))
    # p / (p + r) = 1/16. The states of a two-state chain correlate as (1 - p - r)^k, so the variance of the mean is
    # the binomial one times (1 + rho) / (1 - rho) with rho = 0.68.
    mean, rho = 1 / 16, 1 - 0.02 - 0.3
    deviation = math.sqrt(mean * (1 - mean) / count * (1 + rho) / (1 - rho))
    assert lost / count == pytest.approx(mean, abs=Z99 * deviation)


def test_gilbert_elliott_bursts_are_geometric() -> None:
    chain = GilbertElliott(p=0.05, r=0.4)
    arrived = fates(Impairment(LinkProfile(loss=chain), seed=5), 100_000)
    bursts = [len(list(run)) for ok, run in groupby(arrived) if not ok]
    # Lengths are geometric with success probability r: mean 1/r = 2.5, deviation sqrt(1 - r)/r, P(length = 1) = r.
    tolerance = Z99 * math.sqrt(0.6) / 0.4 / math.sqrt(len(bursts))
    assert statistics.fmean(bursts) == pytest.approx(chain.mean_burst, abs=tolerance)
    low, high = binomial_interval(len(bursts), 0.4)
    assert low <= bursts.count(1) <= high


def test_gilbert_elliott_with_partial_loss_in_both_states() -> None:
    chain = GilbertElliott(p=0.1, r=0.3, loss_good=0.02, loss_bad=0.6)
    count = 100_000
    lost = count - sum(fates(Impairment(LinkProfile(loss=chain), seed=2), count))
    # 0.75 * 0.02 + 0.25 * 0.6 = 0.165; the correlation between packets is at most that of the states, 0.6.
    deviation = math.sqrt(0.165 * 0.835 / count * 1.6 / 0.4)
    assert lost / count == pytest.approx(0.165, abs=Z99 * deviation)


def test_the_chain_starts_stationary() -> None:
    chain = GilbertElliott(p=0.001, r=0.003)  # in the bad state a quarter of the time, but rarely switching
    first_lost = sum(not Impairment(LinkProfile(loss=chain), seed=seed).offer(0.0, 100) for seed in range(2000))
    low, high = binomial_interval(2000, 0.25)
    assert low <= first_lost <= high


def test_rate_spaces_a_burst_exactly() -> None:
    impairment = Impairment(LinkProfile(latency=0.01, rate=8e6), seed=1)  # 1 MB/s: 1000 bytes take 1 ms
    arrivals = [impairment.offer(0.0, 1000)[0][0] for _ in range(5)]
    assert arrivals == pytest.approx([0.011, 0.012, 0.013, 0.014, 0.015], abs=1e-12)


def test_a_constant_stream_below_the_rate_never_queues() -> None:
    impairment = Impairment(LinkProfile(latency=0.01, rate=8e6), seed=1)
    delays = [impairment.offer(now, 1000)[0][0] - now for now in (index * 0.00125 for index in range(1000))]
    assert delays == pytest.approx([0.011] * 1000, abs=1e-9)


def test_a_constant_stream_above_the_rate_queues_linearly() -> None:
    impairment = Impairment(LinkProfile(rate=8e6, buffer=1.0), seed=1)
    delays = [impairment.offer(now, 1000)[0][0] - now for now in (index * 0.0005 for index in range(1000))]
    assert delays == pytest.approx([0.001 + index * 0.0005 for index in range(1000)], abs=1e-9)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_mean_wait_of_the_queue(load: float) -> None:
    """Poisson arrivals of equal frames, M/D/1: mean wait = service * load / (2 * (1 - load)) (Pollaczek–Khinchine)."""
    service = 0.001
    impairment = Impairment(LinkProfile(rate=8e6, buffer=100.0), seed=1)
    arrivals = random.Random(4)
    now, waits = 0.0, []
    for _ in range(200_000):
        now += arrivals.expovariate(load / service)
        waits.append(impairment.offer(now, 1000)[0][0] - now - service)
    assert statistics.fmean(waits) == pytest.approx(service * load / (2 * (1 - load)), rel=0.04)


def test_a_full_buffer_drops_exactly_the_rest() -> None:
    impairment = Impairment(LinkProfile(rate=1e6, buffer_bytes=10_000), seed=1)
    arrived = [bool(impairment.offer(0.0, 1000)) for _ in range(25)]
    assert arrived == [True] * 10 + [False] * 15
    assert impairment.counters.overflowed == 15
    assert impairment.backlog(0.0) == pytest.approx(10_000)


def test_room_comes_back_as_the_queue_drains() -> None:
    impairment = Impairment(LinkProfile(rate=8e6, buffer_bytes=10_000), seed=1)
    assert sum(bool(impairment.offer(0.0, 1000)) for _ in range(20)) == 10
    assert impairment.backlog(0.0034) == pytest.approx(6600)
    # 3400 bytes were sent: three more frames of 1000 fit.
    assert sum(bool(impairment.offer(0.0034, 1000)) for _ in range(20)) == 3
    assert impairment.backlog(10.0) == pytest.approx(0)


def test_overload_delivers_at_the_rate() -> None:
    impairment = Impairment(LinkProfile(rate=8e6, buffer_bytes=50_000), seed=1)
    now = 0.0
    for index in range(100_000):
        now = index * 0.0001  # ten times the rate for 10 s
        impairment.offer(now, 1000)
    assert impairment.counted(10.0).delivered == pytest.approx(10_000, abs=1)  # 10 s at 1 MB/s
    assert impairment.counted(11.0).delivered == pytest.approx(10_050, abs=1)  # and what the buffer held


def test_a_frame_above_the_limit_is_lost_and_takes_no_room() -> None:
    impairment = Impairment(LinkProfile(rate=1e6, buffer_bytes=2428, drop_above=1200), seed=1)
    offered = [1215, 1214, 1514, 1214, 1214]  # a packet of 1200 bytes is a frame of 1214, and the buffer takes two
    assert [bool(impairment.offer(0.0, size)) for size in offered] == [False, True, False, True, False]
    counters = impairment.counters
    assert (counters.offered, counters.lost, counters.too_large, counters.overflowed) == (5, 2, 2, 1)
    impairment.change(LinkProfile(rate=1e6), 10.0)
    assert impairment.offer(10.0, 1514)


def test_a_super_packet_is_as_large_as_its_segments() -> None:
    impairment = Impairment(LinkProfile(drop_above=1200), seed=1)
    assert impairment.offer(0.0, 10 * 1214, packets=10)
    assert not impairment.offer(0.0, 10 * 1215, packets=10)
    assert impairment.counters.too_large == 10


def test_a_limit_of_sizes_draws_nothing() -> None:
    """Small frames have the fates that they have without the limit."""
    profile = LinkProfile(loss=0.3, latency=0.01, jitter=0.005)
    free, limited = Impairment(profile, seed=1), Impairment(profile.merged(drop_above=1200), seed=1)
    sizes = [1514 if number % 3 else 100 for number in range(300)]
    fates_free = [free.offer(number, size) for number, size in enumerate(sizes)]
    fates_limited = [limited.offer(number, size) for number, size in enumerate(sizes)]
    assert [bool(fate) for fate in fates_free[::3]] == [bool(fate) for fate in fates_limited[::3]]
    assert not any(fate for fate, size in zip(fates_limited, sizes, strict=True) if size > 1214)


def test_without_a_buffer_a_frame_passes_only_an_idle_link() -> None:
    impairment = Impairment(LinkProfile(rate=8e6, buffer_bytes=0), seed=1)
    assert [bool(impairment.offer(now, 1000)) for now in (0.0, 0.0005, 0.001)] == [True, False, True]


profiles = st.builds(
    LinkProfile,
    latency=st.floats(0, 0.1),
    jitter=st.floats(0, 0.2),
    distribution=st.sampled_from(["normal", "uniform", "pareto"]),
    loss=st.floats(0, 0.5),
    rate=st.none() | st.floats(1e5, 1e9),
    duplicate=st.floats(0, 0.5),
    corrupt=st.floats(0, 0.5),
)
gaps = st.lists(st.tuples(st.floats(0, 0.01), st.integers(60, FULL_FRAME)), min_size=1, max_size=60)


@given(profile=profiles, after=profiles, stream=gaps, seed=st.integers(0, 2**63))
def test_order_is_kept_unless_reordering_is_requested(
    profile: LinkProfile, after: LinkProfile, stream: list[tuple[float, int]], seed: int
) -> None:
    impairment = Impairment(profile, seed)
    now = 0.0
    deliveries: list[float] = []
    for index, (gap, size) in enumerate(stream):
        now += gap
        if index == len(stream) // 2:
            moved = impairment.change(after, now)
            assert all(old > now <= new for old, new in moved.items())
            deliveries = [moved.get(at, at) for at in deliveries]
        for at, _ in impairment.offer(now, size):
            assert at >= now
            deliveries.append(at)
    assert deliveries == sorted(deliveries)


@given(
    profile=st.builds(LinkProfile.merged, profiles.map(lambda p: p.merged(latency=0.02)), reorder=st.floats(0, 0.5)),
    stream=gaps,
    packets=st.integers(1, 44),
)
def test_every_packet_is_accounted_for(profile: LinkProfile, stream: list[tuple[float, int]], packets: int) -> None:
    impairment = Impairment(profile, seed=1)
    deliveries = [delivery for gap, size in stream for delivery in impairment.offer(gap, size * packets, packets)]
    counters = impairment.counted(math.inf)
    assert counters.offered == len(stream) * packets
    assert counters.delivered == len(deliveries) * packets
    assert counters.corrupted == sum(corrupt for _, corrupt in deliveries) * packets
    assert counters.offered + counters.duplicated == counters.delivered + counters.lost + counters.overflowed


@given(profile=profiles, after=profiles, stream=gaps, share=st.floats(0, 1))
def test_a_frame_counts_as_delivered_when_it_arrives(
    profile: LinkProfile, after: LinkProfile, stream: list[tuple[float, int]], share: float
) -> None:
    impairment, now = Impairment(profile, seed=1), 0.0
    arrivals: list[tuple[float, int]] = []
    for number, (gap, size) in enumerate(stream):
        now += gap
        if number == len(stream) // 2:
            moved = impairment.change(after, now)
            arrivals = [(moved.get(at, at), bytes_) for at, bytes_ in arrivals]
        arrivals += [(at, size) for at, _ in impairment.offer(now, size)]
    look = now + share * max((at - now for at, _ in arrivals), default=0.0)
    counters = impairment.counted(look)
    arrived = [size for at, size in arrivals if at <= look]
    assert (counters.delivered, counters.delivered_bytes) == (len(arrived), sum(arrived))
    on_the_way = len(arrivals) - len(arrived)
    before = counters.delivered + counters.lost + counters.overflowed + on_the_way
    assert counters.offered + counters.duplicated == before
    assert impairment.cut(look) == on_the_way
    assert impairment.counted(math.inf).delivered == len(arrived)


def arrival(impairment: Impairment, now: float) -> float:
    """When a frame of 1000 bytes arrives."""
    ((at, corrupt),) = impairment.offer(now, 1000)
    assert not corrupt
    return at


def test_after_a_cut_the_queue_is_empty() -> None:
    impairment = Impairment(LinkProfile(rate=8e3, latency=0.5), seed=1)
    for _ in range(10):
        impairment.offer(0.0, 1000)  # a second each
    assert impairment.cut(2.6) == 8  # two have arrived, at 1.5 and 2.5 s
    assert arrival(impairment, 2.6) == pytest.approx(4.1)
    assert impairment.counted(5.0).delivered == 3


def test_a_silent_link_holds_packets_back() -> None:
    link = LinkProfile(rate=8e3, latency=0.5, buffer_bytes=3000)
    impairment = Impairment(link, seed=1)
    first, second = (impairment.offer(0.0, 1000)[0][0] for _ in range(2))
    assert (first, second) == (1.5, 2.5)
    # Half of the second has been sent when the silence of 60 s begins.
    assert impairment.change(link.merged(silence=60.0), 1.5) == {2.5: pytest.approx(62.5)}
    assert arrival(impairment, 10.0) == pytest.approx(63.5)
    assert arrival(impairment, 20.0) == pytest.approx(64.5)
    assert impairment.offer(30.0, 1000) == []  # 2500 bytes wait
    # Saying again how long the silence still lasts changes nothing; its end lets go at the rate of that time.
    assert all(new == pytest.approx(old) for old, new in impairment.change(link.merged(silence=21.5), 40.0).items())
    assert [new for _, new in sorted(impairment.change(link.merged(rate=16e3), 61.5).items())] == pytest.approx(
        [62.25, 62.75, 63.25]
    )
    assert [impairment.counted(t).delivered for t in (61.5, 62.3, 64.0)] == [1, 2, 4]


def test_an_idle_silent_link_takes_a_frame() -> None:
    impairment = Impairment(LinkProfile(), seed=1)
    assert impairment.change(LinkProfile(rate=8e3, buffer_bytes=0, silence=5.0), 1.0) == {}
    assert arrival(impairment, 2.0) == pytest.approx(7.0)
    assert impairment.offer(2.0, 1000) == []


@given(profile=profiles, stream=gaps, seed=st.integers(0, 2**63))
def test_the_same_seed_gives_the_same_fates(profile: LinkProfile, stream: list[tuple[float, int]], seed: int) -> None:
    one, two = Impairment(profile, seed), Impairment(profile, seed)
    assert [one.offer(now, size) for now, size in stream] == [two.offer(now, size) for now, size in stream]
    assert dataclasses.asdict(one.counters) == dataclasses.asdict(two.counters)


def test_another_seed_gives_other_fates() -> None:
    profile = LinkProfile(loss=0.5)
    assert fates(Impairment(profile, seed=1), 100) != fates(Impairment(profile, seed=2), 100)


def test_the_same_frames_are_lost_whatever_else_is_requested() -> None:
    plain = fates(Impairment(LinkProfile(loss=0.3), seed=9), 500)
    busy = LinkProfile(loss=0.3, latency=0.01, jitter=0.01, rate=1e9, duplicate=0.2, corrupt=0.2, reorder=0.2)
    assert fates(Impairment(busy, seed=9), 500) == plain


def test_reordered_frames_skip_the_propagation_delay() -> None:
    impairment = Impairment(LinkProfile(latency=0.05, reorder=0.25), seed=6)
    delays = [impairment.offer(float(now), 1000)[0][0] - now for now in range(10_000)]
    ahead = sum(delay == 0 for delay in delays)
    assert {round(delay, 9) for delay in delays} == {0.0, 0.05}
    low, high = binomial_interval(10_000, 0.25)
    assert low <= ahead <= high
    assert impairment.counters.reordered == ahead


def test_reordered_frames_still_wait_for_the_rate() -> None:
    impairment = Impairment(LinkProfile(latency=0.05, rate=8e6, reorder=1.0), seed=1)
    assert [impairment.offer(0.0, 1000)[0][0] for _ in range(3)] == pytest.approx([0.001, 0.002, 0.003])


def test_duplicates_pass_the_rate_twice() -> None:
    impairment = Impairment(LinkProfile(rate=8e6, duplicate=1.0), seed=1)
    assert impairment.offer(0.0, 1000) == [(0.001, False), (0.002, False)]


@pytest.mark.parametrize("name", ["duplicate", "corrupt"])
def test_fractions_of_duplicates_and_corruption(name: str) -> None:
    impairment = Impairment(LinkProfile().merged(**{name: 0.1}), seed=8)
    copies = [impairment.offer(float(now), 1000) for now in range(10_000)]
    low, high = binomial_interval(10_000, 0.1)
    if name == "duplicate":
        assert low <= sum(len(fate) == 2 for fate in copies) <= high
        assert impairment.counters.duplicated == sum(len(fate) == 2 for fate in copies)
    else:
        assert low <= sum(corrupt for fate in copies for _, corrupt in fate) <= high


@pytest.mark.parametrize(
    ("distribution", "deviation"),
    [
        ("normal", 1.0),
        ("uniform", 1 / math.sqrt(3)),
        # (4/3)(u^(-1/3) - 3/2) cut at 4, as the table of iproute2 (netem/pareto.c). Untruncated the deviation is
        # 2/sqrt(3) = 1.155. X = u^(-1/3) is cut at 4.5: with F the tail x^-3, E[min] = 1.5 - 1/(2 * 4.5^2) = 1.4753,
        # E[min^2] = 3 - 2/4.5 = 2.5556, so the deviation is (4/3) * sqrt(2.5556 - 1.4753^2) = 0.8210.
        ("pareto", 0.8210),
    ],
)
def test_spread_of_jitter(distribution: str, deviation: float) -> None:
    impairment = Impairment(LinkProfile(latency=1.0, jitter=0.01, distribution=distribution), seed=1)
    delays = [impairment.offer(now, 100)[0][0] - now for now in range(50_000)]
    mean = -4 / 3 * (1.5 - 1.4753) * 0.01 if distribution == "pareto" else 0.0
    assert statistics.fmean(delays) == pytest.approx(1.0 + mean, abs=Z99 * deviation * 0.01 / math.sqrt(50_000))
    assert statistics.pstdev(delays) == pytest.approx(deviation * 0.01, rel=0.03)


def test_uniform_jitter_stays_in_its_range() -> None:
    impairment = Impairment(LinkProfile(latency=0.05, jitter=0.01, distribution="uniform"), seed=1)
    delays = [impairment.offer(float(now), 100)[0][0] - now for now in range(5000)]
    assert 0.04 <= min(delays) < 0.0401
    assert 0.0599 < max(delays) <= 0.06 + 1e-9


def test_delays_are_never_negative() -> None:
    impairment = Impairment(LinkProfile(latency=0.001, jitter=0.1), seed=1)
    assert all(impairment.offer(float(now), 100)[0][0] >= now for now in range(1000))


def test_dense_traffic_waits_for_the_slowest_ahead() -> None:
    profile = LinkProfile(latency=0.05, jitter=0.01)
    means = []
    for spacing in (1.0, 1e-5):
        impairment = Impairment(profile, seed=1)
        means.append(statistics.fmean(impairment.offer(i * spacing, 100)[0][0] - i * spacing for i in range(2000)))
    assert means[0] == pytest.approx(0.05, abs=0.001)
    assert means[1] > 0.06


def test_what_waits_leaves_at_the_new_rate() -> None:
    impairment = Impairment(LinkProfile(latency=0.1, rate=8e6, buffer=1.0), seed=1)
    before = [impairment.offer(0.0, 1000)[0][0] for _ in range(10)]
    assert before == pytest.approx([0.101, 0.102, 0.103, 0.104, 0.105, 0.106, 0.107, 0.108, 0.109, 0.11])
    # At 4.5 ms four have been sent and half of the fifth; ten times the rate takes 0.05 ms for the rest of it.
    moved = impairment.change(LinkProfile(rate=80e6, buffer=1.0), 0.0045)
    assert list(moved) == before[4:]
    assert list(moved.values()) == pytest.approx([0.10455, 0.10465, 0.10475, 0.10485, 0.10495, 0.10505])
    assert impairment.backlog(0.0045) == pytest.approx(5500)
    # A new frame has no latency any more; it is sent at 5.15 ms and overtakes nobody.
    assert impairment.offer(0.0045, 1000)[0][0] == pytest.approx(0.10505)
    assert impairment.counters.offered == 11


def test_a_slower_rate_holds_up_what_waits() -> None:
    impairment = Impairment(LinkProfile(rate=8e6, buffer=1.0), seed=1)
    before = [impairment.offer(0.0, 1000)[0][0] for _ in range(3)]
    moved = impairment.change(LinkProfile(rate=0.8e6, buffer=1.0), 0.0015)
    assert moved == pytest.approx({before[1]: 0.0015 + 0.005, before[2]: 0.0015 + 0.015})


def test_what_is_on_its_way_keeps_its_time_and_is_not_overtaken() -> None:
    impairment = Impairment(LinkProfile(latency=0.1, rate=8e6, buffer=1.0), seed=1)
    first = impairment.offer(0.0, 1000)[0][0]
    impairment.change(LinkProfile(latency=0.01, rate=8e6, buffer=1.0), 0.002)
    second = impairment.offer(0.002, 10_000)[0][0]
    assert first < second == pytest.approx(0.101)  # else at 2 + 10 + 10 ms
    assert impairment.change(LinkProfile(latency=0.01, rate=80e6, buffer=1.0), 0.002) == {second: second}


def test_reordered_frames_that_wait_leave_at_the_new_rate() -> None:
    impairment = Impairment(LinkProfile(latency=0.1, rate=8e6, reorder=1.0), seed=1)
    before = [impairment.offer(0.0, 1000)[0][0] for _ in range(2)]
    assert impairment.change(LinkProfile(rate=16e6), 0.0) == pytest.approx({before[0]: 0.0005, before[1]: 0.001})


def test_a_change_moves_what_waits_for_the_link_and_not_what_it_would_have_arrived_with() -> None:
    """The first of two frames is on its way, with so much jitter that the second would arrive with it. At 80 kbit/s
    1000 bytes take 100 ms, so half of the second is left at 150 ms."""
    profile = LinkProfile(latency=0.1, jitter=0.05, rate=80e3)
    for seed in range(100):
        link = Impairment(profile, seed)
        (first, _), (second, _) = (delivery for _ in range(2) for delivery in link.offer(0.0, 1000))
        if second - first < 1e-9:
            break
    moved = link.change(profile.merged(silence=1.0), 0.15)
    assert list(moved) == [second]
    assert first < 1.15 + 0.05 <= moved[second]


def test_a_change_that_leaves_the_rate_moves_nothing() -> None:
    impairment = Impairment(LinkProfile(rate=8e6, latency=0.1, buffer=1.0), seed=1)
    impairment.offer(0.0, 1000)
    assert impairment.change(LinkProfile(rate=8e6, buffer=1.0), 0.0) == {}
    assert Impairment(LinkProfile(latency=0.1), seed=1).change(LinkProfile(rate=8e6), 0.0) == {}


def test_a_slow_moment_ends_when_it_is_over() -> None:
    """Ten full frames come while a link of 10 Mbit/s has 60 kbit/s for 0.6 s: at that rate they would need 2 s."""
    fast, slow = (LinkProfile(rate=rate, buffer=5.0) for rate in (10e6, 60_560))
    impairment = Impairment(slow, seed=1)
    due = [impairment.offer(0.0, FULL_FRAME)[0][0] for _ in range(10)]
    assert due[-1] == pytest.approx(2.0)
    moved = impairment.change(fast, 0.6)  # three have been sent, each in 0.2 s
    assert max(moved.values()) == pytest.approx(0.6 + 7 * FULL_FRAME * 8 / 10e6)


def test_change_applies_the_new_buffer_to_what_waits() -> None:
    impairment = Impairment(LinkProfile(rate=8e6, buffer_bytes=10_000), seed=1)
    for _ in range(10):
        impairment.offer(0.0, 1000)
    impairment.change(LinkProfile(rate=8e6, buffer_bytes=5000), 0.0)
    assert impairment.offer(0.0, 1000) == []
    assert impairment.offer(0.0059, 1000) == []  # 4100 bytes wait
    assert impairment.offer(0.006, 1000) != []


def test_many_changes_under_load_keep_the_backlog() -> None:
    impairment = Impairment(LinkProfile(rate=8e6, buffer=10.0), seed=1)
    for step in range(100):
        impairment.change(LinkProfile(rate=8e6 * (1 + step % 7), buffer=10.0), 0.0)
        impairment.offer(0.0, 1000)
    assert impairment.backlog(0.0) == pytest.approx(100_000)


def test_change_to_no_rate_lets_everything_go() -> None:
    impairment = Impairment(LinkProfile(rate=8e6, latency=0.01, buffer=1.0), seed=1)
    before = [impairment.offer(0.0, 1000)[0][0] for _ in range(10)]
    moved = impairment.change(LinkProfile(), 0.005)
    assert moved == {at: pytest.approx(0.015) for at in before[5:]}  # the fifth has just been sent
    [(at, corrupted)] = impairment.offer(0.006, 1000)
    assert at == pytest.approx(0.015)  # behind those on their way
    assert not corrupted
    assert impairment.offer(0.02, 1000) == [(0.02, False)]


def test_change_keeps_the_state_of_the_chain() -> None:
    stuck = GilbertElliott(p=0.5, r=1e-9)
    impairment = Impairment(LinkProfile(loss=stuck), seed=1)
    assert not any(fates(impairment, 50))  # bad from the start (p / (p + r) = 1)
    impairment.change(LinkProfile(loss=GilbertElliott(p=1e-9, r=1e-9)), 0.0)
    assert not any(fates(impairment, 50))
    impairment.change(LinkProfile(loss=GilbertElliott(p=1e-9, r=1.0)), 0.0)
    assert fates(impairment, 3) == [False, True, True]


def test_a_super_packet_shares_one_fate() -> None:
    impairment = Impairment(LinkProfile(loss=0.5), seed=1)
    arrived = [bool(impairment.offer(float(now), 44 * 1448, 44)) for now in range(2000)]
    low, high = binomial_interval(2000, 0.5)
    assert low <= arrived.count(False) <= high
    assert impairment.counters.lost == 44 * arrived.count(False)
    assert impairment.counters.offered == 44 * 2000


def test_a_super_packet_enters_if_its_first_segment_fits() -> None:
    impairment = Impairment(LinkProfile(rate=8e6, buffer_bytes=5000), seed=1)
    assert impairment.offer(0.0, 4000, packets=4)  # idle
    assert impairment.offer(0.0, 4000, packets=4)  # 4000 wait, a segment of 1000 fits
    assert not impairment.offer(0.0, 4000, packets=4)
    assert impairment.counters.overflowed == 4
    assert impairment.backlog(0.0) == pytest.approx(8000)
