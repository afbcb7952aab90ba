from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from orchestrator.host.sensors.sensing import Sensing
from orchestrator.host.sensors.sensor import Reading, Sensor
from orchestrator.host.sensors.sources import discover
from tests.orchestrator.host.sensors import trees


class Taken:
    """What sensing gives."""

    def __init__(self, find: Callable[[], Sequence[Sensor]]) -> None:
        self.times: list[list[Reading]] = []
        self.notes: list[str] = []
        self.sensing = Sensing(self.times.append, self.notes.append, find)


def sensor_of(folder: Path, value: Callable[[], float]) -> Sensor:
    (folder / "value").write_text("1")
    return Sensor("power", "test", "all", (folder / "value",), lambda _: value())


async def test_everything_is_read_first_and_when_it_is_asked_for(tmp_path: Path) -> None:
    root = trees.jetson_orin_nano(tmp_path)
    taken = Taken(lambda: discover(root))
    await taken.sensing.begin()
    await taken.sensing.sense()
    await taken.sensing.sense(everything=True)
    first, nothing, last = taken.times
    assert (len(first), nothing) == (13, [])
    assert first == last


async def test_the_event_loop_is_not_held_up(tmp_path: Path) -> None:
    """The sensor answers only after the event loop has gone on."""
    gone_on = threading.Event()
    slow = sensor_of(tmp_path, lambda: float(gone_on.wait(10)))
    taken = Taken(lambda: [slow])
    begun = asyncio.ensure_future(taken.sensing.begin())
    await asyncio.sleep(0)
    gone_on.set()
    await begun
    assert [reading.value for reading in taken.times[0]] == [1.0]


@pytest.mark.parametrize("hangs", ["find", "read"])
async def test_nothing_waits_for_sensors_that_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: str) -> None:
    monkeypatch.setattr("orchestrator.host.sensors.sensing.PATIENCE", 0.05)
    let_go = threading.Event()
    sensor = sensor_of(tmp_path, lambda: float(let_go.wait(60)))
    taken = Taken(lambda: [sensor] if hangs == "read" else [sensor] * let_go.wait(60))
    await taken.sensing.begin()
    await taken.sensing.forever()
    await taken.sensing.sense(everything=True)
    let_go.set()
    (note,) = taken.notes
    assert note.endswith("did not answer within 0 s: they are not read any more.")
    unread = Reading("power", "test", "all", None, "no answer within 0 s, so it is not read any more")
    assert taken.times == ([[unread]] if hangs == "read" else [])


async def test_an_error_is_raised() -> None:
    def find() -> list[Sensor]:
        raise PermissionError("/sys")

    with pytest.raises(PermissionError):
        await Taken(find).sensing.begin()


async def test_it_ends_when_it_is_cancelled_while_an_answer_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """`asyncio.wait_for` of Python 3.11 goes on in a third of these cases."""
    monkeypatch.setattr("orchestrator.host.sensors.sensing.SENSE_EVERY", 0.0)
    taken = Taken(list)
    await taken.sensing.begin()
    for number in range(50):
        sensing = asyncio.create_task(taken.sensing.forever())
        await asyncio.sleep(number % 7 * 2e-4)
        sensing.cancel()
        await asyncio.wait([sensing], timeout=10)
        assert sensing.cancelled()
