"""From a scenario to its plan.

`make_plan` is a pure function of the scenario, the labels of its data and the inventory of hosts: equal input gives an
equal plan and equal bytes of plan.json. Node number n (the cloud first, then edges, then devices) has the address
10.77.0.0 + n.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal, NamedTuple

from netem.profile import LinkProfile
from node.assignment import Target, Tier, Timeouts, derive_seed
from node.catalogue.datasets import IGNORED, Form
from node.catalogue.models import MODEL_GROUPS, largest, model_of
from node.catalogue.sizes import Size
from node.parameters import read_parameters
from orchestrator.errors import PlanError
from orchestrator.planning.addresses import NETWORK
from orchestrator.planning.faults.timeline import FaultTime, expand, joins
from orchestrator.planning.hosts.inventory import HostFacts, Inventory
from orchestrator.planning.hosts.on_hosts import on_hosts
from orchestrator.planning.kernel_engine import refuse_beyond_kernel
from orchestrator.planning.learning.class_metrics import class_metrics
from orchestrator.planning.learning.deadlines import RoundWork, TierNodes, deadlines, lost_after
from orchestrator.planning.learning.memory import training_bytes
from orchestrator.planning.learning.model_size import model_sizes
from orchestrator.planning.learning.population import plan_clients, plan_population, typical
from orchestrator.planning.learning.shards import PreparedLabels, Shards, make_shards
from orchestrator.planning.media import at_worst, clients_at_worst, plan_cross_traffic, plan_media
from orchestrator.planning.plan import DataPlan, GatheringPlan, LinkPlan, NodePlan, Plan, StopPlan
from orchestrator.planning.programs import plan_programs, unreachable
from orchestrator.population.population import Population
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.alternatives import listed
from orchestrator.scenario.sections.compute import PROCESSOR
from orchestrator.scenario.sections.topology import Ends, Member, Pair

CLIENTS_AT_ONCE = 64
"""Clients in a batch on an accelerator: it waits for Python with one client of a small model. On a processor one client
after the other is faster."""
_GATHERING_TIERS: tuple[Tier, ...] = ("edge", "cloud")  # from the bottom up
PORT = 7000  # of every node, since each has a network namespace of its own


def make_plan(
    scenario: Scenario,
    data: PreparedLabels | None,
    folder: str = "",
    inventory: Inventory | None = None,
) -> Plan:
    """Make the plan. Without ``data`` the plan of an algorithm has no shards and is for display only. ``folder``: of
    the scenario. ``inventory``: the hosts for the nodes, under a driver of several hosts; without it nodes have none.
    Raises PlanError if the data does not suffice, the model does not accept it, faults contradict one another, the
    hosts do not suffice, or the engine cannot shape the links."""
    kind = scenario.driver_kind
    shards = Shards() if data is None else make_shards(scenario, data)
    links = _links(scenario)
    if not kind.shapes_links:
        links = tuple(map(_unshaped, links))
    faults = expand(
        scenario.faults,
        scenario.topology,
        [(link.source, link.target) for link in links],
        seed=scenario.seed,
        rounds=scenario.rounds or 0,
        after=scenario.stop.after,
        media=scenario.resolved_media,
    )
    media = plan_media(scenario)
    cross_traffic = plan_cross_traffic(scenario)
    nodes = _nodes(scenario, shards, joins(faults))
    population = plan_population(scenario, data, links)
    if population is not None:
        nodes, links = typical(nodes, links, population)
    hosts = tuple[HostFacts, ...]()
    placement = None
    if inventory is not None and kind.several_hosts:
        nodes, hosts, placement = on_hosts(nodes, links, faults, scenario, inventory)
    if not kind.simulated:
        _refuse_stretched_accelerators(nodes)
    clients = None
    if population is not None:
        clients = clients_at_worst(population, media, cross_traffic)
    slowest_links = at_worst(links, media, cross_traffic, faults)
    system = _System(nodes, slowest_links, population, clients)
    learning = {}
    if scenario.algorithm is not None:
        learning = _learning(scenario, system, shards, data)
    addresses = {node.name: node.address for node in nodes}
    plan = Plan(
        name=scenario.name,
        catalogue=scenario.catalogue,
        plugins=scenario.plugins,
        seed=scenario.seed,
        driver=scenario.driver,
        engine=scenario.engine,
        algorithm=scenario.scheme.name,
        **learning,
        nodes=nodes,
        links=links,
        faults=faults,
        timeouts=_timeouts(scenario, system),
        stop=_stop(scenario),
        restart=scenario.restart,
        probe=scenario.probe.before and kind.shapes_links,
        probe_longest=scenario.probe.longest,
        shards=shards,
        data_directory="" if data is None else data.directory,
        programs=plan_programs(scenario, addresses),
        scenario_notes=_notes(scenario),
        folder=folder,
        hosts=hosts,
        placement=placement,
        population=population,
        clients=plan_clients(scenario),
        media=media,
        cross_traffic=cross_traffic,
    )
    refuse_beyond_kernel(plan)
    return plan


def _notes(scenario: Scenario) -> tuple[str, ...]:
    """The notes on the parameters of the algorithm, or on programs."""
    if scenario.algorithm is None:
        return tuple(unreachable(scenario))
    return tuple(scenario.parameters.notes())


def _stop(scenario: Scenario) -> StopPlan:
    stop = scenario.stop
    target = None
    if stop.target:
        target = Target(
            name=stop.target.name,
            at_least=stop.target.at_least,
            at_most=stop.target.at_most,
        )
    return StopPlan(
        rounds=scenario.rounds,
        accuracy=stop.accuracy,
        after=stop.after,
        target=target,
        bytes=stop.bytes,
    )


def _timeouts(scenario: Scenario, system: _System) -> Timeouts:
    configured = scenario.timeouts
    if configured.lost_after != "auto":
        patience = configured.lost_after
    else:
        links = [profile for profiles in system.links.values() for profile in profiles]
        for of_clients in system.clients or ():
            links += of_clients
        patience = max(lost_after(links), 2 * configured.beat)
    return Timeouts(beat=configured.beat, lost_after=patience, lease=configured.lease)


class _System(NamedTuple):
    """``links``: the profiles to plan with, by direction; ``clients``: those of a population, up and down."""

    nodes: tuple[NodePlan, ...]
    links: Mapping[Ends, Sequence[LinkProfile]]
    population: Population | None
    clients: tuple[list[LinkProfile], list[LinkProfile]] | None


def _learning(
    scenario: Scenario,
    system: _System,
    shards: Shards,
    data: PreparedLabels | None,
) -> dict[str, Any]:
    """The fields of a plan about its algorithm, model and data."""
    name = scenario.model.name
    model = MODEL_GROUPS.get(name) or scenario.catalogue.models[name]
    form = _form(scenario, data)
    if form is None:
        sizes = [Size(0)]
    else:
        sizes = model_sizes(scenario, form)
    work = _round_work(scenario, system, sizes, form or Form((1,), 1), data)
    model_params = asdict(read_parameters(model.params, scenario.model.params))
    model_params |= scenario.model.adapters()
    return dict(
        params=asdict(scenario.parameters),
        clients_at_once=_clients_at_once(scenario, system.nodes),
        precision=scenario.compute.precision.removeprefix("float32"),
        model=model.name,
        model_params=model_params,
        model_bytes=largest(sizes).bytes,
        training_bytes=_training_bytes(scenario, system.nodes, sizes, data),
        data=_data(scenario, data, shards),
        gathering=_gathering(scenario, work, system),
    )


def _form(scenario: Scenario, data: PreparedLabels | None) -> Form | None:
    """The form of the data; None if the data set is unknown."""
    if data is not None:
        return data.form
    known = scenario.catalogue.datasets.get(scenario.data.dataset[0])
    if known is not None and known.classes:
        return Form(known.shape, known.classes)
    return None


def _nodes(
    scenario: Scenario,
    shards: Shards,
    late: Mapping[str, FaultTime],
) -> tuple[NodePlan, ...]:
    children, neighbours = _relations(scenario.members, scenario.pairs)
    leading = set(scenario.leaders)
    visits = defaultdict[str, list[str]](list)
    for pair in scenario.visits:
        visits[pair.lower].append(pair.upper)
        visits[pair.upper].append(pair.lower)
    nodes = []
    number_in_tier: Counter[Tier] = Counter()
    for index, member in enumerate(scenario.members, start=1):
        name = member.name
        tier = member.tier
        model, model_params = _model(scenario, name, number_in_tier[tier])
        number_in_tier[tier] += 1
        counts = shards.counts[name] if name in shards.train else ()
        hardware = scenario.hardware_of(name, tier)
        stack = scenario.stack_of(name, tier)
        node = NodePlan(
            name=name,
            tier=tier,
            index=index,
            address=str(NETWORK[index]),
            mac=f"02:ed:00:00:{index >> 8:02x}:{index & 0xFF:02x}",
            port=PORT,
            parent=member.parent,
            children=tuple(children[name]),
            neighbours=tuple(neighbours[name]),
            hardware=hardware.resolve(),
            samples=sum(counts),
            label_counts=counts,
            test_counts=shards.test_counts.get(name, ()),
            leads=name in leading,
            joins=late.get(name),
            model=model,
            model_params=model_params,
            image=hardware.image,
            device=scenario.device_of(name, tier),
            stack=stack.settings(),
            visits=tuple(visits[name]),
        )
        nodes.append(node)
    return tuple(nodes)


def _model(
    scenario: Scenario,
    node: str,
    number_in_tier: int,
) -> tuple[str, dict[str, Any]]:
    """The model of a node and its parameters; empty without an algorithm."""
    if scenario.algorithm is None:
        return "", {}
    model, params = model_of(scenario.model.name, scenario.model.params, number_in_tier)
    params |= scenario.adapters(node)
    return model, params


def _relations(
    members: list[Member],
    pairs: list[Pair],
) -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
    """Children and neighbours of each node, in the order of nodes."""
    children: defaultdict[str, list[str]] = defaultdict(list)
    neighbours: defaultdict[str, list[str]] = defaultdict(list)
    for member in members:
        if member.parent is not None:
            children[member.parent].append(member.name)
    for pair in pairs:
        if pair.link_class == "edge-edge":
            neighbours[pair.lower].append(pair.upper)
            neighbours[pair.upper].append(pair.lower)
    return children, neighbours


def _links(scenario: Scenario) -> tuple[LinkPlan, ...]:
    """All directions between nodes that may communicate; for each pair, up before down."""
    resolved = scenario.resolved_links
    crossings = scenario.resolved_media.crossings
    visits = set(scenario.visits)
    links = []
    for pair in scenario.pairs:
        for ends in (pair.up, pair.down):
            source, target = ends
            link = LinkPlan(
                source,
                target,
                pair.link_class,
                profile=resolved.profiles[ends],
                seed=derive_seed(scenario.seed, "link", source, target),
                schedule=resolved.schedules.get(ends),
                crossings=crossings.get(ends, ()),
                nat_timeout=resolved.nats.get(ends),
                waits=pair in visits,
                mtu=resolved.mtus.get(ends),
            )
            links.append(link)
    return tuple(links)


def _unshaped(link: LinkPlan) -> LinkPlan:
    """The link under a driver that does not shape it."""
    return LinkPlan(
        link.source,
        link.target,
        link.link_class,
        profile=LinkProfile(real=True),
        seed=link.seed,
        waits=link.waits,
    )


def _data(scenario: Scenario, data: PreparedLabels | None, shards: Shards) -> DataPlan:
    plan = DataPlan(
        dataset=scenario.data.dataset[0],
        partition=scenario.data.partition.name,
        partition_params=_partition_params(scenario),
        test=scenario.data.test,
    )
    if data is None:
        return plan
    return replace(
        plan,
        dataset=data.name,
        sha256=data.sha256,
        classes=data.form.classes,
        train_samples=len(data.train),
        used_samples=sum(len(part) for part in shards.train.values()),
        test_samples=len(data.test),
        test_counts=data.test_counts(),
        task=data.form.task,
        guess=data.guess,
        columns=data.columns,
        class_metrics=class_metrics(scenario, data.name, data.form.task),
        shards_sha256=shards.sha256,
        moves=shards.moves,
        notes=(*_of_unlabelled(data.unlabelled), *shards.notes),
        unheld=_unheld(data, shards),
    )


def _of_unlabelled(count: int) -> Iterator[str]:
    """A note on samples without a label that counts."""
    if count == 0:
        return
    if count == 1:
        samples = "1 sample has"
    else:
        samples = f"{count} samples have"
    yield f"{samples} no label that counts ({IGNORED} only): left out"


def _partition_params(scenario: Scenario) -> dict[str, Any]:
    """The partition's parameters, and the hash of its file. Of a population, only those that the scenario sets."""
    partition = scenario.data.partition
    if scenario.population is not None:
        return dict(partition.params)
    scheme = scenario.catalogue.partitions[partition.name]
    params = asdict(read_parameters(scheme.params, scenario.data.partition_params))
    lists = scenario.data.lists
    if lists is None:
        return params
    return params | {"sha256": lists.sha256}


