"""Prints the commands of a plan: those of the kernel for its links, or the requests to the switch."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator

from rich.console import Console
from rich.text import Text

from netem.kernel.media import channel_commands, device_of, member_commands
from netem.kernel.tc import Capabilities
from orchestrator import text
from orchestrator.fabric.namespaces.wiring import hub_interface, most_segments
from orchestrator.fabric.tc.kernel_links import KernelLinks
from orchestrator.fabric.userspace import link_request, nat_requests
from orchestrator.layout import write, write_line
from orchestrator.planning.kernel_engine import beyond_kernel_of
from orchestrator.planning.plan import LinkPlan, NodePlan, Plan, channels_of
from orchestrator.scenario.sections.drivers import candidate_engines
from orchestrator.verbs.plans.words import alike, way

FEW_COMMANDS = 16  # commands shown for one node; it takes three, and four more for each link to it


def kernel_commands(plan: Plan, target: NodePlan) -> list[str]:
    """The commands of the kernel engine for the links to a node, on the hub's end of its interface. In a run, the
    number of the attachment, here 1, counts the nodes in order of their start. A seed is given only if this host's
    netem accepts one."""
    links = KernelLinks(Capabilities(seed=True), segments=most_segments(plan))
    for link in plan.links:
        if link.target == target.name:
            links.add(link, plan.node(link.source).address)
    return [" ".join(command) for command in links.setup_commands(hub_interface(target, 1), [target.name])]


def print_commands(console: Console, plan: Plan) -> None:
    """Print the exact commands. For links that differ only in ends and seeds, print those of the first link."""
    first, *others = candidate_engines(plan.engine, beyond_kernel_of(plan), media=bool(plan.media))
    for name in (first, *others):
        engine, what, lines = _COMMANDS[name]
        where = "" if not others else ", if it works on this host" if name == first else ", otherwise"
        write(console, "")
        for line in (f"{engine}{where}: {what}", *lines(plan)):
            write_line(console, Text(line))


def _kernel_lines(plan: Plan) -> Iterator[str]:
    for number, (name, channel) in enumerate(channels_of(plan.media).items()):
        members = {each.member for link in plan.links for each in link.crossings if each.channel == name}
        device = device_of(number)
        many = len(members)
        yield f"  {name}, on the device {device}"
        making = channel_commands(device, channel) + (member_commands(device, channel, 0, many) if many else [])
        yield from (f"    {' '.join(command)}" for command in making)
        if many > 1 and channel.rule.own_queues:
            yield f"    ... {2 * (many - 1)} more: the class and the queue of each other member"
    tiers = {node.name: node.tier for node in plan.nodes}
    arriving = [(node, [link for link in plan.links if link.target == node.name]) for node in plan.nodes]
    kind: Callable[[tuple[NodePlan, list[LinkPlan]]], Hashable] = lambda pair: (  # noqa: E731
        pair[0].tier,
        tuple((tiers[link.source], link.profile) for link in pair[1]),
    )
    for group in alike([pair for pair in arriving if pair[1]], kind):
        yield f"  to {group[0][0].name}{_like_it(len(group), 'node')}"
        commands = kernel_commands(plan, group[0][0])
        if len(commands) <= FEW_COMMANDS:
            shown = commands
        else:
            shown = commands[:3]
        yield from (f"    {command}" for command in shown)
        if len(shown) < len(commands):
            yield f"    ... {len(commands) - len(shown)} more: the class, the leaf and the filters of each other link"


def _switch_lines(plan: Plan) -> Iterator[str]:
    tiers = {node.name: node.tier for node in plan.nodes}
    for medium in plan.media:
        for name, profile in medium.channels.items():
            yield f"  {json.dumps({'op': 'channel', 'name': name, 'profile': profile.to_mapping()})}"
    for links in alike(plan.links, lambda link: (link.link_class, tiers[link.source], link.profile, way(link))):
        yield f"  {json.dumps(link_request(links[0]))}{_like_it(len(links), 'link')}"
    nats = nat_requests(plan.links)
    if nats:
        yield f"  {json.dumps(nats[0])}{_like_it(len(nats), 'NAT')}"


_COMMANDS: dict[str, tuple[str, str, Callable[[Plan], Iterator[str]]]] = {
    "kernel": (
        "Kernel engine",
        "tc on the hub's interface of each node, one class for each link to it",
        _kernel_lines,
    ),
    "userspace": ("Userspace engine", "requests to the switch", _switch_lines),
}


def _like_it(count: int, noun: str) -> str:
    return f"  (and {text.count(count - 1, noun)} like it)" if count > 1 else ""
