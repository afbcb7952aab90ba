from __future__ import annotations

import pytest

from orchestrator.population.table import AvailabilityTable
from tests.texts import containing


def test_stays_are_ordered_by_device_and_time() -> None:
    table = AvailabilityTable.read("# a comment\ndevice,from,until\nb,5,9\na,1,2\nb,0,3\n", "t.csv")
    assert (table.names, table.repeat, table.period.tolist()) == (("b", "a"), 9.0, [9.0, 9.0])
    assert table.device.tolist() == [0, 0, 1]
    assert table.begin.tolist() == [0.0, 5.0, 1.0]
    assert table.end.tolist() == [3.0, 9.0, 2.0]
    assert (table.lines, table.stays(0)) == ((3, 4), [(0.0, 3.0), (5.0, 9.0)])


STAYS = (("a", 0.0, 3.0), ("b", 5.0, 9.0))


@pytest.mark.parametrize(
    "text",
    [
        "device,from,until\na,0,3\nb,5,9\n",
        "\ufeffdevice,from,until\r\na,0,3\r\nb,5,9\r\n",
        "Client;From;Until\na;0;3\nb;5;9",
        "node\tfrom\tuntil\n\na\t0\t3\n\t\t\nb\t5\t9\n",
        'device, from, until\n# x\n"a", 0.0, 3e0\nb , 5 , 9\n',
        "device,from,until\nb,5,9\na,0,3\n",
        "device,from,until,period\na,0,3,\nb,5,9,\n",
    ],
    ids=["plain", "byte order mark, CRLF", "semicolons", "tabs, empty rows", "blanks, quotes", "unsorted", "no period"],
)
def test_files_as_programs_write_them(text: str) -> None:
    table = AvailabilityTable.read(text, "t.csv")
    found = zip((table.names[device] for device in table.device), table.begin, table.end, strict=True)
    assert tuple(sorted(found)) == STAYS
    assert table.repeat == 9.0


def test_each_device_may_have_a_period_and_no_stay() -> None:
    table = AvailabilityTable.read("device,from,until,period\na,0,3,10\na,5,6,10\nb,,,20\nc,1,2,\n", "t.csv", 8.0)
    assert (table.devices, table.repeat, table.period.tolist()) == (3, 8.0, [10.0, 20.0, 8.0])
    assert table.device.tolist() == [0, 0, 2]
    assert AvailabilityTable.read(f"{OWN}a,0,5,9\n", "t.csv", 9.0).repeat is None


OWN = "device,from,until,period\n"
WRITE = containing("t.csv:2: write a device", "17,3600,28800")


@pytest.mark.parametrize(
    ("text", "repeat", "message"),
    [
        ("", None, "t.csv: is empty"),
        ("a,b\n", None, containing("t.csv:1: the first row must")),
        ("device,from,until\n", None, containing("t.csv: has no stays")),
        ("device,from,until\na,,\n", None, containing("t.csv: has no stays")),
        ("# x\ndevice,from,until\na,1\n", None, "t.csv:3: has 2 cells for 3 columns"),
        ("device,from,until\na,1,\n", None, WRITE),
        ("device,from,until\n,1,2\n", None, WRITE),
        ("device,from,until\na,x,2\n", None, WRITE),
        ("device;from;until\na;1,5;2\n", None, WRITE),
        ("device,from,until\na,5,5\n", None, containing("t.csv:2: a stay lasts", "5 to 5")),
        ("device,from,until\na,-1,5\n", None, containing("t.csv:2: a stay lasts", "-1 to 5")),
        ("device,from,until\na,0,inf\n", None, containing("t.csv:2: a stay lasts", "0 to inf")),
        ("device,from,until\na,nan,3\n", None, containing("t.csv:2: a stay lasts", "nan to 3")),
        (
            "device,from,until\na,0,5\na,,\n",
            None,
            containing("t.csv:3: a has another row"),
        ),
        ("device,from,until\nx,0,5\nx,4,6\n", None, containing("t.csv:3: overlaps the stay", "line 2")),
        ("device,from,until\nx,0,5\ny,4,6\nx,0,5\n", None, containing("t.csv:4: overlaps the stay", "line 2")),
        ("device,from,until\na,0,5\n", 4.0, "t.csv:2: ends at 5 s, after the repeat of 4 s"),
        (f"{OWN}a,0,5,4\n", None, "t.csv:2: ends at 5 s, after the period of 4 s"),
        (f"{OWN}a,0,5,9\na,6,7,8\n", None, containing("t.csv:3: device", "period", "9 s already")),
        (f"{OWN}a,0,5,0\n", None, containing("t.csv:2: period: write seconds")),
        (f"{OWN}a,0,5,nan\n", None, containing("t.csv:2: period: write seconds above 0")),
        (f"{OWN}a,0,5,9\n", 10.0, containing("t.csv: has a period", "device")),
        (
            "device,from,until\na,1641763224,1641763225\n",
            None,
            containing("t.csv:2: 1641763225 looks", "1970 (2022-01-09 21:20:25 UTC)"),
        ),
        (
            "device,from,until\na,1641763224000,1641763225000\n",
            None,
            containing("t.csv:2: 1641763225000 looks", "1970 (2022-01-09 21:20:25 UTC)"),
        ),
    ],
)
def test_mistakes_are_reported_with_their_line(text: str, repeat: float | None, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        AvailabilityTable.read(text, "t.csv", repeat)
    assert str(caught.value) == message
