"""Transfer times against closed forms. A full packet carries 1448 bytes and takes 1514 on the link."""

from __future__ import annotations

import dataclasses
import math
from itertools import accumulate, pairwise
from statistics import mean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.profile import FULL_FRAME, GilbertElliott, LinkProfile
from netem.tcp.flow import Flow
from netem.tcp.path import SEGMENT
from netem.tcp.sender import INITIAL_WINDOW, Beats

FAT = LinkProfile(latency=0.05)
RTT = 0.1
FULL = FULL_FRAME * 8  # bits of a full packet on the link
ROUNDING = 1e-12  # s, of times that are sums in another order


def flow(seed: int = 1, **settings: object) -> Flow:
    profile = LinkProfile(**settings)  # type: ignore[arg-type]
    return Flow(profile, profile, seed)


def segments(count: int) -> int:
    return count * SEGMENT


def total(connection: Flow, size: int, messages: int, pause: float = 1.0) -> float:
    """Seconds that so many messages take, each sent after the one before has arrived."""
    now = taken = 0.0
    for _ in range(messages):
        arrived = connection.send(now, size)
        taken += arrived - now
        now = arrived + pause
    return taken


# Without a rate: latency and round trips


def test_an_unimpaired_link_takes_no_time() -> None:
    assert flow().send(3.0, 10_000_000) == 3.0


@pytest.mark.parametrize("size", [0, 1, segments(INITIAL_WINDOW)])
def test_what_fits_the_initial_window_takes_the_latency(size: int) -> None:
    assert Flow(FAT, FAT, 1).send(0.0, size) == pytest.approx(0.05)


def test_slow_start_doubles_the_window() -> None:
    # 10, 20, 40, 80 packets: 10 * (2^k - 1) in k round trips.
    for rounds in range(1, 6):
        packets = INITIAL_WINDOW * (2**rounds - 1)
        assert Flow(FAT, FAT, 1).send(0.0, segments(packets)) == pytest.approx(0.05 + RTT * (rounds - 1))
        assert Flow(FAT, FAT, 1).send(0.0, segments(packets) + 1) == pytest.approx(0.05 + RTT * rounds)


def test_a_short_pause_keeps_the_window() -> None:
    connection = Flow(FAT, FAT, 1)
    arrived = connection.send(0.0, segments(30))  # 10, then 20: the window is now 40
    assert connection.send(arrived + RTT, segments(40)) == pytest.approx(arrived + RTT + 0.05)


def test_idleness_halves_the_window_for_each_timeout() -> None:
    # After 10 + 20 + 40 packets the window is 80; the timeout is the round trip + 200 ms.
    for timeouts, window in [(1, 40), (2, 20), (3, 10), (9, 10)]:
        connection = Flow(FAT, FAT, 1)
        released = connection.send(0.0, segments(70)) - 0.05
        now = released + (timeouts + 0.5) * (RTT + 0.2)
        assert connection.send(now, segments(window)) == pytest.approx(now + 0.05)
        assert connection.send(now, 1) == pytest.approx(now + 0.05 + RTT)


def test_beats_end_idleness() -> None:
    """Beats every 0.28 s leave no idleness of a timeout, 0.3 s: the window stays 80. Without them it becomes 10."""
    for beat, window in [(0.28, 80), (math.inf, 10)]:
        connection = Flow(FAT, FAT, 1, beat)
        now = connection.send(0.0, segments(70)) + 3.0
        assert connection.send(now, segments(window)) == pytest.approx(now + 0.05)
        assert connection.send(now, 1) == pytest.approx(now + 0.05 + RTT)


def test_connections_of_a_node_beat_at_the_same_times_in_a_run() -> None:
    found = [Flow(FAT, FAT, seed, 1.0, beat_seed=run)._beats for seed, run in ((1, 5), (2, 5), (1, 6))]
    assert found[0] == found[1]
    assert found[0] != found[2]


