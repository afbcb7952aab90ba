"""What `make test` took, lane by lane: `python -m tests.lanes FOLDER` prints it, and keeps it as FOLDER/summary.

Each lane leaves NAME.times in the folder: the seconds from its start to its end, and what the shell's `times` prints of
its processes. Lanes of pytest also leave NAME.xml (JUnit). `start` has the time and the first line of /proc/stat
at the start of all lanes: so the processor time of containers counts, which are not children of a lane.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

SLOWEST = 25
WORKING = (0, 1, 2, 5, 6)
"""The fields of /proc/stat that are work: user, nice, system, interrupts, soft interrupts (proc(5))."""


class Lane(NamedTuple):
    """``wall`` and ``processor`` are seconds. ``tests``: the seconds of each, by its name."""

    name: str
    wall: float
    processor: float
    tests: dict[str, float]


def read(file: Path) -> Lane:
    """The lane with these times."""
    wall, times = file.read_text().split("\n", 1)
    junit = file.with_suffix(".xml")
    return Lane(file.stem, float(wall), processor_seconds(times), tests_of(junit) if junit.exists() else {})


def processor_seconds(times: str) -> float:
    """The sum of what `times` prints: user and system, of the shell and of its children."""
    total = 0.0
    for minutes, seconds in re.findall(r"(\d+)m([\d.]+)s", times):
        total += 60 * int(minutes) + float(seconds)
    return total


def tests_of(junit: Path) -> dict[str, float]:
    tests: dict[str, float] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        tests[name] = tests.get(name, 0.0) + float(case.get("time", "0"))
    return tests


def working(stat: str, ticks: int) -> float:
    """The seconds that processors have worked since the host's start, of the first line of /proc/stat."""
    fields = stat.split()[1:]
    return sum(int(fields[place]) for place in WORKING) / ticks


def table(lanes: list[Lane]) -> list[str]:
    """The longest lane first, then the slowest tests of all."""
    lines = [f"{'lane':<24}{'wall s':>8}{'processor s':>13}{'tests':>7}"]
    slow: list[tuple[float, str]] = []
    for lane in sorted(lanes, key=lambda lane: -lane.wall):
        lines.append(f"{lane.name:<24}{lane.wall:>8.0f}{lane.processor:>13.0f}{len(lane.tests):>7}")
        slow += [(seconds, f"{lane.name} {test}") for test, seconds in lane.tests.items()]
    slow.sort(reverse=True)
    return [*lines, *(f"{seconds:8.1f} s {test}" for seconds, test in slow[:SLOWEST])]


def main() -> int:
    folder = Path(sys.argv[1])
    lines = table([read(file) for file in sorted(folder.glob("*.times"))])
    began, before = (folder / "start").read_text().splitlines()
    now = Path("/proc/stat").read_text().splitlines()[0]
    ticks = os.sysconf("SC_CLK_TCK")
    busy = working(now, ticks) - working(before, ticks)
    lines.append(f"all lanes: {time.time() - float(began):.0f} s, in which the host's processors worked {busy:.0f} s")
    (folder / "summary").write_text("\n".join([*lines, ""]))
    print(*lines, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
