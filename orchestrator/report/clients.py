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
    all_parts = parts(history)
    planned = history.plan.get("population")
    seen = seen_by_round(all_parts)
    rounds = list(seen)
    share_curves = []
    if planned:
        shares = [count / planned["size"] for count in seen.values()]
        if shares:
            share_curves.append(line("clients seen", rounds, shares, SERIES[0]))
    tally = Counter((part.round, part.outcome) for part in all_parts)
    outcome_curves = []
    for (outcome, words), colour in zip(OUTCOMES.items(), SERIES, strict=False):
        counts = [tally[round, outcome] for round in rounds]
        if any(counts):
            outcome_curves.append(line(words, rounds, counts, colour))
    share_axis = axis(format="percent", zero=True)
    count_axis = axis("clients", zero=True)
    shares_title = "Clients that answered in time at least once"
    outcomes_title = "Clients of each round, by how it ended"
    return {
        "clients-seen": figure(shares_title, axis("round"), share_axis, share_curves, 230),
        "clients-outcomes": figure(
            outcomes_title,
            axis("round"),
            count_axis,
            outcome_curves,
            230,
            hover="x",
        ),
    }


def client_rows(history: History) -> dict[str, Any] | None:
    """The section on clients; None without a population."""
    figures = population(history)
    if figures is None:
        return None
    outcomes = []
    for outcome, words in OUTCOMES.items():
        count = figures["outcomes"][outcome]
        if count:
            outcomes.append((words, count))
    share = text.percent(figures["share_seen"])
    pace = "at a time" if figures["asynchronous"] else "for each round"
    saying = (
        f"Of {figures['clients']:,} clients, {figures['seen']:,} ({share}) "
        f"answered in time at least once. Selection: {figures['selection']}, {figures['selected']} "
        f"{pace}."
    )
    all_parts = parts(history)
    tables = []
    for what in ("hardware", "link"):
        rows = []
        for kind in kinds(all_parts, what):
            seconds = text.duration(kind.seconds)
            rows.append((kind.name, kind.asked, kind.counted, seconds))
        tables.append((what, rows))
    return {"saying": saying, "outcomes": outcomes, "tables": tables}
