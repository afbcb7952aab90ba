"""The bounds of each verdict: what lies on them, and what lies just beside them."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import Literal

import pytest

from netem.measurement.judge import (
    _trains,
    judge_bursts,
    judge_delay,
    judge_direction,
    judge_duplicates,
    judge_loss,
    judge_order,
    judge_queue,
    judge_rate,
    judge_rtt,
    judged,
    predict_delay,
    predict_rtt,
)
from netem.measurement.probe_plan import Saturation, plan_probe
from netem.profile import GilbertElliott, LinkProfile
from tests.netem.measured import BURSTY, PERFECT, direction, measured

RATED = LinkProfile(rate=10e6)
UDP = Saturation(transport="udp", offer=15e6, seconds=0.2, size=1000, window=0, drain=0.1, queue=0.1, fills=True)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(0.999, "fail"), (1.0, "pass"), (2.0, "pass"), (2.0 + 0.5e-9, "pass"), (2.0 + 1.5e-9, "fail"), (None, "unknown")],
)
def test_both_bounds_pass(value: float | None, verdict: str) -> None:
    assert judged("rate", 1.5, value, 1.0, 2.0, "").verdict == verdict


class TestDirection:
    @pytest.mark.parametrize(
        ("profile", "quantities"),
        [
            (PERFECT, ["delay", "loss", "duplicate", "reorder"]),
            (LinkProfile(latency=0.01, reorder=0.1), ["delay", "loss", "duplicate"]),
            (LinkProfile(loss=BURSTY), ["delay", "loss", "duplicate", "burst", "reorder"]),
        ],
    )
    def test_what_is_judged_of_a_train(self, profile: LinkProfile, quantities: list[str]) -> None:
        verdicts = judge_direction(profile, plan_probe(profile, PERFECT), direction(250), None)
        assert [verdict.quantity for verdict in verdicts] == quantities

    @pytest.mark.parametrize(("transport", "more"), [("udp", ["rate", "queue"]), ("tcp", ["rate"])])
    def test_what_is_judged_of_a_saturation(self, transport: Literal["udp", "tcp"], more: list[str]) -> None:
        saturation = replace(UDP, transport=transport)
        verdicts = judge_direction(RATED, plan_probe(RATED, PERFECT), direction(250), saturation)
        assert [verdict.quantity for verdict in verdicts][4:] == more

    def test_the_time_of_a_longer_train_stands_with_the_fractions_that_need_it(self) -> None:
        profile = LinkProfile(loss=0.001)
        plan = replace(plan_probe(profile, PERFECT), spacing=0.002, needed=6000)
        details = {}
        for verdict in judge_direction(profile, plan, direction(250, 1), None):
            details[verdict.quantity] = verdict.detail
        assert details["loss"].endswith("; 6,000 probes would take 12 s")
        assert "would take" not in details["duplicate"] + details["reorder"] + details["delay"]

    def test_no_time_without_a_longer_train_and_without_an_answer(self) -> None:
        profile = LinkProfile(loss=0.001)
        plan = plan_probe(profile, PERFECT)
        unheard = replace(direction(250), received=None)
        for plan_of_train, result in ((replace(plan, needed=0), direction(250, 1)), (replace(plan, needed=9), unheard)):
            for verdict in judge_direction(profile, plan_of_train, result, None):
                assert "would take" not in verdict.detail


class TestRoundTrip:
    def test_the_interval_has_four_standard_deviations_of_the_median_on_each_side(self) -> None:
        there = LinkProfile(latency=0.3, jitter=0.02)
        back = LinkProfile(latency=0.1)
        plan = plan_probe(there, back)
        predicted, deviation = predict_rtt(there, back, plan)
        trip = judge_rtt(there, back, plan, measured(0.4))
        assert trip.asked == pytest.approx(0.4)
        assert trip.high == pytest.approx(predicted + 0.02 * 0.4 + 4 * deviation)
        assert trip.low == pytest.approx(predicted - 0.02 * 0.4 - 4 * deviation)
        predicted, deviation = predict_delay(there, plan)
        delay = judge_delay(there, plan, direction(250, delay=0.3))
        assert delay.high == pytest.approx(predicted + 0.02 * 0.3 + 4 * deviation)
        assert delay.low == pytest.approx(predicted - 0.02 * 0.3 - 4 * deviation)

    def test_no_bound_is_below_nothing(self) -> None:
        plan = plan_probe(PERFECT, PERFECT)
        assert judge_rtt(PERFECT, PERFECT, plan, measured(0.0005)).low == 0.0
        assert judge_delay(PERFECT, plan, direction(250, delay=0.0005)).low == 0.0

    @pytest.mark.parametrize(("count", "verdict"), [(24, "fail"), (23, "unknown")])
    def test_six_echoes_that_were_to_come_show_that_none_does(self, count: int, verdict: str) -> None:
        """Each way loses half, so a quarter of the probes come back: 6 of 24."""
        half = LinkProfile(loss=0.5)
        plan = replace(plan_probe(half, half), count=count)
        assert judge_rtt(half, half, plan, measured(None)).verdict == verdict

    @pytest.mark.parametrize(("samples", "verdict"), [(5, "pass"), (4, "unknown")])
    def test_five_samples_suffice(self, samples: int, verdict: str) -> None:
        plan = plan_probe(PERFECT, PERFECT)
        trip = judge_rtt(PERFECT, PERFECT, plan, measured(0.0001, samples))
        delay = judge_delay(PERFECT, plan, direction(samples, delay=0.0001))
        assert (trip.verdict, delay.verdict) == (verdict, verdict)
        few = verdict == "unknown"
        assert ("too few" in trip.detail, "too few" in delay.detail) == (few, few)

    def test_the_detail_has_the_slowest_echoes(self) -> None:
        plan = plan_probe(PERFECT, PERFECT)
        result = replace(measured(0.0001), rtt_p99=0.0125)
        assert judge_rtt(PERFECT, PERFECT, plan, result).detail == "median of 250, 99th percentile 12.5 ms"

    def test_reordering_alone_makes_trains_random(self) -> None:
        """Of 10 probes, each of which overtakes by 50 ms with a chance of one half, the median differs by the seed."""
        reordered = LinkProfile(latency=0.05, reorder=0.5)
        plan = replace(plan_probe(reordered, PERFECT), count=10, spacing=0.1)
        assert predict_rtt(reordered, PERFECT, plan)[1] > 0.005
        assert predict_rtt(PERFECT, reordered, plan)[1] > 0.005

    def test_predictions_follow_from_sixteen_trains_of_500_probes_at_most(self) -> None:
        """Two of a link without randomness; a duplicated probe counts once."""
        jittery = LinkProfile(latency=0.1, jitter=0.01, loss=0.5, corrupt=0.5, duplicate=0.5)
        plan = replace(plan_probe(PERFECT, PERFECT), count=501)
        for there, back, number in ((jittery, PERFECT, 16), (PERFECT, jittery, 16), (PERFECT, PERFECT, 2)):
            assert [len(train) for train in _trains(there, back, plan)] == [500] * number

    def test_losses_do_not_move_the_prediction(self) -> None:
        lossy = LinkProfile(latency=0.05, jitter=0.01, loss=0.5, corrupt=0.2, duplicate=0.3)
        clean = LinkProfile(latency=0.05, jitter=0.01)
        plan = plan_probe(clean, clean)
        assert predict_rtt(lossy, lossy, plan) == predict_rtt(clean, clean, plan)


class TestFractions:
    def test_nothing_received_says_nothing(self) -> None:
        """No probe came, so none of them was doubled or late, and nothing follows from that."""
        unheard = replace(direction(250), received=None)
        assert judge_duplicates(PERFECT, unheard).verdict == "unknown"
        assert judge_order(unheard).verdict == "unknown"

    @pytest.mark.parametrize(("sent", "verdict"), [(50, "pass"), (49, "unknown")])
    def test_fifty_probes_show_that_none_is_lost(self, sent: int, verdict: str) -> None:
        assert judge_loss(PERFECT, direction(sent)).verdict == verdict


class TestBursts:
    @pytest.mark.parametrize(("bursts", "verdict"), [(20, "pass"), (19, "unknown")])
    def test_twenty_bursts_suffice(self, bursts: int, verdict: str) -> None:
        result = judge_bursts(BURSTY, direction(4000, 3 * bursts, bursts=bursts))
        assert result.verdict == verdict
        assert ("too few" in result.detail) == (verdict == "unknown")

    def test_losses_in_the_good_state_hide_bursts(self) -> None:
        chain = replace(BURSTY, loss_good=0.01)
        assert judge_bursts(chain, direction(4000, 213, bursts=64)).verdict == "unknown"

    def test_no_burst_is_shorter_than_a_packet(self) -> None:
        """Bursts of 1 / 0.9 packets: 2.576 standard errors below the mean of 20 would be 0.91 packets."""
        short = GilbertElliott(p=0.02, r=0.9)
        assert judge_bursts(short, direction(4000, 22, bursts=20)).low == 1.0

    @pytest.mark.parametrize("result", [direction(500), replace(direction(500, bursts=3), received=None)])
    def test_without_a_loss_there_is_no_length(self, result: object) -> None:
        verdict = judge_bursts(BURSTY, result)  # type: ignore[arg-type]
        assert (verdict.measured, verdict.low, verdict.high) == (None, 0.0, math.inf)


class TestRate:
    @pytest.mark.parametrize(("queue", "verdict"), [(0.05, "fail"), (0.0499, "unknown"), (None, "unknown")])
    def test_half_of_the_queue_shows_that_a_link_was_full(self, queue: float | None, verdict: str) -> None:
        assert judge_rate(RATED, direction(250, rate=5e6, queue_delay=queue), UDP).verdict == verdict

    def test_a_stream_that_does_not_fill_the_link_says_nothing(self) -> None:
        saturation = replace(UDP, transport="tcp", fills=False, queue=0.0)
        assert judge_rate(RATED, direction(250, rate=5e6, queue_delay=1.0), saturation).verdict == "unknown"

    @pytest.mark.parametrize(("jitter", "verdict"), [(0.002, "pass"), (0.0021, "unknown")])
    def test_a_hundred_times_the_jitter_is_long_enough(self, jitter: float, verdict: str) -> None:
        profile = replace(RATED, latency=0.01, jitter=jitter)
        assert judge_rate(profile, direction(250, rate=10e6, queue_delay=0.1), UDP).verdict == verdict

    def test_a_stream_of_tcp_repeats_what_is_damaged(self) -> None:
        profile = replace(RATED, corrupt=0.1)
        saturation = replace(UDP, transport="tcp", queue=0.0)
        assert judge_rate(profile, direction(250, rate=9e6), saturation).measured == 9e6


class TestQueue:
    @pytest.mark.parametrize(("queue", "margin"), [(0.02, 0.005), (0.1, 0.01)])
    def test_the_margin_is_five_milliseconds_or_a_tenth(self, queue: float, margin: float) -> None:
        result = judge_queue(RATED, direction(250, queue_delay=queue), replace(UDP, queue=queue))
        assert result.low == pytest.approx(queue - margin)
        assert result.high == pytest.approx(queue + margin)

    def test_no_bound_is_below_nothing(self) -> None:
        assert judge_queue(RATED, direction(250, queue_delay=0.001), replace(UDP, queue=0.001)).low == 0.0

    def test_the_lower_bound_passes_and_less_says_nothing(self) -> None:
        result = judge_queue(RATED, direction(250, queue_delay=0.0), UDP)
        for delay, verdict in ((result.low, "pass"), (0.99 * result.low, "unknown")):
            assert judge_queue(RATED, direction(250, queue_delay=delay), UDP).verdict == verdict

    @pytest.mark.parametrize("seconds", [0.2, 20.0])
    def test_jitter_widens_the_interval_by_the_range_of_so_many_datagrams(self, seconds: float) -> None:
        """A saturation of 15 Mbit/s for 0.2 s has 15e6 * 0.2 / (8 * 1042) = 360 datagrams of 1,042 bytes with their
        headers. The range of two of them is exceeded once in 500 times, on each side once in 1,000 * 360."""
        profile = replace(RATED, latency=0.2, jitter=0.01, distribution="normal")
        saturation = replace(UDP, seconds=seconds)
        datagrams = 15e6 * seconds / (8 * 1042)
        tail = NormalDist().inv_cdf(1 - 0.001 / datagrams)
        result = judge_queue(profile, direction(250, queue_delay=0.1), saturation)
        assert result.low == pytest.approx(0.1 - 0.01 - 0.01)
        assert result.high == pytest.approx(0.1 + 0.01 + 2 * tail * 0.01)

    def test_less_than_one_datagram_counts_as_one(self) -> None:
        profile = replace(RATED, latency=0.2, jitter=0.01, distribution="normal")
        shortest = replace(UDP, seconds=1e-6)
        tail = NormalDist().inv_cdf(1 - 0.001)
        result = judge_queue(profile, direction(250, queue_delay=0.1), shortest)
        assert result.high == pytest.approx(0.1 + 0.01 + 2 * tail * 0.01)

    def test_in_the_kernel_the_datagrams_that_chance_spares_wait_as_well(self) -> None:
        """Of 360 datagrams, a loss of 10 % loses at least 22 in 99.5 % of the cases (binomial). So at most 14 more
        than expected cross, 14 / 360 / 0.9 of those that the link should not lose: for 0.1 s of the buffer and 0.2 s
        of the saturation, 13 ms."""
        profile = replace(RATED, loss=0.1)
        plain = judge_queue(profile, direction(250, queue_delay=0.1), UDP)
        kernel = judge_queue(profile, direction(250, queue_delay=0.1), UDP, in_kernel=True)
        assert kernel.high - plain.high == pytest.approx(0.3 * (14 / 360) / 0.9, rel=0.05)

    def test_no_more_than_half_is_made_up_for_in_the_kernel(self) -> None:
        """Of 360 datagrams, a loss of 80 % loses at least 268 in 99.5 % of the cases, 20 fewer than expected. The offer
        is twice the overload, so 20 / 360 / 0.5 of what is to cross comes in addition."""
        profile = replace(RATED, loss=0.8)
        plain = judge_queue(profile, direction(250, queue_delay=0.1), UDP)
        kernel = judge_queue(profile, direction(250, queue_delay=0.1), UDP, in_kernel=True)
        assert kernel.high - plain.high == pytest.approx(0.3 * (20 / 360) / 0.5, rel=0.05)


def test_without_an_answer_any_share_is_possible() -> None:
    """Nothing was measured, so nothing is excluded."""
    judgement = judge_loss(LinkProfile(loss=0.05), replace(direction(250), received=None))
    assert (judgement.verdict, judgement.low, judgement.high) == ("unknown", 0.0, 1.0)
