"""Whether any link carried more than its rate, from the counters that were read during the run."""

from __future__ import annotations

from typing import NamedTuple

from netem.profile import FULL_FRAME, LinkProfile
from netem.userspace.link import segments_together
from orchestrator.results.record.history import History
from orchestrator.results.traffic import media, volumes

READINGS = (5, 60, 600)  # lengths of windows; readings are 1 s apart, or more if nothing was carried
UNSURE = 0.5  # s, possible error of a window's length on a busy host
SPREAD = 10  # jitters by which packets may be closer together at the end of a link than in front of it
SUPER_PACKET = 65_536  # bytes; the kernel engine counts one when all of it has arrived
TOLERANCE = 0.03  # of the rate, as in the probes


class Busiest(NamedTuple):
    """The link of a class, or the channel of a shared medium, with the highest ratio of ``carried`` to ``asked``, its
    rate, in any window. ``carried`` is a lower bound. Both in bit/s."""

    link_class: str
    link: str
    asked: float
    carried: float

    @property
    def too_fast(self) -> bool:
        return self.carried > self.asked * (1 + TOLERANCE)


def busiest(history: History) -> list[Busiest]:
    """The busiest link of each class, among links with a constant rate that carried data in at least one window. Then
    the channels of shared media, likewise."""
    changed = {tuple(link) for fault in history.plan.get("faults", []) if _sets_pace(fault) for link in fault["links"]}
    links = {(link["source"], link["target"]): link for link in history.plan.get("links", [])}
    profiles = {
        ends: LinkProfile.from_mapping(link["profile"])
        for ends, link in links.items()
        if "rate" in link["profile"] and "schedule" not in link and ends not in changed
    }
    piece = SUPER_PACKET if "kernel" in (history.engine or "") else FULL_FRAME
    allowed = {ends: (_burst(each, piece), UNSURE + SPREAD * each.jitter) for ends, each in profiles.items()}
    found: dict[str, Busiest] = {}
    for ends, fastest in volumes.fastest(history, READINGS, allowed).items():
        row = Busiest(links[ends]["link_class"], " → ".join(ends), profiles[ends].rate or 0.0, fastest)
        before = found.get(row.link_class)
        if before is None or row.carried / row.asked > before.carried / before.asked:
            found[row.link_class] = row
    shared = media.busiest(history, READINGS, UNSURE).items()
    return [found[name] for name in sorted(found)] + [Busiest(name, name, *rates) for name, rates in sorted(shared)]


def _burst(profile: LinkProfile, piece: int) -> int:
    """The most bytes of a packet that counts in a window and was sent before it, in part."""
    return max(piece, (segments_together(profile) or 1) * FULL_FRAME)


def _sets_pace(fault: dict[str, object]) -> bool:
    """Whether a fault changes how close together packets arrive."""
    profile = fault.get("profile")
    return isinstance(profile, dict) and not profile.keys().isdisjoint(("rate", "latency", "jitter"))
