"""Files are written in order, while the event loop goes on."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from orchestrator.drivers.hosts.transfers.file_writer import FileWriter

PATIENCE = 20.0  # s


async def test_calls_follow_the_writes_before_them_and_the_loop_continues(tmp_path: Path) -> None:
    writer, slow, done = FileWriter(), threading.Event(), asyncio.Event()
    order: list[str] = []

    def write(words: str) -> None:
        assert slow.wait(PATIENCE)
        order.append(words)

    writer.add(write, "one")
    writer.then(order.append, "two")
    writer.add(write, "three")
    writer.then(done.set)
    await asyncio.sleep(0)
    assert order == []
    slow.set()
    await writer.flush()
    assert [each for each in order if each != "two"] == ["one", "three"]
    await asyncio.wait_for(done.wait(), PATIENCE)
    assert order.index("one") < order.index("two")


async def test_what_cannot_be_written_is_logged_and_the_next_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = FileWriter()
    writer.add(os.rmdir, tmp_path / "nothing")
    writer.add(os.mkdir, tmp_path / "made")
    await writer.flush()
    assert "No such file or directory" in caplog.text
    assert os.listdir(tmp_path) == ["made"]
