"""Readings of the network between hosts that real links join."""

from __future__ import annotations

import pytest

from orchestrator.record.events.network import FramesReading, NetworkReading, PairReading
from orchestrator.results.traffic.hosts_network import CrossingLink, NetworkFindings
from orchestrator.results.traffic.real_network import RealNetwork, RealNetworks, notable
from tests.texts import containing

REAL = [CrossingLink(*ends, ("a", "b"), 0.0, real=True) for ends in (("edge-0", "cloud"), ("cloud", "edge-0"))]
SHAPED = CrossingLink("edge-1", "cloud", ("a", "c"), 0.02)
FIRST = NetworkReading((PairReading(("a", "b"), 0.001), PairReading(("a", "c"), 0.001)), first=True)


def reading(delay: float | None, lost: int = 0, *frames: FramesReading) -> NetworkReading:
    return NetworkReading((PairReading(("a", "b"), delay, 10, lost), PairReading(("a", "c"), 0.001, 10, 0)), frames)


def measured(*readings: NetworkReading) -> RealNetwork:
    networks = RealNetworks([*REAL, SHAPED])
    for each in readings:
        networks.add(each)
    (found,) = networks.found.values()
    return found


def test_what_was_measured_is_reported_without_a_verdict() -> None:
    frames = FramesReading("b", "a", 5000, 40), FramesReading("a", "c", 70, 7)
    found = measured(FIRST, reading(0.002), reading(0.010, 3), reading(0.001, 0, *frames))
    assert found == RealNetwork(("a", "b"), 2, 0.002, [0.004, 0.02, 0.002], 30, 3, 5000, 40)
    assert str(found) == containing("4 ms (2 ms to 20 ms)", "3 of 30 echoes", "40 of 5,000 frames")


def test_a_network_that_answers_nothing() -> None:
    assert str(measured(FIRST, reading(None, 10))).startswith("a – b: no echo came")
    assert str(measured()) == "a – b: not measured"


def test_a_continued_run_counts_on() -> None:
    frames = FramesReading("a", "b", 100, 1)
    found = measured(FIRST, reading(0.001, 0, frames), FIRST, reading(0.001, 0, frames))
    assert (found.sent, found.missing, found.echoes) == (200, 2, 20)


def test_nothing_is_found_between_hosts_that_only_real_links_join() -> None:
    lossy = FramesReading("a", "b", 1000, 500)
    for links, number in ((REAL, 0), ([*REAL, SHAPED], 0), ([*REAL, SHAPED._replace(hosts=("a", "b"))], 1)):
        findings = NetworkFindings(links)
        for t, each in enumerate((FIRST, reading(0.05, 5, lossy), reading(None, 10, lossy))):
            findings.add(5.0 * t, each)
        assert len(findings.found) == number
        assert sum(each.missing for each in findings.frames.values()) == 500 * number


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (0.001, 0.0019, False),  # less than a millisecond
        (0.001, 0.0021, True),
        (0.1, 0.149, False),  # less than half of it
        (0.1, 0.151, True),
        (0.1, 0.04, True),
        (0.1, None, True),
        (None, None, False),
        (None, 0.1, True),
    ],
)
def test_great_changes_are_reported(before: float | None, now: float | None, told: bool) -> None:
    assert notable(before, now) == told
