"""The facts of a run in one JSON object: what `up --json` ends with, and summary.json in the run's directory."""

from __future__ import annotations

import math
from typing import Any

from orchestrator.results.checks import checks, overall
from orchestrator.results.history import History
from orchestrator.results.rows import FaultSpan


def summary(history: History) -> dict[str, Any]:
    """Plain JSON values only; None where the run did not come to a figure.

    ``seconds`` are the run's own, of the virtual clock where nodes are simulated; ``wall_seconds`` are the host's.
    Keys: run (directory), name, driver, links (engine), verdict, checks, rounds, seconds, wall_seconds,
    accuracy {global, edge}, bytes {link class: delivered}, messages {kind: sent}, faults, nodes, overruns, ended,
    error.
    """
    results = checks(history)
    outcome = history.outcome
    edges = {name: series[-1].value for name, series in history.edge_series("accuracy").items()}
    overall_accuracy = history.global_series("accuracy")
    return {
        "run": str(history.directory),
        "name": history.plan.get("name", history.run),
        "driver": history.driver,
        "links": history.engine,
        "verdict": overall(results),
        "checks": results,
        "rounds": history.rounds_done(),
        "seconds": round(history.seconds, 3),
        "wall_seconds": round(outcome.wall, 3) if outcome and outcome.wall is not None else None,
        "accuracy": {
            "global": finite(overall_accuracy[-1].value) if overall_accuracy else None,
            "edge": {name: finite(value) for name, value in edges.items()},
        },
        "bytes": history.bytes_by_class(),
        "messages": history.messages_by_kind(),
        "faults": [_fault(span, history.training_began or 0.0) for span in history.faults()],
        "nodes": len(history.nodes),
        "overruns": len(history.events("overrun")),
        "ended": outcome.ended if outcome else None,
        "error": outcome.error if outcome else None,
    }


def finite(value: float) -> float | None:
    """A number that JSON can hold: None for NaN and the infinities."""
    return value if math.isfinite(value) else None


def _fault(span: FaultSpan, began: float) -> dict[str, Any]:
    """A fault with when it took effect, in seconds since the training began; None if it never did."""
    between = [side[0] if len(side) == 1 else list(side) for side in span.planned.get("between") or ()]
    where = {"between": between} if between else {"node": span.planned.get("node") or span.target}
    at = None if span.start is None else round(span.start - began, 3)
    return {"action": span.action, **where, "at": at, "round": span.round}