def _unheld(data: PreparedLabels, shards: Shards) -> tuple[int, ...]:
    """The test classes without a training sample at any node. A population has samples of all classes to draw. Of a
    sequence only the last label is known here, so classes of tokens are not listed."""
    if data.form.labels or data.form.task != "classification":
        return ()
    trained: set[int] = set()
    if not shards.train:
        trained.update(data.train.tolist())
    for node in shards.train:
        for label, count in enumerate(shards.counts[node]):
            if count:
                trained.add(label)
    tested = set(data.test.tolist())
    return tuple(sorted(tested - trained))


def _round_work(
    scenario: Scenario,
    system: _System,
    sizes: list[Size],
    form: Form,
    data: PreparedLabels | None,
) -> RoundWork:
    devices = _of_tier(system.nodes, "device")
    edges = _of_tier(system.nodes, "edge")
    tests = 0 if data is None else len(data.test)
    population = system.population
    labels = math.prod(form.labels)
    clients = _workers(scenario, devices or edges, tests, labels)
    if population is not None:
        clients = replace(
            clients,
            count=population.asked,
            samples=int(population.sample_counts.max()),
            speed=float(population.speeds.min()),
        )
    above = None
    if devices and edges:
        above = _workers(scenario, edges, tests, labels)
    return RoundWork(sizes, form.shape, form.classes, clients, above)


