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
Link = tuple[str, str, LinkProfile]  # source, target, profile
Hosts = Mapping[str, str]  # by node


def crossing_links(links: Iterable[Link], hosts: Hosts) -> list[CrossingLink]:
    """Those of the ``links`` that cross the ``hosts`` of the nodes."""
    crossing = []
    for source, target, profile in links:
        if hosts[source] != hosts[target]:
            pair = pair_of(hosts[source], hosts[target])
            crossing.append(CrossingLink(source, target, pair, profile.latency, profile.real))
    return crossing


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
    strange = ""
    if number:
        hosts = text.some(sorted(findings.strangers))
        strange = f"; {text.count(number, 'packet')} of strangers dropped on {hosts}"
    confirmed = [finding for finding in findings.found if finding.confirmed]
    cases = confirmed or findings.found
    if cases:
        said = "; ".join(finding.sentence(began) for finding in cases[:MOST])
        if len(cases) > MOST:
            said += f"; and {len(cases) - MOST} more times"
        if confirmed:
            return "fail", f"{said}{strange}"
        return "unknown", f"{said}; no reading before or after confirms it{strange}"
    sent = sum(frames.sent for frames in findings.frames.values())
    lost = sum(frames.missing for frames in findings.frames.values())
    arrived = f"; {lost:,} of {text.count(sent, 'frame')} did not arrive" if sent else ""
    readings = text.count(findings.readings, "reading")
    furthest = text.duration(findings.furthest)
    return "pass", f"in {readings} its delay was at most {furthest} off that before the run{arrived}{strange}"


def network_held(history: Facts) -> Assessment | None:
    """Check that the network between hosts stayed as it was measured before the run, and carried what it was given, as
    far as links were shaped. None for a run on one host."""
    hosts = _planned_hosts(history)
    if len(set(hosts.values())) < 2:
        return None
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
    if networks:
        said += f"; real links: {networks}"
    return verdict, said


def _planned_hosts(history: Facts) -> dict[str, str]:
    """The host of each node when the run started."""
    hosts = {}
    for name, node in history.nodes.items():
        hosts[name] = str(node.get("host", ""))
    return hosts


def _crossing(history: Facts, hosts: Hosts | None = None) -> list[CrossingLink]:
    """``hosts``: of the nodes, by default those of the plan."""
    links: list[Link] = []
    for link in history.plan.get("links", []):
        profile = LinkProfile.from_mapping(link["profile"])
        links.append((link["source"], link["target"], profile))
    return crossing_links(links, hosts or _planned_hosts(history))
