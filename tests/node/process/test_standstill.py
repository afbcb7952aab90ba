from __future__ import annotations

from collections.abc import Iterable

import pytest

from node.process.standstill import Standstill, Times, read


def standstill(*readings: tuple[float, float, float]) -> Standstill:
    left: Iterable[Times] = iter([Times(*each) for each in readings])
    return Standstill(lambda: next(iter(left)))


@pytest.mark.parametrize(
    ("took", "processor", "waited", "late", "stood"),
    [
        (1.0, 0.2, 0.0, 0.0, 0.0),  # as meant
        (6.0, 0.2, 0.0, 5.0, 5.0),  # stopped for 5 s
        (6.0, 5.9, 0.0, 5.0, 0.1),  # computed all the time, and held up the event loop
        (6.0, 0.5, 5.4, 5.0, 0.1),  # waited for a processor
        (6.0, 2.0, 1.0, 5.0, 3.0),  # was busy for 3 s of the 6, and stood still for the rest
        (6.0, 9.0, 0.0, 5.0, 0.0),  # several threads computed
        (0.9, 0.0, 0.0, 0.0, 0.0),  # early
    ],
)
def test_a_standstill_is_what_neither_work_nor_waiting_explains(
    took: float, processor: float, waited: float, late: float, stood: float
) -> None:
    """The caller means to come back after a second."""
    asked = standstill((100.0, 10.0, 1.0), (100.0 + took, 10.0 + processor, 1.0 + waited))
    assert asked.since(1.0) == pytest.approx((late, stood))


def test_each_look_begins_where_the_last_one_ended() -> None:
    asked = standstill((0.0, 0.0, 0.0), (6.0, 0.0, 0.0), (7.0, 0.0, 0.0))
    assert asked.since(1.0) == (5.0, 5.0)
    assert asked.since(1.0) == (0.0, 0.0)


def test_the_counters_grow() -> None:
    first, second = read(), read()
    assert second.clock >= first.clock > 0
    assert second.processor >= first.processor > 0
    assert second.waited >= first.waited >= 0