def _of_tier(nodes: Iterable[NodePlan], tier: Tier) -> list[NodePlan]:
    return [node for node in nodes if node.tier == tier]


def _workers(
    scenario: Scenario,
    nodes: list[NodePlan],
    test: int,
    labels: int,
) -> TierNodes:
    """Nodes of one tier. ``test``: the samples of the global test set. ``labels``: the number of labels of a sample."""
    return TierNodes(
        count=len(nodes),
        speed=min(node.hardware.expected_speed for node in nodes),
        samples=max(node.samples for node in nodes),
        tests=max(_tests(scenario, node, test, labels) for node in nodes),
    )


def _tests(
    scenario: Scenario,
    node: NodePlan,
    test: int,
    labels: int,
) -> int:
    """The number of test samples that a node evaluates on: its own, and of some nodes the global test set."""
    own = sum(node.test_counts) // labels
    if scenario.scheme.personal or node.leads:
        return own + test
    return own


def _training_bytes(
    scenario: Scenario,
    nodes: tuple[NodePlan, ...],
    sizes: list[Size],
    data: PreparedLabels | None,
) -> dict[str, int]:
    """The memory of each node's training, by its name. Clients of each tier have the models in turn (`model_of`)."""
    if data is None:
        return {}
    memory = {}
    number_in_tier = Counter[Tier]()
    labels = math.prod(data.form.labels)
    for node in nodes:
        kind = number_in_tier[node.tier] % len(sizes)
        number_in_tier[node.tier] += 1
        if node.samples:
            tests = _tests(scenario, node, len(data.test), labels)
            memory[node.name] = training_bytes(
                sizes[kind],
                scenario.parameters,
                samples=node.samples,
                sample_bytes=data.sample_bytes,
                tests=tests,
            )
    return memory


