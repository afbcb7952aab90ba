"""Manual faults, made while a run continues: those of a scenario's `faults`, with the same words and checks, but
without a time. Pure.

    {action: crash, node: device-0-1, for: 5s}
    {action: partition, between: [edge-0, cloud]}
    {action: degrade, node: edge-1, profile: lte, loss: 5%}
    {action: pause, of: devices, count: 2, for: 3s}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from netem.profile import LinkProfile
from netem.units import format_duration
from orchestrator.errors import PlanError
from orchestrator.planning.faults.timeline import Fault, expand
from orchestrator.planning.media import media_of
from orchestrator.planning.plan import NodePlan, Plan
from orchestrator.scenario.catalogue import CATALOGUE, Catalogue
from orchestrator.scenario.fault_validation import SLOW_PROGRAM, check_driver, check_program, check_target
from orchestrator.scenario.language.document import Document
from orchestrator.scenario.language.strict import problems
from orchestrator.scenario.media.routes import ResolvedMedia
from orchestrator.scenario.sections.faults import WHEN, FaultSpec
from orchestrator.scenario.sections.topology import POPULATION, Ends, Topology

_WHOM = ("node", "nodes", "of", "fraction", "count")


class ByHand(NamedTuple):
    """A fault, and what a scenario would write for it, without its time."""

    fault: Fault
    written: dict[str, Any]


def faults_by_hand(
    written: Mapping[str, Any],
    plan: Plan,
    at: float,
    first: int,
) -> list[ByHand]:
    """The faults of a rule that take effect now, ``at`` seconds after training started; their ids start at ``first``.
    Raises ValueError, which says in a sentence what is wrong."""
    for key in WHEN:
        if key in written:
            raise ValueError(f"{key}: a manual fault takes effect immediately; leave it out")
    timed = {**written, "at": format_duration(at)}
    spec = _read(timed, plan.catalogue)
    topology = topology_of(plan.nodes)
    media = media_of(plan)
    profiles = {}
    for link in plan.links:
        profiles[link.source, link.target] = link.extremes
    _check(spec, plan, topology, profiles, media)
    try:
        faults = expand(
            [spec],
            topology,
            list(profiles),
            seed=plan.seed,
            rounds=0,
            after=None,
            media=media,
        )
    except PlanError as error:
        raise ValueError(error.message) from None
    settings = {key: value for key, value in written.items() if key not in _WHOM}
    manual = []
    for number, fault in enumerate(faults, start=first):
        target = {}
        if fault.node is not None:
            target["node"] = fault.node
        numbered = replace(fault, id=number)
        manual.append(ByHand(numbered, {**target, **settings}))
    return manual


def _check(
    spec: FaultSpec,
    plan: Plan,
    topology: Topology,
    links: Mapping[Ends, Sequence[LinkProfile]],
    media: ResolvedMedia,
) -> None:
    """Raise ValueError if the plan has no such target, or its driver cannot make the fault."""
    leaders = [node.name for node in plan.nodes if node.leads]
    mistakes = check_target(spec, topology, links, leaders, media)
    if mistakes:
        raise ValueError(_message(mistakes))
    programs = [program.label for program in plan.programs]
    mistakes = list(check_program(spec, topology, programs))
    if mistakes:
        raise ValueError(_message(mistakes))
    engine_of_media = plan.engine if plan.media else ""
    for _, message in check_driver(spec, plan.driver_kind, engine_of_media):
        raise ValueError(message)
    if plan.programs and spec.action == "slow":
        raise ValueError(SLOW_PROGRAM)


def topology_of(nodes: Iterable[NodePlan]) -> Topology:
    """The topology of planned nodes."""
    devices: Counter[str | None] = Counter()  # by the node above them
    edges = []
    cloud = False
    for node in nodes:
        if node.name == POPULATION:
            return Topology(population=1, selected=1)
        if node.tier == "device":
            devices[node.parent] += 1
        elif node.tier == "edge":
            edges.append(node.name)
        else:
            cloud = True
    if not edges:
        return Topology(cloud=cloud, devices=devices.total())
    devices_per_edge = [devices[edge] for edge in edges]
    return Topology(cloud=cloud, edges=len(edges), devices_per_edge=devices_per_edge)


def _read(written: dict[str, Any], catalogue: Catalogue) -> FaultSpec:
    try:
        return FaultSpec.model_validate(written, context={CATALOGUE: catalogue})
    except ValidationError as error:
        document = Document("", written, {})
        mistakes = []
        for problem in problems(error, FaultSpec, document):
            mistakes.append((problem.path, problem.message))
        raise ValueError(_message(mistakes)) from None


def _message(mistakes: Iterable[tuple[str, str]]) -> str:
    sentences = []
    for key, message in mistakes:
        if key:
            sentences.append(f"{key}: {message}")
        else:
            sentences.append(message)
    return "; ".join(sentences)
