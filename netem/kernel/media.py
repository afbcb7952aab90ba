"""The kernel engine's shared media: `tc` arguments for a channel (`netem.media.profile`) and for the links that cross
it, and tc's JSON back to counters. Pure, no I/O.

A channel is an IFB device. Its HTB has the channel's rate, and a queue for each member, or with ``fifo`` one for all::

    htb 10: ── class 10:1 (the rate) ─┬─ class 10:2 ── bfifo      the first member
                                      └─ class 10:3 ── bfifo      the second member

Where the packets of a node come to the hub, filters by their target make the class the packet's priority and redirect
it to the device. Packets that leave the device continue to the bridge and to their link (`netem.kernel.tc`). Decisions:

- **Members only borrow.** Their classes have next to no rate of their own and no limit but the channel's, so HTB serves
  those with packets by deficit round robin with a quantum of one full frame (tc-htb(8)). A change of the rate is then a
  change of one class.
- **The buffer is divided equally** among the members, because each class has a queue of its own. It counts bytes.
- **Senders detach their packets from the sockets** (`detach_command`). In these queues, TCP's small queues would count
  them as not yet sent, and TCP would never fill the buffer. A netem without a delay on the sender's own device
  detaches them: it takes each packet immediately, and hands it on after next to no time.
- **The burst is small** (BURST), because a burst passes unshaped after a pause. It must last until a late timer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netem import units
from netem.kernel.batch import Commands, reading
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
    share = math.ceil(profile.buffer_bytes / parts)
    return max(share, FEWEST_FRAMES * FULL_FRAME)


def detach_command(device: str) -> list[str]:
    """The command for the device of a node with links over channels. It can be repeated."""
    rate = units.format_rate(UNLIMITED)
    return f"tc qdisc replace dev {device} root netem limit {_DETACHED} rate {rate}".split()


def class_of(profile: ChannelProfile, number: int) -> str:
    """The class of the member of this number, from 0."""
    if not profile.rule.own_queues:
        return _RATE_CLASS
    return f"10:{FIRST_MEMBER + number:x}"


def channel_commands(device: str, profile: ChannelProfile) -> Commands:
    """The commands that make a channel on a new IFB device; `member_commands` add the members."""
    root = f"tc qdisc add dev {device} root handle 10: htb default 1".split()
    commands = [root, _rate("add", device, profile)]
    if not profile.rule.own_queues:
        commands.append(_queue("add", device, profile, 1))
    return commands


def member_commands(
    device: str,
    profile: ChannelProfile,
    number: int,
    members: int,
) -> Commands:
    """The commands that add the member of this number to a channel; none with ``fifo``. They can be repeated."""
    if not profile.rule.own_queues:
        return []
    class_id = class_of(profile, number)
    ceil = units.format_rate(UNLIMITED)
    burst = f"{round(UNLIMITED / 8 / 100)}b"
    command = f"tc class replace dev {device} parent {_RATE_CLASS} classid {class_id} htb"
    options = f"rate 8bit ceil {ceil} burst 1b cburst {burst} quantum {FULL_FRAME}"
    return [
        f"{command} {options}".split(),
        _queue("replace", device, profile, members, number),
    ]


def change_commands(
    device: str,
    profile: ChannelProfile,
    numbers: int,
    members: int,
) -> Commands:
    """The commands that give a channel another rate and buffer in place. ``numbers``: how many members it has had;
    ``members``: how many are in it at present."""
    commands = [_rate("change", device, profile)]
    queues = numbers if profile.rule.own_queues else 1
    for number in range(queues):
        commands.append(_queue("change", device, profile, members, number))
    return commands


def redirect_commands(device: str) -> Commands:
    """The commands that prepare a device, through which the packets of a node come to the hub, for `Match`es."""
    ingress = f"tc qdisc add dev {device} ingress".split()
    return [ingress, *table_commands(device, INGRESS, by_target=True)]


def stop_redirecting_command(device: str) -> list[str]:
    return f"tc qdisc del dev {device} ingress".split()


def parse_queues(text: str) -> dict[str, Queue]:
    """The queues of a channel by class, from ``tc -j -s qdisc show dev DEVICE``. Raises TcError for other text."""
    queues = {}
    with reading("qdisc show"):
        for qdisc in json.loads(text):
            if qdisc["kind"] == "bfifo":
                queues[qdisc["parent"]] = Queue(
                    packets=qdisc["packets"],
                    bytes=qdisc["bytes"],
                    dropped=qdisc["drops"],
                    waiting=qdisc["qlen"],
                    waiting_bytes=qdisc["backlog"],
                )
    return queues


def parse_redirected(text: str) -> dict[int, Offered]:
    """What was redirected, by the number of its `Match`, from ``tc -j -s filter show dev DEVICE ingress``."""
    redirected = {}
    with reading("filter show"):
        for action in actions_in(text):
            if action["kind"] == "mirred":
                stats = action["stats"]
                packets = stats["packets"]
                size = stats["bytes"] + _HEADER * packets
                redirected[action["index"]] = Offered(packets, size)
    return redirected


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
            before = self._waiting.setdefault(member, Offered())
            packets = before.packets + more.packets
            size = before.bytes + more.bytes
            self._waiting[member] = Offered(packets, size)
        if not self._waiting:
            return {}
        queues_before = self._waiting.values()
        of_packets = _parts([queue.packets for queue in queues_before])
        of_bytes = _parts([queue.bytes for queue in queues_before])
        for member in self._waiting:
            self._gone.setdefault(member, [0, 0, 0])
            self._due.setdefault(member, [0.0, 0.0, 0.0])
        for place, parts in enumerate((of_packets, of_bytes, of_packets)):
            growth = now[place] - self._last[place]
            self._attribute(place, parts, growth)
        self._last = now
        queued_packets = [part * now.waiting for part in of_packets]
        queued_bytes = [part * now.waiting_bytes for part in of_bytes]
        whole_packets = _whole(queued_packets, now.waiting)
        whole_bytes = _whole(queued_bytes, now.waiting_bytes)
        queues = {}
        for number, member in enumerate(self._waiting):
            self._waiting[member] = Offered(queued_packets[number], queued_bytes[number])
            packets, size, dropped = self._gone[member]
            queues[member] = Queue(
                packets,
                size,
                dropped,
                whole_packets[number],
                whole_bytes[number],
            )
        return queues

    def _attribute(self, place: int, parts: Sequence[float], growth: int) -> None:
        """Attribute the ``growth`` of a counter to the members: each gets its part."""
        due = []
        for member, part in zip(self._due, parts, strict=True):
            due_before = self._due[member][place]
            due.append(due_before + part * growth)
        steps = _whole(due, growth)
        for member, part, step in zip(self._due, due, steps, strict=True):
            self._gone[member][place] += step
            self._due[member][place] = part - step


def _parts(values: Sequence[float]) -> list[float]:
    """The part of each in their sum; equal parts of nothing."""
    together = sum(values)
    if not together:
        return [1 / len(values)] * len(values)
    return [value / together for value in values]


def _whole(parts: Sequence[float], total: int) -> list[int]:
    """These parts of a total in whole numbers of 0 or more. The last gets the rest."""
    numbers: list[int] = []
    left = total
    for part in parts[:-1]:
        wanted = max(0, int(part + 1e-6))
        number = min(left, wanted)
        numbers.append(number)
        left -= number
    return [*numbers, left]


def _rate(verb: str, device: str, profile: ChannelProfile) -> list[str]:
    rate = units.format_rate(float(round(profile.rate)))
    burst = f"{max(1, round(profile.rate * BURST / 8))}b"
    command = f"tc class {verb} dev {device} parent 10: classid {_RATE_CLASS} htb"
    options = f"rate {rate} ceil {rate} burst {burst} cburst {burst} quantum {FULL_FRAME}"
    return f"{command} {options}".split()


def _queue(
    verb: str,
    device: str,
    profile: ChannelProfile,
    members: int,
    number: int = 0,
) -> list[str]:
    """The queue of a member, with its part of the buffer."""
    parent = class_of(profile, number)
    minor = int(parent.removeprefix("10:"), 16)
    handle = f"{0x10 + minor:x}:"
    limit = f"{queue_limit(profile, members)}b"
    return f"tc qdisc {verb} dev {device} parent {parent} handle {handle} bfifo limit {limit}".split()
