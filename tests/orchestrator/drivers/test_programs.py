"""Tests of the control plane of programs, with a fake driver."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.drivers import programs as control
from orchestrator.drivers.program_state import PIECE, Phase
from orchestrator.drivers.programs import Programs, until_next_look
from orchestrator.errors import DriverError
from orchestrator.fabric.base import NodeHandle
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.record.events.nodes import LINES_AT_ONCE, KilledAtEnd, LinesDropped, ProgramEnded
from orchestrator.scenario.reading import parse
from tests.fakes.driver import FakeProgramsDriver
from tests.texts import containing

TEXT = """\
programs:
  cloud: {command: serve, ready: {line: serving}}
  device: {command: ask, after: cloud}
topology: {cloud: true, edges: 0, devices: 1}
"""


class Rig:
    """A control plane, its driver and the folder of logs."""

    def __init__(self, plan: Plan, folder: Path, refuses: str = "") -> None:
        self.directory = RunDirectory(folder)
        self.directory.logs.mkdir()
        self.driver = FakeProgramsDriver(refuses)
        self.programs = Programs(plan, self.directory, self.driver)
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self._hearing = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        async for message in self.programs.messages():
            self.heard.append(message)

    def print(self, label: str, text: str) -> None:
        self.print_bytes(label, f"{text}\n".encode())

    def print_bytes(self, label: str, data: bytes) -> None:
        with (self.directory.logs / f"{label}.log").open("ab") as log:
            log.write(data)

    async def until(self, asked: tuple[Any, ...]) -> None:
        """Wait until the driver has been asked for this."""
        async with asyncio.timeout(10):
            while True:
                if asked in self.driver.requests:
                    return
                await asyncio.sleep(0.001)

    async def until_heard(self, node: str, **fields: Any) -> dict[str, Any]:
        """Wait for a message of a node with these fields."""
        async with asyncio.timeout(10):
            while True:
                for sender, message in self.heard:
                    if sender == node and fields.items() <= message.items():
                        return message
                await asyncio.sleep(0.001)

    async def until_phase(self, label: str, phase: Phase) -> None:
        async with asyncio.timeout(10):
            while True:
                if self.programs._programs[label].phase is phase:
                    return
                await asyncio.sleep(0.001)

    async def start_all(self) -> None:
        for process, node in enumerate(("cloud", "device-0"), start=1):
            self.programs.hold(node, NodeHandle(process))
            await self.until_heard(node, type="register")
            await self.programs.send(node, {"type": "start"})

    async def close(self) -> None:
        self._hearing.cancel()
        await self.programs.close()
        await asyncio.gather(self._hearing, return_exceptions=True)


@contextlib.asynccontextmanager
async def rig(folder: Path, text: str = TEXT, *overrides: str, refuses: str = "") -> AsyncIterator[Rig]:
    found = Rig(make_plan(parse(text, "f.yaml", overrides), None), folder, refuses)
    try:
        yield found
    finally:
        await found.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LOOK_EVERY", 0.001)


async def test_a_program_starts_when_those_before_it_are_ready(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.start_all()
        await it.until(("run", "cloud"))
        it.print("cloud", "starting")
        it.print("cloud", '::edgebed {"event": "seen"}')
        await it.until_heard("cloud", name="seen")
        assert ("run", "device-0") not in it.driver.requests
        it.print("cloud", "now serving")
        await it.until(("run", "device-0"))


async def test_a_character_may_come_in_two_pieces(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.start_all()
        await it.until(("run", "cloud"))
        printed = '::edgebed {"event": "first"}\n::edgebed {"event": "müde"}\n'.encode()
        middle = printed.index("ü".encode()) + 1
        it.print_bytes("cloud", printed[:middle])
        await it.until_heard("cloud", name="first")
        it.print_bytes("cloud", printed[middle:])
        await it.until_heard("cloud", name="müde")


async def test_the_run_is_over_when_all_programs_have_ended(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.start_all()
        it.print("cloud", "serving")
        await it.until(("run", "device-0"))
        it.driver.end_program("device-0", 0)
        told = await it.until_heard("device-0", name=ProgramEnded.NAME)
        assert (told["program"], told["code"]) == ("device-0", 0)
        it.driver.end_program("cloud", 0)
        assert await it.programs.over == ("programs", None)


async def test_the_run_is_over_when_the_program_that_ends_it_has_ended(tmp_path: Path) -> None:
    async with rig(tmp_path, TEXT, "programs.device.ends_the_run=true") as it:
        await it.start_all()
        it.print("cloud", "serving")
        await it.until(("run", "device-0"))
        it.driver.end_program("device-0", 0)
        assert await it.programs.over == ("programs", None)


async def test_the_run_fails_with_the_program_that_ends_it(tmp_path: Path) -> None:
    async with rig(tmp_path, TEXT, "programs.cloud.ends_the_run=true") as it:
        await it.start_all()
        await it.until(("run", "cloud"))
        it.print("cloud", "no luck")
        it.driver.end_program("cloud", 3)
        error = "`serve` on cloud ended (exit code 3); its log ends with: no luck"
        assert await it.programs.over == ("failed", error)


async def test_a_program_that_fails_takes_its_node_down_and_starts_again_with_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.start_all()
        it.print("cloud", "serving")
        await it.until(("run", "device-0"))
        it.driver.end_program("device-0", -11)
        await it.until(("release", "device-0", 139))
        told = await it.until_heard("device-0", type="failed")
        assert told["lasting"] is False
        it.driver.requests.clear()
        it.heard.clear()
        it.programs.hold("device-0", NodeHandle(3))
        await it.until_heard("device-0", type="register")
        await it.programs.send("device-0", {"type": "start"})
        await it.until(("run", "device-0"))  # the cloud is still ready


async def test_a_program_that_cannot_start_ends_the_run(tmp_path: Path) -> None:
    async with rig(tmp_path, refuses="started (no such file)") as it:
        await it.start_all()
        told = await it.until_heard("cloud", type="failed")
        assert told == {
            "type": "failed",
            "error": containing("`serve`", "started (no such file)"),
            "lasting": True,
        }


async def test_a_program_that_is_not_ready_in_time_ends_the_run(tmp_path: Path) -> None:
    async with rig(tmp_path, TEXT, "programs.cloud.ready.within=10ms") as it:
        await it.start_all()
        told = await it.until_heard("cloud", type="failed")
        assert told["error"] == containing("`serve`", "cloud", "'serving' within 10 ms")


async def test_a_program_is_ready_when_it_accepts_connections(tmp_path: Path) -> None:
    async with rig(tmp_path, TEXT.replace("line: serving", "port: 80")) as it:
        await it.start_all()
        await it.until(("listening_on", 1, 80))
        assert ("run", "device-0") not in it.driver.requests
        it.driver.ports[80] = ["0.0.0.0"]
        await it.until(("run", "device-0"))


def test_a_program_that_has_just_started_is_looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the time that it has run for, but at least 10 ms and at most 100 ms."""
    monkeypatch.setattr(control, "LOOK_EVERY", 0.1)
    assert [until_next_look(passed) for passed in (0.0, 0.02, 0.2, 10.0)] == [0.01, 0.01, 0.05, 0.1]


