"""What programs print is read in pieces, which may end anywhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from orchestrator.drivers.base import ProgramEnd
from orchestrator.drivers.programs import Programs
from orchestrator.host.directory import RunDirectory
from orchestrator.planning.making import make_plan
from orchestrator.planning.programs import ProgramPlan
from orchestrator.scenario.reading import parse

TEXT = "programs: {cloud: serve, device: {command: ask, after: cloud}}\ntopology: {cloud: true, edges: 0, devices: 1}\n"


class Idle:
    """A driver whose programs run on."""

    def __init__(self) -> None:
        self.held: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.ends: asyncio.Queue[ProgramEnd] = asyncio.Queue()

    async def run(self, program: ProgramPlan, log: Path) -> None:
        pass

    async def terminate(self, program: ProgramPlan) -> None:
        pass

    async def release(self, node: str, code: int = 0) -> None:
        pass


async def until(programs: Programs, name: str | None = None) -> dict[str, Any]:
    """The next event, or the next of this name."""
    async for _, message in programs.messages():
        if message["type"] == "event" and name in (None, message["name"]):
            return message
    raise AssertionError("there are no more messages")


async def test_a_character_may_come_in_two_pieces(tmp_path: Path) -> None:
    directory, driver = RunDirectory(tmp_path), Idle()
    directory.logs.mkdir()
    log = directory.logs / "device-0.log"
    programs = Programs(make_plan(parse(TEXT, "f.yaml"), None), directory, driver)
    try:
        async with asyncio.timeout(10):
            for node in ("cloud", "device-0"):
                driver.held.put_nowait((node, 1))
                await anext(programs.messages())
                await programs.send(node, {"type": "start"})
            printed = '::edgebed {"event": "first"}\n::edgebed {"event": "müde"}\n'.encode()
            middle = printed.index("ü".encode()) + 1
            log.write_bytes(printed[:middle])
            await until(programs, "first")
            with log.open("ab") as file:
                file.write(printed[middle:])
            told = await until(programs)
    finally:
        await programs.close()
    assert told["name"] == "müde"
