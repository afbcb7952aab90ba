"""Filters of a device: a short list, or a hash table over the address that differs most."""

from __future__ import annotations

from netem.kernel.filters import LINEAR_FILTERS, Match, filter_commands

ADD = "tc filter add dev trunk parent 1: protocol ip prio 1"


def lines(flows: list[Match]) -> list[str]:
    return [" ".join(command) for command in filter_commands("trunk", flows)]


def test_a_flow_is_from_an_address_to_any_or_to_one() -> None:
    assert lines([Match("10.9.0.1", None, "1:1"), Match("10.9.0.1", "10.9.0.2", "1:2")]) == [
        f"{ADD} u32 match ip src 10.9.0.1/32 flowid 1:1",
        f"{ADD} u32 match ip src 10.9.0.1/32 match ip dst 10.9.0.2/32 flowid 1:2",
    ]


def test_many_flows_from_one_node_are_found_by_their_target() -> None:
    flows = [Match("10.9.0.1", f"10.9.1.{number}", f"1:{number:x}") for number in range(1, LINEAR_FILTERS + 2)]
    table, jump, *entries = lines(flows)
    assert table == f"{ADD} handle 2: u32 divisor 256"
    # The destination is at byte 16 of the IP header (RFC 791).
    assert jump == f"{ADD} u32 ht 800:: match ip dst 0.0.0.0/0 hashkey mask 0x000000ff at 16 link 2:"
    assert entries[9] == f"{ADD} u32 ht 2:a: match ip src 10.9.0.1/32 match ip dst 10.9.1.10/32 flowid 1:a"


def test_many_flows_to_one_node_are_found_by_their_source() -> None:
    flows = [Match(f"10.9.1.{number}", "10.9.0.1", f"1:{number:x}") for number in range(1, LINEAR_FILTERS + 2)]
    _, jump, *entries = lines(flows)
    assert jump.endswith("match ip src 0.0.0.0/0 hashkey mask 0x000000ff at 12 link 2:")
    assert " ht 2:a: " in entries[9]
