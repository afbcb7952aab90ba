"""The script scenarios/traces/convert.py reads traces of FedScale and FLASH as their programs do, and no others."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.population.availability import FromTrace
from orchestrator.population.table import AvailabilityTable
from scenarios.traces.convert import (
    Device,
    Devices,
    PlainUnpickler,
    from_fedscale,
    from_flash,
    main,
    plain_data,
    to_csv,
)
from tests.texts import containing

CLIENT: dict[str, Any] = {
    "duration": 211625,
    "inactive": [65881, 133574, 208292],
    "finish_time": 200000,
    "active": [12788, 100044, 188992],
    "model": "CPH1801",
}


def fedscale(**clients: dict[str, Any]) -> Devices:
    return from_fedscale(pickle.dumps({int(name[1:]): CLIENT | changed for name, changed in clients.items()}))


def test_fedscale_reports_starts_and_ends() -> None:
    assert fedscale(c1={}).devices == [
        Device("1", [(12788.0, 65882.0), (100044.0, 133575.0), (188992.0, 200000.0)], 200000.0)  # cut at finish_time
    ]


def test_each_client_of_fedscale_is_online_when_its_program_says() -> None:
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
        containing("1 of 2 devices", "never available"),
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
        ({None: CLIENT}, "has a client without a name"),
        ({(1, 2): CLIENT}, "has TUPLE2: only lists, dictionaries, strings and numbers are read"),
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
        containing("2 of 4 devices", "never available"),
        "1 devices have messages out of order: sorted by time",
        "1 messages have the state 'phone_off', which says nothing here",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "holds a list, not an object of devices"),
        ('{"a": {}}', "client a has no messages"),
        ('{"a": {"messages": 5}}', containing("device a: messages are not")),
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
        ("line\nbreak", containing("'line\\nbreak' cannot", "device")),
        (" 1", containing("' 1' cannot", "device")),
        ("1", "has two devices of the name 1"),
    ],
)
def test_names_that_cannot_be_written_are_refused(name: str, message: str) -> None:
    found = fedscale(c1={})
    found.add(name, [], None)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        to_csv(found)
    assert str(caught.value) == message


def test_a_trace_is_printed_as_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "client_behave_trace"
    trace.write_bytes(pickle.dumps({7: {"active": [0], "inactive": [60], "finish_time": 100}}))
    assert main(["fedscale", str(trace)]) == 0
    assert capsys.readouterr().out == "# from client_behave_trace of FedScale\ndevice,from,until,period\n7,0,61,100\n"


def test_a_file_that_cannot_be_read_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "x"
    assert main(["flash", str(trace)]) == 2
    trace.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    assert main(["fedscale", str(trace)]) == 2
    missing, hostile = capsys.readouterr().err.splitlines()
    assert "No such file" in missing
    assert hostile == f"error: {trace}: has GLOBAL: only lists, dictionaries, strings and numbers are read"


def test_what_is_no_file_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        assert main(["fedscale", str(path)]) == 2
        assert capsys.readouterr().err == containing(f"error: {path}: is not a regular")


class Harmful:
    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.system, ("touch harmed",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_objects_and_calls_are_refused(protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert plain_data(pickle.dumps(CLIENT, protocol)) == CLIENT
    for value in (Harmful(), [1, {"a": Harmful()}], np.float64(1), os.system):
        harmful = pickle.dumps(value, protocol)
        with pytest.raises(ValueError, match=r"has .*GLOBAL: only lists"):
            plain_data(harmful)
        with pytest.raises(pickle.UnpicklingError, match="only plain data"):
            PlainUnpickler(io.BytesIO(harmful)).load()
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"(cos\nsystem\nS'touch harmed'\no.",  # OBJ
        b"(S'touch harmed'\nios\nsystem\n.",  # INST
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x01x\x85R.",  # STACK_GLOBAL
        b"N)R.",  # a call of None
        b"}N}b.",  # a state for None
        b"}(K\x01u.",  # a key without a value
        b"}(]K\x01u.",  # a list as a key
        b"h\x05.",  # from a memory that holds nothing
        b"X" + struct.pack("<I", 2**32 - 1) + b"x.",  # a text of 4 GiB that is not there
        b"I" + b"9" * 10_000 + b"\n.",
        pickle.dumps(CLIENT)[:-1],
        b"P1\n.",  # PERSID
        b"\x82\x01.",  # EXT1
    ],
)
def test_hostile_pickles_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        from_fedscale(data)


DEEP = 300_000
LONG = CLIENT | {"active": list(range(0, 200_000, 9)), "inactive": list(range(5, 200_005, 9))}


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"]r\xff\xff\xff\xff.", "needs more than 256 MiB of memory"),  # an index that makes a table of 64 GiB
        (b"}" + b"(K\x01" * 300_000 + b"K\x02u.", "is damaged"),
        (pickle.dumps(dict.fromkeys(range(1000), LONG)), "has more stays than bytes"),  # one client, a thousand times
        (b"}(" + b"K\x01" + DEEP * b"\x85" + b"K\x01u.", "has TUPLE1"),  # a key whose hash overflows the stack
        (b"}(" + b"(K\x01" + DEEP * b"\x91(" + b"K\x01u.", "has FROZENSET"),
        (b"}(K\x01" + DEEP * b"]" + (DEEP - 1) * b"a" + b"u.", "client 1 has no active"),  # lists are not hashed
    ],
)
def test_memory_and_stack_stay_bounded(data: bytes, error: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(data)
    program = (
        "import sys; from pathlib import Path; from scenarios.traces.convert import main\n"
        "main(sys.argv[1:]); print(Path('/proc/self/status').read_text())"
    )
    command = [sys.executable, "-c", program, "fedscale", str(tmp_path / "x")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr.startswith(f"error: {tmp_path / 'x'}: {error}")
    peak = next(int(line.split()[1]) for line in ended.stdout.splitlines() if line.startswith("VmHWM"))  # KiB
    assert peak < 400 << 10
