"""What probes tell about links, on measurements written by hand. The network between the hosts takes 1 ms one way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from netem.measurement.probe_plan import Measurement, OneWay, plan_probe
from netem.profile import LinkProfile
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.record.events.overload import BUSY_MEANWHILE
from orchestrator.run.links.link_measurement import batches, one_of_each_kind
from orchestrator.run.links.measured_values import MeasuredValue, ProbedPair, measured_values
from orchestrator.scenario.reading import parse
from tests.texts import containing

REAL, FAR = LinkProfile(real=True), LinkProfile(latency=0.02)
TEXT = """\
algorithm: hierfavg
topology: {edges: 2, devices_per_edge: 2}
links: {device-edge: {latency: 20ms}, edge-cloud: {latency: 20ms}}
"""
HOSTS = {"cloud": "a", "edge-0": "a", "edge-1": "b", "device-0-0": "b", "device-0-1": "c", "device-1-0": "c"}
NETWORK = 0.001


def plan(**profiles: LinkProfile) -> Plan:
    """With these profiles by class, its dash an underscore; device-1-1 lives on a."""
    made = make_plan(parse(TEXT, "f.yaml"), None)
    links = [replace(link, profile=profiles.get(link.link_class.replace("-", "_"), FAR)) for link in made.links]
    nodes = [replace(node, host=HOSTS.get(node.name, "a")) for node in made.nodes]
    return replace(made, nodes=tuple(nodes), links=tuple(links))


def pair(forward: LinkProfile, back: LinkProfile) -> ProbedPair:
    """Of nodes on two hosts."""
    made = plan()
    one, other = made.node("device-0-0"), made.node("edge-0")
    links = {(link.source, link.target): link for link in made.links}
    return ProbedPair(
        one,
        other,
        replace(links[one.name, other.name], profile=forward),
        replace(links[other.name, one.name], profile=back),
    )


def told(
    forward: LinkProfile, back: LinkProfile, found: Measurement
) -> tuple[list[MeasuredValue], list[MeasuredValue]]:
    return measured_values(pair(forward, back), plan_probe(forward, back), found, NETWORK)


def measured(rtt: float | None, **forward: Any) -> Measurement:
    sound = OneWay(sent=250, received=250, delay=0.5, rate=9e8)
    samples = 0 if rtt is None else 250
    return Measurement(rtt_median=rtt, rtt_p99=rtt, rtt_samples=samples, forward=replace(sound, **forward), back=sound)


def brief(found: list[MeasuredValue]) -> dict[str, Any]:
    return {each.quantity: (each.asked, each.measured, each.verdict) for each in found}


def test_a_real_link_is_measured_and_not_judged() -> None:
    there, back = told(REAL, REAL, measured(0.3, received=240, reordered=12, rate=2e6))
    assert brief(there) == {
        "rtt": (None, 0.3, "measured"),
        "loss": (None, 0.04, "measured"),
        "duplicate": (None, 0.0, "measured"),
        "reorder": (None, 0.05, "measured"),
        "rate": (None, 2e6, "measured"),
    }
    assert {each.quantity for each in back} == {"loss", "duplicate", "reorder", "rate"}
    assert all(each.low is None and each.high is None for each in (*there, *back))
    details = {each.quantity: each.detail for each in there}
    assert (details["loss"], details["rate"]) == ("10 of 250", containing("what one TCP stream"))


def test_what_a_real_link_does_not_report_is_unknown() -> None:
    there, _ = told(REAL, REAL, measured(None, received=None, rate=None))
    assert {(each.measured, each.verdict) for each in there} == {(None, "unknown")}
    assert there[0].detail == containing("no echo", "250 probes came back")


def test_emulated_links_are_judged_as_before() -> None:
    there, back = told(FAR, FAR, measured(0.0403))
    assert brief(there)["rtt"] == (0.04, 0.0403, "pass")
    assert {each.verdict for each in (*there, *back)} == {"pass"}
    assert "delay" not in brief(there)  # two hosts have two clocks


@pytest.mark.parametrize(("rtt", "verdict"), [(0.0212, "pass"), (0.0238, "fail"), (0.0185, "fail")])
def test_next_to_a_real_direction_the_rest_of_the_round_trip_is_judged(rtt: float, verdict: str) -> None:
    """20 ms were asked one way, and the way back takes 1 ms; 1 ms may be off."""
    there, back = told(FAR, REAL, measured(rtt))
    assert brief(there)["rtt"] == (None, rtt, "measured")
    assert brief(there)["delay"] == (0.02, pytest.approx(rtt - NETWORK), verdict)
    assert brief(there)["loss"] == (0.0, 0.0, "pass")
    assert brief(back)["loss"] == (None, 0.0, "measured")
    _, returned = told(REAL, FAR, measured(rtt))
    assert brief(returned)["delay"] == (0.02, pytest.approx(rtt - NETWORK), verdict)


def test_real_links_are_of_one_kind_if_they_join_the_same_hosts() -> None:
    """device-1-1 and edge-1 live on a and b, as edge-0 and device-0-0 do; the others are on a and c, and b and c."""
    made = plan(device_edge=REAL)
    names = {node.name for node in made.nodes}
    chosen = [{each.source.host, each.target.host} for each in one_of_each_kind(made, names) if each.real]
    assert sorted(map(sorted, chosen)) == [["a", "b"], ["a", "c"], ["b", "c"]]
    assert len(one_of_each_kind(plan(), names)) == 2  # emulated ones are of one kind on all hosts


def test_a_real_pair_is_measured_alone() -> None:
    made = plan(device_edge=REAL)
    sizes = [(len(batch), batch[0].real) for batch in batches(one_of_each_kind(made, HOSTS))]
    assert sorted(sizes) == [(1, False), (1, True), (1, True), (1, True)]


def test_values_that_are_not_as_configured_name_the_load_of_the_host() -> None:
    late, sound = told(FAR, FAR, measured(0.2))[0], told(FAR, FAR, measured(0.04))[0]
    assert late[0].verdict == "fail"
    busy = [each.on_host(saturated=True, share=0.99) for each in late]
    with_remark = f"{late[0].detail}; {BUSY_MEANWHILE}"
    assert busy[0] == replace(late[0], detail=with_remark, busy=0.99, saturated=True)
    assert [each.verdict for each in busy] == [each.verdict for each in late]
    half = late[0].on_host(saturated=False, share=0.5)
    assert half.detail == containing(f"{late[0].detail}; this host's processors were 50%")
    assert (half.busy, half.saturated) == (0.5, False)
    of_sound = [each.on_host(saturated=True, share=0.99) for each in sound]
    assert of_sound == [replace(each, busy=0.99, saturated=True) for each in sound]
    unknown = late[0].on_host(saturated=False, share=0.0)
    assert unknown == replace(late[0], saturated=False)
