from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from statistics import mean, median

import pytest

from netem.impair import Impairment
from netem.library import PROFILES
from netem.measurement.judge import (
    Judgement,
    Verdict,
    judge_bursts,
    judge_delay,
    judge_duplicates,
    judge_loss,
    judge_order,
    judge_queue,
    judge_rate,
    judge_rtt,
    predict_delay,
    predict_rtt,
)
from netem.measurement.probe_plan import OVERLOAD, OneWay, plan_probe
from netem.measurement.tally import UDP_HEADERS, Flood
from netem.profile import DISTRIBUTIONS, GilbertElliott, LinkProfile
from tests.netem.measured import BURSTY, PERFECT, direction, measured
from tests.texts import containing


class TestRtt:
    def test_tolerance_is_a_millisecond_or_two_percent(self) -> None:
        for latency, tolerance in ((0.01, 0.001), (0.1, 0.004)):
            profile = LinkProfile(latency=latency)
            plan = plan_probe(profile, profile)
            asked = 2 * latency
            for value, verdict in (
                (asked - 1.1 * tolerance, "fail"),
                (asked - 0.9 * tolerance, "pass"),
                (asked + 0.9 * tolerance, "pass"),
                (asked + 1.1 * tolerance, "fail"),
            ):
                assert judge_rtt(profile, profile, plan, measured(value)).verdict == verdict
            assert judge_rtt(profile, profile, plan, measured(asked)).asked == asked

    def test_the_probes_own_time_on_a_slow_link_counts(self) -> None:
        profile = LinkProfile(rate=50e3)
        verdict = judge_rtt(profile, profile, plan_probe(profile, profile), measured(0.026))
        assert verdict.verdict == "pass"  # 82 bytes at 50 kbit/s take 13.1 ms each way
        assert verdict.asked == 0.0

    def test_jitter_of_a_dense_train_raises_the_prediction(self) -> None:
        profile = LinkProfile(latency=0.05, jitter=0.01)
        dense = plan_probe(profile, PERFECT)
        sparse = replace(dense, spacing=0.1)
        # A dense train waits for its slowest packets; far apart, half are slower than 50 ms.
        assert predict_rtt(profile, PERFECT, dense)[0] > 0.055
        assert predict_rtt(profile, PERFECT, sparse)[0] == pytest.approx(0.05, abs=0.001)

    def test_probes_that_find_a_small_buffer_full_are_left_out(self) -> None:
        """Jitter of 100 ms brings some 50 probes together, of which 12 of 82 bytes fit into 1 kB."""
        there, back = LinkProfile(latency=0.2, jitter=0.1), LinkProfile(latency=0.01, rate=1e6, buffer_bytes=1000)
        assert 0.21 < predict_rtt(there, back, plan_probe(there, back))[0] < 0.5

    def test_no_echo_at_all_fails(self) -> None:
        verdict = judge_rtt(PERFECT, PERFECT, plan_probe(PERFECT, PERFECT), measured(None))
        assert (verdict.verdict, verdict.measured) == ("fail", None)

    def test_echoes_that_the_way_back_loses_are_not_expected(self) -> None:
        """If the way back loses every packet, no echo is as configured; if it loses half, some of 250 must come."""
        for loss, verdict in ((1.0, "unknown"), (0.5, "fail")):
            back = LinkProfile(loss=loss)
            assert judge_rtt(PERFECT, back, plan_probe(PERFECT, back), measured(None)).verdict == verdict

    @pytest.mark.parametrize("way", ["forward", "back"])
    def test_the_deviation_is_that_of_the_median_of_independent_probes(self, way: str) -> None:
        """The median of n normal samples deviates by sqrt(pi / 2 / n) of their standard deviation. Sixteen trains give
        that within 18 % (one standard error), and two within 71 %: over these nine trains, two are far off."""
        jittery = LinkProfile(latency=0.05, jitter=0.01, distribution="normal")
        ways = (jittery, PERFECT) if way == "forward" else (PERFECT, jittery)
        for count in range(100, 501, 50):
            plan = replace(plan_probe(*ways), count=count, spacing=0.2)
            expected = jittery.jitter * math.sqrt(math.pi / 2 / count)
            assert predict_rtt(*ways, plan)[1] == pytest.approx(expected, rel=0.5)

    def test_jitter_without_reordering_is_in_what_is_expected(self) -> None:
        """A probe every 2 ms waits for the ones before it, so the median is above the latency, and so is the middle of
        what passes."""
        jittery = LinkProfile(latency=0.040, jitter=0.005)
        plan = plan_probe(jittery, jittery)
        trip = judge_rtt(jittery, jittery, plan, measured(0.092))
        assert trip.asked == 0.080
        assert trip.expected > 0.085
        assert trip.expected == pytest.approx((trip.low + trip.high) / 2)
        there = judge_delay(jittery, plan, direction(250, 0))
        assert (there.asked, there.expected > 0.0425) == (0.040, True)

    def test_echoes_of_probes_that_jitter_brought_together_queue(self) -> None:
        """A probe of 82 bytes takes 25 ms at 26 kbit/s. With jitter of 200 ms on the way there, several echoes leave at
        a time. Measured over 613 probes through a real switch: 1.03 s back, 0.94 s there."""
        slow = LinkProfile(latency=0.8, jitter=0.2, rate=26_000, loss=0.01)
        plan = plan_probe(slow, slow)
        there, back = judge_delay(slow, plan, direction(600, 0)), judge_delay(slow, plan, direction(600, 0), slow)
        assert there.low < 0.94 < there.high
        assert back.low < 1.03 < back.high
        assert there.expected < 0.97 < 1.0 < back.expected

    def test_a_rate_after_the_delay_spreads_what_jitter_brought_together(self) -> None:
        """As netem has it: a packet leaves after its delay and after its predecessor, and then takes its time at the
        rate (sch_netem.c, netem_enqueue). Without jitter the order does not matter."""
        slow = LinkProfile(latency=0.8, jitter=0.2, rate=26_000, loss=0.01)
        random, took = Random(7), 8 * 82 / 26_000
        plan = plan_probe(slow, PERFECT, rate_last=True)
        medians = []
        for _ in range(20):
            last, delays = 0.0, []
            for number in range(plan.count):
                at = number * plan.spacing
                last = max(at + max(0.0, random.gauss(0.8, 0.2)), last) + took
                delays.append(last - at)
            medians.append(median(delays))
        assert predict_delay(slow, plan)[0] == pytest.approx(mean(medians), rel=0.02)
        assert predict_delay(slow, plan_probe(slow, PERFECT))[0] < 0.96 * mean(medians)
        steady = replace(slow, jitter=0.0)
        for rate_last in (True, False):
            plan = plan_probe(steady, PERFECT, rate_last=rate_last)
            assert predict_delay(steady, plan)[0] == pytest.approx(0.8 + took)

    def test_what_is_expected_without_an_echo(self) -> None:
        slow = LinkProfile(latency=0.5, rate=5000)
        trip = judge_rtt(slow, slow, plan_probe(slow, slow), measured(None))
        # 1 s of latency, and 82 bytes at 5 kbit/s take 0.1312 s in each direction.
        assert trip.verdict == "fail"
        assert trip.expected == pytest.approx(1.2624)

    def test_few_echoes_say_nothing(self) -> None:
        verdict = judge_rtt(PERFECT, PERFECT, plan_probe(PERFECT, PERFECT), measured(0.0001, samples=4))
        assert verdict.verdict == "unknown"


