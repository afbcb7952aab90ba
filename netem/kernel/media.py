"""The kernel engine's shared media: `tc` arguments for a channel (`netem.media.profile`) and for the links that cross
it, and tc's JSON back to counters. Pure, no I/O.

A channel is an IFB device. Its HTB has the channel's rate, and a queue for each member, or with ``fifo`` one for all::

    htb 10: ── class 10:1 (the rate) ─┬─ class 10:2 ── bfifo      the first member
                                      └─ class 10:3 ── bfifo      the second member

Where the packets of a node come to the hub, filters by their target make the class the packet's priority and redirect
it to the device. Packets that leave the device go on to the bridge and to their link (`netem.kernel.tc`). Decisions:

- **Members only borrow.** Their classes have next to no rate of their own and no limit but the channel's, so HTB serves
  those with packets by deficit round robin with a quantum of one full frame (tc-htb(8)). A change of the rate is then a
  change of one class.
- **The buffer is divided equally** among the members, because each class has a queue of its own. It counts bytes.
- **Senders detach their packets from the sockets** (`detach_command`). In these queues, TCP's small queues would count
  them as not yet sent, and TCP would never fill the buffer. A netem without a delay on the sender's own device
  detaches them: it takes each packet at once, and hands it on after next to no time.
- **The burst is small** (BURST), because a burst passes unshaped after a pause. It must last until a late timer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netem import units
from netem.kernel.batch import reading
from netem.kernel.filters import INGRESS, actions_in, table_commands
from netem.kernel.police import UNLIMITED
from netem.media.profile import ChannelProfile
from netem.profile import FULL_FRAME

BURST = 0.004  # s at the channel's rate
FEWEST_FRAMES = 2  # full frames that the queue of a member holds at least
FIRST_MEMBER = 2
_DETACHED = 100_000  # packets; at 32 Gbit/s none waits for long
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
    """The bytes that one of so many members may have waiting."""
    if profile.rule.own_queues:
        parts = max(1, members)
    else:
        parts = 1
    return max(math.ceil(profile.buffer_bytes / parts), FEWEST_FRAMES * FULL_FRAME)


def detach_command(device: str) -> list[str]:
    """The command for the device of a node with links over channels. It can be repeated."""
    options = ("limit", str(_DETACHED), "rate", units.format_rate(UNLIMITED))
    return ["tc", "qdisc", "replace", "dev", device, "root", "netem", *options]


def class_of(profile: ChannelProfile, number: int) -> str:
    """The class of the member of this number, from 0."""
    return f"10:{FIRST_MEMBER + number:x}" if profile.rule.own_queues else _RATE_CLASS


def channel_commands(device: str, profile: ChannelProfile) -> list[list[str]]:
    """The commands that make a channel on a new IFB device; `member_commands` add the members."""
    commands = [
        ["tc", "qdisc", "add", "dev", device, "root", "handle", "10:", "htb", "default", "1"],
        _rate("add", device, profile),
    ]
    if profile.rule.own_queues:
        return commands
    return [*commands, _queue("add", device, profile, 1)]


def member_commands(device: str, profile: ChannelProfile, number: int, members: int) -> list[list[str]]:
    """The commands that add the member of this number to a channel; none with ``fifo``. They can be repeated."""
    if not profile.rule.own_queues:
        return []
    ceil = units.format_rate(UNLIMITED)
    burst = f"{round(UNLIMITED / 8 / 100)}b"
    return [
        [
            *("tc", "class", "replace", "dev", device, "parent", _RATE_CLASS),
            *("classid", class_of(profile, number), "htb"),
            *("rate", "8bit", "ceil", ceil, "burst", "1b", "cburst", burst, "quantum", str(FULL_FRAME)),
        ],
        _queue("replace", device, profile, members, number),
    ]


def change_commands(device: str, profile: ChannelProfile, numbers: int, members: int) -> list[list[str]]:
    """The commands that give a channel another rate and buffer in place. ``numbers``: the members that it has had, of
    which ``members`` are in it at present."""
    queues = range(numbers if profile.rule.own_queues else 1)
    return [_rate("change", device, profile), *(_queue("change", device, profile, members, each) for each in queues)]


def redirect_commands(device: str) -> list[list[str]]:
    """The commands that prepare a device, through which the packets of a node come to the hub, for `Match`es."""
    return [["tc", "qdisc", "add", "dev", device, "ingress"], *table_commands(device, INGRESS, by_target=True)]


def stop_redirecting_command(device: str) -> list[str]:
    return ["tc", "qdisc", "del", "dev", device, "ingress"]


def parse_queues(text: str) -> dict[str, Queue]:
    """The queues of a channel by class, from ``tc -j -s qdisc show dev DEVICE``. Raises TcError for other text."""
    with reading("qdisc show"):
        return {
            each["parent"]: Queue(each["packets"], each["bytes"], each["drops"], each["qlen"], each["backlog"])
            for each in json.loads(text)
            if each["kind"] == "bfifo"
        }


def parse_redirected(text: str) -> dict[int, Offered]:
    """What was redirected, by the number of its `Match`, from ``tc -j -s filter show dev DEVICE ingress``."""
    with reading("filter show"):
        found = {each["index"]: each["stats"] for each in actions_in(text) if each["kind"] == "mirred"}
        return {
            index: Offered(stats["packets"], stats["bytes"] + _HEADER * stats["packets"])
            for index, stats in found.items()
        }


class CommonQueue:
    """The queue of ``fifo`` by member: the kernel counts what each one offers, and what leaves only for all together.
    What left, was dropped or waits is attributed to members in proportion to what they had in the queue, in whole
    numbers. So the sums are exact, and all values are whenever the queue is empty and has dropped nothing."""

    def __init__(self) -> None:
        self._last = Queue()
        self._waiting: dict[str, Offered] = {}
        self._gone: dict[str, list[int]] = {}  # packets, bytes, dropped
        self._due: dict[str, list[float]] = {}  # what of its part is not in ``_gone``, or below 0 what is too much

    def add(self, now: Queue, offered: Mapping[str, Offered]) -> dict[str, Queue]:
        """The counters by member. ``now``: those of the queue. ``offered``: since the last time."""
        for member, more in offered.items():
            had = self._waiting.setdefault(member, Offered())
            self._waiting[member] = Offered(had.packets + more.packets, had.bytes + more.bytes)
        if not self._waiting:
            return {}
        of_packets, of_bytes = (_parts([each[place] for each in self._waiting.values()]) for place in (0, 1))
        for member in self._waiting:
            self._gone.setdefault(member, [0, 0, 0])
            self._due.setdefault(member, [0.0, 0.0, 0.0])
        for place, parts in enumerate((of_packets, of_bytes, of_packets)):
            grown = now[place] - self._last[place]
            due = [each[place] + part * grown for each, part in zip(self._due.values(), parts, strict=True)]
            for member, part, step in zip(self._waiting, due, _whole(due, grown), strict=True):
                self._gone[member][place] += step
                self._due[member][place] = part - step
        self._last = now
        waiting = [part * now.waiting for part in of_packets], [part * now.waiting_bytes for part in of_bytes]
        self._waiting = {member: Offered(*each) for member, *each in zip(self._waiting, *waiting, strict=True)}
        whole = zip(self._gone, _whole(waiting[0], now.waiting), _whole(waiting[1], now.waiting_bytes), strict=True)
        return {member: Queue(*[*self._gone[member], *each]) for member, *each in whole}


def _parts(values: Sequence[float]) -> list[float]:
    """The part of each in their sum; equal parts of nothing."""
    together = sum(values)
    return [each / together if together else 1 / len(values) for each in values]


def _whole(parts: Sequence[float], total: int) -> list[int]:
    """These parts of a total in whole numbers of 0 or more, of which the last gets the rest."""
    found: list[int] = []
    left = total
    for part in parts[:-1]:
        found.append(min(left, max(0, int(part + 1e-6))))
        left -= found[-1]
    return [*found, left]


def _rate(verb: str, device: str, profile: ChannelProfile) -> list[str]:
    rate = units.format_rate(float(round(profile.rate)))
    burst = f"{max(1, round(profile.rate * BURST / 8))}b"
    return [
        *("tc", "class", verb, "dev", device, "parent", "10:", "classid", _RATE_CLASS, "htb"),
        *("rate", rate, "ceil", rate, "burst", burst, "cburst", burst, "quantum", str(FULL_FRAME)),
    ]


def _queue(
    verb: str,
    device: str,
    profile: ChannelProfile,
    members: int,
    number: int = 0,
) -> list[str]:
    """The queue of a member, with its part of the buffer."""
    parent = class_of(profile, number)
    handle = f"{0x10 + int(parent.removeprefix('10:'), 16):x}:"
    limit = f"{queue_limit(profile, members)}b"
    return ["tc", "qdisc", verb, "dev", device, "parent", parent, "handle", handle, "bfifo", "limit", limit]
