"""FedScale's and FLASH's traces, in the forms that their programs read."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from orchestrator.population.importing import Stay, from_fedscale, from_flash, to_csv
from orchestrator.population.table import AvailabilityTable

CLIENT: dict[str, Any] = {
    "duration": 211625,
    "inactive": [65881, 133574, 208292],
    "finish_time": 200000,
    "active": [12788, 100044, 188992],
    "model": "CPH1801",
}


def test_fedscale_tells_starts_and_ends() -> None:
    assert list(from_fedscale(pickle.dumps({1: CLIENT}))) == [
        Stay("1", 12788.0, 65881.0),
        Stay("1", 100044.0, 133574.0),
        Stay("1", 188992.0, 200000.0),  # cut where the trace begins anew
    ]


def test_stays_that_overlap_are_one_and_empty_ones_none() -> None:
    trace = CLIENT | {"active": [50, 0, 90, 300], "inactive": [80, 60, 90, 200]}
    assert list(from_fedscale(pickle.dumps({1: trace}))) == [Stay("1", 0.0, 80.0)]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1], "holds a list, not a dictionary of clients"),
        ({1: 5}, "client 1 has no active"),
        ({1: {"active": [1]}}, "client 1 has no inactive"),
        ({1: CLIENT | {"active": [1]}}, "client 1: active and inactive are not lists of one length"),
        ({1: CLIENT | {"active": [1, 2, "x"]}}, "client 1: a str is no time in seconds"),
        ({1: CLIENT | {"finish_time": -1}}, "client 1: -1 is no time in seconds"),
        ({1: CLIENT | {"active": [1, 2, float("nan")]}}, "client 1: nan is no time in seconds"),
    ],
)
def test_other_pickles_are_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        list(from_fedscale(pickle.dumps(value)))
    assert str(caught.value) == message


def test_a_list_that_grows_without_end_is_refused_at_once() -> None:
    grown: list[Any] = [1]
    for _ in range(100):
        grown = [grown, grown]
    with pytest.raises(ValueError, match="a list is no time"):
        list(from_fedscale(pickle.dumps({1: CLIENT | {"active": [grown, 1, 2]}})))


MESSAGES = """\
2020-01-28 22:00:00\tscreen_lock
2020-01-28 22:10:00\tbattery_charged_on
2020-01-28 22:20:00\tWIFI
2020-01-28 22:20:00\t55.0%
2020-01-29 06:30:00\tscreen_unlock
2020-01-29 06:40:00\tscreen_lock
2020-01-29 07:00:00\tbattery_charged_off
2020-01-29 08:00:00\tbattery_charged_on
"""


def test_flash_devices_are_there_while_locked_charged_and_on_wifi() -> None:
    day, found = 86400.0, list(from_flash(json.dumps({"a": {"messages": MESSAGES, "model": "x"}})))
    assert found == [
        Stay("a", 22 * 3600 + 1200, day + 6.5 * 3600),
        Stay("a", day + 6 * 3600 + 2400, day + 7 * 3600),
    ]  # the last charge has no end in the trace


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "holds a list, not an object of devices"),
        ('{"a": {}}', "client a has no messages"),
        ('{"a": {"messages": 5}}', "device a: messages are not a text"),
        ('{"a": {"messages": "yesterday\\twifi"}}', "device a: 'yesterday\\twifi' is no time, tab and state"),
        ("{}", "has no messages"),
    ],
)
def test_other_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        list(from_flash(text))
    assert str(caught.value) == message
    with pytest.raises(ValueError, match="is not JSON"):
        list(from_flash("{"))


def test_what_is_written_can_be_read() -> None:
    stays = [*from_fedscale(pickle.dumps({1: CLIENT})), Stay("2,x", 0.5, 0.9), Stay("3", 1.5, 9.5)]
    text = to_csv(stays, "where from")
    assert text.startswith("# where from\ndevice,from,until\n1,12788,65881\n")
    table = AvailabilityTable.read(text, "t.csv")
    assert (table.devices, table.begin.tolist()[-1], table.end.tolist()[-1]) == (2, 2.0, 9.0)
