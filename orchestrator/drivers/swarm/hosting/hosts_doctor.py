"""What each host of the swarm lacks for runs, and what to do."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from orchestrator import text
from orchestrator.drivers.base import UnknownHostError
from orchestrator.drivers.docker import node_image
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.hosts.agents.facts import HostState
from orchestrator.drivers.swarm import agent_image, findings
from orchestrator.drivers.swarm.cluster import Cluster, SwarmHost
from orchestrator.drivers.swarm.examination import Examination, examine
from orchestrator.drivers.swarm.findings import HostFinding, Wanted
from orchestrator.drivers.swarm.hosting.hosts import described, unless_interrupted
from orchestrator.drivers.swarm.image_copies import find_sources, image_of_agents
from orchestrator.drivers.swarm.images import Source
from orchestrator.errors import HostError
from orchestrator.host.process.signals import interruptible
from orchestrator.layout import write, write_entries, write_line, write_table
from orchestrator.planning.hosts.inventory import UNUSABLE, Underlay

HEADINGS = (
    "host",
    "Engine",
    "kernel",
    "cgroup",
    "free",
    "data sets",
    "netem",
    "clock",
    "TCP",
    "temperature",
    "accelerators",
)
BETWEEN = ("from", "to", "delay", "rate", "rate back", "MTU")
UNKNOWN = "–"
MARKS = {
    "unusable": ("no  ", "red"),
    "look": ("look", "yellow"),
}


Pair = tuple[str, str]
"""The names of two hosts."""


def usable(findings: Iterable[HostFinding]) -> bool:
    return not any(finding.severity == UNUSABLE for finding in findings)


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
        findings = [finding.to_json() for finding in self.findings]
        fields = described(self.host)
        fields["facts"] = facts
        fields["findings"] = findings
        return fields


@dataclass(frozen=True)
class Report:
    """``underlay`` by the names of two hosts, in both orders. ``busy``: runs that kept its rate from being measured."""

    hosts: tuple[HostReport, ...]
    underlay: Mapping[Pair, Underlay]
    busy: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether runs can use all hosts."""
        return all(host.usable for host in self.hosts)

    def show(self, console: Console) -> None:
        print_report(self, console)

    def to_json(self) -> dict[str, Any]:
        """An inventory as `plan --hosts` reads it, with ``facts`` and ``findings`` of each host."""
        between = []
        for pair, underlay in sorted(self.underlay.items()):
            names = {"source": pair[0], "target": pair[1]}
            between.append(names | asdict(underlay))
        hosts = [host.to_json() for host in self.hosts]
        return {"hosts": hosts, "underlay": between}


def examine_swarm(names: Sequence[str], tell: Callable[[str], object]) -> Report:
    """Examine the hosts of these names, by default all hosts of the swarm. ``tell`` prints the progress.
    UnknownHostError for a host that is not in the swarm. HostError if this host manages no swarm. KeyboardInterrupt
    after a signal, once the agents have ended."""
    with interruptible() as interruption, closing(Cluster.connect()) as cluster:
        members = cluster.members()
        chosen = choose(members, names)
        wanted = _wanted(cluster, members)
        agents = image_of_agents()
        requested = []
        for host in chosen:
            if host.usable and findings.has_ipv4(host):
                requested.append(host)
        examination = examine(cluster, requested, agents, wanted.image, tell)
        work = unless_interrupted(examination, interruption)
        examined = asyncio.run(work)
    if examined is None:
        raise KeyboardInterrupt
    return report(chosen, examined, wanted)


def _wanted(cluster: Cluster, members: Sequence[SwarmHost]) -> Wanted:
    """What each host needs for runs."""
    own_architecture = ""
    here = cluster.here()[0]
    for host in members:
        if host.name == here:
            own_architecture = host.architecture
            break
    version = importlib.metadata.version("edgebed")
    image = node_image.image_name()
    architectures = {host.architecture for host in members}
    sources = _sources(image, architectures)
    agents = agent_image.image_name()
    return Wanted(version, own_architecture, image, agents, sources)


def _sources(image: str, architectures: Iterable[str]) -> dict[str, Source]:
    """From where hosts of each architecture get the image of nodes."""
    with closing(Engine.connect()) as engine:
        images = {(image, architecture) for architecture in architectures}
        try:
            sources = find_sources(engine, images, ())
        except HostError as error:
            return dict.fromkeys(architectures, error)
    by_architecture = {}
    for (_, architecture), source in sources.items():
        by_architecture[architecture] = source
    return by_architecture


def choose(members: Sequence[SwarmHost], names: Sequence[str]) -> list[SwarmHost]:
    """The hosts of these names, or all. UnknownHostError for a name that no host has."""
    known = dict.fromkeys(host.name for host in members)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UnknownHostError(f"the swarm has no host {', '.join(unknown)}; its hosts are {', '.join(known)}")
    if not names:
        return list(members)
    return [host for host in members if host.name in names]


