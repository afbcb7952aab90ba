from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from netem.errors import MeasureError
from netem.library import PROFILES
from netem.measure import (
    Direction,
    Measurement,
    Outcome,
    Verdict,
    judge,
    judge_bursts,
    judge_duplicates,
    judge_loss,
    judge_order,
    judge_rate,
    judge_rtt,
    plan_probe,
    predict_rtt,
    probe_arguments,
    respond_arguments,
)
from netem.profile import GilbertElliott, LinkProfile
from tests.netem.wiring import ROOT, Lab

PERFECT = LinkProfile()
BURSTY = GilbertElliott(p=0.02, r=0.3)


def direction(sent: int, lost: int = 0, **values: Any) -> Direction:
    return Direction(sent=sent, received=sent - lost, **values)


def measured(rtt: float | None, samples: int = 250) -> Measurement:
    whole = direction(250)
    return Measurement(rtt_median=rtt, rtt_p99=rtt, rtt_samples=samples if rtt else 0, forward=whole, back=whole)


class TestPlan:
    @pytest.mark.parametrize("name", PROFILES)
    @pytest.mark.parametrize("quick", [True, False])
    def test_a_train_takes_at_most_a_tenth_of_the_rate(self, name: str, quick: bool) -> None:
        profile = PROFILES[name]
        plan = plan_probe(profile, PERFECT, quick=quick)
        offered = 8 * (plan.size + 42) / plan.spacing
        assert profile.rate is None or offered <= 0.1 * profile.rate * 1.000001
        assert plan.count >= 10

    def test_quick_is_quick_and_full_sends_two_thousand(self) -> None:
        profile = LinkProfile(latency=0.02, rate=50e6)
        quick, full = plan_probe(profile, profile), plan_probe(profile, profile, quick=False)
        assert quick.count * quick.spacing == pytest.approx(0.5)
        assert full.count >= 2000

    def test_a_small_loss_takes_enough_probes_to_be_told_from_none(self) -> None:
        profile = LinkProfile(loss=0.005)
        plan = plan_probe(profile, PERFECT)
        assert judge_loss(profile, direction(plan.count)).verdict == "fail"
        assert plan.count * plan.spacing <= 2.0

    def test_only_directions_with_a_rate_are_saturated(self) -> None:
        plan = plan_probe(LinkProfile(rate=10e6), PERFECT)
        assert plan.forward is not None
        assert plan.forward.transport == "udp"
        assert plan.forward.offer == pytest.approx(15e6)
        assert plan.back is None

    def test_a_slow_link_is_saturated_with_small_datagrams_for_longer(self) -> None:
        saturation = plan_probe(LinkProfile(rate=5000), PERFECT).forward
        assert saturation is not None
        assert saturation.size == 60
        assert saturation.seconds * 5000 == pytest.approx(20 * 8 * (60 + 42))

    def test_a_fast_link_is_saturated_by_tcp(self) -> None:
        lan = plan_probe(LinkProfile(rate=1e9, latency=0.0001), PERFECT).forward
        assert lan is not None
        assert (lan.transport, lan.fills) == ("tcp", True)
        lossy = plan_probe(LinkProfile(rate=1e9, loss=0.01), PERFECT).forward
        far = plan_probe(LinkProfile(rate=1e9, latency=0.05), PERFECT).forward
        assert lossy is not None
        assert far is not None
        assert (lossy.fills, far.fills) == (False, False)


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

    def test_no_echo_at_all_fails(self) -> None:
        verdict = judge_rtt(PERFECT, PERFECT, plan_probe(PERFECT, PERFECT), measured(None))
        assert (verdict.verdict, verdict.measured) == ("fail", None)

    def test_few_echoes_say_nothing(self) -> None:
        verdict = judge_rtt(PERFECT, PERFECT, plan_probe(PERFECT, PERFECT), measured(0.0001, samples=4))
        assert verdict.verdict == "unknown"


