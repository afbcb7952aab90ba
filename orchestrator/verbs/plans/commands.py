"""Prints the commands of a plan: those of the kernel for its links, or the requests to the switch."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator

from rich.console import Console
from rich.text import Text

from netem.kernel.media import channel_commands, device_of, member_commands
from netem.kernel.tc import Capabilities
from netem.media.profile import ChannelProfile
from orchestrator import text
from orchestrator.fabric.namespaces.wiring import hub_interface, most_segments
from orchestrator.fabric.tc.kernel_links import KernelLinks
from orchestrator.fabric.userspace import link_request, nat_requests
from orchestrator.layout import write, write_line
from orchestrator.planning.kernel_engine import beyond_kernel_of
from orchestrator.planning.plan import LinkPlan, NodePlan, Plan, channels_of
from orchestrator.scenario.sections.engines import candidate_engines
from orchestrator.verbs.plans.words import alike, tiers_of, way

FEW_COMMANDS = 16  # commands shown for one node; it takes three, and four more for each link to it


def kernel_commands(plan: Plan, target: NodePlan) -> list[str]:
    """The commands of the kernel engine for the links to a node, on the hub's end of its interface. In a run, the
    number of the attachment, here 1, counts the nodes in order of their start. A seed is given only if this host's
    netem accepts one."""
    capabilities = Capabilities(seed=True)
    links = KernelLinks(capabilities, segments=most_segments(plan))
    for link in plan.links:
        if link.target == target.name:
            source = plan.node(link.source)
            links.add(link, source.address)
    interface = hub_interface(target, 1)
    commands = links.setup_commands(interface, [target.name])
    return [" ".join(command) for command in commands]


def print_commands(console: Console, plan: Plan) -> None:
    """Print the exact commands. For links that differ only in ends and seeds, print those of the first link."""
    beyond_kernel = beyond_kernel_of(plan)
    engines = candidate_engines(plan.engine, beyond_kernel, media=bool(plan.media))
    for number, name in enumerate(engines):
        engine, what, lines = _COMMANDS[name]
        if len(engines) == 1:
            condition = ""
        elif number == 0:
            condition = ", if it works on this host"
        else:
            condition = ", otherwise"
        heading = f"{engine}{condition}: {what}"
        write(console, "")
        for line in (heading, *lines(plan)):
            write_line(console, Text(line))


def _kernel_lines(plan: Plan) -> Iterator[str]:
    channels = channels_of(plan.media)
    for number, name in enumerate(channels):
        yield from _channel_lines(plan, number, name, channels[name])
    links_to: dict[str, list[LinkPlan]] = {}
    for link in plan.links:
        links_to.setdefault(link.target, []).append(link)
    tiers = tiers_of(plan)

    def kind_of_target(node: NodePlan) -> Hashable:
        links = links_to[node.name]
        sources = [(tiers[link.source], link.profile) for link in links]
        return node.tier, tuple(sources)

    targets = [node for node in plan.nodes if node.name in links_to]
    for nodes in alike(targets, kind_of_target):
        first = nodes[0]
        yield f"  to {first.name}{_like_it(len(nodes), 'node')}"
        commands = kernel_commands(plan, first)
        if len(commands) <= FEW_COMMANDS:
            shown = commands
        else:
            shown = commands[:3]
        for command in shown:
            yield f"    {command}"
        more = len(commands) - len(shown)
        if more > 0:
            yield f"    ... {more} more: the class, the leaf and the filters of each other link"


def _channel_lines(
    plan: Plan,
    number: int,
    name: str,
    channel: ChannelProfile,
) -> Iterator[str]:
    """The commands that make a channel of a shared medium. ``number``: its number among all channels."""
    members = set()
    for link in plan.links:
        for crossing in link.crossings:
            if crossing.channel == name:
                members.add(crossing.member)
    device = device_of(number)
    yield f"  {name}, on the device {device}"
    commands = list(channel_commands(device, channel))
    if members:
        commands += member_commands(device, channel, 0, len(members))
    for command in commands:
        yield f"    {' '.join(command)}"
    if len(members) > 1 and channel.rule.own_queues:
        more = 2 * (len(members) - 1)
        yield f"    ... {more} more: the class and the queue of each other member"


def _switch_lines(plan: Plan) -> Iterator[str]:
    for medium in plan.media:
        for name, profile in medium.channels.items():
            request = {"op": "channel", "name": name, "profile": profile.to_mapping()}
            yield f"  {json.dumps(request)}"
    tiers = tiers_of(plan)

    def kind_of_link(link: LinkPlan) -> Hashable:
        return link.link_class, tiers[link.source], link.profile, way(link)

    for links in alike(plan.links, kind_of_link):
        first_request = json.dumps(link_request(links[0]))
        yield f"  {first_request}{_like_it(len(links), 'link')}"
    nats = nat_requests(plan.links)
    if nats:
        first_request = json.dumps(nats[0])
        yield f"  {first_request}{_like_it(len(nats), 'NAT')}"


Lines = Callable[[Plan], Iterator[str]]

_COMMANDS: dict[str, tuple[str, str, Lines]] = {
    "kernel": (
        "Kernel engine",
        "tc on the hub's interface of each node, one class for each link to it",
        _kernel_lines,
    ),
    "userspace": ("Userspace engine", "requests to the switch", _switch_lines),
}


def _like_it(count: int, noun: str) -> str:
    if count == 1:
        return ""
    others = text.count(count - 1, noun)
    return f"  (and {others} like it)"
