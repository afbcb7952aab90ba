"""The socket of a run: who is accept_commands, what garbage does, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.host.process import user_socket
from orchestrator.record.directory import RunDirectory
from orchestrator.run.context import RunContext
from orchestrator.run.control.commands import accept_commands

LONG = b'{"op": "' + b"x" * user_socket.LONGEST + b'"}\n'


class Stage:
    """A run with one operation that adds, one that waits for ever and one that fails."""

    def __init__(self, folder: Path) -> None:
        self.directory = RunDirectory(folder)
        self.notes: list[str] = []
        self.done: list[int] = []

    def operations(self, uid: int) -> dict[str, Callable[..., dict[str, Any]]]:
        assert uid == os.geteuid()
        return {"add": self.add, "wait": lambda: {"work": self.wait()}, "fail": lambda: {"work": self.fail()}}

    def add(self, a: int, b: int) -> dict[str, Any]:
        if a < 0:
            raise ValueError("a: below 0")
        self.done.append(a + b)
        return {"sum": a + b}

    async def wait(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def fail(self) -> dict[str, Any]:
        raise KeyError("why")


def on(tmp_path: Path, act: Callable[[Stage], Coroutine[Any, Any, None]]) -> Stage:
    stage = Stage(tmp_path)

    async def main() -> None:
        run = SimpleNamespace(directory=stage.directory, note=stage.notes.append)
        async with accept_commands(cast(RunContext, run), stage.operations):
            await act(stage)

    asyncio.run(main())
    return stage


async def said(stage: Stage, *lines: bytes) -> list[Any]:
    """The reply to each line, on one connection; None if there is none."""
    reader, writer = await asyncio.open_unix_connection(str(stage.directory.commands))
    replies = []
    try:
        for line in lines:
            writer.write(line)
            replies.append(json.loads(await reader.readline() or b"null"))
    finally:
        writer.close()
    return replies


def test_requests_on_one_connection(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        add = b'{"op": "add", "a": 1, "b": 2, "id": 7}\n'
        assert await said(stage, add, add) == [{"id": 7, "ok": True, "sum": 3}] * 2
        assert await asyncio.to_thread(user_socket.ask, stage.directory.commands, {"op": "add", "a": 2, "b": 2}) == {
            "ok": True,
            "sum": 4,
        }

    stage = on(tmp_path, act)
    assert stage.done == [3, 3, 4]
    assert not stage.directory.commands.exists()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"\x00\xff\xfe\n", "a request is a JSON object"),
        (b"[" * 50_000 + b"\n", "a request is a JSON object"),
        (b"[]\n", "a request is a JSON object"),
        (b'{"op": "remove"}\n', "unknown op 'remove'; known are add, wait, fail"),
        (b'{"op": ["add"]}\n', "unknown op"),
        (b'{"op": "add", "a": -1, "b": 2}\n', "add: a: below 0"),
        (b'{"op": "add", "c": 1}\n', "add: "),
        (b'{"op": "fail"}\n', "KeyError: 'why' (a bug of edgebed"),
    ],
)
def test_garbage_changes_nothing(tmp_path: Path, line: bytes, error: str) -> None:
    async def act(stage: Stage) -> None:
        reply, after = await said(stage, line, b'{"op": "add", "a": 1, "b": 1}\n')
        assert error in reply["error"]
        assert after["sum"] == 2

    assert on(tmp_path, act).done == [2]


def test_a_line_without_an_end_and_one_that_is_too_long(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        assert await said(stage, LONG) == [None]
        reader, writer = await asyncio.open_unix_connection(str(stage.directory.commands))
        writer.write(b'{"op": "add", "a": 1, "b": 1}')
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()

    assert on(tmp_path, act).done == []


def test_a_node_that_waits_learns_that_the_run_is_over(tmp_path: Path) -> None:
    waiting: list[asyncio.Task[list[Any]]] = []

    async def act(stage: Stage) -> None:
        waiting.append(asyncio.create_task(said(stage, b'{"op": "wait"}\n')))
        assert await said(stage, b'{"op": "add", "a": 1, "b": 1}\n')

    async def main() -> list[Any]:
        stage = Stage(tmp_path)
        run = SimpleNamespace(directory=stage.directory, note=lambda sentence: None)
        async with accept_commands(cast(RunContext, run), stage.operations):
            await act(stage)
        return await waiting[0]

    assert asyncio.run(main()) == [{"error": "the run is over"}]


def test_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(stage: Stage) -> None:
        monkeypatch.setattr(user_socket, "user_of", lambda connected: os.geteuid() + 1)
        (reply,) = await said(stage, b'{"op": "add", "a": 1, "b": 1}\n')
        assert reply == {"error": f"this run belongs to {user_socket.user_name(os.geteuid())}"}

    assert on(tmp_path, act).done == []


def test_a_host_that_cannot_make_the_socket(tmp_path: Path) -> None:
    (tmp_path / "commands").mkdir()

    async def act(stage: Stage) -> None:
        assert len(stage.notes) == 1
        assert stage.notes[0].startswith("this run takes no manual faults: ")

    on(tmp_path, act)


def test_a_host_that_does_not_report_who_connects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_socket, "AVAILABLE", False)

    async def act(stage: Stage) -> None:
        assert not stage.directory.commands.exists()

    assert on(tmp_path, act).notes == []


def test_the_socket_of_a_killed_run_is_removed_with_its_keys(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    user_socket.listen(directory.commands).close()
    directory.remove_keys()
    assert not directory.commands.exists()
