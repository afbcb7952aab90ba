from __future__ import annotations

import os
from dataclasses import asdict, replace
from statistics import median
from threading import Thread

import pytest

from netem.errors import MeasureError
from netem.impair import Impairment
from netem.library import PROFILES
from netem.measurement.endpoints import Probe, Responder
from netem.measurement.judge import judge_direction, judge_loss, judge_rate
from netem.measurement.probe_plan import Measurement, OneWay, ProbePlan, Saturation, plan_probe
from netem.measurement.tally import UDP_HEADERS, arrival_rate, train_counts
from netem.profile import GilbertElliott, LinkProfile
from tests.netem.measured import BURSTY, PERFECT, assert_as_asked, direction, judge, measure
from tests.netem.wiring import Lab
from tests.texts import containing


class TestPlan:
    @pytest.mark.parametrize("name", PROFILES)
    @pytest.mark.parametrize("quick", [True, False])
    def test_a_train_takes_a_small_part_of_the_rate(self, name: str, quick: bool) -> None:
        """A tenth; two fifths of a rate that would need too long."""
        profile = PROFILES[name]
        plan = plan_probe(profile, PERFECT, quick=quick)
        offered = 8 * (plan.size + 42) / plan.spacing
        assert profile.rate is None or offered <= (0.4 if profile.rate < 10_000 else 0.1) * profile.rate * 1.000001
        assert plan.count >= 50

    def test_quick_is_quick_and_full_sends_two_thousand(self) -> None:
        profile = LinkProfile(latency=0.02, rate=50e6)
        quick, full = plan_probe(profile, profile), plan_probe(profile, profile, quick=False)
        assert (quick.count, quick.spacing) == (250, 0.001)
        assert full.count >= 2000

    def test_probes_of_jitter_are_as_many_and_further_apart(self) -> None:
        """Probes that are closer together than the jitter wait for one another."""
        jittery, steady = (plan_probe(LinkProfile(latency=0.02, jitter=jitter), PERFECT) for jitter in (0.005, 0.0))
        assert jittery.count == steady.count == 250
        assert jittery.spacing == 2 * steady.spacing

    def test_a_slow_link_gets_what_a_tenth_of_it_carries_in_half_a_second(self) -> None:
        plan = plan_probe(LinkProfile(rate=1e6), PERFECT)
        assert plan.count == round(0.5 * 0.1 * 1e6 / (8 * (40 + 42)))

    def test_a_small_loss_takes_enough_probes_to_be_distinguished_from_none(self) -> None:
        profile = LinkProfile(loss=0.005)
        plan = plan_probe(profile, PERFECT)
        assert judge_loss(profile, direction(plan.count)).verdict == "fail"
        assert plan.count * plan.spacing <= 2.0

    @pytest.mark.parametrize(
        ("profile", "seconds"),
        [
            (PROFILES["lora-gateway"], 25.0),
            (LinkProfile(latency=0.5, rate=5470.0, loss=0.06), 60.0),
            (LinkProfile(latency=0.8, jitter=0.2, rate=26_000.0, loss=0.01), 60.0),
            (LinkProfile(latency=1.6, rate=26_000.0, loss=0.01), 60.0),
            (LinkProfile(rate=2000.0), 60.0),
        ],
        ids=["lora-gateway", "lossy LoRa", "NB-IoT", "steady NB-IoT", "2 kbit/s"],
    )
    @pytest.mark.parametrize("quick", [True, False])
    def test_a_slow_link_gets_enough_probes_for_every_fraction(
        self, profile: LinkProfile, seconds: float, quick: bool
    ) -> None:
        """A train of the link as configured, sent through netem.impair: no verdict on a fraction is unknown."""
        plan = plan_probe(profile, profile, quick=quick)
        assert plan.needed == 0
        assert plan.count * plan.spacing <= seconds
        there, back = (seen(profile, plan, number) for number in range(2))
        for way in (there, back):
            for found in judge_direction(profile, plan, way, None):
                assert (found.quantity, found.verdict) == (found.quantity, "pass"), found

    def test_echoes_cross_a_half_duplex_channel_between_the_probes(self) -> None:
        for latency in (0.0, 0.02, 0.2, 0.5, 0.63, 1.0, 2.0):
            profile = LinkProfile(latency=latency, rate=5470.0)
            plan = plan_probe(profile, profile)
            frame = 8 * (plan.size + UDP_HEADERS) / 5470
            echo = (frame + latency) % plan.spacing
            assert frame <= echo <= plan.spacing - frame

    def test_what_needs_too_long_says_how_long(self) -> None:
        """1 % takes 600 probes to be seen, and a few more because of those that are lost on the other way."""
        profile = LinkProfile(latency=0.5, rate=5470.0, loss=0.01)
        plan = plan_probe(profile, profile)
        assert (plan.count, plan.needed) == (145, 613)
        way = replace(direction(plan.count), delay=0.62)
        unknown = [each for each in judge_direction(profile, plan, way, None) if each.verdict == "unknown"]
        assert [each.quantity for each in unknown] == ["loss"]
        assert unknown[0].detail == containing("0 of 145: too", "613 probes", "253 s")
        patient = plan_probe(profile, profile, longest=300.0)
        assert (patient.count, patient.needed) == (613, 0)

    def test_a_rate_with_much_jitter_is_measured_for_as_long_as_allowed(self) -> None:
        profile = LinkProfile(latency=1.0, jitter=0.5, rate=26_000.0)
        short, long = (plan_probe(profile, profile, longest=most).forward for most in (None, 60.0))
        assert short is not None
        assert long is not None
        assert (short.seconds, long.seconds) == (20.0, 50.0)
        detail = judge_rate(profile, direction(250, rate=26_000.0, queue_delay=2.0), short).detail
        assert detail == containing("udp for 20 s", "50 s")

    def test_a_measurement_knows_about_how_long_it_takes(self) -> None:
        assert plan_probe(PERFECT, PERFECT).seconds == pytest.approx(0.25 + 2 * 0.05)
        lora = PROFILES["lora-gateway"]
        # 50 probes 0.413 s apart; two waits of 1.755 s; each direction 2.98 s of datagrams and 1.49 s of their queue.
        assert plan_probe(lora, lora).seconds == pytest.approx(50 * 0.4133 + 2 * 1.755 + 2 * (2.984 + 1.492), abs=0.01)

    def test_answers_are_not_asked_for_again_while_they_are_on_their_way(self) -> None:
        """A second answer would cross a half-duplex channel together with the datagrams that fill it."""
        lora = PROFILES["lora-gateway"]
        plan = plan_probe(lora, lora)
        question, answer = (8 * size / 5470 for size in (29 + UDP_HEADERS, 368))
        assert question + 0.5 + answer + 0.5 < plan.wait

    def test_bursts_get_enough_probes_to_be_judged(self) -> None:
        chain = GilbertElliott(p=0.01, r=0.3)
        plan = plan_probe(LinkProfile(loss=chain), PERFECT)
        assert plan.count * 0.3 / 0.31 * 0.01 > 20
        assert plan.count * plan.spacing <= 2.0

    def test_only_directions_with_a_rate_are_saturated(self) -> None:
        plan = plan_probe(LinkProfile(rate=10e6), PERFECT)
        assert plan.forward is not None
        assert plan.forward.transport == "udp"
        assert plan.forward.offer == pytest.approx(15e6)
        assert plan.back is None

    def test_a_real_direction_is_given_time_and_as_much_as_tcp_gets(self) -> None:
        """Neither its delay nor its rate is known."""
        plan = plan_probe(LinkProfile(real=True), LinkProfile(latency=0.01, rate=50e6))
        assert plan.wait > 1.0
        assert plan.forward is not None
        assert (plan.forward.transport, plan.forward.seconds, plan.forward.fills) == ("tcp", 1.0, False)
        assert plan.back is not None
        assert plan.back.transport == "udp"

    def test_no_datagram_is_larger_than_the_nodes_packets(self) -> None:
        for mtu in (1500, 1450):
            saturation = plan_probe(LinkProfile(rate=10e6), PERFECT, mtu=mtu).forward
            assert saturation is not None
            assert saturation.size == mtu - 28  # less the headers of IP and UDP

    def test_no_packet_is_dropped_for_its_size(self) -> None:
        narrow = plan_probe(LinkProfile(rate=10e6, drop_above=1200), PERFECT).forward
        fast = plan_probe(LinkProfile(rate=1e9, drop_above=1200), PERFECT).forward
        assert narrow is not None
        assert fast is not None
        assert (narrow.transport, narrow.size) == ("udp", 1200 - 28)  # less the headers of IP and UDP
        assert (fast.transport, fast.size) == ("tcp", 1200 - 40)  # less those of IP and TCP

    def test_a_slow_link_is_saturated_with_small_datagrams_for_longer(self) -> None:
        saturation = plan_probe(LinkProfile(rate=5000), PERFECT).forward
        assert saturation is not None
        assert saturation.size == 60
        assert saturation.seconds * 5000 == pytest.approx(20 * 8 * (60 + 42))

    @pytest.mark.parametrize("distribution", ["normal", "pareto"])
    def test_the_rate_of_a_jittery_link_is_measured_for_long_enough(self, distribution: str) -> None:
        """The saturation of a link as asked, sent through netem.impair: its rate is within the 3 % of judge_rate."""
        profile = LinkProfile(latency=0.15, jitter=0.02, distribution=distribution, rate=4e6)
        saturation = plan_probe(profile, PERFECT).forward
        assert saturation is not None
        frame = saturation.size + UDP_HEADERS
        spacing = 8 * frame / saturation.offer
        for seed in range(10):
            link = Impairment(profile, seed)
            sent = [number * spacing for number in range(int(saturation.seconds / spacing))]
            arrivals = [at for moment in sent for at, _ in link.offer(moment, frame)]
            rate = arrival_rate(arrivals, 8 * frame)
            assert judge_rate(profile, direction(250, rate=rate, queue_delay=1.0), saturation).verdict == "pass"

    def test_a_fast_link_is_saturated_by_tcp(self) -> None:
        lan = plan_probe(LinkProfile(rate=1e9, latency=0.0001), PERFECT).forward
        assert lan is not None
        assert (lan.transport, lan.fills) == ("tcp", True)
        lossy = plan_probe(LinkProfile(rate=1e9, loss=0.01), PERFECT).forward
        far = plan_probe(LinkProfile(rate=1e9, latency=0.05), PERFECT).forward
        assert lossy is not None
        assert far is not None
        assert (lossy.fills, far.fills) == (False, False)

    @pytest.mark.parametrize(
        ("forward", "quick", "longest", "count", "spacing", "needed"),
        [
            (PERFECT, True, None, 250, 0.001, 0),
            (PERFECT, False, None, 2000, 0.001, 0),
            (LinkProfile(jitter=0.001), False, None, 2000, 0.002, 0),
            (LinkProfile(rate=1e6), False, None, 610, 0.00656, 0),  # what a tenth of it carries in 4 s
            # 6 / loss probes are to arrive. They are 0.5 ms apart at least, for at most 2 s, 20 s or as long as said.
            (LinkProfile(loss=0.002), True, None, 3007, 0.0005, 0),
            (LinkProfile(loss=0.001), True, None, 4000, 0.0005, 6007),
            (LinkProfile(loss=0.001), False, None, 6007, 4 / 6007, 0),
            (LinkProfile(loss=0.0001), False, None, 40_000, 0.0005, 60_007),
            (LinkProfile(loss=0.0001), False, 10.0, 20_000, 0.0005, 60_007),
            (LinkProfile(loss=0.0001), False, 1.0, 8000, 0.0005, 60_007),  # never shorter than without a loss
            (LinkProfile(duplicate=0.01), True, None, 600, 0.5 / 600, 0),
            (LinkProfile(loss=0.1, corrupt=0.2), True, None, 250, 0.001, 0),
            # A tenth of 164 kbit/s carries 50 probes in 2 s. Of a lower rate two fifths are used.
            (LinkProfile(rate=164e3), True, None, 50, 0.04, 0),
            (LinkProfile(rate=163e3), True, None, 50, 656 / (0.4 * 163e3), 0),
        ],
    )
    def test_trains(
        self, forward: LinkProfile, quick: bool, longest: float | None, count: int, spacing: float, needed: int
    ) -> None:
        plan = plan_probe(forward, PERFECT, quick=quick, longest=longest)
        assert (plan.count, plan.needed) == (count, needed)
        assert plan.spacing == pytest.approx(spacing)

    @pytest.mark.parametrize(
        ("forward", "back", "needed"),
        [
            # 50 that arrive of those that neither way loses, and three standard deviations: 50 + 3 sqrt(50 x 0.75).
            (LinkProfile(loss=0.5), LinkProfile(loss=0.5), 274),
            (LinkProfile(loss=0.9), LinkProfile(loss=0.5), 274),  # half is the most that is made up for
            # 0.1 + 0.2 - 0.02 = 0.28: 50 + 3 sqrt(50 x 0.28) = 61.2 of 0.72.
            (LinkProfile(loss=0.1, corrupt=0.2), PERFECT, 86),
            # 1.5 x 20 bursts, one in 53.3 probes; 6 losses of 6.25 % with a design effect of 5.25 are fewer.
            (LinkProfile(loss=BURSTY), PERFECT, 1707),
            (LinkProfile(loss=GilbertElliott(p=0.0, r=0.3, loss_good=0.1)), PERFECT, 67),
            (LinkProfile(loss=GilbertElliott(p=0.0, r=0.3, loss_good=0.05)), PERFECT, 127),
        ],
    )
    def test_what_suffices_to_judge_every_fraction(self, forward: LinkProfile, back: LinkProfile, needed: int) -> None:
        plan = plan_probe(replace(forward, rate=100.0), back, longest=1.0)
        assert (plan.count, plan.needed) == (10, needed)
        assert plan_probe(back, replace(forward, rate=100.0), longest=1.0).needed == needed

    @pytest.mark.parametrize(
        ("rate", "latency", "spacing"),
        [
            # Two fifths of 5,470 bit/s are a probe each 0.2998 s, and one takes 0.1199 s. An echo after 0.6199 s starts
            # in the middle if the probes are 1 / 1.5 of that apart.
            (5470.0, 0.5, 0.6199 / 1.5),
            (5470.0, 0.0299, 0.2998),  # a quarter of the time of a probe: an echo starts within the next half
            (5470.0, 0.0301, 0.15003 / 0.5),
        ],
    )
    def test_the_spacing_on_a_slow_link(self, rate: float, latency: float, spacing: float) -> None:
        steady = LinkProfile(rate=rate, latency=latency)
        assert plan_probe(steady, PERFECT).spacing == pytest.approx(spacing, rel=1e-3)
        for disorder in ({"jitter": 0.001}, {"reorder": 0.1}):
            profile = replace(steady, **disorder)  # type: ignore[arg-type]
            assert plan_probe(profile, PERFECT).spacing == pytest.approx(0.2998, rel=1e-3)
            assert plan_probe(PERFECT, profile).spacing == pytest.approx(0.2998, rel=1e-3)

    @pytest.mark.parametrize(
        ("forward", "back", "wait"),
        [
            (PERFECT, PERFECT, 0.05),
            (LinkProfile(latency=0.1, jitter=0.01), LinkProfile(latency=0.02, jitter=0.03), 0.05 + 0.12 + 5 * 0.04),
            # A probe of 656 bits and an answer of 400 bytes, at the lower rate.
            (LinkProfile(rate=1e5), LinkProfile(rate=1e6), 0.05 + (656 + 3200) / 1e5),
            (LinkProfile(real=True), PERFECT, 1.05),
            (PERFECT, LinkProfile(real=True), 1.05),
        ],
    )
    def test_the_wait_for_the_last_echo(self, forward: LinkProfile, back: LinkProfile, wait: float) -> None:
        assert plan_probe(forward, back).wait == pytest.approx(wait)

    @pytest.mark.parametrize(
        ("profile", "quick", "offer", "seconds", "size", "queue"),
        [
            (LinkProfile(rate=10e6), True, 15e6, 0.2, 1472, 0.1),
            (LinkProfile(rate=10e6), False, 15e6, 2.0, 1472, 0.1),
            (LinkProfile(rate=10e6, buffer=0.05), True, 15e6, 0.2, 1472, 0.05),
            (LinkProfile(rate=10e6, buffer=5.0), True, 15e6, 0.2, 1472, 0.1),  # half of 0.2 s is above the rate
            (LinkProfile(rate=10e6, loss=0.2), True, 15e6 / 0.8, 0.2, 1472, 0.1),
            (LinkProfile(rate=10e6, loss=0.6), True, 30e6, 0.2, 1472, 0.1),
            (LinkProfile(rate=200e3, buffer=0.05), True, 300e3, 0.2, 208, 0.05),  # 20 of 250 bytes take 0.2 s
            (LinkProfile(rate=5000.0, buffer=1.0), True, 7500.0, 3.264, 60, 1.0),
            (LinkProfile(rate=100e6), True, 150e6, 0.2, 1472, 0.1),
            (LinkProfile(rate=10e6, jitter=0.01), True, 15e6, 1.0, 1472, 0.1),
        ],
    )
    def test_saturations_by_datagrams(
        self, profile: LinkProfile, quick: bool, offer: float, seconds: float, size: int, queue: float
    ) -> None:
        saturation = plan_probe(profile, PERFECT, quick=quick).forward
        assert saturation is not None
        assert (saturation.transport, saturation.size, saturation.window) == ("udp", size, 0)
        figures = (saturation.offer, saturation.seconds, saturation.queue, saturation.drain)
        assert figures == pytest.approx((offer, seconds, queue, queue))
        assert saturation.fills
        assert plan_probe(PERFECT, profile, quick=quick).back == saturation

    @pytest.mark.parametrize(
        ("profile", "quick", "seconds", "window", "fills"),
        [
            # In flight 1 Gbit/s x 2 ms, 250 kB; and 0.7 of the buffer, 100 ms or 12.5 MB.
            (LinkProfile(rate=1e9, latency=0.002), True, 1.0, 9_000_000, True),
            (LinkProfile(rate=1e9, latency=0.002), False, 6.0, 9_000_000, True),
            (LinkProfile(rate=1e9, latency=0.01599, buffer=0.1), True, 1.0, 10_748_750, True),
            (LinkProfile(rate=1e9, latency=0.016, buffer=0.1), True, 1.0, 10_750_000, False),  # 2 MB in flight
            (LinkProfile(rate=1e9, latency=0.1, buffer=0.1), True, 3.0, 21_250_000, False),  # 30 times the latency
            (LinkProfile(rate=1e9, jitter=0.02), True, 2.0, 8_750_000, True),
            (LinkProfile(rate=1e9, loss=0.01), True, 1.0, 8_750_000, False),
            (LinkProfile(rate=100.1e6, buffer_bytes=1_000_000), True, 1.0, 700_000, True),
        ],
    )
    def test_saturations_by_tcp(
        self, profile: LinkProfile, quick: bool, seconds: float, window: int, fills: bool
    ) -> None:
        saturation = plan_probe(profile, PERFECT, quick=quick).forward
        assert saturation is not None
        assert (saturation.transport, saturation.size, saturation.fills) == ("tcp", 0, fills)
        assert (saturation.offer, saturation.seconds, saturation.window) == pytest.approx(
            (profile.rate, seconds, window), rel=1e-7
        )
        assert (saturation.drain, saturation.queue) == (0.0, 0.0)

    def test_saturations_of_a_real_link(self) -> None:
        for quick, seconds in ((True, 1.0), (False, 6.0)):
            saturation = plan_probe(LinkProfile(real=True), PERFECT, quick=quick).forward
            assert saturation == Saturation("tcp", 0.0, seconds, 0, 2_000_000, 0.0, 0.0, fills=False)


