"""What each host of the swarm lacks for runs, and what to do."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from orchestrator import text
from orchestrator.drivers.docker import node_image
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.hosts.agents.facts import HostState
from orchestrator.drivers.swarm import agent_image, findings
from orchestrator.drivers.swarm.cluster import Cluster, SwarmHost
from orchestrator.drivers.swarm.examination import Examination, examine
from orchestrator.drivers.swarm.findings import HostFinding, Wanted
from orchestrator.drivers.swarm.image_copies import find_sources, image_of_agents
from orchestrator.drivers.swarm.images import Source
from orchestrator.errors import HostError
from orchestrator.host.process.signals import interruptible
from orchestrator.layout import write, write_entries, write_line, write_table
from orchestrator.planning.hosts.inventory import UNUSABLE, Underlay
from orchestrator.verbs.hosting.hosts import described, unless_interrupted

HEADINGS = (
    *("host", "Engine", "kernel", "cgroup", "free", "data sets", "netem", "clock", "TCP", "temperature"),
    "accelerators",
)
BETWEEN = ("from", "to", "delay", "rate", "rate back", "MTU")
MARKS = {"unusable": ("no  ", "red"), "look": ("look", "yellow")}


class UnknownHostError(ValueError):
    """A host that was asked for is not in the swarm."""


def usable(findings: Iterable[HostFinding]) -> bool:
    return not any(each.severity == UNUSABLE for each in findings)


@dataclass(frozen=True)
class HostReport:
    """``facts``: None if the host was not asked, or did not answer."""

    host: SwarmHost
    facts: HostState | None
    findings: tuple[HostFinding, ...]

    @property
    def usable(self) -> bool:
        return usable(self.findings)

    def to_json(self) -> dict[str, Any]:
        if self.facts is None:
            facts = None
        else:
            facts = asdict(self.facts)
        return described(self.host) | {"facts": facts, "findings": [each.to_json() for each in self.findings]}


@dataclass(frozen=True)
class Report:
    """``underlay`` by the names of two hosts, in both orders. ``busy``: runs that kept its rate from being measured."""

    hosts: tuple[HostReport, ...]
    underlay: Mapping[tuple[str, str], Underlay]
    busy: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        return all(each.usable for each in self.hosts)

    def to_json(self) -> dict[str, Any]:
        """An inventory as `plan --hosts` reads it, with ``facts`` and ``findings`` of each host."""
        between = [
            {"source": pair[0], "target": pair[1], **asdict(each)} for pair, each in sorted(self.underlay.items())
        ]
        return {"hosts": [each.to_json() for each in self.hosts], "underlay": between}


def examine_swarm(names: Sequence[str], tell: Callable[[str], object]) -> Report:
    """Ask the hosts of these names, by default all hosts of the swarm. ``tell`` prints the progress.
    UnknownHostError for a host that is not in the swarm. HostError if this host manages no swarm. KeyboardInterrupt
    after a signal, when the agents are gone."""
    with interruptible() as interruption, closing(Cluster.connect()) as cluster:
        members = cluster.members()
        chosen = choose(members, names)
        here = cluster.here()[0]
        own = next((each.architecture for each in members if each.name == here), "")
        version = importlib.metadata.version("edgebed")
        image = node_image.image_name()
        sources = _sources(image, {each.architecture for each in members})
        wanted = Wanted(version, own, image, agent_image.image_name(), sources)
        agents = image_of_agents()
        requested = [each for each in chosen if each.usable and findings.has_ipv4(each)]
        examined = asyncio.run(
            unless_interrupted(examine(cluster, requested, agents, wanted.image, tell), interruption)
        )
    if examined is None:
        raise KeyboardInterrupt
    return report(chosen, examined, wanted)


def _sources(image: str, architectures: Iterable[str]) -> dict[str, Source]:
    """From where hosts of each architecture get the image of nodes."""
    with closing(Engine.connect()) as engine:
        try:
            found = find_sources(engine, {(image, each) for each in architectures}, ())
        except HostError as error:
            return dict.fromkeys(architectures, error)
    return {architecture: source for (_, architecture), source in found.items()}


def choose(members: Sequence[SwarmHost], names: Sequence[str]) -> list[SwarmHost]:
    """The hosts of these names, or all. UnknownHostError for a name that no host has."""
    known = {each.name: each for each in members}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UnknownHostError(f"the swarm has no host {', '.join(unknown)}; its hosts are {', '.join(known)}")
    return [each for each in members if each.name in names or not names]


def report(hosts: Sequence[SwarmHost], examined: Examination, wanted: Wanted) -> Report:
    """The findings on each host, from what was examined."""
    by_name = {each.name: each for each in hosts}
    reports = []
    for host in hosts:
        found = findings.of_member(host)
        facts = examined.facts.get(host.name)
        silence = examined.silent.get(host.name)
        if facts is not None:
            found += findings.of_facts(host, facts, wanted)
        if silence is not None:
            found += findings.of_silence(host, silence, wanted)
        for judge, pairs in ((findings.of_silent_pair, examined.unmeasured), (findings.of_cut_trunk, examined.cut)):
            for pair, said in pairs.items():
                if host.name in pair:
                    if host.name == pair[1]:
                        other = pair[0]
                    else:
                        other = pair[1]
                    found.append(judge(by_name[other], said))
        found.sort(key=lambda each: each.severity != UNUSABLE)
        reports.append(HostReport(host, facts, tuple(found)))
    return Report(tuple(reports), examined.underlay, examined.busy)


def print_report(found: Report, console: Console) -> None:
    """Write a table of the facts, the findings of each host, and the network between the hosts."""
    rows = [_row(each.host, each.facts) for each in found.hosts if each.facts is not None]
    if rows:
        write_table(console, HEADINGS, rows, right={4, 5, 9})
        write(console, "")
    alike: defaultdict[tuple[HostFinding, ...], list[str]] = defaultdict(list)
    for host in found.hosts:
        alike[host.findings].append(host.host.name)
    for said, names in alike.items():
        _write_findings(names, said, console)
    if found.underlay:
        pairs = [
            (*pair, text.duration(each.delay), _rate(each), _rate(found.underlay[pair[::-1]]), str(each.mtu))
            for pair, each in sorted(found.underlay.items())
            if pair[0] < pair[1]
        ]
        write(console, "")
        write_table(console, BETWEEN, pairs, right={2, 3, 4, 5})
    if found.busy:
        which = text.count(len(found.busy), "run")
        write(console, f"the rates were not measured, because the swarm has {which} ({text.some(found.busy)})")


def _rate(underlay: Underlay) -> str:
    if underlay.rate is None:
        return "–"
    return text.rate(underlay.rate)


def _write_findings(hosts: Sequence[str], findings: Sequence[HostFinding], console: Console) -> None:
    """Write the findings of hosts that have the same."""
    verdict = "ready for runs" if usable(findings) else "cannot be used by runs"
    write(console, Text.assemble((", ".join(hosts), "bold"), f": {verdict}"))
    for each in findings:
        write_entries(console, [(Text.assemble(MARKS[each.severity]), each.what)], indent=2)
        if each.remedy:
            write_entries(console, [("to do:", each.remedy)], indent=8)
        for command in each.commands:
            write_line(console, Text(f"            {command}", style="bold"))


def _row(host: SwarmHost, facts: HostState) -> tuple[str, ...]:
    engine = facts.engine or {}
    clock = facts.clock
    accelerators = Counter(facts.accelerators)
    return (
        host.name,
        str(engine.get("ServerVersion", "–")),
        facts.kernel,
        f"v{version}" if (version := engine.get("CgroupVersion")) else "–",
        text.size(facts.disk_free),
        ", ".join(f"{each.name} ({text.size(each.size)})" for each in facts.datasets) or "–",
        "–" if facts.netem is None else "no" if facts.netem else "works",
        "–" if clock is None else f"within {text.duration(clock.error)}" if clock.synchronised else "not synchronised",
        facts.congestion_control or "–",
        "–" if facts.temperature is None else f"{facts.temperature:.0f} °C",
        ", ".join(name if many == 1 else f"{many} × {name}" for name, many in accelerators.items()) or "–",
    )