def _gathering(scenario: Scenario, work: RoundWork, system: _System) -> GatheringPlan:
    tiers = []
    for tier in _GATHERING_TIERS:
        members = _of_tier(system.nodes, tier)
        if any(node.children for node in members):
            if system.clients is None:
                down, up = _links_below(members, system.links)
            else:
                up, down = system.clients
            tiers.append((tier, down, up))
    if not tiers:  # edges without cloud and devices
        level = [profile for profiles in system.links.values() for profile in profiles]
        tiers.append(("edge", level, level))
    configured = scenario.gathering
    waits = deadlines(
        work,
        scenario.parameters,
        tiers,
        given=_seconds(configured.deadline),
        given_above=_seconds(configured.cloud_deadline),
        across=_between_clients(system),
    )
    quorum = configured.quorum
    return GatheringPlan(quorum.share, quorum.count, configured.late, waits)


def _links_below(
    parents: Iterable[NodePlan], links: Mapping[Ends, Sequence[LinkProfile]]
) -> tuple[list[LinkProfile], list[LinkProfile]]:
    """The profiles down to the children of these nodes, and up."""
    parent_by_child = {}
    for node in parents:
        for child in node.children:
            parent_by_child[child] = node.name
    down: list[LinkProfile] = []
    up: list[LinkProfile] = []
    for (source, target), profiles in links.items():
        if parent_by_child.get(target) == source:
            down.extend(profiles)
        if parent_by_child.get(source) == target:
            up.extend(profiles)
    return down, up


