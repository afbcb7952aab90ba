from __future__ import annotations

from pathlib import Path

from orchestrator.host.load import parse_backlogs, parse_pressure, parse_stat, read_load

STAT = """\
cpu  600 40 200 1500 60 10 50 40 300 20
cpu0 300 20 100 750 30 5 25 20 150 10
intr 1
"""


def test_processors() -> None:
    # 6 user, 0.4 nice, 2 system, 0.1 and 0.5 interrupts, 0.4 taken by others; guests are in user and nice already.
    busy, idle = parse_stat(STAT, ticks=100)
    assert (round(busy, 6), round(idle, 6)) == (9.4, 15.6)


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
