"""The kernel engine's u32 filters (tc-u32(8)), which choose a packet's class by its addresses, redirect it or count it.
Pure, no I/O.

Every flow has a filter for IPv4 and one for IPv6. A node's IPv6 address ends in its IPv4 address, so both compare the
same 32 bits, at other places of the header. Nodes have no IPv6 addresses that differ in the rest.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from netem.kernel.batch import Commands, reading

LINEAR_FILTERS = 32
"""Up to this number the filters are a list; above it, a hash table over the last byte of an address."""


ROOT = "1:"
INGRESS = "ffff:"


class Family(NamedTuple):
    """The filters of a protocol have a ``priority`` of their own. ``root``: the hash table that the kernel makes for
    them; it numbers these in order. ``table``: the number of ours. ``source_at``, ``target_at``: the places of the last
    32 bits of both addresses in the header, in bytes."""

    protocol: str
    priority: str
    root: str
    table: str
    source_at: int
    target_at: int


IPV4 = Family(  # RFC 791
    protocol="ip",
    priority="1",
    root="800:",
    table="2",
    source_at=12,
    target_at=16,
)
IPV6 = Family(  # RFC 8200
    protocol="ipv6",
    priority="2",
    root="801:",
    table="3",
    source_at=20,
    target_at=36,
)


class Match(NamedTuple):
    """The packets from an address, to any address or only to ``target``, and the class they belong to, or None if they
    are only counted: by the action of the number ``counter`` (tc-actions(8)). ``device``: they are redirected there,
    where the class is, and counted. ``police``: the actions of the filter for IPv4, and those for IPv6."""

    source: str
    target: str | None
    class_id: str | None
    counter: int = 0
    device: str = ""
    police: tuple[Sequence[str], Sequence[str]] = ((), ())


def filter_commands(
    device: str,
    flows: Sequence[Match],
    parent: str = ROOT,
) -> Commands:
    """The commands for the qdisc ``parent`` of a device."""
    ipv4 = _family_commands(device, flows, parent, IPV4)
    ipv6 = _family_commands(device, flows, parent, IPV6)
    return ipv4 + ipv6


def _family_commands(
    device: str,
    flows: Sequence[Match],
    parent: str,
    family: Family,
) -> Commands:
    add = _filter("add", device, parent, family)
    if len(flows) <= LINEAR_FILTERS:
        return [[*add, "u32", *_match(flow, family)] for flow in flows]
    sources = [_last_byte(flow.source) for flow in flows]
    targets = [_last_byte(flow.target or flow.source) for flow in flows]
    have_targets = all(flow.target for flow in flows)
    targets_differ_more = len(set(targets)) > len(set(sources))
    by_target = have_targets and targets_differ_more
    buckets = targets if by_target else sources
    commands = _table_commands(device, parent, family, by_target=by_target)
    for flow, bucket in zip(flows, buckets, strict=True):
        table = f"{family.table}:{bucket:x}:"
        match = _match(flow, family)
        commands.append([*add, "u32", "ht", table, *match])
    return commands


def further_commands(device: str, known: int, flow: Match) -> Commands:
    """The commands that add a flow by its source to ``known`` ones of a device, after the `filter_commands` for these
    have run."""
    commands = []
    for family in (IPV4, IPV6):
        command = [*_filter("add", device, ROOT, family), "u32"]
        if known > LINEAR_FILTERS:
            bucket = _last_byte(flow.source)
            command += ["ht", f"{family.table}:{bucket:x}:"]
        commands.append(command + _match(flow, family))
    return commands


def table_commands(device: str, parent: str, *, by_target: bool) -> Commands:
    """The commands that make an empty hash table over the last byte of the target's address, or of the source's, for
    each protocol."""
    ipv4 = _table_commands(device, parent, IPV4, by_target=by_target)
    ipv6 = _table_commands(device, parent, IPV6, by_target=by_target)
    return ipv4 + ipv6


def _table_commands(
    device: str,
    parent: str,
    family: Family,
    *,
    by_target: bool,
) -> Commands:
    add = _filter("add", device, parent, family)
    at = family.target_at if by_target else family.source_at
    table = f"{family.table}:"
    everything = "match u32 0 0 at 0"  # matches all packets
    key = f"hashkey mask 0x000000ff at {at} link {table}"
    return [
        add + f"handle {table} u32 divisor 256".split(),
        add + f"u32 ht {family.root}: {everything} {key}".split(),
    ]


def flow_commands(device: str, flow: Match) -> Commands:
    """The commands that add a match to the tables by target of arriving packets, or replace the one of its target in
    place. The tables must have one source, and the targets must differ in their last 19 bits."""
    bucket, number = _place(flow.target or "")
    commands = []
    for family in (IPV4, IPV6):
        table = f"{family.table}:{bucket:x}:"
        replace = _filter("replace", device, INGRESS, family)
        options = f"handle {table}{number:x} u32 ht {table}".split()
        commands.append(replace + options + _match(flow, family))
    return commands


def stop_flow_commands(device: str, target: str) -> Commands:
    """The commands after which the packets to an address match nothing."""
    bucket, number = _place(target)
    commands = []
    for family in (IPV4, IPV6):
        handle = f"{family.table}:{bucket:x}:{number:x}"
        delete = _filter("del", device, INGRESS, family)
        commands.append([*delete, "handle", handle, "u32"])
    return commands


def _filter(
    verb: str,
    device: str,
    parent: str,
    family: Family,
) -> list[str]:
    options = f"protocol {family.protocol} prio {family.priority}"
    return f"tc filter {verb} dev {device} parent {parent} {options}".split()


def _last_byte(address: str) -> int:
    return int(ipaddress.IPv4Address(address)) & 0xFF


def _place(target: str) -> tuple[int, int]:
    """The bucket of a target, and its number there, from 1 to 0xfff."""
    number = int(ipaddress.IPv4Address(target))
    rest, bucket = divmod(number, 256)
    return bucket, 1 + rest % 0xFFF


def _match(flow: Match, family: Family) -> list[str]:
    match = _address_match(flow.source, "src", family)
    if flow.target is not None:
        match += _address_match(flow.target, "dst", family)
    if flow.class_id is None:
        return match + f"action ok index {flow.counter}".split()
    if flow.device:
        classify = f"action skbedit priority {flow.class_id} pipe"
        redirect = f"action mirred egress redirect dev {flow.device} index {flow.counter}"
        return match + f"{classify} {redirect}".split()
    police_ipv4, police_ipv6 = flow.police
    police = police_ipv4 if family is IPV4 else police_ipv6
    return [*match, *police, "flowid", flow.class_id]


def _address_match(address: str, side: str, family: Family) -> list[str]:
    """Compare the address of this ``side``, src or dst, with the node that has the IPv4 ``address``."""
    if family is IPV4:
        return f"match ip {side} {address}/32".split()
    bits = int(ipaddress.IPv4Address(address))
    at = family.source_at if side == "src" else family.target_at
    return f"match u32 0x{bits:08x} 0xffffffff at {at}".split()


def count_commands(device: str, sources: Sequence[str]) -> Commands:
    """The commands that count what arrives on a device, by its source: an address has the number of its place in
    ``sources``, from 1. The kernel needs act_gact."""
    flows = []
    for number, address in enumerate(sources, start=1):
        flows.append(Match(address, None, None, number))
    ingress = f"tc qdisc add dev {device} ingress".split()
    return [ingress, *filter_commands(device, flows, INGRESS)]


def show_counts_command(device: str) -> list[str]:
    """The command for `parse_counts`, which reads its output with the options -j and -s."""
    return f"tc filter show dev {device} ingress".split()


def parse_counts(text: str) -> dict[int, int]:
    """The packets that have arrived, by the number of their source. A super-packet counts as what it was made of.
    Raises TcError for other text."""
    packets = {}
    with reading("filter show"):
        for action in actions_in(text):
            source = int(action["index"])
            packets[source] = int(action["stats"]["packets"])
    return packets


def show_police_command(device: str) -> list[str]:
    """The command for `parse_police`, which reads its output with the options -j and -s: the filters for IPv4, which
    share their policers with those for IPv6."""
    return _filter("show", device, ROOT, IPV4)


class Policed(NamedTuple):
    """The packets of a link that its policers have dropped: ``too_large``, or without room in the buffer."""

    too_large: int
    overflowed: int


def parse_police(text: str) -> dict[int, Policed]:
    """The packets that policers have dropped, by the minor number of the class that the others belong to. Raises
    TcError for other text."""
    dropped = {}
    with reading("filter show"):
        for entry in json.loads(text):
            options = entry.get("options", {})
            drops = []
            for action in options.get("actions", ()):
                if action["kind"] == "police":
                    drops.append(int(action["stats"]["drops"]))
            if drops:
                minor = options["flowid"].removeprefix(ROOT)
                too_large, overflowed = drops
                dropped[int(minor, 16)] = Policed(too_large, overflowed)
    return dropped


def actions_in(text: str) -> Iterator[dict[str, Any]]:
    """The actions in what `show_counts_command` shows."""
    for entry in json.loads(text):
        options = entry.get("options", {})
        yield from options.get("actions", ())