async def test_a_listener_on_loopback_is_not_ready_for_other_nodes(tmp_path: Path) -> None:
    async with rig(tmp_path, TEXT.replace("line: serving", "port: 80, within: 300ms")) as it:
        it.driver.ports[80] = ["127.0.0.1"]
        await it.start_all()
        told = await it.until_heard("cloud", type="failed")
        assert told["error"] == containing("port 80", "127.0.0.1 only", "0.0.0.0 or ::), within 300 ms")
        assert ("run", "device-0") not in it.driver.requests


async def test_a_fault_of_the_driver_ends_the_run(tmp_path: Path) -> None:
    """Otherwise the run would wait for the program for ever."""
    async with rig(tmp_path, TEXT.replace("line: serving", "port: 80")) as it:
        it.driver.ports[80] = ["no address"]
        await it.start_all()
        told = await it.until_heard("cloud", type="failed")
        assert told["error"] == containing("`serve`", "ValueError", "no address")


async def test_a_listener_on_loopback_is_ready_for_programs_of_its_own_node(tmp_path: Path) -> None:
    text = TEXT.replace("line: serving", "port: 80").replace("ask, after: cloud}", "ask}")
    text = text.replace("  device:", "  asker: {on: cloud, command: ask, after: cloud}\n  device:")
    async with rig(tmp_path, text) as it:
        it.driver.ports[80] = ["127.0.0.1"]
        await it.start_all()
        await it.until(("run", "cloud.asker"))


async def test_a_program_of_an_absent_node_is_given_time(tmp_path: Path) -> None:
    """Its host may be lost: it starts anew with the node."""
    async with rig(tmp_path, TEXT, "programs.cloud.ready.within=10ms") as it:
        it.programs.hold("cloud", NodeHandle(1))
        await it.until_heard("cloud", type="register")
        it.programs.hold("cloud", None)
        await it.programs.send("cloud", {"type": "start"})
        await it.until(("run", "cloud"))
        await asyncio.sleep(0.1)  # ten times as long as it may take
        assert [message for _, message in it.heard if message["type"] == "failed"] == []
        it.heard.clear()
        it.programs.hold("cloud", NodeHandle(2))
        await it.until_heard("cloud", type="register")
        await it.programs.send("cloud", {"type": "start"})
        await it.until_heard("cloud", type="failed")