def seen(profile: LinkProfile, plan: ProbePlan, seed: int) -> OneWay:
    """One direction of a train through a link that is as configured."""
    link, frame = Impairment(profile, seed), plan.size + UDP_HEADERS
    arrived = []
    for number in range(plan.count):
        at = number * plan.spacing
        arrived += [(arrival, number, at) for arrival, _ in link.offer(at, frame)]
    arrived.sort()
    counts = train_counts([number for _, number, _ in arrived], plan.count)
    return OneWay(**counts, delay=median(arrival - at for arrival, _, at in arrived))


def test_a_window_beyond_tcps_is_the_largest_one() -> None:
    """40 Gbit/s and 600 ms there and back are 3 GB in flight, and the buffer holds as much."""
    profile = LinkProfile(latency=0.3, rate=40e9)
    plan = plan_probe(profile, profile)
    assert plan.forward is not None
    assert plan.forward.window > 1 << 32
    short = replace(plan.forward, seconds=0.1)
    plan = replace(plan, count=1, wait=0.1, forward=short, back=short)
    responder = Responder("127.0.0.1")
    reading, writing = os.pipe()
    serving = Thread(target=responder.serve, args=(reading,))
    serving.start()
    probe = Probe("127.0.0.1", responder.port, responder.token, asdict(plan))
    try:
        found = Measurement.from_mapping(probe.run())
    finally:
        probe.close()
        os.close(writing)
        serving.join()
        os.close(reading)
        responder.close()
    assert found.forward.rate is not None
    assert found.back.rate is not None


