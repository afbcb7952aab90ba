"""The kernel engine: a bridge in the hub, and netem on the hub's end of every node's interface.

A link from source to target is shaped at the egress of the hub toward the target, by one HTB class with a netem leaf
per source. Both directions are shaped in this way, never at the sender: there TCP's small queues would count packets in
netem as not yet sent (tc-netem(8), LIMITATIONS).

If the run spans several hosts, the trunk is one more port of the bridge. Links to nodes of other hosts are shaped at
its egress. Packets from other hosts pass the interface of their target unshaped if the run has the link, by the
source's IP address. Filters at the trunk's ingress count them all by their source.

Packets of a link that crosses a shared medium pass its device before they come to the bridge (`KernelMedia`).

When a node moves to this host, its links leave the trunk or come to it. Then the qdiscs of the interfaces concerned are
replaced, which drops the packets in flight there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from netem.errors import NetemError
from netem.kernel import batch, media, tc
from netem.kernel.batch import Commands
from netem.kernel.filters import count_commands, parse_counts, show_counts_command
from netem.kernel.tables import distribution_tables
from netem.media.profile import ChannelProfile, CrossTraffic
from orchestrator.errors import FabricError, HostError, OrchestratorError
from orchestrator.fabric.base import Counted, Errors, Handles, LinkChange, LinkRow, NodeHandle
from orchestrator.fabric.coalesce import Coalescing
from orchestrator.fabric.namespaces import tcp, wiring
from orchestrator.fabric.namespaces.hub import TC_BATCH, Hub
from orchestrator.fabric.tc import bridge, kernel_counters
from orchestrator.fabric.tc.alteration import Alteration, finish, run
from orchestrator.fabric.tc.kernel_buffers import KernelBuffers
from orchestrator.fabric.tc.kernel_links import KernelLinks, Layout
from orchestrator.fabric.tc.kernel_media import KernelMedia
from orchestrator.fabric.tc.super_packets import SuperPackets
from orchestrator.fabric.tc.traffic_control import TrafficControl
from orchestrator.fabric.trunk import DEVICE, Trunk, remote_nodes
from orchestrator.host.kernel.virtual_time import in_virtual_time
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
        remote = remote_nodes(wires.nodes, trunk)
        self._links = KernelLinks(capabilities, remote, wires.most_segments)
        self._buffers = KernelBuffers(self._links, control)
        addresses = {node.name: node.address for node in wires.nodes}
        self._media = KernelMedia(hub, control, addresses)
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
        """``seed``, ``duplicate_in_tree``: features of this host's netem, see `tc.Capabilities` and `netem_support`.
        ``trunk``: the hub's trunk, already laid, if the run spans several hosts."""
        tables = directory / "tc"
        tables.mkdir(exist_ok=True)  # exists already in a continued run
        for name, text in distribution_tables().items():
            table = tables / name
            table.write_text(text)
        await bridge.make(hub)
        notes = []
        counts = False
        if trunk is not None:
            remotes = list(trunk.remotes)
            notes = await bridge.add_trunk(hub, remotes)
            addresses = [node.address for node in wires.nodes]
            counting = batch.lines(count_commands(DEVICE, addresses))
            uncounted, _, _ = await hub.attempt(TC_BATCH, stdin=counting)
            counts = uncounted == 0
            if not counts:
                notes.append(_UNCOUNTED)
        environment = dict(labels(run, directory, "tc"))
        environment["TC_LIB_DIR"] = str(tables)
        control = TrafficControl(hub, environment)
        capabilities = tc.Capabilities(
            seed=seed,
            duplicate_in_tree=duplicate_in_tree,
            repeats=in_virtual_time(),
        )
        return cls(hub, control, wires, capabilities, trunk, notes, counts=counts)

    def notes(self) -> list[str]:
        return [*self._notes, *self._late_rates, *self._links.not_applied()]

    async def attach(self, node: NodePlan, handle: NodeHandle) -> dict[str, str]:
        await self.detach(node)
        attachment = next(self._attachments)
        interface = wiring.hub_interface(node, attachment)
        pid = handle.pid
        lines = wiring.hub_lines(node, pid, interface, bridge.NAME, self._mtu)
        await self._hub.set_up(None, {}, lines)
        await bridge.place(self._hub, interface, [node.mac])
        self._interfaces[node.name] = interface
        await self._make(interface, [node.name])
        await self._media.attach(node.name, interface)
        most_segments = self._links.segments.get(node.name)
        crosses = self._media.crossed_by(node.name)
        if crosses:
            most_segments = 1  # a super-packet would need the buffer of a medium at one moment
        self._super_packets.pids[node.name] = pid
        if crosses:
            detach = media.detach_command("data0")
            await self._hub.run(detach, pid=pid)
        return await tcp.configure(
            self._hub,
            node,
            pid,
            wiring.peers(node, self._nodes.values()),
            most_segments=most_segments,
            mtus=self._mtus.get(node.name, {}),
            settings=self.tcp,
        )

    async def readdress(self, node: NodePlan, handle: NodeHandle, peers: Handles) -> None:
        before = self._nodes[node.name]
        self._nodes[node.name] = node
        name = node.name
        commands = self._links.readdress(name, node.address, self._interfaces)
        await self._tc.run(commands)
        await tcp.readdress(
            self._hub,
            before,
            node,
            handle.pid,
            self._nodes.values(),
            peers,
            most_segments=self._links.segments.get(name),
            mtus=self._mtus,
            settings=self.tcp,
        )

    async def detach(self, node: NodePlan) -> None:
        """The counters of its interface are kept."""
        name = node.name
        interface = self._interfaces.get(name)
        if interface is None:
            return
        readings = await self._readings([interface])
        now = readings[interface]
        self._made.pop(interface, None)
        self._read.pop(interface, None)
        self._interfaces.pop(name, None)
        self._media.detach(name)
        self._super_packets.pids.pop(name, None)
        self._passed += now.passed
        self._keep(name, now.links)

    def _keep(self, target: str, counters: Mapping[int, kernel_counters.Counts]) -> None:
        """Keep the ``counters`` of the links to a node, by index, because their qdiscs end."""
        links = self._links.to(target)
        for source, link in links.items():
            counted = counters.get(link.index, {})
            self._ledger.keep((source, target), counted)

    async def unsent(self, handle: NodeHandle) -> int:
        return await self._hub.unsent(handle.pid)

    async def forget(self, handle: NodeHandle) -> None:
        await self._hub.forget(handle.pid)

    async def redirect(self, remotes: Mapping[str, str]) -> None:
        assert self._trunk is not None, "no node runs on another host"
        now: Mapping[int, kernel_counters.Counts] = {}
        if self._links.to_remote():
            readings = await self._readings([DEVICE])
            now = readings[DEVICE].links
        before = self._trunk
        self._trunk = replace(self._trunk, remotes=remotes)
        nodes = self._nodes.values()
        remaining = remote_nodes(nodes, self._trunk)
        before_names = self._links.remote.keys()
        here = before_names - remaining.keys()
        gone = []
        for mac in before.remotes:
            if mac not in remotes:
                gone.append(mac)
        await bridge.remove(self._hub, DEVICE, gone)
        self._links.remote = remaining
        for name in here:
            del self._interfaces[name]
            self._keep(name, now)
            node = self._nodes[name]
            self._links.come_here(name, node.address)

    async def share(self, channels: Mapping[str, ChannelProfile]) -> None:
        for name, profile in channels.items():
            await self._media.share(name, profile)

    async def occupy(self, channel: str, traffic: CrossTraffic | None, seed: int = 0) -> None:
        if traffic is not None:
            raise FabricError(f"{channel}: the kernel engine has no cross traffic: choose `engine: userspace`")

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        indices = [link.index for link in self._links.to_remote()]
        highest = max(indices, default=0)
        numbers = count(1 + highest)
        changes = []
        for link in links:
            pair = (link.source, link.target)
            source = self._nodes[link.source].address
            target = self._nodes[link.target].address
            to_remote = link.target in self._links.remote
            if link.source in self._links.remote:
                if not to_remote:
                    self._links.let_pass(source, link.target)
                continue
            if pair in self._links:
                change = LinkChange(link.source, link.target, profile=link.profile)
                changes.append(change)
                continue
            if to_remote:
                number = next(numbers)
                self._links.add(link, source, target=target, number=number)
            else:
                self._links.add(link, source)
            rates = {profile.rate for profile in link.extremes}
            if len(rates) > 1 and not self._late_rates:
                self._late_rates = [_LATE_RATE]
            self._ledger.begin(pair, link.profile)
        ways = {}
        for link in links:
            pair = (link.source, link.target)
            ways[pair] = link.crossings
        await self._media.cross(ways)
        for name, interface in self._interfaces.items():
            if name not in self._links.remote:
                await self._make_again(interface, [name])
        remote = list(self._links.remote)
        await self._make_again(DEVICE, remote)
        for error in await self.alter(changes):
            if error is not None:
                raise error

    async def _make_again(self, interface: str, targets: Sequence[str]) -> None:
        """Make the qdiscs of an interface to these targets, unless they exist for the same links."""
        before = self._made.get(interface)
        if before == self._links.layout(targets):
            return
        if before is None and not self._links.to_remote():
            return
        if before is not None:
            removed = await self._remove(interface, before, targets)
            if not removed:
                return
        await self._make(interface, targets)

    async def _remove(
        self,
        interface: str,
        before: Layout,
        targets: Sequence[str],
    ) -> bool:
        """Remove the qdiscs of an interface, and keep their counters; False if its node has just ended."""
        remove = f"tc qdisc del dev {interface} root"
        commands = kernel_counters.show_commands(interface)
        commands.append(remove.split())
        shown, policed, removed = await self._tc.attempt(commands)
        if shown.error:
            return False
        if removed.error:
            raise HostError(f"`{remove}` failed ({removed.error})")
        now = kernel_counters.read(shown.shown, policed.shown)
        self._passed += now.passed
        for source, target, index in before.links:
            pair = (source, target)
            if pair in self._links and target in targets:
                counted = now.links.get(index, {})
                self._ledger.keep(pair, counted)
                self._links.renew(pair)
        self._read.pop(interface, None)
        return True

    async def _make(self, interface: str, targets: Sequence[str]) -> None:
        """Make the qdiscs of an interface to these targets, and cut the links that are cut."""
        commands = self._links.setup_commands(interface, targets)
        commands.append(tc.show_command(interface))
        shown = await self._tc.run(commands)
        states = tc.parse_qdiscs(shown)
        layout = self._links.layout(targets)
        self._made[interface] = layout
        for target in targets:
            links = self._links.to(target)
            for source, link in links.items():
                pair = (source, target)
                self._links.check(pair, link, states)
                self._buffers.made(pair)
        closed = []
        for source, target in self._cut:
            if target in targets:
                change = LinkChange(source, target, cut=True)
                closed.append(self._alteration(change))
        for alteration in closed:
            self._add_cut(alteration)
        for error in await self._carry_out(closed):
            if error is not None:
                raise error

    async def alter(self, changes: Sequence[LinkChange]) -> Errors:
        here = []
        for change in changes:
            if change.pair in self._links:
                here.append(change)
        if len(here) == len(changes):
            return await self._alter_here(changes)
        done = iter(await self._alter_here(here))
        errors: Errors = []
        for change in changes:
            if change in here:
                errors.append(next(done))
            else:
                link = f"{change.source} -> {change.target}"
                errors.append(FabricError(f"link {link}: this host does not shape it"))
        return errors

    async def _alter_here(self, changes: Sequence[LinkChange]) -> Errors:
        """As `alter`, of links that this host shapes. Several changes of the same link are made one after the other."""
        errors: Errors = []
        while len(errors) < len(changes):
            together = _different_links(changes[len(errors) :])
            await self._super_packets.limit(together)
            alterations = [self._prepare(change) for change in together]
            errors += await self._carry_out(alterations)
        return errors

    def _prepare(self, change: LinkChange) -> Alteration:
        """The commands for a change; the state already records the change as made. `_undo` takes that back."""
        pair = change.pair
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
        link = self._links[change.pair]
        interface = self._interfaces.get(change.target)
        return Alteration(change, interface, link, link.profile)

    def _undo(self, refused: Alteration) -> None:
        pair = refused.pair
        if refused.change.profile is not None:
            self._links.renew(pair, refused.before)
        elif refused.change.cut:
            self._cut.discard(pair)
        else:
            self._cut.add(pair)

    def _add_cut(self, alteration: Alteration) -> None:
        interface = alteration.interface
        if interface is not None:
            alteration.stop = tc.stop_command(interface, alteration.link)
            alteration.command = tc.cut_command(interface, alteration.link)
            alteration.police = self._buffers.opened(alteration.pair)

    async def _carry_out(self, alterations: Sequence[Alteration]) -> Errors:
        """Run the prepared commands in one batch; returns the error of each alteration, None if it succeeded."""
        running = []
        rerouted = []
        for alteration in alterations:
            if alteration.command is not None:
                running.append(alteration)
            if alteration.change.crossings is not None:
                rerouted.append(alteration)
        if running:
            await self._run(running)
        await self._reroute(rerouted)
        return [alteration.error for alteration in alterations]

    async def _run(self, alterations: Sequence[Alteration]) -> None:
        """Run the commands of alterations, and note the error of each."""
        with_profile = []
        for alteration in alterations:
            if alteration.change.profile is not None:
                with_profile.append(alteration)
        await self._buffers.prepare(with_profile)
        outcomes = await run(alterations, self._tc)
        for alteration, reply, shown in outcomes:
            error = finish(alteration, reply, shown, self._links, self._ledger)
            alteration.error = error
            if error is not None:
                self._undo(alteration)
            elif alteration.change.profile is None and alteration.interface in self._read:
                # The ledger has kept what the qdisc had counted; the policers stay.
                links = self._read[alteration.interface].links
                index = alteration.link.index
                before = links.get(index, {})
                too_large = before.get("too_large", 0)
                overflowed = before.get("overflowed", 0)
                links[index] = kernel_counters.by_policers(too_large, overflowed)
        refused = []
        for alteration in alterations:
            if alteration.error is not None:
                refused.append(alteration)
        await self._buffers.undo(refused, self._cut)

    async def _reroute(self, alterations: Sequence[Alteration]) -> None:
        """Lead links through other channels: together, or one after the other if that is refused."""
        ways = {}
        for alteration in alterations:
            ways[alteration.pair] = alteration.change.crossings or ()
        try:
            await self._media.cross(ways)
        except (OrchestratorError, NetemError) as error:
            if len(alterations) == 1:
                source, target = alterations[0].pair
                alterations[0].error = FabricError(f"link {source} -> {target}: {error}")
                return
            for alteration in alterations:
                await self._reroute([alteration])

    async def counters(self) -> Counted:
        rows: list[LinkRow] = []
        backlogs: dict[kernel_counters.Pair, int] = {}
        interfaces = dict.fromkeys(self._interfaces.values())
        readings = await self._readings(interfaces)
        for pair in self._links:
            _, target = pair
            interface = self._interfaces.get(target, "")
            now = readings.get(interface, kernel_counters.NOTHING)
            index = self._links[pair].index
            counted = now.links.get(index, {})
            row = self._ledger.row(pair, counted)
            rows.append(row)
            if index in now.backlog:
                backlogs[pair] = now.backlog[index]
        await self._buffers.widen(backlogs)
        passed = self._passed
        for reading in readings.values():
            passed += reading.passed
        channels = await self._media.rows()
        came_from = await self._came_from()
        return Counted(
            rows,
            from_trunk=passed,
            sent_to=self._sent_to(rows),
            came_from=came_from,
            channels=channels,
            channels_apart=True,
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
        show = show_counts_command(DEVICE)
        shown = await self._tc.run([show])
        packets = parse_counts(shown)
        came_from = {}
        for number, name in enumerate(self._nodes, start=1):
            if name in self._links.remote:
                came_from[name] = packets.get(number, 0)
        return came_from

    async def watch(self) -> None:
        await self._hub.watch()

    async def close(self) -> None:
        """The bridge and the interfaces end with the hub's namespace."""
        self._buffers.close()
        await self._tc.close()

    async def _readings(self, interfaces: Iterable[str]) -> dict[str, kernel_counters.Reading]:
        """What tc shows of these interfaces at one moment, or has shown last of those that have ended with the
        namespace of their node."""
        names = list(interfaces)
        commands: Commands = []
        for name in names:
            commands += kernel_counters.show_commands(name)
        replies = iter(await self._tc.attempt(commands))
        readings = {}
        for name in names:
            shown = next(replies)
            policed = next(replies)
            if not shown.error:
                now = kernel_counters.read(shown.shown, policed.shown)
                if any(now):  # while an interface ends, tc shows no qdisc of it, without an error
                    self._read[name] = now
            readings[name] = self._read.get(name, kernel_counters.NOTHING)
        return readings


def _different_links(changes: Sequence[LinkChange]) -> Sequence[LinkChange]:
    """The changes before the first one of a link that another one has changed."""
    pairs = set()
    for number, change in enumerate(changes):
        if change.pair in pairs:
            return changes[:number]
        pairs.add(change.pair)
    return changes


_LATE_RATE = (
    "schedules that change a rate: netem sets the departure of a packet when the packet arrives, so packets queued "
    "at a change leave at the old rate; the userspace engine sends them at the new rate"
)
_UNCOUNTED = (
    "the trunk: this host's kernel cannot count what comes from other hosts (sch_ingress and act_gact do), so that"
    " packets that the network between the hosts loses are not missed"
)