class TestFractions:
    @pytest.mark.parametrize(("lost", "verdict"), [(75, "fail"), (76, "pass"), (126, "pass"), (127, "fail")])
    def test_loss_within_the_binomial_interval(self, lost: int, verdict: Verdict) -> None:
        # The central 99 % for n = 2000 and p = 0.05 are 76..126.
        assert judge_loss(LinkProfile(loss=0.05), direction(2000, lost)) == Judgement(
            "loss", 0.05, lost / 2000, 76 / 2000, 126 / 2000, verdict, f"{lost} of 2000", expected=0.05
        )

    def test_bursts_widen_the_interval_of_the_loss(self) -> None:
        independent = judge_loss(LinkProfile(loss=BURSTY.mean_loss), direction(2000, 125))
        bursty = judge_loss(LinkProfile(loss=BURSTY), direction(2000, 125))
        # By the square root of the design effect, 5.25.
        assert (bursty.high - bursty.low) / (independent.high - independent.low) == pytest.approx(2.29, rel=0.05)

    def test_losses_that_alternate_count_as_independent_ones(self) -> None:
        """Every second packet is lost: the number of losses has no variance, and a design effect of 0."""
        alternating = LinkProfile(loss=GilbertElliott(p=1.0, r=1.0))
        assert judge_loss(alternating, direction(250, 125)) == judge_loss(LinkProfile(loss=0.5), direction(250, 125))

    def test_damaged_probes_are_lost_ones(self) -> None:
        assert judge_loss(LinkProfile(loss=0.1, corrupt=0.1), direction(1000, 190)).asked == pytest.approx(0.19)

    def test_one_loss_fails_a_link_that_should_lose_none(self) -> None:
        assert judge_loss(PERFECT, direction(250, 1)).verdict == "fail"
        assert judge_loss(PERFECT, direction(250)).verdict == "pass"

    def test_too_few_probes_to_distinguish_from_none(self) -> None:
        assert judge_loss(LinkProfile(loss=0.01), direction(250, 2)).verdict == "unknown"
        assert judge_loss(PERFECT, direction(10)).verdict == "unknown"
        assert judge_loss(LinkProfile(loss=0.01), direction(250, 30)).verdict == "fail"

    def test_an_unheard_responder_leaves_the_loss_unknown(self) -> None:
        assert judge_loss(PERFECT, OneWay(sent=250, received=None)).verdict == "unknown"

    def test_duplicates(self) -> None:
        assert judge_duplicates(LinkProfile(duplicate=0.1), direction(1000, duplicated=100)).verdict == "pass"
        assert judge_duplicates(PERFECT, direction(1000, duplicated=1)).verdict == "fail"

    def test_order(self) -> None:
        assert judge_order(direction(1000)).verdict == "pass"
        assert judge_order(direction(1000, reordered=1)).verdict == "fail"


