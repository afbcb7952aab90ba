"""The kernel engine's u32 filters (tc-u32(8)), which choose a packet's class by its IPv4 addresses. Pure, no I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

LINEAR_FILTERS = 32
"""Up to this number the filters are a list; above it, a hash table over the last byte of an address."""


class Flow(NamedTuple):
    """The packets from an address, to any address or only to ``target``, and the class they belong to."""

    source: str
    target: str | None
    class_id: str


def filter_commands(device: str, flows: Sequence[Flow]) -> list[list[str]]:
    """The commands for a device whose root qdisc is 1:."""
    add = ["tc", "filter", "add", "dev", device, "parent", "1:", "protocol", "ip", "prio", "1"]
    if len(flows) <= LINEAR_FILTERS:
        return [[*add, "u32", *_match(flow)] for flow in flows]
    sources = [int(ipaddress.IPv4Address(flow.source)) & 0xFF for flow in flows]
    targets = [int(ipaddress.IPv4Address(flow.target or flow.source)) & 0xFF for flow in flows]
    by_target = all(flow.target for flow in flows) and len(set(targets)) > len(set(sources))
    # The source is at byte 12 of the IP header, the destination at byte 16 (RFC 791). The last byte chooses the bucket.
    field, at, buckets = ("dst", "16", targets) if by_target else ("src", "12", sources)
    table = [*add, "handle", "2:", "u32", "divisor", "256"]
    jump = [
        *(*add, "u32", "ht", "800::", "match", "ip", field, "0.0.0.0/0"),
        *("hashkey", "mask", "0x000000ff", "at", at, "link", "2:"),
    ]
    entries = [
        [*add, "u32", "ht", f"2:{bucket:x}:", *_match(flow)] for flow, bucket in zip(flows, buckets, strict=True)
    ]
    return [table, jump, *entries]


def _match(flow: Flow) -> list[str]:
    target = [] if flow.target is None else ["match", "ip", "dst", f"{flow.target}/32"]
    return ["match", "ip", "src", f"{flow.source}/32", *target, "flowid", flow.class_id]
