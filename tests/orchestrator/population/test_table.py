from __future__ import annotations

import pytest

from orchestrator.population.table import AvailabilityTable


def test_stays_are_ordered_by_device_and_time() -> None:
    table = AvailabilityTable.read("# a comment\ndevice,from,until\nb,5,9\na,1,2\nb,0,3\n", "t.csv")
    assert (table.devices, table.repeat) == (2, 9.0)
    assert table.device.tolist() == [0, 0, 1]
    assert table.begin.tolist() == [0.0, 5.0, 1.0]
    assert table.end.tolist() == [3.0, 9.0, 2.0]


@pytest.mark.parametrize(
    ("text", "repeat", "message"),
    [
        ("", None, "t.csv: the first row must be device,from,until"),
        ("a,b\n", None, "t.csv: the first row must be device,from,until"),
        ("device,from,until\n", None, "t.csv: has no rows: no device would ever be there"),
        ("# x\ndevice,from,until\na,1\n", None, "t.csv:3: write a device and two times in seconds, like 17,3600,28800"),
        ("device,from,until\na,x,2\n", None, "t.csv:2: write a device and two times in seconds, like 17,3600,28800"),
        (
            "device,from,until\na,5,5\n",
            None,
            "t.csv:2: a stay lasts from 0 or later until a later time, not from 5 to 5",
        ),
        (
            "device,from,until\na,0,inf\n",
            None,
            "t.csv:2: a stay lasts from 0 or later until a later time, not from 0 to inf",
        ),
        ("device,from,until\nx,0,5\nx,4,6\n", None, "t.csv: stays of device x overlap"),
        ("device,from,until\na,0,5\n", 4.0, "t.csv: repeat is 4 s, but its last stay ends after 5 s"),
    ],
)
def test_mistakes_are_told_with_their_line(text: str, repeat: float | None, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        AvailabilityTable.read(text, "t.csv", repeat)
    assert str(caught.value) == message
