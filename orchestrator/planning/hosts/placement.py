"""The placement: a host for each node.

The rules, in this order:

1. A node runs where the scenario's `hosts` says. A node that trains on an accelerator runs on a host with its label.
2. A host with the label of a hardware class is a real board of that class. A node of the class gets a board of its own
   while there are boards. Only such nodes and nodes that `hosts` sends there run on boards. They are not emulated:
   neither stretched nor limited.
3. The cloud runs on a manager, next to the orchestrator, if it fits.
4. An edge and its devices run on one host if one has room for all of them, and so do edges that share a medium. See
   `orchestrator.planning.hosts.packing`, which also says what a node needs.

The result depends on the names of the hosts, not on their order.
"""

from __future__ import annotations

from collections import defaultdict
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
    """The host of each node, and in a few words why. ``boards``: the hardware class of the nodes that run on real
    boards. ``allowed``: the general hosts on which each node may run. ``notes``: what a reader of the results must
    know. ``media``: the homes of shared media, see `orchestrator.planning.hosts.media_homes`."""

    hosts: Mapping[str, str]
    reasons: Mapping[str, str]
    boards: Mapping[str, str]
    allowed: Mapping[str, tuple[str, ...]]
    crossings: tuple[HostCrossing, ...]
    notes: tuple[str, ...]
    media: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        nodes = {}
        for node, host in self.hosts.items():
            nodes[node] = {"host": host, "reason": self.reasons[node]}
        data = {
            "nodes": nodes,
            "crossings": [asdict(crossing) for crossing in self.crossings],
            "notes": [*self.notes, *self.crossing_notes()],
        }
        if self.media:
            data["media"] = dict(self.media)
        return data

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
    that train on one. ``groups``: of nodes with a common medium, each with the node of the group that it joins. Raises
    PlanError if a node can run on no host, if memory does not suffice, or if a link has less delay than the network
    between two hosts."""
    candidates = []
    general = []
    for host in sorted(inventory.hosts, key=lambda host: host.name):
        candidate = Candidate(host)
        candidates.append(candidate)
        if candidate.board is None:
            general.append(candidate)
    if not candidates and inventory.left_out:
        raise PlanError(("hosts",), f"no host can be used: {_listed(inventory.left_out)}")
    requests = _requests(
        members,
        hardware,
        pins,
        candidates,
        inventory.left_out,
        devices or {},
        groups or {},
    )
    without_choice = _on_the_only_host(requests)
    _in_groups(_on_boards(without_choice), general)
    chosen = {}
    for candidate in candidates:
        for name in candidate.reasons:
            chosen[name] = candidate
    hosts = {}
    reasons = {}
    boards = {}
    for member in members:
        candidate = chosen[member.name]
        hosts[member.name] = candidate.host.name
        reasons[member.name] = candidate.reasons[member.name]
        if candidate.board is not None:
            boards[member.name] = candidate.board
    allowed = {}
    for request in requests:
        names = [candidate.host.name for candidate in request.general]
        allowed[request.name] = tuple(names)
    notes = [*_left_out(inventory.left_out), *_notes(candidates)]
    return Placement(
        hosts=hosts,
        reasons=reasons,
        boards=boards,
        allowed=allowed,
        crossings=crossings(links, hosts, inventory),
        notes=tuple(notes),
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
        requests.append(
            Request(
                member.name,
                member.tier,
                group,
                hardware[member.name],
                candidates=tuple(allowed),
                pin=pin,
                path=path,
            )
        )
    return requests


def _with_accelerator(
    node: str,
    device: str,
    candidates: Sequence[Candidate],
    pin: str,
) -> Sequence[Candidate]:
    """The hosts with the label of an accelerator. Raises PlanError if there is none."""
    kind, _, _ = device.partition(":")
    labelled = []
    for candidate in candidates:
        if candidate.host.labels.get(ACCELERATOR_LABEL) == kind:
            labelled.append(candidate)
    if labelled:
        return labelled
    among = f" of {pin}" if pin else ""
    raise PlanError(
        ("compute", "device"),
        f"{node} trains on {device}, and no host{among} has the label {ACCELERATOR_LABEL}={kind}: give it to those with"
        f" a GPU (`edgebed docs accelerators`)",
    )


def _allowed(
    key: str,
    choice: HostChoice,
    candidates: Sequence[Candidate],
    left_out: Mapping[str, str],
) -> Sequence[Candidate]:
    """The hosts that an entry of `hosts` means. Raises PlanError if there is none."""
    names = []
    descriptions = []
    allowed = []
    for candidate in candidates:
        host = candidate.host
        names.append(host.name)
        descriptions.append(_described(host))
        if choice.takes(host.name, host.labels):
            allowed.append(candidate)
    if allowed:
        return allowed
    if choice.value is not None:
        what = f"no host has the label {choice}"
    elif choice.name in left_out:
        what = f"the host {choice} cannot be used: {left_out[choice.name]}"
    else:
        what = f"there is no host '{choice}'{nearest(choice.name, names)}"
    available = text.some(descriptions, limit=20) or "none"
    raise PlanError(("hosts", key), f"{what} (hosts: {available})")


def _described(host: HostFacts) -> str:
    if not host.labels:
        return host.name
    labels = [f"{key}={value}" for key, value in sorted(host.labels.items())]
    return f"{host.name} with {', '.join(labels)}"


def _on_the_only_host(requests: Sequence[Request]) -> list[Request]:
    """Place the nodes for which `hosts` leaves one host. Return the others."""
    others = []
    for request in requests:
        if request.pin and len(request.candidates) == 1:
            only = request.candidates[0]
            only.take(request, _on_board(only))
        else:
            others.append(request)
    return others


def _on_boards(requests: Sequence[Request]) -> list[Request]:
    """Place the nodes that run on boards, and return the others. Nodes that `hosts` sends to boards may share them."""
    others = []
    for request in sorted(requests, key=lambda request: not request.pin):
        board = _board_for(request)
        if board is None:
            others.append(request)
        else:
            board.take(request, _on_board(board))
    return others


def _board_for(request: Request) -> Candidate | None:
    """A free board of the node's class, else, if `hosts` sends it to boards only, the one with the fewest nodes."""
    for candidate in request.candidates:
        if candidate.board == request.hardware.name and not candidate.taken:
            return candidate
    if not request.pin or request.general:
        return None
    with_memory = [candidate for candidate in request.candidates if candidate.memory >= MEMORY]
    boards = with_memory or request.candidates
    return min(boards, key=lambda board: len(board.taken), default=None)


