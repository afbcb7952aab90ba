"""The kernel engine's u32 filters (tc-u32(8)), which choose a packet's class by its IPv4 addresses, redirect it or
count it. Pure, no I/O."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from netem.kernel.batch import reading

LINEAR_FILTERS = 32
"""Up to this number the filters are a list; above it, a hash table over the last byte of an address."""


ROOT, INGRESS = "1:", "ffff:"


class Match(NamedTuple):
    """The packets from an address, to any address or only to ``target``, and the class they belong to, or None if they
    are only counted: by the action of the number ``counter`` (tc-actions(8)). ``device``: they are redirected there,
    where the class is, and counted."""

    source: str
    target: str | None
    class_id: str | None
    counter: int = 0
    device: str = ""


def filter_commands(device: str, flows: Sequence[Match], parent: str = ROOT) -> list[list[str]]:
    """The commands for the qdisc ``parent`` of a device."""
    add = _filter("add", device, parent)
    if len(flows) <= LINEAR_FILTERS:
        return [[*add, "u32", *_match(flow)] for flow in flows]
    sources = [int(ipaddress.IPv4Address(flow.source)) & 0xFF for flow in flows]
    targets = [int(ipaddress.IPv4Address(flow.target or flow.source)) & 0xFF for flow in flows]
    by_target = all(flow.target for flow in flows) and len(set(targets)) > len(set(sources))
    buckets = targets if by_target else sources
    entries = [
        [*add, "u32", "ht", f"2:{bucket:x}:", *_match(flow)] for flow, bucket in zip(flows, buckets, strict=True)
    ]
    return [*table_commands(device, parent, by_target=by_target), *entries]


def table_commands(device: str, parent: str, *, by_target: bool) -> list[list[str]]:
    """The commands that make an empty hash table over the last byte of the target's address, or of the source's."""
    add = _filter("add", device, parent)
    field, at = ("dst", "16") if by_target else ("src", "12")  # bytes of the IP header (RFC 791)
    jump = [
        *(*add, "u32", "ht", "800::", "match", "ip", field, "0.0.0.0/0"),
        *("hashkey", "mask", "0x000000ff", "at", at, "link", "2:"),
    ]
    return [[*add, "handle", "2:", "u32", "divisor", "256"], jump]


def flow_command(device: str, flow: Match) -> list[str]:
    """The command that adds a match to the table by target of arriving packets, or replaces the one of its target in
    place. The table must have one source, and the targets must differ in their last 19 bits."""
    bucket, number = _place(flow.target or "")
    handle = ("handle", f"2:{bucket:x}:{number:x}", "u32", "ht", f"2:{bucket:x}:")
    return [*_filter("replace", device, INGRESS), *handle, *_match(flow)]


def stop_flow_command(device: str, target: str) -> list[str]:
    """The command after which the packets to an address match nothing."""
    bucket, number = _place(target)
    return [*_filter("del", device, INGRESS), "handle", f"2:{bucket:x}:{number:x}", "u32"]


def _filter(verb: str, device: str, parent: str) -> list[str]:
    return ["tc", "filter", verb, "dev", device, "parent", parent, "protocol", "ip", "prio", "1"]


def _place(target: str) -> tuple[int, int]:
    """The bucket of a target, and its number there, from 1 to 0xfff."""
    rest, bucket = divmod(int(ipaddress.IPv4Address(target)), 256)
    return bucket, 1 + rest % 0xFFF


def _match(flow: Match) -> list[str]:
    target = [] if flow.target is None else ["match", "ip", "dst", f"{flow.target}/32"]
    if flow.class_id is None:
        then = ["action", "ok", "index", str(flow.counter)]
    elif flow.device:
        mirred = ("mirred", "egress", "redirect", "dev", flow.device, "index", str(flow.counter))
        then = ["action", "skbedit", "priority", flow.class_id, "pipe", "action", *mirred]
    else:
        then = ["flowid", flow.class_id]
    return ["match", "ip", "src", f"{flow.source}/32", *target, *then]


def count_commands(device: str, sources: Sequence[str]) -> list[list[str]]:
    """The commands that count what arrives on a device, by its source: an address has the number of its place in
    ``sources``, from 1. The kernel needs act_gact."""
    flows = [Match(address, None, None, number) for number, address in enumerate(sources, start=1)]
    return [["tc", "qdisc", "add", "dev", device, "ingress"], *filter_commands(device, flows, INGRESS)]


def show_counts_command(device: str) -> list[str]:
    """The command whose output, with the options -j and -s, `parse_counts` reads."""
    return ["tc", "filter", "show", "dev", device, "ingress"]


def parse_counts(text: str) -> dict[int, int]:
    """The packets that have arrived, by the number of their source. A super-packet counts as what it was made of.
    Raises TcError for other text."""
    with reading("filter show"):
        return {int(each["index"]): int(each["stats"]["packets"]) for each in actions_in(text)}


def actions_in(text: str) -> Iterator[dict[str, Any]]:
    """The actions in what `show_counts_command` shows."""
    for entry in json.loads(text):
        yield from entry.get("options", {}).get("actions", ())
