"""What the parts of a scenario mean together: each check yields the path and the message of what it finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields
from typing import Any

from netem.errors import ProfileError
from netem.profile import LinkProfile
from netem.units import format_duration
from node.catalogue.algorithms import ALGORITHMS
from node.catalogue.datasets import DATASETS
from node.catalogue.models import MODEL_GROUPS
from node.catalogue.partitions import PARTITIONS
from node.parameters import read_parameters
from orchestrator.scenario.document import Path
from orchestrator.scenario.faults import FaultSpec
from orchestrator.scenario.hardware import HARDWARE
from orchestrator.scenario.links import Direction, Finding, Resolved, resolve
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.strict import unknown
from orchestrator.scenario.targets import affected, candidates, links_between
from orchestrator.scenario.topology import GROUPS, Topology, unknown_node

_TIERS = ("device", "edge", "cloud")


def check(scenario: Scenario) -> list[Finding]:
    """Everything that is wrong, in the order of the checks."""
    links = resolve(scenario.links, scenario.topology.pairs(scenario.mesh))
    return [
        *_algorithm(scenario),
        *_model(scenario),
        *_data(scenario),
        *_hardware(scenario),
        *links.findings,
        *_mesh(scenario),
        *_waiting(scenario, links),
        *(finding for index in range(len(scenario.faults)) for finding in _fault(scenario, index, links)),
    ]


def _algorithm(scenario: Scenario) -> Iterator[Finding]:
    topology, algorithm = scenario.topology, ALGORITHMS[scenario.algorithm.name]
    if reason := algorithm.problem(cloud=topology.cloud, edges=topology.edges, devices=topology.device_count):
        yield ("topology",), reason
    if topology.device_count and 0 in topology.per_edge:
        edge = topology.per_edge.index(0)
        yield ("topology", "devices_per_edge"), f"edge-{edge} has no devices, the other edges have: give it at least 1"
    asked, allowed = scenario.stop.rounds, scenario.algorithm.rounds
    if asked is not None and allowed is not None and asked > allowed:
        yield ("stop", "rounds"), f"{asked} is more than algorithm.rounds, {allowed}"


def _model(scenario: Scenario) -> Iterator[Finding]:
    model, algorithm = scenario.model.name, ALGORITHMS[scenario.algorithm.name]
    if model in MODEL_GROUPS and not algorithm.personal:
        able = ", ".join(each.name for each in ALGORITHMS.values() if each.personal)
        yield ("model",), f"{model} gives clients different models, {algorithm.name} has one for all ({able} does not)"


def _data(scenario: Scenario) -> Iterator[Finding]:
    data = scenario.data
    scheme = PARTITIONS[data.partition.name]
    names = {entry.name for entry in fields(scheme.params)}
    if data.samples_per_client is not None:
        if "samples_per_client" in data.partition.params:
            yield ("data", "samples_per_client"), "given twice, here and in data.partition"
        elif "samples_per_client" in names:
            try:
                read_parameters(scheme.params, partition_params(scenario))
            except ValueError as error:
                yield ("data", "samples_per_client"), str(error).removeprefix("samples_per_client: ")
    if data.evaluate_samples is not None and "evaluate_samples" in scenario.algorithm.params:
        yield ("data", "evaluate_samples"), "given twice, here and in algorithm"
    if data.partition.name == "labels-per-edge" and scenario.topology.edges == 0:
        yield ("data", "partition"), "labels-per-edge gives labels to edges: the topology has none"
    anonymous = [name for name in data.dataset if name in DATASETS and not DATASETS[name].subjects]
    if data.partition.name == "by-subject" and anonymous:
        yield ("data", "partition"), f"by-subject needs a data set that names people: {anonymous[0]} does not"


def partition_params(scenario: Scenario) -> dict[str, Any]:
    """The partition's parameters with what ``data`` adds to them."""
    own = scenario.data.samples_per_client
    return dict(scenario.data.partition.params) | ({} if own is None else {"samples_per_client": own})


def _hardware(scenario: Scenario) -> Iterator[Finding]:
    names = {member.name for member in scenario.topology.members()}
    for key, spec in scenario.hardware.items():
        if key not in names and key not in _TIERS:
            yield ("hardware", key), f"{unknown_node(key, names)}; tiers are {', '.join(_TIERS)}"
        if spec.class_ not in HARDWARE:
            yield ("hardware", key), unknown("hardware class", spec.class_, HARDWARE)


