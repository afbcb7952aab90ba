"""Whether any link carried more than its rate, from the counters that were read during the run."""

from __future__ import annotations

from typing import NamedTuple

from netem.units import parse_rate
from orchestrator.results import carried
from orchestrator.results.history import History

READINGS = 5  # length of a window; readings are 1 s apart, or more if nothing was carried
UNSURE = 0.5  # s, possible error of a window's length on a busy host
TOLERANCE = 0.03  # of the rate, as in the probes


class Busiest(NamedTuple):
    """The link of a class with the highest ratio of ``carried`` to ``asked``, its rate, in any window. ``carried`` is a
    lower bound. Both in bit/s."""

    link_class: str
    link: str
    asked: float
    carried: float

    @property
    def too_fast(self) -> bool:
        return self.carried > self.asked * (1 + TOLERANCE)


def busiest(history: History) -> list[Busiest]:
    """The busiest link of each class, among links with a constant rate that carried data in at least one window."""
    changed = {tuple(link) for fault in history.plan.get("faults", []) if _sets_rate(fault) for link in fault["links"]}
    fastest = carried.fastest(history, READINGS, UNSURE)
    found: dict[str, Busiest] = {}
    for link in history.plan.get("links", []):
        ends, rate = (link["source"], link["target"]), link["profile"].get("rate")
        if rate is None or "schedule" in link or ends in changed or ends not in fastest:
            continue
        row = Busiest(link["link_class"], " → ".join(ends), parse_rate(rate), fastest[ends])
        before = found.get(row.link_class)
        if before is None or row.carried / row.asked > before.carried / before.asked:
            found[row.link_class] = row
    return [found[name] for name in sorted(found)]


def _sets_rate(fault: dict[str, object]) -> bool:
    profile = fault.get("profile")
    return isinstance(profile, dict) and "rate" in profile
