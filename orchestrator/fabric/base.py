"""The interface of a link engine: attach a node, shape a link, cut it, read its counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from netem.media.profile import ChannelProfile, Crossing, CrossTraffic
from netem.profile import LinkProfile
from orchestrator.planning.plan import LinkPlan, NodePlan

ChannelRow = dict[str, int | float | str]
"""Counters of a channel of a shared medium, by member: channel, member (`netem.media.profile.CROSS_TRAFFIC` for that of
others), packets, bytes and seconds (what has left the channel, and how long it was occupied by that), overflowed
(packets), queued_bytes (waiting at present)."""

LinkRow = dict[str, int | float | str]
"""source, target, the record's COUNTERS, the configured losses, nat_expired (packets that a NAT dropped), and
too_large (packets that `drop_above` dropped, which are also in lost)."""


@dataclass(frozen=True)
class NodeHandle:
    """One incarnation of a node, as its driver knows it: process ``pid`` on ``host``; an empty ``host`` is this host.
    The fabric uses it to find the node's network namespace; other code only uses it to distinguish incarnations.
    ``pid`` is 0 if the process ended before its driver could read the pid."""

    pid: int
    host: str = ""


Handles = Mapping[str, NodeHandle]
"""The present incarnations of nodes, by name."""


@dataclass(frozen=True)
class LinkChange:
    """One change of a link: another ``profile``, a ``cut`` (True), the end of a cut (False), or other ``crossings``
    (a handover: packets in the queues of the former channels still leave them)."""

    source: str
    target: str
    profile: LinkProfile | None = None
    cut: bool | None = None
    crossings: tuple[Crossing, ...] | None = None

    @property
    def pair(self) -> tuple[str, str]:
        return self.source, self.target


NO_COUNTS = ("source", "target", "channel", "member", "queued_bytes")


def since(row: LinkRow, before: LinkRow | None) -> LinkRow:
    """The counters of a link, or of a member of a channel, since an earlier reading. They never fall, see `Counted`."""
    if before is None:
        return row
    return _combined(row, before, -1)


def plus(row: LinkRow, earlier: LinkRow) -> LinkRow:
    """The counters of a link, or of a member of a channel, and those of an engine that had it earlier."""
    both = earlier | row
    combined = _combined(both, earlier, 1)
    if "queued_bytes" in both:
        now = _count(row, "queued_bytes")
        before = _count(earlier, "queued_bytes")
        combined["queued_bytes"] = max(now, before)
    return combined


def _combined(row: LinkRow, other: LinkRow, sign: int) -> LinkRow:
    combined: LinkRow = {}
    for key, value in row.items():
        if key in NO_COUNTS:
            combined[key] = value
        else:
            other_count = _count(other, key)
            combined[key] = _count(row, key) + sign * other_count
    return combined


def _count(row: LinkRow, key: str) -> int | float:
    value = row.get(key, 0)
    assert not isinstance(value, str)
    return value


Errors = list[Exception | None]
"""The error of each of several changes, None if it succeeded."""


@dataclass(frozen=True)
class Counted:
    """Cumulative counters of links (at least of those that have changed), and figures of the engine's own load. None of
    the cumulative counters ever falls.

    forwarded    packets that the engine has sent
    to_groups    packets to broadcast or multicast addresses, which no link carries, by the node that sent them
    late         number of packets more than `netem.userspace.switch.LATE` late since the last reading
    late_max     maximum lateness in seconds since the last reading
    drops        packets that the engine has lost beyond the configured losses, by place
    cpu_seconds  processor time of the engine
    channels        of shared media, see ChannelRow
    channels_apart  whether the packets that overflowed in channels are not among those of the links
    from_trunk      packets that came from other hosts and were given to their targets
    from_strangers  packets that came over the trunk in no node's name, see `netem.userspace.trunk`; they were dropped
    sent_to, came_from   packets that were sent over the trunk and that came over it, by the node of the other host;
                    None if the engine does not count them
    """

    links: Sequence[LinkRow]
    forwarded: int = 0
    to_groups: Mapping[str, int] = field(default_factory=dict)
    late: int = 0
    late_max: float = 0.0
    drops: Mapping[str, int] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    from_trunk: int = 0
    from_strangers: int = 0
    channels: Sequence[ChannelRow] = ()
    channels_apart: bool = False
    sent_to: Mapping[str, int] | None = None
    came_from: Mapping[str, int] | None = None


@runtime_checkable
class KeepsNetworks(Protocol):
    """A fabric that keeps the network namespace of a node that has ended, until `forget`. So the kernel sends what it
    holds for the node, and the end of its connections, as after the end of a process on a device that keeps running."""

    async def unsent(self, handle: NodeHandle) -> int:
        """The number of the node's connections that still have something to send."""

    async def forget(self, handle: NodeHandle) -> None: ...


