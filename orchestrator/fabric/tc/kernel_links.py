"""The links that the kernel engine shapes on one host: what is asked of each, and the commands for it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from netem.kernel import tc
from netem.kernel.filters import Match, further_commands
from netem.kernel.police import Bucket, sharing
from netem.profile import FULL_FRAME, LinkProfile
from orchestrator.errors import FabricError
from orchestrator.fabric.tc.kernel_counters import Pair
from orchestrator.planning.plan import LinkPlan

SUPER_PACKET = 46
"""Segments of the largest super-packet that a node's TCP makes unless it is limited: 64 KiB of 1448 bytes each."""


class Layout(NamedTuple):
    """What the qdiscs of an interface are for: links by source, target and index, and addresses that pass."""

    links: frozenset[tuple[str, str, int]]
    passing: frozenset[str]


class KernelLinks:
    """The links by target and source. ``remote``: the MACs of other hosts' nodes; their links share the trunk.
    ``segments``: the most segments of a super-packet by its source, see `most_segments`."""

    def __init__(
        self, capabilities: tc.Capabilities, remote: Mapping[str, str] = {}, segments: Mapping[str, int] = {}
    ) -> None:
        self.remote = remote
        self._capabilities = capabilities
        self.segments = dict(segments)
        self._policers = count(1)  # an index is never used again, so that its counter starts at 0
        self._to: defaultdict[str, dict[str, tc.KernelLink]] = defaultdict(dict)
        self._passing: defaultdict[str, set[str]] = defaultdict(set)  # the addresses of remote sources, by target

    def __contains__(self, link: Pair) -> bool:
        source, target = link
        return source in self._to.get(target, ())

    def __getitem__(self, link: Pair) -> tc.KernelLink:
        source, target = link
        return self._to[target][source]

    def __iter__(self) -> Iterator[Pair]:
        return ((source, target) for target, links in self._to.items() for source in links)

    def to(self, target: str) -> dict[str, tc.KernelLink]:
        """The links to a node, by source."""
        return dict(self._to[target])

    def to_remote(self) -> list[tc.KernelLink]:
        """The links to nodes of other hosts."""
        return [link for target in self.remote for link in self._to[target].values()]

    def add(self, link: LinkPlan, address: str, *, target: str | None = None, number: int | None = None) -> None:
        """Add a link from ``address``. ``number``: on its device. ``target``: see `tc.KernelLink`."""
        known = self._to[link.target]
        index = number or len(known) + 1
        seed = link.seed % 2**32
        piece = self.most_segments(link.source) * FULL_FRAME
        known[link.source] = tc.KernelLink(
            index=index, address=address, profile=link.profile, seed=seed, target=target, piece=piece
        )

    def let_pass(self, address: str, target: str) -> None:
        """Packets from this address of another host's node, where the link is shaped, pass to the target."""
        self._passing[target].add(address)

    def come_here(self, target: str, address: str) -> None:
        """A node of another host has moved to this one: its links leave the trunk and are numbered anew."""
        for addresses in self._passing.values():
            addresses.discard(address)
        for index, (source, link) in enumerate(self.to(target).items(), start=1):
            self._to[target][source] = replace(link, index=index, target=None)

    def readdress(self, source: str, address: str, interfaces: Mapping[str, str]) -> list[list[str]]:
        """Give the links from a node on this host another address. Returns the commands for the interfaces of their
        targets, by name; the filters of the former address stay."""
        commands = []
        for target, links in self._to.items():
            if source not in links:
                continue
            link = links[source] = replace(links[source], address=address)
            if target in interfaces:
                policer = sharing(link.policer)
                flow = Match(address, None, link.class_id, police=(policer, policer))
                known = len(links) + len(self._passed_to([target]))
                commands += further_commands(interfaces[target], known, flow)
        return commands

    def most_segments(self, source: str) -> int:
        """Of a super-packet from this node."""
        return min(self.segments.get(source, SUPER_PACKET), SUPER_PACKET)

    def limit_segments(self, source: str, most: int) -> None:
        """A node makes super-packets of at most so many segments from now on."""
        self.segments[source] = most
        for links in self._to.values():
            if source in links:
                links[source] = replace(links[source], piece=self.most_segments(source) * FULL_FRAME)

    def renew(self, link: Pair, profile: LinkProfile | None = None) -> tc.KernelLink:
        """Give a link its next seed, as each change of its qdisc needs, and perhaps another profile."""
        source, target = link
        old = self[link]
        new = replace(old, profile=old.profile if profile is None else profile, seed=tc.next_seed(old.seed))
        self._to[target][source] = new
        return new

    def layout(self, targets: Sequence[str]) -> Layout:
        """That of an interface to these targets."""
        links = {(source, target, link.index) for target in targets for source, link in self._to[target].items()}
        return Layout(frozenset(links), frozenset(self._passed_to(targets)))

    def setup_commands(self, interface: str, targets: Sequence[str]) -> list[list[str]]:
        """The commands that shape the links to these targets on the hub's ``interface`` toward them, with new
        policers."""
        for target in targets:
            for source, link in self._to[target].items():
                self._to[target][source] = replace(link, policer=next(self._policers))
        links = [link for target in targets for link in self._to[target].values()]
        return tc.setup_commands(interface, links, self._capabilities, self._passed_to(targets))

    def change_command(self, interface: str, link: Pair) -> list[str]:
        """See `tc.change_command`."""
        return tc.change_command(interface, self[link], self._capabilities, alone=self._alone(link[1]))

    def restore_command(self, interface: str, link: Pair) -> list[str]:
        """See `tc.restore_command`."""
        return tc.restore_command(interface, self[link], self._capabilities, alone=self._alone(link[1]))

    def bucket(self, link: Pair) -> Bucket | None:
        """See `tc.bucket`."""
        return tc.bucket(self[link], self._capabilities, alone=self._alone(link[1]))

    def check(self, link: Pair, configured: tc.KernelLink, states: Mapping[int, tc.KernelLinkState]) -> None:
        """Compare the kernel's settings with the asked ones; FabricError if they differ."""
        source, target = link
        if configured.index not in states:
            raise FabricError(f"link {source} -> {target}: tc accepted it and the kernel does not show it")
        applied = tc.applied(configured.profile, self._capabilities, alone=self._alone(target))
        differences = tc.compare(applied, states[configured.index])
        if differences:
            raise FabricError(f"link {source} -> {target}: {'; '.join(differences)}")

    def not_applied(self) -> Iterator[str]:
        """The settings that this host's netem lacks, one sentence each."""
        for target, links in self._to.items():
            for note in tc.not_applied(list(links.values()), self._capabilities, alone=self._alone(target)):
                yield f"{target}: {note}"

    def _passed_to(self, targets: Sequence[str]) -> list[str]:
        return sorted({address for target in targets for address in self._passing[target]})

    def _alone(self, target: str) -> bool:
        """Whether no other link shares the interface of a link to this target."""
        return len(self.to_remote() if target in self.remote else self._to[target]) == 1
