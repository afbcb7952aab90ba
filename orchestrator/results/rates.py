"""Did any link carry more than its rate? Told from the counters that were read while the run used the links."""

from __future__ import annotations

from typing import NamedTuple

from netem.units import parse_rate
from orchestrator.results.history import History

READINGS = 5  # a window's length; they are a second apart, or more where nothing was carried
UNSURE = 0.5  # s by which the readings of a busy host may be wrong about a window's length
TOLERANCE = 0.03  # of the rate, as where it is probed


class Busiest(NamedTuple):
    """The link of a class that came nearest to its rate ``asked``, or furthest above it, in any window of seconds;
    ``carried`` at least so much. Both in bit/s."""

    link_class: str
    link: str
    asked: float
    carried: float

    @property
    def too_fast(self) -> bool:
        return self.carried > self.asked * (1 + TOLERANCE)


def busiest(history: History) -> list[Busiest]:
    """One of each class whose links have a rate that stays as it is, and carried something for long enough to tell."""
    changed = {tuple(link) for fault in history.plan.get("faults", []) if _sets_rate(fault) for link in fault["links"]}
    carried = history.fastest(READINGS, UNSURE)
    found: dict[str, Busiest] = {}
    for link in history.plan.get("links", []):
        ends, rate = (link["source"], link["target"]), link["profile"].get("rate")
        if rate is None or "schedule" in link or ends in changed or ends not in carried:
            continue
        row = Busiest(link["link_class"], " → ".join(ends), parse_rate(rate), carried[ends])
        before = found.get(row.link_class)
        if before is None or row.carried / row.asked > before.carried / before.asked:
            found[row.link_class] = row
    return [found[name] for name in sorted(found)]


def _sets_rate(fault: dict[str, object]) -> bool:
    profile = fault.get("profile")
    return isinstance(profile, dict) and "rate" in profile
