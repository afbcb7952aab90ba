"""Tests of what PID namespaces use."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.host.kernel.usage import ProcessUsage, UsageReader

TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def process(
    proc: Path, pid: int, space: str, times: tuple[int, int, int, int], pages: int, kilobytes: int | None = 0
) -> None:
    """A process whose name has blanks and a parenthesis, as names may (proc(5))."""
    folder = proc / str(pid)
    (folder / "ns").mkdir(parents=True)
    (folder / "ns" / "pid").symlink_to(f"pid:[{space}]")
    before, between = " ".join("0" * 10), " ".join("0" * 6)
    (folder / "stat").write_text(f"{pid} (a ) name) S {before} {' '.join(map(str, times))} {between} {pages}\n")
    if kilobytes is not None:
        (folder / "smaps_rollup").write_text(f"00400000-7ffd rw-p\nRss: 9 kB\nPss: {kilobytes} kB\nPss_Anon: 1 kB\n")


def test_processes_of_one_namespace_are_added(tmp_path: Path) -> None:
    process(tmp_path, 10, "1", (1, 2, 3, 4), 5, 8)
    process(tmp_path, 11, "1", (TICKS, 0, 0, 0), 1, 2)
    process(tmp_path, 12, "1", (0, 0, 0, 0), 0, None)  # it has ended, and its parent has not read its code
    process(tmp_path, 20, "2", (0, 0, 0, 0), 7, None)
    process(tmp_path, 30, "3", (9, 9, 9, 9), 9)
    (tmp_path / "meminfo").write_text("")
    assert UsageReader(tmp_path).read({"a": 10, "b": 20, "gone": 40}) == {
        "a": ProcessUsage(10 / TICKS + 1, 6 * PAGE, 10 * 1024),
        "b": ProcessUsage(0.0, 7 * PAGE),
        "gone": ProcessUsage(pss=0),
    }


def test_this_process_uses_something() -> None:
    reader = UsageReader()
    found = reader.read({"here": os.getpid()})["here"]
    assert found.cpu > 0
    assert found.rss > 0
    assert reader.read({"here": os.getpid()})["here"].pss is None  # too early to measure it again
