"""Traces and tables, worked out by hand."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from netem.errors import ScheduleError
from netem.profile import FULL_FRAME, LinkProfile
from netem.schedules.schedule import until
from netem.schedules.traces import TableForm, Trace, TraceTable
from tests.texts import containing

BASE = LinkProfile(latency=0.02, jitter=0.003, rate=10e6, buffer=0.2)
FRAME = FULL_FRAME * 8  # bits


def rates(trace: Trace, number: int) -> list[float]:
    """Full frames a window lets cross, for the first windows."""
    changes = islice(trace.changes(BASE), number)
    return [0 if change.profile.silence else (change.profile.rate or 0) * trace.window / FRAME for change in changes]


def test_a_tiny_trace_worked_example() -> None:
    # Opportunities at 5, 5, 12, 30 and 40 ms; it lasts 40 ms. Windows of 10 ms: (0, 10] has two, (10, 20] one,
    # (20, 30] one, (30, 40] one; then it begins anew.
    trace = Trace.read("5\n5\n12\n30\n40\n", "up.txt", window=0.01)
    assert rates(trace, 8) == pytest.approx([2, 1, 1, 1, 2, 1, 1, 1])
    assert trace.duration == 0.04
    assert trace.mean_rate == pytest.approx(5 * FRAME / 0.04)
    first = next(trace.changes(BASE))
    assert first.profile == BASE.merged(rate=2 * FRAME / 0.01)  # all else is the base's
    assert [change.at for change in islice(trace.changes(BASE), 4)] == [0.0, 0.01, 0.02, 0.03]


def test_windows_run_on_over_the_end_of_the_trace() -> None:
    # 1, 2 and 25 ms, lasting 25 ms: in windows of 10 ms the second time has 26, 27 and 50 ms.
    assert rates(Trace.read("1\n2\n25", "t", window=0.01), 5) == pytest.approx([2, 0, 3, 0, 1])


def test_a_window_without_opportunities_is_silent_until_the_next_that_has_some() -> None:
    changes = list(islice(Trace.read("1\n2\n3\n50", "t", window=0.01).changes(BASE), 6))
    assert [change.profile.silence for change in changes] == [0.0, 0.03, 0.02, 0.01, 0.0, 0.0]
    assert [(change.profile.rate or 0) * 0.01 / FRAME for change in changes] == pytest.approx([3, 1, 1, 1, 1, 3])
    assert all(change.profile.merged(silence=None, rate=10e6, buffer=0.2) == BASE for change in changes)


def test_a_line_0_falls_together_with_the_end() -> None:
    # 0, 4, 10: of 10 ms. The opportunity at 0 was before time began; at 10 ms it comes with that of the end.
    trace = Trace.read("0\n4\n10", "t", window=0.01)
    assert rates(trace, 3) == pytest.approx([3, 3, 3])
    assert trace.crossed(0.004) == 1
    assert trace.crossed(0.01) == 3


def test_one_line_is_a_steady_link() -> None:
    # The README of the Mahimahi traces: a file with just "1" is one packet each millisecond, 12 Mbit/s of IP.
    trace = Trace.read("1\n", "12mbit", window=0.1)
    assert trace.mean_rate == pytest.approx(12.112e6)  # 1514 bytes for each packet of 1500
    assert len(until(trace, BASE, 5.0)) == 1


def test_no_opportunity_is_lost_or_made_over_many_windows() -> None:
    lines = [number * number // 7 for number in range(3, 200)]
    trace = Trace.read("\n".join(map(str, lines)), "t", window=0.033)
    windows = 1000
    counted = trace.crossed(windows * trace.window)
    cycles, rest = divmod(33 * windows, lines[-1])
    assert counted == cycles * len(lines) + sum(line <= rest for line in lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", containing("t: lasts 0 ms", "last", "above 0")),
        ("0\n0\n", containing("t: lasts 0 ms", "last", "above 0")),
        ("1\n2.5\n", containing("t:2: '2.5' is not a whole")),
        ("1\n# 2\n1,5\n", containing("t:3: '1,5' is not a whole")),
        ("1\n-3\n", containing("t:2: '-3' is not a whole")),
        ("7\n5\n", containing("t:2: 5 ms comes after")),
        ("9" * 50, containing("t:1: '9999999999999999999999999999999999999...' is not a whole")),
    ],
)
def test_traces_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Trace.read(text, "t")
    assert str(caught.value) == message


def test_windows_have_a_least_length() -> None:
    with pytest.raises(ScheduleError, match=r"^window.*least 10ms, not 1ms$"):
        Trace.read("5", "t", window=0.001)


def test_a_table_with_units_in_its_columns() -> None:
    text = "t_s, latency_ms, rate [mbit], loss_%, jitter (ms)\n0, 25, 100, 0, 1\n2.5,40,0,,\n4, 30, 50, 1.5, 2\n"
    table = TraceTable.read(text, "drive.csv")
    assert [(change.at, change.profile, change.cut) for change in table.changes(BASE)] == [
        (0.0, LinkProfile(latency=0.025, jitter=0.001, rate=100e6, buffer=0.2), False),
        (2.5, LinkProfile(latency=0.04, jitter=0.003, rate=10e6, buffer=0.2), True),  # a rate of 0 cuts
        (4.0, LinkProfile(latency=0.03, jitter=0.002, rate=50e6, loss=0.015, buffer=0.2), False),
    ]


def test_a_table_with_units_in_its_cells_that_repeats() -> None:
    table = TraceTable.read("t,rate\n1s,5mbit\n\n2s,6mbit\n", "t.csv", repeat=3.0)
    found = [(change.at, change.profile.rate) for change in islice(table.changes(BASE), 6)]
    assert found == [(0.0, 10e6), (1.0, 5e6), (2.0, 6e6), (3.0, 10e6), (4.0, 5e6), (5.0, 6e6)]


def test_the_extremes_of_a_table_have_the_mean_of_its_rate() -> None:
    # 4 mbit for 1 s and 10 mbit for 2 s: 8 mbit on average.
    table = TraceTable.read("t_s,rate_mbit,latency_ms\n0,4,30\n1,10,10\n", "t.csv", repeat=3.0)
    low, high = BASE.merged(rate=4e6, latency=0.01), BASE.merged(rate=8e6, latency=0.03)
    assert table.extremes(BASE) == [BASE, low, high]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", containing("t.csv: is empty")),
        ("t_s,rate_mbit\n", containing("t.csv: has no rows under")),
        ("t_s,speed\n0,1\n", containing("t.csv:1: 'speed' is no column")),
        ("rate_mbit,loss\n1,0\n", containing("t.csv:1: one column is t", "time")),
        ("t_s,loss,loss\n0,0,0\n", containing("t.csv:1: the column loss is listed")),
        ("t_s,rate_mbit\n0,1\n1\n", "t.csv:3: has 1 cells for 2 columns"),
        ("t_s,rate_mbit\n1,1\n1,2\n", containing("t.csv:3: t: 1 s", "not after")),
        (
            "t_s,loss\n0,1\n",
            containing("t.csv:2: loss: '1' has no unit"),
        ),
    ],
)
def test_tables_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        TraceTable.read(text, "t.csv")
    assert str(caught.value) == message


def test_a_table_ends_before_it_repeats() -> None:
    with pytest.raises(ScheduleError, match=r"^repeat: 2s must be after"):
        TraceTable.read("t_s,loss\n2,50%\n", "t.csv", repeat=2.0)


def test_plan_json_knows_files_by_name_and_hash() -> None:
    trace = Trace.read("5\n10\n", "up.txt", window=0.2)
    assert trace.to_mapping() == {
        "trace": "up.txt",
        "window": "200ms",
        "opportunities": 2,
        "duration": "10ms",
        "sha256": "d9eea9a18a1f10e0219529634b969516ca06370bcd1633bf026977e138bd7ae3",
    }
    table = TraceTable.read("t_s,loss\n0,50%\n", "x.csv")
    described = {key: value for key, value in table.to_mapping().items() if key != "sha256"}
    assert described == {"csv": "x.csv", "rows": 1, "last": "0s"}
    assert trace.describe() == "rate by up.txt, 2.42mbit on average, in windows of 200ms; again every 10ms"
    assert table.describe() == "loss by x.csv, 1 rows to 0s"


def rows_of(text: str, **form: Any) -> list[tuple[float, dict[str, float], bool]]:
    return [(row.at, row.values, row.cut) for row in TraceTable.read(text, "m.csv", form=TableForm(**form)).rows]


MEASURED = "timestamp,device,throughput_mbps,rtt_ms\n1641763224,pixel,20,40\n1641763225,pixel,0,90\n"
COLUMNS = {"t": "timestamp", "rate": "throughput_mbps"}
UNITS = {"t": "s", "rate": "mbit"}
ONE = [(0.0, {"rate": 1.5e6}, False), (1.0, {"rate": 2e6}, False)]


@pytest.mark.parametrize(
    ("text", "form", "expected"),
    [
        # One row for each row of the table in docs/explanation/fidelity.md, "What files are read".
        (
            MEASURED,
            {"columns": COLUMNS, "units": UNITS, "half_rtt": "rtt_ms", "start": "first-row"},
            [(0.0, {"rate": 20e6, "latency": 0.02}, False), (1.0, {"latency": 0.045}, True)],
        ),
        ("\ufefft_s,rate_mbit\n0,1.5\n1,2\n", {}, ONE),
        ("t_s;rate_mbit\r\n0;1,5\r\n1;2\r\n", {}, ONE),
        ("t_s\trate_mbit\n0\t1.5\n1\t2\n", {}, ONE),
        ("# by a logger\n\nt_s,rate_mbit\n0,1.5\n\n,\n1,2\n", {}, ONE),
        ("rate_mbit,t_s\n1.5,0\n2,1\n", {}, ONE),
        ("t_s,rate_mbit,loss_%\n0,1.5,\n1,2,\n", {}, ONE),
        ('"t_s","rate_mbit"\n"0","1.5"\n"1","2"\n', {}, ONE),
        ("t_s,rate_mbit\n36000,1.5\n36001,2\n", {"start": "first-row"}, ONE),
        (
            "t_s,rate_mbit\n36000,1.5\n36001,2\n",
            {"start": "training"},
            [(36000.0, {"rate": 1.5e6}, False), (36001.0, {"rate": 2e6}, False)],
        ),
        ("t_s,rate_mbit\n7200,1.5\n18000,2\n", {}, [(7200.0, ONE[0][1], False), (18000.0, ONE[1][1], False)]),
        ("t_s,speed\n0,1\n", {}, "m.csv:1: 'speed' is no column; these"),
        ("t,v\n0,1\n", {"columns": {"rate": "w"}}, "m.csv:1: there is no column 'w'"),
        ("t,v,v\n0,1,1\n", {"columns": {"rate": "v"}}, "m.csv:1: there is more than one"),
        (
            "t_s,v\n0,20ms\n",
            {"columns": {"latency": "v", "jitter": "v"}},
            "m.csv:1: each of latency, jitter needs",
        ),
        ("t_s,rate_mbit\n0,1\n", {"units": {"loss": "%"}}, "m.csv:1: units: there is no column"),
        ("t_s,latency_ms,rtt_ms\n0,1,2\n", {"half_rtt": "rtt_ms"}, "m.csv:1: the column latency is listed"),
        (
            MEASURED,
            {"columns": COLUMNS},
            "m.csv:2: t: '1641763224' has no unit",
        ),
        (
            "t_s,mbps\n0,5\n",
            {"columns": {"rate": "mbps"}},
            "m.csv:2: rate: '5' has no unit",
        ),
        (
            "t_s,throughput_mbps\n0,5\n",
            {"columns": {"rate": "throughput_mbps"}},
            "m.csv:2: rate: '5mbps': the unit 'mbps'",
        ),
        ("t_s,rate_mbit\n0,1,5\n", {}, "m.csv:2: has 3 cells for 2 columns"),
        (
            't_s,rate_mbit\n0,"1,5"\n',
            {},
            "m.csv:2: rate: '1,5mbit' is not a",
        ),
        (
            "t_s;rate_mbit\n0;1.000,5\n",
            {},
            "m.csv:2: rate: '1.000,5mbit' is not a",
        ),
        (
            "t_s,rate_mbit\n0,NaN\n",
            {},
            "m.csv:2: rate: 'NaNmbit' is not a",
        ),
        (
            "t_s,rate_mbit\n2022-01-09 21:20,1\n",
            {},
            "m.csv:2: t: '2022-01-09 21:20s' is not",
        ),
        ("t_s,rate_mbit\n0,-1\n", {}, "m.csv:2: rate: '-1mbit': a rate cannot"),
        ("t_s,rate_mbit\n2,1\n\n2,1\n", {}, "m.csv:4: t: 2 s is not"),
        ("t_s,rate_mbit\n2,1\n1,1\n", {}, "m.csv:3: t: 1 s is not"),
        (
            "t_s,rate_mbit\n1641763224,0.02\n1641763225,0.01\n",
            {},
            "m.csv:2: t: the first row is",
        ),
        (
            "t_ms,rate_mbit\n1641763224000,0.02\n1641763225000,0.01\n",
            {},
            "m.csv:2: t: the first row is",
        ),
        (
            "t_s,rate_mbit\n36000,0.02\n36001,0.01\n",
            {},
            "m.csv:2: t: the first row is",
        ),
    ],
)
def test_measurement_files_as_people_have_them(text: str, form: dict[str, Any], expected: Any) -> None:
    if isinstance(expected, str):
        with pytest.raises(ScheduleError) as caught:
            rows_of(text, **form)
        assert str(caught.value).startswith(expected)
    else:
        rows = rows_of(text, **form)
        assert [(at, cut) for at, _, cut in rows] == [(at, cut) for at, _, cut in expected]
        assert [values for _, values, _ in rows] == [pytest.approx(values) for _, values, _ in expected]


def test_traces_with_blank_lines_comments_and_foreign_ends_of_lines() -> None:
    assert Trace.read("\ufeff# uplink\r\n1\r\n\r\n2\r\n", "t").opportunities == (1, 2)


def test_tables_that_are_read_differently_are_different_schedules() -> None:
    plain, halved = (
        TraceTable.read("t_s,rate_mbit,ms\n0,1,2\n", "m.csv", form=TableForm(**form))
        for form in (
            {"columns": {"latency": "ms"}, "units": {"latency": "ms"}},
            {"half_rtt": "ms", "units": {"half_rtt": "ms"}},
        )
    )
    assert plain.to_mapping() != halved.to_mapping()
