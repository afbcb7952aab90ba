"""A change of a link by the kernel engine, and what the kernel shows after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netem.errors import NetemError
from netem.kernel import tc
from netem.kernel.batch import Reply
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
    ``police`` changes its policer. ``before``: the profile of the link until then.
    """

    change: LinkChange
    interface: str | None
    link: tc.KernelLink
    before: LinkProfile
    stop: list[str] | None = None
    command: list[str] | None = None
    police: list[str] | None = None
    error: Exception | None = None

    @property
    def pair(self) -> kernel_counters.Pair:
        return self.change.source, self.change.target


async def run(alterations: Sequence[Alteration], control: TrafficControl) -> list[tuple[Alteration, Reply, Reply]]:
    """Run the commands of alterations in one batch. Returns for each one the reply to its command, or to that of its
    policer if that was refused, and what tc shows of its interface: for a profile the new state, otherwise the counters
    that the command discards, read before it and after ``stop``."""
    before = [each.interface for each in alterations if each.change.profile is None]
    after = [each.interface for each in alterations if each.change.profile is not None]
    shows_before, shows_after = (list(dict.fromkeys(filter(None, names))) for names in (before, after))
    policed = [each for each in alterations if each.police is not None]
    parts = [
        [each.stop for each in alterations if each.stop is not None],
        [tc.show_command(interface) for interface in shows_before],
        [each.command for each in alterations if each.command is not None],
        [each.police for each in policed if each.police is not None],
        [tc.show_command(interface) for interface in shows_after],
    ]
    replies = iter(await control.attempt([command for part in parts for command in part]))
    _, shown_before, done, policing, shown_after = ([next(replies) for _ in part] for part in parts)
    refused = {each.pair: reply for each, reply in zip(policed, policing, strict=True) if reply.error}
    old = dict(zip(shows_before, shown_before, strict=True))
    new = dict(zip(shows_after, shown_after, strict=True))
    results = []
    for each, reply in zip(alterations, done, strict=True):
        shown = (old if each.change.profile is None else new)[each.interface or ""]
        results.append((each, reply if reply.error else refused.get(each.pair, reply), shown))
    return results


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
    try:
        if done.change.profile is not None:
            states = tc.parse_qdiscs(shown.shown)
            links.check(done.pair, done.link, states)
            ledger.change(done.pair, done.change.profile, kernel_counters.counts(states[done.link.index]))
        elif done.change.cut:
            state = tc.parse_qdiscs(shown.shown)[done.link.index]
            stopped = tc.parse_stops(shown.shown).get(done.link.index, 0)
            counts = kernel_counters.counts(state)
            counts["lost"] -= stopped  # netem let them pass; the blackhole below it dropped them
            ledger.keep(done.pair, {**counts, "cut_dropped": state.backlog_packets + stopped})
        else:
            ledger.keep(done.pair, kernel_counters.cut_off(tc.parse_cuts(shown.shown)[done.link.index]))
    except (NetemError, FabricError) as error:
        return error
    except LookupError:
        return FabricError(f"link {source} -> {target}: the kernel does not show it; is its node gone?")
    return None
