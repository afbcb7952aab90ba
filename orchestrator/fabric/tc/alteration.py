"""A change of a link by the kernel engine, and what the kernel shows after it."""

from __future__ import annotations

from dataclasses import dataclass

from netem.errors import NetemError
from netem.kernel import tc
from netem.kernel.batch import Reply
from netem.profile import LinkProfile
from orchestrator.errors import FabricError
from orchestrator.fabric.base import LinkChange
from orchestrator.fabric.tc import kernel_counters
from orchestrator.fabric.tc.kernel_links import KernelLinks


@dataclass
class Alteration:
    """A change of a link, and the commands that make it on the hub's ``interface``; None if nothing is to be done.

    ``stop`` runs before the ``command`` of every link and makes final the counters that its own ``command`` discards.
    ``before``: the profile of the link until then.
    """

    change: LinkChange
    interface: str | None
    link: tc.KernelLink
    before: LinkProfile
    stop: list[str] | None = None
    command: list[str] | None = None
    error: Exception | None = None


def finish(
    done: Alteration, reply: Reply, shown: Reply, links: KernelLinks, ledger: kernel_counters.Ledger
) -> Exception | None:
    """Check a change against the kernel, and keep the counters of before or during a cut; returns the error."""
    pair = source, target = done.change.source, done.change.target
    if complaint := reply.error or shown.error:
        return FabricError(f"link {source} -> {target}: {complaint}")
    try:
        if done.change.profile is not None:
            states = tc.parse_qdiscs(shown.shown)
            links.check(pair, done.link, states)
            ledger.change(pair, done.change.profile, kernel_counters.counts(states[done.link.index]))
        elif done.change.cut:
            state = tc.parse_qdiscs(shown.shown)[done.link.index]
            stopped = tc.parse_stops(shown.shown).get(done.link.index, 0)
            counts = kernel_counters.counts(state)
            counts["lost"] -= stopped  # netem let them pass; the blackhole below it dropped them
            ledger.keep(pair, {**counts, "cut_dropped": state.backlog_packets + stopped})
        else:
            ledger.keep(pair, kernel_counters.cut_off(tc.parse_cuts(shown.shown)[done.link.index]))
    except (NetemError, FabricError) as error:
        return error
    except LookupError:
        return FabricError(f"link {source} -> {target}: the kernel does not show it; is its node gone?")
    return None
