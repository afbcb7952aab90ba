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
from typing import Any, NamedTuple

from netem.profile import LinkProfile
from node.assignment import Tier, Timeouts, derive_seed
from node.catalogue.datasets import DATASETS, IGNORED, Form
from node.catalogue.models import MODEL_GROUPS, MODELS, largest, model_of
from node.catalogue.partitions import PARTITIONS
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
from orchestrator.scenario.sections.compute import PROCESSOR
from orchestrator.scenario.sections.drivers import DRIVERS, listed
from orchestrator.scenario.sections.topology import Ends, Member, Pair

CLIENTS_AT_ONCE = 64
"""Clients in a batch on an accelerator: it waits for Python with one client of a small model. On a processor one client
after the other is faster."""
PORT = 7000  # of every node, since each has a network namespace of its own


def make_plan(
    scenario: Scenario, data: PreparedLabels | None, folder: str = "", inventory: Inventory | None = None
) -> Plan:
    """Make the plan. Without ``data`` the plan of an algorithm has no shards and is for display only. ``folder``: of
    the scenario. ``inventory``: the hosts for the nodes, under a driver of several hosts; without it nodes have none.
    Raises PlanError if the data does not suffice, the model does not accept it, faults contradict one another, the
    hosts do not suffice, or the engine cannot shape the links."""
    kind = DRIVERS[scenario.driver]
    stop = scenario.stop
    if data is not None:
        shards = make_shards(scenario, data)
    else:
        shards = Shards()
    links = _links(scenario)
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
    if population is None:
        clients = None
    else:
        clients = clients_at_worst(population, media, cross_traffic)
    system = _System(nodes, at_worst(links, media, cross_traffic, faults), population, clients)
    if scenario.algorithm is None:
        learning = {}
    else:
        learning = _learning(scenario, system, shards, data)
    plan = Plan(
        name=scenario.name,
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
        stop=StopPlan(
            scenario.rounds, stop.accuracy, stop.after, stop.target.bounds if stop.target else None, stop.bytes
        ),
        restart=scenario.restart,
        probe=scenario.probe.before,
        probe_longest=scenario.probe.longest,
        shards=shards,
        data_directory=data.directory if data is not None else "",
        programs=plan_programs(scenario, {node.name: node.address for node in nodes}),
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
    return tuple(unreachable(scenario) if scenario.algorithm is None else scenario.parameters.notes())


def _timeouts(scenario: Scenario, system: _System) -> Timeouts:
    given = scenario.timeouts
    if given.lost_after != "auto":
        return Timeouts(beat=given.beat, lost_after=given.lost_after, lease=given.lease)
    profiles = [profile for found in system.links.values() for profile in found]
    for of_clients in system.clients or ():
        profiles += of_clients
    patience = max(lost_after(profiles), 2 * given.beat)
    return Timeouts(beat=given.beat, lost_after=patience, lease=given.lease)


class _System(NamedTuple):
    """``links``: the profiles to plan with, by direction; ``clients``: those of a population, up and down."""

    nodes: tuple[NodePlan, ...]
    links: Mapping[Ends, Sequence[LinkProfile]]
    population: Population | None
    clients: tuple[list[LinkProfile], list[LinkProfile]] | None


def _learning(scenario: Scenario, system: _System, shards: Shards, data: PreparedLabels | None) -> dict[str, Any]:
    """The fields of a plan about its algorithm, model and data."""
    model = (MODELS | MODEL_GROUPS)[scenario.model.name]
    form = _form(scenario, data)
    if form is None:
        sizes = [Size(0)]
    else:
        sizes = model_sizes(scenario, form)
    work = _round_work(scenario, system, sizes, form or Form((1,), 1), data)
    return dict(
        params=asdict(scenario.parameters),
        clients_at_once=_clients_at_once(scenario, system.nodes),
        precision=scenario.compute.precision.removeprefix("float32"),
        model=model.name,
        model_params=asdict(read_parameters(model.params, scenario.model.params)) | scenario.model.adapters(),
        model_bytes=largest(sizes).bytes,
        training_bytes=_training_bytes(scenario, system.nodes, sizes, data),
        data=_data(scenario, data, shards),
        gathering=_gathering(scenario, work, system),
    )


def _form(scenario: Scenario, data: PreparedLabels | None) -> Form | None:
    """The form of the data; None if the data set is unknown."""
    if data is not None:
        return data.form
    known = DATASETS.get(scenario.data.dataset[0])
    if known is not None and known.classes:
        return Form(known.shape, known.classes)
    return None


def _nodes(scenario: Scenario, shards: Shards, late: Mapping[str, FaultTime]) -> tuple[NodePlan, ...]:
    children, neighbours = _relations(scenario.members, scenario.pairs)
    leading = set(scenario.leaders)
    visits = defaultdict[str, list[str]](list)
    for pair in scenario.visits:
        visits[pair.lower].append(pair.upper)
        visits[pair.upper].append(pair.lower)
    nodes = []
    of_tier: Counter[Tier] = Counter()
    for index, member in enumerate(scenario.members, start=1):
        model = ""
        model_params = dict[str, Any]()
        if scenario.algorithm is not None:
            model, model_params = model_of(scenario.model.name, scenario.model.params, of_tier[member.tier])
            model_params |= scenario.adapters(member.name)
        of_tier[member.tier] += 1
        if member.name in shards.train:
            counts = shards.counts[member.name]
        else:
            counts = ()
        spec = scenario.hardware_of(member.name, member.tier)
        node = NodePlan(
            name=member.name,
            tier=member.tier,
            index=index,
            address=str(NETWORK[index]),
            mac=f"02:ed:00:00:{index >> 8:02x}:{index & 0xFF:02x}",
            port=PORT,
            parent=member.parent,
            children=tuple(children[member.name]),
            neighbours=tuple(neighbours[member.name]),
            hardware=spec.resolve(),
            samples=sum(counts),
            label_counts=counts,
            test_counts=shards.test_counts.get(member.name, ()),
            leads=member.name in leading,
            joins=late.get(member.name),
            model=model,
            model_params=model_params,
            image=spec.image,
            device=scenario.device_of(member.name, member.tier),
            stack=scenario.stack_of(member.name, member.tier).settings(),
            visits=tuple(visits[member.name]),
        )
        nodes.append(node)
    return tuple(nodes)


def _relations(
    members: list[Member], pairs: list[Pair]
) -> tuple[defaultdict[str, list[str]], defaultdict[str, list[str]]]:
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
    found = scenario.resolved_links
    visits = set(scenario.visits)
    links = []
    for pair in scenario.pairs:
        for source, target in ((pair.lower, pair.upper), (pair.upper, pair.lower)):
            seed = derive_seed(scenario.seed, "link", source, target)
            profile = found.profiles[source, target]
            schedule = found.schedules.get((source, target))
            crossings = scenario.resolved_media.crossings.get((source, target), ())
            nat_timeout = found.nats.get((source, target))
            link = LinkPlan(source, target, pair.link_class, profile, seed, schedule, crossings)
            mtu = found.mtus.get((source, target))
            links.append(replace(link, nat_timeout=nat_timeout, waits=pair in visits, mtu=mtu))
    return tuple(links)


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
    if count:
        samples = "1 sample has" if count == 1 else f"{count} samples have"
        yield f"{samples} no label that counts ({IGNORED} only): left out"


def _partition_params(scenario: Scenario) -> dict[str, Any]:
    """The partition's parameters, and the hash of its file. Of a population, only those that were given."""
    if scenario.population is not None:
        return dict(scenario.data.partition.params)
    params = asdict(read_parameters(PARTITIONS[scenario.data.partition.name].params, scenario.data.partition_params))
    lists = scenario.data.lists
    if lists is None:
        return params
    return params | {"sha256": lists.sha256}


def _unheld(data: PreparedLabels, shards: Shards) -> tuple[int, ...]:
    """The test classes of which no node holds a training sample. A population has samples of all classes to draw. Of a
    sequence only the last label is known here, so classes of tokens are not listed."""
    if data.form.labels or data.form.task != "classification":
        return ()
    if not shards.train:
        return tuple(sorted(set(data.test.tolist()) - set(data.train.tolist())))
    held = [sum(column) for column in zip(*(shards.counts[node] for node in shards.train), strict=True)]
    return tuple(sorted(label for label in set(data.test.tolist()) if not held[label]))


def _round_work(
    scenario: Scenario,
    system: _System,
    sizes: list[Size],
    form: Form,
    data: PreparedLabels | None,
) -> RoundWork:
    devices, edges = ([node for node in system.nodes if node.tier == tier] for tier in ("device", "edge"))
    test = 0 if data is None else len(data.test)
    population = system.population
    labels = math.prod(form.labels)
    clients = _workers(scenario, devices or edges, test, labels)
    if population is not None:
        slowest = float(population.speeds.min())
        most = int(population.sample_counts.max())
        clients = replace(clients, count=population.asked, samples=most, speed=min(slowest, 1.0))
    if devices and edges:
        above = _workers(scenario, edges, test, labels)
    else:
        above = None
    return RoundWork(sizes, form.shape, form.classes, clients, above)


def _workers(scenario: Scenario, nodes: list[NodePlan], test: int, labels: int) -> TierNodes:
    """Nodes of one tier. ``test``: the samples of the global test set. ``labels``: the number of labels of a sample."""
    return TierNodes(
        count=len(nodes),
        speed=min(min(node.hardware.expected_speed, 1.0) for node in nodes),
        samples=max(node.samples for node in nodes),
        tests=max(_tests(scenario, node, test, labels) for node in nodes),
    )


def _tests(scenario: Scenario, node: NodePlan, test: int, labels: int) -> int:
    """The number of test samples that a node evaluates on: its own, and of some nodes the global test set."""
    return sum(node.test_counts) // labels + (test if scenario.scheme.personal or node.leads else 0)


def _training_bytes(
    scenario: Scenario, nodes: tuple[NodePlan, ...], sizes: list[Size], data: PreparedLabels | None
) -> dict[str, int]:
    """The memory of each node's training, by its name. Clients of each tier have the models in turn (`model_of`)."""
    if data is None:
        return {}
    found = {}
    of_tier = Counter[Tier]()
    labels = math.prod(data.form.labels)
    for node in nodes:
        size = sizes[of_tier[node.tier] % len(sizes)]
        of_tier[node.tier] += 1
        if node.samples:
            tests = _tests(scenario, node, len(data.test), labels)
            found[node.name] = training_bytes(size, scenario.parameters, node.samples, data.sample_bytes, tests)
    return found


def _gathering(scenario: Scenario, work: RoundWork, system: _System) -> GatheringPlan:
    nodes = system.nodes
    links = system.links
    clients = [node for node in nodes if node.tier == "device"] or [node for node in nodes if node.tier == "edge"]
    tiers = []
    for tier in ("edge", "cloud"):
        below = {child: node.name for node in nodes if node.tier == tier for child in node.children}
        if below:
            down = [each for (a, b), found in links.items() if below.get(b) == a for each in found]
            up = [each for (a, b), found in links.items() if below.get(a) == b for each in found]
            if system.clients is not None:
                up, down = system.clients
            tiers.append((tier, down, up))
    if not tiers:  # edges without cloud and devices
        level = [each for found in links.values() for each in found]
        tiers.append(("edge", level, level))
    names = {node.name for node in clients}
    across = [each for ends, found in links.items() if names.issuperset(ends) for each in found]
    requested = (scenario.gathering.deadline, scenario.gathering.cloud_deadline)
    given, above = (None if each == "auto" else float(each) for each in requested)
    waits = deadlines(work, scenario.parameters, tiers, given, above, across)
    quorum = scenario.gathering.quorum
    return GatheringPlan(quorum.share, quorum.count, scenario.gathering.late, waits)


def _refuse_stretched_accelerators(nodes: Iterable[NodePlan]) -> None:
    """Raise PlanError if a node trains on an accelerator and emulates the speed of a slower processor: its steps are
    stretched by their processor time, which does not tell how long an accelerator took."""
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
    if scenario.compute.clients_at_once is not None:
        return scenario.compute.clients_at_once
    accelerated = any(node.device != PROCESSOR for node in nodes)
    return CLIENTS_AT_ONCE if accelerated and DRIVERS[scenario.driver].simulated else 1
