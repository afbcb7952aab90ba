"""A change of a link by the kernel engine, and what the kernel shows after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from netem.errors import NetemError
from netem.kernel import tc
from netem.kernel.batch import Commands, Reply
from netem.profile import LinkProfile
from orchestrator.errors import FabricError
from orchestrator.fabric.base import LinkChange
from orchestrator.fabric.tc import kernel_counters
from orchestrator.fabric.tc.kernel_links import KernelLinks
from orchestrator.fabric.tc.traffic_control import TrafficControl


@dataclass
class Alteration:
    """A change of a link, and the commands that make it on the hub's ``interface``; None if nothing is to be done.

    ``stop`` runs before the ``command`` of every link and makes final the counters that its own ``command`` discards.
    ``police``: the commands that change its policers. ``before``: the profile of the link until then.
    """

    change: LinkChange
    interface: str | None
    link: tc.KernelLink
    before: LinkProfile
    stop: list[str] | None = None
    command: list[str] | None = None
    police: Commands = field(default_factory=list)
    error: Exception | None = None

    @property
    def pair(self) -> kernel_counters.Pair:
        return self.change.pair


Outcome = tuple[Alteration, Reply, Reply]


async def run(alterations: Sequence[Alteration], control: TrafficControl) -> list[Outcome]:
    """Run the commands of alterations in one batch. Returns for each one the reply to its command, or to that of a
    policer if that was refused, and what tc shows of its interface: for a profile the new state, otherwise the counters
    that the command discards, read before it and after ``stop``."""
    stops = []
    commands = []
    policed = []
    police = []
    for alteration in alterations:
        if alteration.stop is not None:
            stops.append(alteration.stop)
        if alteration.command is not None:
            commands.append(alteration.command)
        for command in alteration.police:
            policed.append(alteration)
            police.append(command)
    interfaces_before = _interfaces(alterations, with_profile=False)
    interfaces_after = _interfaces(alterations, with_profile=True)
    show_before = [tc.show_command(interface) for interface in interfaces_before]
    show_after = [tc.show_command(interface) for interface in interfaces_after]
    batch = stops + show_before + commands + police + show_after
    replies = iter(await control.attempt(batch))
    _take(replies, stops)
    shown_before = _take(replies, show_before)
    done = _take(replies, commands)
    policing = _take(replies, police)
    shown_after = _take(replies, show_after)
    old = dict(zip(interfaces_before, shown_before, strict=True))
    new = dict(zip(interfaces_after, shown_after, strict=True))
    refused = {}
    for alteration, reply in zip(policed, policing, strict=True):
        if reply.error:
            refused[alteration.pair] = reply
    outcomes = []
    for alteration, reply in zip(alterations, done, strict=True):
        if not reply.error:
            reply = refused.get(alteration.pair, reply)
        shown = old if alteration.change.profile is None else new
        interface = alteration.interface or ""
        outcomes.append((alteration, reply, shown[interface]))
    return outcomes


def _take(replies: Iterator[Reply], commands: Commands) -> list[Reply]:
    """The next replies, to these commands."""
    return list(islice(replies, len(commands)))


def _interfaces(alterations: Sequence[Alteration], *, with_profile: bool) -> list[str]:
    """The interfaces of the changes of a profile, or of the others; each one once."""
    interfaces: dict[str, None] = {}
    for alteration in alterations:
        has_profile = alteration.change.profile is not None
        if alteration.interface and has_profile == with_profile:
            interfaces[alteration.interface] = None
    return list(interfaces)


def finish(
    done: Alteration,
    reply: Reply,
    shown: Reply,
    links: KernelLinks,
    ledger: kernel_counters.Ledger,
) -> Exception | None:
    """Check a change against the kernel, and keep the counters of before or during a cut; returns the error."""
    source, target = done.pair
    complaint = reply.error or shown.error
    if complaint:
        return FabricError(f"link {source} -> {target}: {complaint}")
    index = done.link.index
    try:
        if done.change.profile is not None:
            states = tc.parse_qdiscs(shown.shown)
            links.check(done.pair, done.link, states)
            counted = kernel_counters.counts(states[index])
            ledger.change(done.pair, done.change.profile, counted)
        elif done.change.cut:
            counted = _until_cut(shown.shown, index)
            ledger.keep(done.pair, counted)
        else:
            dropped = tc.parse_cuts(shown.shown)[index]
            counted = kernel_counters.cut_off(dropped)
            ledger.keep(done.pair, counted)
    except (NetemError, FabricError) as error:
        return error
    except LookupError:
        return FabricError(f"link {source} -> {target}: the kernel does not show it; is its node gone?")
    return None


def _until_cut(shown: str, index: int) -> dict[str, int]:
    """The counters of a link that is being cut."""
    state = tc.parse_qdiscs(shown)[index]
    stops = tc.parse_stops(shown)
    stopped = stops.get(index, 0)
    counted = kernel_counters.counts(state)
    counted["lost"] -= stopped  # netem let them pass; the blackhole below it dropped them
    counted["cut_dropped"] = state.backlog_packets + stopped
    return counted