def _mesh(scenario: Scenario) -> Iterator[Finding]:
    if scenario.topology.mesh is False and "edge-edge" in scenario.links:
        yield ("topology", "mesh"), "false, but links has edge-edge: leave one of them out"
    if scenario.topology.mesh is False and ALGORITHMS[scenario.algorithm.name].meshed:
        yield ("topology", "mesh"), f"false, but edges of {scenario.algorithm.name} talk to one another: leave it out"


def _waiting(scenario: Scenario, links: Resolved) -> Iterator[Finding]:
    timeouts = scenario.timeouts
    slowest = {direction: max(profile.latency for profile in found) for direction, found in links.extremes.items()}
    round_trip = max((slowest[a, b] + slowest[b, a] for a, b in slowest), default=0.0)
    if timeouts.lost_after <= 4 * round_trip:
        least = format_duration(round(4 * round_trip, 6))
        yield ("timeouts", "lost_after"), f"must be above four round trips of the slowest link, {least}"
    for name in ("lost_after", "lease"):
        if getattr(timeouts, name) < 2 * timeouts.beat:
            least = format_duration(2 * timeouts.beat)
            yield ("timeouts", name), f"must be at least two beats, {least}, or one late sign of life ends it"
    for name in ("deadline", "cloud_deadline"):
        if getattr(scenario.gathering, name) == 0:
            yield ("gathering", name), "must be above 0s"


def _fault(scenario: Scenario, index: int, links: Resolved) -> Iterator[Finding]:
    fault = scenario.faults[index]
    findings = [*_fault_targets(scenario.topology, fault, set(links.profiles)), *_fault_times(scenario, fault)]
    findings += _leader(scenario, fault)
    if not findings and fault.action == "degrade":
        findings += _degraded(scenario.topology, fault, links.extremes)
    for key, message in findings:
        path: Path = ("faults", index, key) if key else ("faults", index)
        yield path, message


def _fault_targets(topology: Topology, fault: FaultSpec, links: Set[Direction]) -> Iterator[tuple[str, str]]:
    names = {member.name for member in topology.members()}
    if fault.node is not None and fault.node not in names:
        yield "node", unknown_node(fault.node, names)
    for name in fault.nodes or []:
        if name not in names:
            yield "nodes", unknown_node(name, names)
    if fault.of is not None:
        size = len(topology.group(fault.of))
        if size == 0:
            yield "of", f"the topology has no {fault.of}"
        elif fault.count is not None and fault.count > size:
            yield "count", f"{fault.count} is more than there are {fault.of}, {size}"
    if fault.between is None:
        return
    strangers = [name for side in fault.between for name in side if not topology.group(name)]
    for name in strangers:
        yield "between", f"there are no {name}" if name in GROUPS else unknown_node(name, names | set(GROUPS))
    if strangers:
        return
    a, b = (topology.expand(side) for side in fault.between)
    if both := sorted(set(a) & set(b)):
        yield "between", f"{both[0]} is on both sides"
    elif not links_between(a, b, links):
        yield "between", "no link joins the two sides"


def _fault_times(scenario: Scenario, fault: FaultSpec) -> Iterator[tuple[str, str]]:
    after = scenario.stop.after
    if fault.round is not None and fault.round > scenario.rounds:
        yield "round", f"the run has {scenario.rounds} rounds, it never comes to round {fault.round}"
    if fault.at is not None and after is not None and fault.at >= after:
        yield "at", f"the run is over by then: stop.after is {format_duration(after)}"
    if fault.random is not None and fault.random.until is None and after is None:
        yield "random", "say how long it goes on: until: 5min here, or stop.after"


def _leader(scenario: Scenario, fault: FaultSpec) -> Iterator[tuple[str, str]]:
    """Rounds are counted by a leading node; without any there is no run."""
    leading = leading_nodes(scenario)
    if fault.action in ("join", "leave") and len(leading) == 1 and leading[0] in candidates(fault, scenario.topology):
        verb = "join late" if fault.action == "join" else "leave"
        yield "action", f"{leading[0]} leads the rounds and cannot {verb}"


def _degraded(
    topology: Topology, fault: FaultSpec, profiles: Mapping[Direction, Sequence[LinkProfile]]
) -> Iterator[tuple[str, str]]:
    for link in affected(fault, topology, list(profiles)):
        try:
            for profile in profiles[link]:
                profile.merged(fault.changes())
        except ProfileError as error:
            yield "", f"on the link {link[0]} -> {link[1]}: {error}"
            return


def leading_nodes(scenario: Scenario) -> list[str]:
    """The nodes whose rounds count as the rounds of the run: all of the algorithm's leading tier."""
    leader = ALGORITHMS[scenario.algorithm.name].leader
    return [member.name for member in scenario.topology.members() if member.tier == leader]
