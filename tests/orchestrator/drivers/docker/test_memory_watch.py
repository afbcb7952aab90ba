"""Memory kills of containers on an Engine that reports none."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.drivers.docker.memory_watch import MemoryWatch

PLACE = "orchestrator.drivers.docker.memory_watch.memory_group"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends when its input does."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as made:
        yield made
        made.kill()


async def end(child: subprocess.Popen[bytes], reported: asyncio.Event) -> None:
    child.kill()
    async with asyncio.timeout(10):
        await reported.wait()


async def test_a_kill_is_reported_as_soon_as_the_process_has_ended(
    child: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PLACE, lambda pid, container: tmp_path if (pid, container) == (child.pid, "c1") else None)
    reported, nodes = asyncio.Event(), list[str]()

    def report(node: str) -> None:
        nodes.append(node)
        reported.set()

    watch = MemoryWatch(report)
    watch.watch("c1", "device-0", child.pid)
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    await end(child, reported)
    watch.look("c1")  # the Engine's event comes later
    assert nodes == ["device-0"]
    watch.close()


@pytest.mark.parametrize("count", ["oom_kill 0\n", None], ids=["another end", "the group is gone"])
async def test_another_end_is_none(
    child: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: str | None
) -> None:
    monkeypatch.setattr(PLACE, lambda pid, container: tmp_path)
    if count is not None:
        (tmp_path / "memory.oom_control").write_text(count)
    nodes: list[str] = []
    watch = MemoryWatch(nodes.append)
    watch.watch("c1", "device-0", child.pid)
    watch.look("c1")
    watch.look("never watched")
    assert nodes == []


async def test_what_cannot_be_seen_is_not_watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    watch = MemoryWatch(lambda node: None)
    monkeypatch.setattr(PLACE, lambda pid, container: None)
    watch.watch("c1", "device-0", os.getpid())
    monkeypatch.setattr(PLACE, lambda pid, container: tmp_path)
    watch.watch("c2", "device-0", 2**22 + 1)  # above the largest process id of Linux
    assert len(os.listdir("/proc/self/fd")) == before
    watch.close()
