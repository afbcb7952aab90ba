"""Lost acknowledgements and beats, on a link with a round trip of 100 ms and no rate."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from netem.profile import LinkProfile
from netem.tcp.flow import Flow
from netem.tcp.path import SEGMENT
from netem.tcp.sender import climb

LOSSY = LinkProfile(latency=0.05, loss=0.5)
RTT = 0.1


class Loses:
    """The packets with these numbers, counted from 0."""

    def __init__(self, numbers: Collection[int]) -> None:
        self.numbers = numbers
        self.passed = 0

    @property
    def clear(self) -> float:
        return min((number - self.passed for number in self.numbers if number >= self.passed), default=1000)

    def draw(self, count: int) -> list[int]:
        self.passed += count
        return [n for n in range(count) if self.passed - count + n in self.numbers]


def flow(there: Collection[int], back: Collection[int], beat: float = 0.5) -> Flow:
    connection = Flow(LOSSY, LOSSY, 1, beat)
    connection._path.losses = Loses(there)  # type: ignore[assignment]
    connection._path.acknowledgements = Loses(back)  # type: ignore[assignment]
    return connection


@pytest.mark.parametrize(
    ("there", "back", "window"),
    [
        ((), (), 10),
        ((11,), (), 7),  # after ten packets and an acknowledgement, a beat; a probe repairs that
        ((11, 12), (), 2),  # and the probe; the timer does
        ((), (1,), 10),  # the acknowledgement of a beat; that of the probe tells
        ((), (1, 2), 7),  # and that of the probe; a beat of the peer acknowledges it
        ((), (1, 2, 3), 2),  # and that beat
    ],
)
def test_a_beat_that_is_not_acknowledged_shrinks_the_window(
    there: Collection[int], back: Collection[int], window: int
) -> None:
    connection = flow(there, back)
    connection.send(0.0, 10 * SEGMENT)
    assert connection.send(10.0, window * SEGMENT) == pytest.approx(10.05)
    assert connection.send(10.0, 1) == pytest.approx(10.05 + RTT)


@pytest.mark.parametrize(("lost", "stalled"), [(9, 0.0), (10, 0.208), (11, 0.208 + 0.3)])
def test_a_sender_that_receives_nothing_waits_for_a_probe_or_the_timer(lost: int, stalled: float) -> None:
    """Ten packets after idleness are acknowledged one by one. The window doubles, also after a spurious timeout."""
    connection = flow((), range(lost))
    connection._sender.threshold = 20
    assert connection.send(0.0, 30 * SEGMENT) == pytest.approx(0.05 + RTT + stalled)


def test_further_timeouts_do_not_lower_the_threshold() -> None:
    connection = flow(range(13), ())  # ten packets, the probe, and twice after the timer
    connection.send(0.0, 30 * SEGMENT)
    assert connection._sender.threshold == 7


@pytest.mark.parametrize(
    ("window", "target", "grown"),
    [
        (10, 10, 0.0),
        (10, 11, 1.0),
        (10, 12, 1 + 5 / 11),  # five acknowledged packets for the first, eleven for the second
        (4, 9, 2.0),  # two for each at least
    ],
)
def test_a_window_climbs_in_whole_packets(window: int, target: int, grown: float) -> None:
    assert climb(window, target, window) == pytest.approx(grown)


@pytest.mark.parametrize(("there", "back"), [(0.0, 1e-9), (1e-9, 0.0)])
def test_beats_without_loss_in_one_direction_keep_the_window(there: float, back: float) -> None:
    connection = Flow(LinkProfile(latency=0.05, loss=there), LinkProfile(latency=0.05, loss=back), 1, 0.5)
    connection.send(0.0, 10 * SEGMENT)
    assert connection.send(10.0, 10 * SEGMENT) == pytest.approx(10.05)
