"""`node.messaging.delivery.arrivals`: one timer for all that arrives."""

from __future__ import annotations

import asyncio

import pytest

from node.messaging.delivery.arrivals import Arrivals
from node.runtime.clock import VirtualLoop
from tests.virtual import virtual


class Noted:
    """Notes its name and the time when it arrives."""

    def __init__(self, name: str, notes: list[tuple[str, float]]) -> None:
        self.plan = 0
        self._name, self._notes = name, notes

    def arrive(self) -> None:
        self._notes.append((self._name, asyncio.get_running_loop().time()))


@virtual
async def test_the_earliest_arrives_first_and_of_one_time_what_was_added_first() -> None:
    notes: list[tuple[str, float]] = []
    arrivals = Arrivals()
    for name, time in (("late", 2.0), ("early", 1.0), ("late too", 2.0), ("next", 1.5)):
        arrivals.add(time, Noted(name, notes))
    await asyncio.sleep(3)
    assert notes == [("early", 1.0), ("next", 1.5), ("late", 2.0), ("late too", 2.0)]


@virtual
async def test_what_was_added_under_an_earlier_plan_does_not_arrive() -> None:
    notes: list[tuple[str, float]] = []
    arrivals = Arrivals()
    changed, other = Noted("changed", notes), Noted("other", notes)
    arrivals.add(1.0, changed)
    arrivals.add(2.0, other)
    changed.plan += 1
    arrivals.add(3.0, changed)
    await asyncio.sleep(4)
    assert notes == [("other", 2.0), ("changed", 3.0)]


@virtual
async def test_what_is_added_by_an_arrival_arrives_too() -> None:
    notes: list[tuple[str, float]] = []

    class First(Noted):
        def arrive(self) -> None:
            super().arrive()
            arrivals.add(1.0, Noted("at the same time", notes))
            arrivals.add(1.5, Noted("later", notes))

    arrivals = Arrivals()
    arrivals.add(1.0, First("first", notes))
    await asyncio.sleep(2)
    assert notes == [("first", 1.0), ("at the same time", 1.0), ("later", 1.5)]


@virtual
async def test_an_arrival_that_fails_stops_no_other() -> None:
    notes: list[tuple[str, float]] = []

    class Failing(Noted):
        def arrive(self) -> None:
            raise ValueError("no")

    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    arrivals = Arrivals()
    arrivals.add(1.0, Failing("failing", notes))
    arrivals.add(1.0, Noted("beside it", notes))
    arrivals.add(2.0, Noted("later", notes))
    await asyncio.sleep(3)
    assert [str(error) for error in errors] == ["no"]
    assert notes == [("beside it", pytest.approx(1.0)), ("later", 2.0)]


@virtual
async def test_arrivals_a_thousand_millionth_of_a_second_apart_are_together() -> None:
    notes: list[tuple[str, float]] = []
    arrivals = Arrivals()
    for name, time in (("first", 1.0), ("with it", 1.0 + 0.9e-9), ("after it", 1.0 + 1.1e-9)):
        arrivals.add(time, Noted(name, notes))
    await asyncio.sleep(2)
    assert notes == [("first", 1.0), ("with it", 1.0), ("after it", 1.0 + 1.1e-9)]


@virtual
async def test_arrivals_after_a_year() -> None:
    """Times are then 7.5 ns apart."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop._jumping.now = 2.0**25
    notes: list[tuple[str, float]] = []
    arrivals = Arrivals()
    arrivals.add(2.0**25 + 1, Noted("late", notes))
    await asyncio.wait_for(asyncio.sleep(2), 3)
    assert notes == [("late", 2.0**25 + 1)]


@virtual
async def test_an_earlier_arrival_moves_the_timer_and_one_at_its_time_does_not() -> None:
    notes: list[tuple[str, float]] = []
    arrivals = Arrivals()
    arrivals.add(2.0, Noted("second", notes))
    timer = arrivals._timer
    arrivals.add(2.0, Noted("third", notes))
    arrivals.add(3.0, Noted("fourth", notes))
    assert arrivals._timer is timer
    arrivals.add(1.0, Noted("first", notes))
    assert timer is not None
    assert timer.cancelled()
    await asyncio.sleep(4)
    assert [time for _, time in notes] == [1.0, 2.0, 2.0, 3.0]
    assert arrivals._timer is None
