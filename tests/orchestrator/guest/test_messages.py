"""What the guest writes. How the host's side reads it is in `tests/orchestrator/run/test_in_guest.py`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.guest.messages import Messages, RemoteView
from orchestrator.run.display.snapshot import Snapshot


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "messages"
    path.touch()
    return path


def read(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


async def test_messages_are_written_when_the_loop_has_nothing_else_to_do(file: Path) -> None:
    messages = Messages(file)
    messages.send("listening")
    messages.row("event", (1.5, None, "note", None, None, "{}"))
    assert read(file) == []
    await asyncio.sleep(0)
    assert read(file) == [["listening"], ["row", "event", [1.5, None, "note", None, None, "{}"]]]
    messages.send("ended", "rounds", None)
    messages.flush()
    await asyncio.sleep(0)
    assert read(file)[2:] == [["ended", "rounds", None]]


async def test_a_message_is_one_line_of_utf_8(file: Path) -> None:
    messages = Messages(file)
    messages.send("line", 1.0, "two\nlines, grüße")
    messages.send("line", 1.0, "from a name of a file: \udcff")
    messages.flush()
    assert [line for _, _, line in read(file)] == ["two\nlines, grüße", "from a name of a file: ?"]


async def test_the_file_must_exist(tmp_path: Path) -> None:
    """The host's side makes it, so one that is missing is of another run."""
    messages = Messages(tmp_path / "messages")
    messages._unwritten.append("[]\n")
    with pytest.raises(FileNotFoundError):
        messages.flush()


async def test_lines_have_the_time_of_the_run(file: Path) -> None:
    messages = Messages(file)
    view = RemoteView(messages)
    view.line("starting")
    view.keep_time(lambda: 2.5)
    view.line("training")
    messages.flush()
    assert read(file) == [["line", 0.0, "starting"], ["line", 2.5, "training"]]


async def test_a_snapshot_has_all_its_fields(file: Path) -> None:
    messages = Messages(file)
    snapshot = Snapshot(
        t=3.0, round=1, rounds_total=2, nodes_up=3, nodes_total=3, traffic={("emulated", "edge-cloud"): 8.0}
    )
    RemoteView(messages).update(snapshot)
    messages.flush()
    ((kind, fields),) = read(file)
    assert kind == "snapshot"
    assert fields.keys() == vars(snapshot).keys()
    assert fields["traffic"] == [["emulated", "edge-cloud", 8.0]]
