"""The check of the network between the hosts of a run, from its record."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from netem.profile import LinkProfile
from orchestrator import text
from orchestrator.record.events.network import NetworkReading, pair_of
from orchestrator.results.checks.verdicts import MEASURED, Assessment, missing
from orchestrator.results.facts import Facts
from orchestrator.results.presence import moves
from orchestrator.results.traffic.hosts_network import CrossingLink, NetworkFindings
from orchestrator.results.traffic.real_network import RealNetwork, RealNetworks

MOST = 3  # findings that are shown


def crossing_links(links: Iterable[tuple[str, str, LinkProfile]], hosts: Mapping[str, str]) -> list[CrossingLink]:
    """Those of the ``links`` (source, target, profile) that cross the ``hosts`` of the nodes."""
    return [
        CrossingLink(source, target, pair_of(hosts[source], hosts[target]), profile.latency, profile.real)
        for source, target, profile in links
        if hosts[source] != hosts[target]
    ]


def real_networks(history: Facts) -> list[RealNetwork]:
    """What was measured between the hosts that real links join."""
    if "real" not in history.link_kinds.values():
        return []
    networks = RealNetworks(_crossing(history))
    for recorded in history.recorded(NetworkReading):
        networks.add(recorded.event)
    return [networks.found[hosts] for hosts in sorted(networks.found)]


def _judge(findings: NetworkFindings, began: float) -> Assessment:
    """Judge what was found. ``began``: the time at which the training started. At least one reading."""
    number = sum(findings.strangers.values())
    dropped = f"; {text.count(number, 'packet')} of strangers dropped on {text.some(sorted(findings.strangers))}"
    strange = dropped if number else ""
    confirmed = [each for each in findings.found if each.confirmed]
    cases = confirmed or findings.found
    if cases:
        more = f"; and {len(cases) - MOST} more times" if len(cases) > MOST else ""
        said = "; ".join(each.sentence(began) for each in cases[:MOST]) + more
        if confirmed:
            return "fail", f"{said}{strange}"
        return "unknown", f"{said}; no reading before or after confirms it{strange}"
    sent = sum(each.sent for each in findings.frames.values())
    missing = sum(each.missing for each in findings.frames.values())
    frames = f"; {missing:,} of {text.count(sent, 'frame')} did not arrive" if sent else ""
    return "pass", (
        f"in {text.count(findings.readings, 'reading')} its delay was at most {text.duration(findings.furthest)} off "
        f"that before the run{frames}{strange}"
    )


def network_held(history: Facts) -> Assessment | None:
    """Check that the network between hosts stayed as it was measured before the run, and carried what it was given, as
    far as links were shaped. None for a run on one host."""
    if len({node.get("host", "") for node in history.nodes.values()}) < 2:
        return None
    hosts = {name: str(node.get("host", "")) for name, node in history.nodes.items()}
    links = _crossing(history)
    if not links:
        return "pass", "no link crosses hosts"
    networks = "; ".join(map(str, real_networks(history)))
    if all(link.real for link in links):
        return "measured", f"only real links cross hosts; {networks}"
    findings = NetworkFindings(links)
    moved = deque(moves(history))
    for t, _, _, reading in history.recorded(NetworkReading):
        while moved and moved[0].t <= t:
            move = moved.popleft()
            hosts[move.node] = move.target
            findings.cross(_crossing(history, hosts))
        findings.add(t, reading)
    if not findings.readings:
        return missing(history, "it was not measured during the run", MEASURED)
    verdict, said = _judge(findings, history.training_began or 0.0)
    return verdict, f"{said}; real links: {networks}" if networks else said


def _crossing(history: Facts, hosts: Mapping[str, str] | None = None) -> list[CrossingLink]:
    """``hosts``: of the nodes, by default those of the plan."""
    hosts = hosts or {name: str(node.get("host", "")) for name, node in history.nodes.items()}
    planned = history.plan.get("links", [])
    links = ((each["source"], each["target"], LinkProfile.from_mapping(each["profile"])) for each in planned)
    return crossing_links(links, hosts)
