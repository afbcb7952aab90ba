"""Convert a trace of FedScale or FLASH to a CSV file for `clients.availability`. It is printed.

python -m orchestrator.verbs.scenarios.traces.convert fedscale client_behave_trace > stays.csv
python -m orchestrator.verbs.scenarios.traces.convert flash state_traces.json > stays.csv

FedScale (F. Lai et al., "FedScale: Benchmarking Model and System Performance of Federated Learning at Scale", ICML
2022): ``client_behave_trace``, a pickled dictionary. Each client has the starts ``active`` and the ends ``inactive`` of
its stays, which repeat after ``finish_time`` seconds. A pickle can name any function to be called. So a file is refused
before it is unpickled if it has more than plain data, and both the file and the memory for it are limited.

FLASH (C. Yang et al., "Characterizing Impacts of Heterogeneity in Federated Learning upon Large-Scale Smartphone Data",
WWW 2021): a JSON file. Each device has ``messages``, lines with a local time, a tab and a state. As in the authors'
code, a device is available while it is locked, charged and on Wi-Fi. A stay that the trace does not end is left out.
The stays of a device repeat after the time from its first message to its last. Times start at the midnight before the
first message of any device, and have no time zone.

Both programs look at whole seconds, and the second in which a stay ends is part of it. Here the end is exclusive, so
it is one second later.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import pickle
import pickletools
import resource
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.layout import print_error
from orchestrator.population.table import HEADER

LARGEST_FILE = 1 << 30  # bytes
MEMORY = 1 << 28  # bytes that a conversion may take, and
MEMORY_PER_BYTE = 64  # for each byte of the file: a stay of 8 bytes or more becomes four numbers and a tuple

PLAIN = """PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 EMPTY_LIST LIST APPEND APPENDS
EMPTY_DICT DICT SETITEM SETITEMS PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET"""
OPCODES = frozenset(PLAIN.split())  # those of pickletools; no tuples: to hash deeply nested ones ends the interpreter

STAMP = "%Y-%m-%d %H:%M:%S"
STATES = {
    "battery_charged_on": ("charged", True),
    "battery_charged_off": ("charged", False),
    "wifi": ("wifi", True),
    **dict.fromkeys(("unknown", "2g", "3g", "4g", "5g"), ("wifi", False)),
    "screen_lock": ("locked", True),
    "screen_unlock": ("locked", False),
}
WITHOUT_EFFECT = ("screen_on", "screen_off")  # and the battery's level, 55.0%


class Device(NamedTuple):
    """A device: its stays as (from, until) in order of time, and the period after which they repeat, in seconds; None:
    that of the table."""

    name: str
    stays: list[tuple[float, float]]
    period: float | None = None


@dataclass
class Devices:
    """The devices of a trace, and ``counts`` of what was left out or changed, by the words for it."""

    devices: list[Device] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def notes(self) -> list[str]:
        """What a reader of the trace must know."""
        away = sum(1 for device in self.devices if not device.stays)
        of_devices = [f"{away} of {len(self.devices)} devices are never available"] if away else []
        return of_devices + [f"{count} {what}" for what, count in sorted(self.counts.items())]

    def add(self, name: str, stays: list[tuple[float, float]], period: float | None) -> None:
        joined = _joined(stays)
        self.counts += Counter({"stays overlap or touch another one: they are one stay": len(stays) - len(joined)})
        self.devices.append(Device(name, joined, period))


def plain_data(pickled: bytes) -> Any:
    """The value of a pickle of lists, dictionaries, strings and numbers. ValueError for any other."""
    try:
        other = next((opcode.name for opcode, *_ in pickletools.genops(pickled) if opcode.name not in OPCODES), None)
        value = None if other else PlainUnpickler(io.BytesIO(pickled), encoding="latin-1").load()
    except MemoryError:
        raise
    except Exception as error:  # as the documentation of pickle says: not only UnpicklingError
        raise ValueError(f"is damaged, or no pickle ({type(error).__name__}: {error})") from None
    if other:
        raise ValueError(f"has {other}: only lists, dictionaries, strings and numbers are read")
    return value


class PlainUnpickler(pickle.Unpickler):
    """Finds no class and no function: a second guard, in case pickle and pickletools read a file differently."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError("only plain data is read")


