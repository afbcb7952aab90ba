"""Tests of what nodes and programs print, on its way into their logs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from pathlib import Path

from orchestrator.drivers.output import CUT, LINES_ONLY, NOTHING, OutputLog, Pipe, copy_output
from orchestrator.drivers.printed import MARK, Printed


def note(log: Path, size: int, what: str) -> bytes:
    return CUT.format(log.stem, size, what).encode()


def test_beyond_its_limit_a_log_has_the_lines_for_the_record_only(tmp_path: Path) -> None:
    log = tmp_path / "cloud.log"
    log.write_bytes(b"before\n" * 100)
    figure = MARK.encode() + b'{"round": 1}\n'
    copy_output([b"12\n456", b"7\n", b"more\n" + figure[:5], figure[5:] + b"no\n" + figure[:-1]], log, largest=705)
    assert log.read_bytes() == b"before\n" * 100 + b"12\n" + note(log, 703, LINES_ONLY) + figure + figure


def test_output_that_fills_a_log_exactly_is_kept_and_what_follows_is_noted(tmp_path: Path) -> None:
    for name, filling, line_break in (("whole", b"12\n456\n", b""), ("cut", b"12\n4567", b"\n")):
        log = tmp_path / f"{name}.log"
        copy_output([filling, b"more\n", b"no\n"], log, largest=len(filling))
        size = len(filling) + len(line_break)
        assert log.read_bytes() == filling + line_break + note(log, size, LINES_ONLY)


def test_a_log_has_at_most_twice_its_limit_and_its_notes(tmp_path: Path) -> None:
    log, figure = tmp_path / "cloud.log", MARK.encode() + b'{"a": 1}\n'
    kept = OutputLog(log, largest=1000)
    for _ in range(10_000):
        kept.write(figure)
    kept.close()
    assert log.stat().st_size < 2000 + 400
    texts = [
        message["text"]
        for line in log.read_text().splitlines()
        for message in Printed().messages(line)
        if message.get("name") == "note"
    ]
    assert [LINES_ONLY in texts[0], NOTHING in texts[1], len(texts)] == [True, True, 2]
    json.loads(log.read_text().splitlines()[-1].removeprefix(MARK))


async def test_a_pipe_copies_a_flood_between_other_work(tmp_path: Path) -> None:
    """A program prints for ever at full speed: a timer of half a second still fires in time, and the log is bounded."""
    log, path = tmp_path / "cloud.log", tmp_path / "pipe"
    pipe = Pipe(path, log)
    with path.open("wb") as end:
        program = await asyncio.to_thread(lambda: subprocess.Popen(["yes", "x" * 60], stdout=end))
    pipe.start()
    began = time.monotonic()
    await asyncio.sleep(0.5)
    late = time.monotonic() - began - 0.5
    assert program.poll() is None
    program.kill()
    await asyncio.to_thread(program.wait)
    pipe.close()
    assert late < 1.0  # it is milliseconds; a busy host has its share
    assert log.stat().st_size > 1_000_000


async def test_what_is_in_a_pipe_at_the_end_of_its_program_comes_first(tmp_path: Path) -> None:
    log, path = tmp_path / "cloud.log", tmp_path / "pipe"
    pipe = Pipe(path, log)
    left_behind = os.open(path, os.O_WRONLY)  # by a process that goes on
    os.write(left_behind, b"last words")
    pipe.start()
    pipe.drain()
    assert log.read_bytes() == b"last words"
    os.write(left_behind, b", and more")
    async with asyncio.timeout(10):
        while log.stat().st_size < 20:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    os.close(left_behind)
    pipe.close()
    assert log.read_bytes() == b"last words, and more"


async def test_a_program_that_ends_before_its_pipe_is_read_leaves_its_output(tmp_path: Path) -> None:
    """The report of its end can overtake the answer that it was started."""
    log, path = tmp_path / "cloud.log", tmp_path / "pipe"
    pipe = Pipe(path, log)
    path.write_bytes(b"all of it")
    pipe.drain()
    pipe.drain()  # reaches the end of the pipe
    pipe.start()
    pipe.close()
    assert log.read_bytes() == b"all of it"
    assert not path.exists()
