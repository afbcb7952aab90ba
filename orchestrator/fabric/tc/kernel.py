"""The kernel engine: a bridge in the hub, and netem on the hub's end of every node's interface.

A link from source to target is shaped at the egress of the hub toward the target, by one HTB class with a netem leaf
per source. Both directions are shaped in this way, never at the sender: there TCP's small queues would count packets in
netem as not yet sent (tc-netem(8), LIMITATIONS).

If the run spans several hosts, the trunk is one more port of the bridge. Links to nodes of other hosts are shaped at
its egress. Packets from other hosts pass the interface of their target unshaped if the run has the link, by the
source's IP address. Filters at the trunk's ingress count them all by their source.

Packets of a link that crosses a shared medium pass its device before they come to the bridge (`KernelMedia`).

When a node moves to this host, its links leave the trunk or come to it. Then the qdiscs of the interfaces concerned are
made anew, which drops the packets in flight there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from netem.errors import NetemError
from netem.kernel import batch, media, tc
from netem.kernel.filters import count_commands, parse_counts, show_counts_command
from netem.kernel.tables import distribution_tables
from netem.media.profile import ChannelProfile, CrossTraffic
from orchestrator.errors import FabricError, HostError, OrchestratorError
from orchestrator.fabric.base import Counted, LinkChange, LinkRow, NodeHandle
from orchestrator.fabric.coalesce import Coalescing
from orchestrator.fabric.namespaces import tcp, wiring
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.tc import bridge, kernel_counters
from orchestrator.fabric.tc.alteration import Alteration, finish, run
from orchestrator.fabric.tc.kernel_buffers import KernelBuffers
from orchestrator.fabric.tc.kernel_links import KernelLinks, Layout
from orchestrator.fabric.tc.kernel_media import KernelMedia
from orchestrator.fabric.tc.super_packets import SuperPackets
from orchestrator.fabric.tc.traffic_control import TrafficControl
from orchestrator.fabric.trunk import DEVICE, Trunk, remote_nodes
from orchestrator.host.process.processes import labels
from orchestrator.planning.plan import LinkPlan, NodePlan


class KernelFabric(Coalescing):
    """Links through netem; see Fabric for the verbs."""

    engine = "kernel"

    def __init__(
        self,
        hub: Hub,
        control: TrafficControl,
        wires: wiring.Wires,
        capabilities: tc.Capabilities,
        trunk: Trunk | None,
        notes: list[str],
        *,
        counts: bool = False,
    ) -> None:
        """``counts``: whether what comes over the trunk is counted."""
        super().__init__(self.alter)
        self._hub = hub
        self._tc = control
        self._nodes = {node.name: node for node in wires.nodes}
        self._trunk = trunk
        self._links = KernelLinks(capabilities, remote_nodes(wires.nodes, trunk), wires.most_segments)
        self._buffers = KernelBuffers(self._links, control)
        self._media = KernelMedia(hub, control, {node.name: node.address for node in wires.nodes})
        self._made: dict[str, Layout] = {}  # what the qdiscs of an interface were made for
        self._cut: set[tuple[str, str]] = set()
        self._mtu = wiring.MTU if trunk is None else trunk.mtu
        self._mtus = wiring.within(wires.mtus, self._mtu)
        self._passed = 0  # packets through removed interfaces
        self._interfaces = dict.fromkeys(self._links.remote, DEVICE)
        self._super_packets = SuperPackets(hub, self._links)
        self.tcp: Mapping[str, str] = {}
        self._attachments = count(1)
        self._ledger = kernel_counters.Ledger()
        self._read: dict[str, kernel_counters.Reading] = {}  # the last one of each interface
        self._notes = notes
        self._counts = counts
        self._late_rates: list[str] = []

    @classmethod
    async def open(
        cls,
        hub: Hub,
        run: str,
        directory: Path,
        wires: wiring.Wires,
        trunk: Trunk | None = None,
        *,
        seed: bool,
        duplicate_in_tree: bool = False,
    ) -> KernelFabric:
        """``seed``, ``duplicate_in_tree``: features of this host's netem, see `tc.Capabilities` and `probe_kernel`.
        ``trunk``: the hub's trunk, already laid, if the run spans several hosts."""
        tables = directory / "tc"
        tables.mkdir(exist_ok=True)  # exists already in a continued run
        for name, text in distribution_tables().items():
            (tables / name).write_text(text)
        await bridge.make(hub)
        notes = []
        counts = False
        if trunk is not None:
            notes = await bridge.add_trunk(hub, list(trunk.remotes))
            counting = batch.lines(count_commands(DEVICE, [node.address for node in wires.nodes]))
            uncounted, _, _ = await hub.attempt(["tc", "-batch", "-"], stdin=counting)
            counts = uncounted == 0
            notes += [] if counts else [_UNCOUNTED]
        control = TrafficControl(hub, {**labels(run, directory, "tc"), "TC_LIB_DIR": str(tables)})
        capabilities = tc.Capabilities(seed=seed, duplicate_in_tree=duplicate_in_tree)
        return cls(hub, control, wires, capabilities, trunk, notes, counts=counts)

    def notes(self) -> list[str]:
        return [*self._notes, *self._late_rates, *self._links.not_applied()]

    async def attach(self, node: NodePlan, handle: NodeHandle) -> dict[str, str]:
        await self.detach(node)
        interface = wiring.hub_interface(node, next(self._attachments))
        lines = wiring.hub_lines(node, handle.pid, interface, bridge=bridge.NAME, mtu=self._mtu)
        await self._hub.set_up(None, {}, lines)
        await bridge.place(self._hub, interface, [node.mac])
        self._interfaces[node.name] = interface
        await self._make(interface, [node.name])
        await self._media.attach(node.name, interface)
        # A super-packet would need the buffer of a medium at one moment.
        crosses = self._media.crossed_by(node.name)
        most = 1 if crosses else self._links.segments.get(node.name)
        self._super_packets.pids[node.name] = handle.pid
        if crosses:
            await self._hub.run(media.detach_command("data0"), pid=handle.pid)
        peers = wiring.peers(node, self._nodes.values())
        mtus = self._mtus.get(node.name, {})
        return await tcp.configure(self._hub, node, handle.pid, peers, most_segments=most, mtus=mtus, settings=self.tcp)

    async def readdress(self, node: NodePlan, handle: NodeHandle, peers: Mapping[str, NodeHandle]) -> None:
        before = self._nodes[node.name]
        self._nodes[node.name] = node
        await self._tc.run(self._links.readdress(node.name, node.address, self._interfaces))
        most = self._links.segments.get(node.name)
        await tcp.readdress(
            *(self._hub, before, node, handle.pid, self._nodes.values(), peers),
            most_segments=most,
            mtus=self._mtus,
            settings=self.tcp,
        )

    async def detach(self, node: NodePlan) -> None:
        """The counters of its interface are kept."""
        interface = self._interfaces.get(node.name)
        if interface is None:
            return
        now = (await self._readings([interface]))[interface]
        self._made.pop(interface, None)
        self._read.pop(interface, None)
        self._interfaces.pop(node.name, None)
        self._media.detach(node.name)
        self._super_packets.pids.pop(node.name, None)
        self._passed += now.passed
        for source, link in self._links.to(node.name).items():
            self._ledger.keep((source, node.name), now.links.get(link.index, {}))

    async def unsent(self, handle: NodeHandle) -> int:
        return await self._hub.unsent(handle.pid)

    async def forget(self, handle: NodeHandle) -> None:
        await self._hub.forget(handle.pid)

    async def redirect(self, remotes: Mapping[str, str]) -> None:
        assert self._trunk is not None, "no node runs on another host"
        remote = self._links.to_remote()
        if remote:
            now = (await self._readings([DEVICE]))[DEVICE].links
        else:
            now = {}
        before = self._trunk
        self._trunk = replace(self._trunk, remotes=remotes)
        here = self._links.remote.keys() - (remaining := remote_nodes(self._nodes.values(), self._trunk)).keys()
        await bridge.remove(self._hub, DEVICE, [mac for mac in before.remotes if mac not in remotes])
        self._links.remote = remaining
        for name in here:
            del self._interfaces[name]
            for source, link in self._links.to(name).items():
                self._ledger.keep((source, name), now.get(link.index, {}))
            self._links.come_here(name, self._nodes[name].address)

    async def share(self, channels: Mapping[str, ChannelProfile]) -> None:
        for name, profile in channels.items():
            await self._media.share(name, profile)

    async def occupy(self, channel: str, traffic: CrossTraffic | None, seed: int = 0) -> None:
        if traffic is not None:
            raise FabricError(f"{channel}: the kernel engine has no cross traffic: choose `engine: userspace`")

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        numbers = count(1 + max((link.index for link in self._links.to_remote()), default=0))
        changes = []
        for link in links:
            source = self._nodes[link.source].address
            target = self._nodes[link.target].address
            if link.source in self._links.remote:
                if link.target not in self._links.remote:
                    self._links.let_pass(source, link.target)
                continue
            if (link.source, link.target) in self._links:
                changes.append(LinkChange(link.source, link.target, profile=link.profile))
                continue
            if link.target in self._links.remote:
                self._links.add(link, source, target=target, number=next(numbers))
            else:
                self._links.add(link, source)
            if len({profile.rate for profile in link.extremes}) > 1 and not self._late_rates:
                self._late_rates = [_LATE_RATE]
            self._ledger.begin((link.source, link.target), link.profile)
        await self._media.cross({(link.source, link.target): link.crossings for link in links})
        for name, interface in self._interfaces.items():
            if name not in self._links.remote:
                await self._make_anew(interface, [name])
        await self._make_anew(DEVICE, list(self._links.remote))
        for error in await self.alter(changes):
            if error is not None:
                raise error

    async def _make_anew(self, interface: str, targets: Sequence[str]) -> None:
        """Make the qdiscs of an interface to these targets, unless they are there for the same links."""
        before = self._made.get(interface)
        if before == self._links.layout(targets) or (before is None and not self._links.to_remote()):
            return
        if before is not None:
            remove = ["tc", "qdisc", "del", "dev", interface, "root"]
            shown, policed, removed = await self._tc.attempt([*kernel_counters.show_commands(interface), remove])
            if shown.error:
                return  # its node has just ended
            if removed.error:
                raise HostError(f"`{' '.join(remove)}` failed ({removed.error})")
            now = kernel_counters.read(shown.shown, policed.shown)
            self._passed += now.passed
            for source, target, index in before.links:
                if (source, target) in self._links and target in targets:
                    self._ledger.keep((source, target), now.links.get(index, {}))
                    self._links.renew((source, target))
            self._read.pop(interface, None)
        await self._make(interface, targets)

    async def _make(self, interface: str, targets: Sequence[str]) -> None:
        """Make the qdiscs of an interface to these targets, and cut the links that are cut."""
        commands = self._links.setup_commands(interface, targets)
        states = tc.parse_qdiscs(await self._tc.run([*commands, tc.show_command(interface)]))
        self._made[interface] = self._links.layout(targets)
        for target in targets:
            for source, link in self._links.to(target).items():
                self._links.check((source, target), link, states)
                self._buffers.made((source, target))
        closed = [
            self._alteration(LinkChange(source, target, cut=True)) for source, target in self._cut if target in targets
        ]
        for each in closed:
            self._add_cut(each)
        for error in await self._carry_out(closed):
            if error is not None:
                raise error

    async def alter(self, changes: Sequence[LinkChange]) -> list[Exception | None]:
        here = [change for change in changes if (change.source, change.target) in self._links]
        if len(here) < len(changes):
            done = iter(await self.alter(here))
            why = "this host does not shape it"
            return [next(done) if c in here else FabricError(f"link {c.source} -> {c.target}: {why}") for c in changes]
        errors: list[Exception | None] = []
        while rest := changes[len(errors) :]:
            ends = [(change.source, change.target) for change in rest]
            # Several changes of the same link are made one after the other.
            alone = next((n for n, pair in enumerate(ends) if pair in ends[:n]), len(ends))
            await self._super_packets.limit(rest[:alone])
            errors += await self._carry_out([self._prepare(change) for change in rest[:alone]])
        return errors

    def _prepare(self, change: LinkChange) -> Alteration:
        """The commands for a change; the state already records the change as made. `_undo` takes that back."""
        pair = change.source, change.target
        alteration = self._alteration(change)
        interface = alteration.interface
        try:
            if change.profile is not None:
                alteration.link = self._links.renew(pair, change.profile)
                if interface is not None and pair not in self._cut:
                    alteration.command = self._links.change_command(interface, pair)
                else:
                    self._ledger.change(pair, change.profile, {})
            elif change.cut and pair not in self._cut:
                self._cut.add(pair)
                self._add_cut(alteration)
            elif change.cut is False and pair in self._cut:
                self._cut.discard(pair)
                alteration.link = self._links.renew(pair)
                if interface is not None:
                    alteration.command = self._links.restore_command(interface, pair)
                    alteration.police = self._buffers.restored(pair)
        except NetemError as error:
            alteration.error = error
            self._undo(alteration)
        return alteration

    def _alteration(self, change: LinkChange) -> Alteration:
        link = self._links[change.source, change.target]
        return Alteration(change, self._interfaces.get(change.target), link, link.profile)

    def _undo(self, refused: Alteration) -> None:
        pair = refused.change.source, refused.change.target
        if refused.change.profile is not None:
            self._links.renew(pair, refused.before)
        else:
            (self._cut.discard if refused.change.cut else self._cut.add)(pair)

    def _add_cut(self, alteration: Alteration) -> None:
        if alteration.interface is not None:
            alteration.stop = tc.stop_command(alteration.interface, alteration.link)
            alteration.command = tc.cut_command(alteration.interface, alteration.link)
            alteration.police = self._buffers.opened(alteration.pair)

    async def _carry_out(self, alterations: Sequence[Alteration]) -> list[Exception | None]:
        """Run the prepared commands in one batch; returns the error of each alteration, None if it succeeded."""
        running = [each for each in alterations if each.command is not None]
        if running:
            await self._buffers.prepare([each for each in running if each.change.profile is not None])
            for each, reply, shown in await run(running, self._tc):
                each.error = finish(each, reply, shown, self._links, self._ledger)
                if each.error is not None:
                    self._undo(each)
                elif each.change.profile is None and each.interface in self._read:
                    # The ledger has kept what the qdisc had counted; the policer stays.
                    links = self._read[each.interface].links
                    index = each.link.index
                    links[index] = kernel_counters.overflow(links.get(index, {}).get("overflowed", 0))
            await self._buffers.undo([each for each in running if each.error is not None], self._cut)
        await self._reroute([each for each in alterations if each.change.crossings is not None])
        return [each.error for each in alterations]

    async def _reroute(self, alterations: Sequence[Alteration]) -> None:
        """Lead links through other channels: together, or one after the other if that is refused."""
        changes = [each.change for each in alterations]
        try:
            await self._media.cross({(each.source, each.target): each.crossings or () for each in changes})
        except (OrchestratorError, NetemError) as error:
            for each in alterations if len(alterations) > 1 else ():
                await self._reroute([each])
            if len(alterations) == 1:
                alterations[0].error = FabricError(f"link {changes[0].source} -> {changes[0].target}: {error}")

    async def counters(self) -> Counted:
        rows = list[LinkRow]()
        backlogs = dict[kernel_counters.Pair, int]()
        readings = await self._readings(dict.fromkeys(self._interfaces.values()))
        for pair in self._links:
            now = readings.get(self._interfaces.get(pair[1], ""), kernel_counters.NOTHING)
            index = self._links[pair].index
            rows.append(self._ledger.row(pair, now.links.get(index, {})))
            if index in now.backlog:
                backlogs[pair] = now.backlog[index]
        await self._buffers.widen(backlogs)
        passed = self._passed + sum(each.passed for each in readings.values())
        channels = await self._media.rows()
        came = await self._came_from()
        return Counted(
            rows, from_trunk=passed, sent_to=self._sent_to(rows), came_from=came, channels=channels, channels_apart=True
        )

    def _sent_to(self, rows: Sequence[LinkRow]) -> dict[str, int] | None:
        if not self._counts:
            return None
        sent = dict.fromkeys(self._links.remote, 0)
        for row in rows:
            target = str(row["target"])
            if target in sent:
                sent[target] += int(row["delivered"])
        return sent

    async def _came_from(self) -> dict[str, int] | None:
        if not self._counts:
            return None
        found = parse_counts(await self._tc.run([show_counts_command(DEVICE)]))
        remote = self._links.remote
        return {name: found.get(number, 0) for number, name in enumerate(self._nodes, start=1) if name in remote}

    async def watch(self) -> None:
        await self._hub.watch()

    async def close(self) -> None:
        """The bridge and the interfaces end with the hub's namespace."""
        self._buffers.close()
        await self._tc.close()

    async def _readings(self, interfaces: Iterable[str]) -> dict[str, kernel_counters.Reading]:
        """What tc shows of these interfaces at one moment, or has shown last of those that have ended with their node's
        namespace."""
        names = list(interfaces)
        replies = iter(await self._tc.attempt([each for name in names for each in kernel_counters.show_commands(name)]))
        for name in names:
            reply = next(replies)
            policed = next(replies)
            # While an interface ends, tc shows no qdisc of it, without an error.
            if not reply.error and any(now := kernel_counters.read(reply.shown, policed.shown)):
                self._read[name] = now
        return {name: self._read.get(name, kernel_counters.NOTHING) for name in names}


_LATE_RATE = (
    "schedules that change a rate: netem sets the departure of a packet when the packet arrives, so packets queued "
    "at a change leave at the old rate; the userspace engine sends them at the new rate"
)
_UNCOUNTED = (
    "the trunk: this host's kernel cannot count what comes from other hosts (sch_ingress and act_gact do), so that"
    " packets that the network between the hosts loses are not missed"
)
