"""The clients of a population in a run: which ones took part, and how it ended for them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from statistics import median
from typing import Any, NamedTuple

from orchestrator import text
from orchestrator.record.events.nodes import ClientPart
from orchestrator.record.rows import POPULATION
from orchestrator.results.checks.verdicts import Assessment
from orchestrator.results.history import History

OUTCOMES = {
    "counted": "answered in time",
    "slow": "dropped as slow",
    "away": "went away",
    "unused": "answered, not used",
    "unfinished": "unfinished when the cloud ended",
}


class Part(NamedTuple):
    """A client's part. ``round``: that of its answer, or of its start. ``began``: its start in seconds of training."""

    client: str
    round: int
    outcome: str
    began: float
    seconds: float
    hardware: str
    link: str


class Kind(NamedTuple):
    """The parts of clients with the same hardware or link. ``seconds``: the median of those that counted."""

    name: str
    asked: int
    counted: int
    seconds: float | None


def parts(history: History) -> list[Part]:
    """Every part of every client, in the order of the record. Empty without a population."""
    validated = []
    for event in history.events(ClientPart.NAME):
        if event.node != POPULATION or event.round is None:
            continue
        recorded = ClientPart.from_json(event.data)
        staleness = int(recorded.staleness or 0)
        part = Part(
            client=str(recorded.client),
            round=event.round + staleness,
            outcome=str(recorded.outcome),
            began=float(recorded.began),
            seconds=float(recorded.seconds),
            hardware="" if recorded.hardware is None else str(recorded.hardware),
            link=str(recorded.link),
        )
        validated.append(part)
    return validated


def population(history: History) -> dict[str, Any] | None:
    """For the summary; None without a population.

    ``selected`` clients answer for each round, or take part at a time if the algorithm is ``asynchronous``. ``seen``
    counts the clients that answered in time at least once, ``share_seen`` is their share of all. ``asked`` counts the
    parts, ``outcomes`` by how they ended. ``seconds``: median duration of parts that counted.
    """
    planned = history.plan.get(POPULATION)
    if not planned:
        return None
    all_parts = parts(history)
    counted = [part for part in all_parts if part.outcome == "counted"]
    seen = len({part.client for part in counted})
    tally = Counter(part.outcome for part in all_parts)
    seconds = [part.seconds for part in counted]
    return {
        "clients": planned["size"],
        "asynchronous": planned["asynchronous"],
        "selected": planned["selected"],
        "selection": planned["selection"]["name"],
        "seen": seen,
        "share_seen": seen / planned["size"],
        "asked": len(all_parts),
        "outcomes": {outcome: tally[outcome] for outcome in OUTCOMES},
        "seconds": _median(seconds),
    }


def clients_available(history: History) -> Assessment | None:
    """Check that the trace of when clients are available made a difference in the run. None without a trace, training
    or facts on it."""
    plan = history.plan
    planned = plan.get(POPULATION) or plan.get("clients") or {}
    trace = planned.get("availability", {})
    began = history.training_began
    if "change" not in trace or began is None:
        return None
    if history.status == "running":
        return "unknown", "the run is going on"
    outcome = history.outcome
    ended = history.seconds if outcome is None else outcome.t
    seconds = ended - began
    name = trace["trace"]
    first = trace["first"]
    change = trace["change"]
    hint = (
        f"the run ended after {text.duration(seconds)} of training: check the unit of the times, and where they start"
    )
    if first is None or first >= seconds:
        if first is None:
            begins = "no client has a stay"
        else:
            begins = f"the first stay starts at {text.duration(first)}"
        return "unknown", f"no row of {name} took effect: {begins}, and {hint}"
    if change is None or change >= seconds:
        if change is None:
            comes = "never"
        else:
            comes = f"first at {text.duration(change)}"
        return "unknown", f"no row of {name} made a difference: a client comes or goes {comes}, and {hint}"
    return "pass", f"clients came or went by {name} from {text.duration(change)} on"


def seen_by_round(parts: Iterable[Part]) -> dict[int, int]:
    """The number of clients that have answered in time at least once, after each round."""
    counts: dict[int, int] = {}
    seen: set[str] = set()
    for part in sorted(parts, key=attrgetter("round")):
        if part.outcome == "counted":
            seen.add(part.client)
        counts[part.round] = len(seen)
    return counts


def kinds(parts: Iterable[Part], what: str) -> list[Kind]:
    """The parts by ``what``, "hardware" or "link"."""
    by_kind: defaultdict[str, list[Part]] = defaultdict(list)
    for part in parts:
        by_kind[getattr(part, what)].append(part)
    rows = []
    for name in sorted(by_kind):
        of_kind = by_kind[name]
        seconds = []
        for part in of_kind:
            if part.outcome == "counted":
                seconds.append(part.seconds)
        kind = Kind(
            name=name or "drawn",
            asked=len(of_kind),
            counted=len(seconds),
            seconds=_median(seconds),
        )
        rows.append(kind)
    return rows


def _median(seconds: Sequence[float]) -> float | None:
    return median(seconds) if seconds else None
