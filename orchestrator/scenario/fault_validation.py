"""Validation of a scenario's faults: their targets, their times, and their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set

from netem.errors import ProfileError
from netem.profile import LinkProfile
from netem.units import format_duration
from orchestrator.scenario.language.syntax import KeyPath
from orchestrator.scenario.media.routes import ResolvedMedia, unknown_medium
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.alternatives import sizes_not_simulated
from orchestrator.scenario.sections.drivers import DRIVERS, DriverKind
from orchestrator.scenario.sections.faults import (
    HANDOVER,
    MOVE,
    NEW_ADDRESS,
    ON_LINKS,
    POWER_OFF,
    FaultSpec,
    affected,
    candidates,
    links_between,
    program_label,
    upward,
)
from orchestrator.scenario.sections.links import Mistake, Resolved
from orchestrator.scenario.sections.programs import Placed, placed
from orchestrator.scenario.sections.topology import GROUPS, POPULATION, Ends, Topology, unknown_node

MAX_FAULTS = 100_000
CHANGES_LINKS = (*ON_LINKS, HANDOVER, MOVE, NEW_ADDRESS, POWER_OFF)
OF_CLOUDS = ("crash", "pause", "slow")  # actions, where clients come and go
OF_POPULATION = (
    "the clients of a population come and go by clients.availability, and their links last for a round: a fault can "
    f"only have node: cloud and the action {', '.join(OF_CLOUDS[:-1])} or {OF_CLOUDS[-1]}, or degrade a medium"
)
SLOW_PROGRAM = "a program cannot be slowed: give its node a slower hardware, or pause it"


def check_faults(scenario: Scenario, links: Resolved, leading: Sequence[str]) -> Iterator[Mistake]:
    """Yield every mistake of each rule. The ``leading`` nodes count the rounds of the run."""
    total = 0.0
    labels = program_labels(placed(scenario.programs, scenario.members))
    media_engine = scenario.engine if scenario.shared else ""
    for index, fault in enumerate(scenario.faults):
        mistakes = check_target(fault, scenario.topology, links.extremes, leading, scenario.resolved_media)
        mistakes += check_program(fault, scenario.topology, labels)
        mistakes += _times(scenario, fault)
        mistakes += _stays(scenario, fault)
        mistakes += check_driver(fault, scenario.driver_kind, media_engine)
        if fault.action == MOVE:
            mistakes += check_moves(scenario)
        if not mistakes:
            own = _expected(scenario, fault)
            before = total
            total += own
            if before <= MAX_FAULTS < total:
                mistakes.append(("", f"makes about {own:,.0f} faults; a run may have {MAX_FAULTS:,} in all"))
        for key, message in mistakes:
            path: KeyPath = ("faults", index)
            if key:
                path = (*path, key)
            yield path, message


def check_target(
    fault: FaultSpec,
    topology: Topology,
    profiles: Mapping[Ends, Sequence[LinkProfile]],
    leading: Sequence[str],
    media: ResolvedMedia,
) -> list[tuple[str, str]]:
    """The key and message of each mistake in the targets of a fault. ``profiles``: of each direction."""
    if POPULATION in topology.names:
        of_cloud = fault.node == "cloud" and fault.action in OF_CLOUDS
        of_medium = fault.medium is not None and fault.action == "degrade"
        if not of_cloud and not of_medium:
            return [("", OF_POPULATION)]
    if fault.medium is not None:
        return list(_medium(fault, fault.medium, media))
    mistakes = list(_targets(topology, fault, profiles.keys()))
    mistakes += _leader(topology, fault, leading)
    if mistakes:
        return mistakes
    if fault.to is not None and fault.action == HANDOVER:
        return list(_handover(topology, fault, fault.to, media))
    if fault.to is not None and fault.action == MOVE:
        return list(_move(topology, fault, fault.to, profiles.keys()))
    if fault.action == "degrade":
        return list(_degraded(topology, fault, profiles))
    return []


def program_labels(programs: Iterable[Placed]) -> set[str]:
    """The labels of programs, as their plans have them."""
    labels = set()
    for program in programs:
        if program.spec.on is None:
            labels.add(program.node)
        else:
            labels.add(f"{program.node}.{program.key}")
    return labels


def check_program(
    fault: FaultSpec,
    topology: Topology,
    labels: Collection[str],
) -> Iterator[tuple[str, str]]:
    """The key and message of a program that a fault names and a node does not have. ``labels``: of all programs."""
    if fault.program is None:
        return
    if not labels:
        yield "program", "the nodes of this run train a model and have no programs: leave it out"
        return
    for node in candidates(fault, topology):
        if program_label(node, fault.program) not in labels:
            of_node = [label for label in labels if label.partition(".")[0] == node]
            own = sorted(label.removeprefix(f"{node}.") for label in of_node)
            yield "program", f"{node} has no program '{fault.program}', but {' and '.join(own)}"
            return


def check_driver(fault: FaultSpec, kind: DriverKind, media_engine: str) -> Iterator[tuple[str, str]]:
    """The key and message of what a driver cannot do of a fault. ``media_engine``: the engine, if links share media."""
    driver = kind.name
    if fault.action in CHANGES_LINKS and not kind.shapes_links:
        yield "action", f"the driver {driver} does not shape links: leave {fault.action} out, or use another driver"
        return
    if kind.simulated and fault.changes().get("drop_above") is not None:
        yield "drop_above", sizes_not_simulated(driver)
    if fault.action == MOVE and kind.several_hosts:
        yield "action", f"the driver {driver} moves no device to another edge: use {_on_one_host(simulated=True)}"
    if fault.action != NEW_ADDRESS:
        return
    if kind.simulated:
        yield "action", f"the nodes of the driver {driver} have no addresses: leave new-address out"
    elif kind.several_hosts:
        yield "action", f"the driver {driver} gives no node another address: use {_on_one_host(simulated=False)}"
    elif media_engine == "kernel":
        yield "action", "with shared media, the kernel engine finds nodes by their addresses: take engine userspace"


def _on_one_host(*, simulated: bool) -> str:
    """The names of the drivers that make all nodes on this host. ``simulated``: also those that simulate them."""
    names = []
    for kind in DRIVERS.values():
        is_excluded = kind.simulated and not simulated
        if not kind.several_hosts and not is_excluded:
            names.append(kind.name)
    *others, last = names
    return f"{', '.join(others)} or {last}"


def _expected(scenario: Scenario, fault: FaultSpec) -> float:
    """The approximate number of faults that a rule makes."""
    if fault.between is not None or fault.medium is not None:
        size = 1
    else:
        size = len(candidates(fault, scenario.topology))
    if fault.every_round is not None:
        in_a_round = max(1.0, fault.every_round * size)
        return (scenario.rounds or 0) * in_a_round
    if fault.random is None:
        return float(fault.count or (fault.fraction or 1) * size)
    until = fault.random.until
    if until is None:
        until = scenario.stop.after
    events = (until or 0.0) / fault.random.mean
    if fault.count:
        return events * max(1.0, fault.count)
    if fault.fraction is not None:
        return events * max(1.0, fault.fraction * size)
    return events


def _targets(
    topology: Topology,
    fault: FaultSpec,
    links: Set[Ends],
) -> Iterator[tuple[str, str]]:
    names = topology.names
    if fault.node is not None and fault.node not in names:
        yield "node", unknown_node(fault.node, names)
    for name, times in Counter(fault.nodes).items():
        if name not in names:
            yield "nodes", unknown_node(name, names)
        elif times > 1:
            yield "nodes", f"{name} is named twice"
    if fault.of is not None:
        size = len(topology.group(fault.of))
        if size == 0:
            yield "of", f"the topology has no {fault.of}"
        elif fault.count is not None and fault.count > size:
            yield "count", f"{fault.count} is more than there are {fault.of}, {size}"
    if fault.between is not None:
        yield from _sides(topology, fault, fault.between, links)


def _sides(
    topology: Topology,
    fault: FaultSpec,
    sides: Sequence[Sequence[str]],
    links: Set[Ends],
) -> Iterator[tuple[str, str]]:
    """The mistakes in the two sides of a partition."""
    named = [name for side in sides for name in side]
    strangers = [name for name in named if not topology.group(name)]
    for name in strangers:
        if name in GROUPS:
            yield "between", f"there are no {name}"
        else:
            yield "between", unknown_node(name, topology.names | set(GROUPS))
    if strangers:
        return
    a, b = (set(topology.expand(side)) for side in sides)
    both = sorted(a & b)
    if both:
        yield "between", f"{both[0]} is on both sides"
    elif not links_between(a, b, links):
        yield "between", "no link joins the two sides"
    elif not affected(fault, topology, list(links)):
        yield "direction", "links between two edges go neither up nor down: leave it out"


def _times(scenario: Scenario, fault: FaultSpec) -> Iterator[tuple[str, str]]:
    rounds = scenario.rounds
    after = scenario.stop.after
    if fault.round is not None and rounds is not None and fault.round > rounds:
        yield "round", f"the run has {rounds} rounds and never reaches round {fault.round}"
    if fault.at is not None and after is not None and fault.at >= after:
        yield "at", f"the run is over by then: stop.after is {format_duration(after)}"
    if fault.random is not None and fault.random.until is None and after is None:
        yield "random", "say how long it lasts: until: 5min here, or stop.after"


def _stays(scenario: Scenario, fault: FaultSpec) -> Iterator[tuple[str, str]]:
    """Refuse a handover to the medium that the nodes are in, unless another one may have moved them before."""
    if fault.action != HANDOVER:
        return
    handovers = [other for other in scenario.faults if other.action == HANDOVER]
    if len(handovers) > 1:
        return
    nodes = candidates(fault, scenario.topology)
    media = scenario.resolved_media
    if nodes and all(media.medium_of(node) == fault.to for node in nodes):
        yield "to", f"{nodes[0]} is in {fault.to} already: name another medium"


def _leader(
    topology: Topology,
    fault: FaultSpec,
    leading: Sequence[str],
) -> Iterator[tuple[str, str]]:
    """Refuse that the only leading node joins late or leaves: leading nodes count the rounds, a run needs one."""
    if fault.action not in ("join", "leave") or len(leading) != 1:
        return
    if leading[0] in candidates(fault, topology):
        verb = "join late" if fault.action == "join" else "leave"
        yield "action", f"{leading[0]} leads the rounds and cannot {verb}"


def _degraded(
    topology: Topology, fault: FaultSpec, profiles: Mapping[Ends, Sequence[LinkProfile]]
) -> Iterator[tuple[str, str]]:
    links = affected(fault, topology, list(profiles))
    upwards = set(upward(links, topology))
    for link in links:
        source, target = link
        if any(profile.real for profile in profiles[link]):
            yield "", f"the link {source} -> {target} is real: it can be cut, but not degraded"
            return
        try:
            for profile in profiles[link]:
                changes = fault.changes(upward=link in upwards)
                profile.merged(changes)
        except ProfileError as error:
            yield "", f"on the link {source} -> {target}: {error}"
            return


def _move(
    topology: Topology,
    fault: FaultSpec,
    to: str,
    links: Set[Ends],
) -> Iterator[tuple[str, str]]:
    """Only devices move, between edges, and only over links that the run has made."""
    edges = topology.group("edges")
    if not edges:
        yield "to", "the topology has no edges"
        return
    if to not in edges:
        yield "to", unknown_node(to, edges)
        return
    for node in candidates(fault, topology):
        if topology.tiers[node] != "device":
            yield "action", f"{node} is no device: only devices move to another edge"
        elif topology.parents[node] != to and (node, to) not in links:
            yield "to", f"{node} has no link to {to}: a run has those of the moves in its scenario only"


def check_moves(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """The key and message of what an algorithm, or the rest of a scenario, does not support of moves."""
    if scenario.shared:
        yield "action", "in a run with shared media, devices go to another medium (handover) and to no other edge"
    if scenario.algorithm is None:
        return
    if not scenario.scheme.roaming:
        able = [algorithm.name for algorithm in scenario.catalogue.algorithms.values() if algorithm.roaming]
        yield "action", f"an edge of {scenario.scheme.name} keeps its devices for the whole run: take {', '.join(able)}"
    elif getattr(scenario.parameters, "participation", 1.0) < 1:
        yield (
            "action",
            "with participation below 1, edges also draw devices that are elsewhere: leave participation out",
        )


def _medium(fault: FaultSpec, medium: str, media: ResolvedMedia) -> Iterator[tuple[str, str]]:
    if medium not in media.channels:
        yield "medium", unknown_medium(medium, media.channels)
        return
    channels = media.on(medium, fault.direction)
    if not channels:
        yield "direction", f"{medium} is half duplex, so that both directions are one channel: leave it out"
    elif fault.action == "degrade":
        try:
            for channel in channels:
                media.changed(channel, medium, fault.changes())
        except ValueError as error:
            yield "", str(error)


def _handover(
    topology: Topology,
    fault: FaultSpec,
    to: str,
    media: ResolvedMedia,
) -> Iterator[tuple[str, str]]:
    if to not in media.channels:
        yield "to", unknown_medium(to, media.channels)
        return
    for node in candidates(fault, topology):
        if media.medium_of(node) is None:
            several = [medium for medium, members in media.members.items() if node in members]
            if several:
                where = f"in {' and '.join(several)}"
            else:
                where = "in no shared medium (name the node in `members`, not its link)"
            yield "action", f"{node} is {where}: a node is handed over from the one medium that it is in"
            return
        for source, target, way in media.handed_over(node, to):
            channels = {crossing.channel for crossing in way}
            if len(channels) < len(way):
                yield "to", f"{source} -> {target} crosses {to} already, and a packet crosses a medium once"
                return
