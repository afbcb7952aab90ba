"""Readings of the network between hosts, written by hand: a reading each 5 s, on a training that began at 10 s."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from orchestrator.record.events.network import FramesReading, NetworkReading, PairReading
from orchestrator.results.traffic.hosts_network import CrossingLink, Deviation, NetworkFindings
from tests.texts import containing

BEGAN = 10.0
USUAL = 0.002
UP, DOWN = CrossingLink("edge-0", "cloud", ("a", "b"), 0.02), CrossingLink("cloud", "edge-0", ("a", "b"), 0.02)
FAR = CrossingLink("device-0", "cloud", ("a", "b"), 0.2)
SOUND = PairReading(("a", "b"), USUAL, 10, 0)


def at(delay: float | None, lost: int = 0, fastest: float | None = None) -> PairReading:
    """``fastest``: by default as fast as the others."""
    return PairReading(("a", "b"), delay, 10, lost, delay if fastest is None else fastest)


def found(
    *readings: NetworkReading | PairReading, links: Sequence[CrossingLink] = (UP, DOWN), usual: float = USUAL
) -> list[Deviation]:
    findings = NetworkFindings(links)
    findings.add(BEGAN, NetworkReading((PairReading(("a", "b"), usual),), first=True))
    for number, each in enumerate(readings, 1):
        findings.add(BEGAN + 5 * number, each if isinstance(each, NetworkReading) else NetworkReading((each,)))
    return findings.found


def told(*readings: NetworkReading | PairReading, links: Sequence[CrossingLink] = (UP, DOWN)) -> list[tuple[bool, str]]:
    return [(each.confirmed, each.sentence(BEGAN)) for each in found(*readings, links=links)]


def frames(sent: int, missing: int, pair: PairReading = SOUND) -> NetworkReading:
    return NetworkReading((pair,), (FramesReading("b", "a", sent, missing),))


def test_a_network_that_stays_as_it_was() -> None:
    assert found(SOUND, at(0.0029), at(0.0011), at(USUAL, lost=1)) == []


def test_a_drift_is_reported_with_its_time_and_the_links() -> None:
    assert told(SOUND, at(0.012), at(0.0118)) == [
        (
            True,
            containing("from 10 s on", "a and b took 12 ms", "10 ms more"),
        )
    ]


def test_a_drift_that_ends() -> None:
    ((confirmed, sentence),) = told(at(0.012), at(0.015), at(0.012), SOUND)
    assert confirmed
    assert sentence == containing("from 5 s to 15 s", "15 ms one way")


def test_one_reading_alone_is_not_confirmed() -> None:
    assert [(confirmed, sentence[:9]) for confirmed, sentence in told(at(0.012), SOUND, at(0.012))] == [
        (False, "at 5 s th"),
        (False, "at 15 s t"),
    ]


def test_a_queue_that_is_empty_at_times_is_distinguished_from_a_longer_way() -> None:
    queue = [at(0.03, fastest=USUAL), at(0.06, fastest=0.0025)]
    (finding,) = found(*queue)
    assert "because frames queued: links edge-0" in finding.sentence(BEGAN)
    for later in (at(0.03, fastest=0.02), at(0.03)):
        (finding,) = found(*queue, later)
        assert "at the start: links edge-0" in finding.sentence(BEGAN)


def test_a_network_that_became_faster_than_what_was_deducted() -> None:
    (finding,) = found(at(0.001), at(0.001), usual=0.004)
    assert finding.sentence(BEGAN) == containing("3 ms less", "cloud → edge-0 were faster")


@pytest.mark.parametrize(("drift", "links"), [(0.0009, ()), (0.0011, (UP,)), (0.0039, (UP,)), (0.0041, (UP, FAR))])
def test_each_link_has_the_tolerance_of_its_latency(drift: float, links: tuple[CrossingLink, ...]) -> None:
    """1 ms or 2 %, whichever is more."""
    findings = found(*[at(USUAL + drift)] * 2, links=(UP, FAR))
    assert [finding.links for finding in findings] == ([links] if links else [])


def test_lost_echoes() -> None:
    assert told(SOUND, at(USUAL, lost=3), at(USUAL, lost=4)) == [(True, containing("from 10 s on", "7 of 20 echoes"))]


def test_a_full_network_loses_frames_and_delays_the_others() -> None:
    readings = [frames(1000, 0), frames(6000, 800, at(0.052, lost=2)), frames(9000, 1900, at(0.062))]
    assert told(*readings) == [
        (
            True,
            containing("from 10 s on", "1,900 of 9,000 frames", "2 of 20 echoes", "60 ms more"),
        )
    ]


def test_missing_frames_need_no_second_reading() -> None:
    assert [finding.confirmed for finding in found(frames(1000, 10), frames(1000, 10))] == [True]


@pytest.mark.parametrize(("sent", "missing", "number"), [(1000, 9, 0), (20_000, 19, 0), (20_000, 20, 1)])
def test_few_missing_frames_are_within_what_networks_lose(sent: int, missing: int, number: int) -> None:
    assert len(found(frames(sent, missing))) == number


def test_missing_frames_are_compared_with_those_before_too() -> None:
    """They show in the silence after a transfer."""
    assert found(frames(50_000, 0), frames(50_000, 20)) == []


def test_a_broken_network() -> None:
    assert told(at(None, lost=10), at(None, lost=10)) == [(True, containing("from 5 s on", "was broken", "20 echoes"))]


def test_what_precedes_the_loss_of_a_host_is_the_hosts() -> None:
    away = NetworkReading((), away=("b",))
    assert found(at(0.012, lost=6), at(None, lost=10), at(None, lost=10), away, SOUND) == []


def test_a_drift_before_that_stays() -> None:
    assert len(found(at(0.012), at(0.012), SOUND, at(None, lost=10), NetworkReading((), away=("b",)))) == 1


def test_a_continued_run_has_a_delay_of_its_own_at_its_start() -> None:
    again = NetworkReading((PairReading(("a", "b"), 0.012),), first=True)
    assert found(frames(50_000, 5), again, frames(100, 0, at(0.012))) == []