def from_fedscale(pickled: bytes) -> Devices:
    """FedScale's trace. ValueError if the data has another form; nothing in it is run."""
    traces = plain_data(pickled)
    if not isinstance(traces, dict):
        raise ValueError(f"holds a {type(traces).__name__}, not a dictionary of clients")
    if None in traces:
        raise ValueError("has a client without a name")
    found, left = Devices(), len(pickled)
    for client, trace in traces.items():
        starts, ends, period = (_of(trace, client, key) for key in ("active", "inactive", "finish_time"))
        if not (isinstance(starts, list) and isinstance(ends, list) and len(starts) == len(ends)):
            raise ValueError(f"client {client}: active and inactive are not lists of one length")
        if (left := left - len(starts)) < 0:  # a list can be in a pickle once and in its value any number of times
            raise ValueError("has more stays than bytes")
        limit = _seconds(period, client)
        if not limit:
            raise ValueError(f"client {client}: finish_time is 0")
        stays = []
        for start, end in zip(starts, ends, strict=True):
            begin, stop = math.ceil(_seconds(start, client)), min(math.floor(_seconds(end, client)) + 1.0, limit)
            if end < start:
                found.counts["stays end before they start: left out"] += 1
            elif begin >= limit:
                found.counts["stays start after the client's finish_time, which no time reaches: left out"] += 1
            elif begin < stop:
                stays.append((float(begin), stop))
            else:
                found.counts["stays have no whole second: left out"] += 1
        found.add(str(client), stays, limit)
    return found


def from_flash(text: str) -> Devices:
    """FLASH's trace. ValueError if the text has another form."""
    try:
        devices = json.loads(text, object_pairs_hook=_without_repetition)
    except RecursionError:
        raise ValueError("is not JSON (it is nested too deeply)") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON ({error})") from None
    if not isinstance(devices, dict):
        raise ValueError(f"holds a {type(devices).__name__}, not an object of devices")
    found = Devices()
    read = {device: _messages(_of(each, device, "messages"), device, found.counts) for device, each in devices.items()}
    times = [t for messages in read.values() for t, _ in messages]
    if not times:
        raise ValueError("has no messages")
    midnight = min(times).replace(hour=0, minute=0, second=0)
    for device, messages in read.items():
        start, end = ((messages[place][0] - midnight) / timedelta(seconds=1) if messages else 0.0 for place in (0, -1))
        stays = [(first, min(last + 1, end)) for first, last in _while_ready(messages, midnight, found.counts)]
        parts = [part for stay in stays if stay[0] < stay[1] for part in _within(*stay, end - start)]
        found.add(device, parts, end - start or None)
    return found


def to_csv(found: Devices, *comments: str) -> str:
    """The devices as a trace of `orchestrator.population.table`, with ``comments`` and notes above."""
    if twice := [name for name, count in Counter(device.name for device in found.devices).items() if count > 1]:
        raise ValueError(f"has two devices of the name {twice[0]}")
    periodic = any(device.period is not None for device in found.devices)
    lines = [f"# {comment}" for comment in (*comments, *found.notes)] + [",".join(HEADER if periodic else HEADER[:3])]
    for device in found.devices:
        period = [] if not periodic else [_written(device.period)]
        times = [[_written(begin), _written(end)] for begin, end in device.stays] or [["", ""]]
        lines += [",".join([_quoted(device.name), *stay, *period]) for stay in times]
    return "\n".join(lines) + "\n"


def _written(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.15g}"


def _quoted(name: str) -> str:
    if not (name.isprintable() and name == name.strip() != ""):
        raise ValueError(f"{name!r} cannot be the name of a device")
    quoted = name.replace('"', '""')
    return f'"{quoted}"' if set(name) & set(',;#"') else name


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"has {name!r} twice")
    return found