class TestBursts:
    def test_mean_length(self) -> None:
        # 64 bursts: 3.33 plus or minus 2.576 * 2.79 / 8
        verdict = judge_bursts(BURSTY, direction(4000, 213, bursts=64))
        assert (verdict.verdict, verdict.measured) == ("pass", 213 / 64)
        assert verdict.high - verdict.asked == pytest.approx(2.576 * 2.789 / 8, rel=0.001)

    def test_independent_losses_fail(self) -> None:
        assert judge_bursts(BURSTY, direction(4000, 250, bursts=235)).verdict == "fail"

    def test_few_bursts_or_a_chain_that_hides_them_say_nothing(self) -> None:
        assert judge_bursts(BURSTY, direction(500, 60, bursts=19)).verdict == "unknown"
        assert judge_bursts(BURSTY, direction(500)).verdict == "unknown"
        assert judge_bursts(replace(BURSTY, loss_bad=0.5), direction(4000, 213, bursts=64)).verdict == "unknown"


class TestRate:
    PROFILE = LinkProfile(rate=10e6)
    SATURATION = plan_probe(PROFILE, PERFECT).forward

    @pytest.mark.parametrize(
        ("rate", "verdict"), [(9.6e6, "fail"), (9.8e6, "pass"), (10.2e6, "pass"), (10.4e6, "fail")]
    )
    def test_within_three_percent(self, rate: float, verdict: str) -> None:
        assert self.SATURATION is not None
        result = judge_rate(self.PROFILE, direction(250, rate=rate, queue_delay=0.1), self.SATURATION)
        assert (result.verdict, result.measured) == (verdict, rate)

    def test_more_jitter_than_a_saturation_lasts_for_hides_the_rate(self) -> None:
        """300 ms of jitter ask for 30 s; LONGEST is 20."""
        profile = replace(self.PROFILE, jitter=0.3)
        saturation = plan_probe(profile, PERFECT).forward
        assert saturation is not None
        assert saturation.seconds == 20
        verdict = judge_rate(profile, direction(250, rate=5e6, queue_delay=1.0), saturation)
        assert (verdict.verdict, verdict.detail) == (
            "unknown",
            containing("udp for 20 s", "30 s"),
        )

    def test_a_link_that_was_not_filled_says_nothing_if_slow_and_fails_if_fast(self) -> None:
        assert self.SATURATION is not None
        for rate, verdict in ((5e6, "unknown"), (12e6, "fail")):
            result = judge_rate(self.PROFILE, direction(250, rate=rate, queue_delay=0.001), self.SATURATION)
            assert result.verdict == verdict

    def test_no_arrivals_say_nothing(self) -> None:
        assert self.SATURATION is not None
        assert judge_rate(self.PROFILE, direction(250), self.SATURATION).verdict == "unknown"

    def test_damaged_datagrams_take_their_share(self) -> None:
        assert self.SATURATION is not None
        profile = replace(self.PROFILE, corrupt=0.1)
        result = judge_rate(profile, direction(250, rate=9e6, queue_delay=0.1), self.SATURATION)
        assert result.measured == pytest.approx(10e6)


