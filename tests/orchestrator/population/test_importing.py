"""FedScale's and FLASH's traces, in the forms that their programs read."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

from orchestrator.population.availability import FromTrace
from orchestrator.population.importing import Device, Devices, from_fedscale, from_flash, to_csv
from orchestrator.population.table import AvailabilityTable

CLIENT: dict[str, Any] = {
    "duration": 211625,
    "inactive": [65881, 133574, 208292],
    "finish_time": 200000,
    "active": [12788, 100044, 188992],
    "model": "CPH1801",
}


def fedscale(**clients: dict[str, Any]) -> Devices:
    return from_fedscale(pickle.dumps({int(name[1:]): CLIENT | changed for name, changed in clients.items()}))


def test_fedscale_tells_starts_and_ends() -> None:
    assert fedscale(c1={}).devices == [
        Device("1", [(12788.0, 65882.0), (100044.0, 133575.0), (188992.0, 200000.0)], 200000.0)  # cut at finish_time
    ]


def test_each_client_of_fedscale_is_there_when_its_program_says() -> None:
    """FedScale's client_metadata.is_active: a client is there if active <= t mod finish_time <= inactive."""
    traces: dict[int, dict[str, Any]] = {
        1: {"inactive": [50, 90], "finish_time": 100, "active": [40, 80]},
        2: {"inactive": [700], "finish_time": 1000, "active": [600]},
        3: {"inactive": [], "finish_time": 1000, "active": []},
        4: {"inactive": [30.5, 99], "finish_time": 99, "active": [0.5, 98]},
    }
    table = AvailabilityTable.read(to_csv(from_fedscale(pickle.dumps(traces))), "t.csv")
    trace = FromTrace(200, 1, table)
    there = np.array([trace.there(float(t)) for t in range(2000)])
    for client, each in traces.items():
        stays = list(zip(each["active"], each["inactive"], strict=True))
        expected = [any(a <= t % each["finish_time"] <= b for a, b in stays) for t in range(2000)]
        own = there[:, np.flatnonzero(trace.device == client - 1)]
        assert own.size
        assert (own == np.array(expected)[:, None]).all()
    assert there[:, np.flatnonzero(trace.device == 0)[0]].mean() == pytest.approx(0.22)
    assert not there[:, np.flatnonzero(trace.device == 2)].any()


def test_what_fedscale_leaves_no_time_for_is_counted() -> None:
    found = fedscale(
        c1={"active": [50, 0, 90, 300], "inactive": [80, 60, 90, 200]},
        c2={"active": [200_000, 7.2], "inactive": [200_001, 7.8]},
    )
    assert [device.stays for device in found.devices] == [[(0.0, 81.0), (90.0, 91.0)], []]
    assert found.notes == [
        "1 of 2 devices are never available",
        "1 stays end before they start: left out",
        "1 stays have no whole second: left out",
        "1 stays overlap or touch another one: they are one stay",
        "1 stays start after the client's finish_time, which no time reaches: left out",
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1], "holds a list, not a dictionary of clients"),
        ({1: 5}, "client 1 has no active"),
        ({1: {"active": [1]}}, "client 1 has no inactive"),
        ({1: CLIENT | {"active": [1]}}, "client 1: active and inactive are not lists of one length"),
        ({1: CLIENT | {"active": [1, 2, "x"]}}, "client 1: a str is no time in seconds"),
        ({1: CLIENT | {"finish_time": 0}}, "client 1: finish_time is 0"),
        ({1: CLIENT | {"finish_time": -1}}, "client 1: -1 is no time in seconds"),
        ({1: CLIENT | {"active": [1, 2, float("nan")]}}, "client 1: nan is no time in seconds"),
    ],
)
def test_other_pickles_are_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        from_fedscale(pickle.dumps(value))
    assert str(caught.value) == message


def test_a_list_that_grows_without_end_is_refused_at_once() -> None:
    grown: list[Any] = [1]
    for _ in range(100):
        grown = [grown, grown]
    with pytest.raises(ValueError, match="a list is no time"):
        from_fedscale(pickle.dumps({1: CLIENT | {"active": [grown, 1, 2]}}))


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


def flash(**messages: str) -> Devices:
    return from_flash(json.dumps({name: {"messages": text, "model": "x"} for name, text in messages.items()}))


def test_flash_devices_are_there_while_locked_charged_and_on_wifi() -> None:
    """FLASH's timer.py: ready if start <= now <= end, where now is (t - first message) modulo the time to the last
    message, here 36,000 s, after the first one. So 80,400 to 109,800 s are 8,400 to 36,000 and 0 to 1,800 s."""
    found = flash(a=MESSAGES)
    assert found.devices == [Device("a", [(0, 1801), (2400, 3601), (8400, 36000)], 36000)]
    assert found.notes == ["1 stays have no end in the trace: left out"]


def test_flash_devices_repeat_by_their_own_length_and_some_never_come() -> None:
    day = "2020-01-28 {}\tscreen_lock\n2020-01-28 {}\tbattery_charged_on\n2020-01-28 {}\twifi\n2020-01-28 {}\t4g\n"
    found = flash(
        b=day.format("00:00:00", "00:00:00", "00:01:00", "00:02:00"),
        c=day.format("00:00:10", "00:01:10", "00:01:40", "00:01:50") + "2020-01-28 00:01:45\tphone_off\n",
        d="2020-01-28 01:00:00\twifi\n",
        e="",
    )
    assert [(device.name, device.period) for device in found.devices] == [
        ("b", 120),
        ("c", 100),
        ("d", None),
        ("e", None),
    ]
    assert [device.stays for device in found.devices] == [[(60, 120)], [(0, 10)], [], []]
    assert found.notes == [
        "2 of 4 devices are never available",
        "1 devices have messages out of order: sorted by time",
        "1 messages have the state 'phone_off', which says nothing here",
    ]


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
        from_flash(text)
    assert str(caught.value) == message
    with pytest.raises(ValueError, match="is not JSON"):
        from_flash("{")


def test_a_device_that_flash_has_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="has 'a' twice"):
        from_flash('{"a": {"messages": ""}, "a": {"messages": ""}}')


def test_what_is_written_can_be_read() -> None:
    """Names with the file's own signs, and times of which six digits would not suffice: two weeks are 1,209,601 s."""
    found = fedscale(c1={})
    for name in ("2,x", "2 x", "#3", 'a"b', ";"):
        found.add(name, [(1_209_601.0, 1_209_602.5)], 2_000_000.0)
    text = to_csv(found, "where from")
    assert text.startswith("# where from\ndevice,from,until,period\n1,12788,65882,200000\n")
    table = AvailabilityTable.read(text, "t.csv")
    assert table.names == ("1", "2,x", "2 x", "#3", 'a"b', ";")
    assert (table.begin[-1], table.end[-1], table.period[-1]) == (1_209_601.0, 1_209_602.5, 2_000_000.0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("line\nbreak", "'line\\nbreak' cannot be the name of a device"),
        (" 1", "' 1' cannot be the name of a device"),
        ("1", "has two devices of the name 1"),
    ],
)
def test_names_that_cannot_be_written_are_refused(name: str, message: str) -> None:
    found = fedscale(c1={})
    found.add(name, [], None)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        to_csv(found)
    assert str(caught.value) == message
