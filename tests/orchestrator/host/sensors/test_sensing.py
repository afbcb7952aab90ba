from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from orchestrator.host.sensors.sensing import Sampler, Sensing, differs, growth
from orchestrator.host.sensors.sensor import Reading, Sensor
from orchestrator.host.sensors.sources import discover
from tests.orchestrator.host.sensors import trees
from tests.texts import containing


class Taken:
    """What sensing gives."""

    def __init__(self, find: Callable[[], Sequence[Sensor]]) -> None:
        self.times: list[list[Reading]] = []
        self.notes: list[str] = []
        self.sensing = Sensing(self.times.append, self.notes.append, find)


def sensor_of(folder: Path, value: Callable[[], float]) -> Sensor:
    (folder / "value").write_text("1")
    return Sensor("power", "test", "all", (folder / "value",), lambda _: value())


async def test_everything_is_read_first_and_when_it_is_requested(tmp_path: Path) -> None:
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
    assert "did not answer within 0 s" in note
    unread = Reading("power", "test", "all", None, containing("no answer within 0 s"))
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


ZONE = "sys/class/thermal/thermal_zone0/temp"


def test_only_what_changed_enough_is_reported_again(tmp_path: Path) -> None:
    sampler = Sampler(discover(trees.raspberry_pi_4(tmp_path)))
    assert len(sampler.sample()) == 13  # 1 temperature, 1 alarm, 8 flags, 2 frequencies, 1 memory
    assert sampler.sample() == []
    trees.write(tmp_path, {ZONE: 48700})  # 0.388 °C more
    assert sampler.sample() == []
    trees.write(tmp_path, {ZONE: 48900})
    assert [(each.quantity, each.value) for each in sampler.sample()] == [("temperature", 48.9)]
    assert len(sampler.sample(everything=True)) == 13


@pytest.mark.parametrize(
    ("quantity", "before", "now", "enough"),
    [
        ("frequency", 1e9, 1.019e9, False),  # 2 % are enough
        ("frequency", 1e9, 0.98e9, True),
        ("power", 10.0, 10.04, False),  # 0.5 %
        ("power", 10.0, 10.06, True),
        ("power", 0.0, 0.005, False),  # 0.01 W at least
        ("power", 0.0, 0.01, True),
        ("throttled", 0.0, 1.0, True),
        ("energy", 5.0, 5.000001, True),
        ("energy", 5.0, 5.0, False),
    ],
)
def test_what_is_enough(quantity: str, before: float, now: float, enough: bool) -> None:
    assert differs(Reading(quantity, "", "", before), Reading(quantity, "", "", now)) == enough


def test_what_cannot_be_read_is_reported_once(tmp_path: Path) -> None:
    sampler = Sampler(discover(trees.raspberry_pi_4(tmp_path)))
    sampler.sample()
    (tmp_path / ZONE).unlink()
    (gone,) = sampler.sample()
    assert (gone.scope, gone.value) == ("zone cpu-thermal", None)
    assert "No such file" in gone.detail
    assert sampler.sample() == []
    assert "zone cpu-thermal" not in {each.scope for each in sampler.sample(everything=True)}
    trees.write(tmp_path, {ZONE: 48312})
    assert [each.value for each in sampler.sample()] == [48.312]


@pytest.mark.parametrize(
    ("before", "now", "wraps_at", "grown"),
    [
        (100.0, 103.5, 1000.0, 3.5),
        (990.0, 10.0, 1000.0, 20.0),
        (990.0, 10.0, 0.0, 10.0),  # nothing is known of what was before
        (990.0, 10.0, 500.0, 10.0),  # a counter beyond its range has not wrapped around
    ],
)
def test_a_counter_that_wraps_around(before: float, now: float, wraps_at: float, grown: float) -> None:
    assert growth(before, now, wraps_at) == pytest.approx(grown)


def test_energy_counts_from_the_first_reading_and_through_the_range(tmp_path: Path) -> None:
    """262143.32885 J is where the counter begins anew; it then stands at 7 J: 10 J from 3.67115 J below."""
    counter = "sys/class/powercap/intel-rapl:0/energy_uj"
    sampler = Sampler(discover(trees.intel_laptop(tmp_path)))

    def energy() -> list[float | None]:
        return [each.value for each in sampler.sample() if each.scope == "package-0" and each.quantity == "energy"]

    assert energy() == [0.0]
    trees.write(tmp_path, {counter: 262_140_000_000})
    assert energy() == [pytest.approx(261_140.0)]  # it stood at 1,000 J
    trees.write(tmp_path, {counter: 6_671_150})
    assert energy() == [pytest.approx(261_150.0)]
