"""The placement: a host for each node.

The rules, in this order:

1. A node lives where the scenario's `hosts` says. A node that trains on an accelerator lives on a host with its label.
2. A host with the label of a hardware class is a real board of that class. A node of the class gets a board of its own
   while there are boards. Only such nodes and nodes that `hosts` sends there live on boards. They are not emulated:
   neither stretched nor limited.
3. The cloud lives on a manager, next to the orchestrator, if it fits.
4. An edge and its devices live on one host if one has room for all of them, and so do edges that share a medium. See
   `orchestrator.planning.hosts.packing`, which also says what a node needs.

The result depends on the names of the hosts, not on their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from orchestrator import text
from orchestrator.errors import PlanError
from orchestrator.planning.hosts.crossings import AskedLink, HostCrossing, crossing_notes, crossings
from orchestrator.planning.hosts.inventory import HostFacts, Inventory
from orchestrator.planning.hosts.packing import MEMORY, ROUNDING, Candidate, Request, pack
from orchestrator.scenario.language.strict import nearest
from orchestrator.scenario.language.syntax import KeyPath
from orchestrator.scenario.sections.hardware import HardwareClass
from orchestrator.scenario.sections.hosts import ACCELERATOR_LABEL, HARDWARE_LABEL, HostChoice
from orchestrator.scenario.sections.topology import Member


@dataclass(frozen=True)
class Placement:
    """The host of each node, and in a few words why. ``boards``: the hardware class of the nodes that live on real
    boards. ``allowed``: the general hosts on which each node may live. ``notes``: what a reader of the results must
    know. ``media``: the homes of shared media, see `orchestrator.planning.hosts.media_homes`."""

    hosts: Mapping[str, str]
    reasons: Mapping[str, str]
    boards: Mapping[str, str]
    allowed: Mapping[str, tuple[str, ...]]
    crossings: tuple[HostCrossing, ...]
    notes: tuple[str, ...]
    media: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        nodes = {node: {"host": host, "reason": self.reasons[node]} for node, host in self.hosts.items()}
        return {
            "nodes": nodes,
            "crossings": [asdict(crossing) for crossing in self.crossings],
            "notes": [*self.notes, *self.crossing_notes()],
        } | ({"media": dict(self.media)} if self.media else {})

    def crossing_notes(self) -> list[str]:
        """Notes that depend on what was measured between the hosts, which is not the same in each run."""
        return list(crossing_notes(self.crossings))


def place(
    members: Sequence[Member],
    hardware: Mapping[str, HardwareClass],
    pins: Mapping[str, HostChoice],
    links: Sequence[AskedLink],
    inventory: Inventory,
    devices: Mapping[str, str] | None = None,
    groups: Mapping[str, str] | None = None,
) -> Placement:
    """Place the nodes. ``hardware``: by node. ``pins``: the scenario's `hosts`. ``devices``: the accelerators of nodes
    that train on one. ``groups``: of nodes with a common medium, each with the node whose group it joins. Raises
    PlanError if a node can run on no host, if memory does not suffice, or if a link has less delay than the network
    between two hosts."""
    candidates = [Candidate(host) for host in sorted(inventory.hosts, key=lambda host: host.name)]
    if not candidates and inventory.left_out:
        raise PlanError(("hosts",), f"no host can be used: {_listed(inventory.left_out)}")
    requests = _requests(members, hardware, pins, candidates, inventory.left_out, devices or {}, groups or {})
    _in_groups(_on_boards(_on_the_only_host(requests)), [each for each in candidates if each.board is None])
    found = {name: each for each in candidates for name in each.reasons}
    hosts = {member.name: found[member.name].host.name for member in members}
    return Placement(
        hosts=hosts,
        reasons={name: found[name].reasons[name] for name in hosts},
        boards={name: board for name in hosts if (board := found[name].board) is not None},
        allowed={each.name: tuple(every.host.name for every in each.general) for each in requests},
        crossings=crossings(links, hosts, inventory),
        notes=(*_left_out(inventory.left_out), *_notes(candidates)),
    )


def _requests(
    members: Sequence[Member],
    hardware: Mapping[str, HardwareClass],
    pins: Mapping[str, HostChoice],
    candidates: Sequence[Candidate],
    left_out: Mapping[str, str],
    devices: Mapping[str, str],
    groups: Mapping[str, str],
) -> list[Request]:
    tiers = {member.name: member.tier for member in members}
    requests = []
    path: KeyPath
    for member in members:
        parent = member.parent
        if parent is not None and tiers[parent] == "edge":
            group = parent
        else:
            group = member.name
        group = groups.get(group, group)
        key = member.name if member.name in pins else member.tier
        allowed = candidates
        pin = ""
        path = ("hardware", member.tier)
        if key in pins:
            allowed = _allowed(key, pins[key], candidates, left_out)
            pin = f"hosts.{key}: {pins[key]}"
            path = ("hosts", key)
        if member.name in devices:
            allowed = _with_accelerator(member.name, devices[member.name], allowed, pin)
        requests.append(Request(member.name, member.tier, group, hardware[member.name], tuple(allowed), pin, path))
    return requests


def _with_accelerator(node: str, device: str, candidates: Sequence[Candidate], pin: str) -> Sequence[Candidate]:
    """The hosts with the label of an accelerator. Raises PlanError if there is none."""
    kind = device.partition(":")[0]
    found = [each for each in candidates if each.host.labels.get(ACCELERATOR_LABEL) == kind]
    if found:
        return found
    among = f" of {pin}" if pin else ""
    raise PlanError(
        ("compute", "device"),
        f"{node} trains on {device}, and no host{among} has the label {ACCELERATOR_LABEL}={kind}: give it to those with"
        f" a GPU (`docker node update --label-add {ACCELERATOR_LABEL}={kind} HOST`)",
    )


def _allowed(
    key: str, choice: HostChoice, candidates: Sequence[Candidate], left_out: Mapping[str, str]
) -> Sequence[Candidate]:
    """The hosts that an entry of `hosts` means. Raises PlanError if there is none."""
    allowed = [each for each in candidates if choice.takes(each.host.name, each.host.labels)]
    if allowed:
        return allowed
    there = text.some((_described(each.host) for each in candidates), limit=20) or "none"
    what = f"no host has the label {choice}"
    if choice.value is None:
        what = f"there is no host '{choice}'{nearest(choice.name, (each.host.name for each in candidates))}"
        if choice.name in left_out:
            what = f"the host {choice} cannot be used: {left_out[choice.name]}"
    raise PlanError(("hosts", key), f"{what} (hosts: {there})")


def _described(host: HostFacts) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in sorted(host.labels.items()))
    return f"{host.name} with {labels}" if labels else host.name


def _on_the_only_host(requests: Sequence[Request]) -> list[Request]:
    """Place the nodes for which `hosts` leaves one host. Return the others."""
    others = []
    for request in requests:
        if request.pin and len(request.candidates) == 1:
            request.candidates[0].take(request, _on_board(request.candidates[0]))
        else:
            others.append(request)
    return others


def _on_boards(requests: Sequence[Request]) -> list[Request]:
    """Place the nodes that live on boards, and return the others. Nodes that `hosts` sends to boards may share them."""
    others = []
    for request in sorted(requests, key=lambda request: not request.pin):
        own = [each for each in request.candidates if each.board == request.hardware.name and not each.taken]
        if not own and request.pin and not request.general:
            with_memory = [each for each in request.candidates if each.memory >= MEMORY]
            own = sorted(with_memory or request.candidates, key=lambda each: len(each.taken))
        if own:
            own[0].take(request, _on_board(own[0]))
        else:
            others.append(request)
    return others


def _on_board(candidate: Candidate) -> str:
    return "" if candidate.board is None else f"a real {candidate.board}, not emulated"


def _in_groups(requests: Sequence[Request], general: Sequence[Candidate]) -> None:
    """Place nodes on general hosts. Raises PlanError if there is no host or no memory for one."""
    for request in requests:
        if not request.general:
            raise PlanError(
                ("hosts",),
                f"{request.name} has no host: every host has the label {HARDWARE_LABEL} and is a board for nodes of its"
                " class; name a host for the node in `hosts`, or add a host without this label",
            )
    for request in pack(requests, general):
        raise request.lacks_memory(request.general)


def _left_out(reasons: Mapping[str, str]) -> Iterator[str]:
    if reasons:
        yield f"left out, because runs cannot use them: {_listed(reasons)}"


def _listed(reasons: Mapping[str, str]) -> str:
    return text.some((f"{host} ({reason})" for host, reason in reasons.items()), limit=20)


def _notes(candidates: Sequence[Candidate]) -> Iterator[str]:
    boards = [each for each in candidates if each.board is not None]
    general = [each for each in candidates if each.board is None]
    for board in sorted({each.board for each in boards if each.board is not None}):
        real = [request for each in boards if each.board == board for request in each.taken]
        emulated = [request.name for each in general for request in each.taken if request.hardware.name == board]
        if real and emulated:
            yield f"{_names(real)}: real {board}; {text.some(emulated)}: emulated ones"
        strangers = [request for request in real if request.hardware.name not in (board, "host")]
        if strangers:
            kinds = text.some(dict.fromkeys(request.hardware.name for request in strangers))
            yield f"{_names(strangers)} on real boards have the speed of {board}, not that of {kinds}"
    for each in boards:
        if len(each.taken) > 1:
            yield f"{_names(each.taken)} share the board {each.host.name}"
    busy = [each for each in general if each.used > each.host.cores + ROUNDING]
    if busy:
        hosts = text.some(f"{each.host.name} ({text.number(each.used)} of {each.host.cores:g})" for each in busy)
        yield f"nodes can use more cores than there are on {hosts}: if all compute at once, steps are late"


def _names(requests: Sequence[Request]) -> str:
    return text.some(request.name for request in requests)