@pytest.mark.parametrize("sent", [0.0, 0.4, 7.3])
def test_a_beat_leaves_at_the_first_look_after_three_quarters_of_its_period(sent: float) -> None:
    beats = Beats(1.0, 0.2)  # looks at 0.2, 0.7, 1.2 ...
    assert beats.after(sent) == pytest.approx({0.0: 1.2, 0.4: 1.2, 7.3: 8.2}[sent])
    assert Beats().after(sent) == math.inf


def test_a_connection_gives_up_when_nothing_arrives_for_its_patience() -> None:
    """All packets are lost: the first timeout is 0.3 s, and each further one twice as long."""
    lossy = LinkProfile(latency=0.05, loss=0.999)
    assert Flow(lossy, FAT, 1).send(0.0, 1) > 2.0
    connection = Flow(lossy, FAT, 1, patience=2.0)
    assert connection.send(0.0, 1) == connection.send(1.0, 1) == math.inf
    connection.open(3.0)
    connection.reshape(3.0, FAT, FAT)
    assert connection.send(3.0, 1) == pytest.approx(3.05)


def test_packets_lost_at_the_end_follow_a_probe_in_rounds_that_double() -> None:
    """A burst of 78 packets meets a buffer of 20. The probe carries one of those lost, the next rounds 2, 4, 8 ..."""
    profile = LinkProfile(latency=0.05, rate=FULL / 0.001, buffer_bytes=20 * FULL_FRAME)
    connection = Flow(profile, profile, 1, beat=0.28)
    connection.send(0.0, segments(70))
    began = connection.counted(50.0)
    arrived = connection.send(50.0, segments(78)) - 50.0
    lost = connection.counted(60.0).overflowed - began.overflowed
    rounds = math.ceil(math.log2(lost + 1))
    assert lost > 20
    assert arrived > 0.05 + (rounds + 1) * RTT


def burst(packets: int) -> tuple[Flow, float, float]:
    """A connection with a window of 80 sends a message when the buffer holds only 40; when, and how long it takes."""
    wide, narrow = (LinkProfile(latency=0.05, rate=FULL / 0.001, buffer_bytes=each * FULL_FRAME) for each in (200, 40))
    connection = Flow(wide, wide, 1)
    now = connection.send(0.0, segments(70)) + RTT
    connection.reshape(now, narrow, wide)
    return connection, now, connection.send(now, segments(packets)) - now


def test_packets_lost_at_the_end_of_a_burst_wait_until_later_ones_are_acknowledged() -> None:
    """Of 80 packets 40 are lost. The other 20 follow a round trip later, and the lost ones after another."""
    _, _, seconds = burst(100)
    assert seconds == pytest.approx(2 * RTT + 0.05 + 0.04, abs=0.005)


def test_each_message_that_loses_its_end_shrinks_the_window() -> None:
    connection, now, seconds = burst(78)
    before = connection._sender.threshold
    connection.send(now + seconds + RTT, segments(78))
    assert connection._sender.threshold == pytest.approx(0.7 * before, abs=2)


def test_the_send_buffer_takes_a_message_up_to_twice_the_window() -> None:
    connection = Flow(FAT, FAT, 1)  # rounds of 10, 20 and 40
    connection.send(0.0, segments(70))
    assert connection._sender.written == pytest.approx(2 * RTT)


def test_a_window_that_is_not_used_does_not_grow() -> None:
    connection = Flow(FAT, FAT, 1)
    for place in range(20):  # 4 of 10 packets, less than half
        connection.send(0.2 * place, segments(4))
    assert connection.send(4.0, segments(11)) == pytest.approx(4.05 + RTT)


def test_acknowledgements_cross_the_way_back() -> None:
    slow_back = Flow(FAT, LinkProfile(latency=0.2), 1)
    assert slow_back.send(0.0, segments(11)) == pytest.approx(0.05 + 0.25)


# With a rate


@pytest.mark.parametrize("size", [1, 1000, 1448, 5000, 14_480])
def test_a_small_message_takes_latency_and_its_time_on_the_link(size: int) -> None:
    wire = 8 * (size + 66 * math.ceil(size / SEGMENT))
    assert flow(latency=0.05, rate=10e6).send(0.0, size) == pytest.approx(0.05 + wire / 10e6)


