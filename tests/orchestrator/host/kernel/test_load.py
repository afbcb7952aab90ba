from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.host.kernel import load
from orchestrator.host.kernel.load import HostLoad, busy_host, parse_backlogs, parse_pressure, parse_stat, read_load
from orchestrator.host.kernel.usage import ProcessUsage
from tests.texts import containing

STAT = """\
cpu  600 40 200 1500 60 10 50 40 300 20
cpu0 300 20 100 750 30 5 25 20 150 10
cpu1 300 20 100 750 30 5 25 20 150 10
intr 1
"""


def test_processors() -> None:
    # 6 user, 0.4 nice, 2 system, 0.1 and 0.5 interrupts, 0.4 taken by others; guests are in user and nice already.
    for numbers in ({0}, {0, 1}):
        busy, idle = parse_stat(STAT, numbers, ticks=100)
        assert (round(busy, 6), round(idle, 6)) == (4.7 * len(numbers), 7.8 * len(numbers))


def test_pressure() -> None:
    text = "some avg10=2.37 avg60=5.00 avg300=6.31 total=1034863952\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    assert parse_pressure(text) == 1034.863952
    assert parse_pressure("") is None


def test_backlogs() -> None:
    assert parse_backlogs("0000a1 00000010 00000000\n0000b2 00000002 00000001\n") == 18


def test_this_host_can_be_read() -> None:
    before, after = read_load(), read_load()
    assert before.busy + before.idle > 0
    assert after.busy + after.idle >= before.busy + before.idle


def test_what_a_kernel_does_not_show_is_zero(tmp_path: Path) -> None:
    assert read_load(tmp_path) == (0.0, 0.0, None, 0)


def test_a_busy_host_is_named() -> None:
    assert busy_host(0.9, 2) is None
    assert busy_host(1.7, 2) == containing("busy", "1.7 of 2 processors")
    assert busy_host(2.04, 2) == containing("busy", "2.0 of 2 processors")  # counters are coarse


def test_only_the_work_of_others_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """In two seconds the processors work for 3.4 s: 0.4 s for this process, 1 s for one that it has started."""
    clock, own, loads = iter([0.0, 2.0]), iter([5.0, 5.4]), iter([(100.0, 0.0), (103.4, 0.6)])
    monkeypatch.setattr(load, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(load, "read_load", lambda: HostLoad(*next(loads), None, 0))
    monkeypatch.setattr(load, "_own_seconds", lambda: next(own))
    monkeypatch.setattr(load, "of_process", {Path("/proc/7"): ProcessUsage(cpu=1.0)}.__getitem__)
    monkeypatch.setattr(load, "affinity", lambda: {0, 1})
    assert load.Others().busy([7]) == containing("busy", "1.0 of 2 processors")
