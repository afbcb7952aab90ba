"""Shared media: which channels a link crosses, in which order, and with which values."""

from __future__ import annotations

import pytest

from netem.media.library import MEDIA, SOURCES
from netem.media.profile import ChannelProfile, Crossing, CrossTraffic
from netem.profile import FULL_FRAME
from orchestrator.scenario.media.routes import ResolvedMedia
from orchestrator.scenario.reading import parse
from orchestrator.scenario.schema import Scenario, effective

HEAD = "algorithm: {name: hierfavg, rounds: 2}\ntopology: {edges: 2, devices_per_edge: 2}\n"


def scenario(text: str, files: dict[str, str] | None = None) -> Scenario:
    return parse(HEAD + text, "s.yaml", files=files or {})


def media(text: str) -> ResolvedMedia:
    return scenario(text).resolved_media


def test_a_node_is_a_member_with_its_link_to_the_tier_above() -> None:
    found = media("shared: {cell: {up: 20mbit, down: 100mbit, members: [device-0-*], buffer: 200ms}}")
    assert found.members == {"cell": ("device-0-0", "device-0-1")}
    assert found.channels["cell"] == {
        "cell up": ChannelProfile(20e6, "fair", 0.2),
        "cell down": ChannelProfile(100e6, "fair", 0.2),
    }
    assert found.crossings == {
        ("device-0-0", "edge-0"): (Crossing("cell up", "device-0-0"),),
        ("edge-0", "device-0-0"): (Crossing("cell down", "device-0-0"),),
        ("device-0-1", "edge-0"): (Crossing("cell up", "device-0-1"),),
        ("edge-0", "device-0-1"): (Crossing("cell down", "device-0-1"),),
    }


def test_a_half_duplex_medium_is_one_channel() -> None:
    found = media("shared: {ap: {rate: 54mbit, duplex: half, members: [device-0-0]}}")
    assert list(found.channels["ap"]) == ["ap"]
    assert set(found.crossings.values()) == {(Crossing("ap", "device-0-0"),)}


def test_a_link_is_a_member_by_both_of_its_ends() -> None:
    found = media("shared: {uplink: {rate: 1gbit, members: ['cloud <-> edge-*']}}")
    assert found.members == {"uplink": ("edge-0 <-> cloud", "edge-1 <-> cloud")}
    assert found.crossings["cloud", "edge-1"] == (Crossing("uplink down", "edge-1 <-> cloud"),)


def test_links_between_edges_go_up_from_the_lower_number() -> None:
    text = "algorithm: sdfeel\nplugins: [edgebed.baselines.sdfeel]\ntopology: {cloud: false, edges: 2}\n"
    found = parse(text + "shared: {ring: {rate: 1gbit, members: ['edge-* <-> edge-*']}}", "s.yaml").resolved_media
    assert found.crossings["edge-0", "edge-1"] == (Crossing("ring up", "edge-0 <-> edge-1"),)
    assert found.crossings["edge-1", "edge-0"] == (Crossing("ring down", "edge-0 <-> edge-1"),)


def test_the_medium_of_the_node_comes_before_that_of_the_link() -> None:
    text = (
        "shared: {far: {rate: 1gbit, members: ['device-0-0 <-> edge-0']}, near: {rate: 9mbit, members: [device-0-0]}}"
    )
    found = media(text)
    assert [each.channel for each in found.crossings["device-0-0", "edge-0"]] == ["near up", "far up"]
    assert [each.channel for each in found.crossings["edge-0", "device-0-0"]] == ["far down", "near down"]
    other = media(text + "\nroutes: {edge-0 <-> device-*-0: [far, near]}")
    assert [each.channel for each in other.crossings["device-0-0", "edge-0"]] == ["far up", "near up"]


def test_a_later_route_replaces_an_earlier_one() -> None:
    text = "shared: {a: {rate: 1gbit, members: [device-*]}, b: {rate: 1gbit, members: [device-*]}}\n"
    found = media(text + "routes: {device-* <-> edge-*: [a, b], device-1-1 <-> edge-1: [b, a]}")
    assert [each.channel for each in found.crossings["device-1-0", "edge-1"]] == ["a up", "b up"]
    assert [each.channel for each in found.crossings["device-1-1", "edge-1"]] == ["b up", "a up"]


