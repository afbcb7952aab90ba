"""One row about a run, for a table of several runs."""

from __future__ import annotations

from typing import Any

from orchestrator.results.record.history import History
from orchestrator.results.summary import summary


def overview(history: History) -> dict[str, Any]:
    """The scenario, algorithm, driver, seed, verdict, rounds, seconds, accuracies of the last round (fractions), and
    bytes that each class of links delivered. Accuracies and bytes that a run does not have are left out."""
    found, plan = summary(history), history.plan
    last = {f"accuracy.{scope}": values for scope, values in found["accuracy"].items() if isinstance(values, float)}
    sent = {f"bytes.{name}": count for name, count in (found.get("bytes") or {}).items()}
    return {
        "run": history.run,
        "name": plan["name"],
        "algorithm": plan["algorithm"]["name"],
        "driver": plan["driver"],
        "seed": plan["seed"],
        "verdict": found["verdict"],
        "ended": found["ended"],
        "rounds": found["rounds"],
        "seconds": found["seconds"],
        **last,
        **sent,
    }