def test_the_second_round_starts_with_the_first_acknowledgement() -> None:
    # First packet on the link, round trip, an acknowledgement on the link (66 bytes), then 18 packets.
    expected = FULL / 100e6 + RTT + 66 * 8 / 100e6 + 18 * FULL / 100e6 + 0.05
    assert flow(latency=0.05, rate=100e6).send(0.0, segments(28)) == pytest.approx(expected)


def test_a_full_link_carries_its_rate() -> None:
    # The window of 10 fills 1 Mbit/s at 10 ms each way at once: 20 ms are 1.7 packets.
    packets = 5000
    expected = packets * FULL / 1e6 + 0.01
    assert flow(latency=0.01, rate=1e6, buffer=10.0).send(0.0, segments(packets)) == pytest.approx(expected, rel=1e-3)


def test_messages_queue_for_the_link() -> None:
    connection = flow(latency=0.05, rate=10e6)
    arrivals = [connection.send(0.0, segments(1)) for _ in range(5)]
    assert arrivals == pytest.approx([0.05 + place * FULL / 10e6 for place in range(1, 6)])


def test_a_slow_way_back_sets_the_pace() -> None:
    # An acknowledgement of 66 bytes for every two packets.
    connection = Flow(LinkProfile(latency=0.01, rate=100e6), LinkProfile(latency=0.01, rate=100e3), 1)
    assert connection.send(0.0, segments(1000)) == pytest.approx(1000 * 66 * 8 / 2 / 100e3, rel=0.05)


def test_a_small_buffer_costs_packets() -> None:
    small, large = (flow(latency=0.04, rate=50e6, buffer=buffer) for buffer in (0.002, 0.2))
    assert small.send(0.0, 3_000_000) > large.send(0.0, 3_000_000)
    assert small.counted(math.inf).overflowed > 0
    assert large.counted(math.inf).overflowed == 0


# Losses


def test_losses_have_the_mean_of_the_profile() -> None:
    for loss in (0.02, GilbertElliott(p=0.01, r=0.25), GilbertElliott(p=0.02, r=0.5, loss_good=0.001, loss_bad=0.6)):
        connection = flow(latency=0.01, loss=loss)
        total(connection, 3_000_000, 20)
        counters = connection.counted(math.inf)
        asked = loss if isinstance(loss, float) else loss.mean_loss
        assert counters.lost / counters.offered == pytest.approx(asked, rel=0.15)


def test_bursts_hurt_less_than_single_losses_of_the_same_mean() -> None:
    # Losses within one round trip shrink the window once.
    bursts = GilbertElliott(p=0.005, r=0.5)
    single = total(flow(latency=0.02, loss=bursts.mean_loss), 2_000_000, 5)
    assert total(flow(latency=0.02, loss=bursts), 2_000_000, 5) < single


def test_throughput_under_loss_follows_the_square_root() -> None:
    # Reno's sqrt(3 / 2 p) packets per round trip (Mathis et al., CCR 1997), which CUBIC's friendly region keeps.
    loss = 0.01
    packets = 20_000
    rounds = flow(latency=0.05, loss=loss).send(0.0, segments(packets)) / RTT
    assert packets / rounds == pytest.approx(math.sqrt(1.5 / loss), rel=0.2)


def test_a_lost_message_of_one_packet_waits_for_the_timer() -> None:
    # Nothing betrays the loss of a lone packet before the timeout, round trip + 200 ms; further ones come later still.
    times = []
    connection = flow(latency=0.02, loss=0.3)
    for place in range(300):
        times.append(connection.send(10.0 * place, 100) - 10.0 * place)
    once = [each for each in times if each == pytest.approx(0.02 + 0.24)]
    assert min(times) == pytest.approx(0.02)
    assert 300 * 0.3 * 0.7 * 0.7 < len(once) < 300 * 0.3 * 0.7 * 1.3
    assert max(times) >= 0.02 + 0.24 + 0.24


def test_a_message_that_follows_betrays_a_loss() -> None:
    def mean_time(more: bool) -> float:
        connection = flow(latency=0.02, loss=0.2)
        return mean(connection.send(10.0 * place, 2000, more=more) - 10.0 * place for place in range(300))

    assert mean_time(True) < mean_time(False)


