"""Groups of nodes on general hosts: an edge and its devices run on one host if one has room for all of them.

Otherwise each of them goes where most cores are free. So do single devices. The cloud comes first, then the large
groups, and each takes the host with most free cores.

A node needs `MEMORY`, or its hardware's memory if that is less. Of its hardware's cores it needs what it can use: a
node of speed s computes for s seconds of each second, the rest it waits. Cores may be asked for more than once. Then
every host counts as so much larger that all fits, and a little more, which loads the hosts about evenly. Memory never
is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from orchestrator import text
from orchestrator.errors import PlanError
from orchestrator.planning.hosts.inventory import HostFacts
from orchestrator.scenario.language.syntax import KeyPath
from orchestrator.scenario.sections.hardware import HardwareClass

CORES = 1.0  # the cores that a node without a limit uses: it trains in one thread
MEMORY = 300_000_000
"""Bytes of a node: 240 MB resident after its start (docs/guides/docker.md), the rest for data and training."""
UNEVEN = 0.1
"""Where cores are asked for more than once, a host may get so much above an even share, to keep a group together."""
ROUNDING = 1e-9  # cores


@dataclass(eq=False)
class Candidate:
    """A host while nodes are placed: which nodes run on it, and what is left of it. ``cores``: what it counts for;
    ``slack``: how many more a group may ask for. ``groups``: how many nodes of each group run on it. ``reasons``: by
    node."""

    host: HostFacts
    taken: list[Request] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    groups: Counter[str] = field(default_factory=Counter)
    cores: float = field(init=False)
    slack: float = ROUNDING
    used: float = 0.0  # cores
    memory: int = field(init=False)  # bytes left

    def __post_init__(self) -> None:
        self.cores = self.host.cores
        self.memory = self.host.memory

    @property
    def board(self) -> str | None:
        return self.host.hardware

    @property
    def free(self) -> float:
        """The cores left; below 0 if more are asked for."""
        return self.cores - self.used

    def fits(self, requests: Sequence[Request]) -> bool:
        """Whether it has cores and memory for all of them."""
        memory = sum(request.memory for request in requests)
        if memory > self.memory:
            return False
        return _cores(requests) <= self.free + self.slack

    def take(self, request: Request, reason: str) -> None:
        """Let a node run here. Raises PlanError if there is no memory for it."""
        needed = request.memory
        if needed > self.memory:
            raise request.lacks_memory([self])
        reasons = filter(None, (request.pin, reason))
        self.taken.append(request)
        self.reasons[request.name] = "; ".join(reasons)
        self.groups[request.group] += 1
        self.used += request.cores
        self.memory -= needed


def _cores(requests: Iterable[Request]) -> float:
    """The cores that nodes need together."""
    return sum(request.cores for request in requests)


@dataclass(frozen=True, eq=False)
class Request:
    """A node that needs a host, and the hosts that it may run on. ``group``: the edge of an edge and its devices, the
    first of edges that share a medium, else the node. ``pin``: what `hosts` says of it, if anything; ``path``: where
    that, or its hardware, is written."""

    name: str
    tier: str
    group: str
    hardware: HardwareClass
    candidates: tuple[Candidate, ...]
    pin: str
    path: KeyPath

    @property
    def cores(self) -> float:
        if self.hardware.quota is None:
            return CORES
        return self.hardware.quota

    @property
    def general(self) -> list[Candidate]:
        """The hosts that are no boards."""
        return [candidate for candidate in self.candidates if candidate.board is None]

    @property
    def memory(self) -> int:
        """The bytes that it needs. The memory of its hardware is a limit, of which a node uses a part."""
        return min(self.hardware.memory or MEMORY, MEMORY)

    def lacks_memory(self, candidates: Sequence[Candidate]) -> PlanError:
        """The error that none of these hosts has memory for it."""
        largest = max(candidates, key=lambda candidate: candidate.memory)
        needed = self.memory
        left = largest.memory
        which = "" if len(candidates) == 1 else ", more than any other host"
        host = largest.host.name
        return PlanError(
            self.path,
            f"{self.name} needs {text.size(needed)} of memory, and {host} has {text.size(left)} left{which}:"
            f" {text.size(needed - left)} is missing; take a host with more, or give nodes hardware with less memory",
        )


_GroupOnHosts = tuple[str, tuple[str, ...]]  # a group, and the general hosts of its nodes
Suits = Callable[[Sequence[Request], Candidate], bool]  # whether nodes may run on a host, apart from room


def pack(
    requests: Sequence[Request],
    general: Sequence[Candidate],
    suits: Suits = lambda requests, candidate: True,
) -> Iterator[Request]:
    """Place nodes on general hosts: the cloud first, then the groups that stay together, the largest first. Yields each
    node for which there is no host, when all before it are placed."""
    groups: defaultdict[_GroupOnHosts, list[Request]] = defaultdict(list)
    for request in requests:
        hosts = tuple(candidate.host.name for candidate in request.general)
        groups[request.group, hosts].append(request)
    _share_cores(requests, general)
    for group in sorted(groups.values(), key=_urgency):
        edge_first = sorted(group, key=lambda request: request.name != request.group)
        yield from _pack_group(edge_first, suits)


def _share_cores(requests: Sequence[Request], general: Sequence[Candidate]) -> None:
    """If nodes need more cores than the hosts have, let each host count as so much larger."""
    if not general:
        return
    used = sum(candidate.used for candidate in general)
    available = sum(candidate.cores for candidate in general)
    share = (_cores(requests) + used) / available
    if share > 1:
        for candidate in general:
            candidate.cores *= share
            candidate.slack = UNEVEN * candidate.cores


def _urgency(group: Sequence[Request]) -> tuple[bool, float, int]:
    """The cloud first, then the groups with most cores, then those with most memory."""
    is_below_cloud = group[0].tier != "cloud"
    memory = sum(request.memory for request in group)
    return is_below_cloud, -_cores(group), -memory


def _pack_group(group: Sequence[Request], suits: Suits) -> Iterator[Request]:
    """Place nodes together if a host has room for all, else one by one. They may run on the same hosts."""
    first = group[0]
    fitting = []
    for candidate in first.general:
        if candidate.fits(group) and suits(group, candidate):
            fitting.append(candidate)
    if fitting:
        best = max(fitting, key=lambda candidate: _preference(first, candidate))
        for request in group:
            best.take(request, _reason(request, best))
        return
    for request in group:
        fitting = []
        for candidate in request.general:
            has_memory = request.memory <= candidate.memory
            if has_memory and suits([request], candidate):
                fitting.append(candidate)
        if not fitting:
            yield request
            continue
        apart = "; no host has room for all of its group" if len(group) > 1 else ""
        emptiest = max(fitting, key=lambda candidate: candidate.free)
        emptiest.take(request, f"most cores free{apart}")


def _preference(first: Request, candidate: Candidate) -> tuple[bool, int, float]:
    """The larger, the better is a host for a group with this first node."""
    next_to_orchestrator = first.tier == "cloud" and candidate.host.manager
    return next_to_orchestrator, candidate.groups[first.group], candidate.free


def _reason(request: Request, candidate: Candidate) -> str:
    """Why a node goes to a host where its group fits."""
    is_first = request.name == request.group
    if request.tier == "cloud" and candidate.host.manager:
        return "a manager, next to the orchestrator"
    if not is_first and request.group in candidate.reasons:
        if request.tier == "device":
            return "with its edge"
        return f"shares a medium with {request.group}"
    if candidate.groups[request.group]:
        if is_first:
            return "with its devices"
        return "with devices of its edge"
    return "most cores free"
