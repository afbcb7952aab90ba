"""Shared media of a plan as the kernel engine has them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from netem.kernel.media import queue_limit
from netem.media.profile import ChannelProfile
from netem.profile import FULL_FRAME
from orchestrator.planning.plan import Plan, channels_of
from orchestrator.scenario.media.kernel import beyond_kernel


def beyond_kernel_of(plan: Plan) -> str:
    """What the kernel engine cannot do of a plan's media, see `beyond_kernel`."""
    ways = [(link.source, link.target, link.profile, link.crossings) for link in plan.links]
    traffic = [each.channel for each in plan.cross_traffic]
    return beyond_kernel(channels_of(plan.media), ways, traffic, several_hosts=bool(plan.hosts))


def seen_alone(plan: Plan, engine: str) -> dict[str, ChannelProfile]:
    """The channels of a plan as one member of each sees them: the kernel engine gives it a part of the buffer."""
    channels, members = channels_of(plan.media), defaultdict[str, set[str]](set)
    for link in plan.links if engine == "kernel" else ():
        for each in link.crossings:
            members[each.channel].add(each.member)
    for name, found in members.items():
        part = queue_limit(channels[name], len(found)) * FULL_FRAME
        channels[name] = replace(channels[name], size=part)
    return channels
