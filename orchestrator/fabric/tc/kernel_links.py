"""The links that the kernel engine shapes on one host: the settings of each, and the commands for it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from netem.kernel import tc
from netem.kernel.batch import Commands
from netem.kernel.filters import Match, further_commands
from netem.kernel.police import Bucket
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


Links = dict[str, tc.KernelLink]
"""The links to a node, by source."""


class KernelLinks:
    """The links by target and source. ``remote``: the MACs of other hosts' nodes; their links share the trunk.
    ``segments``: the most segments of a super-packet by its source, see `most_segments`."""

    def __init__(
        self,
        capabilities: tc.Capabilities,
        remote: Mapping[str, str] = {},
        segments: Mapping[str, int] = {},
    ) -> None:
        self.remote = remote
        self._capabilities = capabilities
        self.segments = dict(segments)
        self._policers = count(1, 2)  # each link has two; an index is never used again, so that its counter starts at 0
        self._to: defaultdict[str, Links] = defaultdict(dict)
        self._passing: defaultdict[str, set[str]] = defaultdict(set)  # the addresses of remote sources, by target

    def __contains__(self, link: Pair) -> bool:
        source, target = link
        return source in self._to.get(target, ())

    def __getitem__(self, link: Pair) -> tc.KernelLink:
        source, target = link
        return self._to[target][source]

    def __iter__(self) -> Iterator[Pair]:
        for target, links in self._to.items():
            for source in links:
                yield source, target

    def to(self, target: str) -> Links:
        """The links to a node, by source."""
        return dict(self._to[target])

    def to_remote(self) -> list[tc.KernelLink]:
        """The links to nodes of other hosts."""
        links: list[tc.KernelLink] = []
        for target in self.remote:
            links += self._to[target].values()
        return links

    def add(
        self,
        link: LinkPlan,
        address: str,
        *,
        target: str | None = None,
        number: int | None = None,
    ) -> None:
        """Add a link from ``address``. ``number``: on its device. ``target``: see `tc.KernelLink`."""
        known = self._to[link.target]
        known[link.source] = tc.KernelLink(
            index=number or len(known) + 1,
            address=address,
            profile=link.profile,
            seed=link.seed % 2**32,
            target=target,
            piece=self._piece(link.source),
        )

    def let_pass(self, address: str, target: str) -> None:
        """Packets from this address of another host's node, where the link is shaped, pass to the target."""
        self._passing[target].add(address)

    def come_here(self, target: str, address: str) -> None:
        """A node of another host has moved to this one: its links leave the trunk and get new numbers."""
        for addresses in self._passing.values():
            addresses.discard(address)
        links = self._to[target]
        for index, source in enumerate(links, start=1):
            link = links[source]
            links[source] = replace(link, index=index, target=None)

    def readdress(
        self,
        source: str,
        address: str,
        interfaces: Mapping[str, str],
    ) -> Commands:
        """Give the links from a node on this host another address. Returns the commands for the interfaces of their
        targets, by name; the filters of the former address stay."""
        commands = []
        for target, links in self._to.items():
            if source not in links:
                continue
            link = replace(links[source], address=address)
            links[source] = link
            if target in interfaces:
                shared = tc.shared_police(link)
                police = (shared, shared)
                flow = Match(address, None, link.class_id, police=police)
                passed = self._passed_to([target])
                known = len(links) + len(passed)
                commands += further_commands(interfaces[target], known, flow)
        return commands

    def most_segments(self, source: str) -> int:
        """Of a super-packet from this node."""
        limit = self.segments.get(source, SUPER_PACKET)
        return min(limit, SUPER_PACKET)

    def limit_segments(self, source: str, most: int) -> None:
        """A node makes super-packets of at most so many segments from now on."""
        self.segments[source] = most
        piece = self._piece(source)
        for links in self._to.values():
            if source in links:
                link = links[source]
                links[source] = replace(link, piece=piece)

    def _piece(self, source: str) -> int:
        """Bytes of the largest super-packet from a node."""
        return self.most_segments(source) * FULL_FRAME

    def renew(self, link: Pair, profile: LinkProfile | None = None) -> tc.KernelLink:
        """Give a link its next seed, as each change of its qdisc needs, and perhaps another profile."""
        source, target = link
        old = self[link]
        if profile is None:
            profile = old.profile
        seed = tc.next_seed(old.seed)
        new = replace(old, profile=profile, seed=seed)
        self._to[target][source] = new
        return new

    def layout(self, targets: Sequence[str]) -> Layout:
        """That of an interface to these targets."""
        links = set()
        for target in targets:
            for source, link in self._to[target].items():
                entry = (source, target, link.index)
                links.add(entry)
        passing = self._passed_to(targets)
        return Layout(frozenset(links), frozenset(passing))

    def setup_commands(self, interface: str, targets: Sequence[str]) -> Commands:
        """The commands that shape the links to these targets on the hub's ``interface`` toward them, with new
        policers."""
        new_links = []
        for target in targets:
            links = self._to[target]
            for source in links:
                policer = next(self._policers)
                link = replace(links[source], policer=policer)
                links[source] = link
                new_links.append(link)
        passing = self._passed_to(targets)
        return tc.setup_commands(interface, new_links, self._capabilities, passing)

    def change_command(self, interface: str, link: Pair) -> list[str]:
        """See `tc.change_command`."""
        alone = self._alone(link[1])
        return tc.change_command(interface, self[link], self._capabilities, alone=alone)

    def restore_command(self, interface: str, link: Pair) -> list[str]:
        """See `tc.restore_command`."""
        alone = self._alone(link[1])
        return tc.restore_command(interface, self[link], self._capabilities, alone=alone)

    def bucket(self, link: Pair) -> Bucket | None:
        """See `tc.bucket`."""
        alone = self._alone(link[1])
        return tc.bucket(self[link], self._capabilities, alone=alone)

    def check(
        self,
        link: Pair,
        configured: tc.KernelLink,
        states: Mapping[int, tc.KernelLinkState],
    ) -> None:
        """Compare the kernel's settings with the configured ones; FabricError if they differ."""
        source, target = link
        state = states.get(configured.index)
        if state is None:
            raise FabricError(f"link {source} -> {target}: tc accepted it and the kernel does not show it")
        alone = self._alone(target)
        applied = tc.applied(configured.profile, self._capabilities, alone=alone)
        differences = tc.compare(applied, state)
        if differences:
            raise FabricError(f"link {source} -> {target}: {'; '.join(differences)}")

    def not_applied(self) -> Iterator[str]:
        """The settings that this host's netem lacks, one sentence each."""
        for target, links in self._to.items():
            alone = self._alone(target)
            listed = list(links.values())
            notes = tc.not_applied(listed, self._capabilities, alone=alone)
            for note in notes:
                yield f"{target}: {note}"

    def _passed_to(self, targets: Sequence[str]) -> list[str]:
        addresses: set[str] = set()
        for target in targets:
            addresses |= self._passing[target]
        return sorted(addresses)

    def _alone(self, target: str) -> bool:
        """Whether no other link shares the interface of a link to this target."""
        if target in self.remote:
            return len(self.to_remote()) == 1
        return len(self._to[target]) == 1