def report(hosts: Sequence[SwarmHost], examined: Examination, wanted: Wanted) -> Report:
    """The findings on each host, from what was examined."""
    by_name = {host.name: host for host in hosts}
    reports = []
    for host in hosts:
        of_host = findings.of_member(host)
        facts = examined.facts.get(host.name)
        silence = examined.silent.get(host.name)
        if facts is not None:
            of_host += findings.of_facts(host, facts, wanted)
        if silence is not None:
            of_host += findings.of_silence(host, silence, wanted)
        for peer, reason in _peers(host.name, examined.unmeasured):
            silent = findings.of_silent_pair(by_name[peer], reason)
            of_host.append(silent)
        for peer, reason in _peers(host.name, examined.cut):
            cut = findings.of_cut_trunk(by_name[peer], reason)
            of_host.append(cut)
        of_host.sort(key=lambda finding: finding.severity != UNUSABLE)
        host_report = HostReport(host, facts, tuple(of_host))
        reports.append(host_report)
    return Report(tuple(reports), examined.underlay, examined.busy)


def _peers(
    name: str,
    pairs: Mapping[Pair, str],
) -> Iterator[tuple[str, str]]:
    """The other host of each pair that this host belongs to, with the value of the pair."""
    for (source, target), value in pairs.items():
        if name == target:
            yield source, value
        elif name == source:
            yield target, value


def print_report(report: Report, console: Console) -> None:
    """Write a table of the facts, the findings of each host, and the network between the hosts."""
    rows = []
    hosts_with: dict[tuple[HostFinding, ...], list[str]] = {}
    for host in report.hosts:
        names = hosts_with.setdefault(host.findings, [])
        names.append(host.host.name)
        if host.facts is not None:
            rows.append(_row(host.host, host.facts))
    if rows:
        write_table(console, HEADINGS, rows, right={4, 5, 9})
        write(console, "")
    for same, names in hosts_with.items():
        _write_findings(names, same, console)
    if report.underlay:
        write(console, "")
        between = _rows_between(report.underlay)
        write_table(console, BETWEEN, between, right={2, 3, 4, 5})
    if report.busy:
        which = text.count(len(report.busy), "run")
        runs = text.some(report.busy)
        write(console, f"the rates were not measured, because the swarm has {which} ({runs})")


def _rows_between(underlay: Mapping[Pair, Underlay]) -> list[list[str]]:
    """A row for each pair of hosts, with the rates of both directions."""
    rows = []
    for pair, forth in sorted(underlay.items()):
        source, target = pair
        if source >= target:
            continue
        back = underlay[target, source]
        delay = text.duration(forth.delay)
        mtu = str(forth.mtu)
        row = [source, target, delay, _rate(forth), _rate(back), mtu]
        rows.append(row)
    return rows


def _rate(underlay: Underlay) -> str:
    if underlay.rate is None:
        return UNKNOWN
    return text.rate(underlay.rate)


def _write_findings(hosts: Sequence[str], findings: Sequence[HostFinding], console: Console) -> None:
    """Write the findings of hosts that have the same."""
    verdict = "ready for runs" if usable(findings) else "cannot be used by runs"
    names = ", ".join(hosts)
    title = Text.assemble((names, "bold"), f": {verdict}")
    write(console, title)
    for finding in findings:
        mark = Text.assemble(MARKS[finding.severity])
        write_entries(console, [(mark, finding.what)], indent=2)
        if finding.remedy:
            write_entries(console, [("to do:", finding.remedy)], indent=8)
        for command in finding.commands:
            line = Text(f"            {command}", style="bold")
            write_line(console, line)


def _row(host: SwarmHost, facts: HostState) -> tuple[str, ...]:
    engine = facts.engine or {}
    datasets = [f"{dataset.name} ({text.size(dataset.size)})" for dataset in facts.datasets]
    return (
        host.name,
        str(engine.get("ServerVersion", UNKNOWN)),
        facts.kernel,
        _cgroup(engine),
        text.size(facts.disk_free),
        ", ".join(datasets) or UNKNOWN,
        _netem(facts),
        _clock(facts),
        facts.congestion_control or UNKNOWN,
        _temperature(facts),
        _accelerators(facts),
    )


def _cgroup(engine: Mapping[str, Any]) -> str:
    version = engine.get("CgroupVersion")
    if not version:
        return UNKNOWN
    return f"v{version}"


def _netem(facts: HostState) -> str:
    if facts.netem is None:
        return UNKNOWN
    return "no" if facts.netem else "works"


def _clock(facts: HostState) -> str:
    clock = facts.clock
    if clock is None:
        return UNKNOWN
    if not clock.synchronised:
        return "not synchronised"
    return f"within {text.duration(clock.error)}"


def _temperature(facts: HostState) -> str:
    if facts.temperature is None:
        return UNKNOWN
    return f"{facts.temperature:.0f} °C"


def _accelerators(facts: HostState) -> str:
    counts = Counter(facts.accelerators)
    kinds = []
    for name, count in counts.items():
        if count == 1:
            kinds.append(name)
        else:
            kinds.append(f"{count} × {name}")
    return ", ".join(kinds) or UNKNOWN
