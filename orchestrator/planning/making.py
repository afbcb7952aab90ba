"""From a scenario to its plan.

`make_plan` is a pure function of the scenario, the labels of its data and the inventory of hosts: equal input gives an
equal plan and equal bytes of plan.json. It first looks up what the scenario names. Then follow links and faults, nodes,
hosts, and what training needs of all of them.
"""

from __future__ import annotations

from node.assignment import Target, Timeouts
from orchestrator.planning.faults.timeline import expand, joins
from orchestrator.planning.gathering import System
from orchestrator.planning.hosts.inventory import HostFacts, Inventory
from orchestrator.planning.hosts.on_hosts import on_hosts
from orchestrator.planning.kernel_engine import refuse_beyond_kernel
from orchestrator.planning.learning.deadlines import lost_after
from orchestrator.planning.learning.population import plan_clients, plan_population, typical
from orchestrator.planning.learning.shards import PreparedLabels, Shards, make_shards
from orchestrator.planning.links import plan_links
from orchestrator.planning.media import at_worst, clients_at_worst, plan_cross_traffic, plan_media
from orchestrator.planning.names import looked_up
from orchestrator.planning.nodes import plan_nodes, refuse_stretched_accelerators
from orchestrator.planning.plan import Plan, StopPlan
from orchestrator.planning.programs import plan_programs, unreachable
from orchestrator.planning.training import plan_learning
from orchestrator.scenario.schema import Scenario


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
    names = None
    if scenario.algorithm is not None:
        names = looked_up(scenario, data)
    links = plan_links(scenario)
    ends = [(link.source, link.target) for link in links]
    faults = expand(
        scenario.faults,
        scenario.topology,
        ends,
        seed=scenario.seed,
        rounds=scenario.rounds or 0,
        after=scenario.stop.after,
        media=scenario.resolved_media,
    )
    media = plan_media(scenario)
    cross_traffic = plan_cross_traffic(scenario)
    nodes = plan_nodes(scenario, shards, joins(faults))
    population = plan_population(scenario, data, links)
    if population is not None:
        nodes, links = typical(nodes, links, population)
    hosts = tuple[HostFacts, ...]()
    placement = None
    if inventory is not None and kind.several_hosts:
        nodes, hosts, placement = on_hosts(nodes, links, faults, scenario, inventory)
    if not kind.simulated:
        refuse_stretched_accelerators(nodes)
    clients = None
    if population is not None:
        clients = clients_at_worst(population, media, cross_traffic)
    slowest_links = at_worst(links, media, cross_traffic, faults)
    system = System(nodes, slowest_links, population, clients)
    learning = {}
    if names is not None:
        learning = plan_learning(scenario, names, system, shards, data)
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


def _timeouts(scenario: Scenario, system: System) -> Timeouts:
    configured = scenario.timeouts
    if configured.lost_after != "auto":
        patience = configured.lost_after
    else:
        links = [profile for profiles in system.links.values() for profile in profiles]
        for of_clients in system.clients or ():
            links += of_clients
        patience = max(lost_after(links), 2 * configured.beat)
    return Timeouts(beat=configured.beat, lost_after=patience, lease=configured.lease)