async def test_the_use_of_a_node_is_reported_while_it_runs(tmp_path: Path) -> None:
    async with rig(tmp_path, TEXT, "timeouts.beat=10ms") as it:
        await it.start_all()
        await it.until_heard("device-0", type="beat", rss=2)
        it.programs.hold("device-0", None)
        it.programs.hold("cloud", NodeHandle(3))
        await it.until_heard("cloud", type="beat", rss=3)
        it.heard.clear()
        await it.until_heard("cloud", type="beat", rss=3)
        assert [sender for sender, _ in it.heard] == ["cloud"]


async def test_stopping_asks_the_programs_and_then_lets_go_of_the_node(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.start_all()
        await it.until(("run", "cloud"))
        await it.programs.send("cloud", {"type": "stop"})
        await it.until(("release", "cloud", 0))
        assert ("SIGTERM", "cloud") in it.driver.requests
        await it.until_heard("cloud", type="done", reason="stopped")
        assert ProgramEnded.NAME not in [message.get("name") for _, message in it.heard]  # it was asked to end
        await it.programs.send("device-0", {"type": "stop"})  # its program never started
        await it.until(("release", "device-0", 0))


async def test_a_program_that_does_not_end_is_killed_after_its_grace(tmp_path: Path) -> None:
    async with rig(tmp_path, TEXT, "programs.cloud.stop_grace=50ms") as it:
        it.driver.stubborn.add("cloud")
        await it.start_all()
        await it.until(("run", "cloud"))
        began = asyncio.get_running_loop().time()
        await it.programs.send("cloud", {"type": "stop"})
        told = await it.until_heard("cloud", name=KilledAtEnd.NAME)
        assert asyncio.get_running_loop().time() - began >= 0.05
        assert (told["programs"], told["grace"]) == (["cloud"], 0.05)
        await it.until(("release", "cloud", 0))


async def test_a_last_line_counts_without_a_newline(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.start_all()
        await it.until(("run", "cloud"))
        it.print_bytes("cloud", b'::edgebed {"round": 2, "accuracy": 0.9}')
        it.driver.end_program("cloud", 0)
        assert (await it.until_heard("cloud", type="metric"))["values"] == {"scope": "global", "accuracy": 0.9}


async def test_the_last_line_of_a_killed_program_counts_if_it_is_whole(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.start_all()
        it.print("cloud", "serving")
        await it.until(("run", "device-0"))
        it.print_bytes("cloud", b'::edgebed {"round": 2}')
        it.print_bytes("device-0", b'::edgebed {"round": 2, "accu')
        for node in ("device-0", "cloud"):
            it.programs.hold(node, None)
        await it.until_heard("cloud", type="event", round=2, phase="end")
        assert [sender for sender, message in it.heard if message["type"] == "unreadable"] == []


async def test_other_work_continues_while_a_long_output_is_read(tmp_path: Path) -> None:
    """Each piece of the output leaves a turn to other tasks, such as the one that makes faults."""
    pieces, turns = 200, 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with rig(tmp_path) as it:
        await it.start_all()
        await it.until(("run", "cloud"))
        task = asyncio.create_task(other())
        line = b"x" * 63 + b"\n"
        it.print_bytes("cloud", line * (pieces * PIECE // len(line)) + b'::edgebed {"event": "last"}\n')
        before = turns
        await it.until_heard("cloud", name="last")
        task.cancel()
        assert turns - before >= pieces


async def test_output_is_read_on_when_its_messages_are_taken(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.start_all()
        await it.until(("run", "cloud"))
        it._hearing.cancel()
        line = b'::edgebed {"event": "one of many"}\n'
        it.print_bytes("cloud", line * (4 * PIECE // len(line)))
        await asyncio.sleep(0.1)  # a hundred looks
        assert it.programs._messages.qsize() <= PIECE // len(line) + 10


async def test_the_first_round_starts_with_the_program_if_rounds_are_planned(tmp_path: Path) -> None:
    async with rig(tmp_path, TEXT, "stop.rounds=2") as it:
        await it.start_all()
        await it.until_heard("cloud", name="round", round=1, phase="start")


FLOOD = b'::edgebed {"accuracy": 0.5}\n'


async def test_of_a_flood_the_record_has_the_allowance_and_the_number_of_the_rest(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.start_all()
        await it.until(("run", "cloud"))
        lines = 200_000
        it.print_bytes("cloud", FLOOD * lines)
        it.driver.end_program("cloud", 0)
        await it.until_heard("cloud", name=ProgramEnded.NAME)
        read = sum(message["type"] == "metric" for _, message in it.heard)
        dropped = sum(message["lines"] for _, message in it.heard if message.get("name") == LinesDropped.NAME)
        assert read + dropped == lines
        assert read >= LINES_AT_ONCE
        assert dropped > 0


async def test_a_flood_hides_no_line_by_which_a_program_is_ready(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.start_all()
        await it.until(("run", "cloud"))
        it.print_bytes("cloud", FLOOD * 20_000 + b"serving\n" + FLOOD * 20_000)
        await it.until(("run", "device-0"))


async def test_a_flood_keeps_no_other_node_from_reporting(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.start_all()
        it.print("cloud", "serving")
        await it.until(("run", "device-0"))
        it.print_bytes("cloud", FLOOD * 20_000)
        it.print("device-0", '::edgebed {"event": "seen"}')
        await it.until_heard("device-0", name="seen")


async def test_a_program_with_a_known_end_is_not_killed_while_its_output_is_read(tmp_path: Path) -> None:
    """Its messages are not taken, so that the rest of its output waits."""
    async with rig(tmp_path, TEXT, "programs.cloud.stop_grace=50ms") as it:
        await it.start_all()
        await it.until(("run", "cloud"))
        await asyncio.sleep(0.05)
        it._hearing.cancel()
        it.print_bytes("cloud", FLOOD * 5_000)
        await it.programs.send("cloud", {"type": "stop"})  # it ends on SIGTERM
        await asyncio.sleep(0.2)
        assert ("release", "cloud", 0) not in it.driver.requests
        it._hearing = asyncio.create_task(it._hear())
        await it.until(("release", "cloud", 0))
        assert KilledAtEnd.NAME not in [message.get("name") for _, message in it.heard]


WATCHED = TEXT.replace("  device:", "  watcher: {on: cloud, command: watch}\n  device:")


async def test_a_fault_kills_one_program_and_it_starts_again(tmp_path: Path) -> None:
    async with rig(tmp_path, WATCHED) as it:
        await it.start_all()
        await it.until(("run", "cloud.watcher"))
        await it.programs.crash("cloud.watcher", returns=True)
        await it.until(("SIGKILL", "cloud.watcher"))
        await it.until_phase("cloud.watcher", Phase.KILLED)
        with pytest.raises(DriverError, match=r"program cloud.watcher is not.*killed$"):
            await it.programs.crash("cloud.watcher", returns=True)
        it.driver.requests.clear()
        it.programs.revive("cloud.watcher")
        await it.until(("run", "cloud.watcher"))
        assert [request for request in it.driver.requests if request[0] == "release"] == []
        assert [
            message
            for _, message in it.heard
            if message.get("name") == ProgramEnded.NAME or message["type"] == "failed"
        ] == []


async def test_a_fault_that_is_over_before_the_end_is_known_starts_the_program_again(tmp_path: Path) -> None:
    async with rig(tmp_path, WATCHED) as it:
        await it.start_all()
        await it.until(("run", "cloud.watcher"))
        it.driver.requests.clear()
        await it.programs.crash("cloud.watcher", returns=True)
        it.programs.revive("cloud.watcher")
        await it.until(("run", "cloud.watcher"))


async def test_a_program_that_a_fault_kills_for_good_has_ended(tmp_path: Path) -> None:
    async with rig(tmp_path, WATCHED, "programs.watcher.ends_the_run=true") as it:
        await it.start_all()
        await it.until(("run", "cloud.watcher"))
        await it.programs.crash("cloud.watcher", returns=False)
        assert await it.programs.over == ("programs", None)


async def test_a_paused_program_continues_with_its_fault_or_to_end(tmp_path: Path) -> None:
    async with rig(tmp_path, WATCHED) as it:
        await it.start_all()
        await it.until(("run", "cloud.watcher"))
        await it.programs.pause("cloud.watcher")
        await it.programs.resume("cloud.watcher")
        await it.programs.resume("cloud.watcher")  # once only
        await it.programs.pause("cloud.watcher")
        await it.programs.send("cloud", {"type": "stop"})
        sent = [name for name, *of in it.driver.requests if of == ["cloud.watcher"] and name.startswith("SIG")]
        assert sent == ["SIGSTOP", "SIGCONT", "SIGSTOP", "SIGTERM", "SIGCONT"]
        await it.until(("release", "cloud", 0))


async def test_no_program_of_a_node_that_is_away_is_killed(tmp_path: Path) -> None:
    async with rig(tmp_path, WATCHED) as it:
        await it.start_all()
        await it.until(("run", "cloud.watcher"))
        it.programs.hold("cloud", None)
        await asyncio.sleep(0.01)
        with pytest.raises(DriverError):
            await it.programs.crash("cloud.watcher", returns=True)