def _of(trace: Any, device: Any, key: str) -> Any:
    if not isinstance(trace, dict) or key not in trace:
        raise ValueError(f"client {device} has no {key}")
    return trace[key]


def _seconds(value: Any, client: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        # Not its text: lists that hold one list many times may have more elements than fit anywhere.
        raise ValueError(f"client {client}: a {type(value).__name__} is no time in seconds")
    if not 0 <= value < math.inf:
        raise ValueError(f"client {client}: {value} is no time in seconds")
    return float(value)


def _messages(text: Any, device: Any, counts: Counter[str]) -> list[tuple[datetime, str]]:
    """The messages of a device in order of time."""
    if not isinstance(text, str):
        raise ValueError(f"device {device}: messages are not a text")
    found = []
    for line in text.splitlines():
        if not line.strip():
            continue
        stamp, _, state = line.strip().partition("\t")
        try:
            found.append((datetime.strptime(stamp.strip(), STAMP), state.strip().lower()))
        except ValueError:
            raise ValueError(f"device {device}: {line[:60]!r} is no time, tab and state") from None
        if found[-1][1] not in (*STATES, *WITHOUT_EFFECT) and not found[-1][1].endswith("%"):
            counts[f"messages have the state {found[-1][1][:40]!r}, which says nothing here"] += 1
    ordered = sorted(found, key=lambda message: message[0])
    counts += Counter({"devices have messages out of order: sorted by time": int(ordered != found)})
    return ordered


def _while_ready(
    messages: list[tuple[datetime, str]], midnight: datetime, counts: Counter[str]
) -> Iterator[tuple[float, float]]:
    """The first and the last second of each stay."""
    states = dict.fromkeys(("charged", "wifi", "locked"), False)
    since: float | None = None
    for t, state in messages:
        if state in STATES:
            name, value = STATES[state]
            states[name] = value
        now = (t - midnight) / timedelta(seconds=1)
        if all(states.values()) and since is None:
            since = now
        elif since is not None and not all(states.values()):
            yield since, now
            since = None
    if since is not None:
        counts["stays have no end in the trace: left out"] += 1


def _within(begin: float, end: float, period: float) -> Iterator[tuple[float, float]]:
    """A stay in the period that repeats: what passes its end continues at its start."""
    first = begin % period
    last = first + end - begin
    yield first, min(last, period)
    if last > period:
        yield 0.0, last - period


def _joined(stays: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Stays in order; those that overlap or touch are one."""
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(stays):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


@contextmanager
def limited_memory(most: int) -> Iterator[None]:
    """Give the process no more than ``most`` further bytes. ValueError if the body needs more."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + most, limits[1]))
    try:
        yield
    except MemoryError:
        raise ValueError(f"needs more than {most >> 20:,} MiB of memory") from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def convert(kind: str, path: Path) -> tuple[str, list[str]]:
    """A file as CSV, and the notes on it. OSError or ValueError if it cannot be read."""
    if (size := path.stat().st_size) > LARGEST_FILE:
        raise ValueError(f"is larger than {LARGEST_FILE >> 30} GiB")
    if not path.is_file():
        raise ValueError("is not a regular file")
    with limited_memory(MEMORY + MEMORY_PER_BYTE * size):
        if kind == "fedscale":
            found, origin = from_fedscale(path.read_bytes()), "FedScale"
        else:
            found, origin = from_flash(path.read_text("utf-8-sig")), "FLASH"
        return to_csv(found, f"from {path.name} of {origin}"), found.notes


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["fedscale", "flash"])
    parser.add_argument("file", type=Path)
    options = parser.parse_args(words)
    try:
        text, notes = convert(options.kind, options.file)
    except (OSError, ValueError) as error:
        print_error(f"{options.file}: {error}")
        return 2
    print(text, end="")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