def _on_board(candidate: Candidate) -> str:
    if candidate.board is None:
        return ""
    return f"a real {candidate.board}, not emulated"


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
    hosts = (f"{host} ({reason})" for host, reason in reasons.items())
    return text.some(hosts, limit=20)


def _notes(candidates: Sequence[Candidate]) -> Iterator[str]:
    boards: defaultdict[str, list[Candidate]] = defaultdict(list)
    general = []
    for candidate in candidates:
        if candidate.board is None:
            general.append(candidate)
        else:
            boards[candidate.board].append(candidate)
    for board in sorted(boards):
        yield from _board_notes(board, boards[board], general)
    for candidate in candidates:
        if candidate.board is not None and len(candidate.taken) > 1:
            yield f"{_names(candidate.taken)} share the board {candidate.host.name}"
    busy = []
    for candidate in general:
        cores = candidate.host.cores
        if candidate.used > cores + ROUNDING:
            busy.append(f"{candidate.host.name} ({text.number(candidate.used)} of {cores:g})")
    if busy:
        yield f"nodes can use more cores than there are on {text.some(busy)}: if all compute at once, steps are late"


def _board_notes(
    board: str,
    boards: Sequence[Candidate],
    general: Sequence[Candidate],
) -> Iterator[str]:
    """Notes on a class of boards."""
    real = []
    strangers = []
    for candidate in boards:
        for request in candidate.taken:
            real.append(request)
            if request.hardware.name not in (board, "host"):
                strangers.append(request)
    emulated = []
    for candidate in general:
        for request in candidate.taken:
            if request.hardware.name == board:
                emulated.append(request)
    if real and emulated:
        yield f"{_names(real)}: real {board}; {_names(emulated)}: emulated ones"
    if strangers:
        classes = dict.fromkeys(request.hardware.name for request in strangers)
        yield f"{_names(strangers)} on real boards have the speed of {board}, not that of {text.some(classes)}"


def _names(requests: Sequence[Request]) -> str:
    return text.some(request.name for request in requests)