@runtime_checkable
class ChangesAddresses(Protocol):
    """The power to give a node another address while it runs."""

    async def readdress(self, node: NodePlan, handle: NodeHandle, peers: Handles) -> None:
        """Give a node its new address, and remove the former one. ``node``: with the new address. ``peers``: those of
        its peers that run."""


class Fabric(Protocol):
    """A link engine. Links are directed; nodes without a link cannot exchange packets.

    If the run spans several hosts, each host has an engine. It attaches the nodes of its host, and it shapes, alters
    and counts the links from one of them, or to one of them if they are `LinkPlan.at_target`.

    tcp  the TCP settings of the nodes' namespaces, see `orchestrator.fabric.namespaces.tcp`; empty where nothing speaks
    TCP
    """

    engine: str
    tcp: Mapping[str, str]

    def notes(self) -> list[str]:
        """The link settings that this engine cannot apply on this host, as sentences for the record."""

    async def attach(self, node: NodePlan, handle: NodeHandle) -> dict[str, str]:
        """Create the interface data0 in a node's network namespace; also after a restart. Returns the settings of the
        node's `stack` as they are in force there."""

    async def detach(self, node: NodePlan) -> None:
        """Remove a node that has ended."""

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        """Make these links, or change existing ones in place. Of the links from nodes of other hosts, those to nodes of
        this host are let in from the trunk. Packets of a link that another host shapes leave by the trunk as they
        are."""

    async def alter(self, changes: Sequence[LinkChange]) -> Errors:
        """Make all changes at one moment, in order; returns the error of each, None if it succeeded. A change of
        profile is in place and keeps the packets in flight. A cut drops all packets, including those in flight."""

    async def change(self, source: str, target: str, profile: LinkProfile) -> None:
        """``alter`` one link's profile. Simultaneous calls of this, ``cut`` and ``restore`` become one ``alter``."""

    async def cut(self, source: str, target: str) -> None:
        """Drop all packets from source to target until ``restore``."""

    async def restore(self, source: str, target: str) -> None:
        """Undo ``cut``."""

    async def counters(self) -> Counted:
        """Read the counters."""

    async def watch(self) -> None:
        """Wait until a part that the engine needs fails, and raise that as OrchestratorError."""

    async def close(self) -> None:
        """Stop the engine and remove its links."""


@runtime_checkable
class SharesMedia(Protocol):
    """The power to let links share channels (`netem.media`)."""

    async def share(self, channels: Mapping[str, ChannelProfile]) -> None:
        """Make these channels, or change existing ones in place: packets that wait leave at the new rate. Comes before
        ``shape`` of the links that cross them."""

    async def occupy(self, channel: str, traffic: CrossTraffic | None, seed: int = 0) -> None:
        """Start cross traffic on a channel; it replaces the present one. None: end it."""

    async def reroute(self, source: str, target: str, crossings: tuple[Crossing, ...]) -> None:
        """``alter`` the channels that one link crosses."""


@runtime_checkable
class Redirects(Protocol):
    """The power to follow nodes that move to another host because their own is lost."""

    async def redirect(self, remotes: Mapping[str, str]) -> None:
        """From now on the nodes of other hosts are these, see `orchestrator.fabric.trunk.Trunk`. Redirect its carrier
        before. ``shape`` the links of the nodes that have moved next, then ``attach`` those that are now on this host.
        Until then no packet passes these links, and none comes from where the nodes were before."""
