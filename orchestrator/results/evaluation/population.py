"""The clients of a population in a run: who took part, and how it ended for them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
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
    found = []
    for event in history.events(ClientPart.NAME):
        if event.node != POPULATION or event.round is None:
            continue
        part = ClientPart.from_json(event.data)
        found.append(
            Part(
                client=str(part.client),
                round=event.round + int(part.staleness or 0),
                outcome=str(part.outcome),
                began=float(part.began),
                seconds=float(part.seconds),
                hardware="" if part.hardware is None else str(part.hardware),
                link=str(part.link),
            )
        )
    return found


def population(history: History) -> dict[str, Any] | None:
    """For the summary; None without a population.

    ``selected`` clients answer for each round, or take part at a time if the algorithm is ``asynchronous``. ``seen``
    counts the clients that answered in time at least once, ``share_seen`` is their share of all. ``asked`` counts the
    parts, ``outcomes`` by how they ended. ``seconds``: median duration of parts that counted.
    """
    planned = history.plan.get(POPULATION)
    if not planned:
        return None
    found = parts(history)
    counted = [part for part in found if part.outcome == "counted"]
    seen = len({part.client for part in counted})
    tally = Counter(part.outcome for part in found)
    return {
        "clients": planned["size"],
        "asynchronous": planned["asynchronous"],
        "selected": planned["selected"],
        "selection": planned["selection"]["name"],
        "seen": seen,
        "share_seen": seen / planned["size"],
        "asked": len(found),
        "outcomes": {outcome: tally[outcome] for outcome in OUTCOMES},
        "seconds": median(part.seconds for part in counted) if counted else None,
    }


def clients_available(history: History) -> Assessment | None:
    """Check that the trace of when clients are available made a difference in the run. None without a trace, training
    or facts on it."""
    planned = history.plan.get(POPULATION) or history.plan.get("clients") or {}
    trace = planned.get("availability", {})
    began = history.training_began
    if "change" not in trace or began is None:
        return None
    if history.status == "running":
        return "unknown", "the run is going on"
    seconds = (history.seconds if history.outcome is None else history.outcome.t) - began
    name = trace["trace"]
    first = trace["first"]
    change = trace["change"]
    hint = (
        f"the run ended after {text.duration(seconds)} of training: check the unit of the times, and where they start"
    )
    if first is None or first >= seconds:
        begins = "no client has a stay" if first is None else f"the first stay starts at {text.duration(first)}"
        return "unknown", f"no row of {name} took effect: {begins}, and {hint}"
    if change is None or change >= seconds:
        comes = "never" if change is None else f"first at {text.duration(change)}"
        return "unknown", f"no row of {name} made a difference: a client comes or goes {comes}, and {hint}"
    return "pass", f"clients came or went by {name} from {text.duration(change)} on"


def seen_by_round(found: Iterable[Part]) -> dict[int, int]:
    """The number of clients that have answered in time at least once, after each round."""
    counts: dict[int, int] = {}
    seen: set[str] = set()
    for part in sorted(found, key=lambda part: part.round):
        if part.outcome == "counted":
            seen.add(part.client)
        counts[part.round] = len(seen)
    return counts


def kinds(found: Iterable[Part], what: str) -> list[Kind]:
    """The parts by ``what``, "hardware" or "link"."""
    by_kind: defaultdict[str, list[Part]] = defaultdict(list)
    for part in found:
        by_kind[getattr(part, what)].append(part)
    rows = []
    for name, own in sorted(by_kind.items()):
        seconds = [part.seconds for part in own if part.outcome == "counted"]
        rows.append(Kind(name or "drawn", len(own), len(seconds), median(seconds) if seconds else None))
    return rows
