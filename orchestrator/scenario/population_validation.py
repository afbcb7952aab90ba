"""Validation of a scenario with a population: what its driver, algorithm, data, links and faults can be."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.scenario.language.strict import unknown
from orchestrator.scenario.population.client_settings import ClientSettings
from orchestrator.scenario.population.clients import ClientsSpec
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.alternatives import listed
from orchestrator.scenario.sections.hardware import HARDWARE
from orchestrator.scenario.sections.links import LinkSpec, Mistake
from orchestrator.scenario.sections.topology import LINK_CLASSES, POPULATION

LINK_CLASS = "device-cloud"
MOST_ROWS = 20_000  # of a file of clients; each is in plan.json


def check_population(scenario: Scenario) -> Iterator[Mistake]:
    """Yield every mistake of a population; of a scenario without one, that it has settings of one."""
    spec = scenario.population
    if spec is None:
        if scenario.clients is not None:
            yield from _without_population(scenario.clients)
        return
    if spec.settings is not None:
        yield from _file(spec, spec.settings)
    if not scenario.driver_kind.simulated:
        why = f"the driver {scenario.driver} makes every node before the run, and clients of a population come and go"
        yield ("topology", "population"), f"{why}: use the driver {listed(simulated=True)}"
    scheme = scenario.scheme
    fits = scheme.problem(cloud=True, edges=0, devices=1) is None
    if scenario.algorithm is not None:
        if fits and not scheme.population:
            able = [algorithm.name for algorithm in scenario.catalogue.algorithms.values() if algorithm.population]
            why = f"{scenario.algorithm.name} needs the same clients from round to round"
            yield ("topology", "population"), f"{why}; for clients that come and go take one of {', '.join(able)}"
        if scenario.algorithm.params.get("participation") is not None:
            yield ("algorithm", "participation"), "topology.selected says how many clients a round has: leave it out"
    if fits and scheme.asynchronous:
        yield from _asynchronous(scheme.name, spec)
    yield from _data(scenario, spec)
    yield from _hardware_and_links(scenario, spec)


def _file(spec: ClientsSpec, settings: ClientSettings) -> Iterator[Mistake]:
    for key in ("hardware", "speed", "links"):
        if getattr(spec, key):
            yield ("clients", key), f"{settings.name} gives it already: leave out one of them"
    for row in settings.rows:
        name = row.hardware.get("class", "host")
        if name not in HARDWARE:
            yield ("clients", "file"), f"{row.place}: {unknown('hardware class', name, HARDWARE)}"
            return
        unused = row.hardware.keys() - {"class", "speed"}
        if unused:
            why = f"{min(unused)} has no effect in a population: the simulation only computes the speed"
            yield ("clients", "file"), f"{row.place}: {why}: leave the column out"
            return
    if len(settings.rows) > MOST_ROWS:
        yield ("clients", "file"), f"has {len(settings.rows):,} rows, at most {MOST_ROWS:,}: leave some out"


def _without_population(spec: ClientsSpec) -> Iterator[Mistake]:
    """Nodes that all run from the start may have a file of settings and a trace."""
    keys = spec.model_fields_set
    if not keys or keys - {"file", "availability"}:
        yield ("clients",), "are those of a population: write topology: {population: 1000, selected: 10}, or remove"
    elif spec.availability is not None and spec.availability.table is None:
        why = "goes with a population. For single nodes print it as a trace"
        yield ("clients", "availability"), f"day-and-night {why}: python -m orchestrator.population day-and-night"


def _asynchronous(algorithm: str, spec: ClientsSpec) -> Iterator[Mistake]:
    if spec.over:
        why = f"{algorithm} has no rounds that end with the first answers, so it drops no slow clients"
        yield ("clients", "over"), f"{why}: leave it out, or let topology.selected be larger"
    if spec.selection.name == "oort":
        why = f"oort divides the clients of a round into known and new ones, and {algorithm} selects them one by one"
        yield ("clients", "selection"), f"{why}: take uniform or least-available"


def _data(scenario: Scenario, spec: ClientsSpec) -> Iterator[Mistake]:
    data = scenario.data
    has_number = data.samples_per_client is not None
    has_distribution = spec.samples is not None
    if not has_number and not has_distribution:
        why = "the clients of a population share the data set, so it does not say how many samples each has"
        yield ("data", "samples_per_client"), f"is missing: {why}; or write clients.samples"
    if has_number and has_distribution:
        yield ("clients", "samples"), "data.samples_per_client gives a number already: leave out one of them"
    partition = data.partition
    if partition.name not in ("iid", "dirichlet"):
        why = "divides the data set once, and each client of a population draws its own samples"
        yield ("data", "partition"), f"{partition.name} {why}: take iid or dirichlet"
        return
    stray = [key for key in partition.params if key != "alpha"]
    if stray:
        why = "is for a data set that is divided once; of a population, each client draws its own samples"
        yield ("data", "partition"), f"{partition.name}: {stray[0]} {why}: leave it out"


def _hardware_and_links(scenario: Scenario, spec: ClientsSpec) -> Iterator[Mistake]:
    twice = [key for key in ("device", POPULATION) if key in scenario.hardware]
    if twice and (spec.hardware or spec.speed is not None):
        key = "hardware" if spec.hardware else "speed"
        yield ("hardware", twice[0]), f"clients.{key} says how fast the clients are already: leave out one of them"
    link = scenario.links.get(LINK_CLASS)
    if link is not None:
        if spec.links:
            yield ("links", LINK_CLASS), "clients.links gives the clients their links already: leave out one of them"
        if _has_schedule(link):
            yield ("links", LINK_CLASS), "the links of a population's clients last for a round: leave out the schedule"
    for key in scenario.links:
        if key not in LINK_CLASSES:
            yield ("links", key), f"clients of a population have no links of their own here: write {LINK_CLASS}"


def _has_schedule(link: LinkSpec) -> bool:
    for side in (link, link.up, link.down):
        if side is not None and side.schedule:
            return True
    return False
