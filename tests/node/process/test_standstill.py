from __future__ import annotations

from collections.abc import Iterable

import pytest

from node.process.standstill import Standstill, Times, read


def standstill(*readings: tuple[float, float, float, float]) -> Standstill:
    left: Iterable[Times] = iter([Times(*each) for each in readings])
    return Standstill(lambda: next(iter(left)))


@pytest.mark.parametrize(
    ("pause", "took", "processor", "own", "waited", "late", "stood"),
    [
        (1.0, 1.0, 0.2, 0.0, 0.0, 0.0, 0.0),  # as intended
        (1.0, 6.0, 0.2, 0.0, 0.0, 5.0, 5.0),  # stopped for 5 s
        (1.0, 6.0, 5.9, 5.9, 0.0, 5.0, 0.0),  # the event loop computed all the time
        (1.0, 6.0, 5.9, 0.0, 0.0, 5.0, 0.1),  # a thread did, and held up the event loop
        (1.0, 6.0, 0.5, 0.0, 5.4, 5.0, 0.0),  # waited for a processor
        (1.0, 6.0, 2.0, 0.0, 1.0, 5.0, 3.0),  # was busy for 3 s of the 6, and stood still for the rest
        (1.0, 6.0, 9.0, 0.0, 0.0, 5.0, 0.0),  # several threads computed
        (1.0, 0.9, 0.0, 0.0, 0.0, 0.0, 0.0),  # early
        (15.0, 18.0, 1.0, 0.5, 2.4, 3.0, 0.1),  # woke up 3 s late, since it waited for a processor for 2.4 s
        (15.0, 18.0, 14.0, 0.1, 0.2, 3.0, 2.7),  # a thread computed; stopped for 3 s
    ],
)
def test_a_standstill_is_what_neither_work_nor_waiting_explains(
    pause: float, took: float, processor: float, own: float, waited: float, late: float, stood: float
) -> None:
    asked = standstill((100.0, 10.0, 5.0, 1.0), (100.0 + took, 10.0 + processor, 5.0 + own, 1.0 + waited))
    assert asked.since(pause) == pytest.approx((late, stood))


def test_each_look_starts_where_the_last_one_ended() -> None:
    asked = standstill((0.0, 0.0, 0.0, 0.0), (6.0, 0.0, 0.0, 0.0), (7.0, 0.0, 0.0, 0.0))
    assert asked.since(1.0) == (5.0, 5.0)
    assert asked.since(1.0) == (0.0, 0.0)


def test_the_counters_grow() -> None:
    first, second = read(), read()
    assert second.clock >= first.clock > 0
    assert second.processor >= first.processor > 0
    assert second.own >= first.own > 0
    assert second.waited >= first.waited >= 0
