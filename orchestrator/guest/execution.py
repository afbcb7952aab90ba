"""Execute a run in a guest: as on the host, but with a copy of its record. The host's side gets each new row."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import tty
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.drivers.virtual.guest import FOLDER, MESSAGES
from orchestrator.errors import OrchestratorError, RunError
from orchestrator.guest.messages import Messages, RemoteView
from orchestrator.host.process.signals import Interruption
from orchestrator.host.process.user_socket import ask
from orchestrator.record.directory import RunDirectory
from orchestrator.record.writer import Record
from orchestrator.run.launch import planned_again
from orchestrator.run.lifecycle import execute
from orchestrator.run.options import RunOptions
from orchestrator.run.preparation import open_files, provide
from orchestrator.run.resume import past_of
from orchestrator.run.tasks import Ending
from orchestrator.together import Tasks
from orchestrator.verbs.live.inside import HOME, namespace_entry

ORDERS = Path("/dev/ttyS0")


def execute_here(path: Path, ended: str, *, calibrate: bool) -> None:
    """Execute the run in this folder; after its last checkpoint if it has ``ended`` before, in this way."""
    directory = RunDirectory(path)
    messages = Messages(path / FOLDER / MESSAGES)
    asyncio.run(_execute(directory, messages, ended, calibrate=calibrate))
    messages.flush()


async def _execute(
    directory: RunDirectory,
    messages: Messages,
    ended: str,
    *,
    calibrate: bool,
) -> None:
    interruption = Interruption()
    orders = asyncio.create_task(_obey(directory, messages, interruption))
    options = RunOptions(calibrate=calibrate)
    with contextlib.ExitStack() as holding:
        holding.enter_context(directory.held())
        try:
            past = None
            if ended:
                past = replace(past_of(directory), ended=ended)
            plan = planned_again(directory)
            provide(open_files(plan, options.processes))
            record = Record.reopen(directory.path)
            record.subscribers.append(messages.row)
            view = RemoteView(messages)
            ending = await execute(plan, directory, record, interruption, holding, options, view, past)
        except OrchestratorError as error:
            ending = Ending("failed", str(error))
            messages.send("refused", str(error))
    orders.cancel()
    messages.send("ended", ending.reason, ending.error)


async def _obey(directory: RunDirectory, messages: Messages, interruption: Interruption) -> None:
    """Obey the orders of the host's side. Its end is an order to end."""
    line = ORDERS.open("r+b", buffering=0)  # noqa: ASYNC230  a device that answers at once
    tty.setraw(line.fileno())
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), line)
    messages.send("listening")
    tasks = Tasks()
    try:
        while True:
            text = await reader.readline()
            if not text.endswith(b"\n"):
                os._exit(1)  # the host's side is gone
            order = json.loads(text)
            match order["do"]:
                case "end":
                    interruption.end()
                case "ask":
                    tasks.start(_ask(directory, messages, order))
                case "run":
                    tasks.start(_run_in_node(directory, messages, order))
    finally:
        await tasks.cancel()


async def _ask(directory: RunDirectory, messages: Messages, order: dict[str, Any]) -> None:
    """Pass a command of the user to the run."""
    try:
        reply = await asyncio.to_thread(ask, directory.commands, order["request"])
    except OSError as error:
        reply = {"error": f"the run takes no commands now ({error.strerror})"}
    messages.send("reply", order["number"], reply)


async def _run_in_node(directory: RunDirectory, messages: Messages, order: dict[str, Any]) -> None:
    """Run a command in a node. Its input and its output are files of the host."""
    folder = directory.path / FOLDER
    name = order["files"]
    reply: dict[str, Any]
    try:
        prefix = namespace_entry(directory.run, order["node"])
        if prefix is None:
            raise RunError(f"{order['node']} has no process")
        output = folder / f"{name}.out"
        with (folder / f"{name}.in").open("rb") as given, output.open("ab") as written:
            environment = {**os.environ, "HOME": HOME}
            start = partial(
                asyncio.create_subprocess_exec,
                stdin=given,
                stdout=written,
                stderr=subprocess.STDOUT,
                env=environment,
            )
            process = await start(*prefix, *order["argv"])
            code = await process.wait()
        reply = {"code": code}
    except (OSError, OrchestratorError) as error:
        reply = {"error": str(error)}
    messages.send("reply", order["number"], reply)