def test_nothing_crosses_a_link_that_loses_everything() -> None:
    assert flow(latency=0.01, loss=1.0).send(0.0, 1000) == math.inf


def test_corrupt_packets_are_lost_to_tcp() -> None:
    connection = flow(latency=0.02, corrupt=0.02, loss=0.01)
    assert total(connection, 1_000_000, 10) > total(flow(latency=0.02, loss=0.01), 1_000_000, 10)
    counters = connection.counted(math.inf)
    assert counters.corrupted / counters.offered == pytest.approx(0.02, rel=0.3)
    assert counters.lost / counters.offered == pytest.approx(0.01, rel=0.4)


def test_duplicates_take_time_on_the_link() -> None:
    once, twice = (flow(latency=0.01, rate=1e6, duplicate=share).send(0.0, 1_000_000) for share in (0.0, 0.5))
    assert twice == pytest.approx(1.5 * once, rel=0.02)


# Jitter


@pytest.mark.parametrize("distribution", ["normal", "uniform", "pareto"])
def test_jitter_holds_up(distribution: str) -> None:
    connection = flow(latency=0.05, jitter=0.005, distribution=distribution)
    single = [connection.send(10.0 * place, 100) - 10.0 * place for place in range(500)]
    burst = [connection.send(10_000 + 10.0 * place, segments(10)) - 10_000 - 10.0 * place for place in range(500)]
    assert mean(single) == pytest.approx(0.05, abs=0.001)
    assert mean(burst) > 0.053


def test_the_largest_of_ten_uniform_jitters() -> None:
    # The mean of the largest of n numbers between 0 and 1 is n / (n + 1).
    connection = flow(latency=0.05, jitter=0.01, distribution="uniform")
    burst = [connection.send(10.0 * place, segments(10)) - 10.0 * place for place in range(2000)]
    assert mean(burst) == pytest.approx(0.05 + 0.01 * (2 * 10 / 11 - 1), abs=0.0002)


@pytest.mark.parametrize(
    ("size", "loss", "engine"),
    [(40_000, 0.0, 0.0520), (1_000_000, 0.0, 0.450), (40_000, 0.01, 0.0766), (1_000_000, 0.01, 1.541)],
)
def test_jitter_holds_up_every_round(size: int, loss: float, engine: float) -> None:
    # Medians (s) of Linux' CUBIC over the userspace engine, by `benchmarks.transfers`; without jitter 0.0435, 0.438.
    def taken(seed: int) -> float:
        connection = flow(seed, rate=20e6, latency=0.01, jitter=0.003, loss=loss)
        now = connection.send(0.0, size) + 0.5
        return connection.send(now, size) - now

    assert median(map(taken, range(100))) == pytest.approx(engine, rel=0.35 if loss else 0.15)


class LostOnce:
    """The first round loses the packet at ``place``."""

    def __init__(self, place: int) -> None:
        self.places = [place]

    def draw(self, count: int) -> list[int]:
        lost, self.places = self.places, []
        return lost


@pytest.mark.parametrize(("place", "known"), [(0, 0.104), (5, 0.109), (8, 0.110 + 0.101 / 4)])
def test_a_loss_is_known_when_later_packets_are_acknowledged(place: int, known: float) -> None:
    # Ten packets of 1 ms: the acknowledgement of packet k comes at RTT + k + 1 ms. The third after a loss tells it, or
    # a quarter of a round trip after the first. The packet goes again then, takes 1 ms and the latency.
    connection = Flow(LinkProfile(latency=0.05, rate=FULL / 0.001, loss=0.5), FAT, 1)
    connection._path.losses = LostOnce(place)  # type: ignore[assignment]
    assert connection.send(0.0, segments(10)) == pytest.approx(known + 0.001 + 0.05)


# Changes


