"""The kernel engine's shared media: `tc` arguments for a channel (`netem.media.profile`) and for the links that cross
it, and tc's JSON back to counters. Pure, no I/O.

A channel is an IFB device. Its HTB has the channel's rate, and a queue for each member, or with ``fifo`` one for all::

    htb 10: ── class 10:1 (the rate) ─┬─ class 10:2 ── netem      the first member
                                      └─ class 10:3 ── netem      the second member

Where the packets of a node come to the hub, filters by their target make the class the packet's priority and redirect
it to the device. Packets that leave the device go on to the bridge and to their link (`netem.kernel.tc`). Decisions:

- **Members only borrow.** Their classes have next to no rate of their own and no limit but the channel's, so HTB serves
  those with packets by deficit round robin with a quantum of one full frame (tc-htb(8)). A change of the rate is then a
  change of one class.
- **The queues are netems without a delay.** netem detaches packets from their sockets. In another queue, TCP's small
  queues would count them as not yet sent, and TCP would never fill the buffer (see `netem.kernel.tc`).
- **The buffer is divided equally** among the members, because each class has a queue of its own. It counts packets, as
  full frames.
- **The burst is small** (BURST), because a burst passes unshaped after a pause. It must last until a late timer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netem import units
from netem.errors import TcError
from netem.kernel.filters import INGRESS, Match, filter_commands
from netem.kernel.tc import UNLIMITED
from netem.media.profile import ChannelProfile
from netem.profile import FULL_FRAME

BURST = 0.004  # s at the channel's rate
FEWEST_FRAMES = 2  # full frames that the queue of a member holds at least
FIRST_MEMBER = 2
_RATE_CLASS = "10:1"
_HEADER = 14  # bytes of Ethernet, which the filters do not count


class Queue(NamedTuple):
    """Counters of a queue: what has left it, what found no room, and what waits."""

    packets: int = 0
    bytes: int = 0
    dropped: int = 0
    waiting: int = 0
    waiting_bytes: int = 0


class Offered(NamedTuple):
    """What came to a channel."""

    packets: float = 0.0
    bytes: float = 0.0


def device_of(number: int) -> str:
    """The device of the channel of this number, from 0."""
    return f"medium{number}"


def queue_limit(profile: ChannelProfile, members: int) -> int:
    """The packets that one of so many members may have waiting."""
    parts = 1 if profile.share == "fifo" else max(1, members)
    return max(math.ceil(profile.buffer_bytes / parts / FULL_FRAME), FEWEST_FRAMES)


def class_of(profile: ChannelProfile, number: int) -> str:
    """The class of the member of this number, from 0."""
    return _RATE_CLASS if profile.share == "fifo" else f"10:{FIRST_MEMBER + number:x}"


def channel_commands(device: str, profile: ChannelProfile) -> list[list[str]]:
    """The commands that make a channel on a new IFB device; `member_commands` add the members."""
    commands = [
        ["tc", "qdisc", "add", "dev", device, "root", "handle", "10:", "htb", "default", "1"],
        _rate("add", device, profile),
    ]
    return [*commands, _queue("add", device, profile, 1)] if profile.share == "fifo" else commands


def member_commands(device: str, profile: ChannelProfile, number: int, members: int) -> list[list[str]]:
    """The commands that add the member of this number to a channel; none with ``fifo``."""
    if profile.share == "fifo":
        return []
    ceil, burst = units.format_rate(UNLIMITED), f"{round(UNLIMITED / 8 / 100)}b"
    return [
        [
            *("tc", "class", "add", "dev", device, "parent", _RATE_CLASS, "classid", class_of(profile, number), "htb"),
            *("rate", "8bit", "ceil", ceil, "burst", "1b", "cburst", burst, "quantum", str(FULL_FRAME)),
        ],
        _queue("add", device, profile, members, number),
    ]


def change_commands(device: str, profile: ChannelProfile, numbers: int, members: int) -> list[list[str]]:
    """The commands that give a channel another rate and buffer in place. ``numbers``: the members that it has had, of
    which ``members`` are in it at present."""
    queues = range(1 if profile.share == "fifo" else numbers)
    return [_rate("change", device, profile), *(_queue("change", device, profile, members, each) for each in queues)]


def redirect_commands(device: str, flows: Sequence[Match]) -> list[list[str]]:
    """The commands that redirect these packets, which come to the hub through a device, to channels."""
    return [["tc", "qdisc", "add", "dev", device, "ingress"], *filter_commands(device, flows, INGRESS)]


def stop_redirecting_command(device: str) -> list[str]:
    return ["tc", "qdisc", "del", "dev", device, "ingress"]


def parse_queues(text: str) -> dict[str, Queue]:
    """The queues of a channel by class, from ``tc -j -s qdisc show dev DEVICE``. Raises TcError for other text."""
    try:
        return {
            each["parent"]: Queue(each["packets"], each["bytes"], each["drops"], each["qlen"], each["backlog"])
            for each in json.loads(text)
            if each["kind"] == "netem"
        }
    except (ValueError, TypeError, KeyError) as error:
        raise TcError(f"cannot read the output of tc -j -s qdisc show: {error!r}") from error


def parse_redirected(text: str) -> dict[int, Offered]:
    """What was redirected, by the number of its `Match`, from ``tc -j -s filter show dev DEVICE ingress``."""
    try:
        actions = [each for entry in json.loads(text) for each in entry.get("options", {}).get("actions", ())]
        found = {each["index"]: each["stats"] for each in actions if each["kind"] == "mirred"}
        return {
            index: Offered(stats["packets"], stats["bytes"] + _HEADER * stats["packets"])
            for index, stats in found.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TcError(f"cannot read the output of tc -j -s filter show: {error!r}") from error


class CommonQueue:
    """The queue of ``fifo`` by member: the kernel counts what each one offers, and what leaves only for all together.
    What left, was dropped or waits is attributed to members in proportion to what they had in the queue. So the sums
    are exact, and all values are whenever the queue is empty and has dropped nothing."""

    def __init__(self) -> None:
        self._last = Queue()
        self._waiting: dict[str, Offered] = {}
        self._gone: dict[str, tuple[float, float, float]] = {}  # packets, bytes, dropped

    def add(self, now: Queue, offered: Mapping[str, Offered]) -> dict[str, Queue]:
        """The counters by member. ``now``: those of the queue. ``offered``: since the last time."""
        for member, more in offered.items():
            had = self._waiting.get(member, Offered())
            self._waiting[member] = Offered(had.packets + more.packets, had.bytes + more.bytes)
        packets, size = (sum(each[place] for each in self._waiting.values()) for place in (0, 1))
        found = {}
        for member, waiting in self._waiting.items():
            of_packets = waiting.packets / packets if packets else 1 / len(self._waiting)
            of_bytes = waiting.bytes / size if size else 1 / len(self._waiting)
            before = self._gone.get(member, (0.0, 0.0, 0.0))
            gone = (
                before[0] + of_packets * (now.packets - self._last.packets),
                before[1] + of_bytes * (now.bytes - self._last.bytes),
                before[2] + of_packets * (now.dropped - self._last.dropped),
            )
            self._gone[member] = gone
            self._waiting[member] = Offered(of_packets * now.waiting, of_bytes * now.waiting_bytes)
            found[member] = Queue(*(int(each + 1e-6) for each in (*gone, *self._waiting[member])))
        self._last = now if found else self._last
        return found


def _rate(verb: str, device: str, profile: ChannelProfile) -> list[str]:
    rate, burst = units.format_rate(float(round(profile.rate))), f"{max(1, round(profile.rate * BURST / 8))}b"
    return [
        *("tc", "class", verb, "dev", device, "parent", "10:", "classid", _RATE_CLASS, "htb"),
        *("rate", rate, "ceil", rate, "burst", burst, "cburst", burst, "quantum", str(FULL_FRAME)),
    ]


def _queue(verb: str, device: str, profile: ChannelProfile, members: int, number: int = 0) -> list[str]:
    """The queue of a member, with its part of the buffer."""
    parent = class_of(profile, number)
    handle = f"{0x10 + int(parent.removeprefix('10:'), 16):x}:"
    options = ("limit", str(queue_limit(profile, members)), "rate", units.format_rate(UNLIMITED))
    return ["tc", "qdisc", verb, "dev", device, "parent", parent, "handle", handle, "netem", *options]
