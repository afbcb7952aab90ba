"""A program of a node as the control plane of programs sees it (`orchestrator.drivers.programs`)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from orchestrator.drivers.printed import Lines
from orchestrator.planning.programs import ProgramPlan

PIECE = 1 << 16  # bytes of one read of a log


class Phase(Enum):
    """The life of a program."""

    WAITING = "waiting"
    RUNNING = "running"
    READY = "ready"
    KILLED = "killed"  # by a fault, after which it starts again
    ENDED = "ended"


RUNS = (Phase.RUNNING, Phase.READY)


@dataclass
class Program:
    plan: ProgramPlan
    log: Path
    lines: Lines = field(default_factory=Lines)
    phase: Phase = Phase.WAITING
    said_ready: bool = False  # it has printed the line by which it is ready
    on_loopback: str = ""  # the address, if it listens on its port for its own node only
    fault: Phase | None = None  # a fault kills it: its phase after that
    paused: bool = False  # by a fault
    gone: bool = False  # it has ended, although the rest of its output may not have been read yet
    code: int | None = None
    read: int = 0  # bytes of its log
    printed: asyncio.Event = field(default_factory=asyncio.Event)  # since the latest look at its log
    life: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Stop watching it."""
        if self.life is not None:
            self.life.cancel()


def shown(program: Program) -> str:
    """The program in messages."""
    plan = program.plan
    command = Path(plan.command[0]).name
    return f"`{command}` on {plan.node}"


def awaited(program: Program) -> str:
    """What a program that did not become ready has not done."""
    ready = program.plan.ready
    if ready.port is None:
        return f"it printed no line with {ready.line!r}"
    if program.on_loopback:
        return (
            f"it listened on port {ready.port} of {program.on_loopback} only, where no other node reaches it"
            " (let it listen on 0.0.0.0 or ::),"
        )
    return f"it did not listen on port {ready.port}"


def piece(log: Path, start: int) -> bytes:
    """The next bytes of a log, at most `PIECE`."""
    with log.open("rb") as file:
        file.seek(start)
        return file.read(PIECE)
