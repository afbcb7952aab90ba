"""The kernel engine: a bridge in the hub, and netem on the hub's end of every node's interface.

A link from source to target is shaped at the egress of the hub toward the target, by one HTB class with a netem leaf
per source. Both directions are shaped in this way, never at the sender: there TCP's small queues would count packets in
netem as not yet sent (tc-netem(8), LIMITATIONS).

The bridge has a static forwarding table and does not learn. A learning bridge floods packets for a silent or absent
node, and such packets would use the rate and the buffer of other links.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from netem import tc
from netem.batch import Reply
from netem.errors import NetemError
from netem.losses import AskedLosses
from netem.profile import LinkProfile
from netem.tables import distribution_tables
from orchestrator.errors import FabricError, HostError
from orchestrator.fabric import wiring
from orchestrator.fabric.base import Counted, Handle, LinkChange, LinkRow
from orchestrator.fabric.coalesce import Coalescing
from orchestrator.fabric.hub import Hub
from orchestrator.fabric.traffic_control import Command, TrafficControl
from orchestrator.host.processes import labels
from orchestrator.planning.plan import LinkPlan, NodePlan, Plan

BRIDGE = "br0"

ShapedLinks = defaultdict[str, dict[str, tc.KernelLink]]
"""The links to each target, by source."""


def add_link(links: ShapedLinks, link: LinkPlan, address: str) -> None:
    """Number a link among those to its target, or reset it to the plan; ``address`` is its source's."""
    known = links[link.target]
    index = known[link.source].index if link.source in known else len(known) + 1
    known[link.source] = tc.KernelLink(index=index, address=address, profile=link.profile, seed=link.seed % 2**32)


def attach_commands(
    links: ShapedLinks, node: NodePlan, attachment: int, capabilities: tc.Capabilities
) -> tuple[str, list[list[str]]]:
    """The hub's end of a node's interface, and the commands that shape the links to the node on it.

    ``attachment`` is the number of this attachment among those of all nodes, from 1.
    """
    interface = wiring.hub_interface(node, attachment)
    return interface, tc.setup_commands(interface, list(links[node.name].values()), capabilities)


@dataclass
class _Alteration:
    """A change of a link, and the commands that make it on the hub's ``interface``; None if nothing is to be done.

    ``stop`` runs before the ``command`` of every link and makes final the counters that its own ``command`` discards.
    """

    change: LinkChange
    interface: str | None
    link: tc.KernelLink
    stop: list[str] | None = None
    command: list[str] | None = None
    error: Exception | None = None