def test_a_new_latency_is_for_what_is_not_let_go_yet() -> None:
    connection = Flow(FAT, FAT, 1)
    first = connection.send(0.0, segments(10))
    second = connection.send(0.0, segments(10))
    slow = LinkProfile(latency=1.0)
    assert connection.reshape(0.02, slow, slow) == [first, pytest.approx(RTT + 1.0)]
    assert second == pytest.approx(RTT + 0.05)


def test_half_of_a_long_message_at_each_rate() -> None:
    slow, fast = (LinkProfile(latency=0.01, rate=rate) for rate in (1e6, 2e6))
    connection = Flow(slow, slow, 1)
    packets = 5000
    before = connection.send(0.0, segments(packets))
    (after,) = connection.reshape(before / 2, fast, fast)
    assert after == pytest.approx(0.75 * before, rel=0.01)


def test_an_unchanged_link_changes_nothing() -> None:
    profile = LinkProfile(latency=0.03, rate=20e6)
    connection = Flow(profile, profile, 1)
    arrivals = [connection.send(0.0, size) for size in (40_000, 300_000, 100)]
    assert connection.reshape(0.1, profile, profile) == pytest.approx(arrivals, rel=0.02)


def test_after_a_cut_the_next_expiry_of_the_timer_counts() -> None:
    # Round trip 100 ms: two round trips and 8 ms until the probe, then timeouts after 300, 600, 1200 ms. The attempt is
    # one packet; the other follows a round trip later.
    expiries = list(accumulate([0.208, 0.3, 0.6, 1.2]))
    for before, after in pairwise([0.0, *expiries]):
        connection = Flow(FAT, FAT, 1)
        connection.send(0.0, 2000)
        connection.cut(0.0)
        (arrival,) = connection.restore((before + after) / 2)
        assert arrival == pytest.approx(after + RTT + 0.05)


def test_messages_sent_during_a_cut_wait_in_order() -> None:
    connection = Flow(FAT, FAT, 1)
    connection.cut(1.0)
    assert connection.send(2.0, 1000) == math.inf
    assert connection.send(2.1, 20_000) == math.inf
    arrivals = connection.restore(2.15)
    assert arrivals[0] == pytest.approx(2.208 + 0.05)
    assert arrivals == sorted(arrivals)


def test_a_cut_spares_what_has_arrived() -> None:
    profile = LinkProfile(latency=0.01, rate=1e6, buffer=10.0)
    connection = Flow(profile, profile, 1)
    packets = 1000
    whole = connection.send(0.0, segments(packets))
    connection.cut(whole / 2)
    (arrival,) = connection.restore(whole / 2)
    assert whole < arrival < whole + 1.0


def test_a_cut_with_nothing_in_flight_changes_nothing() -> None:
    connection = Flow(FAT, FAT, 1)
    connection.send(0.0, 1000)
    connection.cut(1.0)
    assert connection.restore(1.5) == []
    assert connection.send(2.0, 1000) == pytest.approx(2.05)


def test_a_new_connection_discards_what_waits_in_the_queue() -> None:
    profile = LinkProfile(latency=0.05, rate=20e6)
    connection = Flow(profile, profile, 1)
    connection.send(0.0, 100_000_000)
    before = connection.counted(2.0)
    connection.open(2.0)
    assert before.offered_bytes < 2.0 * 20e6 / 8
    assert connection.counted(2.0).offered_bytes == connection.counted(math.inf).offered_bytes == before.offered_bytes


def test_a_change_or_a_cut_keeps_the_growth_of_a_long_round() -> None:
    profile = LinkProfile(latency=0.05, rate=20e6)
    connection = Flow(profile, profile, 1)
    arrival = connection.send(0.0, segments(3000))
    assert connection.reshape(1.7, profile, profile) == [pytest.approx(arrival, rel=1e-6)]
    connection = Flow(profile, profile, 1)
    connection.send(0.0, segments(3000))
    connection.cut(0.7)
    assert connection.restore(0.8) == [pytest.approx(3.5754984, rel=1e-6)]


# Properties