class TestDelay:
    def test_a_delay_on_the_wrong_side_is_found_out(self) -> None:
        """20 ms there and none back, asked; 10 ms each way has the same round trip."""
        forward = LinkProfile(latency=0.02)
        plan = plan_probe(forward, PERFECT)
        for delay, verdict in ((0.0203, "pass"), (0.01, "fail"), (None, "unknown")):
            assert judge_delay(forward, plan, direction(250, delay=delay)).verdict == verdict
        assert judge_delay(PERFECT, plan, direction(250, delay=0.01)).verdict == "fail"


class TestQueue:
    def test_as_long_as_the_buffer_or_as_the_saturation_makes_it(self) -> None:
        """1.5 times the rate for 0.2 s make a queue of 0.1 s; a buffer of 30 ms holds that much."""
        short = LinkProfile(rate=20e6, buffer=0.03)
        saturation = plan_probe(short, PERFECT).forward
        assert saturation is not None
        assert judge_queue(short, direction(250, queue_delay=0.031), saturation).verdict == "pass"
        assert judge_queue(short, direction(250, queue_delay=0.1), saturation).verdict == "fail"
        assert judge_queue(short, direction(250, queue_delay=0.01), saturation).verdict == "unknown"
        assert judge_queue(short, direction(250), saturation).verdict == "unknown"

    def test_a_link_in_front_of_a_slower_medium_has_two_queues(self) -> None:
        """LTE's 7.6 Mbit/s before a cell of 7: the link's queue may hold 100 ms besides the cell's."""
        cell = LinkProfile(rate=7e6, buffer=0.1)
        saturation = plan_probe(cell, PERFECT).forward
        assert saturation is not None
        found = direction(250, queue_delay=0.137)
        assert judge_queue(cell, found, saturation).verdict == "fail"
        assert judge_queue(cell, found, saturation, [(7.6e6, 0.1)]).verdict == "pass"
        assert judge_queue(cell, direction(250, queue_delay=0.25), saturation, [(7.6e6, 0.1)]).verdict == "fail"
        assert judge_queue(cell, found, saturation, [(30e6, 0.1)]).verdict == "fail"  # too fast to hold any

    def test_a_buffer_before_the_losses_may_hold_what_chance_does_not_lose(self) -> None:
        """The policer of the kernel engine at 2 Mbit/s, with a bucket of 27,500 bytes for a buffer of 25,000, since a
        chain loses one packet in eleven. If it loses none during 0.2 s, it lets 27,500 + 0.2 x 275,000 bytes pass, and
        50,000 leave: 32,500 wait, 130 ms. Measured in user-mode Linux: 118 ms."""
        chain = GilbertElliott(p=0.01, r=0.1)
        profile = LinkProfile(rate=2e6, buffer=0.1, loss=chain)
        saturation = plan_probe(profile, PERFECT).forward
        assert saturation is not None
        assert saturation.seconds == 0.2
        verdicts = [
            judge_queue(profile, direction(50, queue_delay=delay), saturation, in_kernel=True)
            for delay in (0.118, 0.13, 0.145)
        ]
        assert [verdict.verdict for verdict in verdicts] == ["pass", "pass", "fail"]
        lossless = LinkProfile(rate=2e6, buffer=0.1)
        assert judge_queue(lossless, direction(50, queue_delay=0.118), saturation, in_kernel=True).verdict == "fail"
        assert judge_queue(profile, direction(50, queue_delay=0.118), saturation).verdict == "fail"  # in the switch

    def test_a_queue_in_front_holds_what_the_saturation_puts_into_it(self) -> None:
        """A link 10 % slower than the offer gets 0.11 s of packets a second, less than its buffer of 10 s holds."""
        cell = LinkProfile(rate=7e6, buffer=0.1)
        saturation = plan_probe(cell, PERFECT).forward
        assert saturation is not None
        others = [(0.9 * saturation.offer, 10.0)]
        in_front = (1 / 0.9 - 1) * saturation.seconds
        longest = judge_queue(cell, direction(250, queue_delay=0.1), saturation).high + in_front
        just_below = direction(250, queue_delay=longest - 0.002)
        just_above = direction(250, queue_delay=longest + 0.002)
        assert judge_queue(cell, just_below, saturation, others).verdict == "pass"
        assert judge_queue(cell, just_above, saturation, others).verdict == "fail"

    @pytest.mark.parametrize(
        "profile",
        [
            *PROFILES.values(),
            *(LinkProfile(latency=0.05, jitter=0.01, rate=2e6, distribution=each) for each in DISTRIBUTIONS),
        ],
        ids=[*PROFILES, *DISTRIBUTIONS],
    )
    def test_a_link_as_configured_passes_and_one_with_twice_the_buffer_does_not(self, profile: LinkProfile) -> None:
        """The saturation of the probe, sent through netem.impair."""
        saturation = plan_probe(profile, PERFECT).forward
        assert saturation is not None
        if saturation.transport == "tcp":
            pytest.skip("TCP fills this link, whose queue is not judged")
        assert profile.buffer_limit is not None
        for buffer, verdict in ((profile.buffer_limit, "pass"), (2 * profile.buffer_limit, "fail")):
            longer = profile.merged(buffer_bytes=buffer)
            if verdict == "fail" and (OVERLOAD - 1) * saturation.seconds < 2 * saturation.queue:
                continue  # the saturation is too short to fill it
            for seed in range(20):
                flood = Flood()
                link = Impairment(longer, seed)
                frame = saturation.size + UDP_HEADERS
                spacing = 8 * frame / saturation.offer
                for sent in (number * spacing for number in range(int(saturation.seconds / spacing))):
                    for arrived, _ in link.offer(sent, frame):
                        flood.add(sent, arrived, saturation.size)
                delay = flood.result()["queue_delay"]
                assert judge_queue(profile, direction(250, queue_delay=delay), saturation).verdict == verdict
