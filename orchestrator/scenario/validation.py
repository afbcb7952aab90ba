"""Checks that the parts of a scenario fit together. Each check yields the path and the message of every mistake."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import fields

from netem.units import format_duration
from node.assignment import Tier
from node.catalogue.datasets import TABLES
from node.catalogue.models import MODEL_GROUPS
from node.messaging.gathering import needed
from node.parameters import read_parameters
from orchestrator import text
from orchestrator.scenario.choices import AlgorithmSpec, LoraSpec
from orchestrator.scenario.fault_validation import SLOW_PROGRAM, check_faults
from orchestrator.scenario.language.strict import unknown
from orchestrator.scenario.language.syntax import KeyPath
from orchestrator.scenario.media.validation import check_media
from orchestrator.scenario.population_validation import check_population
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.alternatives import listed, one_host, sizes_not_simulated
from orchestrator.scenario.sections.hardware import HARDWARE, LEAST_QUOTA
from orchestrator.scenario.sections.links import Mistake, Resolved, link_of
from orchestrator.scenario.sections.programs import check_programs
from orchestrator.scenario.sections.stack import DEFAULTS
from orchestrator.scenario.sections.topology import LINK_CLASSES, unknown_node

SHORTEST_BEAT = 0.01  # s
_TIERS = ("device", "edge", "cloud")


def check(scenario: Scenario) -> list[Mistake]:
    """All mistakes, in the order of the checks."""
    too_many = scenario.topology.too_many_pairs(scenario.mesh)
    if too_many:
        return [(("topology",), too_many)]
    links = scenario.resolved_links
    link_classes = {pair.link_class for pair in scenario.pairs}
    if scenario.algorithm is None:
        of_nodes = _programs(scenario)
    else:
        of_nodes = _algorithm(scenario, scenario.algorithm)
    return [
        *of_nodes,
        *check_population(scenario),
        *_hardware(scenario),
        *_stack(scenario),
        *_hosts(scenario),
        *links.mistakes,
        *_real(scenario, links),
        *_nats(scenario, links),
        *_mtus(links),
        *_sizes(scenario, links),
        *check_media(scenario),
        *_mesh(scenario),
        *_waiting(scenario, links),
        *_quorum(scenario),
        *check_faults(scenario, links, scenario.leaders),
        *_expectations(scenario, link_classes),
    ]


def _programs(scenario: Scenario) -> Iterator[Mistake]:
    """Check the programs of a scenario that has no algorithm."""
    if not scenario.programs:
        yield (), "'algorithm' is missing: name one, or give `programs` that the nodes run instead"
        return
    kind = scenario.driver_kind
    if not kind.programs:
        why = "computes what nodes do and starts no process" if kind.simulated else "makes no nodes of programs"
        yield ("driver",), f"{scenario.driver} {why}: programs need {listed(programs=True)}"
    yield from check_programs(scenario.programs, scenario.members, kind)
    for key in ("data", "model", "gathering", "compute"):
        if getattr(scenario, key) != Scenario.model_fields[key].default:
            yield (key,), "is for an algorithm: programs have their own"
    for index, fault in enumerate(scenario.faults):
        if fault.action == "slow":
            yield ("faults", index), SLOW_PROGRAM
        if fault.every_round is not None and scenario.stop.rounds is None:
            yield ("faults", index, "every_round"), "say how many rounds there are: stop.rounds"


def _algorithm(scenario: Scenario, spec: AlgorithmSpec) -> Iterator[Mistake]:
    if scenario.programs:
        yield ("programs",), f"the nodes run {spec.name} already: leave out either programs or algorithm"
    topology = scenario.topology
    algorithm = scenario.scheme
    reason = algorithm.problem(
        cloud=topology.cloud,
        edges=topology.edges,
        devices=topology.device_count,
    )
    if reason:
        yield ("topology",), reason
    if topology.device_count and 0 in topology.per_edge:
        edge = topology.per_edge.index(0)
        yield ("topology", "devices_per_edge"), f"edge-{edge} has no devices, the other edges have: give it at least 1"
    params = read_parameters(algorithm.params, spec.params)
    if topology.edges == 1 and params.between_clients(1, 1):
        message = f"1, but edges of {algorithm.name} learn from one another: give 2 or more, or switch the exchange off"
        yield ("topology", "edges"), message
    requested = scenario.stop.rounds
    allowed = spec.rounds
    if requested is not None and allowed is not None and requested > allowed:
        yield ("stop", "rounds"), f"{requested} is more than algorithm.rounds, {allowed}"
    yield from _model(scenario)
    yield from _data(scenario, spec)


def _model(scenario: Scenario) -> Iterator[Mistake]:
    model = scenario.model.name
    algorithm = scenario.scheme
    lora = scenario.model.lora
    if algorithm.ranked and lora is None:
        yield ("model", "lora"), f"is missing, and {algorithm.name} averages adapters: give rank, alpha and targets"
    if lora is not None:
        yield from _ranks(scenario, lora)
    if model in MODEL_GROUPS and lora is not None:
        yield ("model", "lora"), f"the models of {model} have different layers: take one model"
    if model in MODEL_GROUPS and not algorithm.personal:
        able = ", ".join(other.name for other in scenario.catalogue.algorithms.values() if other.personal)
        yield ("model",), f"{model} gives clients different models, {algorithm.name} has one for all ({able} does not)"


def _ranks(scenario: Scenario, lora: LoraSpec) -> Iterator[Mistake]:
    """Check the ranks of adapters of single hardware classes."""
    algorithm = scenario.scheme
    if lora.ranks and not algorithm.ranked:
        able = ", ".join(other.name for other in scenario.catalogue.algorithms.values() if other.ranked)
        yield (
            ("model", "lora", "ranks"),
            f"{algorithm.name} averages adapters of one rank: leave it out, or take {able}",
        )
    classes = set()
    for member in scenario.members:
        if member.parent is not None:
            classes.add(scenario.hardware_of(member.name, member.tier).class_)
    for name in lora.ranks:
        if name in classes:
            continue
        if name in HARDWARE:
            why = "no client has this hardware"
        else:
            why = unknown("hardware class", name, HARDWARE)
        yield ("model", "lora", "ranks", name), why


def _data(scenario: Scenario, spec: AlgorithmSpec) -> Iterator[Mistake]:
    data = scenario.data
    partition = data.partition
    scheme = scenario.catalogue.partitions[partition.name]
    names = {entry.name for entry in fields(scheme.params)}
    if data.samples_per_client is not None:
        if "samples_per_client" in partition.params:
            yield ("data", "samples_per_client"), "given twice, here and in data.partition"
        elif "samples_per_client" in names:
            try:
                read_parameters(scheme.params, data.partition_params)
            except ValueError as error:
                yield ("data", "samples_per_client"), str(error).removeprefix("samples_per_client: ")
    if data.columns is not None and not any(map(_is_table, data.dataset)):
        yield ("data", "columns"), f"names columns of hf:PATH or csv:PATH: {data.dataset[0]} has none"
    if data.evaluate_samples is not None and "evaluate_samples" in spec.params:
        yield ("data", "evaluate_samples"), "given twice, here and in algorithm"
    if partition.name == "labels-per-edge" and scenario.topology.edges == 0:
        yield ("data", "partition"), "labels-per-edge gives labels to edges: the topology has none"
    datasets = scenario.catalogue.datasets
    anonymous = [name for name in data.dataset if name in datasets and not datasets[name].subjects]
    if scheme.subjects and anonymous:
        yield ("data", "partition"), f"{partition.name} needs a data set that names people: {anonymous[0]} does not"


def _is_table(dataset: str) -> bool:
    kind, _, _ = dataset.partition(":")
    return kind in TABLES


def _hardware(scenario: Scenario) -> Iterator[Mistake]:
    for key, spec in scenario.hardware.items():
        yield from _node_or_tier(scenario, "hardware", key)
        if spec.class_ not in HARDWARE:
            yield ("hardware", key), unknown("hardware class", spec.class_, HARDWARE)
        elif scenario.algorithm is None:
            quota = spec.resolve().quota
            if quota is not None and quota < LEAST_QUOTA:
                yield (
                    ("hardware", key),
                    f"programs would get {quota:g} of a core (speed × cores): Linux gives at least {LEAST_QUOTA}",
                )
        if spec.accelerator is not None and scenario.algorithm is None:
            yield ("hardware", key, "accelerator"), "is for an algorithm: programs find accelerators by themselves"


def _stack(scenario: Scenario) -> Iterator[Mistake]:
    simulated = scenario.driver_kind.simulated
    for key, spec in scenario.stack.items():
        yield from _node_or_tier(scenario, "stack", key)
        if not simulated:
            continue
        for name in spec.model_fields_set:
            settings = spec.settings(name)
            if not settings.items() <= DEFAULTS.items():
                others = listed(programs=True)
                yield (
                    ("stack", key, name),
                    f"the model of TCP of {scenario.driver} has only cubic, rmem 6mib and wmem 4mib: leave it out, or "
                    f"use {others}",
                )


def _hosts(scenario: Scenario) -> Iterator[Mistake]:
    for key in scenario.hosts:
        yield from _node_or_tier(scenario, "hosts", key)
    if scenario.hosts and not scenario.driver_kind.several_hosts:
        yield ("hosts",), one_host(scenario.driver, "`hosts`")


def _real(scenario: Scenario, links: Resolved) -> Iterator[Mistake]:
    """Refuse real links where there is no network between hosts."""
    kind = scenario.driver_kind
    if kind.several_hosts:
        return
    why = one_host(scenario.driver, "real links")
    if kind.simulated:
        others = listed(several_hosts=True)
        why = f"the driver {scenario.driver} computes all links, none is real: give it a profile, or use {others}"
    for entry in dict.fromkeys(links.real.values()):
        yield entry, why


def _nats(scenario: Scenario, links: Resolved) -> Iterator[Mistake]:
    """Refuse a NAT that the driver or the engine does not have."""
    if not links.nats:
        return
    kind = scenario.driver_kind
    why = ""
    if kind.simulated:
        why = f"the driver {kind.name} computes transfers and has no flows that a NAT could forget"
    elif kind.several_hosts:
        why = f"a NAT needs both directions of a link on one host, and the driver {kind.name} may spread them"
    if why:
        able = []
        for other in scenario.catalogue.drivers.values():
            if not other.simulated and not other.several_hosts:
                able.append(other.name)
        yield ("driver",), f"{why}: leave nat_timeout out, or use {' or '.join(able)}"
    elif scenario.engine == "kernel":
        yield ("engine",), "kernel has no NAT: leave nat_timeout out, or take userspace or auto"
    for direction in links.nats.keys() & links.real.keys():
        yield (*links.real[direction], "nat_timeout"), "a real link is as it is and takes no settings"


def _mtus(links: Resolved) -> Iterator[Mistake]:
    """Refuse an MTU of real links."""
    entries: dict[KeyPath, None] = {}
    for direction, entry in links.real.items():
        if direction in links.mtus:
            entries[entry] = None
    for entry in entries:
        yield (*entry, "mtu"), "a real link is as it is and takes no settings"


def _sizes(scenario: Scenario, links: Resolved) -> Iterator[Mistake]:
    """Refuse links that drop large packets where the driver has no packets."""
    if not scenario.driver_kind.simulated:
        return
    for profiles in links.extremes.values():
        if any(profile.drop_above is not None for profile in profiles):
            yield ("driver",), sizes_not_simulated(scenario.driver)
            return


def _node_or_tier(scenario: Scenario, section: str, key: str) -> Iterator[Mistake]:
    names = scenario.topology.names
    if key not in names and key not in _TIERS:
        yield (section, key), f"{unknown_node(key, names)}; tiers are {', '.join(_TIERS)}"


def _mesh(scenario: Scenario) -> Iterator[Mistake]:
    if scenario.topology.mesh is False and "edge-edge" in scenario.links:
        yield ("topology", "mesh"), "false, but links has edge-edge: leave one of them out"
    if scenario.topology.mesh is False and scenario.scheme.meshed:
        yield ("topology", "mesh"), f"false, but edges of {scenario.scheme.name} talk to one another: leave it out"


def _waiting(scenario: Scenario, links: Resolved) -> Iterator[Mistake]:
    timeouts = scenario.timeouts
    round_trip = _longest_round_trip(scenario, links)
    if timeouts.lost_after != "auto" and timeouts.lost_after <= 4 * round_trip:
        least = format_duration(round(4 * round_trip, 6))
        yield ("timeouts", "lost_after"), f"must be above four round trips of the slowest link, {least}"
    if timeouts.beat < SHORTEST_BEAT:
        yield ("timeouts", "beat"), f"must be at least {format_duration(SHORTEST_BEAT)}"
    for name in ("lost_after", "lease"):
        duration = getattr(timeouts, name)
        if duration != "auto" and duration < 2 * timeouts.beat:
            least = format_duration(2 * timeouts.beat)
            yield ("timeouts", name), f"must be at least two beats, {least}, or one late sign of life ends it"
    for name in ("deadline", "cloud_deadline"):
        if getattr(scenario.gathering, name) == 0:
            yield ("gathering", name), "must be above 0s"


def _longest_round_trip(scenario: Scenario, links: Resolved) -> float:
    """The latency of a link both ways, in seconds, at most."""
    slowest = {}
    for direction, profiles in links.extremes.items():
        slowest[direction] = max(profile.latency for profile in profiles)
    longest = 0.0
    for source, target in slowest:
        round_trip = slowest[source, target] + slowest[target, source]
        longest = max(longest, round_trip)
    if scenario.population is not None:
        for name in scenario.population.links:
            up, down = link_of(name, scenario.catalogue).directions(level=False)
            longest = max(longest, up.latency + down.latency)
    return longest


def _quorum(scenario: Scenario) -> Iterator[Mistake]:
    """Check that each gathering node asks at least as many peers as must answer; yields the first that does not."""
    count = scenario.gathering.quorum.count
    topology = scenario.topology
    if count is None:
        return
    if topology.selected is not None:
        if count > topology.selected:
            selected = topology.selected
            yield ("gathering", "quorum"), f"cloud cannot wait for {count} answers: a round ends with {selected}"
        return
    share = float(getattr(scenario.parameters, "participation", 1.0))
    for node, tiers in _gathered_tiers(scenario).items():
        asks = len(tiers)
        if tiers[0] == "device" or topology.device_count == 0:
            asks = needed(share, len(tiers))
        if count > asks:
            has = text.count(len(tiers), tiers[0])
            whom = f"it has {has}" if asks == len(tiers) else f"it asks {asks} of its {has} in a round"
            yield ("gathering", "quorum"), f"{node} cannot wait for {count} answers: {whom}"
            return
    if scenario.scheme.levels and count > topology.edges - 1:
        others = text.count(topology.edges - 1, "other edge")
        yield ("gathering", "quorum"), f"edge-0 cannot wait for {count} answers: it asks {others} too"


def _gathered_tiers(scenario: Scenario) -> dict[str, list[Tier]]:
    """The tiers of the nodes below each node that collects answers."""
    leads_at_edges = scenario.scheme.leader == "edge"
    below: dict[str, list[Tier]] = {}
    for member in scenario.members:
        parent = member.parent
        if parent is None or (parent == "cloud" and leads_at_edges):
            continue
        below.setdefault(parent, []).append(member.tier)
    return below


def _expectations(scenario: Scenario, link_classes: Set[str]) -> Iterator[Mistake]:
    expect = scenario.expect
    rounds = scenario.rounds
    names = {member.name for member in scenario.members}
    if expect.rounds is not None and rounds is not None and expect.rounds > rounds:
        yield ("expect", "rounds"), f"{expect.rounds} is more than the run has, {rounds}"
    for key in expect.bytes.given():
        if key not in link_classes | {"total"}:
            classes = ", ".join(name for name in LINK_CLASSES if name in link_classes)
            yield ("expect", "bytes", key), f"the topology has no such links; it has {classes}"
    for index, metric in enumerate(expect.metrics):
        if metric.node is not None and metric.node not in names:
            yield ("expect", "metrics", index, "node"), unknown_node(metric.node, names)