def _between_clients(system: _System) -> list[LinkProfile]:
    """The profiles of links between the nodes that hold data."""
    clients = _of_tier(system.nodes, "device") or _of_tier(system.nodes, "edge")
    names = {node.name for node in clients}
    across: list[LinkProfile] = []
    for ends, profiles in system.links.items():
        if names.issuperset(ends):
            across.extend(profiles)
    return across


def _seconds(deadline: float | Literal["auto"]) -> float | None:
    if deadline == "auto":
        return None
    return float(deadline)


def _refuse_stretched_accelerators(nodes: Iterable[NodePlan]) -> None:
    """Raise PlanError if a node trains on an accelerator and emulates the speed of a slower processor: its steps are
    stretched by their processor time, which does not show how long an accelerator took."""
    for node in nodes:
        if node.device != PROCESSOR and node.hardware.speed is not None:
            raise PlanError(
                ("hardware", node.tier),
                f"{node.name} emulates the speed of a processor ({node.hardware.name}) and cannot train"
                f" on {node.device} at the same time: take the class host, a real board, or the driver"
                f" {listed(simulated=True)}",
            )


def _clients_at_once(scenario: Scenario, nodes: Iterable[NodePlan]) -> int:
    """How many simulated clients train as one batch."""
    configured = scenario.compute.clients_at_once
    if configured is not None:
        return configured
    accelerated = any(node.device != PROCESSOR for node in nodes)
    if accelerated and scenario.driver_kind.simulated:
        return CLIENTS_AT_ONCE
    return 1
