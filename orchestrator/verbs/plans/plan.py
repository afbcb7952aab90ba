"""Prints the plan: nodes, data, links with the commands that make them, faults.

If there are many nodes, similar nodes are shown together. `plan.json` holds every node.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
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
from orchestrator.planning.plan import LinkPlan, NodePlan, Plan
from orchestrator.results.courses import courses
from orchestrator.run.links.probe import seconds_of_probes
from orchestrator.scenario.language.quantities import Quorum
from orchestrator.scenario.sections.compute import PROCESSOR
from orchestrator.scenario.sections.drivers import kind_of, link_kind
from orchestrator.verbs.plans.commands import print_commands
from orchestrator.verbs.plans.words import (
    CROSS_TRAFFIC,
    alike,
    changed_words,
    cross_traffic_rows,
    media_rows,
    population_entries,
    way,
)

FEW_NODES = 30  # up to this number, nodes are shown one by one
COUNTED_CLASSES = 12  # up to this number of classes, label counts fit as numbers
SINGLE_COLUMNS = 50  # of a table, of which each has a row of its own
MOST_LABELS = 100  # whose counts are shown as bars; text has a label for each of thousands of tokens
_BARS = " ▁▂▃▄▅▆▇█"


def print_plan(plan: Plan, console: Console) -> None:
    few = len(plan.nodes) <= FEW_NODES
    write(console, Text.assemble((plan.name, "bold"), f", seed {plan.seed}"))
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
    for note in (*plan.notes(), *(plan.placement.crossing_notes() if plan.placement is not None else ())):
        write(console, Text.assemble(("note: ", "yellow"), note))
    _print_links(console, plan)
    if plan.media:
        _title(console, f"Shared media ({len(plan.media)})")
        headings, *rows = media_rows(plan.media, {} if plan.placement is None else plan.placement.media)
        write_table(console, headings, rows)
    if plan.cross_traffic:
        _title(console, "Cross traffic, from the start of training")
        write_table(console, CROSS_TRAFFIC, cross_traffic_rows(plan.cross_traffic))
    _print_schedules(console, plan)
    if not kind_of(plan.driver).simulated:
        print_commands(console, plan)
    _print_faults(console, plan)


def plan_json(plan: Plan) -> dict[str, Any]:
    """The content of plan.json with the kind of each link, and the placement."""
    links = [link.to_json() | {"kind": link_kind(plan.driver, real=link.profile.real)} for link in plan.links]
    return (
        plan.to_json()
        | {"links": links, "training_bytes": dict(plan.training_bytes)}
        | ({"placement": plan.placement.to_json()} if plan.placement is not None else {})
    )


def _facts(plan: Plan) -> list[tuple[str, str]]:
    if plan.stop.rounds is not None:
        stop = [text.count(plan.stop.rounds, "round")]
    else:
        stop = []
    stop += [f"accuracy {format_fraction(plan.stop.accuracy)}"] if plan.stop.accuracy is not None else []
    target = plan.stop.target
    if target is not None:
        bounds = {"at least": target.at_least, "at most": target.at_most}
        limits = " and ".join(f"{word} {limit:g}" for word, limit in bounds.items() if limit is not None)
        stop += [f"{target.name} {limits}"]
    stop += [f"{format_duration(plan.stop.after)} of training"] if plan.stop.after is not None else []
    stop += [f"{format_size(plan.stop.bytes)} of the devices"] if plan.stop.bytes is not None else []
    waits = ", ".join(f"{tier} {format_duration(wait)}" for tier, wait in plan.gathering.deadlines.items())
    params = ", ".join(f"{key} {value}" for key, value in plan.params.items() if value is not None)
    quorum = f"quorum {Quorum(plan.gathering.quorum, plan.gathering.count)}, late answers: {plan.gathering.late}"
    size = f", {text.size(plan.model_bytes)}" if plan.model_bytes else ""
    plugins = [("plug-ins", ", ".join(f"{each.name} (sha256 {each.sha256[:12]})" for each in plan.plugins))]
    runs_on = [("runs on", f"driver {plan.driver}, engine {plan.engine}"), *_probes(plan)]
    if plan.programs:
        return [("ends after", " or ".join([*stop, "its programs"])), *runs_on]
    return [
        *(plugins if plan.plugins else []),
        ("algorithm", f"{plan.algorithm} ({params})"),
        ("model", f"{plan.model}{size}"),
        *_memory(plan),
        ("ends after", " or ".join(stop)),
        ("gathering", f"{quorum}, deadline: {waits}"),
        *runs_on,
    ]


def _probes(plan: Plan) -> Iterator[tuple[str, str]]:
    """How long the measurement of the links takes."""
    if plan.probe and plan.links and not kind_of(plan.driver).simulated:
        yield "measures links", f"before the training, for about {text.duration(seconds_of_probes(plan))}"


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


def _print_nodes(console: Console, plan: Plan, few: bool) -> None:
    _title(console, f"Nodes ({len(plan.nodes)})")
    rows = []
    key: Callable[[NodePlan], Hashable] = lambda node: (  # noqa: E731
        node.name
        if few
        else (node.tier, node.parent, node.hardware, node.image, node.device, node.joins, str(node.stack))
    )
    for nodes in alike(plan.nodes, key):
        first = nodes[0]
        last = nodes[-1]
        hardware = first.hardware
        rows.append(
            [
                _span([node.name for node in nodes]),
                f"{first.address}:{first.port}" if len(nodes) == 1 else f"{first.address} ... {last.address}",
                hardware.name,
                "" if hardware.speed is None else f"{hardware.speed:g}",
                first.parent or "",
                ", ".join(_remarks(first)),
            ]
        )
    write_table(console, ("name", "address", "hardware", "speed", "below", "remarks"), rows, right={3})


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
    yield from (f"{name} {value}" for name, value in node.stack.items())


def _print_placement(console: Console, plan: Plan, placement: Placement, few: bool) -> None:
    """Print the placement with its reasons, and the links between hosts."""
    _title(console, f"Placement ({text.count(len(plan.hosts), 'host')})")
    key: Callable[[NodePlan], Hashable] = lambda node: (  # noqa: E731
        node.name if few else (node.tier, node.host, placement.reasons[node.name])
    )
    rows = [
        [_span([node.name for node in nodes]), nodes[0].host, placement.reasons[nodes[0].name]]
        for nodes in alike(plan.nodes, key)
    ]
    write_table(console, ("node", "host", "why"), rows)
    if placement.crossings:
        _title(console, "Links between hosts")
        headings = ("from", "to", "links", "real", "others together", "network's rate", "network's delay")
        write_table(console, headings, map(_crossing_row, placement.crossings), right=range(2, 7))


def _crossing_row(crossing: HostCrossing) -> list[str]:
    if crossing.rate is None:
        requested = "not limited"
    else:
        requested = text.rate(crossing.rate)
    if crossing.real == crossing.links:
        requested = "–"
    network = ["not measured", "not measured"]
    if crossing.underlay is not None:
        network = [text.rate(crossing.underlay.rate), text.duration(crossing.underlay.delay)]
    return [crossing.source, crossing.target, str(crossing.links), str(crossing.real or ""), requested, *network]


def _data_title(plan: Plan) -> str:
    data = plan.data
    given = ", ".join(f"{key} {value}" for key, value in data.partition_params.items() if value not in (None, {}))
    title = f"Data: {data.dataset}, {data.partition}" + (f" ({given})" if given else "")
    if plan.population is not None:
        return f"{title}; each client draws its own of {data.train_samples:,} training samples"
    if not data.sha256:
        return f"{title}; not on this host, so not divided"
    used = f"{data.used_samples:,} of {data.train_samples:,} training samples"
    predicted = {"regression": f"; regression, {text.count(data.classes, 'number')} for each sample"}
    predicted |= {"multi-label": f"; multi-label, {data.classes} labels"}
    return f"{title}{predicted.get(data.task, '')}; {used}, {text.count(len(data.moves), 'repair')}"


def _print_programs(console: Console, plan: Plan) -> None:
    _title(console, f"Programs ({len(plan.programs)})")
    rows = []
    for program in plan.programs:
        remarks = [f"after {text.some(program.after)}"] if program.after else []
        remarks += ["ends the run"] if program.ends_the_run else []
        remarks += ["may end before"] if program.expected_to_end else []
        rows.append([program.label, shlex.join(program.command), ", ".join(remarks)])
    write_table(console, ("program", "command", "remarks"), rows)


def _print_data(console: Console, plan: Plan, few: bool) -> None:
    _title(console, _data_title(plan))
    data = plan.data
    counted = data.classes <= COUNTED_CLASSES
    if counted:
        labels = [str(label) for label in range(data.classes)]
    else:
        labels = ["labels"]
    labels = labels if data.task == "classification" else []
    room = min(MOST_LABELS, console.width // 2)
    rows = []
    for nodes in alike(
        [node for node in plan.nodes if node.label_counts], lambda node: node.name if few else node.parent
    ):
        sizes = [node.samples for node in nodes]
        counts = [sum(column) for column in zip(*(node.label_counts for node in nodes), strict=True)]
        samples = f"{sizes[0]:,}" if len(set(sizes)) == 1 else f"{min(sizes):,} ... {max(sizes):,}"
        if counted:
            shown = [str(count or "·") for count in counts]
        else:
            shown = [_bars(counts, room)]
        rows.append([_span([node.name for node in nodes]), samples, *shown[: len(labels)]])
    write_table(console, ("node", "samples", *labels), rows, right=range(1, 2 + len(labels)))
    if data.columns:
        _print_columns(console, data.columns)


def _print_columns(console: Console, columns: Sequence[tuple[str, str]]) -> None:
    """Print what each column of a table became. Of many columns, adjacent ones that became the same share a row."""
    _title(console, f"Columns ({len(columns)})")
    rows = []
    many = len(columns) > SINGLE_COLUMNS
    for (became, _), group in itertools.groupby(columns, key=lambda column: (column[1], "" if many else column[0])):
        names = [name or "without a name" for name, _ in group]
        rows.append([_span(names), became])
    write_table(console, ("column", "became"), rows)


def _bars(counts: Sequence[int], room: int) -> str:
    """A bar for each of the first ``room`` labels, and how many more there are."""
    most = max(counts) or 1
    more = len(counts) - room
    bars = "".join(_BARS[-(-8 * count // most)] for count in counts[:room])
    return bars if more <= 0 else f"{bars} and {more:,} more"


def _print_links(console: Console, plan: Plan) -> None:
    _title(console, f"Links ({len(plan.links)} directions)")
    rows = []
    tiers = {node.name: node.tier for node in plan.nodes}

    def kind_of_link(link: LinkPlan) -> Hashable:
        return link.link_class, tiers[link.source], link.profile, way(link), link.nat_timeout, link.mtu

    for links in alike(plan.links, kind_of_link):
        first = links[0]
        if len(links) == 1:
            ends = (first.source, first.target)
        else:
            ends = (tiers[first.source], tiers[first.target])
        kind = link_kind(plan.driver, real=first.profile.real)
        crossed = [way(first)] if plan.media else []
        rows.append([first.link_class, " -> ".join(ends), str(len(links)), kind, _profile(plan, links), *crossed])
    headings = ("class", "direction", "count", "kind", "profile", *(["then crosses"] if plan.media else []))
    write_table(console, headings, rows, right={2})


def _profile(plan: Plan, links: Sequence[LinkPlan]) -> str:
    """The profile of links that have the same one, in words; of real ones the round trips between their hosts."""
    if not links[0].profile.real:
        nat = links[0].nat_timeout
        mtu = links[0].mtu
        added = "" if nat is None else f", NAT forgets after {format_duration(nat)}"
        added += "" if mtu is None else f", MTU {mtu}"
        return links[0].profile.describe() + added
    if plan.placement is not None:
        crossings = plan.placement.crossings
    else:
        crossings = ()
    networks = {(each.source, each.target): each.underlay for each in crossings}
    found = [networks.get((plan.node(link.source).host, plan.node(link.target).host)) for link in links]
    trips = [2 * each.delay for each in found if each is not None]
    if len(trips) < len(found):
        return "not shaped, not measured yet"
    shown = dict.fromkeys(text.duration(each) for each in (min(trips), max(trips)))
    return f"not shaped, measured round trip {' to '.join(shown)}"


def _print_schedules(console: Console, plan: Plan) -> None:
    """Print how links change over time, in words."""
    found = courses(plan.links, plan.media)
    if not found:
        return
    _title(console, "Links over time, from the start of training")
    rows = [[course.name, str(len(course.pairs)), course.schedule.describe()] for course in found]
    write_table(console, ("links", "count", "schedule"), rows, right={1})


def _print_faults(console: Console, plan: Plan) -> None:
    _title(console, f"Faults ({len(plan.faults)})")
    rows = []
    key: Callable[[Fault], Hashable] = lambda fault: (  # noqa: E731
        *(fault.action, fault.at, fault.round, fault.duration, fault.lasts_a_round, fault.factor, fault.to),
        json.dumps([fault.profile, fault.profile_up, fault.channels]),
    )
    for faults in alike(plan.faults, key):
        first = faults[0]
        rows.append(
            [
                _span([str(fault.id) for fault in faults], mark="-"),
                _moment(first.at, first.round),
                first.action,
                text.some((fault.target for fault in faults), limit=6),
                _until(first),
                _detail(first),
            ]
        )
    write_table(console, ("number", "when", "action", "target", "until", "detail"), rows)


def _moment(at: float | None, round: int | None) -> str:
    return f"at {format_duration(at)}" if at is not None else f"round {round}"


def _until(fault: Fault) -> str:
    if fault.action in ("join", "leave"):
        return ""
    if fault.duration is not None:
        return f"for {format_duration(fault.duration)}"
    return "the round ends" if fault.lasts_a_round else "the run ends"


def _detail(fault: Fault) -> str:
    if fault.factor is not None:
        return f"{fault.factor:g} times slower"
    if fault.to is not None:
        return f"to {fault.to}"
    profile = fault.profile or next((changed_words(each) for each in fault.channels.values()), {})
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


def _span(names: Sequence[str], mark: str = " ... ") -> str:
    if len(names) == 1:
        return names[0]
    counted = "" if mark == "-" else f" ({len(names)})"
    return f"{names[0]}{mark}{names[-1]}{counted}"
