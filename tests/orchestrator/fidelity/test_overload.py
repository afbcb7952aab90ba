"""Overload told from readings of the engine's and the host's counters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.fabric.base import Counted
from orchestrator.fidelity.overload import LoadReading, Overloads, was_saturated
from orchestrator.fidelity.overload import overload as judged
from orchestrator.host.kernel.load import HostLoad
from orchestrator.record.events.overload import FULL_BACKLOG, LATE_PACKETS, LOST_PACKETS, SATURATED, merged
from tests.texts import containing

QUIET = HostLoad(busy=100.0, idle=100.0, waiting=10.0, dropped=5)
BEFORE = LoadReading(4.0, Counted([], forwarded=1000, drops={"in full interfaces": 7}, cpu_seconds=3.0), QUIET)


def reading(t: float, *, busy: float = 0.6, waiting: float = 0.1, dropped: int = 5, **counted: Any) -> LoadReading:
    """A second after BEFORE, on two processors that were busy for a share of their time."""
    facts: dict[str, Any] = {"forwarded": 3000, "drops": {"in full interfaces": 7}, "cpu_seconds": 3.3} | counted
    host = HostLoad(100.0 + 2 * busy, 100.0 + 2 * (1 - busy), 10.0 + waiting, dropped)
    return LoadReading(t, Counted([], **facts), host)


def test_nothing_is_said_of_what_is_on_time() -> None:
    assert judged(BEFORE, reading(5.0, late_max=0.04)) is None
    assert judged(BEFORE, reading(5.0, busy=1.0, waiting=0.2)) is None  # busy, and nobody waits: just enough to do
    assert judged(BEFORE, BEFORE) is None
    assert judged(BEFORE, reading(5.0, dropped=2)) is None  # a processor was switched off


def test_a_host_is_saturated_if_tasks_wait_while_all_processors_are_busy() -> None:
    assert was_saturated(QUIET, reading(5.0, busy=1.0, waiting=0.8).host, 1.0)
    assert not was_saturated(QUIET, reading(5.0, busy=1.0, waiting=0.2).host, 1.0)
    assert not was_saturated(QUIET, reading(5.0, busy=0.6, waiting=0.8).host, 1.0)
    assert was_saturated(QUIET._replace(waiting=None), reading(5.0, busy=1.0).host, 1.0)  # without PSI


def test_packets_are_not_held_up_for_longer_than_a_reading_covers() -> None:
    """A clock that jumped by an hour makes them seem an hour late."""
    found = judged(BEFORE, reading(5.0, late=3, late_max=3600.0))
    assert found is not None
    assert (found.late_max, found.held_up) == (3600.0, 1.0)


def test_no_share_is_more_than_all_or_less_than_nothing() -> None:
    """The time that processors waited for disks may fall, and the switch's time is read later than the clock."""
    restless = HostLoad(busy=101.0, idle=99.0, waiting=12.0, dropped=5)
    now = LoadReading(5.0, Counted([], late=1, late_max=0.1, cpu_seconds=4.5), restless)
    found = judged(BEFORE, now)
    assert found is not None
    assert (found.processors, found.switch, found.waiting) == (1.0, 1.0, 1.0)
    fallen = judged(BEFORE, now._replace(host=restless._replace(busy=99.0, idle=101.0, waiting=9.0)))
    assert fallen is not None
    assert (fallen.processors, fallen.waiting) == (0.0, 0.0)


CAUSES: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    ({"late": 3, "late_max": 0.7}, (LATE_PACKETS,), "the switch was held up"),
    (
        {"late": 3, "late_max": 0.7, "busy": 1.0, "waiting": 0.9},
        (LATE_PACKETS,),
        "this host's processors are saturated",
    ),
    ({"late": 900, "late_max": 0.07, "cpu_seconds": 3.95}, (LATE_PACKETS,), containing("more packets than the switch")),
    ({"drops": {"in full interfaces": 9}}, (LOST_PACKETS,), "the switch was held up"),
    ({"dropped": 6}, (FULL_BACKLOG,), "a burst beyond net.core.netdev_max_backlog"),
    ({"busy": 0.99, "waiting": 0.8}, (SATURATED,), "this host's processors are saturated"),
]


@pytest.mark.parametrize(("facts", "effects", "cause"), CAUSES, ids=range(len(CAUSES)))
def test_what_happened_and_why(facts: dict[str, Any], effects: tuple[str, ...], cause: str) -> None:
    found = judged(BEFORE, reading(5.0, **facts))
    assert found is not None
    assert (found.start, found.end, found.effects, found.cause) == (4.0, 5.0, effects, cause)


def test_only_what_is_new_is_lost() -> None:
    drops = {"in full interfaces": 7, "before the switch, from edge-0": 40}
    found = judged(BEFORE, reading(5.0, drops=drops, dropped=6))
    assert found is not None
    assert found.lost == {"before the switch, from edge-0": 40, FULL_BACKLOG: 1}


def test_a_kernel_that_reports_no_pressure() -> None:
    before = BEFORE._replace(host=QUIET._replace(waiting=None))
    now = reading(5.0, busy=0.97)
    found = judged(before, now._replace(host=now.host._replace(waiting=None)))
    assert found is not None
    assert (found.effects, found.waiting) == ((SATURATED,), None)


def at(t: float, late: int) -> LoadReading:
    return LoadReading(t, Counted([], forwarded=round(1000 * t), late=late, late_max=0.1 if late else 0.0), QUIET)


def test_stretches_are_reported_when_they_are_over() -> None:
    overloads = Overloads()
    told = [overloads.add(at(t, late)) for t, late in ((0, 9), (1, 0), (2, 4), (3, 2), (4, 0), (5, 1))]
    assert told[:4] == [[]] * 4  # the first reading is where counting begins
    ((stretch,),) = [each for each in told if each]
    assert (stretch.start, stretch.end, stretch.late) == (1, 3, 6)
    assert stretch.held_up == pytest.approx(0.2)
    ((last,), nothing) = overloads.end(), overloads.end()
    assert (last.start, last.end, last.late, nothing) == (4, 5, 1, [])


def test_long_ones_are_reported_in_pieces_that_fit_together() -> None:
    overloads = Overloads()
    pieces = [each for t in range(14) for each in overloads.add(at(t, 1))] + overloads.end()
    assert [(each.start, each.end) for each in pieces] == [(0, 5), (5, 10), (10, 13)]
    (whole,) = merged(pieces)
    assert (whole.start, whole.end, whole.late) == (0, 13, 13)
    other = replace(pieces[2], cause="another")
    assert len(merged([*pieces[:2], other])) == 2