class KernelFabric(Coalescing):
    """Links through netem; see Fabric for the verbs."""

    engine = "kernel"

    def __init__(self, hub: Hub, control: TrafficControl, plan: Plan, capabilities: tc.Capabilities) -> None:
        super().__init__(self.alter)
        self._hub = hub
        self._tc = control
        self._nodes = {node.name: node for node in plan.nodes}
        self._capabilities = capabilities
        self._links: ShapedLinks = defaultdict(dict)
        self._cut: set[tuple[str, str]] = set()
        self._interfaces: dict[str, str] = {}
        self._single_packets = wiring.packet_truth(plan)
        self._attachments = count(1)
        self._gone: dict[tuple[str, str], dict[str, int]] = {}  # counters of removed qdiscs
        self._asked: dict[tuple[str, str], AskedLosses] = {}
        self._late_rates: list[str] = []
        self._limited: set[tuple[str, str]] = set()  # links with a rate, now or earlier: a full buffer drops packets

    @classmethod
    async def open(
        cls, hub: Hub, run: str, directory: Path, plan: Plan, *, seed: bool, duplicate_in_tree: bool = False
    ) -> KernelFabric:
        """``seed``, ``duplicate_in_tree``: features of this host's netem, see `tc.Capabilities` and `probe_kernel`."""
        tables = directory / "tc"
        tables.mkdir(exist_ok=True)  # exists already in a continued run
        for name, text in distribution_tables().items():
            (tables / name).write_text(text)
        await hub.run(["ip", "link", "add", BRIDGE, "type", "bridge", "mcast_snooping", "0"])
        await hub.run(["ip", "link", "set", BRIDGE, "addrgenmode", "none", "up"])
        control = TrafficControl(hub, {**labels(run, directory, "tc"), "TC_LIB_DIR": str(tables)})
        return cls(hub, control, plan, tc.Capabilities(seed=seed, duplicate_in_tree=duplicate_in_tree))

    def notes(self) -> list[str]:
        return [
            *self._late_rates,
            *(
                f"{target}: {note}"
                for target, links in self._links.items()
                for note in tc.not_applied(list(links.values()), self._capabilities)
            ),
        ]

    async def attach(self, node: NodePlan, handle: Handle) -> None:
        await self._retire(node.name)
        interface, commands = attach_commands(self._links, node, next(self._attachments), self._capabilities)
        await self._hub.run(["ip", "-batch", "-"], stdin=wiring.hub_lines(node, handle.pid, interface, bridge=BRIDGE))
        await self._hub.run(["bridge", "-batch", "-"], stdin=_bridge_lines(node, interface))
        shown = await self._tc.run([*commands, tc.show_command(interface)])
        self._interfaces[node.name] = interface
        self._check(node.name, self._links[node.name], tc.parse_qdiscs(shown))
        closed = [
            _Alteration(LinkChange(source, target, cut=True), interface, self._links[target][source])
            for source, target in self._cut
            if target == node.name
        ]
        for each in closed:
            self._add_cut(each)
        for error in await self._carry_out(closed):
            if error is not None:
                raise error
        lines = wiring.node_lines(
            node, wiring.peers(node, self._nodes.values()), single_packets=node.name in self._single_packets
        )
        await self._hub.run(["ip", "-batch", "-"], pid=handle.pid, stdin=lines)

    async def detach(self, node: NodePlan) -> None:
        await self._retire(node.name)

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        for link in links:
            add_link(self._links, link, self._nodes[link.source].host)
            if len({profile.rate for profile in link.extremes}) > 1 and not self._late_rates:
                self._late_rates = [_LATE_RATE]
            self._asked[link.source, link.target] = AskedLosses(link.profile)
            self._note_rate((link.source, link.target), link.profile)

    async def alter(self, changes: Sequence[LinkChange]) -> list[Exception | None]:
        errors: list[Exception | None] = []
        while rest := changes[len(errors) :]:
            ends = [(change.source, change.target) for change in rest]
            # Several changes of the same link are made one after the other.
            alone = next((n for n, pair in enumerate(ends) if pair in ends[:n]), len(ends))
            errors += await self._carry_out([self._prepare(change) for change in rest[:alone]])
        return errors

    def _prepare(self, change: LinkChange) -> _Alteration:
        """The commands for a change; the state already records the change as made."""
        pair = change.source, change.target
        interface = self._interfaces.get(change.target)
        alteration = _Alteration(change, interface, self._links[change.target][change.source])
        try:
            if change.profile is not None:
                alteration.link = self._renew(*pair, change.profile)
                if interface is not None and pair not in self._cut:
                    alteration.command = self._leaf(tc.change_command, interface, alteration.link, change.target)
                else:
                    self._asked[pair].change(self._gone.get(pair, {}).get("drawn", 0), change.profile)
            elif change.cut and pair not in self._cut:
                self._cut.add(pair)
                self._add_cut(alteration)
            elif not change.cut and pair in self._cut:
                self._cut.discard(pair)
                alteration.link = self._renew(*pair, alteration.link.profile)
                if interface is not None:
                    alteration.command = self._leaf(tc.restore_command, interface, alteration.link, change.target)
        except NetemError as error:
            alteration.error = error
        return alteration

    def _add_cut(self, alteration: _Alteration) -> None:
        if alteration.interface is not None:
            alteration.stop = tc.stop_command(alteration.interface, alteration.link)
            alteration.command = tc.cut_command(alteration.interface, alteration.link)

    async def _carry_out(self, alterations: Sequence[_Alteration]) -> list[Exception | None]:
        """Run the prepared commands in one batch; returns the error of each alteration, None if it succeeded.

        Counters that a command discards are read before it and after ``stop``. The new state is read last.
        """
        running = [each for each in alterations if each.command is not None]
        if running:
            before = list(dict.fromkeys(each.interface for each in running if each.change.profile is None))
            after = list(dict.fromkeys(each.interface for each in running if each.change.profile is not None))
            parts = [
                [each.stop for each in running if each.stop is not None],
                [tc.show_command(interface) for interface in before if interface is not None],
                [each.command for each in running if each.command is not None],
                [tc.show_command(interface) for interface in after if interface is not None],
            ]
            _, shown_before, done, shown_after = await self._batch(parts)
            for each, reply in zip(running, done, strict=True):
                shown = dict(
                    zip(before, shown_before, strict=True)
                    if each.change.profile is None
                    else zip(after, shown_after, strict=True)
                )[each.interface]
                each.error = self._finish(each, reply, shown)
        return [each.error for each in alterations]

    def _finish(self, done: _Alteration, reply: Reply, shown: Reply) -> Exception | None:
        """Check a change against the kernel, and keep the counters of before or during a cut; returns the error."""
        source, target = done.change.source, done.change.target
        if complaint := reply.error or shown.error:
            if done.change.cut is not None:
                (self._cut.discard if done.change.cut else self._cut.add)((source, target))
            return FabricError(f"link {source} -> {target}: {complaint}")
        try:
            if done.change.profile is not None:
                states = tc.parse_qdiscs(shown.shown)
                self._check(target, {source: done.link}, states)
                drawn = _sum(self._gone.get((source, target), {}), _counts(states[done.link.index]))["drawn"]
                self._asked[source, target].change(drawn, done.change.profile)
            elif done.change.cut:
                state = tc.parse_qdiscs(shown.shown)[done.link.index]
                stopped = tc.parse_stops(shown.shown).get(done.link.index, 0)
                counts = _counts(state)
                counts["lost"] -= stopped  # netem let them pass; the blackhole below it dropped them
                self._keep(source, target, {**counts, "cut_dropped": state.backlog_packets + stopped})
            else:
                self._keep(source, target, _cut_off(tc.parse_cuts(shown.shown)[done.link.index]))
        except (NetemError, FabricError) as error:
            return error
        except LookupError:
            return FabricError(f"link {source} -> {target}: the kernel does not show it; is its node gone?")
        return None

    async def counters(self) -> Counted:
        rows: list[LinkRow] = []
        for target, links in self._links.items():
            now = await self._read(target)
            for source, link in links.items():
                row = _sum(self._gone.get((source, target), {}), now.get(link.index, {}))
                asked, variance = self._asked[source, target].of(row["drawn"])
                losses = {"asked_lost": asked, "asked_variance": variance}
                losses["others_too"] = int((source, target) in self._limited)
                rows.append({"source": source, "target": target, **row, **losses})
        return Counted(links=rows)

    async def watch(self) -> None:
        await self._hub.watch()

    async def close(self) -> None:
        """The bridge and the interfaces end with the hub's namespace."""
        await self._tc.close()

    async def _retire(self, node: str) -> None:
        """Keep the counters of an interface before its removal."""
        try:
            now = await self._read(node)
        except HostError:
            now = {}  # the interface ended with the node's namespace
        self._interfaces.pop(node, None)
        for source, link in self._links[node].items():
            self._keep(source, node, now.get(link.index, {}))

    async def _read(self, target: str) -> dict[int, dict[str, int]]:
        """Counters of the qdiscs of a target's interface, by the index of the link."""
        if target not in self._interfaces:
            return {}
        shown = await self._tc.run([tc.show_command(self._interfaces[target])])
        counted = {index: _counts(state) for index, state in tc.parse_qdiscs(shown).items()}
        return counted | {index: _cut_off(packets) for index, packets in tc.parse_cuts(shown).items()}

    def _keep(self, source: str, target: str, counted: Mapping[str, int]) -> None:
        self._gone[source, target] = _sum(self._gone.get((source, target), {}), counted)

    def _renew(self, source: str, target: str, profile: LinkProfile) -> tc.KernelLink:
        old = self._links[target][source]
        self._links[target][source] = replace(old, profile=profile, seed=tc.next_seed(old.seed))
        self._note_rate((source, target), profile)
        return self._links[target][source]

    def _note_rate(self, pair: tuple[str, str], profile: LinkProfile) -> None:
        if profile.rate is not None:
            self._limited.add(pair)

    def _leaf(self, make: Callable[..., list[str]], interface: str, link: tc.KernelLink, target: str) -> list[str]:
        return make(interface, link, self._capabilities, alone=self._alone(target))

    def _alone(self, target: str) -> bool:
        return len(self._links[target]) == 1

    def _check(self, target: str, links: Mapping[str, tc.KernelLink], states: Mapping[int, tc.KernelLinkState]) -> None:
        """Compare the kernel's settings with the asked ones; FabricError if they differ."""
        for source, link in links.items():
            if link.index not in states:
                raise FabricError(f"link {source} -> {target}: tc accepted it and the kernel does not show it")
            asked = tc.applied(link.profile, self._capabilities, alone=self._alone(target))
            if differences := tc.compare(asked, states[link.index]):
                raise FabricError(f"link {source} -> {target}: {'; '.join(map(str, differences))}")

    async def _batch(self, parts: Sequence[Sequence[Command]]) -> list[list[Reply]]:
        """Run the commands of all parts in order; returns the reply to each."""
        results = iter(await self._tc.attempt([command for part in parts for command in part]))
        return [[next(results) for _ in part] for part in parts]


_LATE_RATE = (
    "schedules that change a rate: netem sets the departure of a packet when the packet arrives, so packets queued "
    "at a change leave at the old rate; the userspace engine sends them at the new rate"
)
# drawn: packets whose loss netem has decided; the other offered packets came during a cut.
_COUNTERS = ("offered", "offered_bytes", "delivered", "delivered_bytes", "lost", "cut_dropped", "drawn")


def _bridge_lines(node: NodePlan, interface: str) -> str:
    quiet = "flood off mcast_flood off bcast_flood off learning off"
    return f"link set dev {interface} {quiet}\nfdb replace {node.mac} dev {interface} master static\n"


def _counts(state: tc.KernelLinkState) -> dict[str, int]:
    """Counters from netem's sent, queued and dropped packets; netem does not report the cause of a drop."""
    drawn = state.packets + state.dropped + state.backlog_packets
    return {
        "offered": drawn,
        "drawn": drawn,
        "offered_bytes": state.sent_bytes + state.backlog,
        "delivered": state.packets,
        "delivered_bytes": state.sent_bytes,
        "lost": state.dropped,
    }


def _cut_off(packets: int) -> dict[str, int]:
    return {"offered": packets, "cut_dropped": packets}


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in _COUNTERS}
