"""Prints the plan: nodes, data, links with the commands that make them, faults.

If there are many nodes, similar nodes are shown together. `plan.json` holds every node.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from netem.profile import KEYS, LinkProfile
from netem.units import format_duration, format_fraction, format_size
from orchestrator import text
from orchestrator.layout import write, write_entries, write_table
from orchestrator.planning.faults.timeline import Fault
from orchestrator.planning.hosts.crossings import HostCrossing
from orchestrator.planning.hosts.placement import Placement
from orchestrator.planning.plan import GatheringPlan, LinkPlan, NodePlan, Plan, StopPlan
from orchestrator.results.courses import courses
from orchestrator.run.links.link_measurement import seconds_of_probes
from orchestrator.scenario.language.quantities import Quorum
from orchestrator.scenario.sections.compute import PROCESSOR
from orchestrator.scenario.sections.drivers import link_kind
from orchestrator.verbs.plans.commands import print_commands
from orchestrator.verbs.plans.words import (
    CROSS_TRAFFIC,
    alike,
    changed_words,
    cross_traffic_rows,
    media_rows,
    population_entries,
    settings_words,
    tiers_of,
    way,
)

FEW_NODES = 30  # up to this number, nodes are shown one by one
COUNTED_CLASSES = 12  # up to this number of classes, label counts fit as numbers
SINGLE_COLUMNS = 50  # up to this number, each column of a table has a row of its own
MOST_LABELS = 100  # shown as bars; text has a label for each of thousands of tokens
_BARS = " ▁▂▃▄▅▆▇█"


def print_plan(plan: Plan, console: Console) -> None:
    few = len(plan.nodes) <= FEW_NODES
    name = (plan.name, "bold")
    write(console, Text.assemble(name, f", seed {plan.seed}"))
    write_entries(console, _facts(plan))
    _print_nodes(console, plan, few)
    if plan.placement is not None:
        _print_placement(console, plan, plan.placement, few)
    if plan.programs:
        _print_programs(console, plan)
    elif plan.population is not None:
        _title(console, _data_title(plan))
        _title(console, f"Population ({plan.population.size:,} clients)")
        write_entries(console, population_entries(plan.population))
    else:
        _print_data(console, plan, few)
    _print_notes(console, plan)
    _print_links(console, plan)
    if plan.media:
        _print_media(console, plan)
    if plan.cross_traffic:
        _title(console, "Cross traffic, from the start of training")
        write_table(console, CROSS_TRAFFIC, cross_traffic_rows(plan.cross_traffic))
    _print_schedules(console, plan)
    if not plan.driver_kind.simulated:
        print_commands(console, plan)
    _print_faults(console, plan)


def plan_json(plan: Plan) -> dict[str, Any]:
    """The content of plan.json with the kind of each link, and the placement."""
    links = []
    for link in plan.links:
        kind = link_kind(plan.driver, real=link.profile.real)
        links.append(link.to_json() | {"kind": kind})
    training_bytes = dict(plan.training_bytes)
    content = plan.to_json() | {"links": links, "training_bytes": training_bytes}
    if plan.placement is not None:
        content["placement"] = plan.placement.to_json()
    return content


def _facts(plan: Plan) -> list[tuple[str, str]]:
    stop = _stop_conditions(plan.stop)
    runs_on = [("runs on", f"driver {plan.driver}, engine {plan.engine}"), *_probes(plan)]
    if plan.programs:
        stop.append("its programs")
        return [("ends after", " or ".join(stop)), *runs_on]
    facts = []
    if plan.plugins:
        plugins = [f"{plugin.name} (sha256 {plugin.sha256[:12]})" for plugin in plan.plugins]
        facts.append(("plug-ins", ", ".join(plugins)))
    size = ""
    if plan.model_bytes:
        size = f", {text.size(plan.model_bytes)}"
    facts.append(("algorithm", f"{plan.algorithm} ({settings_words(plan.params)})"))
    facts.append(("model", f"{plan.model}{size}"))
    facts.extend(_memory(plan))
    facts.append(("ends after", " or ".join(stop)))
    facts.append(("gathering", _gathering(plan.gathering)))
    facts.extend(runs_on)
    return facts


def _stop_conditions(stop: StopPlan) -> list[str]:
    conditions = []
    if stop.rounds is not None:
        conditions.append(text.count(stop.rounds, "round"))
    if stop.accuracy is not None:
        conditions.append(f"accuracy {format_fraction(stop.accuracy)}")
    if stop.target is not None:
        limits = []
        if stop.target.at_least is not None:
            limits.append(f"at least {stop.target.at_least:g}")
        if stop.target.at_most is not None:
            limits.append(f"at most {stop.target.at_most:g}")
        conditions.append(f"{stop.target.name} {' and '.join(limits)}")
    if stop.after is not None:
        conditions.append(f"{format_duration(stop.after)} of training")
    if stop.bytes is not None:
        conditions.append(f"{format_size(stop.bytes)} of the devices")
    return conditions


def _gathering(gathering: GatheringPlan) -> str:
    quorum = Quorum(gathering.quorum, gathering.count)
    waits = []
    for tier, seconds in gathering.deadlines.items():
        waits.append(f"{tier} {format_duration(seconds)}")
    return f"quorum {quorum}, late answers: {gathering.late}, deadline: {', '.join(waits)}"


def _probes(plan: Plan) -> Iterator[tuple[str, str]]:
    """How long the measurement of the links takes."""
    if plan.probe and plan.links and not plan.driver_kind.simulated:
        seconds = seconds_of_probes(plan)
        yield "measures links", f"before the training, for about {text.duration(seconds)}"


def _memory(plan: Plan) -> Iterator[tuple[str, str]]:
    """The memory that training needs on each kind of hardware."""
    needed: dict[tuple[str, int | None], int] = {}
    for name, count in plan.training_bytes.items():
        hardware = plan.node(name).hardware
        key = hardware.name, hardware.memory
        needed[key] = max(count, needed.get(key, 0))
    for (name, memory), count in needed.items():
        limit = "" if memory is None else f" of {format_size(memory)}"
        yield "training takes", f"about {text.size(count)}{limit} on {name}"


def _title(console: Console, title: str) -> None:
    write(console, "", Text(title, style="bold"))


def _print_notes(console: Console, plan: Plan) -> None:
    notes = list(plan.notes())
    if plan.placement is not None:
        notes.extend(plan.placement.crossing_notes())
    for note in notes:
        write(console, Text.assemble(("note: ", "yellow"), note))


def _print_media(console: Console, plan: Plan) -> None:
    _title(console, f"Shared media ({len(plan.media)})")
    homes: Mapping[str, str] = {}
    if plan.placement is not None:
        homes = plan.placement.media
    rows = media_rows(plan.media, homes)
    headings = next(rows)
    write_table(console, headings, rows)


def _print_nodes(console: Console, plan: Plan, few: bool) -> None:
    _title(console, f"Nodes ({len(plan.nodes)})")

    def kind_of_node(node: NodePlan) -> Hashable:
        if few:
            return node.name
        return (
            node.tier,
            node.parent,
            node.hardware,
            node.image,
            node.device,
            node.joins,
            str(node.stack),
        )

    rows = []
    for nodes in alike(plan.nodes, kind_of_node):
        first = nodes[0]
        if len(nodes) == 1:
            address = f"{first.address}:{first.port}"
        else:
            address = f"{first.address} ... {nodes[-1].address}"
        hardware = first.hardware
        speed = "" if hardware.speed is None else f"{hardware.speed:g}"
        row = [
            _span(_names(nodes)),
            address,
            hardware.name,
            speed,
            first.parent or "",
            ", ".join(_remarks(first)),
        ]
        rows.append(row)
    headings = ("name", "address", "hardware", "speed", "below", "remarks")
    write_table(console, headings, rows, right={3})


def _remarks(node: NodePlan) -> Iterator[str]:
    if node.leads:
        yield "leads"
    if node.joins is not None:
        yield f"joins {_moment(node.joins.at, node.joins.round)}"
    if node.hardware.cores is not None:
        yield f"{node.hardware.cores:g} cores"
    if node.hardware.memory is not None:
        yield format_size(node.hardware.memory)
    if node.image is not None:
        yield f"image {node.image}"
    if node.device != PROCESSOR:
        yield f"trains on {node.device}"
    for name, value in node.stack.items():
        yield f"{name} {value}"


def _print_placement(console: Console, plan: Plan, placement: Placement, few: bool) -> None:
    """Print the placement with its reasons, and the links between hosts."""
    _title(console, f"Placement ({text.count(len(plan.hosts), 'host')})")

    def kind_of_node(node: NodePlan) -> Hashable:
        if few:
            return node.name
        return node.tier, node.host, placement.reasons[node.name]

    rows = []
    for nodes in alike(plan.nodes, kind_of_node):
        first = nodes[0]
        reason = placement.reasons[first.name]
        rows.append([_span(_names(nodes)), first.host, reason])
    write_table(console, ("node", "host", "why"), rows)
    if placement.crossings:
        _title(console, "Links between hosts")
        headings = (
            "from",
            "to",
            "links",
            "real",
            "others together",
            "network's rate",
            "network's delay",
        )
        rows = [_crossing_row(crossing) for crossing in placement.crossings]
        write_table(console, headings, rows, right=range(2, 7))


def _crossing_row(crossing: HostCrossing) -> list[str]:
    if crossing.real == crossing.links:
        requested = "–"
    elif crossing.rate is None:
        requested = "not limited"
    else:
        requested = text.rate(crossing.rate)
    rate = "not measured"
    delay = "not measured"
    if crossing.underlay is not None:
        rate = text.rate(crossing.underlay.rate)
        delay = text.duration(crossing.underlay.delay)
    return [
        crossing.source,
        crossing.target,
        str(crossing.links),
        str(crossing.real or ""),
        requested,
        rate,
        delay,
    ]


def _data_title(plan: Plan) -> str:
    data = plan.data
    params = []
    for key, value in data.partition_params.items():
        if value not in (None, {}):
            params.append(f"{key} {value}")
    title = f"Data: {data.dataset}, {data.partition}"
    if params:
        title += f" ({', '.join(params)})"
    if plan.population is not None:
        return f"{title}; each client draws its own of {data.train_samples:,} training samples"
    if not data.sha256:
        return f"{title}; not on this host, so not divided"
    if data.task == "regression":
        title += f"; regression, {text.count(data.classes, 'number')} for each sample"
    if data.task == "multi-label":
        title += f"; multi-label, {data.classes} labels"
    used = f"{data.used_samples:,} of {data.train_samples:,} training samples"
    return f"{title}; {used}, {text.count(len(data.moves), 'repair')}"


def _print_programs(console: Console, plan: Plan) -> None:
    _title(console, f"Programs ({len(plan.programs)})")
    rows = []
    for program in plan.programs:
        remarks = []
        if program.after:
            remarks.append(f"after {text.some(program.after)}")
        if program.ends_the_run:
            remarks.append("ends the run")
        if program.expected_to_end:
            remarks.append("may end before")
        command = shlex.join(program.command)
        rows.append([program.label, command, ", ".join(remarks)])
    write_table(console, ("program", "command", "remarks"), rows)


def _print_data(console: Console, plan: Plan, few: bool) -> None:
    _title(console, _data_title(plan))
    data = plan.data
    counted = data.classes <= COUNTED_CLASSES
    if data.task != "classification":
        labels = []
    elif counted:
        labels = [str(label) for label in range(data.classes)]
    else:
        labels = ["labels"]
    room = min(MOST_LABELS, console.width // 2)

    def kind_of_node(node: NodePlan) -> Hashable:
        if few:
            return node.name
        return node.parent

    with_samples = [node for node in plan.nodes if node.label_counts]
    rows = []
    for nodes in alike(with_samples, kind_of_node):
        by_label = zip(*(node.label_counts for node in nodes), strict=True)
        counts = [sum(counts_of_label) for counts_of_label in by_label]
        if counted:
            shown = [str(count or "·") for count in counts]
        else:
            shown = [_bars(counts, room)]
        if not labels:
            shown = []
        rows.append([_span(_names(nodes)), _samples(nodes), *shown])
    headings = ("node", "samples", *labels)
    write_table(console, headings, rows, right=range(1, len(headings)))
    if data.columns:
        _print_columns(console, data.columns)


def _samples(nodes: Sequence[NodePlan]) -> str:
    """The number of samples of each of the nodes: one number, or the smallest and the largest one."""
    sizes = [node.samples for node in nodes]
    smallest = min(sizes)
    largest = max(sizes)
    if smallest == largest:
        return f"{smallest:,}"
    return f"{smallest:,} ... {largest:,}"


def _print_columns(console: Console, columns: Sequence[tuple[str, str]]) -> None:
    """Print what each column of a table became. Of many columns, adjacent ones that became the same share a row."""
    _title(console, f"Columns ({len(columns)})")
    many = len(columns) > SINGLE_COLUMNS

    def kind_of_column(column: tuple[str, str]) -> tuple[str, str]:
        name, became = column
        if many:
            return became, ""
        return became, name

    rows = []
    for (became, _), group in itertools.groupby(columns, kind_of_column):
        names = [name or "without a name" for name, _ in group]
        rows.append([_span(names), became])
    write_table(console, ("column", "became"), rows)


def _bars(counts: Sequence[int], room: int) -> str:
    """A bar for each of the first ``room`` labels, and how many more labels exist."""
    most = max(counts) or 1
    bars = ""
    for count in counts[:room]:
        eighths = -(-8 * count // most)  # rounded up
        bars += _BARS[eighths]
    more = len(counts) - room
    if more <= 0:
        return bars
    return f"{bars} and {more:,} more"


def _print_links(console: Console, plan: Plan) -> None:
    _title(console, f"Links ({len(plan.links)} directions)")
    tiers = tiers_of(plan)

    def kind_of_link(link: LinkPlan) -> Hashable:
        return (
            link.link_class,
            tiers[link.source],
            link.profile,
            way(link),
            link.nat_timeout,
            link.mtu,
        )

    headings = ["class", "direction", "count", "kind", "profile"]
    if plan.media:
        headings.append("then crosses")
    rows = []
    for links in alike(plan.links, kind_of_link):
        first = links[0]
        if len(links) == 1:
            direction = f"{first.source} -> {first.target}"
        else:
            direction = f"{tiers[first.source]} -> {tiers[first.target]}"
        row = [
            first.link_class,
            direction,
            str(len(links)),
            link_kind(plan.driver, real=first.profile.real),
            _profile(plan, links),
        ]
        if plan.media:
            row.append(way(first))
        rows.append(row)
    write_table(console, headings, rows, right={2})


def _profile(plan: Plan, links: Sequence[LinkPlan]) -> str:
    """The profile of links that have the same one, in words. For real links, the round trips between their hosts."""
    first = links[0]
    if first.profile.real:
        return _round_trips(plan, links)
    words = first.profile.describe()
    if first.nat_timeout is not None:
        words += f", NAT forgets after {format_duration(first.nat_timeout)}"
    if first.mtu is not None:
        words += f", MTU {first.mtu}"
    return words


def _round_trips(plan: Plan, links: Sequence[LinkPlan]) -> str:
    """The smallest and the largest measured round trip between the hosts of real links."""
    underlays = {}
    if plan.placement is not None:
        for crossing in plan.placement.crossings:
            underlays[crossing.source, crossing.target] = crossing.underlay
    round_trips = []
    for link in links:
        source = plan.node(link.source)
        target = plan.node(link.target)
        underlay = underlays.get((source.host, target.host))
        if underlay is None:
            return "not shaped, not measured yet"
        round_trips.append(2 * underlay.delay)
    shortest = text.duration(min(round_trips))
    longest = text.duration(max(round_trips))
    if shortest == longest:
        return f"not shaped, measured round trip {shortest}"
    return f"not shaped, measured round trip {shortest} to {longest}"


def _print_schedules(console: Console, plan: Plan) -> None:
    """Print how links change over time, in words."""
    rows = []
    for course in courses(plan.links, plan.media):
        count = len(course.pairs)
        rows.append([course.name, str(count), course.schedule.describe()])
    if not rows:
        return
    _title(console, "Links over time, from the start of training")
    write_table(console, ("links", "count", "schedule"), rows, right={1})


def _print_faults(console: Console, plan: Plan) -> None:
    _title(console, f"Faults ({len(plan.faults)})")
    rows = []
    for faults in alike(plan.faults, _kind_of_fault):
        first = faults[0]
        numbers = [str(fault.id) for fault in faults]
        targets = [fault.target for fault in faults]
        row = [
            _span(numbers, mark="-"),
            _moment(first.at, first.round, first.event),
            first.action,
            text.some(targets, limit=6),
            _until(first),
            _detail(first),
        ]
        rows.append(row)
    headings = ("number", "when", "action", "target", "until", "detail")
    write_table(console, headings, rows)


def _kind_of_fault(fault: Fault) -> Hashable:
    changes = json.dumps([fault.profile, fault.profile_up, fault.channels])
    return (
        fault.action,
        fault.at,
        fault.round,
        fault.event,
        fault.duration,
        fault.lasts_a_round,
        fault.factor,
        fault.to,
        changes,
    )


def _moment(at: float | None, round: int | None, event: str | None = None) -> str:
    if event is not None:
        return f"event {event}"
    if at is None:
        return f"round {round}"
    return f"at {format_duration(at)}"


def _until(fault: Fault) -> str:
    if fault.action in ("join", "leave"):
        return ""
    if fault.duration is not None:
        return f"for {format_duration(fault.duration)}"
    if fault.lasts_a_round:
        return "the round ends"
    return "the run ends"


def _detail(fault: Fault) -> str:
    if fault.factor is not None:
        return f"{fault.factor:g} times slower"
    if fault.to is not None:
        return f"to {fault.to}"
    profile = fault.profile or {}
    if not profile and fault.channels:
        first_channel = next(iter(fault.channels.values()))
        profile = changed_words(first_channel)
    if fault.direction is not None:
        if fault.direction == "up" and fault.profile_up is not None:
            one_way = fault.profile_up
        else:
            one_way = profile
        return f"{fault.direction} only {_changes(one_way)}".strip()
    if fault.profile_up is None:
        return _changes(profile)
    return f"up: {_changes(fault.profile_up)}; down: {_changes(profile)}"


def _changes(profile: Mapping[str, Any]) -> str:
    if len(profile) == len(KEYS):  # a whole profile takes the place of the link's own
        return LinkProfile.from_mapping(profile).describe()
    return ", ".join(f"{key} {value}" for key, value in profile.items())


def _names(nodes: Sequence[NodePlan]) -> list[str]:
    return [node.name for node in nodes]


def _span(names: Sequence[str], mark: str = " ... ") -> str:
    first = names[0]
    if len(names) == 1:
        return first
    counted = "" if mark == "-" else f" ({len(names)})"
    return f"{first}{mark}{names[-1]}{counted}"
