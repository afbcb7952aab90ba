"""Filters of a device: a short list, or a hash table over the address that differs most. Each flow has a filter of IPv4
and one of IPv6, whose addresses end in the same 32 bits."""

from __future__ import annotations

import pytest

from netem.errors import TcError
from netem.kernel.filters import (
    LINEAR_FILTERS,
    Match,
    Policed,
    filter_commands,
    further_commands,
    parse_police,
    show_police_command,
)

IPV4 = "tc filter add dev trunk parent 1: protocol ip prio 1 u32"
IPV6 = "tc filter add dev trunk parent 1: protocol ipv6 prio 2 u32"
MANY = range(1, LINEAR_FILTERS + 2)


def lines(flows: list[Match]) -> list[str]:
    return [" ".join(command) for command in filter_commands("trunk", flows)]


def test_a_flow_is_from_an_address_to_any_or_to_one() -> None:
    # 10.9.0.1 is 0x0a090001. The source is at byte 12 of an IPv4 header (RFC 791) and ends at bytes 20 to 23 of an IPv6
    # header (RFC 8200), the destination at 16 and at 36 to 39.
    assert lines([Match("10.9.0.1", None, "1:1"), Match("10.9.0.1", "10.9.0.2", "1:2")]) == [
        f"{IPV4} match ip src 10.9.0.1/32 flowid 1:1",
        f"{IPV4} match ip src 10.9.0.1/32 match ip dst 10.9.0.2/32 flowid 1:2",
        f"{IPV6} match u32 0x0a090001 0xffffffff at 20 flowid 1:1",
        f"{IPV6} match u32 0x0a090001 0xffffffff at 20 match u32 0x0a090002 0xffffffff at 36 flowid 1:2",
    ]


def test_both_filters_of_a_flow_have_one_policer() -> None:
    police = ["action", "police", "rate", "1mbit", "index", "7"], ["action", "police", "index", "7"]
    assert lines([Match("10.9.0.1", None, "1:1", police=police)]) == [
        f"{IPV4} match ip src 10.9.0.1/32 action police rate 1mbit index 7 flowid 1:1",
        f"{IPV6} match u32 0x0a090001 0xffffffff at 20 action police index 7 flowid 1:1",
    ]


SHOWN = """[
{"protocol":"ip","pref":1,"kind":"u32","chain":0},
{"protocol":"ip","pref":1,"kind":"u32","chain":0,"options":{"fh":"800:","ht_divisor":1}},
{"protocol":"ip","pref":1,"kind":"u32","chain":0,"options":{"fh":"800::800","order":2048,"key_ht":"800","bkt":"0",
 "flowid":"1:1f","not_in_hw":true,"rule_hit":40,"success":40,
 "match":{"value":"a090002","mask":"ffffffff","offmask":"","off":12},
 "actions":[{"order":1,"kind":"police","index":8,"control_action":{"type":"drop"},"overhead":0,"ref":2,"bind":2,
  "stats":{"bytes":53694,"packets":43,"drops":3,"overlimits":3,"requeues":0,"backlog":0,"qlen":0}},
  {"order":2,"kind":"police","index":7,"control_action":{"type":"drop"},"overhead":0,"ref":2,"bind":2,
  "stats":{"bytes":49680,"packets":40,"drops":24,"overlimits":24,"requeues":0,"backlog":0,"qlen":0}}]}},
{"protocol":"ip","pref":1,"kind":"u32","chain":0,"options":{"fh":"800::801","order":2049,"key_ht":"800","bkt":"0",
 "flowid":"1:fffe","not_in_hw":true}}]"""
"""What `tc -j -s filter show` of iproute2 6.1 printed on Linux 7.2."""


def test_what_policers_have_dropped_is_read_by_class() -> None:
    assert " ".join(show_police_command("v1")) == "tc filter show dev v1 parent 1: protocol ip prio 1"
    assert parse_police(SHOWN) == {0x1F: Policed(too_large=3, overflowed=24)}
    with pytest.raises(TcError, match="cannot read"):
        parse_police(SHOWN.replace("drops", "gone"))


def test_many_flows_from_one_node_are_found_by_their_target() -> None:
    flows = [Match("10.9.0.1", f"10.9.1.{number}", f"1:{number:x}") for number in MANY]
    found = lines(flows)
    assert len(found) == 2 * (len(flows) + 2)
    table, jump, *entries = found[: len(flows) + 2]
    assert table == f"{IPV4.removesuffix(' u32')} handle 2: u32 divisor 256"
    assert jump == f"{IPV4} ht 800:: match u32 0 0 at 0 hashkey mask 0x000000ff at 16 link 2:"
    of_ten = "match ip src 10.9.0.1/32 match ip dst 10.9.1.10/32 flowid 1:a"
    assert entries[9] == f"{IPV4} ht 2:a: {of_ten}"
    table, jump, *entries = found[len(flows) + 2 :]
    assert table == f"{IPV6.removesuffix(' u32')} handle 3: u32 divisor 256"
    assert jump == f"{IPV6} ht 801:: match u32 0 0 at 0 hashkey mask 0x000000ff at 36 link 3:"
    assert entries[9].startswith(f"{IPV6} ht 3:a: ")


def test_many_flows_to_one_node_are_found_by_their_source() -> None:
    flows = [Match(f"10.9.1.{number}", "10.9.0.1", f"1:{number:x}") for number in MANY]
    _, jump, *entries = lines(flows)
    assert jump.endswith("match u32 0 0 at 0 hashkey mask 0x000000ff at 12 link 2:")
    assert " ht 2:a: " in entries[9]


def test_a_further_flow_goes_where_the_others_of_its_device_are() -> None:
    flow = Match("10.77.255.254", None, "1:2")
    few, many = further_commands("v1.1", LINEAR_FILTERS, flow), further_commands("v1.1", LINEAR_FILTERS + 1, flow)
    ipv4 = "tc filter add dev v1.1 parent 1: protocol ip prio 1 u32"
    assert " ".join(few[0]) == f"{ipv4} match ip src 10.77.255.254/32 flowid 1:2"
    assert " ".join(many[0]) == f"{ipv4} ht 2:fe: match ip src 10.77.255.254/32 flowid 1:2"  # 254 is 0xfe
    assert "ht 3:fe:" in " ".join(many[1])
