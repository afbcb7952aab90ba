"""A veth pair for each node: `data0` in the node's network namespace, the other end in the hub.

Both engines use the same wiring. Neighbour entries are static, so that no ARP packet crosses a link before its first
data packet. A node has an IPv4 and an IPv6 address. It has no link-local address, so that its kernel neither looks for
duplicates nor asks for routers. The functions are pure: they make the lines of `ip -batch`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_interface

from netem.profile import FULL_FRAME, LinkProfile
from netem.userspace.segments import segments_together
from orchestrator.planning.hosts.on_hosts import requested_links
from orchestrator.planning.kernel_engine import beyond_kernel_of
from orchestrator.planning.plan import NodePlan, Plan

PREFIX_LENGTH = 16
IPV6_NETWORK = IPv6Network("fd65:6467:6562::/64")
"""Unique local addresses (RFC 4193), which no network outside the run's namespaces uses or sees."""

MTU = 1500  # bytes
SMALLEST_IPV6_MTU = 1280  # bytes (RFC 8200, section 5)

NodeMtus = Mapping[str, Mapping[str, int]]
"""Bytes by node and peer, see `mtus_of`."""


@dataclass(frozen=True)
class Wires:
    """What a link engine must know of a plan, in addition to links: the nodes, those that send single packets
    (`packet_truth`), the configured engine, whether links share media, what the kernel engine cannot do,
    how large super-packets may be where no engine cuts them (`most_segments`), and by node and peer the largest packets
    of the links that have an MTU of their own (`mtus_of`)."""

    nodes: tuple[NodePlan, ...]
    single_packets: tuple[str, ...]
    engine: str
    media: bool = False
    beyond_kernel: str = ""
    most_segments: Mapping[str, int] = field(default_factory=dict)
    mtus: NodeMtus = field(default_factory=dict)


def wires_of(plan: Plan) -> Wires:
    """The wires of a plan."""
    return Wires(
        nodes=plan.nodes,
        single_packets=tuple(sorted(packet_truth(plan))),
        engine=plan.engine,
        media=bool(plan.media),
        beyond_kernel=beyond_kernel_of(plan),
        most_segments=most_segments(plan),
        mtus=mtus_of(plan),
    )


def mtus_of(plan: Plan) -> dict[str, dict[str, int]]:
    """For each node that has links with an MTU of their own, the largest packet to the peer, in bytes."""
    mtus: dict[str, dict[str, int]] = {}
    for link in plan.links:
        if link.mtu is not None:
            mtus_to_peers = mtus.setdefault(link.source, {})
            mtus_to_peers[link.target] = link.mtu
    return mtus


def within(mtus: NodeMtus, most: int) -> dict[str, dict[str, int]]:
    """The same MTUs, none above that of the nodes' interfaces."""
    limited: dict[str, dict[str, int]] = {}
    for node, peers in mtus.items():
        limited[node] = {}
        for peer, mtu in peers.items():
            limited[node][peer] = min(mtu, most)
    return limited


def packet_truth(plan: Plan) -> frozenset[str]:
    """The nodes that send over a link that acts on single packets: now, later by its schedule, or by a fault."""
    sources = set()
    for link in requested_links(plan.links, plan.faults):
        if any(profile.needs_packet_truth for profile in link.profiles):
            sources.add(link.source)
    return frozenset(sources)


def most_segments(plan: Plan) -> dict[str, int]:
    """For each node that sends over a link with a rate or with `packet_truth`, the most segments that its super-packets
    may have: what the slowest of its links sends in a millisecond and has room for, now, later, or by a fault."""
    most: dict[str, int] = {}
    for link in requested_links(plan.links, plan.faults):
        for profile in link.profiles:
            segments = segments_of(profile)
            if segments is None:
                continue
            former = most.get(link.source, segments)
            most[link.source] = min(segments, former)
    return most


def segments_of(profile: LinkProfile) -> int | None:
    """The most segments that a super-packet on a link of this profile may have, see `most_segments`; None: any."""
    segments = segments_together(profile)
    if segments is None or profile.buffer_limit is None:
        return segments
    frames = profile.buffer_limit // FULL_FRAME
    return min(segments, max(1, frames))


def segments_line(most: int) -> str:
    """The line for a node's namespace that limits its super-packets to so many segments."""
    return f"link set data0 gso_max_segs {most}"


def hub_interface(node: NodePlan, attachment: int) -> str:
    """The name of the hub's end. The number of the attachment distinguishes a restarted node's from its old one."""
    return f"v{node.index}.{attachment}"