@pytest.mark.parametrize("first", ["device-1-1", "device-*"])
def test_an_entry_for_a_name_replaces_that_of_a_pattern_in_any_order(first: str) -> None:
    rates = {"device-1-1": "6mbit", "device-*": "24mbit"}
    ways = {"device-1-1": "[b, a]", "device-*": "[a, b]"}
    names = [first, *(rates.keys() - {first})]
    found = media(
        "shared: {a: {rate: 54mbit, share: frames, members: [device-*], rates: {"
        + ", ".join(f"{name}: {rates[name]}" for name in names)
        + "}}, b: {rate: 1gbit, members: [device-*]}}\nroutes: {"
        + ", ".join(f"{name} <-> edge-*: {ways[name]}" for name in names)
        + "}"
    )
    assert found.channels["a"]["a up"].rates["device-1-1"] == 6e6
    assert [each.channel for each in found.crossings["device-1-1", "edge-1"]] == ["b up", "a up"]


def test_a_medium_may_wait_for_manual_handovers() -> None:
    assert media("shared: {spare: {rate: 5mbit, members: []}}").members["spare"] == ()


def test_a_named_medium_changes_as_a_link_profile_does() -> None:
    found = media("shared: {cell: {profile: lte-cell, up: 5mbit, members: [device-0-*], rates: {device-0-1: 1mbit}}}")
    up, down = found.channels["cell"].values()
    assert (up.rate, down.rate, up.share) == (5e6, 44e6, "airtime")
    assert up.rates == down.rates == {"device-0-1": 1e6}
    assert (
        media("shared: {cell: {profile: lte-cell, rate: 5mbit, members: [device-*]}}")
        .channels["cell"]["cell down"]
        .rate
        == 5e6
    )


@pytest.mark.parametrize("name", MEDIA)
def test_every_named_medium_is_complete_and_has_a_source(name: str) -> None:
    channels = media(f"shared: {{it: {{profile: {name}, members: [device-*]}}}}").channels["it"]
    assert all(each.buffer_bytes >= FULL_FRAME for each in channels.values())
    assert SOURCES[name]


def test_later_rates_replace_earlier_ones() -> None:
    text = (
        "shared: {ap: {rate: 54mbit, share: frames, members: [device-*], rates: {device-*: 24mbit, device-1-1: 6mbit}}}"
    )
    rates = media(text).channels["ap"]["ap up"].rates
    assert rates == {"device-0-0": 24e6, "device-0-1": 24e6, "device-1-0": 24e6, "device-1-1": 6e6}


@pytest.mark.parametrize(
    ("rate", "written", "seconds"),
    [("20mbit", "64kb", 0.0256), ("20mbit", "1s", 1.0), ("20mbit", None, 0.1), ("100kbit", None, 1.93792)],
)
def test_a_buffer_is_a_time_a_size_or_long_enough_for_sixteen_packets(
    rate: str, written: str | None, seconds: float
) -> None:
    given = f", buffer: {written}" if written else ""
    (channel, _) = media(f"shared: {{c: {{rate: {rate}, members: [device-*]{given}}}}}").channels["c"].values()
    assert channel.buffer == pytest.approx(seconds)


def test_cross_traffic_is_read_with_its_file() -> None:
    text = """
shared: {uplink: {rate: 100mbit, members: ["edge-* <-> cloud"]}}
cross_traffic:
  - {on: uplink, direction: up, kind: trace, csv: others.csv}
  - {on: uplink, direction: down, kind: on-off, rate: 30mbit, on_for: 2s, off_for: 6s, at: 1s, for: 9s}
"""
    first, second = scenario(text, {"others.csv": "t_s,rate_mbit\n2,20\n4,0\n"}).cross_traffic
    assert first.traffic() == CrossTraffic("trace", rows=((0.0, 0.0), (2.0, 20e6), (4.0, 0.0)))
    assert first.file.keys() == {"csv", "sha256"}
    assert second.traffic() == CrossTraffic("on-off", 30e6, 2.0, 6.0)
    assert second.traffic().mean_rate() == 7.5e6


def test_a_scenario_without_media_has_no_trace_of_them() -> None:
    written = effective(scenario(""))
    assert not written.keys() & {"shared", "routes", "cross_traffic"}
    assert scenario("").resolved_media == ResolvedMedia()