class TestFractions:
    @pytest.mark.parametrize(("lost", "verdict"), [(75, "fail"), (76, "pass"), (126, "pass"), (127, "fail")])
    def test_loss_within_the_binomial_interval(self, lost: int, verdict: Outcome) -> None:
        # The central 99 % for n = 2000 and p = 0.05 are 76..126.
        assert judge_loss(LinkProfile(loss=0.05), direction(2000, lost)) == Verdict(
            "loss", 0.05, lost / 2000, 76 / 2000, 126 / 2000, verdict, f"{lost} of 2000"
        )

    def test_bursts_widen_the_interval_of_the_loss(self) -> None:
        independent = judge_loss(LinkProfile(loss=BURSTY.mean_loss), direction(2000, 125))
        bursty = judge_loss(LinkProfile(loss=BURSTY), direction(2000, 125))
        # By the square root of the design effect, 5.25.
        assert (bursty.high - bursty.low) / (independent.high - independent.low) == pytest.approx(2.29, rel=0.05)

    def test_damaged_probes_are_lost_ones(self) -> None:
        assert judge_loss(LinkProfile(loss=0.1, corrupt=0.1), direction(1000, 190)).asked == pytest.approx(0.19)

    def test_one_loss_fails_a_link_that_should_lose_none(self) -> None:
        assert judge_loss(PERFECT, direction(250, 1)).verdict == "fail"
        assert judge_loss(PERFECT, direction(250)).verdict == "pass"

    def test_too_few_probes_to_tell_from_none(self) -> None:
        assert judge_loss(LinkProfile(loss=0.01), direction(250, 2)).verdict == "unknown"
        assert judge_loss(PERFECT, direction(10)).verdict == "unknown"
        assert judge_loss(LinkProfile(loss=0.01), direction(250, 30)).verdict == "fail"

    def test_an_unheard_responder_leaves_the_loss_unknown(self) -> None:
        assert judge_loss(PERFECT, Direction(sent=250, received=None)).verdict == "unknown"

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


def test_other_output_is_refused() -> None:
    with pytest.raises(MeasureError, match="not the output of a probe"):
        Measurement.from_mapping({"event": "ready"})


def measure(lab: Lab, forward: LinkProfile, back: LinkProfile) -> Measurement:
    """As an orchestrator does it: a responder in the one namespace, a probe in the other."""
    plan = plan_probe(forward, back)
    with subprocess.Popen(
        [*lab.nodes["b"].prefix, sys.executable, *respond_arguments(lab.address("b"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as responder:
        assert responder.stdin is not None
        assert responder.stdout is not None
        ready = json.loads(responder.stdout.readline())
        probe = [*lab.nodes["a"].prefix, sys.executable, *probe_arguments(lab.address("b"), ready, plan)]
        output = subprocess.run(probe, capture_output=True, check=True, cwd=ROOT).stdout
        responder.stdin.close()
        assert responder.wait(10) == 0
    return Measurement.from_mapping(json.loads(output))


@pytest.mark.netns
class TestRealLinks:
    def test_a_link_is_as_asked(self, lab: Lab) -> None:
        forward = LinkProfile(latency=0.02, jitter=0.002, rate=20e6)
        back = LinkProfile(latency=0.01, rate=200e6)
        lab.shape("a", "b", forward.to_mapping(), back.to_mapping())
        for _ in range(6):  # a busy machine may disturb a rate that is measured for 0.2 s
            there, returned = judge(forward, back, plan_probe(forward, back), measure(lab, forward, back))
            if all(verdict.verdict == "pass" for verdict in (*there, *returned)):
                break
        assert {verdict.quantity: verdict.verdict for verdict in there} == dict.fromkeys(
            ("rtt", "loss", "duplicate", "reorder", "rate"), "pass"
        ), there
        assert {verdict.verdict for verdict in returned} == {"pass"}, returned

    def test_a_link_is_not_as_asked(self, lab: Lab) -> None:
        lab.shape("a", "b", {"latency": "10ms", "rate": "20mbit", "loss": "5%"}, {})
        asked = LinkProfile(latency=0.02, rate=10e6, loss=0.3)
        there, returned = judge(asked, PERFECT, plan_probe(asked, PERFECT), measure(lab, asked, PERFECT))
        verdicts = {verdict.quantity: verdict for verdict in there}
        assert [verdicts[quantity].verdict for quantity in ("rtt", "loss", "rate")] == ["fail"] * 3, there
        assert verdicts["rtt"].measured == pytest.approx(0.01, abs=0.003)
        assert all(verdict.verdict == "pass" for verdict in returned), returned

    def test_fates_in_either_direction_are_told_apart(self, lab: Lab) -> None:
        forward = LinkProfile(loss=0.1)
        back = LinkProfile(latency=0.01, duplicate=0.2, reorder=0.05)
        lab.shape("a", "b", forward.to_mapping(), back.to_mapping())
        result = measure(lab, forward, back)
        there, returned = judge(forward, back, plan_probe(forward, back), result)
        assert [verdict.verdict for verdict in (*there[1:], *returned)] == ["pass"] * (len(there) + len(returned) - 1)
        assert result.forward.reordered == 0
        assert result.back.reordered > 0

    def test_a_dead_link(self, lab: Lab) -> None:
        lab.shape("a", "b", {"loss": "100%"}, {})
        result = measure(lab, PERFECT, PERFECT)
        there, returned = judge(PERFECT, PERFECT, plan_probe(PERFECT, PERFECT), result)
        assert there[0].verdict == "fail"
        assert {verdict.verdict for verdict in (*there[1:], *returned)} == {"unknown"}
