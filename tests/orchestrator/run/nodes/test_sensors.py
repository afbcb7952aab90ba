from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.drivers.base import Driver, HostChange, HostReadings
from orchestrator.host.sensors.sensing import Sensing
from orchestrator.host.sensors.sensor import Reading
from orchestrator.host.sensors.sources import discover
from orchestrator.record.schema import DATABASE
from orchestrator.record.writer import Record
from orchestrator.results.history import History
from orchestrator.run.context import RunContext
from orchestrator.run.display.terminal import PlainView
from orchestrator.run.nodes.sensors import sensed
from tests.fakes.driver import FakeControl, FakeDriver, FakeHostsDriver
from tests.orchestrator.host.sensors import trees
from tests.orchestrator.run.nodes.test_session import SCENARIO, Stage

BYTES_A_MINUTE = 60_000  # docs/reference/record.md


class SensingDriver(FakeHostsDriver):
    """A driver of several hosts. Each has one sensor, whose value is the number of calls."""

    def __init__(self, control: FakeControl, *, here: bool) -> None:
        super().__init__(control)
        self.here = here
        self.calls = 0

    async def sense(self) -> None:
        self.calls += 1
        for host in ("a", "b"):
            self.news.put_nowait(HostReadings(host, [Reading("power", "test", "all", float(self.calls))]))


async def told(
    tmp_path: Path, driver_of: Callable[[FakeControl], FakeDriver], *, virtual: bool = False
) -> dict[str, list[Any]]:
    """The readings of each host in a run with this driver."""
    stage = Stage(tmp_path, SCENARIO, driver_of=driver_of)
    stage.session.listen()
    run = RunContext(stage.plan, stage.directory, stage.record, lambda: 1.0, PlainView(io.StringIO()))
    async with sensed(run, stage.session, cast(Driver, stage.driver), virtual=virtual):
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    await stage.session.close()
    stage.record.close()
    with History.open(stage.directory.path) as history:
        found: dict[str, list[Any]] = {}
        for row in history.sensors():
            found.setdefault(row.host, []).append(row.value)
    return found


async def test_this_host_is_read_at_the_start_and_at_the_end(tmp_path: Path) -> None:
    """Each sensor is read twice, the memory at least; in between nothing changes within a second."""
    found = await told(tmp_path, FakeDriver)
    assert list(found) == [""]
    assert len(found[""]) >= 2


async def test_a_virtual_clock_does_not_wait_for_sensors(tmp_path: Path) -> None:
    assert await told(tmp_path, FakeDriver, virtual=True) == {}


async def test_the_agents_report_their_hosts(tmp_path: Path) -> None:
    found = await told(tmp_path, partial(SensingDriver, here=True))
    assert found == {"a": [1.0, 2.0], "b": [1.0, 2.0]}


async def test_the_orchestrators_host_reports_if_no_node_runs_there(tmp_path: Path) -> None:
    found = await told(tmp_path, partial(SensingDriver, here=False))
    assert (set(found), found["b"]) == ({"", "a", "b"}, [1.0, 2.0])


async def test_what_became_of_hosts_and_their_last_message_are_recorded(tmp_path: Path) -> None:
    stage = Stage(tmp_path, SCENARIO, driver_of=partial(SensingDriver, here=True))
    driver = cast(SensingDriver, stage.driver)
    stage.session._clock = lambda: 20.0
    said = asyncio.Event()

    def say(text: str) -> None:
        stage.lines.append(text)
        if text.endswith("again"):
            said.set()

    stage.session._show = say
    stage.session.listen()
    driver.news.put_nowait(HostReadings("b", [Reading("power", "test", "all", None, "lost")], ago=15.0))
    driver.news.put_nowait(HostChange("b", "lost", "it is silent"))
    driver.news.put_nowait(HostChange("b", "back"))
    await said.wait()
    assert stage.lines == ["the host b is lost: it is silent", "the host b is there again"]
    assert [each.data for each in stage.events("host")] == [
        {"host": "b", "state": "lost", "reason": "it is silent"},
        {"host": "b", "state": "back", "reason": ""},
    ]
    with History.open(stage.directory.path) as history:
        assert [(row.t, row.host, row.value, row.detail) for row in history.sensors()] == [(5.0, "b", None, "lost")]
    await stage.session.close()
    stage.record.close()


async def test_the_record_stays_small(tmp_path: Path) -> None:
    """An Intel laptop, the host with most sensors here, on which nearly all of them change each second of a minute."""
    root, sizes = trees.intel_laptop(tmp_path / "root"), []
    changing = [
        path for path in root.rglob("*") if path.name.endswith(("energy_uj", "temp", "_cur_freq", "current_now"))
    ]
    for seconds in (0, 60):
        record = Record.create(tmp_path / f"run-{seconds}", "{}", {})
        sensing = Sensing(lambda readings: record.sensors(0.0, "", readings), pytest.fail, lambda: discover(root))  # noqa: B023
        await sensing.begin()
        for second in range(seconds):
            for path in changing:
                number = int(path.read_text())
                path.write_text(str(number + number // 7 if second % 2 else number - number // 8))
            await sensing.sense()
        record.close()
        sizes.append((record.directory / DATABASE).stat().st_size)
    assert 10_000 < sizes[1] - sizes[0] < BYTES_A_MINUTE