def test_what_a_probe_leaves_out_was_not_measured() -> None:
    mapping = {"rtt_median": 0.1, "rtt_p99": 0.2, "rtt_samples": 5}
    way = {"sent": 6, "received": 5}
    found = Measurement.from_mapping({**mapping, "forward": way, "back": way | {"rate": 1e6}})
    counts = dict.fromkeys(("bursts", "duplicated", "reordered", "bytes"), 0)
    figures = dict.fromkeys(("delay", "rate", "queue_delay", "loaded", "first", "last"))
    assert asdict(found) == {
        **mapping,
        "late": 0.0,
        "forward": way | counts | figures,
        "back": way | counts | figures | {"rate": 1e6},
    }


def test_other_output_is_refused() -> None:
    with pytest.raises(MeasureError, match="not the output of a probe"):
        Measurement.from_mapping({"event": "ready"})


@pytest.mark.netns
class TestRealLinks:
    @pytest.mark.parametrize(
        ("forward", "back"),
        [
            (LinkProfile(latency=0.02, jitter=0.002, rate=20e6), LinkProfile(latency=0.01, rate=200e6)),
            (LinkProfile(latency=0.15, jitter=0.02, rate=4e6), LinkProfile(latency=0.01, rate=20e6)),
        ],
    )
    def test_a_link_is_as_asked(self, lab: Lab, forward: LinkProfile, back: LinkProfile) -> None:
        lab.shape("a", "b", forward.to_mapping(), back.to_mapping())
        assert_as_asked(lab, "a", "b", forward, back, plan_probe(forward, back))

    def test_a_link_is_not_as_asked(self, lab: Lab) -> None:
        lab.shape("a", "b", {"latency": "10ms", "rate": "20mbit", "loss": "5%"}, {})
        asked = LinkProfile(latency=0.02, rate=10e6, loss=0.3)
        plan = plan_probe(asked, PERFECT)
        there, returned = judge(asked, PERFECT, plan, measure(lab, "a", "b", plan))
        verdicts = {verdict.quantity: verdict for verdict in there}
        assert [verdicts[quantity].verdict for quantity in ("rtt", "loss", "rate")] == ["fail"] * 3, there
        assert verdicts["rtt"].measured == pytest.approx(0.01, abs=0.003)
        assert all(verdict.verdict == "pass" for verdict in returned), returned

    def test_fates_in_either_direction_are_distinguished(self, lab: Lab) -> None:
        forward = LinkProfile(loss=0.1)
        back = LinkProfile(latency=0.01, duplicate=0.2, reorder=0.05)
        lab.shape("a", "b", forward.to_mapping(), back.to_mapping())
        plan = plan_probe(forward, back)
        result = measure(lab, "a", "b", plan)
        there, returned = judge(forward, back, plan, result)
        assert [verdict.verdict for verdict in (*there[1:], *returned)] == ["pass"] * (len(there) + len(returned) - 1)
        assert result.forward.reordered == 0
        assert result.back.reordered > 0

    def test_a_dead_link(self, lab: Lab) -> None:
        lab.shape("a", "b", {"loss": "100%"}, {})
        result = measure(lab, "a", "b", plan_probe(PERFECT, PERFECT))
        there, returned = judge(PERFECT, PERFECT, plan_probe(PERFECT, PERFECT), result)
        assert there[0].verdict == "fail"
        assert {verdict.verdict for verdict in (*there[1:], *returned)} == {"unknown"}
