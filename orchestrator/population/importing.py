"""Traces of others as stays: when each device was there, in seconds.

FedScale (F. Lai et al., "FedScale: Benchmarking Model and System Performance of Federated Learning at Scale", ICML
2022): ``client_behave_trace``, a pickled dictionary. Each client has the starts ``active`` and the ends ``inactive`` of
its stays, and begins anew after ``finish_time`` seconds.

FLASH (C. Yang et al., "Characterizing Impacts of Heterogeneity in Federated Learning upon Large-Scale Smartphone Data",
WWW 2021): a JSON file. Each device has ``messages``, lines with a local time, a tab and a state. As in the authors'
code, a device is there while it is locked, charged and on Wi-Fi. Times begin at the midnight before the first message
of any device. A stay that the trace does not end is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from orchestrator.population.table import HEADER
from orchestrator.population.unpickling import plain_data

STAMP = "%Y-%m-%d %H:%M:%S"
STATES = {
    "battery_charged_on": ("charged", True),
    "battery_charged_off": ("charged", False),
    "wifi": ("wifi", True),
    **dict.fromkeys(("unknown", "2g", "3g", "4g", "5g"), ("wifi", False)),
    "screen_lock": ("locked", True),
    "screen_unlock": ("locked", False),
}


class Stay(NamedTuple):
    """A device is there from ``begin`` to ``end``, in seconds."""

    device: str
    begin: float
    end: float


def from_fedscale(pickled: bytes) -> Iterator[Stay]:
    """The stays of FedScale's trace. ValueError if the data has another form; nothing in it is run."""
    traces = plain_data(pickled)
    if not isinstance(traces, dict):
        raise ValueError(f"holds a {type(traces).__name__}, not a dictionary of clients")
    for client, trace in traces.items():
        starts, ends, period = (_of(trace, client, key) for key in ("active", "inactive", "finish_time"))
        if not (isinstance(starts, list) and isinstance(ends, list) and len(starts) == len(ends)):
            raise ValueError(f"client {client}: active and inactive are not lists of one length")
        limit = _seconds(period, client)
        stays = [(_seconds(begin, client), _seconds(end, client)) for begin, end in zip(starts, ends, strict=True)]
        yield from _joined(str(client), ((begin, min(end, limit)) for begin, end in stays))


def from_flash(text: str) -> Iterator[Stay]:
    """The stays of FLASH's trace. ValueError if the text has another form."""
    try:
        devices = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON ({error})") from None
    if not isinstance(devices, dict):
        raise ValueError(f"holds a {type(devices).__name__}, not an object of devices")
    told = {str(device): _messages(_of(each, device, "messages"), device) for device, each in devices.items()}
    times = [t for messages in told.values() for t, _ in messages]
    if not times:
        raise ValueError("has no messages")
    midnight = min(times).replace(hour=0, minute=0, second=0)
    for device, messages in told.items():
        yield from _joined(device, _while_ready(messages, midnight))


def to_csv(stays: Iterable[Stay], *comments: str) -> str:
    """The stays as a trace of `orchestrator.population.table`, with ``comments`` above."""
    lines = [f"# {comment}" for comment in comments] + [",".join(HEADER)]
    lines += [f"{device.replace(',', ' ')},{begin:g},{end:g}" for device, begin, end in _rounded(stays)]
    return "\n".join(lines) + "\n"


def _rounded(stays: Iterable[Stay]) -> Iterator[tuple[str, int, int]]:
    """Whole seconds: a stay of less than a second is left out."""
    for device, begin, end in stays:
        if math.floor(end) > math.ceil(begin):
            yield device, math.ceil(begin), math.floor(end)


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


def _messages(text: Any, device: Any) -> list[tuple[datetime, str]]:
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
    return sorted(found, key=lambda message: message[0])


def _while_ready(messages: list[tuple[datetime, str]], midnight: datetime) -> Iterator[tuple[float, float]]:
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


def _joined(device: str, stays: Iterable[tuple[float, float]]) -> Iterator[Stay]:
    """The stays of a device in order; those that overlap or touch are one, and empty ones are left out."""
    present: tuple[float, float] | None = None
    for begin, end in sorted(stay for stay in stays if stay[0] < stay[1]):
        if present is not None and begin <= present[1]:
            present = present[0], max(present[1], end)
            continue
        if present is not None:
            yield Stay(device, *present)
        present = begin, end
    if present is not None:
        yield Stay(device, *present)