def ipv6_address(address: str) -> str:
    """The IPv6 address of the node with an IPv4 address. Its last 32 bits are the IPv4 address, by which the kernel
    engine's filters know it (`netem.kernel.filters`)."""
    network = int(IPV6_NETWORK.network_address)
    host = int(IPv4Address(address))
    return str(IPv6Address(network + host))


def peers(node: NodePlan, nodes: Iterable[NodePlan]) -> list[NodePlan]:
    """The nodes that have a link with ``node``, some of them only after a move."""
    names = {*node.children, *node.neighbours, node.parent, *node.visits}
    return [other for other in nodes if other.name in names]


def hub_lines(
    node: NodePlan,
    pid: int,
    interface: str,
    bridge: str | None,
    mtu: int = MTU,
) -> str:
    """Lines for the hub: make the pair, with one end directly in the namespace of ``pid``."""
    lines = [
        f"link add {interface} mtu {mtu} type veth peer name data0 address {node.mac} mtu {mtu} netns {pid}",
        f"link set {interface} addrgenmode none",
    ]
    if bridge:
        lines.append(f"link set {interface} master {bridge}")
    lines.append(f"link set {interface} up")
    return "\n".join(lines) + "\n"


def node_lines(
    node: NodePlan,
    peers: Collection[NodePlan],
    *,
    most_segments: int | None,
    congestion: str | None,
    mtus: Mapping[str, int],
) -> str:
    """Lines for the node's namespace: set the interface's addresses, their routes and the static neighbours.
    ``most_segments``: of a super-packet; with 1, segmentation offload is off, so that a loss is a single packet and not
    64 KB. ``congestion``: TCP's congestion control on the route; None: that of the host. ``mtus``: see
    `path_routes`."""
    lines = [
        "link set lo up",
        "link set data0 addrgenmode none",
    ]
    if most_segments is not None:
        lines.append(segments_line(most_segments))
    lines += [
        f"addr add {node.address}/{PREFIX_LENGTH} dev data0 noprefixroute",
        f"addr add {ipv6_address(node.address)}/{IPV6_NETWORK.prefixlen} dev data0 noprefixroute nodad",
        "link set data0 up",
    ]
    lines += routes(node, congestion)
    lines += path_routes(node, congestion, peers, mtus)
    return "\n".join(lines) + "\n" + neighbour_lines(peers)


def neighbour_lines(peers: Iterable[NodePlan]) -> str:
    """Lines for a node's namespace: the static neighbours of both addresses of each peer."""
    lines = []
    for peer in peers:
        addresses = (peer.address, ipv6_address(peer.address))
        for address in addresses:
            lines.append(f"neigh replace {address} lladdr {peer.mac} dev data0 nud permanent\n")
    return "".join(lines)


def withdrawal_lines(node: NodePlan) -> str:
    """Lines for a node's namespace: remove both addresses, and with them the routes that have them as source."""
    return (
        f"addr del {node.address}/{PREFIX_LENGTH} dev data0\n"
        f"addr del {ipv6_address(node.address)}/{IPV6_NETWORK.prefixlen} dev data0\n"
    )


def routes(node: NodePlan, congestion: str | None) -> list[str]:
    """The lines that make a node's routes to all others, or replace them: for IPv4 and for IPv6."""
    network = ip_interface(f"{node.address}/{PREFIX_LENGTH}").network
    metrics = _congestion(congestion)
    return [
        f"route replace {network} dev data0 src {node.address}{metrics}",
        f"route replace {IPV6_NETWORK} dev data0 src {ipv6_address(node.address)}{metrics}",
    ]


def path_routes(
    node: NodePlan,
    congestion: str | None,
    peers: Iterable[NodePlan],
    mtus: Mapping[str, int],
) -> list[str]:
    """The lines that make a node's routes to the peers with an MTU of their own on the link, or replace them. Programs
    and TCP take the MTU of the path from the route. ``mtus``: in bytes, by the name of the peer. IPv6 needs 1280 bytes:
    below them the peer's IPv6 address is unreachable, so that programs take the IPv4 address."""
    lines = []
    source = ipv6_address(node.address)
    for peer in peers:
        if peer.name not in mtus:
            continue
        mtu = mtus[peer.name]
        address = ipv6_address(peer.address)
        metrics = f"mtu {mtu}{_congestion(congestion)}"
        lines.append(f"route replace {peer.address}/32 dev data0 src {node.address} {metrics}")
        if mtu < SMALLEST_IPV6_MTU:
            lines.append(f"route replace unreachable {address}/128")
        else:
            lines.append(f"route replace {address}/128 dev data0 src {source} {metrics}")
    return lines


def _congestion(control: str | None) -> str:
    return "" if control is None else f" congctl {control}"
