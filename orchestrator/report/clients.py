"""The clients of a population in the report: who was seen, and how their parts ended."""

from __future__ import annotations

from collections import Counter
from typing import Any

from orchestrator import text
from orchestrator.report.figures import SERIES
from orchestrator.report.marks import Figure, axis, figure, line
from orchestrator.results.evaluation.population import OUTCOMES, kinds, parts, population, seen_by_round
from orchestrator.results.history import History


def client_figures(history: History) -> dict[str, Figure]:
    """The share of clients that were seen, and the outcomes of each round. Without a population they have no marks."""
    found = parts(history)
    planned = history.plan.get("population")
    seen = seen_by_round(found)
    rounds = list(seen)
    tally = Counter((part.round, part.outcome) for part in found)
    if planned:
        shares = [count / planned["size"] for count in seen.values()]
    else:
        shares = []
    if shares:
        of_share = [line("clients seen", rounds, shares, SERIES[0])]
    else:
        of_share = []
    of_outcome = [
        line(said, rounds, [tally[round, outcome] for round in rounds], colour)
        for (outcome, said), colour in zip(OUTCOMES.items(), SERIES, strict=False)
        if any(tally[round, outcome] for round in rounds)
    ]
    return {
        "clients-seen": figure(
            "Clients that answered in time at least once",
            axis("round"),
            axis(format="percent", zero=True),
            of_share,
            230,
        ),
        "clients-outcomes": figure(
            "Clients of each round, by how it ended",
            axis("round"),
            axis("clients", zero=True),
            of_outcome,
            230,
            hover="x",
        ),
    }


def client_rows(history: History) -> dict[str, Any] | None:
    """The section on clients; None without a population."""
    figures = population(history)
    if figures is None:
        return None
    found = parts(history)
    outcomes = [
        (said, figures["outcomes"][outcome]) for outcome, said in OUTCOMES.items() if figures["outcomes"][outcome]
    ]
    saying = (
        f"Of {figures['clients']:,} clients, {figures['seen']:,} ({text.percent(figures['share_seen'])}) "
        f"answered in time at least once. Selection: {figures['selection']}, {figures['selected']} "
        f"{'at a time' if figures['asynchronous'] else 'for each round'}."
    )
    tables = [
        (what, [(kind.name, kind.asked, kind.counted, text.duration(kind.seconds)) for kind in kinds(found, what)])
        for what in ("hardware", "link")
    ]
    return {"saying": saying, "outcomes": outcomes, "tables": tables}
