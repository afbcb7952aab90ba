"""What is asked of the links on one host, and the commands for it."""

from __future__ import annotations

import pytest

from netem.kernel import tc
from orchestrator.errors import FabricError
from orchestrator.fabric.tc.kernel_links import KernelLinks
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import LinkPlan, Plan
from orchestrator.scenario.reading import parse

SCENARIO = """\
algorithm: {name: fedavg, rounds: 1}
topology: {edges: 0, devices: 3}
links: {device-cloud: {latency: 10ms, duplicate: 1%}}
"""


@pytest.fixture
def plan() -> Plan:
    return make_plan(parse(SCENARIO, "wired.yaml"), None)


def of(plan: Plan, source: str, target: str) -> LinkPlan:
    return next(link for link in plan.links if (link.source, link.target) == (source, target))


def with_trunk(plan: Plan) -> KernelLinks:
    """Two links over the trunk to devices of other hosts, and one to the cloud."""
    links = KernelLinks(tc.Capabilities(seed=True), {name: plan.node(name).mac for name in ("device-0", "device-1")})
    for number, device in enumerate(links.remote, start=1):
        target = plan.node(device).address
        links.add(of(plan, "cloud", device), plan.node("cloud").address, target=target, number=number)
    links.add(of(plan, "device-2", "cloud"), plan.node("device-2").address)
    links.let_pass(plan.node("device-1").address, "cloud")
    return links


def test_links_to_other_hosts_share_the_trunk(plan: Plan) -> None:
    links = with_trunk(plan)
    assert list(links) == [("cloud", "device-0"), ("cloud", "device-1"), ("device-2", "cloud")]
    assert ("device-0", "cloud") not in links
    assert [link.index for link in links.to_remote()] == [1, 2]
    assert [note.partition(":")[0] for note in links.not_applied()] == ["device-0", "device-1"]  # not alone there
    commands = [" ".join(command) for command in links.setup_commands("trunk", ["device-0", "device-1"])]
    assert sum(" netem " in command for command in commands) == 2


def test_what_the_kernel_does_not_show_is_an_error(plan: Plan) -> None:
    links, pair = with_trunk(plan), ("device-2", "cloud")
    with pytest.raises(FabricError, match="device-2 -> cloud: tc accepted"):
        links.check(pair, links[pair], {})
