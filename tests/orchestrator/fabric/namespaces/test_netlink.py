"""The lines that wire a node have the same effect as with `ip -batch`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from orchestrator.fabric.namespaces.netlink import message
from orchestrator.fabric.namespaces.wiring import hub_lines, ipv6_address, node_lines, withdrawal_lines
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import NodePlan, Plan
from orchestrator.scenario.reading import parse
from tests.netem.wiring import Namespace, NamespacesRefusedError

SCENARIO = """\
name: wired
algorithm: {name: fedavg, rounds: 1}
topology: {edges: 0, devices: 2}
"""
IP = ("ip", "-batch", "-")
OURS = (
    *(sys.executable, "-c"),
    "import sys; from orchestrator.fabric.namespaces.netlink import Netlink\n"
    "with Netlink() as netlink:\n  for line in sys.stdin: netlink.run(line.strip())",
)
NUMBERS = r"link-netnsid \d+|\d+: |@if\d+|port_\w+ \w+|designated_\w+ \S+|link/ether \S+ brd|state \w+"
INSIDE = (
    *("addr show data0", "addr show lo", "route show table all dev data0", "neigh show dev data0"),
    "-6 route show type unreachable",
)
MTUS = {"device-0": 1300, "device-1": 1000}  # the second without IPv6


@pytest.fixture
def plan() -> Plan:
    return make_plan(parse(SCENARIO, "wired.yaml"), None)


@pytest.fixture
def hub() -> Iterator[Namespace]:
    user = bool(os.geteuid())
    made = Namespace(["unshare", "-Urn" if user else "-n"], user=user)
    made.run("ip", "link", "add", "name", "bridge0", "type", "bridge")
    yield made
    made.close()


def wired(
    hub: Namespace, plan: Plan, interface: str, tool: tuple[str, ...], moved: NodePlan | None = None
) -> list[str]:
    """What `ip` shows of a node that was wired with this tool, in its namespace and in the hub. ``moved``: the node
    with the address that it gets afterwards."""
    first, *others = plan.nodes
    node = Namespace([*hub.prefix, "unshare", "-n"], user=bool(os.geteuid()))
    try:
        hub.run(*tool, given=hub_lines(first, node.pid, interface, "bridge0", 1450))
        node.run(*tool, given=node_lines(first, others, most_segments=1, congestion="cubic", mtus=MTUS))
        if moved is not None:
            lines = withdrawal_lines(first) + node_lines(moved, others, most_segments=1, congestion="cubic", mtus=MTUS)
            node.run(*tool, given=lines)
        shown = [node.run("ip", "-d", *each.split()) for each in INSIDE]
        shown.append(hub.run("ip", "-d", "link", "show", "dev", interface))
    finally:
        node.close()
    return ["\n".join(sorted(re.sub(NUMBERS, "", each.replace(interface, "near")).splitlines())) for each in shown]


@pytest.mark.netns
def test_a_node_is_wired_as_by_ip(hub: Namespace, plan: Plan) -> None:
    theirs, ours = wired(hub, plan, "v1.1", IP), wired(hub, plan, "v1.2", OURS)
    assert ours == theirs
    addresses, _, routes, neighbours, unreachable, outside = ours
    node, others = plan.nodes[0], plan.nodes[1:]
    assert f"inet {node.address}/16" in addresses
    assert f"inet6 {ipv6_address(node.address)}/64" in addresses
    assert "inet6 fe80" not in addresses  # so its kernel looks for no routers
    assert "tentative" not in addresses  # nor for a duplicate
    assert "gso_max_segs 1 " in addresses
    assert f"src {node.address} congctl cubic" in routes
    device, narrow = (plan.node(name) for name in MTUS)
    assert f"{device.address} table main proto boot scope link src {node.address} mtu 1300 congctl cubic" in routes
    assert f"{narrow.address} table main proto boot scope link src {node.address} mtu 1000 congctl cubic" in routes
    own = ipv6_address(node.address)
    with_ipv6 = f"{ipv6_address(device.address)} table main proto boot scope global src {own} metric 1024 mtu 1300"
    assert with_ipv6 in routes
    assert re.findall(r"unreachable (\S+)", unreachable) == [ipv6_address(narrow.address)]
    for other in others:
        assert f"{other.address} lladdr {other.mac} PERMANENT" in neighbours
        assert f"{ipv6_address(other.address)} lladdr {other.mac} PERMANENT" in neighbours
    assert all(each in outside for each in ("mtu 1450", "master bridge0", "addrgenmode none"))


@pytest.mark.netns
def test_another_address_takes_the_place_of_the_first(hub: Namespace, plan: Plan) -> None:
    node = plan.nodes[0]
    moved = replace(node, address="10.77.255.254")
    theirs, ours = wired(hub, plan, "v1.1", IP, moved), wired(hub, plan, "v1.2", OURS, moved)
    assert ours == theirs
    addresses, _, routes, _, _, _ = ours
    assert re.findall(r"inet6? (\S+)", addresses) == ["10.77.255.254/16", "fd65:6467:6562::a4d:fffe/64"]
    assert f"src {moved.address} congctl cubic" in routes
    assert f"src {ipv6_address(moved.address)} " in routes
    assert node.address not in routes.replace(moved.address, "")


@pytest.mark.netns
def test_what_the_kernel_refuses_is_an_error_with_the_line(hub: Namespace) -> None:
    line = "addr add 10.77.0.1/16 dev lo noprefixroute"
    with pytest.raises(NamespacesRefusedError, match=rf"`ip {line}` failed \(File exists\)"):
        hub.run(*OURS, given=f"{line}\n{line}\n")


def test_another_line_is_refused() -> None:
    with pytest.raises(ValueError, match="node: link set lo"):
        message("link set lo down")