profiles = st.builds(
    LinkProfile,
    latency=st.floats(0, 0.2),
    jitter=st.sampled_from([0.0, 0.01]),
    distribution=st.sampled_from(["normal", "uniform", "pareto"]),
    loss=st.sampled_from([0.0, 0.01, 0.2, GilbertElliott(p=0.05, r=0.3)]),
    rate=st.sampled_from([None, 1e5, 1e7, 1e9]),
    duplicate=st.sampled_from([0.0, 0.1]),
    corrupt=st.sampled_from([0.0, 0.05]),
)


@pytest.mark.parametrize("latency", [0.005, 0.05])
@pytest.mark.parametrize("rate", [2e6, 20e6, 100e6])
@pytest.mark.parametrize("times", [1, 30])
def test_packets_that_stay_in_their_round_are_not_delayed(latency: float, rate: float, times: int) -> None:
    """Changes to the same profile, at any time of a transfer."""
    profile = LinkProfile(latency=latency, rate=rate)
    size = segments(7000)
    unchanged = Flow(profile, profile, 1).send(0.0, size)
    for part in range(0, 10, 3):
        connection = Flow(profile, profile, 1, resume=True)
        connection.send(0.0, size)
        for number in range(times):
            (arrival,) = connection.reshape((part + number / times) / 10 * unchanged, profile, profile)
        assert arrival == pytest.approx(unchanged, rel=0.002)


def test_a_flow_says_when_its_messages_leave_the_queue_and_how_many_packets_wait() -> None:
    connection = flow(latency=0.05, rate=20e6)
    assert connection.leaves() == -math.inf
    arrival = connection.send(0.0, segments(10))
    assert connection.leaves() == pytest.approx(arrival - 0.05) == pytest.approx(10 * FULL / 20e6)
    assert connection.queued(0.0) == 10
    assert connection.queued(connection.leaves() / 2) == 5
    assert connection.queued(connection.leaves() + 0.001) == 0
    connection.cut(0.01)
    assert connection.leaves() == math.inf


actions = st.sampled_from(["send", "send", "send", "reshape", "cut", "restore"])
steps = st.lists(st.tuples(st.floats(0, 2), actions, st.integers(0, 10**6)), max_size=12)


@given(profiles, profiles, profiles, steps, st.integers(0, 100))
def test_order_causality_and_counters(
    forward: LinkProfile, backward: LinkProfile, other: LinkProfile, steps: list[tuple[float, str, int]], seed: int
) -> None:
    def run() -> list[float]:
        connection = Flow(forward, backward, seed)
        now = 0.0
        seen: list[float] = []
        for pause, what, size in steps:
            now += pause
            if what == "send":
                arrival = connection.send(now, size)
                assert arrival >= now - ROUNDING
                seen.append(arrival)
            elif what == "cut":
                connection.cut(now)
            else:
                arrivals = connection.restore(now) if what == "restore" else connection.reshape(now, other, backward)
                assert all(each >= now - ROUNDING for each in arrivals)
                assert arrivals == sorted(arrivals)
                seen += arrivals
        counters = connection.counted(math.inf)
        assert counters.offered + counters.duplicated == counters.delivered + counters.lost + counters.overflowed
        assert all(value >= 0 for value in dataclasses.astuple(counters))
        return seen

    assert run() == run()


@given(st.integers(1, 10**7), st.integers(1, 10**7), profiles)
def test_a_larger_message_takes_no_less(size: int, other: int, profile: LinkProfile) -> None:
    # Nothing is lost, also not to a full buffer: a loss at the very end costs more than one before further packets.
    clean = profile.merged(loss=0.0, corrupt=0.0, jitter=0.0, buffer_bytes=10**9 if profile.rate else None)
    small, large = sorted((size, other))
    assert Flow(clean, clean, 1).send(0.0, small) <= Flow(clean, clean, 1).send(0.0, large) + 1e-9


def test_more_loss_takes_longer() -> None:
    times = [total(flow(latency=0.02, rate=20e6, loss=loss), 500_000, 30) for loss in (0.0, 0.005, 0.02, 0.1)]
    assert times == sorted(times)


def test_another_seed_loses_other_packets() -> None:
    assert len({flow(seed, latency=0.02, loss=0.05).send(0.0, 500_000) for seed in range(10)}) > 5
